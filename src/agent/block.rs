//! Processes a block, from its requests to its reports.
//!
//! One task runs the requests: [`unpaced`] up to ThreadNum at a time; in a block with a pace, the turn decides when they begin
//! ([`paced`]). If the broker accepts parts, results are reported as they are ready; otherwise they form one pack, in the order of the
//! requests. A failed request does not affect the others.

use super::download::{Downloader, Outcome, Rules};
use super::failure::fetch_error;
use super::paced::paced;
use super::parcel::Parcel;
use super::parts::Reports;
use super::unpaced::unpaced;
use crate::domain::ids::NodeId;
use crate::domain::origin::Scope;
use crate::domain::trace::Counts;
use crate::protocol::node::{Block, FetchErrorKind, GivenBack};
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use regex::bytes::Regex;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Read;
use std::panic::AssertUnwindSafe;

/// Limit of the decompressed requests of a block, in bytes: a thousand of the longest would not fit into one message.
const MOST_REQUESTS: usize = 256 << 20;

const PANICKED: &str = "internal error in the agent at this block; see the agent's log";
const REJECTED: &str = "the broker rejected its results";

/// Posts a report until the broker gives a final response; resolves to whether it was accepted.
pub type Post<'a> = dyn Fn(Parcel) -> LocalBoxFuture<'a, bool> + 'a;

/// What a block needs of its agent.
#[derive(Clone, Copy)]
pub struct Ports<'a> {
    /// Posts a report.
    pub post: &'a Post<'a>,
    /// All that is left of the block waits for slow answers: gives its place at the node to another block. Returns false if it must keep
    /// the place for now.
    pub leave: &'a dyn Fn() -> bool,
}

/// Why a block ended before all its requests were done.
pub enum Cut {
    /// The block could not be downloaded, for this reason.
    Failed(String),
    /// The broker rejected a part for good: another node has the block.
    Lost,
}

/// What was done for a block.
#[derive(Debug)]
pub struct Work {
    /// Its requests.
    pub counts: Counts,
    /// Why it did not end well.
    pub failure: Option<String>,
}

/// Downloads a block and reports it. `bulk` holds its requests in compressed form, if the broker sent them so.
pub async fn work(downloader: &Downloader, node_id: NodeId, block: &Block, bulk: Option<&[u8]>, ports: Ports<'_>) -> Work {
    let post = ports.post;
    let mut reports = Reports::new(node_id, block, &downloader.memory);
    let ended = AssertUnwindSafe(download(downloader, block, bulk, &mut reports, ports)).catch_unwind().await;
    let mut counts = reports.counts;
    let failure = match ended {
        Ok(Ok(back)) => {
            counts.given_back = back.len() as u64;
            let mut failure = None;
            for parcel in reports.finish(back) {
                if !post(parcel).await {
                    failure = Some(REJECTED.to_owned());
                    break;
                }
            }
            failure
        }
        Ok(Err(Cut::Lost)) => Some(REJECTED.to_owned()),
        Ok(Err(Cut::Failed(why))) => {
            post(reports.failed(why.clone())).await;
            Some(why)
        }
        Err(_) => {
            let reports = Reports::new(node_id, block, &downloader.memory);
            post(reports.failed(PANICKED.to_owned())).await;
            Some(PANICKED.to_owned())
        }
    };
    Work { counts, failure }
}

async fn download(
    downloader: &Downloader,
    block: &Block,
    bulk: Option<&[u8]>,
    reports: &mut Reports,
    ports: Ports<'_>,
) -> Result<Vec<GivenBack>, Cut> {
    let text = requests_text(block, bulk).map_err(Cut::Failed)?;
    let requests: Vec<&RawValue> =
        serde_json::from_slice(&text).map_err(|e| Cut::Failed(format!("cannot parse the requests of the block: {e}")))?;
    let settings = block.settings.clone();
    let change_ip_pattern = match settings.change_ip_pattern.as_deref().map(Regex::new).transpose() {
        Ok(pattern) => pattern,
        Err(e) => {
            let why = format!("ChangeIpPattern is not a valid regular expression: {e}");
            for request in &requests {
                let answer = fetch_error(FetchErrorKind::Invalid, why.clone()).into();
                reports.add(request.get(), Outcome { answer, ..Outcome::default() });
            }
            return Err(Cut::Failed(why));
        }
    };
    let scope = Scope::of(&settings).map_err(|why| Cut::Failed(format!("site.hosts: {why}")))?;
    let account = (!block.parts).then(|| downloader.memory.account());
    let rules = Rules {
        identity: block.identity,
        settings,
        scope,
        change_ip_pattern,
        is_given_again: block.lost.map_or(block.attempt > 1, |lost| lost > 0),
        elsewhere: block.elsewhere,
        holds: block.holds && block.parts,
        account,
    };
    match &block.pace {
        Some(pace) => paced(downloader, pace, &rules, &requests, reports, ports.post).await,
        None => unpaced(downloader, &rules, &requests, reports, ports).await,
    }
}

/// Waits for a part that is still being posted at the end.
pub async fn last_part(posting: Option<LocalBoxFuture<'_, bool>>) -> Result<(), Cut> {
    let Some(posting) = posting else { return Ok(()) };
    if posting.await { Ok(()) } else { Err(Cut::Lost) }
}

/// Waits until the current part is posted, if there is one.
pub async fn ended(posting: &mut Option<LocalBoxFuture<'_, bool>>) -> bool {
    match posting {
        Some(posting) => posting.await,
        None => std::future::pending().await,
    }
}

/// Turns a panic into the outcome of this one request.
pub(super) async fn guarded(fetch: impl Future<Output = Outcome>) -> Outcome {
    AssertUnwindSafe(fetch).catch_unwind().await.unwrap_or_else(|_| panicked())
}

/// The outcome of a request that made the agent panic.
#[must_use]
pub fn panicked() -> Outcome {
    let answer = fetch_error(FetchErrorKind::Other, "internal error in the agent at this request; see the agent's log").into();
    Outcome { answer, tries: 1, ..Outcome::default() }
}

fn requests_text<'a>(block: &'a Block, bulk: Option<&[u8]>) -> Result<Cow<'a, [u8]>, String> {
    match (&block.requests, bulk) {
        (_, Some(bulk)) => unpacked(bulk).map(Cow::Owned).map_err(|e| format!("cannot unpack the requests of the block: {e}")),
        (Some(text), None) => Ok(Cow::Borrowed(text.get().as_bytes())),
        (None, None) => Err("the block has no requests".to_owned()),
    }
}

fn unpacked(bulk: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut text = Vec::with_capacity(bulk.len() * 8);
    zstd::Decoder::with_buffer(bulk)?.take(MOST_REQUESTS as u64 + 1).read_to_end(&mut text)?;
    if text.len() > MOST_REQUESTS {
        return Err(std::io::Error::other(format!("they must be at most {MOST_REQUESTS} bytes")));
    }
    Ok(text)
}
