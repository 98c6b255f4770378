//! Brokers that do not lead execute runs of callback jobs, with PostgreSQL: who executes what, and what becomes of it when a broker is killed,
//! hangs, ends, is drained or leads.

use crate::addresses::start;
use crate::postgres::verify;
use crate::support::api::Api;
use crate::support::brokers::Brokers;
use crate::support::process::Process;
use crate::support::receiver::{Got, Receiver, Reply};
use crate::support::shell::webloom;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};

/// A callback job that may run any number of times at once.
async fn job(api: &Api, name: &str, url: &str, policies: Value) -> String {
    let mut all = json!({ "overlap": "allow" });
    all.as_object_mut().expect("an object").extend(policies.as_object().cloned().unwrap_or_default());
    let input = json!({ "name": name, "jobType": "callback", "callback": { "url": url }, "policies": all });
    let (status, job) = api.post("/api/v1/jobs", &input).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

async fn trigger(api: &Api, job: &str, count: usize) -> Vec<String> {
    let mut runs = Vec::new();
    for _ in 0..count {
        runs.push(api.trigger(job).await);
    }
    runs
}

pub async fn over(api: &Api, run: &str) -> Value {
    let states = ["success", "failed", "stopped"];
    until("the end of the run", || async { Some(api.state(run).await).filter(|run| states.iter().any(|s| run["state"] == *s)) }).await
}

async fn all_succeed(api: &Api, runs: &[String]) {
    for run in runs {
        let run = over(api, run).await;
        assert_eq!(run["state"], "success", "{run}");
    }
}

/// How often the receiver was called for each run.
fn calls(got: &[Got]) -> HashMap<String, usize> {
    let mut calls = HashMap::new();
    got.iter().for_each(|got| *calls.entry(got.headers["webloom-run"].clone()).or_default() += 1);
    calls
}

fn held(count: usize) -> impl Iterator<Item = Reply> {
    std::iter::repeat_n(Reply::Held(200), count)
}

#[test]
fn runs_of_callbacks_are_executed_by_all_brokers() {
    journey(async {
        let brokers = Brokers::start(3).await;
        let receiver = Receiver::start(held(9));
        let (leader, other) = (brokers.api(0), brokers.api(2));
        let job = job(&other, "spread", &receiver.url, json!({})).await;
        let runs = trigger(&other, &job, 9).await;
        receiver.wait_for(9).await;
        // Each broker gives the same answer.
        brokers.have_runs(0, &[3, 3, 3]).await;
        brokers.have_runs(1, &[3, 3, 3]).await;
        let text = webloom(&leader.url, &["brokers"]).ok();
        assert_eq!(text.lines().filter(|line| line.contains("standby") && line.contains(" 3 ")).count(), 2, "{text}");
        // Three more, one for each broker. All are stopped through the same broker.
        receiver.answer(held(3));
        let stopped = trigger(&leader, &job, 3).await;
        receiver.wait_for(12).await;
        for run in &stopped {
            assert_eq!(other.state(run).await["state"], "running");
            let (status, run) = other.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await;
            assert_eq!((status, &run["state"]), (200, &json!("stopped")), "{run}");
        }
        receiver.release();
        all_succeed(&leader, &runs).await;
        brokers.have_runs(0, &[0, 0, 0]).await;
        let calls = calls(&receiver.got());
        assert!(calls.len() == 12 && calls.values().all(|count| *count == 1), "{calls:?}");
        receiver.stop().await;
        verify(&brokers.url);
    });
}

#[test]
fn runs_of_a_broker_that_is_killed_are_executed_by_another() {
    journey(async {
        let mut brokers = Brokers::start(2).await;
        let receiver = Receiver::start(held(12));
        let leader = brokers.api(0);
        let job = job(&leader, "killed", &receiver.url, json!({})).await;
        let runs = trigger(&leader, &job, 6).await;
        receiver.wait_for(6).await;
        brokers.have_runs(0, &[3, 3]).await;
        brokers.kill(1);
        // Its three attempts are repeated by the leader.
        let got = receiver.wait_for(9).await;
        assert!(got.iter().all(|got| got.headers["webloom-attempt"] == "1"));
        brokers.have_runs(0, &[6, 0]).await;
        // A new one gets its share of the runs that follow.
        brokers.add();
        brokers.execute(2).await;
        let more = trigger(&leader, &job, 2).await;
        receiver.wait_for(11).await;
        brokers.have_runs(0, &[7, 0, 1]).await;
        receiver.release();
        all_succeed(&leader, &runs).await;
        all_succeed(&leader, &more).await;
        let calls = calls(&receiver.got());
        assert_eq!(calls.values().sum::<usize>(), 11, "{calls:?}");
        receiver.stop().await;
    });
}

#[test]
fn a_broker_that_hangs_writes_nothing_for_runs_that_it_has_lost() {
    journey(async {
        let brokers = Brokers::start(2).await;
        // The first run goes to the other broker, which will learn that it has failed; the second attempt succeeds.
        let receiver = Receiver::start([Reply::Held(500), Reply::Held(200)]);
        let leader = brokers.api(0);
        let job = job(&leader, "hangs", &receiver.url, json!({})).await;
        let runs = trigger(&leader, &job, 1).await;
        receiver.wait_for(1).await;
        brokers.have_runs(0, &[0, 1]).await;
        brokers.signal(1, "-STOP");
        receiver.wait_for(2).await;
        brokers.have_runs(0, &[1, 0]).await;
        receiver.release();
        // The first thing that it does then is to store the failed end, which must be refused.
        brokers.signal(1, "-CONT");
        all_succeed(&leader, &runs).await;
        // It gets a new right, and runs again.
        brokers.execute(2).await;
        let more = trigger(&leader, &job, 2).await;
        all_succeed(&leader, &more).await;
        all_succeed(&leader, &runs).await;
        receiver.stop().await;
        verify(&brokers.url);
    });
}

#[test]
fn brokers_get_runs_although_each_commit_is_slow() {
    journey(async {
        let brokers = Brokers::start_on(3, &["commit_delay = 50000", "commit_siblings = 0", "fsync = on"], &[], None).await;
        let receiver = Receiver::start([]);
        let leader = brokers.api(0);
        let job = job(&leader, "slow", &receiver.url, json!({})).await;
        for _ in 0..3 {
            let runs = trigger(&leader, &job, 3).await;
            all_succeed(&leader, &runs).await;
        }
        receiver.stop().await;
    });
}

#[test]
fn runs_outlive_the_leader_that_gave_them() {
    journey(async {
        let mut brokers = Brokers::start(3).await;
        let receiver = Receiver::start(held(9));
        let job = job(&brokers.api(0), "outlive", &receiver.url, json!({})).await;
        let runs = trigger(&brokers.api(0), &job, 6).await;
        receiver.wait_for(6).await;
        brokers.have_runs(0, &[2, 2, 2]).await;
        brokers.kill(0);
        // The runs of the old leader, and of the broker that leads now, are executed by the new leader; those of the third go on.
        receiver.wait_for(10).await;
        let other = brokers.api(2);
        receiver.answer(held(500));
        let more = RefCell::new(Vec::new());
        until("both get runs again", || async {
            // It may not know the new leader yet.
            let (status, run) = other.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
            if status == 202 {
                more.borrow_mut().push(run["identity"].as_str().expect("an id").to_owned());
            }
            brokers.runs(2).await[1..].iter().all(|runs| *runs > 2).then_some(())
        })
        .await;
        let more = more.into_inner();
        receiver.wait_for(10 + more.len()).await;
        receiver.release();
        all_succeed(&other, &runs).await;
        all_succeed(&other, &more).await;
        let calls = calls(&receiver.got());
        let once = runs.iter().filter(|run| calls[*run] == 1).count();
        assert_eq!((once, calls.values().sum::<usize>()), (2, 10 + more.len()), "nothing else is repeated: {calls:?}");
        receiver.stop().await;
        verify(&brokers.url);
    });
}

#[test]
fn a_broker_is_drained_without_repeating_an_attempt() {
    journey(async {
        let mut brokers = Brokers::start(2).await;
        // The first attempts of one job are held, those of the other fail and wait for a minute.
        let receiver = Receiver::start(held(2).chain([Reply::status(500), Reply::status(500)]));
        let leader = brokers.api(0);
        let slow = job(&leader, "slow", &receiver.url, json!({})).await;
        let again = job(&leader, "again", &receiver.url, json!({ "retry": { "limit": 1, "delay": 60_000, "jitter": 0 } })).await;
        let slow = trigger(&leader, &slow, 2).await;
        receiver.wait_for(2).await;
        let again = trigger(&leader, &again, 2).await;
        receiver.wait_for(4).await;
        for run in &again {
            until("the second attempt waits", || async { (leader.state(run).await["attempt"] == 2).then_some(()) }).await;
        }
        brokers.have_runs(0, &[2, 2]).await;
        let (status, problem) = leader.post(&format!("/api/v1/brokers/{}/drain", uuid::Uuid::new_v4()), &json!({})).await;
        assert_eq!((status, &problem["type"]), (404, &json!("/problems/not-found")), "{problem}");
        let id = |broker: &Value| broker["id"].as_str().expect("an id").to_owned();
        let found = brokers.at(0).await;
        let (status, problem) = leader.post(&format!("/api/v1/brokers/{}/drain", id(&found[&leader.url])), &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/leads")), "{problem}");

        let url = brokers.all[1].0.url.clone();
        webloom(&leader.url, &["brokers", "drain", &url, "--no-wait"]).ok();
        // What waits moves at once, and can be stopped; then it ends with the attempt that has begun.
        brokers.have_runs(0, &[3, 1]).await;
        let (status, stopped) = leader.post(&format!("/api/v1/runs/{}/stop", again[0]), &json!({})).await;
        assert_eq!((status, &stopped["state"]), (200, &json!("stopped")), "{stopped}");
        receiver.release();
        let text = webloom(&leader.url, &["brokers", "drain", &url]).ok();
        assert!(text.contains("has no runs any more"), "{text}");
        all_succeed(&leader, &slow).await;
        brokers.have_runs(0, &[1, 0]).await;
        let job = job(&leader, "later", &receiver.url, json!({})).await;
        let later = trigger(&leader, &job, 3).await;
        all_succeed(&leader, &later).await;
        assert_eq!(brokers.at(0).await[&url]["executes"], false);
        assert_eq!(receiver.got().len(), 7, "no attempt was repeated");
        // It stands by as before, and takes over.
        brokers.kill(0);
        until("the drained broker leads", || async { (brokers.api(1).get("/readyz").await.0 == 200).then_some(()) }).await;
        brokers.have_runs(1, &[0, 1]).await;
        receiver.stop().await;
        verify(&brokers.url);
    });
}

#[test]
fn a_broker_that_ends_hands_its_runs_over() {
    journey(async {
        let mut brokers = Brokers::start(2).await;
        let receiver = Receiver::start(held(3));
        let leader = brokers.api(0);
        let job = job(&leader, "ends", &receiver.url, json!({})).await;
        let runs = trigger(&leader, &job, 2).await;
        receiver.wait_for(2).await;
        assert!(brokers.all[1].0.process.terminate().success());
        receiver.wait_for(3).await;
        receiver.release();
        all_succeed(&leader, &runs).await;
        // Without the secret of the database nobody may own runs.
        let socket = leader.request(reqwest::Method::GET, "/api/v1/link").header("upgrade", "websocket").header("webloom-link", "guess");
        assert_eq!(leader.send(socket).await.0, 401);
        receiver.stop().await;
    });
}

#[test]
fn a_broker_at_an_address_of_no_use_executes_no_runs_and_says_why() {
    journey(async {
        let brokers = Brokers::start(1).await;
        let leader = brokers.all[0].0.url.clone();
        let nowhere = "http://127.0.0.1:1".to_owned();
        let hint = "start this broker with --advertise and an address that the other brokers reach";
        let unreachable = format!("the leader at {leader} cannot reach this broker at {nowhere}: {hint}");
        for (address, why) in [(nowhere, unreachable), (leader.clone(), "the leader has the address of this broker".to_owned())] {
            let folder = tempfile::tempdir().expect("a folder");
            std::fs::write(folder.path().join("b.url"), &brokers.url).expect("written");
            // Warnings alone, so that what is not read does not fill the pipe.
            let mut second = Process(start(folder.path(), "127.0.0.1:0", &["--lease-ms", "1500", "--advertise", &address]));
            let log = BufReader::new(second.0.stderr.take().expect("piped"));
            let said = tokio::task::spawn_blocking(move || log.lines().map_while(Result::ok).find(|line| line.contains(&why)).is_some());
            assert!(said.await.expect("it is read"), "it ended");
            let (status, list) = brokers.api(0).get("/api/v1/brokers").await;
            assert_eq!(status, 200, "{list}");
            let executing = list.as_array().expect("a list").iter().filter(|broker| broker["executes"] == true);
            assert_eq!(executing.map(|broker| &broker["role"]).collect::<Vec<_>>(), ["leader"], "{list}");
        }
    });
}
