//! A node that downloads nothing: each request of a block is answered by a page that was made beforehand.
//!
//! Its socket and its reports are what an agent's are. The compressed bulk of the reports is one of a few that are
//! ready; the index is written for each block, with the ids of its requests.

use super::http::Http;
use super::run::Run;
use serde::Deserialize;
use std::collections::{HashMap, VecDeque};
use std::error::Error;
use std::io::Write;
use std::sync::atomic::Ordering;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};
use webloom::for_tests::fingerprint::Fingerprint;
use webloom::for_tests::ids::{BlockId, Identity, NodeId};
use webloom::for_tests::pack::{Builder, Entry, Head, Index};
use webloom::for_tests::{BULK, frame};

use super::socket::{Message, Socket};

const PAGE: usize = 2_048;
const HEARTBEAT: Duration = Duration::from_secs(5);
type Failure = Box<dyn Error + Send + Sync>;

/// What a node reads of a message; the settings of a download are not for it.
#[derive(Deserialize)]
struct Received {
    t: String,
    #[serde(default)]
    v: Option<Block>,
}

#[derive(Deserialize, Clone)]
#[serde(rename_all = "camelCase")]
struct Block {
    #[serde(default)]
    block_id: String,
    #[serde(default)]
    identity: String,
    #[serde(default)]
    epoch: i64,
    #[serde(default)]
    attempt: u32,
}

/// Results without their block.
pub struct Results {
    /// By number of requests in a block: the frame of zstd and the bytes of each head.
    bulk: Vec<u8>,
    head: usize,
    requests: usize,
}

impl Results {
    /// Pages like a site's: a template, and words that differ.
    pub fn new(requests: usize, seed: u64) -> Self {
        const WORDS: [&str; 16] = [
            "river", "index", "section", "method", "returns", "value", "string", "of", "the", "a", "when", "other", "class", "default",
            "number", "option",
        ];
        let identity = Identity::random();
        let index = Index::new(BlockId::new(identity, 0), identity, NodeId::random());
        let head = Head {
            target_url: None,
            headers: vec![
                ("Content-Type".into(), "text/html; charset=utf-8".into()),
                ("Server".into(), "bench".into()),
                ("Date".into(), "Sun, 01 Nov 2026 00:00:00 GMT".into()),
            ],
            ..Head::default()
        };
        let mut builder = Builder::new(index);
        let mut state = seed | 1;
        for n in 0..requests {
            let mut page =
                format!("<!doctype html><html><head><title>Item {n}</title><link rel=stylesheet href=/s.css></head><body><p>").into_bytes();
            while page.len() < PAGE {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                page.extend_from_slice(WORDS[(state >> 60) as usize].as_bytes());
                page.push(if state >> 40 & 63 == 0 { b'\n' } else { b' ' });
                if state >> 33 & 31 == 0 {
                    page.extend_from_slice(format!("<a href=/item/{}>", state >> 48).as_bytes());
                }
            }
            page.truncate(PAGE);
            let entry =
                Entry { request_id: Fingerprint([0; 12]), status: 200, tries: 1, time: 12, error: None, location: None, head: 0, body: 0 };
            builder.push(entry, &head, &page);
        }
        let head = builder.index().results.first().map_or(0, |entry| entry.head as usize);
        let pack = builder.finish();
        let index = u32::from_le_bytes([pack[4], pack[5], pack[6], pack[7]]) as usize;
        Self { bulk: pack[8 + index..].to_vec(), head, requests }
    }

    /// Bytes of a block of results, compressed.
    pub fn len(&self) -> usize {
        self.bulk.len()
    }

    fn index(&self, block: &Block, node: &str, ids: &[u8], out: &mut Vec<u8>) -> Result<(), Failure> {
        const ID: &[u8] = b"\"requestId\":\"";
        out.clear();
        out.extend_from_slice(b"WLP1\0\0\0\0");
        let Block { block_id, identity, epoch, attempt } = block;
        write!(
            out,
            r#"{{"blockId":"{block_id}","identity":"{identity}","nodeId":"{node}","epoch":{epoch},"attempt":{attempt},"results":["#
        )?;
        let rest = format!("\",\"status\":200,\"tries\":1,\"time\":12,\"head\":{},\"body\":{PAGE}}},", self.head);
        let (mut found, mut at, mut step) = (0, 0, 0);
        while at + ID.len() + 24 <= ids.len() {
            if !ids[at..].starts_with(ID) {
                at += 1;
                continue;
            }
            out.extend_from_slice(b"{\"requestId\":\"");
            out.extend_from_slice(&ids[at + ID.len()..at + ID.len() + 24]);
            out.extend_from_slice(rest.as_bytes());
            found += 1;
            // The requests have one length, so the next id is where the last distance says; if not, it is looked for.
            let next = at + step;
            if step == 0 || !ids.get(next..).is_some_and(|tail| tail.starts_with(ID)) {
                let behind = at + ID.len();
                match ids[behind..].windows(ID.len()).position(|window| window == ID) {
                    Some(distance) => step = behind + distance - at,
                    None => break,
                }
            }
            at += step;
        }
        if found != self.requests {
            return Err(format!("{found} requests in a block; {} were expected", self.requests).into());
        }
        out.pop();
        out.extend_from_slice(b"]}");
        let length = (out.len() - 8) as u32;
        out[4..8].copy_from_slice(&length.to_le_bytes());
        Ok(())
    }
}

