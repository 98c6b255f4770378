//! Peers that send too much, too slowly, or do not read: what they take of memory and time is bounded, and others go on.

use crate::support::api::{Api, id};
use crate::support::journey;
use crate::support::process::Broker;
use crate::support::raw::{close_code, connect, frame_header, head, socket, status};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

const MB: u64 = 1 << 20;

/// Bytes of a process that are in memory.
fn resident(broker: &Broker) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", broker.process.0.id())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    line.trim().trim_end_matches(" kB").parse::<u64>().expect("a number") * 1024
}

fn paths() -> [String; 2] {
    [format!("/worker?workerid={}", id()), format!("/?nodeid={}", id())]
}

#[test]
fn a_frame_over_the_limit_is_refused_by_its_header() {
    let broker = Broker::start(&[], "");
    let before = resident(&broker);
    // Whole messages, the first and a later part of one, and control frames.
    for (first, length) in [(0x81, MB + 1), (0x82, 1 << 62), (0x82, u64::MAX), (0x01, 2 * MB), (0x89, 126), (0x8a, MB), (0x88, 1 << 40)] {
        for path in paths() {
            let mut stream = socket(&broker.url, &path, "");
            stream.write_all(&frame_header(first, length)).expect("it is sent");
            let began = Instant::now();
            assert_eq!(close_code(&mut stream), Some(1009), "{path} {first:x} {length}");
            assert!(began.elapsed() < Duration::from_secs(5), "at once, not after {:?}", began.elapsed());
        }
    }
    for path in paths() {
        let mut stream = socket(&broker.url, &path, "");
        stream.write_all(&frame_header(0x01, 4)).and_then(|()| stream.write_all(b"    ")).expect("the first part");
        stream.write_all(&frame_header(0x80, 1 << 40)).expect("a later part");
        assert_eq!(close_code(&mut stream), Some(1009), "{path}");
        // Nor does it grow by what is sent after the header.
        let mut stream = socket(&broker.url, &path, "");
        stream.write_all(&frame_header(0x82, 1 << 40)).expect("it is sent");
        let _sent = (0..64).take_while(|_| stream.write_all(&[0; MB as usize]).is_ok()).count();
    }
    let grown = resident(&broker).saturating_sub(before);
    assert!(grown < 24 * MB, "{grown} bytes more");
}

#[test]
fn all_sockets_of_a_token_hold_no_more_than_its_share() {
    let broker = Broker::start(&["--in-flight-mb", "64", "--token", "worker:wwwwwwwwwwwwwwww", "--token", "agent:aaaaaaaaaaaaaaaa"], "");
    let before = resident(&broker);
    // Of frames that are nearly whole; what does not fit is refused as a thing for later.
    let mut open: Vec<TcpStream> = (0..100)
        .map(|n| {
            let mut stream = socket(&broker.url, &format!("/worker?workerid={}", id()), "wwwwwwwwwwwwwwww");
            let body = vec![b' '; MB as usize - 1];
            // As one frame, or in parts.
            let sent = if n % 2 == 0 {
                stream.write_all(&frame_header(0x81, MB)).and_then(|()| stream.write_all(&body))
            } else {
                (0..16).try_for_each(|part| {
                    stream
                        .write_all(&frame_header(u8::from(part == 0), MB / 16 - 1))
                        .and_then(|()| stream.write_all(&body[..MB as usize / 16 - 1]))
                })
            };
            drop(sent);
            stream
        })
        .collect();
    let grown = resident(&broker).saturating_sub(before);
    assert!(grown < 110 * MB, "{} MB more", grown / MB);
    // Another token is not held up.
    let mut node = socket(&broker.url, &format!("/?nodeid={}", id()), "aaaaaaaaaaaaaaaa");
    assert!(node.read(&mut [0; 100]).expect("a welcome") > 0);
    let codes: Vec<_> = open
        .iter_mut()
        .map(|stream| {
            stream.set_read_timeout(Some(Duration::from_millis(20))).expect("a limit");
            close_code(stream)
        })
        .collect();
    assert!(codes.contains(&Some(1013)) && codes.contains(&None), "{codes:?}");
}

#[test]
fn what_unpacks_to_much_more_than_it_is_costs_little_and_holds_up_nobody() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let before = resident(&broker);
        let zeros = vec![0; 300 * MB as usize];
        let bomb = zstd::bulk::compress(&zeros, 1).expect("zstd");
        drop(zeros);
        let bombs: Vec<_> = (0..8)
            .map(|_| {
                let call = api.request(reqwest::Method::POST, "/node/block").header("Content-Encoding", "zstd").body(bomb.clone());
                let api = Api::new(&broker.url);
                actix_rt::spawn(async move { api.send(call).await })
            })
            .collect();
        let (mut slowest, mut most) = (Duration::ZERO, 0);
        while bombs.iter().any(|bomb| !bomb.is_finished()) {
            let began = Instant::now();
            assert_eq!(api.get("/healthz").await.0, 200);
            slowest = slowest.max(began.elapsed());
            most = most.max(resident(&broker).saturating_sub(before));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        for bomb in bombs {
            let (status, problem) = bomb.await.expect("it is answered");
            assert_eq!((status, &problem["type"]), (413, &json!("/problems/too-large")), "{problem}");
        }
        assert!(slowest < Duration::from_millis(500), "a look took {slowest:?}");
        assert!(most < 100 * MB, "{} MB more", most / MB);
        // What is packed as such things are packed is taken.
        let requests: Vec<_> = (0..20_000).map(|n| json!({ "url": format!("http://example.test/{n}"), "meta": "0".repeat(60) })).collect();
        let text = json!(requests).to_string();
        let (run, _) = api.run("it.Packed", &json!({})).await;
        let body = zstd::bulk::compress(text.as_bytes(), 3).expect("zstd");
        let call = api.request(reqwest::Method::POST, &format!("/requestqueue/{run}")).header("Content-Encoding", "zstd").body(body);
        let (status, pushed) = api.send(call).await;
        assert_eq!((status, &pushed["accepted"]), (200, &json!(20_000)), "{pushed}");
    });
}

