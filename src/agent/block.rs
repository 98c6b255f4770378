//! A block from its requests to the pack of its results.
//!
//! ThreadNum requests are under way at a time, on one task; the results stand in the pack in the order of the requests.
//! Whatever happens to one request happens to it alone.

use super::asked::request_id;
use super::attempt::Answer;
use super::download::{Downloader, Outcome, Rules};
use super::failure::fetch_error;
use crate::domain::ids::NodeId;
use crate::protocol::MAX_REPORT;
use crate::protocol::node::{Block, FetchErrorKind};
use crate::protocol::pack::{Builder, Entry, Index};
use futures_util::{FutureExt, StreamExt, stream};
use regex::bytes::Regex;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Read;
use std::panic::AssertUnwindSafe;

/// Bytes of the requests of a block, decompressed: a thousand of the longest would not come in one message.
const MOST_REQUESTS: usize = 256 << 20;
/// Bytes of the results of a block: well below what the broker takes, since heads grow when they are written down.
const MOST_RESULTS: usize = MAX_REPORT / 2;

/// Downloads a block and packs its results. `bulk` is the compressed form of its requests, if they came so.
pub async fn work(downloader: &Downloader, node_id: NodeId, block: &Block, bulk: Option<&[u8]>) -> Vec<u8> {
    let work = AssertUnwindSafe(download(downloader, node_id, block, bulk)).catch_unwind();
    work.await.unwrap_or_else(|_| Results::new(node_id, block).failed("the agent failed at this block; its log says more".to_owned()))
}

async fn download(downloader: &Downloader, node_id: NodeId, block: &Block, bulk: Option<&[u8]>) -> Vec<u8> {
    let mut results = Results::new(node_id, block);
    let text = match requests_text(block, bulk) {
        Ok(text) => text,
        Err(why) => return results.failed(why),
    };
    let requests: Vec<&RawValue> = match serde_json::from_slice(&text) {
        Ok(requests) => requests,
        Err(e) => return results.failed(format!("the requests of the block cannot be read: {e}")),
    };
    let change_ip_pattern = match block.settings.change_ip_pattern.as_deref().map(Regex::new).transpose() {
        Ok(pattern) => pattern,
        Err(e) => {
            let why = format!("the ChangeIpPattern is no regular expression: {e}");
            for request in &requests {
                let answer = fetch_error(FetchErrorKind::Invalid, why.clone()).into();
                results.add(request.get(), Outcome { answer, ..Outcome::default() });
            }
            return results.failed(why);
        }
    };
    let rules = Rules { identity: block.identity, settings: block.settings.clone(), change_ip_pattern };
    let thread_num = rules.settings.thread_num.max(1) as usize;
    let mut outcomes = stream::iter(requests.iter().enumerate())
        .map(|(place, request)| guarded(downloader.fetch(&rules, request.get())).map(move |outcome| (place, outcome)))
        .buffer_unordered(thread_num);
    // What comes before its turn waits here.
    let mut early: Vec<Option<Outcome>> = Vec::new();
    early.resize_with(requests.len(), || None);
    let mut next = 0;
    while let Some((place, outcome)) = outcomes.next().await {
        early[place] = Some(outcome);
        while let Some(outcome) = early.get_mut(next).and_then(Option::take) {
            results.add(requests[next].get(), outcome);
            next += 1;
        }
    }
    results.finish()
}

/// A panic is this request's outcome, and nobody else's.
pub(super) async fn guarded(fetch: impl Future<Output = Outcome>) -> Outcome {
    AssertUnwindSafe(fetch).catch_unwind().await.unwrap_or_else(|_| {
        let answer = fetch_error(FetchErrorKind::Other, "the agent failed at this request; its log says more").into();
        Outcome { answer, tries: 1, time: 0 }
    })
}

fn requests_text<'a>(block: &'a Block, bulk: Option<&[u8]>) -> Result<Cow<'a, [u8]>, String> {
    match (&block.requests, bulk) {
        (_, Some(bulk)) => unpacked(bulk).map(Cow::Owned).map_err(|e| format!("the requests of the block cannot be unpacked: {e}")),
        (Some(text), None) => Ok(Cow::Borrowed(text.get().as_bytes())),
        (None, None) => Err("the block came without requests".to_owned()),
    }
}

fn unpacked(bulk: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(bulk.len() * 8);
    zstd::Decoder::with_buffer(bulk)?.take(MOST_REQUESTS as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST_REQUESTS {
        return Err(std::io::Error::other(format!("they are over {MOST_REQUESTS} bytes")));
    }
    Ok(text)
}

/// The pack as it grows.
struct Results {
    pack: Builder,
    bytes_left: usize,
    index: Index,
}

impl Results {
    fn new(node_id: NodeId, block: &Block) -> Self {
        let index = Index {
            block_id: block.block_id,
            identity: block.identity,
            node_id,
            epoch: Some(block.epoch),
            attempt: Some(block.attempt),
            exception: None,
            results: Vec::new(),
        };
        Self { pack: Builder::new(index.clone()), bytes_left: MOST_RESULTS, index }
    }

    fn add(&mut self, json: &str, outcome: Outcome) {
        let Some(request_id) = request_id(json) else {
            log::warn!("a request without an id is left out of the results block={}", self.index.block_id);
            return;
        };
        let Outcome { mut answer, tries, time } = outcome;
        let size = answer.body.len() + answer.head.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>();
        match self.bytes_left.checked_sub(size) {
            Some(left) => self.bytes_left = left,
            None => {
                let why = format!("the results of the block are over {MOST_RESULTS} bytes together");
                answer = Answer { status: answer.status, ..fetch_error(FetchErrorKind::TooLarge, why).into() };
            }
        }
        let entry = Entry { request_id, status: answer.status, tries, time, error: answer.error, head: 0, body: 0 };
        self.pack.push(entry, &answer.head, &answer.body);
    }

    fn finish(self) -> Vec<u8> {
        self.pack.finish()
    }

    /// The pack with a word on what kept the block from being downloaded as a whole.
    fn failed(self, exception: String) -> Vec<u8> {
        log::warn!("block not downloaded block={} reason={exception}", self.index.block_id);
        let results = self.pack.index().results.clone();
        let mut pack = Builder::new(Index { exception: Some(exception), ..self.index });
        for entry in results {
            pack.push(entry, &crate::protocol::pack::Head::default(), &[]);
        }
        pack.finish()
    }
}