/// What the threads of one node share.
struct Node<'a> {
    run: &'a Run,
    id: String,
    inbox: Mutex<VecDeque<Vec<u8>>>,
    arrived: Condvar,
    holding: Mutex<HashMap<String, Block>>,
}

/// Runs a node until the run is over: one thread at the socket, some that report.
pub fn node(run: &Run, number: usize, blocks: usize, reporters: usize, results: &[Results]) -> Result<(), Failure> {
    let node = Node { run, id: NodeId::random().to_string(), inbox: Mutex::default(), arrived: Condvar::new(), holding: Mutex::default() };
    std::thread::scope(|threads| {
        let socket = threads.spawn(|| node.listen(blocks));
        let reports: Vec<_> = (0..reporters)
            .map(|n| {
                threads.spawn({
                    let node = &node;
                    move || node.report(&results[(number * reporters + n) % results.len()])
                })
            })
            .collect();
        let mut outcome = socket.join().map_err(|_| "a socket's thread panicked")?;
        node.arrived.notify_all();
        for thread in reports {
            outcome = outcome.and(thread.join().map_err(|_| "a reporter's thread panicked")?);
        }
        outcome
    })
}

impl Node<'_> {
    fn listen(&self, blocks: usize) -> Result<(), Failure> {
        let path = format!(
            "/?nodeid={}&operationsystem=linux&proccessorcount=1&memory=1024&nodetype=Console&group={}&maxprocesscount={blocks}&encoding=zstd",
            self.id, self.run.group
        );
        let mut socket = Socket::connect(self.run.leader, &path, Duration::from_millis(200))?;
        let mut beaten = Instant::now();
        while !self.run.over.load(Ordering::Relaxed) {
            match socket.read()? {
                Message::Binary(frame) => {
                    self.inbox.lock().unwrap_or_else(PoisonError::into_inner).push_back(frame);
                    self.arrived.notify_one();
                }
                Message::Text(text) if text.starts_with(b"{\"t\":\"error\"") => return Err(String::from_utf8_lossy(&text).into()),
                // At once: until a node has said what it holds it gets nothing new.
                Message::Text(text) if text.starts_with(b"{\"t\":\"welcome\"") => socket.text(&self.heartbeat())?,
                Message::Text(_) | Message::Nothing => {}
            }
            if beaten.elapsed() > HEARTBEAT {
                beaten = Instant::now();
                socket.text(&self.heartbeat())?;
            }
        }
        Ok(())
    }

    fn heartbeat(&self) -> String {
        let holding = self.holding.lock().unwrap_or_else(PoisonError::into_inner);
        let held: Vec<_> = holding
            .values()
            .map(|b| serde_json::json!({ "identity": b.identity, "blockId": b.block_id, "attempt": b.attempt, "epoch": b.epoch }))
            .collect();
        let state = serde_json::json!({ "processCount": held.len(), "cpu": 50, "freeMemory": 512, "holding": held });
        serde_json::json!({ "t": "heartbeat", "v": state }).to_string()
    }

    fn next(&self) -> Option<Vec<u8>> {
        let mut inbox = self.inbox.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(frame) = inbox.pop_front() {
                return Some(frame);
            }
            if self.run.over.load(Ordering::Relaxed) {
                return None;
            }
            let waited = self.arrived.wait_timeout(inbox, Duration::from_millis(200));
            inbox = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn report(&self, results: &Results) -> Result<(), Failure> {
        let mut http = Http::connect(self.run.address)?;
        // As an agent does: a broker that executes the run stores the report itself.
        let head = format!("POST /node/block HTTP/1.1\r\nContent-Type: {BULK}\r\nwebloom-run: {}\r\n", self.run.identity);
        let (mut index, mut requests) = (Vec::new(), vec![0; 1 << 20]);
        while let Some(message) = self.next() {
            let (text, bulk) = frame::split(&message)?;
            let Received { t, v: Some(block) } = serde_json::from_slice(text)? else { continue };
            if t != "block" {
                continue;
            }
            if self.holding.lock().unwrap_or_else(PoisonError::into_inner).insert(block.block_id.clone(), block.clone()).is_some() {
                continue; // a second copy
            }
            let length = zstd::bulk::decompress_to_buffer(bulk, &mut requests)?;
            results.index(&block, &self.id, &requests[..length], &mut index)?;
            loop {
                let answer = http.call(&head, &[&index, &results.bulk])?;
                match answer.status {
                    200 => break,
                    503 => {
                        self.run.busy.fetch_add(1, Ordering::Relaxed);
                        std::thread::sleep(Duration::from_millis(5));
                    }
                    404 | 409 => {
                        self.run.refused.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                    // A connection on which nothing was said for five seconds is let go; what is lost is only the connection.
                    408 => http = Http::connect(self.run.address)?,
                    status => return Err(format!("a report was answered {status}: {}", String::from_utf8_lossy(answer.body)).into()),
                }
            }
            self.holding.lock().unwrap_or_else(PoisonError::into_inner).remove(&block.block_id);
        }
        Ok(())
    }
}