/// Sends a body in pieces with pauses; what is answered, and when.
fn drip(broker: &str, piece: usize, pause: Duration, pieces: usize, length: usize) -> (String, Duration) {
    let mut stream = connect(broker);
    let host = broker.trim_start_matches("http://");
    let request =
        format!("POST /api/v1/jobs HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it is sent");
    let began = Instant::now();
    stream.set_read_timeout(Some(pause)).expect("a pause");
    for _ in 0..pieces {
        // Blanks before the text are JSON.
        drop(stream.write_all(&vec![b' '; piece]));
        let mut answer = [0; 2048];
        match stream.read(&mut answer) {
            Ok(read) if read > 0 => return (String::from_utf8_lossy(&answer[..read]).into_owned(), began.elapsed()),
            _ => {}
        }
    }
    let job = json!({ "name": "slow", "jobType": "block", "properties": { "FullClassName": "a.B" } }).to_string();
    let job = format!("{job:>0$}", length - piece * pieces);
    stream.write_all(job.as_bytes()).expect("the rest is taken");
    stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a limit");
    (head(&mut stream), began.elapsed())
}

#[test]
fn a_body_may_be_slow_but_not_for_ever() {
    let broker = Broker::start(&[], "");
    let url = &broker.url;
    std::thread::scope(|scope| {
        let second = Duration::from_secs(1);
        let silent = scope.spawn(move || drip(url, 1, second * 60, 1, 1_000));
        let dripping = scope.spawn(move || drip(url, 1, second, 60, 1_000));
        // 4 kB a second, for longer than either may take.
        let slow = scope.spawn(move || drip(url, 1 << 10, second / 4, 60, 100 << 10));
        for call in [silent, dripping] {
            let (answer, after) = call.join().expect("it is answered");
            assert_eq!(status(&answer), 408, "{answer}");
            assert!(after < second * 20, "after {after:?}");
        }
        let (answer, after) = slow.join().expect("it is answered");
        assert_eq!(status(&answer), 201, "{answer}");
        assert!(after > second * 12, "it was no slow one: {after:?}");
    });
}

/// A finished block whose results are so many bytes that no compression makes fewer.
async fn finish_block(api: &Api, node: &str, bytes: usize) {
    let block =
        crate::support::until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| block.is_object()) }).await;
    let mut seed = block["requests"][0]["requestId"]
        .as_str()
        .expect("an id")
        .bytes()
        .fold(1_u64, |n, b| n.wrapping_mul(31).wrapping_add(u64::from(b)));
    let text: String = (0..bytes)
        .map(|_| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            char::from(b'!' + (seed >> 58) as u8)
        })
        .collect();
    let results = json!([{ "requestId": block["requests"][0]["requestId"], "status": 200, "tries": 1, "time": 3, "text": text }]);
    let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "epoch": block["epoch"],
        "attempt": block["attempt"], "results": results });
    assert_eq!(api.post("/node/block", &report).await.0, 200);
}

#[test]
fn who_polls_and_does_not_read_is_given_up_and_others_get_what_it_was_given() {
    const BLOCKS: usize = 20;
    const DEAF: usize = 30;
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        // What is delivered and not acknowledged stays away from others for longer than this test lasts.
        let (run, _) = api.run("it.Deaf", &json!({ "BlockSize": "1", "AckWait": "600000" })).await;
        let before = resident(&broker);
        let _deaf: Vec<TcpStream> = (0..DEAF)
            .map(|_| {
                let mut stream = connect(&broker.url);
                let host = broker.url.trim_start_matches("http://");
                let poll = format!("GET /requestqueue/{run}?wait=60&max=64 HTTP/1.1\r\nHost: {host}\r\n\r\n");
                stream.write_all(poll.as_bytes()).expect("it is sent");
                stream
            })
            .collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &crate::support::api::requests(0..BLOCKS)).await.0, 200);
        let node = id();
        for _ in 0..BLOCKS {
            finish_block(&api, &node, 900_000).await;
        }
        let (began, mut got) = (Instant::now(), 0);
        while got < BLOCKS {
            assert!(began.elapsed() < Duration::from_secs(60), "{got} of {BLOCKS} blocks after a minute");
            let (status, answer) = api.get(&format!("/requestqueue/{run}?wait=5&max=64")).await;
            assert!(status == 200 || status == 204, "{answer}");
            let blocks = answer["blocks"].as_array().cloned().unwrap_or_default();
            got += blocks.len();
            let ids: Vec<_> = blocks.iter().map(|block| block["blockId"].clone()).collect();
            let bytes = answer.to_string().len() as u64;
            assert!(blocks.len() < 2 || bytes < 2 * MB, "{} blocks in {bytes} bytes", blocks.len());
            if !ids.is_empty() {
                assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": ids })).await.0, 200);
            }
        }
        let grown = resident(&broker).saturating_sub(before);
        assert!(grown < 120 * MB, "{} MB more", grown / MB);
    });
}
