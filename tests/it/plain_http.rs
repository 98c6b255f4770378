//! The seeds' own four addresses, with nothing but HTTP and JSON: a node that only calls, a worker that only pushes and
//! polls. And what the originals did wrong on this road.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::socket::Socket;
use crate::support::{journey, until};
use serde_json::{Value, json};

#[test]
fn a_run_from_trigger_to_end() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, worker) = api.run("it.Plain", &json!({ "BlockSize": "2", "ThreadNum": "3" })).await;
        let start = api.heard(&worker, "start").await.expect("a start");
        assert_eq!((&start["identity"], &start["className"]), (&json!(run), &json!("it.Plain")));

        // 002's names, with the prefix of its code.
        let (status, pushed) = api.post(&format!("/api/requestqueue/{run}"), &requests([1, 2, 3, 1])).await;
        assert_eq!(status, 200, "{pushed}");
        assert_eq!((&pushed["accepted"], &pushed["duplicates"]), (&json!(3), &json!(1)));
        assert_eq!(pushed["blockIds"].as_array().map(Vec::len), Some(2));
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);

        let node = id();
        let first = api.beat(&node, &json!({ "cpu": 5, "freeMemory": 100, "processCount": 1 })).await;
        assert_eq!((&first["identity"], &first["threadNum"], &first["attempt"]), (&json!(run), &json!(3), &json!(1)));
        assert_eq!(first["requests"][0]["url"], "http://example.test/1");
        assert_eq!(api.beat(&node, &json!({ "runnings": [run] })).await, Value::Null, "it wants nothing of that run");
        assert_eq!(api.report(&node, &first, 200).await, (200, json!({ "success": 2, "error": 0 })));
        let second = api.beat(&node, &json!({})).await;
        let state = api.state(&run).await;
        assert_eq!((&state["left"], &state["success"], &state["consuming"]), (&json!(1), &json!(2), &json!(1)), "{state}");
        assert_eq!(api.report(&node, &second, 404).await, (200, json!({ "success": 0, "error": 1 })));
        assert_eq!(api.beat(&node, &json!({})).await, Value::Null);

        let (status, done) = api.get(&format!("/requestqueue/{run}?wait=5")).await;
        assert_eq!(status, 200);
        assert_eq!(done["results"][0]["request"]["url"], "http://example.test/1");
        assert_eq!(done["results"][0]["content"], "cGFnZSAiaHR0cDovL2V4YW1wbGUudGVzdC8xIg==");
        let ack = json!({ "blocks": [done["blockId"]], "requests": requests([4]) });
        let (status, pushed) = api.post(&format!("/requestqueue/{run}/ack"), &ack).await;
        assert_eq!((status, &pushed["accepted"], &pushed["already"]), (200, &json!(1), &json!(0)));
        let (status, again) = api.post(&format!("/requestqueue/{run}/ack"), &ack).await;
        assert_eq!((status, &again["accepted"], &again["already"]), (200, &json!(0), &json!(1)), "an acknowledgement may be sent twice");

        let third = api.beat(&node, &json!({})).await;
        assert_eq!(third["requests"][0]["url"], "http://example.test/4");
        api.report(&node, &third, 200).await;
        for last in [false, true] {
            let (status, done) = api.get(&format!("/requestqueue/{run}?wait=5")).await;
            assert_eq!(status, 200, "last={last}");
            let ended = api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [done["blockId"]] })).await;
            assert_eq!(ended.0, 200);
        }
        let state = until("the end", || async { Some(api.state(&run).await).filter(|s| s["state"] == "success") }).await;
        let counts = ["left", "success", "error", "total"].map(|k| state[k].as_u64());
        assert_eq!(counts, [Some(0), Some(3), Some(1), Some(4)]);
        let (status, statuses) = api.get(&format!("/api/v1/runs/{run}/status")).await;
        assert_eq!((status, &statuses[1]["nodeId"], &statuses[1]["success"]), (200, &json!(node), &json!(3)));
        // After the end.
        assert_eq!(api.get(&format!("/requestqueue/{run}?wait=5")).await.0, 204);
        let (status, problem) = api.post(&format!("/requestqueue/{run}"), &requests([9])).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/run-over")));
    });
}

/// Trap 1: what was answered to a heartbeat and lost on the way is answered again.
#[test]
fn blocks_that_do_not_fit_into_an_answer_are_not_acknowledged() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Large", &json!({ "BlockSize": "1" })).await;
        let queue = format!("/requestqueue/{run}");
        assert_eq!(api.post(&queue, &requests(0..4)).await.0, 200);
        let node = id();
        for _ in 0..4 {
            let block = api.beat(&node, &json!({})).await;
            let request_id = &block["requests"][0]["requestId"];
            let results = json!([{ "requestId": request_id, "status": 200, "tries": 1, "time": 3, "text": "a".repeat(600_000) }]);
            let report = json!({ "blockId": block["blockId"], "identity": run, "nodeId": node, "epoch": block["epoch"],
                "attempt": block["attempt"], "results": results });
            assert_eq!(api.post("/node/block", &report).await.0, 200);
        }
        for _ in 0..4 {
            let (status, answer) = api.get(&format!("{queue}?wait=10&max=64&ack=auto")).await;
            assert_eq!((status, answer["blocks"].as_array().map(Vec::len)), (200, Some(1)), "one fits into an answer");
        }
        assert_eq!(api.get(&format!("{queue}?max=64&ack=auto")).await.0, 204);
    });
}

