//! What the answers of a site have led to: when it may be asked again.
//!
//! Two things slow a site down beyond its [`Pace`]:
//!
//! - **Slow answers.** After each request the site rests as long as it takes to answer, so that it is busy for us half of the
//!   time at most (Heritrix, *Politeness parameters*: `delay-factor` 1, `max-delay-ms` 30000). As in Scrapy's AutoThrottle the
//!   time is halved into by each quicker answer, is taken at once from a slower one, is divided by the connections, and an error
//!   never makes it shorter.
//! - **Hold-off.** A site that asks for it (429, 503 with `Retry-After`) or fails again and again is not asked at all for a while.
//!   The while doubles up to a bound. The first request after it goes alone.
//!
//! All times are spans since the last change, so a clock that goes back makes no wait longer than it was.

use super::pace::Pace;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The longest rest because of slow answers.
pub const MOST_REST_MS: u32 = 30_000;
/// The longest time that a site is held off without having asked for it.
pub const MOST_HOLD_MS: u32 = 3_600_000;
/// The longest time that a site can ask to be left alone for.
pub const MOST_RETRY_AFTER_MS: u32 = 86_400_000;
/// The longest time that a site can be held by hand: 49 days.
pub const MOST_OPERATOR_MS: u32 = 49 * 86_400_000;
/// The first hold-off.
const FIRST_HOLD_MS: u32 = 10_000;
/// Failures in a row that are not yet a reason to hold a site off: one page may be broken.
const TOLERATED: u8 = 2;
/// The rest after a first *too many requests* of a site that answers at once.
const FIRST_REST_MS: u32 = 250;
/// What a site has shown is forgotten after this time without a request.
const FORGOTTEN_MS: i64 = 86_400_000;
/// A rest below this is none.
const LEAST_REST_MS: u32 = 8;

/// Why a site may not be asked at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// The least time between two requests is not over.
    Delay,
    /// It answers slowly and is asked less often.
    SlowAnswers,
    /// All connections that it allows are in use.
    Connections,
    /// It said when to come again.
    RetryAfter,
    /// It answered 429 without a time.
    TooManyRequests,
    /// It does not answer in time.
    Timeouts,
    /// It refuses connections or cuts them.
    Refused,
    /// It answers 5xx.
    ServerErrors,
    /// Its name is not resolved.
    Dns,
    /// No TLS session comes about.
    Tls,
    /// Somebody asked for it.
    Operator,
}

impl Why {
    const ALL: [Self; 11] = [
        Self::Delay,
        Self::SlowAnswers,
        Self::Connections,
        Self::RetryAfter,
        Self::TooManyRequests,
        Self::Timeouts,
        Self::Refused,
        Self::ServerErrors,
        Self::Dns,
        Self::Tls,
        Self::Operator,
    ];

    /// The name, as the API has it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Delay => "delay",
            Self::SlowAnswers => "slowAnswers",
            Self::Connections => "connections",
            Self::RetryAfter => "retryAfter",
            Self::TooManyRequests => "tooManyRequests",
            Self::Timeouts => "timeouts",
            Self::Refused => "refused",
            Self::ServerErrors => "serverErrors",
            Self::Dns => "dns",
            Self::Tls => "tls",
            Self::Operator => "operator",
        }
    }

    const fn code(self) -> u8 {
        self as u8 + 1
    }

    fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code.checked_sub(1)?)).copied()
    }
}

/// Whether a request may begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// At once.
    Yes,
    /// Not before this instant.
    NotBefore(Timestamp, Why),
    /// When one of those that are under way has ended.
    Full,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With an answer of this status.
    Answered(u16),
    /// There was no answer in time.
    TimedOut,
    /// The connection was refused, or cut before the answer was whole.
    Refused,
    /// The name was not resolved.
    Dns,
    /// No TLS session came about.
    Tls,
    /// It was not sent, or what became of it is unknown: nothing is learned of the site.
    Unknown,
}

impl Ended {
    /// Whether the site has answered, and neither failed nor asked to be left alone.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Answered(status) if status < 500 && status != 429)
    }
}

/// What a request has shown of its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Milliseconds that it took.
    pub elapsed_ms: u32,
    /// The site's `Retry-After` in milliseconds, as the node has read it.
    pub retry_after_ms: Option<u32>,
}

/// The state of one site: 24 bytes, and no more on the heap.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SiteState {
    /// When it changed; all spans count from here.
    at: Timestamp,
    /// Until the next request may begin.
    wait_ms: u32,
    /// Until the hold-off is over.
    hold_ms: u32,
    /// The rest after each request.
    rest_ms: u32,
    connections: u16,
    /// Failures in a row, halved by a success.
    failures: u8,
    /// [`Why::code`] of the hold-off, also after it until a request succeeds; 0: none.
    why: u8,
}

impl SiteState {
    /// Bytes of a row.
    pub const ROW: usize = 22;

