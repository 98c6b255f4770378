//! Trap 11: what happens to everything that is under way when the broker ends.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::socket::{Node, Worker};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What must be the same afterwards.
fn counts(run: &Value) -> Vec<Value> {
    ["left", "success", "error", "total", "seen", "priority", "startReturned", "state", "creationTime"].map(|key| run[key].clone()).to_vec()
}

fn url(n: usize) -> String {
    format!("http://example.test/{n}")
}

/// A run with a block in every state: 0 acknowledged, 1 delivered, 2 answered, 3 at a node that comes back, 4 at one that
/// does not in time, 5 ready. The broker ends, and the run goes on.
async fn every_state_survives(end: impl FnOnce(&mut Broker)) {
    let mut broker = Broker::start(&["--grace", "500"], "");
    let api = Api::new(&broker.url);
    let worker = Worker::watch(&api, &id(), &["it.Restart"]).await;
    let job = api.job("restart", "it.Restart", &json!({ "BlockSize": "1" })).await;
    let run = api.trigger(&job).await;
    let queue = format!("/requestqueue/{run}");
    let ack = format!("{queue}/ack");
    assert_eq!(api.post(&queue, &requests(0..6)).await.1["accepted"], 6);
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
    let mut node = Node::connect(&api, &id(), "&maxprocesscount=1").await;
    for n in 0..3 {
        let block = node.block().await;
        assert_eq!(block["requests"][0]["url"], url(n));
        assert_eq!(node.report(&block).await.0, 200);
    }
    let kept = node.block().await;
    let mut late = Node::connect(&api, &id(), "&maxprocesscount=1").await;
    let taken = late.block().await;
    assert_eq!((&kept["requests"][0]["url"], &taken["requests"][0]["url"]), (&json!(url(3)), &json!(url(4))));
    let (_, acknowledged) = api.get(&format!("{queue}?worker={}", worker.id)).await;
    assert_eq!(api.post(&ack, &json!({ "blocks": [acknowledged["blockId"]] })).await.0, 200);
    let (_, delivered) = api.get(&format!("{queue}?worker={}", worker.id)).await;
    assert_eq!(delivered["results"][0]["request"]["url"], url(1));
    let before = api.state(&run).await;
    assert_eq!((&before["left"], &before["success"], &before["total"]), (&json!(3), &json!(3), &json!(6)));
    assert_eq!(before["blocks"], json!({ "ready": 1, "using": 2, "answered": 2, "total": 6 }));

    end(&mut broker);
    broker.restart("");

    // No connection of the dead one is used again.
    let api = Api::new(&broker.url);
    (node.api, late.api) = (api.clone(), api.clone());
    // The actor of the run is there when it knows what it has seen.
    let after = until("the run to be taken over", || async {
        let (status, run) = api.get(&format!("/api/v1/runs/{run}")).await;
        (status == 200 && run["seenBytes"].is_u64()).then_some(run)
    })
    .await;
    assert_eq!(counts(&after), counts(&before));
    assert_eq!(after["blocks"]["total"], 6);
    let (status, again) = api.post(&queue, &requests(0..6)).await;
    assert_eq!((status, &again["accepted"], &again["duplicates"]), (200, &json!(0), &json!(6)));
    let (status, again) = api.post(&ack, &json!({ "blocks": [acknowledged["blockId"]] })).await;
    assert_eq!((status, &again["already"]), (200, &json!(1)));

    // The node kept its block over the restart, and its work counts: same attempt, same epoch as it came with.
    node.reconnect().await;
    let holding = until("the node to have it again", || async { api.state(&run).await["consuming"].as_u64().filter(|n| *n > 0) }).await;
    assert_eq!(holding, 1, "it takes one at a time, and that is what it has");
    assert!(node.socket.is_quiet(), "nothing is sent that it holds");
    assert_eq!(node.report(&kept).await, (200, json!({ "success": 1, "error": 0 })));
    let mut rest = BTreeSet::new();
    let mut late_report = None;
    for _ in 0..2 {
        let block = node.block().await;
        assert_eq!(block["epoch"], 2, "handed out by the run's second life");
        if block["blockId"] == taken["blockId"] {
            late_report = Some(late.report(&taken).await);
        }
        rest.insert(block["requests"][0]["url"].as_str().expect("a url").to_owned());
        assert_eq!(node.report(&block).await.0, 200);
    }
    assert_eq!(rest, BTreeSet::from([url(4), url(5)]));
    assert_eq!(late_report.map(|(status, problem)| (status, problem["type"].clone())), Some((409, json!("/problems/late-report"))));

    let mut worker = Worker::watch(&api, &worker.id, &["it.Restart"]).await;
    let start = worker.socket.find("start").await;
    assert_eq!((&start["identity"], &start["startReturned"]), (&json!(run), &json!(true)));
    let mut pages = Vec::new();
    for _ in 0..5 {
        let (status, done) = api.get(&format!("{queue}?wait=10&worker={}", worker.id)).await;
        assert_eq!(status, 200);
        pages.push(done["results"][0]["request"]["url"].as_str().expect("a url").to_owned());
        assert_eq!(api.post(&ack, &json!({ "blocks": [done["blockId"]] })).await.0, 200);
    }
    pages.sort();
    assert_eq!(pages, (1..6).map(url).collect::<Vec<_>>(), "all that was not acknowledged, once");
    let ended = worker.socket.find("ended").await;
    assert_eq!((&ended["state"], &ended["counters"]["success"]), (&json!("success"), &json!(6)));
}

