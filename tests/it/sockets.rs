//! Nodes and workers on WebSockets, from nothing but the page about the wire.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::socket::{Node, Socket, Worker, held};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

async fn push(api: &Api, run: &str, pages: std::ops::Range<usize>) {
    let (status, pushed) = api.post(&format!("/requestqueue/{run}"), &requests(pages)).await;
    assert_eq!(status, 200, "{pushed}");
}

/// A job of a class that a worker watches already, triggered with this priority.
async fn run_of(api: &Api, name: &str, class: &str, priority: i32) -> String {
    let job = api.job(name, class, &json!({ "BlockSize": "1" })).await;
    let (status, run) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "priority": priority })).await;
    assert_eq!(status, 202, "{run}");
    run["identity"].as_str().expect("an identity").to_owned()
}

/// A node's row.
async fn node_row(api: &Api, node: &str) -> Value {
    let (status, nodes) = api.get("/api/v1/nodes").await;
    assert_eq!(status, 200);
    nodes["items"].as_array().expect("items").iter().find(|row| row["nodeId"] == node).cloned().unwrap_or(Value::Null)
}

#[test]
fn blocks_are_pushed_at_once_as_text_and_as_bulk() {
    journey(async {
        // Nothing may wait for a heartbeat: there is none for an hour.
        let broker = Broker::start(&["--node-heartbeat", "3600000", "--node-offline", "7200000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Push", &json!({ "BlockSize": "1" })).await;
        for (more, binary) in [("", Value::Null), ("&encoding=zstd", json!(true))] {
            let mut node = Node::connect(&api, &id(), more).await;
            until("the node to be there", || async { Some(node_row(&api, &node.id).await).filter(|row| row["isOnline"] == true) }).await;
            let first = api.state(&run).await["total"].as_u64().expect("a count") as usize;
            let began = Instant::now();
            push(&api, &run, first..first + 1).await;
            let message = node.socket.next().await.expect("a block");
            assert!(began.elapsed() < Duration::from_secs(2), "at once, not after {:?}", began.elapsed());
            assert_eq!((&message["t"], &message["binary"]), (&json!("block"), &binary));
            let block = message["v"].clone();
            assert_eq!((&block["identity"], &block["attempt"], &block["epoch"]), (&json!(run), &json!(1), &json!(1)));
            assert_eq!(block["requests"][0]["url"], format!("http://example.test/{first}"));
            assert_eq!(node.report(&block).await, (200, json!({ "success": 1, "error": 0 })));
        }
    });
}

#[test]
fn no_more_blocks_than_the_node_takes() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Most", &json!({ "BlockSize": "1" })).await;
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=3").await;
        push(&api, &run, 0..20).await;
        let mut done = 0;
        for _ in 0..3 {
            node.block().await;
        }
        while done < 20 {
            let consuming = api.state(&run).await["consuming"].as_u64();
            assert_eq!(consuming, Some(3.min(20 - done)), "after {done}");
            node.beat();
            assert!(node.socket.is_quiet(), "a block too many after {done}");
            let block = node.holding[0].clone();
            assert_eq!(node.report(&block).await.0, 200);
            done += 1;
            if done + 3 <= 20 {
                node.block().await;
            }
        }
        assert_eq!(api.state(&run).await["blockTimes"], 20);
    });
}

#[test]
fn priority_goes_first_and_equals_share() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        api.worker("it.Fair").await;
        let low = [run_of(&api, "a", "it.Fair", 1).await, run_of(&api, "b", "it.Fair", 1).await];
        let high = run_of(&api, "c", "it.Fair", 9).await;
        // The first of the equals has ten times as much as the other.
        push(&api, &low[0], 0..100).await;
        push(&api, &low[1], 0..10).await;
        push(&api, &high, 0..5).await;
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=1").await;
        let mut order = Vec::new();
        for _ in 0..25 {
            let block = node.block().await;
            order.push(block["identity"].as_str().expect("an identity").to_owned());
            assert_eq!(node.report(&block).await.0, 200);
        }
        assert!(order[..5].iter().all(|run| *run == high), "{order:?}");
        for n in 1..=10 {
            let of = |run: &String| order[5..5 + 2 * n].iter().filter(|other| *other == run).count();
            assert_eq!((of(&low[0]), of(&low[1])), (n, n), "turn by turn: {order:?}");
        }
        for run in &low {
            assert!(api.state(run).await["blockTimes"].as_u64() >= Some(10));
        }
    });
}

