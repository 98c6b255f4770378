//! A run that asks for the next time of its job, and is stopped by that job: neither waits for the other.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use crate::tasks::{Raw, job, over};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// What a run and its job waited for each other before.
const STALL: Duration = Duration::from_secs(9);

fn soon(hours: i64) -> String {
    (chrono::Utc::now() + chrono::Duration::hours(hours)).to_rfc3339_opts(chrono::SecondsFormat::Millis, true)
}

/// The worker is told to end the run, and does.
async fn end(worker: &mut Raw, order: &Value) {
    let cancel = worker.socket.find("cancel").await;
    assert_eq!(cancel["task"]["identity"], order["identity"]);
    worker.report(order, "cancelled", json!({}));
}

#[test]
fn a_run_that_asked_for_a_time_is_replaced_at_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({ "slots": 4 }), json!([])).await;
        let job = job(&api, "replaced", json!({ "handler": "h" }), json!({ "policies": { "overlap": "replace" } })).await;
        let first = api.trigger(&job).await;
        let order = worker.order().await;
        worker.report(&order, "running", json!({ "progress": 5, "nextAt": soon(5) }));
        until("the report", || async { Some(api.state(&first).await).filter(|run| run["progress"] == 5) }).await;
        let began = Instant::now();
        let (second, ()) = futures_util::join!(api.trigger(&job), end(&mut worker, &order));
        assert!(began.elapsed() < STALL, "the run and its job waited for each other: {:?}", began.elapsed());
        assert_eq!(over(&api, &first).await["state"], "stopped");
        let order = worker.order().await;
        assert_eq!(order["identity"], second.as_str());
        // And its job is disabled, with all its runs.
        worker.report(&order, "running", json!({ "progress": 5, "nextAt": soon(5) }));
        until("the report", || async { Some(api.state(&second).await).filter(|run| run["progress"] == 5) }).await;
        let began = Instant::now();
        let (path, stop) = (format!("/api/v1/jobs/{job}/disable"), json!({ "mode": "stop" }));
        let ((status, disabled), ()) = futures_util::join!(api.post(&path, &stop), end(&mut worker, &order));
        assert_eq!(status, 200, "{disabled}");
        assert!(began.elapsed() < STALL, "the run and its job waited for each other: {:?}", began.elapsed());
        assert_eq!(over(&api, &second).await["state"], "stopped");
    });
}

/// The time is kept with the end of the run: a broker that dies between the two still plans it.
#[test]
fn the_time_that_a_run_asked_for_survives_the_broker() {
    journey(async {
        let mut broker = Broker::start(&[], "job.run_over=die@1");
        let api = Api::new(&broker.url);
        let worker_id = id();
        let mut worker = Raw::watch(&api, &worker_id, &["h"], json!({ "slots": 4 }), json!([])).await;
        let job = job(&api, "asks", json!({ "handler": "h" }), json!({})).await;
        let run = api.trigger(&job).await;
        let order = worker.order().await;
        let at = soon(7);
        worker.report(&order, "success", json!({ "nextAt": at }));
        while broker.process.0.try_wait().expect("asked").is_none() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        broker.restart("");
        let api = Api::new(&broker.url);
        assert_eq!(over(&api, &run).await["state"], "success");
        until("the time to be planned", || async {
            (api.get(&format!("/api/v1/jobs/{job}")).await.1["nextFire"] == json!(at)).then_some(())
        })
        .await;
    });
}
