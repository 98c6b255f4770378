//! Collects the results of a block into reports: one report of the whole block, or parts of about [`PART`] bytes each.

use super::asked::request_id;
use super::attempt::Answer;
use super::download::Outcome;
use super::failure::fetch_error;
use super::memory::{Account, Memory, Share};
use super::pace::SiteClock;
use super::parcel::Parcel;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::NodeId;
use crate::domain::trace::Counts;
use crate::protocol::MAX_REPORT;
use crate::protocol::node::{Block, FetchErrorKind, GivenBack, Paused, SiteNews};
use crate::protocol::pack::{Builder, Entry, Head, Index};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// Bytes of heads and bodies at which a part is complete.
const PART: usize = 4 << 20;
/// Limit of the results in a report, in bytes: well below the broker's limit, because heads grow when they are encoded.
const MOST_RESULTS: usize = MAX_REPORT / 2;

/// The longest time that a result waits to be reported together with others.
const OLDEST: Duration = Duration::from_secs(2);
/// The wait grows by this for each block, so that many blocks report less often.
const OLDEST_OF_EACH: Duration = Duration::from_millis(5);

/// Results that are not posted yet.
pub struct Reports {
    index: Index,
    /// Whether the broker accepts parts.
    pub are_parts: bool,
    account: Rc<Account>,
    open: Part,
    closed: VecDeque<Part>,
    bytes_left: usize,
    /// For a block with a pace: the site data.
    pub clock: Option<Rc<SiteClock>>,
    /// The results so far.
    pub counts: Counts,
}

/// Results that are reported together.
struct Part {
    pack: Builder,
    shares: Vec<Share>,
    /// The memory of its small results.
    small: Share,
    /// When its first result was added.
    since: Option<Instant>,
    /// Requests whose sites asked for a pause.
    paused: Vec<Paused>,
}

impl Part {
    fn new(index: &Index, account: &Rc<Account>) -> Self {
        Self { pack: Builder::new(index.clone()), shares: Vec::new(), small: account.share(), since: None, paused: Vec::new() }
    }
}

impl Reports {
    /// An empty report for a block.
    #[must_use]
    pub fn new(node_id: NodeId, block: &Block, memory: &Rc<Memory>) -> Self {
        let index = Index::new(block.block_id, block.identity, node_id);
        let index = Index { epoch: Some(block.epoch), attempt: Some(block.attempt), ..index };
        let account = memory.account();
        Self {
            open: Part::new(&index, &account),
            index,
            are_parts: block.parts,
            account,
            closed: VecDeque::new(),
            bytes_left: MOST_RESULTS,
            clock: None,
            counts: Counts::default(),
        }
    }

    /// Adds the outcome of a request.
    pub fn add(&mut self, json: &str, outcome: Outcome) {
        let Some(request_id) = request_id(json) else {
            log::warn!("request without an id omitted from the results block_id={}", self.index.block_id);
            return;
        };
        let Outcome { mut answer, tries, time, .. } = outcome;
        let size = answer.body.len() + answer.head.headers.iter().map(|(name, value)| name.len() + value.len() + 8).sum::<usize>();
        match self.bytes_left.checked_sub(size) {
            Some(_) if self.are_parts => {}
            Some(left) => self.bytes_left = left,
            None => {
                let why = format!("the results of the block must be at most {MOST_RESULTS} bytes in total");
                answer = Answer { status: answer.status, ..fetch_error(FetchErrorKind::TooLarge, why).into() };
            }
        }
        match answer.share.take() {
            Some(share) => self.open.shares.push(share),
            None if self.are_parts => self.open.small.charge(size),
            None => {}
        }
        let entry =
            Entry { request_id, status: answer.status, tries, time, error: answer.error, location: answer.location, head: 0, body: 0 };
        self.counts.bytes += answer.body.len() as u64;
        *(if entry.is_success() { &mut self.counts.success } else { &mut self.counts.failed }) += 1;
        self.open.pack.push_bytes(entry, &answer.head, answer.body);
        self.open.since.get_or_insert_with(Instant::now);
        if self.are_parts && self.open.pack.len() >= PART {
            self.close();
        }
    }

    /// The site of a request asked for a pause: the broker learns it at once.
    pub fn pause(&mut self, request_id: Fingerprint, retry_after: Option<Duration>) {
        let retry_after = retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        self.open.paused.push(Paused { request_id, retry_after });
    }

    /// Completes the open part if it is old enough, while the agent works on this number of blocks, or if memory is tight. Returns the
    /// next part to post, and when the open part will be old enough.
    pub fn due(&mut self, blocks: u32, is_tight: bool) -> (Option<Parcel>, Option<Instant>) {
        let patience = OLDEST.max(OLDEST_OF_EACH * blocks);
        if is_tight || !self.open.paused.is_empty() || self.open_since().is_some_and(|since| since.elapsed() >= patience) {
            self.close();
        }
        (self.next_part(), self.open_since().map(|since| since + patience))
    }

    /// Completes the current part, however small it is.
    fn close(&mut self) {
        if self.are_parts && !(self.open.pack.is_empty() && self.open.paused.is_empty()) {
            self.closed.push_back(std::mem::replace(&mut self.open, Part::new(&self.index, &self.account)));
        }
    }

    /// Whether a part waits to be posted: then no more results should be produced.
    #[must_use]
    pub fn are_behind(&self) -> bool {
        !self.closed.is_empty()
    }

    /// When the first result of the current, incomplete part was added.
    #[must_use]
    pub fn open_since(&self) -> Option<Instant> {
        self.open.since.filter(|_| self.are_parts)
    }

    /// The next part, if one waits.
    fn next_part(&mut self) -> Option<Parcel> {
        let part = self.closed.pop_front()?;
        Some(sealed(part, self.clock.clone(), |index| index.part = true))
    }

    /// All remaining reports, the last one at the end. Nothing may be added afterwards.
    pub fn finish(&mut self, back: Vec<GivenBack>) -> impl Iterator<Item = Parcel> {
        let open = std::mem::replace(&mut self.open, Part::new(&self.index, &self.account));
        let last = if open.pack.is_empty() && open.paused.is_empty() { self.closed.pop_back().unwrap_or(open) } else { open };
        let (parts, clock) = (std::mem::take(&mut self.closed), self.clock.clone());
        let parts = parts.into_iter().map(move |part| (part, Vec::new(), true)).chain(std::iter::once((last, back, false)));
        parts.map(move |(part, back, is_part)| sealed(part, clock.clone(), |index| (index.back, index.part) = (back, is_part)))
    }

    /// The last report, with the reason why the block was not downloaded completely.
    pub fn failed(self, exception: String) -> Parcel {
        log::warn!("block not downloaded block_id={} reason={exception}", self.index.block_id);
        let mut part = Part::new(&self.index, &self.account);
        for entry in &self.open.pack.index().results {
            part.pack.push(entry.clone(), &Head::default(), &[]);
        }
        sealed(part, self.clock, |index| index.exception = Some(exception))
    }
}

fn sealed(part: Part, clock: Option<Rc<SiteClock>>, word: impl FnOnce(&mut Index)) -> Parcel {
    let Part { pack, mut shares, small, paused, .. } = part;
    let (mut index, frame) = pack.seal();
    index.site = (!paused.is_empty()).then(|| SiteNews { paused, ..SiteNews::default() });
    word(&mut index);
    shares.push(small);
    Parcel::new(index, frame, clock, shares)
}