#[test]
fn every_state_survives_a_kill() {
    journey(every_state_survives(|broker| broker.process.kill()));
}

#[test]
fn every_state_survives_a_stop() {
    journey(every_state_survives(|broker| assert!(broker.process.terminate().success())));
}

#[test]
fn what_the_operator_said_survives() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let off = api.job("off", "it.Off", &json!({})).await;
        let on = api.job("on", "it.Off", &json!({})).await;
        let node = Node::connect(&api, &id(), "").await;
        assert_eq!(api.post(&format!("/api/v1/jobs/{off}/disable"), &json!({})).await.0, 200);
        until("the node", || async { (api.post(&format!("/api/v1/nodes/{}/disable", node.id), &json!({})).await.0 == 200).then_some(()) })
            .await;
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Off").await;
        assert_eq!(api.get(&format!("/api/v1/jobs/{off}")).await.1["isEnabled"], false);
        assert_eq!(api.post(&format!("/api/v1/jobs/{off}/trigger"), &json!({})).await.1["type"], "/problems/job-disabled");
        let run = api.trigger(&on).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..1)).await.0, 200);
        let mut disabled = Node::connect(&api, &node.id, "").await;
        let mut other = Node::connect(&api, &id(), "").await;
        let block = other.block().await;
        assert_eq!(other.report(&block).await.0, 200);
        assert!(disabled.socket.is_quiet());
        assert_eq!(api.get(&format!("/api/v1/nodes/{}", node.id)).await.1["isEnabled"], false);
        drop(worker);
    });
}

/// What a run has seen takes a while to read; nodes are back sooner.
#[test]
fn a_node_that_is_back_before_its_run_keeps_its_block() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "200"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Large", &json!({})).await;
        for from in [0, 100_000, 200_000] {
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(from..from + 100_000)).await.0, 200);
        }
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=1").await;
        let kept = node.block().await;
        broker.kill_and_restart();
        node.api = Api::new(&broker.url);
        node.reconnect().await;
        until("the run", || {
            node.beat();
            let api = &node.api;
            let run = &run;
            async move { (api.get(&format!("/api/v1/runs/{run}")).await.1["consuming"] == 1).then_some(()) }
        })
        .await;
        let said = node.socket.try_next();
        assert!(said.is_none(), "{}", said.map(|message| message["t"].to_string()).unwrap_or_default());
        assert_eq!(node.report(&kept).await, (200, json!({ "success": 50, "error": 0 })));
    });
}

/// A run that no worker had yet when the broker died is not failed before its worker can be back.
#[test]
fn a_run_that_was_pending_waits_for_its_worker() {
    journey(async {
        let mut broker = Broker::start(&[], "registry.start_new_run=die@1");
        let api = Api::new(&broker.url);
        api.worker("it.Pending").await;
        let job = api.job("pending", "it.Pending", &json!({})).await;
        // The broker dies over it, before or after it has answered.
        api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        broker.process.0.wait().expect("it dies");
        broker.restart("");
        let (_, runs) = api.get("/api/v1/runs").await;
        assert_eq!(runs["items"][0]["state"], "pending", "{runs}");
        let worker = api.worker("it.Pending").await;
        let start = api.heard(&worker, "start").await.expect("a start");
        assert_eq!(start["identity"], runs["items"][0]["identity"]);
    });
}

/// Requests of a higher priority are dispatched first, whenever they come, and still after a crash.
#[test]
fn priorities_survive_a_crash() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Priority", &json!({ "BlockSize": "10", "Delay": "0" })).await;
        let queue = format!("/requestqueue/{run}");
        let of = |n: usize, priority: Value| json!({ "url": url(n), "priority": priority });
        assert_eq!(api.post(&queue, &json!([{ "url": url(0) }, of(1, json!(-5)), of(2, json!(0)), of(3, json!(7))])).await.0, 200);
        assert_eq!(api.post(&queue, &json!([of(4, json!(100)), of(5, json!(7)), of(3, json!(1))])).await.1["duplicates"], 1);
        let (status, problem) = api.post(&queue, &json!([of(6, json!(101))])).await;
        assert_eq!((status, &problem["field"]), (422, &json!("requests[0].priority")), "{problem}");
        let urls = |block: &Value| {
            let requests = block["requests"].as_array().cloned().unwrap_or_default();
            requests.iter().map(|request| request["url"].as_str().expect("a URL").to_owned()).collect::<Vec<_>>()
        };
        let mut order = Vec::new();
        for crash in [true, false] {
            let api = Api::new(&broker.url);
            let node = id();
            let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
            order.push(urls(&block));
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
            if crash {
                broker.kill_and_restart();
                continue;
            }
            while order.len() < 5 {
                let block = api.beat(&node, &json!({})).await;
                order.push(urls(&block));
                assert_eq!(api.report(&node, &block, 200).await.0, 200);
            }
        }
        assert_eq!(order, [vec![url(4)], vec![url(3)], vec![url(5)], vec![url(0), url(2)], vec![url(1)]]);
    });
}
