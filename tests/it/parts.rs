//! A node reports a block in parts, and gives requests back.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

fn results(of: &[Value]) -> Vec<Value> {
    of.iter().map(|request| json!({ "requestId": request["requestId"], "status": 200, "text": request["url"] })).collect()
}

async fn report(api: &Api, node: &str, block: &Value, more: Value) -> (u16, Value) {
    let mut report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "attempt": block["attempt"] });
    for (name, value) in more.as_object().expect("members") {
        report[name] = value.clone();
    }
    api.post("/node/block", &report).await
}

/// All that a run delivers now, acknowledged: the URLs.
async fn delivered(api: &Api, run: &str) -> Vec<String> {
    let mut urls = Vec::new();
    loop {
        let (status, block) = api.get(&format!("/requestqueue/{run}")).await;
        if status == 204 {
            return urls;
        }
        for result in block["results"].as_array().expect("results") {
            assert_eq!(result["status"], 200, "{result}");
            urls.push(result["request"]["url"].as_str().expect("a URL").rsplit('/').next().expect("a number").to_owned());
        }
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
    }
}

#[test]
fn a_block_comes_in_parts_and_survives_a_crash_in_between() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Parts", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=6)).await.0, 200);
        let node = id();
        let block = api.beat(&node, &json!({})).await;
        assert_eq!(block["parts"], true);
        let all = block["requests"].as_array().expect("requests").clone();
        let some = [all[4].clone(), all[1].clone()];
        let part = json!({ "part": true, "results": results(&some) });
        assert_eq!(report(&api, &node, &block, part.clone()).await, (200, json!({ "success": 2, "error": 0 })));
        assert_eq!(delivered(&api, &run).await, ["5", "2"], "before the rest of the block is there");
        assert_eq!(report(&api, &node, &block, part.clone()).await, (200, json!({ "success": 0, "error": 0 })), "its answer was lost");
        let state = api.state(&run).await;
        assert_eq!((&state["total"], &state["success"], &state["left"]), (&json!(6), &json!(2), &json!(4)), "{state}");

        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        let again =
            until("the run", || async { Some(report(&api, &node, &block, part.clone()).await).filter(|(status, _)| *status != 503) }).await;
        assert_eq!(again, (200, json!({ "success": 0, "error": 0 })), "it was on disk");
        let strange = json!({ "part": true, "results": results(&[all[0].clone(), json!({ "requestId": "000000000000000000000000" })]) });
        let holding = json!({ "holding": [{ "identity": run, "blockId": block["blockId"], "attempt": 1, "epoch": block["epoch"] }] });
        assert_eq!(api.beat(&node, &holding).await, Value::Null, "it has the block still");
        let (status, problem) = report(&api, &node, &block, strange).await;
        assert_eq!((status, &problem["field"]), (422, &json!("results[1].requestId")), "{problem}");
        // What a node reports wrongly goes out again: what is left of it.
        let rest = until("the rest", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
        assert_eq!(rest["requests"].as_array().map(Vec::len), Some(4), "{rest}");
        assert_eq!(report(&api, &node, &rest, json!({ "results": results(rest["requests"].as_array().expect("requests")) })).await.0, 200);
        assert_eq!(delivered(&api, &run).await, ["1", "3", "4", "6"]);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        let state = until("the end", || async { Some(api.state(&run).await).filter(|s| s["state"] == "success") }).await;
        assert_eq!((&state["total"], &state["success"], &state["error"]), (&json!(6), &json!(6), &json!(0)), "{state}");
    });
}

#[test]
fn requests_that_a_node_gives_back_wait_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Back", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=3)).await.0, 200);
        let node = id();
        let block = api.beat(&node, &json!({})).await;
        let all = block["requests"].as_array().expect("requests").clone();
        let back = |requests: &[Value]| requests.iter().map(|r| json!({ "requestId": r["requestId"], "tries": 2 })).collect::<Vec<_>>();
        let wrong = json!({ "results": results(&all[..1]), "back": back(&all[..2]) });
        assert_eq!(report(&api, &node, &block, wrong).await.1["field"], "back[0].requestId", "it has a result");
        let block = until("it to come again", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
        let some = json!({ "results": results(&all[1..2]), "back": back(&[all[0].clone(), all[2].clone()]) });
        assert_eq!(report(&api, &node, &block, some).await, (200, json!({ "success": 1, "error": 0 })));
        assert_eq!(delivered(&api, &run).await, ["2"]);
        // All of it, more often than a block may be lost.
        for turn in 0..12 {
            let block = api.beat(&node, &json!({})).await;
            let left = block["requests"].as_array().expect("requests");
            assert_eq!((left.len(), &left[1]["tries"], &left[1]["url"]), (2, &json!(2), &json!("http://example.test/3")), "turn {turn}");
            assert_eq!(report(&api, &node, &block, json!({ "back": back(left) })).await, (200, json!({ "success": 0, "error": 0 })));
        }
        let last = api.beat(&node, &json!({})).await;
        assert_eq!(report(&api, &node, &last, json!({ "results": results(last["requests"].as_array().expect("requests")) })).await.0, 200);
        assert_eq!(delivered(&api, &run).await, ["1", "3"]);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        until("the end", || async { Some(api.state(&run).await).filter(|s| s["state"] == "success") }).await;
    });
}
