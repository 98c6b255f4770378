//! Fires that are decided a little before their time: what is seen of them, and what a person may still change.

use crate::schedule::{end, job, millis, runs};
use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::socket::Worker;
use crate::support::{journey, until};
use crate::tasks::{self, Raw};
use serde_json::{Value, json};
use std::process::Command;

pub fn now() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// What makes a job come once, at this time.
fn comes_at(ms: i64) -> Value {
    let at = chrono::DateTime::from_timestamp_millis(ms).expect("a time").to_rfc3339();
    json!({ "schedule": { "triggers": [{ "at": at }] } })
}

/// A job that comes once, a little later.
pub async fn once(api: &Api, class: &str, ms: i64) -> String {
    job(api, class, comes_at(now() + ms)).await
}

/// Its run, as soon as it is there.
pub async fn ahead(api: &Api, job: &str) -> Value {
    until("the run of the instant", || async { runs(api, job).await.pop() }).await
}

fn proved(broker: &mut Broker) {
    broker.process.terminate();
    let proof = Command::new(WEBLOOM)
        .arg("verify-history")
        .arg("--database")
        .arg(crate::support::process::database(&broker.folder))
        .output()
        .expect("it runs");
    let told = String::from_utf8_lossy(&proof.stdout);
    assert!(proof.status.success() && told.contains(" 0 discrepancies"), "{told}");
}

#[test]
fn it_begins_when_its_time_has_come() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Ahead", "it.Late"]).await;
        let job = once(&api, "it.Ahead", 2_000).await;
        let run = ahead(&api, &job).await;
        let planned = millis(&run["plannedAt"]);
        let is_ahead = run["notBefore"] == run["plannedAt"] && (1..=1_900).contains(&(planned - millis(&run["creationTime"])));
        assert!(is_ahead || now() >= planned, "{run}");
        let identity = run["identity"].as_str().expect("an id").to_owned();
        let (_, why) = api.get(&format!("/api/v1/runs/{identity}/why")).await;
        // A worker that comes in between may have it as well as the one that was there.
        let mut second = Worker::watch(&api, &id(), &["it.Ahead"]).await;
        if now() < planned {
            assert_eq!((&why["rule"], &run["state"]), (&json!("planned"), &json!("pending")), "{why}");
        }
        let start = tokio::select! {
            start = worker.socket.find("start") => start,
            start = second.socket.find("start") => start,
        };
        assert!(now() >= planned, "it was told {} ms too early", planned - now());
        assert_eq!((&start["identity"], &start["plannedAt"]), (&run["identity"], &run["plannedAt"]));
        end(&api, &start["identity"]).await;
        let over = api.state(&identity).await;
        assert!(millis(&over["startTime"]) >= planned, "{over}");
        assert_eq!(runs(&api, &job).await.len(), 1);

        // Whoever watched when it was decided is gone when it begins.
        let job = once(&api, "it.Late", 2_000).await;
        let run = ahead(&api, &job).await;
        worker.socket.say("watch", &json!({ "classNames": ["it.Other"], "runs": [] }));
        worker.socket.find("watching").await;
        let is_early = now() < millis(&run["plannedAt"]);
        let over = until("its end", || async { runs(&api, &job).await.pop().filter(|run| run["finishTime"].is_string()) }).await;
        assert!(!is_early || over["state"] == "failed", "nobody watches its class any more: {over}");
        proved(&mut broker);
    });
}