#[test]
fn a_node_that_was_disabled_gets_nothing() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Disabled", &json!({ "BlockSize": "1" })).await;
        let mut node = Node::connect(&api, &id(), "").await;
        let path = format!("/api/v1/nodes/{}", node.id);
        until("the node", || async { Some(node_row(&api, &node.id).await).filter(|row| row["isOnline"] == true) }).await;
        push(&api, &run, 0..1).await;
        let before = node.block().await;
        assert_eq!(api.post(&format!("{path}/disable"), &json!({})).await.0, 200);
        push(&api, &run, 1..4).await;
        node.beat();
        assert_eq!(node.report(&before).await.0, 200, "it finishes what it has");
        node.reconnect().await;
        // Whoever gets what is there: the other one.
        let mut other = Node::connect(&api, &id(), "&maxprocesscount=9").await;
        for _ in 0..3 {
            other.block().await;
        }
        assert_eq!(node_row(&api, &node.id).await["isEnabled"], false, "a connect does not enable it");
        assert!(node.socket.is_quiet());
        assert_eq!(api.post(&format!("{path}/enable"), &json!({})).await.0, 200);
        push(&api, &run, 4..14).await;
        node.block().await;
    });
}

#[test]
fn what_cannot_be_read_is_answered_and_hurts_nobody_else() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Frames", &json!({ "BlockSize": "1" })).await;
        let mut good = Node::connect(&api, &id(), "").await;
        for path in [format!("/?nodeid={}", id()), format!("/worker?workerid={}", id())] {
            let mut bad = Socket::open(&api.url, &path, None).await;
            bad.first("welcome").await;
            for text in [
                "{\"t\":\"dance\",\"v\":{}}",
                "{\"t\":",
                "[]",
                "",
                "{\"t\":\"heartbeat\",\"v\":7}",
                "{\"t\":\"watch\",\"v\":{\"classNames\":1}}",
            ] {
                bad.text(text);
                let problem = bad.find("error").await;
                assert_eq!((&problem["type"], &problem["status"]), (&json!("/problems/malformed"), &json!(400)), "{text}");
                assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()));
            }
            bad.binary(vec![0xff; 10]);
            bad.find("error").await;
            bad.text(&format!("{{\"t\":\"heartbeat\",\"v\":{{}},\"x\":\"{}\"}}", "x".repeat(2 << 20)));
            assert_eq!(bad.next().await, None, "a message over the limit closes the socket");
        }
        for path in ["/?nodeid=xyz", "/", "/?nodeid=00000000000000000000000000000001&maxprocesscount=0", "/worker?workerid=xyz"] {
            let upgrade = api.request(reqwest::Method::GET, path).header("connection", "upgrade").header("upgrade", "websocket");
            let (status, problem) = api.send(upgrade).await;
            assert_eq!(status / 100, 4, "{path}: {problem}");
        }
        push(&api, &run, 0..1).await;
        let block = good.block().await;
        assert_eq!(good.report(&block).await.0, 200);
    });
}

