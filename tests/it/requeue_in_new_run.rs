//! Failed requests of a run that is over are queued again: a new run of its job begins with them.

use crate::failed_requests::{PAGES, drain, failed, next_block, push, report, shell, urls};
use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

async fn finish(api: &Api, run: &str, node: &str, blocks: usize) {
    for _ in 0..blocks {
        let block = next_block(api, node).await;
        assert_eq!(block["identity"], *run, "{block}");
        report(api, node, &block).await;
    }
    until("its results", || async { (drain(api, run).await > 0).then_some(()) }).await;
}

async fn ended(api: &Api, run: &str) -> Value {
    until("the end", || async { Some(api.state(run).await).filter(|run| run["finishTime"].is_string()) }).await
}

/// A run that is over, with four failures.
async fn run_that_is_over(api: &Api, job: &str) -> String {
    let run = api.trigger(job).await;
    push(api, &run, &PAGES).await;
    finish(api, &run, &id(), 3).await;
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
    assert_eq!(ended(api, &run).await["state"], "success");
    run
}

#[test]
fn a_new_run_begins_with_the_failed_requests_of_one_that_is_over() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Again").await;
        let job = api.job("again", "it.Again", &json!({ "BlockSize": "2" })).await;
        let old = run_that_is_over(&api, &job).await;
        let path = format!("/api/v1/runs/{old}/requests/requeue");
        let none = json!({ "found": 2, "queued": 0, "overLimit": 0, "more": false });
        assert_eq!(api.post(&path, &json!({ "site": "b.test", "dryRun": true })).await, (200, none));

        // As a trigger by hand, it needs a job that is enabled.
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({})).await.0, 200);
        let (status, problem) = api.post(&path, &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/job-disabled")), "{problem}");
        assert!(failed(&api, &old, "").await.iter().all(|row| row.get("requeuedAs").is_none()), "a refusal marks nothing");
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/enable"), &json!({})).await.0, 200);

        let input = json!({ "site": "b.test" });
        let calls = tokio::join!(api.post(&path, &input), api.post(&path, &input), api.post(&path, &input));
        let made: Vec<Value> = [calls.0, calls.1, calls.2].into_iter().filter_map(|(_, done)| done.get("identity").cloned()).collect();
        assert_eq!(made.len(), 1, "each failure is in one new run: {made:?}");
        let new = made[0].as_str().expect("an identity").to_owned();
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        assert_eq!(api.post("/api/v1/workers", &json!({ "classNames": ["it.Again"], "workerId": worker })).await.0, 200);

        let marked = failed(&api, &old, "&site=b.test").await;
        assert!(marked.iter().all(|row| row["requeuedAs"] == row["requestId"] && row["requeuedIn"] == *new), "{marked:?}");
        let start = api.heard(&worker, "start").await.expect("an order");
        assert_eq!((&start["identity"], &start["startReturned"]), (&json!(new), &json!(true)), "it pushes no first requests: {start}");
        let node = id();
        let block = next_block(&api, &node).await;
        let requests = block["requests"].as_array().expect("requests");
        assert_eq!((&block["identity"], urls(requests)), (&json!(new), vec!["b.test/slow", "b.test/503-1"]));
        assert!(
            requests.iter().zip(&marked).all(|(request, row)| request["requestId"] == row["requestId"] && request["meta"]["keep"] == "me")
        );
        report(&api, &node, &block).await;
        assert_eq!(drain(&api, &new).await, 2);
        let end = ended(&api, &new).await;
        assert_eq!((&end["state"], &end["total"], &end["error"], &end["retryOf"]), (&json!("success"), &json!(2), &json!(2), &json!(old)));

        // The others, by the command line; then there are none left.
        let told = shell(&broker, &["requeue", &old]);
        let (text, last) = told.rsplit_once(' ').expect("words");
        assert_eq!(text, "2 of 2 failed requests are queued again in the new run");
        finish(&api, last, &node, 1).await;
        let (status, done) = api.post(&path, &json!({})).await;
        assert_eq!((status, done["found"].as_u64(), done.get("identity")), (200, Some(0), None), "{done}");
        assert_eq!(api.post(&format!("/api/v1/runs/{new}/requests/requeue"), &json!({ "dryRun": true })).await.1["found"], 2);
    });
}

#[test]
fn it_waits_behind_the_other_runs_of_its_job() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Behind").await;
        let job = api.job("behind", "it.Behind", &json!({ "BlockSize": "2" })).await;
        let old = run_that_is_over(&api, &job).await;
        assert_eq!(api.put(&format!("/api/v1/jobs/{job}"), &json!({ "policies": { "overlap": "queueAll" } })).await.0, 200);
        let other = api.trigger(&job).await;
        let (status, done) = api.post(&format!("/api/v1/runs/{old}/requests/requeue"), &json!({ "status": 404 })).await;
        assert_eq!((status, &done["queued"]), (200, &json!(2)), "{done}");
        let new = done["identity"].as_str().expect("an identity");
        assert_eq!((api.state(new).await["state"].as_str(), api.state(new).await["total"].as_u64()), (Some("pending"), Some(0)));
        assert_eq!(api.post(&format!("/api/v1/runs/{other}/stop"), &json!({})).await.0, 200);
        until("its start", || async { api.heard(&worker, "start").await.ok().filter(|start| start["identity"] == *new) }).await;
        finish(&api, new, &id(), 1).await;
        assert_eq!(ended(&api, new).await["total"], 2);
    });
}

#[test]
fn without_a_worker_the_failures_stay_as_they_are() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Alone").await;
        let job = api.job("alone", "it.Alone", &json!({ "BlockSize": "2" })).await;
        let old = run_that_is_over(&api, &job).await;
        let path = format!("/api/v1/runs/{old}/requests/requeue");
        assert_eq!(api.delete(&format!("/api/v1/workers/{worker}?force=true")).await.0, 204);
        let (status, problem) = api.post(&path, &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/no-worker")), "{problem}");
        assert!(failed(&api, &old, "").await.iter().all(|row| row.get("requeuedAs").is_none()), "a refusal marks nothing");
        api.worker("it.Alone").await;
        let (status, done) = api.post(&path, &json!({})).await;
        assert_eq!((status, &done["queued"]), (200, &json!(4)), "{done}");
    });
}
