//! A run that nobody watches for has a worker started, on a real agent.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, Process, agent};
use crate::support::site::Site;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::path::Path;

const CLASS: &str = "demo.Python";

/// A line for `sh` that becomes the worker of the examples.
fn worker(broker: &str) -> String {
    format!("exec python3 {} {broker}", Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/http_worker.py").display())
}

/// A job that runs this line on a node.
async fn program(api: &Api, line: &str) -> String {
    let input = json!({ "name": id(), "jobType": "application", "properties": { "Application": "sh",
        "Arguments": json!(["-c", line]).to_string(), "MaxCpu": "101", "MinFreeMemory": "0", "Grace": "300" } });
    let (status, job) = api.post("/api/v1/jobs", &input).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// An agent that starts programs and is there.
async fn programs(api: &Api, broker: &str, folder: &Path) -> Process {
    let agent = agent(broker, folder, &["--applications", "--application-users", "root", "--heartbeat", "1"]);
    until("the agent to be there", || async {
        let (_, nodes) = api.get("/api/v1/nodes").await;
        nodes["items"][0]["load"].is_object().then_some(())
    })
    .await;
    agent
}

/// The runs of a job, the newest first.
async fn runs_of(api: &Api, job: &str) -> Vec<Value> {
    let (_, page) = api.get(&format!("/api/v1/runs?jobId={job}")).await;
    page["items"].as_array().cloned().unwrap_or_default()
}

/// Ends the worker that was started.
async fn dismiss(api: &Api, run: &Value) {
    let run = run["identity"].as_str().expect("an identity");
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
    over(api, run).await;
}

async fn over(api: &Api, run: &str) -> Value {
    // A broker that was killed leaves connections behind that answer nothing.
    let path = format!("/api/v1/runs/{run}");
    until("the run's end", || async { Some(api.get(&path).await.1).filter(|run| run["finishTime"].is_string()) }).await
}

#[test]
fn a_worker_is_started_where_nobody_watches() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut broker = Broker::start_in(folder.path(), "127.0.0.1:0", &[], "");
        let api = Api::new(&broker.url);
        let site = Site::serve(20);
        let _agent = programs(&api, &broker.url, folder.path()).await;
        let program = program(&api, &worker(&broker.url)).await;
        let block = json!({ "Arguments": site.url, "WorkerJob": program, "WorkerWait": "300000" });
        let job = api.job("crawl", CLASS, &block).await;
        // Two that are in need at once; and the broker dies over them.
        let runs = [api.trigger(&job).await, api.trigger(&job).await];
        for run in &runs {
            let called = || async {
                let run = api.state(run).await;
                (run["state"] != "pending" || run["reason"].as_str()?.ends_with("start one")).then_some(())
            };
            until("it to call for a worker", called).await;
        }
        broker.kill_and_restart();
        for run in &runs {
            let ended = over(&api, run).await;
            assert_eq!((&ended["state"], &ended["success"]), (&json!("success"), &json!(20)), "{ended}");
        }
        let started = runs_of(&api, &program).await;
        assert_eq!(started.len(), 1, "one worker is enough: {started:?}");
        // The next run finds it there.
        assert_eq!(over(&api, &api.trigger(&job).await).await["state"], "success");
        assert_eq!(runs_of(&api, &program).await.len(), 1);
        dismiss(&api, &started[0]).await;
    });
}

#[test]
fn a_lost_worker_is_followed_by_one_that_is_started() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = Broker::start_in(folder.path(), "127.0.0.1:0", &["--worker-offline", "1000"], "");
        let api = Api::new(&broker.url);
        let site = Site::serve(20);
        let _agent = programs(&api, &broker.url, folder.path()).await;
        // Called for the first time it is no worker and fails.
        let line = format!("mkdir {}/called && exit 1; {}", folder.path().display(), worker(&broker.url));
        let program = program(&api, &line).await;
        let job = api.job("crawl", CLASS, &json!({ "Arguments": site.url, "WorkerJob": program, "WorkerWait": "300000" })).await;
        // One that registers, is told to start it, and is never heard of again.
        api.worker(CLASS).await;
        let run = api.trigger(&job).await;
        let ended = over(&api, &run).await;
        assert_eq!((&ended["state"], &ended["success"]), (&json!("success"), &json!(20)), "{ended}");
        let started = runs_of(&api, &program).await;
        let states: Vec<_> = started.iter().map(|run| run["state"].as_str().unwrap_or_default()).collect();
        assert_eq!(states, ["running", "failed"], "{started:?}");
        dismiss(&api, &started[0]).await;
    });
}

#[test]
fn a_worker_that_does_not_come_is_a_visible_failure() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let missing = api.job("missing", "it.Nobody", &json!({ "WorkerJob": "not there" })).await;
        let run = over(&api, &api.trigger(&missing).await).await;
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["reason"].as_str().expect("a reason").ends_with("cannot start one: there is no such job"), "{run}");
        // A job that makes a run, which is no worker.
        let failing = api.job("failing", "it.Nobody", &json!({})).await;
        let waiting = api.job("waiting", "it.Nobody", &json!({ "WorkerJob": "failing", "WorkerWait": "1000" })).await;
        let run = over(&api, &api.trigger(&waiting).await).await;
        assert_eq!(run["state"], "failed", "{run}");
        assert!(run["reason"].as_str().expect("a reason").contains("1000 ms after the job `failing` was requested to start one"), "{run}");
        assert_eq!(runs_of(&api, &failing).await.len(), 1, "it was asked once");
        for (key, value) in [("WorkerWait", "0".to_owned()), ("WorkerWait", "soon".to_owned()), ("WorkerJob", "x".repeat(300))] {
            let properties = json!({ "FullClassName": "it.Nobody", "WorkerJob": "failing", key: value });
            let (status, problem) = api.post("/api/v1/jobs", &json!({ "name": "bad", "jobType": "block", "properties": properties })).await;
            assert_eq!((status, &problem["field"]), (422, &json!(format!("properties.{key}"))), "{problem}");
        }
    });
}
