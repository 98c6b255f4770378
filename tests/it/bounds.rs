//! Promises 5 and 6: memory is bounded by what is said, and nobody who is slow, deaf or gone holds up anybody else.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::socket::Node;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Bytes of a process that are in memory.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

/// Requests of which each has 128 bytes that no compression makes fewer, so that all of them together are more than is allowed.
fn heavy(pages: std::ops::Range<usize>) -> String {
    let mut text = String::from("[");
    for n in pages {
        let _ = write!(text, "{}{{\"url\":\"http://example.test/{n}\",\"meta\":\"", if text.len() > 1 { "," } else { "" });
        for i in 0..16_u64 {
            // SplitMix64's mixer.
            let mut z = (n as u64 * 16 + i).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            let _ = write!(text, "{:016x}", z ^ (z >> 31));
        }
        text.push_str("\"}");
    }
    text + "]"
}

/// Requests that nobody downloads lie on the disk. Allowed is what the set of seen requests takes, and 32 MiB (measured: 12): the payloads
/// that a run keeps at hand, SQLite's page cache, and what the allocator holds on to of the largest bodies of a push.
#[test]
fn a_queue_that_grows_takes_disk_and_not_memory() {
    const REQUESTS: usize = 400_000;
    const A_CALL: usize = 10_000;
    const ALLOWED: u64 = 32 << 20;
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let pid = broker.process.0.id();
        let (run, _) = api.run("it.Memory", &json!({})).await;
        // What the first call needs, every later one has.
        let push = async |pages| api.send(api.request(reqwest::Method::POST, &format!("/requestqueue/{run}")).body(heavy(pages))).await;
        assert_eq!(push(0..A_CALL).await.0, 200);
        let before = resident(pid);
        let mut most = 0;
        for from in (A_CALL..REQUESTS).step_by(A_CALL) {
            let (status, pushed) = push(from..from + A_CALL).await;
            assert_eq!((status, &pushed["accepted"]), (200, &json!(A_CALL)), "{from}: {pushed}");
            most = most.max(resident(pid));
        }
        let state = api.state(&run).await;
        assert_eq!((&state["total"], &state["seen"]), (&json!(REQUESTS), &json!(REQUESTS)));
        let seen_bytes = state["seenBytes"].as_u64().expect("bytes");
        let grown = most.saturating_sub(before);
        println!("{REQUESTS} requests: grown by {} kB, of that seen {} kB; {} kB before", grown >> 10, seen_bytes >> 10, before >> 10);
        assert!(seen_bytes / REQUESTS as u64 <= 16, "{seen_bytes} bytes");
        assert!(grown <= seen_bytes + ALLOWED, "grown by {grown}, seen {seen_bytes}");
    });
}

/// A whole run on the same broker.
async fn completes(api: &Api, class: &str) {
    let (run, _) = api.run(class, &json!({ "BlockSize": "5", "NodeGroup": class })).await;
    let queue = format!("/requestqueue/{run}");
    assert_eq!(api.post(&queue, &requests(0..50)).await.1["accepted"], 50);
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
    let mut node = Node::connect(api, &id(), &format!("&group={class}")).await;
    for _ in 0..10 {
        let block = node.block().await;
        assert_eq!(node.report(&block).await.0, 200);
        let (status, done) = api.get(&format!("{queue}?wait=10")).await;
        assert_eq!(status, 200);
        assert_eq!(api.post(&format!("{queue}/ack"), &json!({ "blocks": [done["blockId"]] })).await.0, 200);
    }
    until("its end", || async { (api.state(&run).await["state"] == "success").then_some(()) }).await;
}

/// A socket to the broker, on which this is sent.
fn raw(api: &Api, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(api.url.trim_start_matches("http://")).expect("the broker listens");
    stream.write_all(text.as_bytes()).expect("written");
    stream
}

#[test]
fn a_node_that_never_reads_holds_up_nobody() {
    journey(async {
        let broker = Broker::start(&["--grace", "200", "--node-offline", "3000", "--node-heartbeat", "500"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Deaf", &json!({ "BlockSize": "100", "NodeGroup": "deaf" })).await;
        // Some 40 MB: far more than the buffers of a connection hold.
        let body: Value = (0..4_000).map(|n| json!({ "url": format!("http://deaf.test/{n}"), "body": "x".repeat(10_000) })).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &body).await.0, 413);
        for from in [0, 2_000] {
            let body: Value =
                (from..from + 2_000).map(|n| json!({ "url": format!("http://deaf.test/{n}"), "body": "x".repeat(10_000) })).collect();
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &body).await.0, 200);
        }
        let mut deaf = raw(
            &api,
            &format!(
                "GET /?nodeid={}&group=deaf&maxprocesscount=40 HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
                 Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n",
                id()
            ),
        );
        until("its blocks to be sent", || async { (api.state(&run).await["consuming"] == 40).then_some(()) }).await;
        completes(&api, "it.Meanwhile").await;
        // It is not heard of, so that its blocks are free again; and somebody else gets them.
        until("it to be lost", || async { (api.state(&run).await["consuming"] == 0).then_some(()) }).await;
        let mut other = Node::connect(&api, &id(), "&group=deaf&encoding=zstd").await;
        let block = other.block().await;
        assert_eq!(block["attempt"], 2);
        assert_eq!(other.report(&block).await.0, 200);
        // The broker let go of it: what is in the buffers, and then the end.
        deaf.set_read_timeout(Some(Duration::from_secs(10))).expect("a limit");
        let mut rest = vec![0; 1 << 20];
        while let Ok(n @ 1..) = deaf.read(&mut rest) {
            std::hint::black_box(n);
        }
    });
}