/// Whatever a person does in between counts at once: what was decided is taken back.
#[test]
fn what_comes_in_between_comes_first() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Off", "it.On", "it.Old", "it.New", "it.Hand"]).await;
        let mut in_time = 0;
        // It is seen only if it is done before the time comes.
        while in_time < 2 {
            let off = once(&api, "it.Off", 2_500).await;
            let on = once(&api, "it.On", 2_500).await;
            let new = once(&api, "it.Old", 2_500).await;
            let hand = once(&api, "it.Hand", 2_500).await;
            let by_schedule = ahead(&api, &hand).await;
            let first = [ahead(&api, &off).await, ahead(&api, &on).await, ahead(&api, &new).await];
            let planned = first.iter().chain([&by_schedule]).map(|run| millis(&run["plannedAt"])).min().expect("four");
            match in_time {
                0 => assert_eq!(api.post(&format!("/api/v1/jobs/{off}/disable"), &json!({})).await.0, 200),
                _ => assert_eq!(api.delete(&format!("/api/v1/jobs/{off}")).await.0, 204),
            }
            // Off and on again is as if nothing had been.
            for what in ["disable", "enable"] {
                assert_eq!(api.post(&format!("/api/v1/jobs/{on}/{what}"), &json!({})).await.0, 200);
            }
            let (_, job) = api.get(&format!("/api/v1/jobs/{new}")).await;
            let class = json!({ "FullClassName": "it.New" });
            let changed = json!({ "name": job["name"], "jobType": "block", "properties": class, "schedule": job["schedule"] });
            let (status, answer) = api.put(&format!("/api/v1/jobs/{new}"), &changed).await;
            assert_eq!(status, 200, "{answer}");
            let (status, by_hand) = api.post(&format!("/api/v1/jobs/{hand}/trigger"), &json!({})).await;
            let is_in_time = now() < planned;
            assert!(!is_in_time || status < 300, "{by_hand}");
            let mut started = Vec::new();
            if is_in_time {
                for run in &first {
                    let (status, gone) = api.get(&format!("/api/v1/runs/{}", run["identity"].as_str().expect("an id"))).await;
                    assert!(status == 404 || now() >= planned, "{gone}");
                }
                while started.len() < 3 {
                    let start = worker.socket.find("start").await;
                    if ![&on, &new, &hand].iter().any(|job| start["jobId"] == **job) {
                        // A run of a round that was not in time.
                        continue;
                    }
                    if start["className"] != "it.Hand" {
                        end(&api, &start["identity"]).await;
                    }
                    started.push((start["className"].as_str().expect("a class").to_owned(), start["plannedAt"].is_string()));
                }
                started.sort();
                let expected = [("it.Hand", false), ("it.New", true), ("it.On", true)].map(|(class, planned)| (class.to_owned(), planned));
                assert_eq!(started, expected, "by hand at once, and the others at their time");
                let skipped = until("the instant of the job that was triggered by hand", || async {
                    let (_, fires) = api.get(&format!("/api/v1/jobs/{hand}/fires")).await;
                    fires["items"].as_array().and_then(|fires| fires.first().cloned())
                })
                .await;
                assert_eq!((&skipped["verdict"], &skipped["rule"]), (&json!("skipped"), &json!("overlap")), "{skipped}");
                assert!(runs(&api, &off).await.is_empty(), "it was disabled before its time had come");
                in_time += 1;
            }
            for run in runs(&api, &hand).await.iter().chain(&runs(&api, &on).await).chain(&runs(&api, &new).await) {
                if run["finishTime"].is_null() {
                    api.post(&format!("/api/v1/runs/{}/stop", run["identity"].as_str().expect("an id")), &json!({})).await;
                }
            }
            for job in [&off, &on, &new, &hand] {
                let (_, was) = api.get(&format!("/api/v1/jobs/{job}")).await;
                let more = json!({ "name": id(), "jobType": "block", "properties": was["properties"] });
                api.put(&format!("/api/v1/jobs/{job}"), &more).await;
                api.delete(&format!("/api/v1/jobs/{job}")).await;
            }
        }
        proved(&mut broker);
    });
}

#[test]
fn a_broker_that_dies_in_between_begins_it_once() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "200"], "");
        let api = Api::new(&broker.url);
        let worker = Worker::watch(&api, &id(), &["it.Kill"]).await;
        let job = once(&api, "it.Kill", 2_500).await;
        let run = ahead(&api, &job).await;
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &worker.id, &["it.Kill"]).await;
        let start = worker.socket.find("start").await;
        assert!(now() >= millis(&run["plannedAt"]));
        assert_eq!(start["identity"], run["identity"]);
        end(&api, &start["identity"]).await;
        assert_eq!(runs(&api, &job).await.len(), 1);
        proved(&mut broker);
    });
}

