//! A run of a block job at a broker that does not lead, with PostgreSQL: calls about it reach that broker through each broker.

use crate::support::api::{Api, id, requests};
use crate::support::brokers::Brokers;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};

const ADMIN: &str = "admin-token-of-this-test";
const WORKER: &str = "worker-token-of-this-test";
const OTHER_WORKER: &str = "other-worker-token-of-this-test";
const TOKENS: [&str; 6] = [
    "--token",
    "admin:admin-token-of-this-test",
    "--token",
    "worker:worker-token-of-this-test",
    "--token",
    "worker:other-worker-token-of-this-test",
];

/// A run that the second of two brokers executes, and its worker.
async fn run_elsewhere(brokers: &Brokers, class: &str) -> (String, String) {
    let (run, worker) = brokers.api(0).run(class, &json!({ "BlockSize": "2" })).await;
    brokers.have_runs(0, &[0, 1]).await;
    until("its actor is there", || async { (brokers.api(1).get(&format!("/requestqueue/{run}")).await.0 == 204).then_some(()) }).await;
    (run, worker)
}

/// Polls with this secret.
async fn with_secret(api: &Api, path: &str, secret: &str) -> u16 {
    api.send(api.request(Method::GET, path).header("webloom-link", secret)).await.0
}

/// The broker that the answer to a poll names.
async fn executor(api: &Api, queue: &str) -> Option<String> {
    let answer = api.request(Method::GET, queue).send().await.expect("an answer");
    Some(answer.headers().get("webloom-executor")?.to_str().expect("a text").to_owned())
}

#[test]
fn calls_about_a_run_reach_its_broker_through_each_broker() {
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TOKENS, Some(ADMIN)).await;
        let (leader, owner) = (brokers.api(0), brokers.api(1));
        let (run, worker) = run_elsewhere(&brokers, "it.Reached").await;
        let queue = format!("/requestqueue/{run}");
        for (nth, api) in [&leader, &owner].into_iter().enumerate() {
            let workers = api.with_token(WORKER);
            let (status, pushed) = workers.post(&queue, &requests(nth * 4..nth * 4 + 4)).await;
            assert_eq!((status, &pushed["accepted"]), (200, &json!(4)), "{pushed}");
            assert_eq!(executor(&workers, &queue).await.as_ref(), Some(&owner.url), "the answer says where to call directly");
            assert_eq!(workers.get(&format!("{queue}?worker={worker}&wait=0.1")).await.0, 204);
            let (status, problem) = workers.post(&format!("{queue}/ack"), &json!({ "blocks": [id()] })).await;
            assert_eq!((status, &problem["type"]), (404, &json!("/problems/not-found")), "{problem}");
            assert_eq!(workers.post(&queue, &json!({ "requests": 7 })).await.0, 400);
            assert_eq!(api.with_token("of-somebody-else-1").get(&queue).await.0, 401);
            // A large push.
            let large: Vec<Value> =
                (0..600).map(|n| json!({ "url": format!("http://large{nth}.test/{n}/{}", "x".repeat(1_000)) })).collect();
            assert_eq!(workers.post(&queue, &json!(large)).await.1["accepted"], 600);
        }
        // By its number, too.
        let number = owner.state(&run).await["number"].as_str().expect("a number").to_owned();
        for api in [&leader, &owner] {
            assert_eq!(api.post(&format!("/requestqueue/{number}"), &requests(0..4)).await.1["accepted"], 0);
        }
        let mut seen = Vec::new();
        for api in [&leader, &owner] {
            let path = format!("/api/v1/runs/{run}");
            let mut of_run = Vec::new();
            for rest in ["why-url?url=http://example.test/5", "sites", "blocks"] {
                let (status, answer) = api.get(&format!("{path}/{rest}")).await;
                assert_eq!(status, 200, "{answer}");
                of_run.push(answer);
            }
            seen.push(of_run);
            let (status, paused) = api.post(&format!("{path}/pause"), &json!({})).await;
            assert!(status == 200 && paused["pausedAt"].is_string(), "{paused}");
            let (status, found) = api.post(&format!("{path}/requests/discard"), &json!({ "url": "example.test", "dryRun": true })).await;
            assert_eq!((status, &found["found"]), (200, &json!(8)), "{found}");
            let (status, found) = api.post(&format!("{path}/requests/requeue"), &json!({})).await;
            assert_eq!((status, &found["found"]), (200, &json!(0)), "{found}");
            assert_eq!(api.post(&format!("{path}/resume"), &json!({})).await.0, 200);
            assert_eq!(api.post(&format!("{path}/start-returned"), &json!({})).await.0, 204);
        }
        assert_eq!(seen[0], seen[1]);
        // Each change is recorded once, with the members of its body.
        let audit = until("all calls are recorded", || async {
            let (_, audit) = owner.get("/api/v1/audit?limit=100").await;
            // A row may be stored after the answer to its call.
            let all = audit["items"].as_array().expect("a list");
            let is_of_run = |call: &&Value| call["object"] == *run && call["operation"] != "startReturned";
            (all.iter().filter(is_of_run).count() >= 8 && all.iter().all(|call| call["status"].is_u64())).then_some(audit)
        })
        .await;
        let recorded = |operation: &str| {
            let calls = audit["items"].as_array().expect("a list").iter().filter(|call| call["operation"] == operation);
            calls.map(|call| json!([call["status"], call["members"]])).collect::<Vec<_>>()
        };
        for operation in ["pauseRun", "resumeRun", "requeueRequests"] {
            assert_eq!(recorded(operation), [json!([200, null]), json!([200, null])], "{operation}: {audit}");
        }
        assert_eq!(recorded("discardRequests"), [json!([200, "dryRun, url"]), json!([200, "dryRun, url"])], "{audit}");
        // A worker's id belongs to its token at each broker, and a new token is known there at once.
        let mine = leader.with_token(WORKER).worker("it.Mine").await;
        let (status, token) = leader.post("/api/v1/tokens", &json!({ "name": "new", "role": "worker" })).await;
        assert_eq!(status, 201, "{token}");
        let new = leader.with_token(token["text"].as_str().expect("a token"));
        assert_eq!(new.get(&queue).await.0, 204);
        for api in [&leader, &owner] {
            let asks = async |token: &str, worker: &str| api.with_token(token).get(&format!("{queue}?worker={worker}")).await.0;
            assert_eq!([asks(WORKER, &mine).await, asks(OTHER_WORKER, &mine).await, asks(WORKER, &mine).await], [204, 403, 204]);
            assert_eq!([asks(WORKER, &id()).await, asks(OTHER_WORKER, &id()).await], [204, 204]);
        }
        // A guessed secret of the brokers opens nothing, and no call goes in circles.
        assert_eq!(with_secret(&leader, &queue, "guess").await, 204);
        assert_eq!(with_secret(&owner, &queue, "guess").await, 503);
        // A report reaches the broker of its run, whether it names the run in its header or not.
        let (node, block) = (id(), json!({ "blockId": id(), "identity": run, "requests": [] }));
        for api in [&leader, &owner] {
            let (status, problem) = api.report(&node, &block, 200).await;
            assert_eq!((status, &problem["type"]), (404, &json!("/problems/not-found")), "{problem}");
            let report = json!({ "blockId": block["blockId"], "identity": run, "nodeId": node, "results": [] });
            for (named, expected) in [(run.clone(), 404), (id(), 400)] {
                let call = api.request(Method::POST, "/node/block").header("webloom-run", &named);
                let call = call.header("content-type", "application/json").body(report.to_string());
                let (status, problem) = api.send(call).await;
                assert_eq!(status, expected, "{problem}");
            }
        }
        // A poll learns that its run was taken from a broker that hangs. That one passes on what comes when it is back, as its right is in doubt.
        let workers = leader.with_token(WORKER);
        brokers.signal(1, "-STOP");
        let (status, problem) = workers.get(&format!("{queue}?wait=30")).await;
        assert_eq!((status, &problem["type"]), (503, &json!("/problems/busy")), "{problem}");
        until("the leader executes the run", || async { (workers.post(&queue, &requests(9..10)).await.0 == 200).then_some(()) }).await;
        brokers.signal(1, "-CONT");
        let (status, pushed) = owner.with_token(WORKER).post(&queue, &requests(10..11)).await;
        assert_eq!((status, &pushed["accepted"]), (200, &json!(1)), "{pushed}");
        brokers.have_runs(0, &[1, 0]).await;
        for api in [&leader, &owner] {
            assert_eq!(executor(&api.with_token(WORKER), &queue).await, None, "the leader executes it");
        }
        assert_eq!(leader.post(&format!("/api/v1/runs/{run}/pause"), &json!({})).await.0, 200);
    });
}

