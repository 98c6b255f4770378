//! Fires that are decided a little before their time: what is seen of them, and what a person may still change.

use crate::schedule::{end, job, millis, runs};
use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::socket::Worker;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::process::Command;

fn now() -> i64 {
    chrono::Utc::now().timestamp_millis()
}

/// A job that comes once, a little later.
async fn once(api: &Api, class: &str, ms: i64) -> String {
    let at = chrono::DateTime::from_timestamp_millis(now() + ms).expect("a time");
    job(api, class, json!({ "schedule": { "triggers": [{ "at": at.to_rfc3339() }] } })).await
}

/// Its run, as soon as it is there.
async fn ahead(api: &Api, job: &str) -> Value {
    until("the run of the instant", || async { runs(api, job).await.pop() }).await
}

fn proved(broker: &mut Broker) {
    broker.process.terminate();
    let proof = Command::new(WEBLOOM).arg("verify-history").arg("--database").arg(broker.folder.join("b.db")).output().expect("it runs");
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
        assert_eq!(run["notBefore"], run["plannedAt"], "{run}");
        assert!((1..=900).contains(&(planned - millis(&run["creationTime"]))), "{run}");
        let identity = run["identity"].as_str().expect("an id").to_owned();
        let (_, why) = api.get(&format!("/api/v1/runs/{identity}/why")).await;
        // A worker that comes in between may have it as well as the one that was there.
        let mut second = Worker::watch(&api, &id(), &["it.Ahead"]).await;
        let (status, answer) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        if now() < planned {
            assert_eq!((&why["rule"], &run["state"]), (&json!("planned"), &json!("pending")), "{why}");
            assert_eq!(status, 409, "{answer}");
            assert!(answer["detail"].as_str().is_some_and(|text| text.contains("about to begin")), "{answer}");
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

#[test]
fn a_disabled_job_does_not_begin_what_is_decided() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Off"]).await;
        let mut early = 0;
        for n in 0..20 {
            let job = once(&api, "it.Off", 1_200).await;
            let run = ahead(&api, &job).await;
            // Off in both ways.
            let (status, answer) = match n % 2 {
                0 => api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({})).await,
                _ => api.delete(&format!("/api/v1/jobs/{job}")).await,
            };
            assert!(status < 300, "{answer}");
            let is_early = now() < millis(&run["plannedAt"]);
            if n % 2 == 0 {
                assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
            }
            if is_early {
                let stopped = api.state(run["identity"].as_str().expect("an id")).await;
                assert_eq!((&stopped["state"], &stopped["startTime"]), (&json!("stopped"), &Value::Null), "{stopped}");
                early += 1;
            }
            if early == 2 {
                break;
            }
        }
        assert_eq!(early, 2, "it was in time");
        let last = once(&api, "it.Off", 1_000).await;
        let start = worker.socket.find("start").await;
        assert_eq!(start["jobId"], last.as_str(), "of the others none was told");
        end(&api, &start["identity"]).await;
        proved(&mut broker);
    });
}

#[test]
fn a_change_counts_from_the_next_fire_on() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Old", "it.New"]).await;
        let first = chrono::DateTime::from_timestamp_millis(now() + 1_500).expect("a time");
        let schedule = json!({ "triggers": [{ "every": 2_500, "anchor": first.to_rfc3339() }] });
        let more = json!({ "schedule": schedule, "policies": { "overlap": "allow" } });
        let job = job(&api, "it.Old", more.clone()).await;
        let run = ahead(&api, &job).await;
        let mut changed = more;
        (changed["name"], changed["jobType"]) = (json!("it.Old"), json!("block"));
        changed["properties"] = json!({ "FullClassName": "it.New" });
        let (status, answer) = api.put(&format!("/api/v1/jobs/{job}"), &changed).await;
        assert_eq!(status, 200, "{answer}");
        let planned = millis(&run["plannedAt"]);
        let is_early = now() < planned;
        for (n, class) in ["it.Old", "it.New"].into_iter().enumerate() {
            let start = worker.socket.find("start").await;
            assert_eq!(millis(&start["plannedAt"]), planned + 2_500 * n as i64, "no instant is lost or doubled");
            assert!(!is_early || start["className"] == class, "{start}");
            end(&api, &start["identity"]).await;
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
        let job = once(&api, "it.Kill", 1_500).await;
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
