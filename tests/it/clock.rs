//! The broker's clock is set: back by an hour, a day, in a broker that runs and while it is down. Jobs of every kind go on.

use crate::support::api::Api;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{journey, until};
use crate::tasks::{Raw, job as task_job};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;

const HOUR: i64 = 3_600_000;
const DAY: i64 = 24 * HOUR;

/// Sets the clock of the broker in this folder off by so many milliseconds.
fn set_clock(folder: &Path, offset_ms: i64) {
    let draft = folder.join("clock.draft");
    std::fs::write(&draft, offset_ms.to_string()).expect("written");
    std::fs::rename(draft, folder.join("clock")).expect("renamed");
}

fn broker(folder: &Path) -> Broker {
    set_clock(folder, 0);
    Broker::start_in(folder, "127.0.0.1:0", &[], "")
}

async fn create(api: &Api, job: Value) -> String {
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// Block jobs whose runs fail at once, since no worker watches: their instants are what counts.
fn block(name: &str, schedule: &Value) -> Value {
    json!({ "name": name, "jobType": "block", "properties": { "FullClassName": "it.Clock" }, "schedule": schedule })
}

async fn runs(api: &Api, job: &str) -> usize {
    let (status, page) = api.get(&format!("/api/v1/runs?jobId={job}&limit=1000")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").len()
}

/// Each of these jobs makes two runs more.
async fn all_go_on(api: &Api, jobs: &[(&str, String)]) {
    let mut before = Vec::new();
    for (name, job) in jobs {
        before.push((*name, job, runs(api, job).await));
    }
    for (name, job, before) in before {
        until(&format!("{name} to go on"), || async { (runs(api, job).await >= before + 2).then_some(()) }).await;
    }
}

fn proof(broker: &Broker) {
    let proof = Command::new(WEBLOOM)
        .arg("verify-history")
        .arg("--database")
        .arg(crate::support::process::database(&broker.folder))
        .output()
        .expect("it runs");
    assert!(proof.status.success(), "{}", String::from_utf8_lossy(&proof.stdout));
}

async fn every_kind(api: &Api, receiver: &Receiver) -> Vec<(&'static str, String)> {
    let one = |trigger: Value| json!({ "triggers": [trigger] });
    let mut jobs = Vec::new();
    for (name, schedule) in [
        ("cron", one(json!({ "cron": "* * * * * *" }))),
        ("zone", json!({ "zone": "Europe/Berlin", "triggers": [{ "cron": "* * * * * *" }] })),
        ("every", one(json!({ "every": 700 }))),
        ("after the end", one(json!({ "every": 500, "afterEnd": true }))),
        ("silence", json!({ "longestSilence": 1_000 })),
    ] {
        jobs.push((name, create(api, block(name, &schedule)).await));
    }
    // Plans of a day are decided again, one after another. The connection of an attempt may time out meanwhile, and without a run nothing asks.
    let retry = json!({ "retry": { "limit": 5, "delay": 100 } });
    let callback = json!({ "name": "asks", "jobType": "callback", "callback": { "url": receiver.url }, "policies": retry });
    let asks = create(api, callback).await;
    api.trigger(&asks).await;
    jobs.push(("asks for its next time", asks));
    jobs
}

#[test]
fn jobs_go_on_when_the_clock_goes_back() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = broker(folder.path());
        let api = Api::new(&broker.url);
        let receiver = Receiver::start((0..10_000).map(|_| Reply::json(&json!({ "nextIn": 300 }))));
        let mut jobs = every_kind(&api, &receiver).await;
        all_go_on(&api, &jobs).await;

        // An hour ahead. One is changed there, one is made there, one is switched off and on there.
        set_clock(folder.path(), HOUR);
        all_go_on(&api, &jobs).await;
        let (status, changed) = api.put(&format!("/api/v1/jobs/{}", jobs[0].1), &json!({ "description": "changed ahead" })).await;
        assert_eq!(status, 200, "{changed}");
        for (name, trigger) in [("made ahead, cron", json!({ "cron": "* * * * * *" })), ("made ahead, every", json!({ "every": 700 }))] {
            jobs.push((name, create(&api, block(name, &json!({ "triggers": [trigger] }))).await));
        }
        for change in ["disable", "enable"] {
            assert_eq!(api.post(&format!("/api/v1/jobs/{}/{change}", jobs[2].1), &json!({})).await.0, 200);
        }
        all_go_on(&api, &jobs).await;
        set_clock(folder.path(), 0);
        all_go_on(&api, &jobs).await;
        // A change after the step counts from now on, not from where the plan had been.
        let (status, changed) = api.put(&format!("/api/v1/jobs/{}", jobs[1].1), &json!({ "description": "changed after" })).await;
        assert_eq!(status, 200, "{changed}");
        all_go_on(&api, &jobs).await;

        // A day, and the broker is killed before it goes back.
        set_clock(folder.path(), DAY);
        all_go_on(&api, &jobs).await;
        broker.process.kill();
        set_clock(folder.path(), 0);
        broker.restart("");
        let api = Api::new(&broker.url);
        all_go_on(&api, &jobs).await;
        // Seconds.
        set_clock(folder.path(), -4_000);
        all_go_on(&api, &jobs).await;
        broker.process.kill();
        proof(&broker);
    });
}