/// A task as well: each of its instances, and nothing that was sent is sent again under the same attempt.
#[test]
fn a_task_begins_like_one_that_was_made_at_its_time() {
    journey(async {
        let mut broker = Broker::start(&[], "task.report=panic@3");
        let api = Api::new(&broker.url);
        let mut workers = Vec::new();
        for _ in 0..2 {
            workers.push(Raw::watch(&api, &id(), &["all", "one"], json!({}), json!([])).await);
        }
        let planned = now() + 2_500;
        let all = tasks::job(&api, "all", json!({ "handler": "all", "strategy": "broadcast" }), comes_at(planned)).await;
        assert!(ahead(&api, &all).await["notBefore"].is_string() || now() >= planned);
        let mut instances = Vec::new();
        for worker in &mut workers {
            let order = worker.order().await;
            assert!(now() >= planned);
            instances.push(order["instance"].clone());
            worker.report(&order, "success", json!({}));
        }
        instances.sort_by_key(Value::as_u64);
        assert_eq!(instances, [json!(null), json!(1)], "each worker has its own");
        let run = runs(&api, &all).await.pop().expect("a run");
        tasks::over(&api, run["identity"].as_str().expect("an id")).await;

        // Its actor dies over a report: what was sent may be at work, so it is waited for.
        let planned = now() + 2_500;
        let one = tasks::job(&api, "one", json!({ "handler": "one", "lease": 3_000 }), comes_at(planned)).await;
        let mut sent = Vec::new();
        while sent.len() < 2 {
            let (first, second) = workers.split_at_mut(1);
            let (at, order) = tokio::select! {
                order = first[0].order() => (0, order),
                order = second[0].order() => (1, order),
            };
            if sent.is_empty() {
                workers[at].report(&order, "running", json!({}));
            } else {
                workers[at].report(&order, "success", json!({}));
            }
            sent.push(order["attempt"].as_u64());
        }
        assert_eq!(sent, [Some(1), Some(2)], "the second attempt comes when the lease of the first is over");
        let run = runs(&api, &one).await.pop().expect("a run");
        assert_eq!(tasks::over(&api, run["identity"].as_str().expect("an id")).await["state"], "success");
        proved(&mut broker);
    });
}

/// Two changes at once: the second finds what the first has just made possible.
#[test]
fn changes_one_upon_the_other_leave_nothing_behind() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Twice", "it.Last"]).await;
        let mut jobs = Vec::new();
        for n in 0..6 {
            let mut more = comes_at(now() + 2_500 + n);
            more["name"] = json!(format!("twice {n}"));
            jobs.push(job(&api, "it.Twice", more).await);
        }
        let planned = millis(&ahead(&api, &jobs[0]).await["plannedAt"]);
        for job in &jobs {
            ahead(&api, job).await;
            for what in ["disable", "enable", "disable", "enable", "disable"] {
                assert_eq!(api.post(&format!("/api/v1/jobs/{job}/{what}"), &json!({})).await.0, 200);
            }
        }
        let is_in_time = now() < planned;
        once(&api, "it.Last", 1_000).await;
        let start = worker.socket.find("start").await;
        assert!(!is_in_time || start["className"] == "it.Last", "of those that are disabled none begins: {start}");
        while start["className"] != "it.Last" && worker.socket.find("start").await["className"] != "it.Last" {}
        proved(&mut broker);
    });
}

/// What somebody leaves for the next run is what that run gets.
#[test]
fn a_task_gets_what_was_left_for_it_last() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Raw::watch(&api, &id(), &["left"], json!({}), json!([])).await;
        let planned = now() + 2_500;
        let job = tasks::job(&api, "left", json!({ "handler": "left" }), comes_at(planned)).await;
        let run = ahead(&api, &job).await;
        let (status, answer) = api.put(&format!("/api/v1/jobs/{job}/data"), &json!({ "data": { "page": 7 } })).await;
        assert_eq!(status, 204, "{answer}");
        // The broker takes it back after it has answered.
        let is_in_time = now() < planned - 200;
        let order = worker.order().await;
        assert!(!is_in_time || order["data"] == json!({ "page": 7 }), "{order} {run}");
        worker.report(&order, "success", json!({}));
        tasks::over(&api, order["identity"].as_str().expect("an id")).await;
        proved(&mut broker);
    });
}