    /// Whether a request may begin at `now`. Rebases the state if the clock went back.
    pub fn may_begin(&mut self, now: Timestamp, pace: Pace) -> Begin {
        if now < self.at {
            self.at = now;
        }
        let until = self.next_at(now);
        if let Some((_, why)) = self.held_until(now) {
            return Begin::NotBefore(until, why);
        }
        // After a hold-off one request finds out whether the site is well.
        let allowed = if self.why == 0 { pace.connections.max(1) } else { 1 };
        if self.connections >= allowed {
            return Begin::Full;
        }
        if until == now {
            return Begin::Yes;
        }
        Begin::NotBefore(until, if self.rest_ms > pace.delay_ms { Why::SlowAnswers } else { Why::Delay })
    }

    /// A request begins, or the right to begin it is given away. `dice` is any number, evenly distributed.
    pub fn begun(&mut self, now: Timestamp, pace: Pace, dice: u32) {
        self.settle(now);
        self.connections = self.connections.saturating_add(1);
        self.wait_ms = self.wait_ms.max(pace.jittered_ms(dice));
    }

    /// A request ended. `pace` is the present one: if it became slower since the request began, the slower one holds.
    pub fn ended(&mut self, now: Timestamp, pace: Pace, outcome: Outcome) {
        self.settle(now);
        self.connections = self.connections.saturating_sub(1);
        self.wait_ms = self.wait_ms.max(pace.delay_ms.saturating_sub(outcome.elapsed_ms));
        let answer_ms = if pace.delay_ms == 0 { 0 } else { outcome.elapsed_ms / u32::from(pace.connections.max(1)) };
        let answer_ms = answer_ms.min(MOST_REST_MS);
        match outcome.ended {
            Ended::Unknown => return,
            Ended::Answered(429) => self.asked_for_rest(pace, Why::TooManyRequests, outcome.retry_after_ms),
            Ended::Answered(503) if outcome.retry_after_ms.is_some() => {
                self.asked_for_rest(pace, Why::RetryAfter, outcome.retry_after_ms);
            }
            Ended::Answered(500..=599) => self.failed(Why::ServerErrors),
            Ended::TimedOut => self.failed(Why::Timeouts),
            Ended::Refused => self.failed(Why::Refused),
            Ended::Dns => self.failed(Why::Dns),
            Ended::Tls => self.failed(Why::Tls),
            Ended::Answered(status) => {
                self.succeeded();
                if status < 400 {
                    self.rest_ms = self.rest_ms.midpoint(answer_ms);
                }
            }
        }
        self.rest_ms = self.rest_ms.max(answer_ms);
        if self.rest_ms < LEAST_REST_MS {
            self.rest_ms = 0;
        }
        self.wait_ms = self.wait_ms.max(self.rest_ms);
    }

    /// The site is held off until an instant, by hand.
    pub fn hold(&mut self, now: Timestamp, until: Timestamp) {
        self.settle(now);
        let span = until.since_ms(now).max(0);
        self.hold_ms = u32::try_from(span).unwrap_or(MOST_OPERATOR_MS).min(MOST_OPERATOR_MS);
        self.why = Why::Operator.code();
    }

    /// The hold-off is over by hand, whatever its reason. The delay stays.
    pub fn release(&mut self, now: Timestamp) {
        self.settle(now);
        (self.hold_ms, self.failures, self.why) = (0, 0, 0);
    }

    /// Until when it is held off, and why; `None` if it is not.
    #[must_use]
    pub fn held_until(&self, now: Timestamp) -> Option<(Timestamp, Why)> {
        let left = self.left(self.hold_ms, now);
        let why = Why::of_code(self.why)?;
        (left > 0).then(|| (now.plus_ms(left.into()), why))
    }

    /// Until when somebody holds it by hand.
    #[must_use]
    pub fn held_by_hand(&self, now: Timestamp) -> Option<Timestamp> {
        self.held_until(now).filter(|(_, why)| *why == Why::Operator).map(|(until, _)| until)
    }

