//! A worker that dies after its work is done, while the broker is away: with an outbox its next process delivers the result.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::{journey, until};
use crate::tasks::{job, over};
use serde_json::json;
use std::cell::Cell;
use std::path::Path;
use std::rc::Rc;
use tokio::sync::Notify;
use webloom::sdk::{Error, TaskContext, TaskResult, Worker};

/// What a handler was called for, and when it may end.
#[derive(Clone, Default)]
struct Work {
    calls: Rc<Cell<u32>>,
    go: Rc<Notify>,
}

fn worker(broker: &Broker, folder: &Path, work: &Work) -> tokio::task::JoinHandle<Result<(), Error>> {
    let work = work.clone();
    let handle = move |_: TaskContext| {
        let work = work.clone();
        async move {
            work.calls.set(work.calls.get() + 1);
            work.go.notified().await;
            TaskResult::Ok(42)
        }
    };
    let worker = Worker::new(&broker.url).task("h", handle).outbox(folder);
    tokio::task::spawn_local(worker.run(std::future::pending()))
}

fn reports(folder: &Path) -> usize {
    let entries = std::fs::read_dir(folder).expect("a folder");
    entries.filter(|entry| entry.as_ref().expect("an entry").path().extension().is_some_and(|ending| ending == "json")).count()
}

#[test]
fn a_result_outlives_the_worker_and_the_broker() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 60_000, "noWorker": "wait" }), json!({})).await;
        let folder = tempfile::tempdir().expect("a folder");
        let work = Work::default();
        let first = worker(&broker, folder.path(), &work);
        let run = api.trigger(&job).await;
        until("it is at work", || async { (work.calls.get() == 1).then_some(()) }).await;
        let (_, workers) = api.get("/api/v1/workers").await;
        let (status, second) = (worker(&broker, folder.path(), &Work::default()).await.expect("it ends"), &workers["items"]);
        assert!(matches!(status, Err(Error::Outbox { .. })), "a folder belongs to one worker: {second}");
        // The broker dies, the work is done, and the worker dies before the broker is back.
        broker.process.0.kill().expect("killed");
        broker.process.0.wait().expect("dead");
        work.go.notify_one();
        until("the report is on disk", || async { (reports(folder.path()) == 1).then_some(()) }).await;
        first.abort();
        assert!(first.await.is_err_and(|error| error.is_cancelled()));
        broker.restart("");
        let api = Api::new(&broker.url);
        let next = worker(&broker, folder.path(), &work);
        let run = over(&api, &run).await;
        assert_eq!((&run["state"], &run["result"], &run["attempt"]), (&json!("success"), &json!(42), &json!(1)), "{run}");
        assert_eq!(
            (&run["workerId"], work.calls.get()),
            (&workers["items"][0]["id"], 1),
            "it is the same worker, and the work is not done again"
        );
        until("the report is forgotten", || async { (reports(folder.path()) == 0).then_some(()) }).await;
        // It goes on as any other.
        let run = api.trigger(&job).await;
        until("it is at work", || async { (work.calls.get() == 2).then_some(()) }).await;
        work.go.notify_one();
        assert_eq!(over(&api, &run).await["state"], "success");
        next.abort();
    });
}

/// What the broker has given to another worker meanwhile is refused, and not sent for ever.
#[test]
fn a_report_that_comes_too_late_is_forgotten() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 60_000 }), json!({})).await;
        let folder = tempfile::tempdir().expect("a folder");
        let work = Work::default();
        let first = worker(&broker, folder.path(), &work);
        until("a worker", || async { api.get("/api/v1/workers").await.1["items"][0]["isOnline"].as_bool().filter(|there| *there) }).await;
        let run = api.trigger(&job).await;
        until("it is at work", || async { (work.calls.get() == 1).then_some(()) }).await;
        broker.process.0.kill().expect("killed");
        broker.process.0.wait().expect("dead");
        work.go.notify_one();
        until("the report is on disk", || async { (reports(folder.path()) == 1).then_some(()) }).await;
        first.abort();
        drop(first.await);
        broker.restart("");
        let api = Api::new(&broker.url);
        until("the run is stopped", || async { (api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0 != 503).then_some(()) })
            .await;
        let next = worker(&broker, folder.path(), &work);
        until("the report is forgotten", || async { (reports(folder.path()) == 0).then_some(()) }).await;
        assert_eq!(work.calls.get(), 1);
        next.abort();
    });
}
