//! Where the end of a run, a change of its job and the turn of the next run meet.

use crate::schedule::{end, job, runs};
use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::socket::Worker;
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The job's actor dies over the same news, and the broker does not: the job is told again.
#[test]
fn an_end_that_was_lost_on_its_way_is_told_again() {
    journey(async {
        let broker = Broker::start(&["--grace", "300"], "job.run_over=panic@1");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Again"]).await;
        let job = job(&api, "it.Again", json!({ "policies": { "overlap": "queueOne" } })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        end(&api, &json!(first)).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str());
    });
}

/// Somebody asks for a run that waits for its turn, so that it has an actor: it gets its turn all the same.
#[test]
fn a_run_that_is_asked_for_before_its_turn() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Early"]).await;
        let job = job(&api, "it.Early", json!({ "policies": { "overlap": "queueAll" } })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        assert_eq!(api.get(&format!("/requestqueue/{second}")).await.0, 204);
        end(&api, &json!(first)).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str());
    });
}

/// A run that was made when its end meant nothing to the plan ends when it does.
#[test]
fn a_new_plan_waits_for_an_old_run() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Rests"]).await;
        let job = job(&api, "it.Rests", json!({ "cron": "0 0 1 1 *" })).await;
        let first = api.trigger(&job).await;
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        let path = format!("/api/v1/jobs/{job}");
        let (status, changed) = api.put(&path, &json!({ "schedule": { "triggers": [{ "every": 100, "afterEnd": true }] } })).await;
        assert_eq!((status, &changed["nextFire"]), (200, &Value::Null), "{changed}");
        end(&api, &json!(first)).await;
        let next = worker.socket.find("start").await;
        assert!(next["plannedAt"].is_string(), "{next}");
    });
}

/// What would keep a plan from being decided is refused, also where the schedule itself is not mentioned.
#[test]
fn a_plan_keeps_what_it_needs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "it.Class", json!({ "interval": 3_600_000 })).await;
        let path = format!("/api/v1/jobs/{job}");
        let before = api.get(&path).await;
        let (status, problem) = api.put(&path, &json!({ "properties": {} })).await;
        assert_eq!((status, &problem["field"]), (422, &json!("properties.FullClassName")), "{problem}");
        let silent = json!({ "name": "silent", "schedule": { "longestSilence": 1_000 } });
        assert_eq!(api.post("/api/v1/jobs", &silent).await.0, 422);
        assert_eq!(api.get(&path).await, before);
    });
}

/// A job is purged when its runs are over, and another one under its id is a job like any other.
#[test]
fn a_purged_job_leaves_nothing_behind() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Gone"]).await;
        let own = id();
        let job = job(&api, "it.Gone", json!({ "id": own, "policies": { "overlap": "queueAll" } })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        let (status, problem) = api.post(&format!("/api/v1/jobs/{job}/purge"), &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/open-runs")), "{problem}");
        for run in [second, first] {
            assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        }
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/purge"), &json!({})).await.0, 204);
        let again = crate::schedule::job(&api, "it.Gone", json!({ "id": own, "interval": 100 })).await;
        assert_eq!(again, job);
        let start = until("a fire", || async { runs(&api, &again).await.into_iter().find(|run| run["plannedAt"].is_string()) }).await;
        assert_eq!(start["jobId"], job.as_str());
    });
}
