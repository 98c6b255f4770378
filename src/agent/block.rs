//! A block from its requests to its reports.
//!
//! ThreadNum requests are under way at a time, on one task; those of a block with a pace as its turn lets them begin. Where
//! the broker takes parts, results are reported as they are ready; else they stand in one pack, in the order of the requests.
//! Whatever happens to one request happens to it alone.

use super::download::{Downloader, Outcome, Rules};
use super::failure::fetch_error;
use super::paced::paced;
use super::parcel::Parcel;
use super::parts::Reports;
use crate::domain::ids::NodeId;
use crate::domain::origin::Scope;
use crate::protocol::node::{Block, FetchErrorKind, GivenBack};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use regex::bytes::Regex;
use serde_json::value::RawValue;
use std::borrow::Cow;
use std::io::Read;
use std::panic::AssertUnwindSafe;

/// Bytes of the requests of a block, decompressed: a thousand of the longest would not come in one message.
const MOST_REQUESTS: usize = 256 << 20;

/// Posts a report until the broker has said its last word: whether it was accepted.
pub type Post<'a> = dyn Fn(Parcel) -> LocalBoxFuture<'a, bool> + 'a;

/// What ends a block before its requests are through.
pub enum Cut {
    /// What kept it from being downloaded.
    Failed(String),
    /// The broker refused a part for good: the block is another node's.
    Lost,
}

/// Downloads a block and reports it. `bulk` is the compressed form of its requests, if they came so.
pub async fn work(downloader: &Downloader, node_id: NodeId, block: &Block, bulk: Option<&[u8]>, post: &Post<'_>) {
    let mut reports = Reports::new(node_id, block, &downloader.memory);
    let ended = AssertUnwindSafe(download(downloader, block, bulk, &mut reports, post)).catch_unwind().await;
    match ended {
        Ok(Ok(back)) => {
            for parcel in reports.finish(back) {
                if !post(parcel).await {
                    return;
                }
            }
        }
        Ok(Err(Cut::Lost)) => {}
        Ok(Err(Cut::Failed(why))) => drop(post(reports.failed(why)).await),
        Err(_) => {
            let reports = Reports::new(node_id, block, &downloader.memory);
            post(reports.failed("the agent failed at this block; its log says more".to_owned())).await;
        }
    }
}

async fn download(
    downloader: &Downloader,
    block: &Block,
    bulk: Option<&[u8]>,
    reports: &mut Reports,
    post: &Post<'_>,
) -> Result<Vec<GivenBack>, Cut> {
    let text = requests_text(block, bulk).map_err(Cut::Failed)?;
    let requests: Vec<&RawValue> =
        serde_json::from_slice(&text).map_err(|e| Cut::Failed(format!("the requests of the block cannot be read: {e}")))?;
    let settings = block.settings.clone();
    let change_ip_pattern = match settings.change_ip_pattern.as_deref().map(Regex::new).transpose() {
        Ok(pattern) => pattern,
        Err(e) => {
            let why = format!("the ChangeIpPattern is no regular expression: {e}");
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
        account,
    };
    match &block.pace {
        Some(pace) => paced(downloader, pace, &rules, &requests, reports, post).await,
        None => unpaced(downloader, &rules, &requests, reports, post).await.map(|()| Vec::new()),
    }
}

/// ThreadNum requests at a time, in their order, as fast as it goes.
async fn unpaced(
    downloader: &Downloader,
    rules: &Rules,
    requests: &[&RawValue],
    reports: &mut Reports,
    post: &Post<'_>,
) -> Result<(), Cut> {
    let memory = &downloader.memory;
    let thread_num = rules.settings.thread_num.max(1) as usize;
    let mut pending = requests.iter().enumerate();
    let mut at_work = FuturesUnordered::new();
    let mut order = Order::new(requests);
    let mut posting: Option<LocalBoxFuture<'_, bool>> = None;
    loop {
        // Before the look at what they tell of.
        let (eased, pressed) = (memory.eased.notified(), memory.pressed.notified());
        let may_begin = !reports.are_parts || !(memory.is_tight() || reports.are_behind());
        while at_work.len() < thread_num && may_begin {
            let Some((place, request)) = pending.next() else { break };
            at_work.push(guarded(downloader.fetch(rules, request.get())).map(move |outcome| (place, outcome)));
        }
        if at_work.is_empty() && pending.len() == 0 {
            break;
        }
        if posting.is_none() && reports.are_parts {
            if memory.is_tight() {
                reports.close();
            }
            posting = reports.next_part().map(post);
        }
        tokio::select! {
            Some((place, outcome)) = at_work.next() => {
                if reports.are_parts {
                    reports.add(requests[place].get(), outcome);
                } else {
                    order.add(place, outcome, reports);
                }
            }
            is_accepted = ended(&mut posting), if posting.is_some() => {
                posting = None;
                if !is_accepted {
                    return Err(Cut::Lost);
                }
            }
            () = eased, if !may_begin => {}
            () = pressed, if posting.is_none() && reports.open_since().is_some() => {}
        }
    }
    last_part(posting).await
}

/// Waits for a part that is under way at the end.
pub async fn last_part(posting: Option<LocalBoxFuture<'_, bool>>) -> Result<(), Cut> {
    let Some(posting) = posting else { return Ok(()) };
    if posting.await { Ok(()) } else { Err(Cut::Lost) }
}

/// Waits for the end of a part that is posted, if there is one.
pub async fn ended(posting: &mut Option<LocalBoxFuture<'_, bool>>) -> bool {
    match posting {
        Some(posting) => posting.await,
        None => std::future::pending().await,
    }
}

/// Puts outcomes into the order of their requests.
struct Order<'a> {
    requests: &'a [&'a RawValue],
    /// What comes before its turn waits here.
    early: Vec<Option<Outcome>>,
    next: usize,
}

impl<'a> Order<'a> {
    fn new(requests: &'a [&'a RawValue]) -> Self {
        Self { requests, early: Vec::new(), next: 0 }
    }

    fn add(&mut self, place: usize, outcome: Outcome, reports: &mut Reports) {
        if self.early.is_empty() {
            self.early.resize_with(self.requests.len(), || None);
        }
        self.early[place] = Some(outcome);
        while let Some(outcome) = self.early.get_mut(self.next).and_then(Option::take) {
            reports.add(self.requests[self.next].get(), outcome);
            self.next += 1;
        }
    }
}

/// A panic is this request's outcome, and nobody else's.
pub(super) async fn guarded(fetch: impl Future<Output = Outcome>) -> Outcome {
    AssertUnwindSafe(fetch).catch_unwind().await.unwrap_or_else(|_| panicked())
}

/// The outcome of a request at which the agent has failed.
#[must_use]
pub fn panicked() -> Outcome {
    let answer = fetch_error(FetchErrorKind::Other, "the agent failed at this request; its log says more").into();
    Outcome { answer, tries: 1, time: 0 }
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