#[test]
fn a_node_that_comes_back_in_time_keeps_its_blocks() {
    journey(async {
        let broker = Broker::start(&["--grace", "20000", "--node-heartbeat", "200", "--node-offline", "60000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Back", &json!({ "BlockSize": "1" })).await;
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=1").await;
        push(&api, &run, 0..1).await;
        let kept = node.block().await;
        let mut other = Node::connect(&api, &id(), "").await;
        node.socket.leave();
        // It is away for longer than the broker takes to look (a second at most), and shorter than the time of grace.
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        assert_eq!(api.state(&run).await["consuming"], 1, "nothing was taken from it");
        node.reconnect().await;
        // A round trip of both: what the broker had to say after the reconnect has been said.
        push(&api, &run, 1..2).await;
        assert_ne!(other.block().await["blockId"], kept["blockId"]);
        assert!(node.socket.is_quiet(), "it holds what it said");
        assert_eq!(node.report(&kept).await, (200, json!({ "success": 1, "error": 0 })));
    });
}

#[test]
fn a_block_that_got_lost_on_the_way_comes_again() {
    journey(async {
        let broker = Broker::start(&["--grace", "20000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Lost", &json!({ "BlockSize": "1" })).await;
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=1").await;
        push(&api, &run, 0..1).await;
        let lost = node.socket.find("block").await;
        let mut other = Node::connect(&api, &id(), "").await;
        node.reconnect().await;
        let again = until("the lost block", || {
            node.beat();
            let message = node.socket.try_next();
            async move { message }
        })
        .await;
        assert_eq!(
            (&again["t"], &again["v"]["blockId"], &again["v"]["attempt"]),
            (&json!("block"), &lost["blockId"], &lost["attempt"]),
            "the same hand-out"
        );
        assert_eq!(node.report(&again["v"]).await.0, 200);
        assert!(other.socket.is_quiet());
    });
}

#[test]
fn a_block_that_is_on_its_way_is_not_sent_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Slow", &json!({ "BlockSize": "1" })).await;
        let mut node = Node::connect(&api, &id(), "&maxprocesscount=2").await;
        push(&api, &run, 0..1).await;
        let slow = node.socket.find("block").await;
        let beat = |received: u64, holding: &[Value]| {
            let holding: Vec<Value> = holding.iter().map(held).collect();
            json!({ "processCount": 0, "cpu": 1, "freeMemory": 1, "holding": holding, "received": received })
        };
        // As a node whose heartbeats come before it has read the block. After two seconds a block that is not listed counts as lost.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2_500) {
            node.socket.say("heartbeat", &beat(0, &[]));
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        push(&api, &run, 1..2).await;
        let next = node.socket.find("block").await;
        assert_ne!(next["blockId"], slow["blockId"]);
        assert!(node.socket.is_quiet());
        // It has read both, and has not taken the first.
        node.socket.say("heartbeat", &beat(2, std::slice::from_ref(&next)));
        let again = node.socket.find("block").await;
        assert_eq!((&again["blockId"], &again["attempt"]), (&slow["blockId"], &slow["attempt"]));
        for block in [again, next] {
            assert_eq!(node.report(&block).await.0, 200);
        }
    });
}

#[test]
fn a_node_that_stays_away_loses_its_blocks() {
    journey(async {
        let broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Away", &json!({})).await;
        let mut node = Node::connect(&api, &id(), "").await;
        push(&api, &run, 0..1).await;
        let first = node.block().await;
        let mut other = Node::connect(&api, &id(), "&encoding=zstd").await;
        node.socket.leave();
        let second = other.block().await;
        assert_eq!((&second["blockId"], &second["attempt"]), (&first["blockId"], &json!(2)));
        assert_eq!(node.report(&first).await.1["type"], "/problems/late-report");
        assert_eq!(api.state(&run).await["success"], 0, "a late report changes nothing");
        assert_eq!(node_row(&api, &node.id).await["isOnline"], false);
        // It comes back with what is no more its own, and is told so.
        node.holding.push(first.clone());
        node.reconnect().await;
        let dropped = node.socket.find("drop").await;
        assert_eq!((&dropped["blockId"], &dropped["attempt"]), (&first["blockId"], &json!(1)));
        assert_eq!(other.report(&second).await.0, 200);
    });
}

