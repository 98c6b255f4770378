//! The turn of a node at a site: decides which request may begin, and when. Values only: the time is an argument, in milliseconds since
//! the block came.
//!
//! It promises, for any input: no request begins within the delay after the beginning of another one or after the end of an answer, there
//! are never more at once than connections, none begins before `notBefore`, none when the broker was silent for `right`, and none after the
//! turn has ended. A turn ends by itself
//! when all requests are done, when the site asks to be left alone, or when it fails again and again; the remaining requests are given back.
//! A site that answers slowly rests after an answer as long as it took, as at the broker (`domain/sites/state.rs`).
//!
//! A request is first *claimed*, when it could begin now; then it begins, perhaps a little later; then it ends. Each further hop after a
//! redirect begins in the same way.

use crate::domain::sites::MOST_REST_MS;
use std::collections::VecDeque;

/// Milliseconds since the block came.
pub type Millis = u64;

/// Consecutive connection failures that end the turn.
const MOST_TROUBLES: u32 = 2;
/// Different requests that fail one after the other and end the turn: a page or two may be broken. The broker holds the site after as many
/// failures (`domain/sites/state.rs`).
const MOST_FAILED: usize = 3;
/// The upper limit of the doubling wait after a failed request.
const MOST_WAIT: Millis = 30_000;

/// The pace and its limits.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Time between the end of an answer and the beginning of the next request.
    pub delay: Millis,
    /// Random extra delay, at most.
    pub jitter: Millis,
    /// Concurrent requests.
    pub connections: u32,
    /// When the first may begin.
    pub not_before: Millis,
    /// Without a message from the broker for this long, no request begins.
    pub right: Millis,
    /// Maximum tries of a request.
    pub tries: u32,
    /// The wait before the second try of a request.
    pub first_wait: Millis,
}

/// What may be done now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim {
    /// Take this request, by its index in the block.
    Take(usize),
    /// Nothing before this time.
    At(Millis),
    /// Nothing before an event: a request begins or ends, or a message of the broker arrives.
    Later,
    /// Nothing more, once the requests in progress have ended.
    Over,
}

/// Whether a request may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// Now.
    Go,
    /// Not before this time.
    At(Millis),
    /// Not before a message of the broker arrives.
    Later,
    /// No more in this turn.
    Over,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With a result, whatever it is.
    Done,
    /// It failed otherwise, for example with a 5xx status; whether it may be tried again.
    Failed(bool),
    /// There was no connection in time, or none at all; whether it may be tried again.
    Trouble(bool),
    /// The site asks to be left alone, for this long if it gave a time; whether the request may be tried again.
    Hold(Option<Millis>, bool),
    /// It should be tried again from another IP address.
    Moved,
    /// It did not begin, or was stopped at a redirect, because the turn has ended.
    Stopped,
}

/// What happens to a request that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// It is reported.
    Report,
    /// It is in the queue again.
    Retry,
    /// It is given back.
    GiveBack,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    place: usize,
    ready: Millis,
}

/// The turn.
#[derive(Debug)]
pub struct Turn {
    limits: Limits,
    queue: VecDeque<Waiting>,
    under_way: u32,
    /// The request that is claimed and has not begun.
    claimed: Option<usize>,
    next_start: Millis,
    /// When the last request or hop began.
    began: Millis,
    /// The rest after the last answer.
    rest: Millis,
    troubles: u32,
    /// The requests that failed since the last one that did not, each once.
    failed: Vec<usize>,
    is_held: bool,
    held_until: Option<Millis>,
}

impl Turn {
    /// A turn for the requests 0 to `count`.
    #[must_use]
    pub fn new(limits: Limits, count: usize) -> Self {
        Self {
            queue: (0..count).map(|place| Waiting { place, ready: 0 }).collect(),
            under_way: 0,
            claimed: None,
            next_start: limits.not_before,
            began: 0,
            rest: 0,
            troubles: 0,
            failed: Vec::new(),
            is_held: false,
            held_until: None,
            limits,
        }
    }

    /// Takes the next request, if it could begin now. `heard`: when the last message of the broker arrived.
    pub fn claim(&mut self, now: Millis, heard: Millis) -> Claim {
        let claim = self.outlook(now, heard);
        if let Claim::Take(place) = claim {
            self.queue.retain(|waiting| waiting.place != place);
            self.claimed = Some(place);
            self.under_way += 1;
        }
        claim
    }