#[test]
fn a_block_that_got_lost_on_the_way_comes_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Lost", &json!({})).await;
        api.post(&format!("/requestqueue/{run}"), &requests([1])).await;
        let node = id();
        let first = api.beat(&node, &json!({})).await;
        assert_eq!(first["attempt"], 1);
        let again = until("the block to come again", || async {
            Some(api.beat(&node, &json!({ "holding": [] })).await).filter(|block| !block.is_null())
        })
        .await;
        assert_eq!((&again["blockId"], &again["attempt"]), (&first["blockId"], &json!(1)), "the same hand-out");
        assert_eq!(api.report(&node, &again, 200).await.0, 200);
    });
}

/// Traps 2 and 4: a dead node's block comes back; its late report does not overwrite the new one.
#[test]
fn a_dead_node_loses_its_block_to_another() {
    journey(async {
        let broker = Broker::start(&["--node-offline", "600", "--node-heartbeat", "200"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Dead", &json!({})).await;
        api.post(&format!("/requestqueue/{run}"), &requests([1])).await;
        let (dead, alive) = (id(), id());
        let first = api.beat(&dead, &json!({})).await;
        let second =
            until("the block to come back", || async { Some(api.beat(&alive, &json!({})).await).filter(|block| !block.is_null()) }).await;
        assert_eq!((&second["blockId"], &second["attempt"]), (&first["blockId"], &json!(2)));
        let (status, problem) = api.report(&dead, &first, 500).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/late-report")));
        assert_eq!(api.state(&run).await["error"], 0, "a late report changes nothing");
        assert_eq!(api.report(&alive, &second, 200).await.0, 200);
        assert_eq!(api.report(&alive, &second, 200).await.1["type"], "/problems/block-finished");
    });
}

/// Trap 3: what a node does not mention is not lost.
#[test]
fn a_request_that_is_not_reported_is_a_failed_one() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Silent", &json!({})).await;
        api.post(&format!("/requestqueue/{run}"), &requests([1, 2])).await;
        let node = id();
        let mut block = api.beat(&node, &json!({})).await;
        block["requests"].as_array_mut().expect("requests").remove(0);
        assert_eq!(api.report(&node, &block, 200).await, (200, json!({ "success": 1, "error": 1 })));
        let (_, done) = api.get(&format!("/requestqueue/{run}")).await;
        let missing = done["results"].as_array().expect("results").iter().find(|r| r["status"] == 0).expect("it is there");
        assert_eq!((&missing["error"]["kind"], &missing["request"]["url"]), (&json!("not-reported"), &json!("http://example.test/1")));
    });
}

/// Trap 12: once in a run, again in another one; a repetition on purpose is none of the filter's business.
#[test]
fn a_request_is_stored_once_in_a_run() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Once", &json!({})).await;
        let (other, _) = api.run("it.Twice", &json!({})).await;
        let path = |run: &str| format!("/requestqueue/{run}");
        assert_eq!(api.post(&path(&run), &requests([1])).await.1["accepted"], 1);
        assert_eq!(api.post(&path(&run), &requests([1])).await.1["duplicates"], 1);
        assert_eq!(api.post(&path(&other), &requests([1])).await.1["accepted"], 1);
        let mut again = requests([1]);
        again[0]["dontFilter"] = json!(true);
        assert_eq!(api.post(&path(&run), &again).await.1["accepted"], 1);
    });
}

#[test]
fn a_node_that_closes_its_socket_and_calls_over_http_stays_online() {
    journey(async {
        let broker = Broker::start(&["--grace", "300", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let connection = async |node: &str| api.get(&format!("/api/v1/nodes/{node}/connections")).await.1["items"][0].clone();
        let connect_and_close = async |node: &str| {
            let mut socket = Socket::open(&api.url, &format!("/?nodeid={node}"), None).await;
            socket.first("welcome").await;
            socket.leave();
            let path = format!("/api/v1/nodes/{node}");
            until("the socket to be closed", || async { (api.get(&path).await.1["isOnline"] == false).then_some(()) }).await;
        };
        let (calls, is_silent) = (id(), id());
        connect_and_close(&calls).await;
        api.beat(&calls, &json!({})).await;
        assert_eq!(api.get(&format!("/api/v1/nodes/{calls}")).await.1["isOnline"], true);

        // The other one closes its socket later, so its time is over later, too.
        connect_and_close(&is_silent).await;
        until("the other node to be lost", || async {
            Some(connection(&is_silent).await).filter(|connection| connection["reason"] == "connection closed")
        })
        .await;
        assert_eq!(connection(&calls).await["reason"], Value::Null);
    });
}
