//! Agents and workers that are connected by way of a standby keep their sockets when the leader changes.

use crate::support::api::{Api, id, requests};
use crate::support::process::{Broker, database};
use crate::support::raw::{close_code, connect, head, socket, status};
use crate::support::socket::{Socket, held};
use crate::support::{journey, until};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;
use webloom::for_tests::{sign::sign_at, time::Timestamp};

const ADMIN: &str = "admin-token-of-this-test";
const ARGS: [&str; 8] = [
    "--lease-ms",
    "1000",
    "--token",
    "admin:admin-token-of-this-test",
    "--token",
    "agent:agent-token-of-this-test",
    "--token",
    "worker:worker-token-of-this-test",
];

/// Not every broker knows it.
const ANOTHER_TOKEN: [&str; 2] = ["--token", "worker:another-token-of-this-test"];

/// A broker of the database of this folder, with a clock that is wrong by some minutes.
fn broker(shared: &Path, minutes: i64, more: &[&str]) -> (Broker, TempDir) {
    let own = tempfile::tempdir().expect("a folder");
    std::fs::write(own.path().join("b.url"), database(shared).to_str().expect("a text")).expect("written");
    std::fs::write(own.path().join("clock"), (minutes * 60_000).to_string()).expect("written");
    (Broker::start_in(own.path(), "127.0.0.1:0", &[&ARGS, more].concat(), ""), own)
}

fn signal(broker: &Broker, name: &str) {
    assert!(Command::new("kill").args([name, &broker.process.0.id().to_string()]).status().expect("kill runs").success());
}

async fn leads(api: &Api) {
    until("it leads", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
}

/// What a worker sends after each `welcome`.
async fn watch(worker: &mut Socket, runs: &[&str]) {
    worker.find("welcome").await;
    worker.say("watch", &json!({ "classNames": ["it.Kept"], "runs": runs }));
    worker.find_and_keep_others("watching").await;
}

/// What a node sends after each `welcome`.
async fn beat(node: &mut Socket, holding: &[serde_json::Value]) {
    node.find("welcome").await;
    node.say("heartbeat", &json!({ "processCount": holding.len(), "cpu": 7, "freeMemory": 321, "holding": holding }));
}

#[test]
fn a_standby_that_ends_says_so_to_the_clients_of_its_sockets() {
    journey(async {
        let shared = tempfile::tempdir().expect("a folder");
        let (_first, _folder) = broker(shared.path(), 0, &[]);
        let (mut keeper, _keeper) = broker(shared.path(), 0, &[]);
        let api = Api::new(&keeper.url).with_token(ADMIN);
        until("it stands by", || async { (api.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
        // Several, because `select!` polls its branches in random order.
        let open = |_| socket(&keeper.url, &format!("/worker?workerid={}", id()), "worker-token-of-this-test");
        let mut workers: Vec<_> = (0..10).map(open).collect();
        for worker in &mut workers {
            assert!(worker.read(&mut [0; 1_000]).expect("a welcome") > 0);
        }
        signal(&keeper, "-TERM");
        for mut worker in workers {
            assert_eq!(close_code(&mut worker), Some(1012));
        }
        assert!(keeper.process.0.wait().expect("it ends").success());
    });
}

#[test]
fn sockets_stay_when_another_broker_leads_and_when_their_own_does() {
    journey(async {
        let shared = tempfile::tempdir().expect("a folder");
        let (mut first, _first) = broker(shared.path(), 0, &ANOTHER_TOKEN);
        let (mut keeper, _keeper) = broker(shared.path(), 0, &ANOTHER_TOKEN);
        // Its clock is so late that the address of the node, which is signed now, has become too old.
        let (mut next, _next) = broker(shared.path(), 20, &[]);
        let at_keeper = Api::new(&keeper.url).with_token(ADMIN);
        let at_next = Api::new(&next.url).with_token(ADMIN);
        for api in [&at_keeper, &at_next] {
            until("it stands by", || async { (api.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
        }
        let (node_id, worker_id, now) = (id(), id(), Timestamp::now());
        let path = format!("/worker?workerid={worker_id}&token=worker-token-of-this-test");
        let mut worker = Socket::open(&keeper.url, &path, Some(json!({ "t": "heartbeat", "v": {} }))).await;
        watch(&mut worker, &[]).await;
        let sign = sign_at("agent-token-of-this-test", node_id.parse().expect("an id"), now);
        let mut node = Socket::open(&keeper.url, &format!("/?nodeid={node_id}&sign={sign}&signtime={}", now.0), None).await;
        beat(&mut node, &[]).await;
        let path = format!("/worker?workerid={}&token=another-token-of-this-test", id());
        let mut refused = Socket::open(&keeper.url, &path, Some(json!({ "t": "heartbeat", "v": {} }))).await;
        refused.find("welcome").await;

        let job = at_keeper.job("kept", "it.Kept", &json!({})).await;
        let run = at_keeper.trigger(&job).await;
        worker.find("start").await;
        assert_eq!(at_keeper.post(&format!("/requestqueue/{run}"), &requests([1])).await.0, 200);
        worker.say("startReturned", &json!({ "identity": run }));
        let block = node.find("block").await;

        // The standby with the sockets must not lead yet.
        signal(&keeper, "-STOP");
        first.process.kill();
        leads(&at_next).await;
        signal(&keeper, "-CONT");
        watch(&mut worker, &[&run]).await;
        // The first leader may not have got it.
        worker.say("startReturned", &json!({ "identity": run }));
        beat(&mut node, &[held(&block)]).await;
        while refused.next().await.is_some() {}
        for path in [format!("/api/v1/nodes/{node_id}"), format!("/api/v1/workers/{worker_id}")] {
            assert_eq!(at_next.get(&path).await.1["isOnline"], true, "{path}");
        }
        assert_eq!(at_keeper.report(&node_id, &block, 200).await.0, 200);
        let (_, page) = at_keeper.get(&format!("/requestqueue/{run}?worker={worker_id}&wait=20")).await;
        assert_eq!(page["results"][0]["status"], 200, "{page}");
        assert_eq!(at_keeper.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [page["blockId"]] })).await.0, 200);
        assert_eq!(worker.find("ended").await["state"], "success");

        // An ordered end. A connection without a call tells when the server of the standby accepts none any more.
        let mut idle = connect(&keeper.url);
        idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n").expect("it is sent");
        assert_eq!(status(&head(&mut idle)), 200);
        assert!(next.process.terminate().success());
        leads(&at_keeper).await;
        watch(&mut worker, &[]).await;
        beat(&mut node, &[]).await;
        for path in [format!("/api/v1/nodes/{node_id}"), format!("/api/v1/workers/{worker_id}")] {
            assert_eq!(at_keeper.get(&path).await.1["isOnline"], true, "{path}");
        }
        let closed = tokio::task::spawn_blocking(move || idle.read_to_end(&mut Vec::new()));
        closed.await.expect("no panic").expect("the idle connection is closed");
        let run = at_keeper.trigger(&job).await;
        assert_eq!(worker.find("start").await["identity"], run.as_str());
        assert_eq!(at_keeper.post(&format!("/requestqueue/{run}"), &requests([2])).await.0, 200);
        assert_eq!(node.find("block").await["identity"], run.as_str());
        assert!(keeper.process.terminate().success());
        while node.next().await.is_some() {}
        while worker.next().await.is_some() {}
    });
}