    /// What [`Turn::claim`] would return.
    #[must_use]
    pub fn outlook(&self, now: Millis, heard: Millis) -> Claim {
        if self.is_held || (self.queue.is_empty() && self.under_way == 0) {
            return Claim::Over;
        }
        if self.claimed.is_some() || self.under_way >= self.limits.connections.max(1) || !self.has_right(now, heard) {
            return Claim::Later;
        }
        let soonest = now.max(self.next_start);
        match self.queue.iter().find(|waiting| waiting.ready <= soonest) {
            Some(_) if now < self.next_start => Claim::At(self.next_start),
            Some(waiting) => Claim::Take(waiting.place),
            None => self.queue.iter().map(|waiting| waiting.ready).min().map_or(Claim::Later, Claim::At),
        }
    }

    /// The site has answered a request, which ends or is redirected: the delay counts from now.
    pub fn answered(&mut self, now: Millis) {
        // Of several requests at once it is not known here which one was answered; then only the broker adapts the delay.
        if self.limits.connections <= 1 {
            let took = now.saturating_sub(self.began).min(MOST_REST_MS.into());
            self.rest = if took >= self.rest { took } else { u64::midpoint(self.rest, took) };
        }
        self.next_start = self.next_start.max(now.saturating_add(self.limits.delay.max(self.rest)));
    }

    /// Whether a request is claimed and has not begun.
    #[must_use]
    pub fn is_claimed(&self, place: usize) -> bool {
        self.claimed == Some(place)
    }

    /// Whether a claimed request, or the next hop of one in progress, may begin now. `chance` is from 0 to 1.
    pub fn begin(&mut self, place: usize, now: Millis, heard: Millis, chance: f64) -> Begin {
        if self.is_held {
            return Begin::Over;
        }
        if now < self.next_start {
            return Begin::At(self.next_start);
        }
        if !self.has_right(now, heard) {
            return Begin::Later;
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "milliseconds")]
        let more = (self.limits.jitter as f64 * chance.clamp(0.0, 1.0)) as Millis;
        self.began = now;
        self.next_start = now.saturating_add(self.limits.delay).saturating_add(more);
        if self.claimed == Some(place) {
            self.claimed = None;
        }
        Begin::Go
    }

    /// Records the end of a request. `tries` is the total number of its tries so far.
    pub fn end(&mut self, place: usize, end: End, tries: u32, now: Millis) -> NextStep {
        if self.is_claimed(place) {
            self.claimed = None;
        } else {
            self.answered(now);
        }
        self.under_way = self.under_way.saturating_sub(1);
        match end {
            End::Done | End::Moved => {
                self.troubles = 0;
                self.failed.clear();
            }
            End::Failed(_) => self.troubles = 0,
            End::Trouble(_) => self.troubles += 1,
            End::Hold(..) | End::Stopped => {}
        }
        if matches!(end, End::Failed(_) | End::Trouble(_)) && !self.failed.contains(&place) {
            self.failed.push(place);
        }
        if self.troubles >= MOST_TROUBLES || self.failed.len() >= MOST_FAILED {
            self.is_held = true;
        }
        if let End::Hold(wait, _) = end {
            self.is_held = true;
            self.held_until = self.held_until.max(Some(now.saturating_add(wait.unwrap_or(0))));
        }
        let has_tries = tries < self.limits.tries;
        match end {
            End::Done | End::Failed(false) | End::Trouble(false) | End::Hold(_, false) => NextStep::Report,
            End::Failed(true) | End::Trouble(true) | End::Hold(_, true) if !has_tries => NextStep::Report,
            End::Stopped => NextStep::GiveBack,
            _ if self.is_held => NextStep::GiveBack,
            End::Moved => {
                self.queue.push_front(Waiting { place, ready: now });
                NextStep::Retry
            }
            End::Failed(true) | End::Trouble(true) | End::Hold(_, true) => {
                let wait = self.limits.first_wait.saturating_mul(1 << tries.saturating_sub(1).min(16)).min(MOST_WAIT);
                self.queue.push_back(Waiting { place, ready: now.saturating_add(wait) });
                NextStep::Retry
            }
        }
    }

    /// Ends the turn and takes the remaining requests, to be given back.
    pub fn take_rest(&mut self) -> impl Iterator<Item = usize> {
        std::mem::take(&mut self.queue).into_iter().map(|waiting| waiting.place)
    }

    /// Whether the site must be left alone; and until when, if it gave a time.
    #[must_use]
    pub fn hold(&self) -> Option<Option<Millis>> {
        self.is_held.then_some(self.held_until)
    }

    fn has_right(&self, now: Millis, heard: Millis) -> bool {
        now.saturating_sub(heard) < self.limits.right
    }
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