#[test]
fn a_heartbeat_is_stored() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let node = Node::connect(&api, &id(), "&maxprocesscount=7&ip=10.1.2.3").await;
        let path = format!("/api/v1/nodes/{}/status", node.id);
        let last = until("the heartbeat", || async { Some(api.get(&path).await.1["items"][0].clone()).filter(Value::is_object) }).await;
        assert_eq!((&last["processCount"], &last["cpu"], &last["freeMemory"]), (&json!(0), &json!(7), &json!(321)), "{last}");
        assert!(last["creationTime"].as_str().is_some_and(|time| time.ends_with('Z')));
        let row = node_row(&api, &node.id).await;
        let facts = json!({ "nodeId": node.id, "nodeType": "Console", "ipAddress": "10.1.2.3", "processorCount": 4, "group": "default",
            "operatingSystem": "linux", "memory": 8000, "maxProcessCount": 7, "isEnabled": true, "isOnline": true, "holding": 0 });
        for (key, value) in facts.as_object().expect("an object") {
            assert_eq!(&row[key], value, "{key} of {row}");
        }
        assert_eq!(row["load"], json!({ "processCount": 0, "cpu": 7, "freeMemory": 321 }));
        // The same again is a sign of life, but nothing to store. A change is.
        until("a later time", || {
            node.beat();
            async { Some(node_row(&api, &node.id).await).filter(|later| later["lastOnlineTime"].as_str() > row["lastOnlineTime"].as_str()) }
        })
        .await;
        node.socket.say("heartbeat", &json!({ "processCount": 0, "cpu": 90, "freeMemory": 321, "holding": [] }));
        let statuses = || async { api.get(&path).await.1["items"].as_array().expect("items").clone() };
        until("the change", || async { statuses().await.first().cloned().filter(|status| status["cpu"] == 90) }).await;
        assert_eq!(statuses().await.len(), 2, "one for many that said the same");
    });
}

#[test]
fn a_worker_carries_out_a_run() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Socket"]).await;
        let job = api.job("socket", "it.Socket", &json!({ "Arguments": "of the job", "Mine": "x" })).await;
        let run = api.trigger(&job).await;
        let start = worker.socket.find("start").await;
        assert_eq!((&start["identity"], &start["jobId"], &start["className"]), (&json!(run), &json!(job), &json!("it.Socket")));
        assert_eq!((&start["arguments"], &start["properties"]["Mine"]), (&json!("of the job"), &json!("x")));
        assert_eq!(start["startReturned"], false);
        push(&api, &run, 0..3).await;
        worker.socket.say("startReturned", &json!({ "identity": run }));
        let mut node = Node::connect(&api, &id(), "").await;
        let block = node.block().await;
        assert_eq!(node.report(&block).await.0, 200);
        let (_, done) = api.get(&format!("/requestqueue/{run}?wait=5&worker={}", worker.id)).await;
        assert_eq!(done["results"].as_array().map(Vec::len), Some(3));
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [done["blockId"]] })).await.0, 200);
        let ended = worker.socket.find("ended").await;
        let counters = json!({ "left": 0, "success": 3, "error": 0, "total": 3 });
        assert_eq!((&ended["identity"], &ended["state"], &ended["counters"]), (&json!(run), &json!("success"), &counters));
        // One whose start went wrong.
        let run = api.trigger(&job).await;
        worker.socket.find("start").await;
        worker.socket.say("startReturned", &json!({ "identity": run, "error": "the sitemap is gone" }));
        let ended = worker.socket.find("ended").await;
        assert_eq!(ended["state"], "failed");
        assert!(ended["reason"].as_str().is_some_and(|reason| reason.contains("the sitemap is gone")), "{ended}");
    });
}

#[test]
fn workers_take_turns() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut workers = [Worker::watch(&api, &id(), &["it.Turn"]).await, Worker::watch(&api, &id(), &["it.Turn", "it.Only"]).await];
        let job = api.job("turn", "it.Turn", &json!({})).await;
        let only = api.job("only", "it.Only", &json!({})).await;
        let turn = async |workers: &mut [Worker; 2], job: &str| {
            let run = api.trigger(job).await;
            until("a start", || {
                let got = [workers[0].socket.try_next(), workers[1].socket.try_next()];
                let run = run.clone();
                async move {
                    let at = got.iter().position(Option::is_some)?;
                    assert_eq!(got[at].as_ref().map(|m| (&m["t"], &m["v"]["identity"])), Some((&json!("start"), &json!(run))));
                    Some(at)
                }
            })
            .await
        };
        let first = turn(&mut workers, &job).await;
        assert_eq!(turn(&mut workers, &job).await, 1 - first);
        assert_eq!(turn(&mut workers, &job).await, first);
        // Worker 1 is used for another class: by that, too, it is not the one that was chosen longest ago.
        assert_eq!(turn(&mut workers, &only).await, 1);
        assert_eq!(turn(&mut workers, &job).await, 1 - first.max(1));
    });
}

