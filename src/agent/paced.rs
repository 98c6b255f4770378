//! A block whose site has a pace: its [`Gate`] decides when its requests begin; each ends with a result, is queued again, or is given
//! back.

use super::asked::{earlier_tries, request_id};
use super::block::{Cut, Post, ended, last_part, panicked};
use super::download::{Downloader, Outcome, Rules};
use super::failure::fetch_error;
use super::pace::Gate;
use super::parts::Reports;
use super::turn::{Claim, End, NextStep};
use crate::protocol::node::{FetchError, FetchErrorKind, GivenBack, Pace};
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use serde_json::value::RawValue;
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, sleep_until};

/// Counts a block in progress.
pub(super) struct AtWork<'a>(&'a Cell<u32>);

impl<'a> AtWork<'a> {
    pub fn begin(count: &'a Cell<u32>) -> Self {
        count.set(count.get() + 1);
        Self(count)
    }
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The state of a request between its tries.
#[derive(Clone, Default)]
struct Story {
    tries: u32,
    changes: u32,
    /// Why the last try failed.
    error: Option<FetchError>,
    /// The status of the last try, if it failed, and its duration.
    status: Option<u16>,
    time: Option<u32>,
    /// The last try failed, and the site did not ask for a pause: the request is given back after the others.
    has_failed: bool,
}

/// The requests of a block with a pace.
struct Requests<'a> {
    texts: &'a [&'a RawValue],
    stories: Vec<Story>,
    back: Vec<GivenBack>,
    /// Requests to give back that failed. They come last: another page shows whether the site is well again.
    failed: Vec<GivenBack>,
}

impl Requests<'_> {
    fn give_back(&mut self, place: usize) {
        let Some(request_id) = request_id(self.texts[place].get()) else { return };
        let Story { tries, error, status, time, has_failed, .. } = std::mem::take(&mut self.stories[place]);
        let back = if has_failed { &mut self.failed } else { &mut self.back };
        back.push(GivenBack { request_id, tries, error, status, time });
    }

    /// Handles the end of a try: counts it and decides the next step.
    fn ended(&mut self, place: usize, (mut outcome, end): (Outcome, End), gate: &Gate, reports: &mut Reports) {
        let story = &mut self.stories[place];
        story.tries = story.tries.saturating_add(outcome.tries);
        story.changes += u32::from(end == End::Moved);
        match gate.end(place, end, story.tries) {
            NextStep::Report if outcome.is_for_another && reports.are_parts => {
                (story.error, story.time, story.has_failed) = (outcome.answer.error.take(), Some(outcome.time), true);
                self.give_back(place);
            }
            NextStep::Report => {
                outcome.tries = story.tries;
                reports.add(self.texts[place].get(), outcome);
            }
            next => {
                if end != End::Stopped {
                    let status = outcome.answer.status;
                    let by_status = || fetch_error(FetchErrorKind::Other, format!("the site responded with status {status}"));
                    story.error = Some(outcome.answer.error.take().unwrap_or_else(by_status));
                    (story.status, story.time) = (Some(status).filter(|status| *status > 0), Some(outcome.time));
                    story.has_failed = !matches!(end, End::Hold(..));
                }
                if next == NextStep::GiveBack {
                    self.give_back(place);
                }
            }
        }
    }
}

/// Downloads the requests of a block at the pace of its site. Returns the requests that are given back.
pub async fn paced(
    downloader: &Downloader,
    pace: &Pace,
    rules: &Rules,
    texts: &[&RawValue],
    reports: &mut Reports,
    post: &Post<'_>,
) -> Result<Vec<GivenBack>, Cut> {
    let _at_work = AtWork::begin(&downloader.blocks);
    let tries = downloader.retries(rules).saturating_add(1);
    let gate = &Gate::new(pace, texts.len(), tries, downloader.first_wait, Rc::clone(&downloader.hearing));
    reports.clock = Some(Rc::clone(&gate.clock));
    let stories = texts.iter().map(|text| Story { tries: earlier_tries(text.get()), ..Story::default() }).collect();
    let mut requests = Requests { texts, stories, back: Vec::new(), failed: Vec::new() };
    let memory = &downloader.memory;
    let mut at_work = FuturesUnordered::new();
    let mut posting: Option<LocalBoxFuture<'_, bool>> = None;
    let mut queueing: Option<LocalBoxFuture<'_, Option<OwnedSemaphorePermit>>> = None;
    let mut permit: Option<OwnedSemaphorePermit> = None;
    loop {
        // Subscribe before checking the state that they signal.
        let (eased, pressed) = (memory.eased.notified(), memory.pressed.notified());
        let (changed, heard) = (gate.changed.notified(), downloader.hearing.again.notified());
        let may_begin = !reports.are_parts || !(memory.is_tight() || reports.are_behind());
        let outlook = gate.outlook();
        match outlook {
            Claim::Take(_) if may_begin => {
                permit = permit.or_else(|| Arc::clone(&downloader.connections).try_acquire_owned().ok());
                if let Some(permit) = permit.take() {
                    queueing = None;
                    if let Claim::Take(place) = gate.claim() {
                        let changes = requests.stories[place].changes;
                        let fetch = AssertUnwindSafe(downloader.fetch_in_turn(rules, texts[place].get(), gate, place, changes));
                        let done = fetch.catch_unwind().map(|done| done.unwrap_or_else(|_| (panicked(), End::Done)));
                        at_work.push(done.map(move |done| {
                            drop(permit);
                            (place, done)
                        }));
                    }
                    continue;
                }
                let connections = Arc::clone(&downloader.connections);
                queueing.get_or_insert_with(|| connections.acquire_owned().map(Result::ok).boxed_local());
            }
            Claim::Over if at_work.is_empty() => break,
            // Release a permit that cannot be used now to other sites.
            _ => (permit, queueing) = (None, None),
        }
        let mut due = None;
        if posting.is_none() {
            let (part, next) = reports.due(downloader.blocks.get(), memory.is_tight());
            (posting, due) = (part.map(post), next);
        }
        let begin = if let Claim::At(at) = outlook { Some(gate.instant(at)) } else { None };
        tokio::select! {
            Some((place, done)) = at_work.next() => requests.ended(place, done, gate, reports),
            is_accepted = ended(&mut posting), if posting.is_some() => {
                posting = None;
                if !is_accepted {
                    return Err(Cut::Lost);
                }
            }
            next = next(&mut queueing), if queueing.is_some() => (permit, queueing) = (next, None),
            () = at(begin), if begin.is_some() => {}
            () = at(due), if due.is_some() && posting.is_none() => {}
            () = changed => {}
            () = heard, if outlook == Claim::Later => {}
            () = eased, if !may_begin => {}
            () = pressed, if posting.is_none() && reports.open_since().is_some() => {}
        }
    }
    // Release the permit to other sites while the last part is sent.
    drop((permit, queueing));
    for place in gate.take_rest() {
        requests.give_back(place);
    }
    last_part(posting).await?;
    requests.back.append(&mut requests.failed);
    Ok(requests.back)
}

async fn next(queueing: &mut Option<LocalBoxFuture<'_, Option<OwnedSemaphorePermit>>>) -> Option<OwnedSemaphorePermit> {
    match queueing {
        Some(queueing) => queueing.await,
        None => std::future::pending().await,
    }
}

/// Waits until a time, if there is one.
pub(super) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