/// The answer of a broker that can renew its lease: on a busy machine it may be late for a moment.
async fn certain<F: Future<Output = (u16, Value)>>(call: impl Fn() -> F) -> (u16, Value) {
    until("an answer", || async { Some(call().await).filter(|(status, _)| *status != 503) }).await
}

#[test]
fn a_run_goes_its_way_through_each_broker() {
    journey(async {
        let brokers = Brokers::start(2).await;
        for (nth, api) in [brokers.api(0), brokers.api(1)].into_iter().enumerate() {
            let (run, worker) = run_elsewhere(&brokers, &format!("it.Way{nth}")).await;
            api.heard(&worker, "start").await.expect("it begins");
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..2)).await.1["accepted"], 2);
            assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
            let waits = async {
                let (status, page) = api.get(&format!("/requestqueue/{run}?worker={worker}&wait=20")).await;
                assert_eq!(status, 200, "{page}");
                page
            };
            let works = async {
                let node = id();
                let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
                assert_eq!(api.report(&node, &block, 200).await.0, 200);
            };
            let (page, ()) = tokio::join!(waits, works);
            assert_eq!(page["results"].as_array().map(Vec::len), Some(2), "{page}");
            assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [page["blockId"]] })).await.0, 200);
            until("the end", || async { (api.state(&run).await["state"] == "success").then_some(()) }).await;
            // Of a run that is over, each broker gives the same answers as before.
            let (queue, more, nothing) = (format!("/requestqueue/{run}"), requests(3..4), json!({}));
            let (pause, requeue) = (format!("/api/v1/runs/{run}/pause"), format!("/api/v1/runs/{run}/requests/requeue"));
            for api in [brokers.api(0), brokers.api(1)] {
                assert_eq!(certain(|| api.get(&queue)).await.0, 204);
                let (status, problem) = certain(|| api.post(&queue, &more)).await;
                assert_eq!((status, &problem["type"]), (409, &json!("/problems/run-over")), "{problem}");
                assert_eq!(certain(|| api.post(&pause, &nothing)).await.0, 409);
                let (status, found) = certain(|| api.post(&requeue, &nothing)).await;
                assert_eq!((status, &found["found"]), (200, &json!(0)), "{found}");
            }
            // The other broker takes the next turn.
            let job = api.job("turn", "it.Turn", &json!({ "NoWorker": "wait" })).await;
            let turn = api.trigger(&job).await;
            assert_eq!(api.post(&format!("/api/v1/runs/{turn}/stop"), &json!({})).await.0, 200);
            assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        }
    });
}