#[test]
fn a_workers_death_gives_its_run_to_another() {
    journey(async {
        let broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let mut first = Worker::watch(&api, &id(), &["it.Heir"]).await;
        let job = api.job("heir", "it.Heir", &json!({ "BlockSize": "1" })).await;
        let run = api.trigger(&job).await;
        first.socket.find("start").await;
        push(&api, &run, 0..2).await;
        first.socket.say("startReturned", &json!({ "identity": run }));
        let mut node = Node::connect(&api, &id(), "").await;
        for _ in 0..2 {
            let block = node.block().await;
            assert_eq!(node.report(&block).await.0, 200);
        }
        let poll = |worker: &str| format!("/requestqueue/{run}?worker={worker}");
        let mut delivered = Vec::new();
        for _ in 0..2 {
            delivered.push(api.get(&format!("{}&wait=5", poll(&first.id))).await.1["blockId"].clone());
        }
        assert_eq!(api.get(&poll(&first.id)).await.0, 204, "both are delivered");
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [delivered[0]] })).await.0, 200);
        let mut heir = Worker::watch(&api, &id(), &["it.Heir"]).await;
        drop(first);
        let start = heir.socket.find("start").await;
        assert_eq!((&start["identity"], &start["startReturned"]), (&json!(run), &json!(true)));
        let (status, again) = api.get(&format!("{}&wait=10", poll(&heir.id))).await;
        assert_eq!((status, &again["blockId"]), (200, &delivered[1]), "what the dead one had not acknowledged");
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [delivered[1]] })).await.0, 200);
        assert_eq!(heir.socket.find("ended").await["state"], "success");
    });
}

#[test]
fn each_class_of_a_worker_is_a_watch_of_its_own() {
    journey(async {
        let broker = Broker::start(&["--grace", "100"], "");
        let api = Api::new(&broker.url);
        let worker = Worker::watch(&api, &id(), &["it.One", "it.Two"]).await;
        let rows = async || {
            let mut rows: Vec<Value> = api.get("/api/v1/workers/watches").await.1["items"].as_array().expect("items").clone();
            rows.retain(|row| row["connectionId"] == worker.id.as_str());
            rows.sort_by_key(|row| row["fullClassName"].to_string());
            rows
        };
        let now = rows().await;
        let names: Vec<_> = now.iter().map(|row| row["fullClassName"].clone()).collect();
        assert_eq!(names, ["it.One", "it.Two"]);
        assert!(now.iter().all(|row| row["connectTime"].is_string() && row["disconnectTime"].is_null()), "{now:?}");
        worker.socket.say("watch", &json!({ "classNames": ["it.Two"] }));
        until("the first to be closed", || async { rows().await[0]["disconnectTime"].is_string().then_some(()) }).await;
        assert!(rows().await[1]["disconnectTime"].is_null());
        worker.socket.leave();
        until("both to be closed", || async { rows().await.iter().all(|row| row["disconnectTime"].is_string()).then_some(()) }).await;
    });
}

#[test]
fn a_node_that_an_operator_removed_gets_no_more_blocks() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Removed", &json!({ "BlockSize": "1" })).await;
        let removed = Node::connect(&api, &id(), "&maxprocesscount=4").await;
        let is_free = async || (api.get(&format!("/api/v1/nodes/{}", removed.id)).await.1["load"].is_object()).then_some(());
        until("its heartbeat", is_free).await;
        assert_eq!(api.delete(&format!("/api/v1/nodes/{}?force=true", removed.id)).await.0, 204);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..3)).await.0, 200);
        let mut other = Node::connect(&api, &id(), "&maxprocesscount=4").await;
        for _ in 0..3 {
            assert_eq!(other.block().await["attempt"], 1, "no block was lost with the removed node");
        }
    });
}