    /// When the next request may begin, if a connection is free.
    #[must_use]
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.left(self.wait_ms.max(self.hold_ms), now).into())
    }

    /// Milliseconds between two requests at present, without the time that an answer takes.
    #[must_use]
    pub fn delay_ms(&self, pace: Pace) -> u32 {
        pace.delay_ms.max(self.rest_ms)
    }

    /// Milliseconds between the beginnings of two requests: the site rests after each as long as it has taken.
    #[must_use]
    pub fn begin_to_begin_ms(&self, pace: Pace) -> u32 {
        pace.delay_ms.max(self.rest_ms.saturating_mul(2))
    }

    /// When it changed last.
    #[must_use]
    pub const fn changed_at(&self) -> Timestamp {
        self.at
    }

    /// Failures in a row, halved by each success.
    #[must_use]
    pub const fn failures(&self) -> u8 {
        self.failures
    }

    /// Whether a new state would do as well: it can be forgotten.
    #[must_use]
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        let is_old = now.since_ms(self.at) > FORGOTTEN_MS;
        self.connections == 0 && self.left(self.wait_ms.max(self.hold_ms), now) == 0 && (self.is_usual(0, now) || is_old)
    }

    /// Whether it is as any other site with this delay, but for the time of the last request: there is nothing to store. A hold by
    /// hand that is over means nothing.
    #[must_use]
    pub fn is_usual(&self, delay_ms: u32, now: Timestamp) -> bool {
        let is_held = self.why != 0 && (!self.was_held_by_hand() || self.left(self.hold_ms, now) > 0);
        !is_held && self.failures == 0 && self.rest_ms <= delay_ms
    }

    /// Whether somebody holds it by hand, or did, and nobody has learned anything of it since.
    #[must_use]
    pub fn was_held_by_hand(&self) -> bool {
        self.why == Why::Operator.code()
    }

    /// Requests under way.
    #[cfg(test)]
    pub const fn connections(&self) -> u16 {
        self.connections
    }

    /// What is stored of it: all but the connections, which end with the process that counted them.
    #[must_use]
    pub fn to_row(&self) -> [u8; Self::ROW] {
        let mut row = [0; Self::ROW];
        row[..8].copy_from_slice(&self.at.0.to_le_bytes());
        row[8..12].copy_from_slice(&self.wait_ms.to_le_bytes());
        row[12..16].copy_from_slice(&self.hold_ms.to_le_bytes());
        row[16..20].copy_from_slice(&self.rest_ms.to_le_bytes());
        (row[20], row[21]) = (self.failures, self.why);
        row
    }

    /// The state of a row; `None` if it is none.
    #[must_use]
    pub fn of_row(row: &[u8]) -> Option<Self> {
        let row: &[u8; Self::ROW] = row.try_into().ok()?;
        let span = |at: usize| Some(u32::from_le_bytes(row.get(at..at + 4)?.try_into().ok()?));
        let at = Timestamp(i64::from_le_bytes(row.get(..8)?.try_into().ok()?));
        let state = Self { at, wait_ms: span(8)?, hold_ms: span(12)?, rest_ms: span(16)?, connections: 0, failures: row[20], why: row[21] };
        (state.why == 0 || Why::of_code(state.why).is_some()).then_some(state)
    }

    fn left(&self, span_ms: u32, now: Timestamp) -> u32 {
        let passed = u32::try_from(now.since_ms(self.at).max(0)).unwrap_or(u32::MAX);
        span_ms.saturating_sub(passed)
    }

    /// Counts all spans from `now`, or from the last change if that is later.
    fn settle(&mut self, now: Timestamp) {
        let now = now.max(self.at);
        (self.wait_ms, self.hold_ms) = (self.left(self.wait_ms, now), self.left(self.hold_ms, now));
        self.at = now;
    }

    /// It is busy, and says so.
    fn asked_for_rest(&mut self, pace: Pace, why: Why, retry_after_ms: Option<u32>) {
        let was_held = self.hold_ms > 0;
        if !was_held {
            self.failures = self.failures.saturating_add(1);
            self.rest_ms = self.rest_ms.max(pace.delay_ms).saturating_mul(2).clamp(FIRST_REST_MS, MOST_REST_MS);
        }
        match retry_after_ms {
            // The first time it is taken at its word.
            Some(asked) => {
                let grown = if was_held { 0 } else { grown_ms(self.failures.saturating_sub(1)) };
                self.hold_off(asked.min(MOST_RETRY_AFTER_MS).max(grown), Why::RetryAfter);
            }
            None if was_held => {}
            None => self.hold_off(grown_ms(self.failures), why),
        }
    }

    /// It failed, and that has counted unless it began before a hold-off that lasts.
    fn failed(&mut self, why: Why) {
        if self.hold_ms == 0 {
            self.failures = self.failures.saturating_add(1);
            self.hold_off(grown_ms(self.failures.saturating_sub(TOLERATED)), why);
        }
    }

    fn succeeded(&mut self) {
        // An answer to a request that began before a hold-off says nothing of now.
        if self.hold_ms == 0 {
            self.failures /= 2;
            self.why = 0;
        }
    }

    fn hold_off(&mut self, ms: u32, why: Why) {
        if ms > self.hold_ms {
            // What somebody holds by hand stays held by hand, for as long as the site asks for at least.
            let is_by_hand = self.hold_ms > 0 && self.was_held_by_hand();
            (self.hold_ms, self.why) = (ms, if is_by_hand { self.why } else { why.code() });
        }
    }
}

/// The hold-off after so many failures that count: none, 10 s, 20 s, 40 s … up to the bound.
fn grown_ms(failures: u8) -> u32 {
    match failures.checked_sub(1) {
        None => 0,
        Some(doublings) => FIRST_HOLD_MS.saturating_mul(1 << doublings.min(16)).min(MOST_HOLD_MS),
    }
}