/// What fired stays fired; what was only missed is decided again when its time comes again.
#[test]
fn what_was_missed_ahead_of_time_is_planned_again() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = broker(folder.path());
        let api = Api::new(&broker.url);
        let at = (chrono::Utc::now() + chrono::Duration::minutes(30)).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let at_once = |name: &str, policy: &str| {
            let mut job = block(name, &json!({ "triggers": [{ "at": at }] }));
            job["policies"] = json!({ "misfire": { "policy": policy } });
            job
        };
        let (missed, fired) = (create(&api, at_once("missed", "skip")).await, create(&api, at_once("fired", "once")).await);
        let fires =
            async |job: &str| api.get(&format!("/api/v1/jobs/{job}/fires")).await.1["items"].as_array().cloned().unwrap_or_default();
        set_clock(folder.path(), HOUR);
        until("the instants to be decided", || async {
            (!fires(&missed).await.is_empty() && !fires(&fired).await.is_empty()).then_some(())
        })
        .await;
        set_clock(folder.path(), 0);
        let next = |job: String| {
            let api = &api;
            async move { api.get(&format!("/api/v1/jobs/{job}")).await.1["nextFire"].clone() }
        };
        until("the missed instant to be planned again", || async { (next(missed.clone()).await == json!(at)).then_some(()) }).await;
        assert!(fires(&missed).await.is_empty());
        assert_eq!(fires(&fired).await.len(), 1);
        broker.process.kill();
        proof(&broker);
    });
}

/// The times that a task, a lease, a retry go by are measured, not read off a clock that may be set.
#[test]
fn pauses_and_leases_outlive_a_clock_that_is_set() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = broker(folder.path());
        let api = Api::new(&broker.url);
        let (worker_id, facts) = (crate::support::api::id(), json!({ "slots": 4 }));
        let mut worker = Raw::watch(&api, &worker_id, &["h"], facts.clone(), json!([])).await;
        let retry = json!({ "policies": { "retry": { "limit": 3, "delay": 500, "maxDelay": 500 } } });
        let held = task_job(&api, "held", json!({ "handler": "h", "lease": 60_000 }), json!({})).await;
        let tried = task_job(&api, "tried", json!({ "handler": "h", "lease": 60_000 }), retry).await;
        let held = api.trigger(&held).await;
        let order = worker.order().await;
        worker.report(&order, "running", json!({ "progress": 1 }));
        // Neither a day ahead nor back is the lease over, or the worker gone.
        for offset in [DAY, 0, -DAY, 0] {
            set_clock(folder.path(), offset);
            let run = api.trigger(&tried).await;
            let first = worker.order().await;
            assert_eq!(first["identity"], run.as_str());
            worker.report(&first, "failed", json!({ "error": { "message": "once more" } }));
            set_clock(folder.path(), offset - HOUR);
            let second = worker.order().await;
            assert_eq!((&second["identity"], &second["attempt"]), (&json!(run), &json!(2)), "the retry waits half a second");
            worker.report(&second, "success", json!({}));
            crate::tasks::over(&api, &run).await;
        }
        let now = api.state(&held).await;
        assert_eq!((&now["state"], &now["attempt"]), (&json!("running"), &json!(1)), "{now}");
        // A retry that was decided a day ahead, in a broker that starts again today.
        set_clock(folder.path(), DAY);
        let policies = json!({ "retry": { "limit": 1, "delay": 1_000, "maxDelay": 1_000 } });
        let nobody = json!({ "name": "nobody", "jobType": "block", "properties": { "FullClassName": "it.Nobody" }, "policies": policies });
        let late = create(&api, nobody).await;
        let run = api.trigger(&late).await;
        until("the pause", || async { Some(api.state(&run).await).filter(|run| run["attempt"] == 2) }).await;
        broker.process.kill();
        set_clock(folder.path(), 0);
        broker.restart("");
        let api = Api::new(&broker.url);
        assert_eq!(crate::tasks::over(&api, &run).await["state"], "failed");
    });
}
