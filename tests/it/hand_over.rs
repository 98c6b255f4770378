//! A broker is told to end while all kinds of peers wait for something: each is answered, and the next broker leads at once.

use crate::support::api::{Api, id, requests};
use crate::support::journey;
use crate::support::process::Broker;
use crate::support::raw::{connect, head, socket, status};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

/// Peers of a broker that wait.
struct Peers {
    /// Calls that are to be answered, by what they ask for.
    polls: Vec<(&'static str, TcpStream)>,
    /// Connections that are to be closed.
    others: Vec<(&'static str, TcpStream)>,
}

async fn peers(broker: &Broker) -> Peers {
    let api = Api::new(&broker.url);
    let (run, worker) = api.run("it.HandOver", &json!({})).await;
    api.heard(&worker, "start").await.expect("an order to start the run");
    // The order comes again until the start has returned. A request keeps the run open, and the pause keeps it from the node.
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests([1])).await.0, 200);
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/pause"), &json!({})).await.0, 200);
    let get = |path: &str| {
        let mut stream = connect(&broker.url);
        let host = broker.url.trim_start_matches("http://");
        stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes()).expect("it is sent");
        stream
    };
    let (_, log) = api.get(&format!("/api/v1/runs/{run}/logs")).await;
    let mut polls = vec![
        ("a queue", get(&format!("/requestqueue/{run}?wait=60"))),
        ("a queue, and it counts as done", get(&format!("/requestqueue/{run}?wait=60&max=5&ack=auto"))),
        ("messages", get(&format!("/api/v1/workers/{worker}/messages?wait=60"))),
        ("a log", get(&format!("/api/v1/runs/{run}/logs?wait=30&after={}", log["next"]))),
    ];
    polls.extend((0..100).map(|_| ("one of many", get(&format!("/requestqueue/{run}?wait=60")))));
    let mut stream = get(&format!("/api/v1/runs/{run}/logs/stream"));
    assert_eq!(status(&head(&mut stream)), 200);
    let mut idle = get("/healthz");
    assert_eq!(status(&head(&mut idle)), 200);
    let mut node = socket(&broker.url, &format!("/?nodeid={}", id()), "");
    assert!(node.read(&mut [0; 10]).expect("a welcome") > 0);
    let mut worker = socket(&broker.url, &format!("/worker?workerid={}", id()), "");
    assert!(worker.read(&mut [0; 10]).expect("a welcome") > 0);
    let others = vec![("a stream", stream), ("one that is idle", idle), ("a node", node), ("a worker", worker)];
    Peers { polls, others }
}

/// A call whose body does not come. The broker has begun it: it closes a connection on which it has read nothing without an answer.
fn half_sent(broker: &Broker) -> TcpStream {
    let mut stream = connect(&broker.url);
    let host = broker.url.trim_start_matches("http://");
    let call = format!("POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Length: 100\r\nExpect: 100-continue\r\n\r\n");
    stream.write_all(call.as_bytes()).expect("it is sent");
    assert_eq!(status(&head(&mut stream)), 100);
    stream.write_all(b"{\"name\":").expect("it is sent");
    stream
}

impl Peers {
    fn are_answered(self) {
        for (what, mut stream) in self.polls {
            let head = head(&mut stream);
            // With PostgreSQL the standby may execute the run: then the broker that ends has passed the call on.
            let says_why = head.contains("/problems/standby") || head.contains("its answer did not come (this broker ends): send it again");
            let is_told = status(&head) == 503 && says_why && head.to_lowercase().contains("retry-after: 1");
            assert!(is_told || what == "a log" && status(&head) == 200, "{what}: {head}");
            assert!(head.to_lowercase().contains("connection: close"), "{what}: {head}");
        }
        for (what, mut stream) in self.others {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap_or_else(|e| panic!("{what} is not closed: {e}"));
        }
    }
}

fn tell_to_end(broker: &Broker) {
    let status = Command::new("kill").arg("-TERM").arg(broker.process.0.id().to_string()).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn whoever_waits_is_answered_when_the_broker_ends() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let peers = peers(&broker).await;
        let began = Instant::now();
        assert!(broker.process.terminate().success());
        // Alone on a machine it takes some 50 ms.
        assert!(began.elapsed() < Duration::from_secs(2), "it took {:?}", began.elapsed());
        peers.are_answered();
    });
}

#[test]
fn the_next_broker_leads_at_once_whatever_waits_at_the_last_one() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let mut leader = Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "600000"], "");
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "600000"], "");
        let peers = peers(&leader).await;
        let mut half = half_sent(&leader);
        let next = Api::new(&standby.url);
        assert_eq!(next.get("/readyz").await.0, 503);
        let began = Instant::now();
        tell_to_end(&leader);
        crate::support::until("it leads", || async { (next.get("/readyz").await.0 == 200).then_some(()) }).await;
        assert!(began.elapsed() < Duration::from_secs(2), "it led after {:?}", began.elapsed());
        let answer = head(&mut half);
        assert_eq!(status(&answer), 503, "{answer}");
        peers.are_answered();
        assert!(leader.process.0.wait().expect("it ends").success());
        assert!(began.elapsed() < Duration::from_secs(4), "it ended after {:?}", began.elapsed());
    });
}
