//! A worker: watches the class over its socket, polls finished blocks in bulk, acknowledges them.

use super::http::Http;
use super::run::{CLASS, Run, micros};
use super::socket::{Message, Socket};
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use webloom::for_tests::ids::WorkerId;
use webloom::for_tests::{BULK, delivery, pack};

type Failure = Box<dyn Error + Send + Sync>;

/// One delivery of so many is opened and compared in full.
const SAMPLE: u64 = 256;

/// A worker whose class is watched.
pub struct Worker {
    id: String,
    socket: Socket,
}

impl Worker {
    /// Connects and watches; returns when the broker has said that it is watched.
    pub fn watch(address: SocketAddr) -> Result<Self, Failure> {
        let id = WorkerId::random().to_string();
        let mut socket = Socket::connect(address, &format!("/worker?workerid={id}&name=bench"), Duration::from_millis(100))?;
        socket.text(&serde_json::json!({ "t": "watch", "v": { "classNames": [CLASS], "runs": [] } }).to_string())?;
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(10) {
            if let Message::Text(text) = socket.read()? {
                let message: serde_json::Value = serde_json::from_slice(&text)?;
                match message["t"].as_str() {
                    Some("watching") => return Ok(Self { id, socket }),
                    Some("error") => return Err(message.to_string().into()),
                    _ => {}
                }
            }
        }
        Err("the broker did not say that the class is watched".into())
    }

    /// Answers the broker until the run is over: heartbeats, and that start returned once all is pushed.
    pub fn attend(&mut self, run: &Run) -> Result<(), Failure> {
        let (mut mine, mut told, mut beaten) = (false, false, Instant::now());
        while !run.over.load(Ordering::Relaxed) {
            if let Message::Text(text) = self.socket.read()? {
                let message: serde_json::Value = serde_json::from_slice(&text)?;
                match message["t"].as_str() {
                    Some("start") => mine |= message["v"]["identity"] == run.identity.as_str(),
                    Some("error") => return Err(message.to_string().into()),
                    _ => {}
                }
            }
            if mine && !told && run.all_pushed.load(Ordering::Acquire) {
                told = true;
                self.socket.text(&serde_json::json!({ "t": "startReturned", "v": { "identity": run.identity } }).to_string())?;
            }
            if beaten.elapsed() > Duration::from_secs(3) {
                beaten = Instant::now();
                self.socket.text("{\"t\":\"heartbeat\",\"v\":{}}")?;
            }
        }
        Ok(())
    }

    /// The id under which it polls.
    pub fn id(&self) -> String {
        self.id.clone()
    }
}

/// Polls and acknowledges until everything is; the microseconds of each acknowledgement.
pub fn poll(run: &Run, worker: &str, most: usize) -> Result<Vec<u32>, Failure> {
    let mut http = Http::connect(run.address)?;
    let identity = &run.identity;
    let ask = format!("GET /requestqueue/{identity}?wait=1&max={most}&worker={worker} HTTP/1.1\r\nAccept: {BULK}\r\n");
    let done = format!("POST /requestqueue/{identity}/ack HTTP/1.1\r\nContent-Type: application/json\r\n");
    let (mut calls, mut seen) = (Vec::new(), 0_u64);
    let mut body = String::new();
    while !run.over.load(Ordering::Relaxed) {
        let answer = http.call(&ask, &[])?;
        match answer.status {
            200 => {}
            204 => continue,
            503 => {
                run.busy.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            status => return Err(format!("a poll was answered {status}: {}", String::from_utf8_lossy(answer.body)).into()),
        }
        let (mut rest, mut blocks) = (answer.body, 0);
        body.clear();
        body.push_str("{\"blocks\":[");
        while !rest.is_empty() {
            let (head, requests, results) = delivery::read(&mut rest)?;
            let id = head.block_id.to_string();
            run.note_delivered(&id);
            if seen % SAMPLE == 0 {
                check(&head, requests, results)?;
            }
            body.push_str(if blocks == 0 { "\"" } else { ",\"" });
            body.push_str(&id);
            body.push('"');
            (blocks, seen) = (blocks + 1, seen + 1);
        }
        body.push_str("]}");
        let begun = Instant::now();
        loop {
            let answer = http.call(&done, &[body.as_bytes()])?;
            match answer.status {
                200 => break,
                503 => run.busy.fetch_add(1, Ordering::Relaxed),
                status => return Err(format!("an acknowledgement was answered {status}: {}", String::from_utf8_lossy(answer.body)).into()),
            };
            std::thread::sleep(Duration::from_millis(5));
        }
        calls.push(micros(begun));
        if run.note_acknowledged(blocks) {
            run.over.store(true, Ordering::Release);
        }
    }
    Ok(calls)
}

/// Every request has its result, whole. A node may report them in any order.
fn check(head: &delivery::Head, requests: &[u8], results: &[u8]) -> Result<(), Failure> {
    let text = zstd::bulk::decompress(requests, head.requests_raw as usize)?;
    let requests: Vec<webloom::for_tests::push::Request> = serde_json::from_slice(&text)?;
    let (_, opened) = pack::open(results, 64 << 20)?;
    let mut wanted: Vec<_> = requests.iter().map(|request| request.request_id).collect();
    let mut come: Vec<_> = opened.iter().map(|one| Some(one.entry.request_id)).collect();
    wanted.sort_unstable();
    come.sort_unstable();
    if wanted == come { Ok(()) } else { Err("results do not fit their requests".into()) }
}