#[test]
fn a_worker_that_never_acknowledges_holds_up_nobody() {
    journey(async {
        // The node here sends no heartbeats, and 1,030 reports take a busy machine long.
        let broker = Broker::start(&["--node-offline", "240000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Lazy", &json!({ "BlockSize": "1", "NodeGroup": "lazy" })).await;
        let queue = format!("/requestqueue/{run}");
        assert_eq!(api.post(&queue, &requests(0..1_030)).await.1["accepted"], 1_030);
        let mut node = Node::connect(&api, &id(), "&group=lazy&maxprocesscount=100&encoding=zstd").await;
        for _ in 0..1_030 {
            let block = node.block().await;
            assert_eq!(node.report(&block).await.0, 200);
        }
        let mut delivered = Vec::new();
        loop {
            let (status, answer) = api.get(&format!("{queue}?max=64")).await;
            if status == 204 {
                break;
            }
            delivered.extend(answer["blocks"].as_array().expect("blocks").iter().map(|block| block["blockId"].clone()));
        }
        assert_eq!(delivered.len(), 1_024, "no more than that are out and not acknowledged");
        completes(&api, "it.Meanwhile").await;
        assert_eq!(api.get(&queue).await.0, 204, "and it stays so");
        assert_eq!(api.post(&format!("{queue}/ack"), &json!({ "blocks": delivered[..10] })).await.0, 200);
        let (_, answer) = api.get(&format!("{queue}?max=64")).await;
        let rest: Vec<_> = answer["blocks"].as_array().expect("blocks").iter().map(|block| block["blockId"].clone()).collect();
        assert_eq!(rest.len(), 6, "the last ones");
        assert!(rest.iter().all(|block| !delivered.contains(block)));
    });
}

/// Messages that the only run's actor has handled.
async fn handled(api: &Api) -> u64 {
    let (_, actors) = api.get("/api/v1/actors").await;
    let run = actors.as_array().expect("actors").iter().find(|actor| actor["kind"] == "run").expect("a run");
    run["messagesHandled"].as_u64().expect("a count")
}

#[test]
fn who_hangs_up_takes_nothing_along() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Hung", &json!({ "BlockSize": "1", "NodeGroup": "hung" })).await;
        let queue = format!("/requestqueue/{run}");
        assert_eq!(api.post(&queue, &requests(0..3)).await.1["accepted"], 3);
        let mut node = Node::connect(&api, &id(), "&group=hung&maxprocesscount=3").await;
        // Three wait on the line and hang up, before there is anything for them.
        let ask = format!("GET {queue}?wait=60 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        let before = handled(&api).await;
        let waiting: Vec<_> = (0..3).map(|_| raw(&api, &ask)).collect();
        until("them to be heard", || async { (handled(&api).await >= before + 3).then_some(()) }).await;
        let open = api.metric("webloom_connections").await;
        drop(waiting);
        // A block that is sent before the broker sees the end of the connection comes again only after `AckWait`.
        until("the broker to see it", || async { (api.metric("webloom_connections").await <= open - 3.0).then_some(()) }).await;
        for _ in 0..3 {
            let block = node.block().await;
            assert_eq!(node.report(&block).await.0, 200);
        }
        let mut got = Vec::new();
        for _ in 0..3 {
            let (status, done) = api.get(&format!("{queue}?wait=10")).await;
            assert_eq!(status, 200, "got {got:?}");
            got.push(done["results"][0]["request"]["url"].as_str().expect("a url").to_owned());
        }
        got.sort();
        assert_eq!(got, ["http://example.test/0", "http://example.test/1", "http://example.test/2"]);
    });
}

/// Whatever comes in one piece with the request for a WebSocket, before and after it, counts; and a request that is refused ends the connection.
#[test]
fn a_socket_takes_over_a_connection_in_use() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let request = |path: &str| {
            format!(
                "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\nGET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nUpgrade: websocket\r\n\
                Connection: Upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
            )
        };
        // A ping, with a mask of zeros.
        let mut piece = request(&format!("/?nodeid={}", id())).into_bytes();
        piece.extend_from_slice(b"\x89\x82\0\0\0\0hi");
        let mut stream = raw(&api, "");
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        stream.write_all(&piece).expect("written");
        let (mut got, mut piece) = (Vec::new(), [0; 4_096]);
        let has = |got: &[u8], part: &[u8]| got.windows(part.len()).any(|window| window == part);
        while !has(&got, b"\x8a\x02hi") || !has(&got, b"welcome") {
            let count = stream.read(&mut piece).expect("an answer");
            assert!(count > 0, "{}", String::from_utf8_lossy(&got));
            got.extend_from_slice(&piece[..count]);
        }
        assert!(got.starts_with(b"HTTP/1.1 200") && has(&got, b"HTTP/1.1 101"), "{}", String::from_utf8_lossy(&got));

        let mut stream = raw(&api, &request("/?nodeid=none"));
        stream.set_read_timeout(Some(Duration::from_secs(20))).expect("a limit");
        let mut got = String::new();
        stream.read_to_string(&mut got).expect("an end");
        assert!(got.contains("HTTP/1.1 400") && got.contains("connection: close\r\n"), "{got}");
    });
}
