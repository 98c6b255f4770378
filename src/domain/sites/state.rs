//! The state of a site that results from its responses: when it may get the next request.
//!
//! Two things slow a site down beyond its [`Pace`]:
//!
//! - **Slow responses.** After each request the site rests for as long as it took to respond, so we use at most half of its time
//!   (Heritrix, *Politeness parameters*: `delay-factor` 1, `max-delay-ms` 30000). As in Scrapy's AutoThrottle a faster response
//!   halves the difference, a slower response takes effect at once, the time is divided by the number of connections, and an error
//!   never shortens it.
//! - **Hold-off.** A site that requests it (429, 503 with `Retry-After`) or fails repeatedly gets no requests for a while. This
//!   time doubles up to a limit. The first request after it is sent alone.
//!
//! All times are durations since the last change, so a clock that goes back never extends a wait.

use super::pace::Pace;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The maximum rest after slow responses.
pub const MOST_REST_MS: u32 = 30_000;
/// The maximum hold-off that the site did not request.
pub const MOST_HOLD_MS: u32 = 3_600_000;
/// The maximum hold-off that a site can request.
pub const MOST_RETRY_AFTER_MS: u32 = 86_400_000;
/// The maximum duration of a manual hold: 49 days.
pub const MOST_OPERATOR_MS: u32 = 49 * 86_400_000;
/// The duration of the first hold-off.
const FIRST_HOLD_MS: u32 = 10_000;
/// Number of consecutive failures without a hold-off: a single page may be broken.
const TOLERATED: u8 = 2;
/// The rest after a first *too many requests* from a site that responds at once.
const FIRST_REST_MS: u32 = 250;
/// The state of a site is discarded after this time without a request.
const FORGOTTEN_MS: i64 = 86_400_000;
/// A shorter rest is ignored.
const LEAST_REST_MS: u32 = 8;

/// Why a site may not get requests at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Why {
    /// The minimum time between two requests has not passed.
    Delay,
    /// It responds slowly and gets fewer requests.
    SlowAnswers,
    /// All connections that it allows are in use.
    Connections,
    /// Its response contained `Retry-After`.
    RetryAfter,
    /// It returned 429 without `Retry-After`.
    TooManyRequests,
    /// It does not respond in time.
    Timeouts,
    /// It refuses or resets connections.
    Refused,
    /// It returns 5xx.
    ServerErrors,
    /// Its name cannot be resolved.
    Dns,
    /// The TLS handshake fails.
    Tls,
    /// An operator holds it.
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

    /// Whether the site or an operator asked for the pause, so that it is not an effect of failures.
    #[must_use]
    pub const fn is_asked_for(self) -> bool {
        matches!(self, Self::RetryAfter | Self::TooManyRequests | Self::Operator)
    }

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
    /// Not before this time.
    NotBefore(Timestamp, Why),
    /// After one of the requests in progress has ended.
    Full,
}

/// How a request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With a response of this status.
    Answered(u16),
    /// Without a response in time.
    TimedOut,
    /// The connection was refused, or closed before the response was complete.
    Refused,
    /// The name could not be resolved.
    Dns,
    /// The TLS handshake failed.
    Tls,
    /// It was not sent, or its result is unknown: it changes nothing.
    Unknown,
}

impl Ended {
    /// Whether the site responded without a failure and without requesting a pause.
    #[must_use]
    pub const fn is_well(self) -> bool {
        matches!(self, Self::Answered(status) if status < 500 && status != 429)
    }
}

/// What a request revealed about its site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// How it ended.
    pub ended: Ended,
    /// Its duration in milliseconds.
    pub elapsed_ms: u32,
    /// The site's `Retry-After` in milliseconds, as parsed by the node.
    pub retry_after_ms: Option<u32>,
}

/// The state of one site: 24 bytes, without heap memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "Vec<u8>", try_from = "Vec<u8>")]
pub struct SiteState {
    /// Time of the last change; all durations count from here.
    at: Timestamp,
    /// Milliseconds until the next request may begin.
    wait_ms: u32,
    /// Milliseconds until the hold-off ends.
    hold_ms: u32,
    /// The rest after each request.
    rest_ms: u32,
    connections: u16,
    /// Consecutive failures, halved by a success.
    failures: u8,
    /// [`Why::code`] of the hold-off, kept until a request succeeds; 0: none.
    why: u8,
}

impl SiteState {
    /// Size of a stored row in bytes.
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
        // After a hold-off a single request probes the site.
        let allowed = if self.why == 0 { pace.connections.max(1) } else { 1 };
        if self.connections >= allowed {
            return Begin::Full;
        }
        if until == now {
            return Begin::Yes;
        }
        Begin::NotBefore(until, if self.rest_ms > pace.delay_ms { Why::SlowAnswers } else { Why::Delay })
    }

    /// A request begins, or the right to begin it is granted. `dice` is a uniformly distributed number.
    pub fn begun(&mut self, now: Timestamp, pace: Pace, dice: u32) {
        self.settle(now);
        self.connections = self.connections.saturating_add(1);
        self.wait_ms = self.wait_ms.max(pace.jittered_ms(dice));
    }

    /// A request ended: the delay counts from now. `pace` is the current one: if it became slower since the request began, it applies.
    pub fn ended(&mut self, now: Timestamp, pace: Pace, outcome: Outcome) {
        self.settle(now);
        self.connections = self.connections.saturating_sub(1);
        self.wait_ms = self.wait_ms.max(pace.delay_ms);
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

    /// For a site without a pace: only hold-offs count, and those that are not by hand are at most this long.
    pub fn without_pace(&mut self, most_ms: u32) {
        (self.wait_ms, self.rest_ms) = (0, 0);
        if Why::of_code(self.why) != Some(Why::Operator) {
            self.hold_ms = self.hold_ms.min(most_ms);
        }
    }

    /// Holds the site by hand until a time.
    pub fn hold(&mut self, now: Timestamp, until: Timestamp) {
        self.settle(now);
        let span = until.since_ms(now).max(0);
        self.hold_ms = u32::try_from(span).unwrap_or(MOST_OPERATOR_MS).min(MOST_OPERATOR_MS);
        self.why = Why::Operator.code();
    }

    /// Ends any hold-off by hand. The delay stays.
    pub fn release(&mut self, now: Timestamp) {
        self.settle(now);
        (self.hold_ms, self.failures, self.why) = (0, 0, 0);
    }

    /// The state, to be sent to another broker, whose clock may differ: all durations count from now.
    #[must_use]
    pub fn sent(mut self, now: Timestamp) -> Self {
        self.settle(now);
        self
    }

    /// A state that was sent: its durations count from now, so it waits longer, by the time that it was on the way.
    #[must_use]
    pub const fn received(mut self, now: Timestamp) -> Self {
        (self.at, self.connections) = (now, 0);
        self
    }

    /// No request begins before this time.
    pub fn wait_until(&mut self, until: Timestamp, now: Timestamp) {
        self.settle(now);
        self.wait_ms = self.wait_ms.max(u32::try_from(until.since_ms(now).max(0)).unwrap_or(u32::MAX));
    }

    /// A run of another broker has caused a hold: it counts if it is longer. Holds by hand are not changed elsewhere. Returns whether the hold changes.
    pub fn extend_hold(&mut self, other: Self, now: Timestamp) -> bool {
        self.settle(now);
        let left = other.left(other.hold_ms, now);
        let is_longer = left > self.hold_ms && !other.was_held_by_hand();
        if is_longer {
            self.failures = self.failures.max(other.failures);
            if let Some(why) = Why::of_code(other.why) {
                self.hold_off(left, why);
            }
        }
        is_longer
    }

    /// Takes the hold of the leader's copy of this state: it decides about holds by hand. Of other holds, the longer one counts.
    pub fn join_hold(&mut self, leaders: Self, now: Timestamp) {
        self.settle(now);
        if self.was_held_by_hand() {
            (self.hold_ms, self.why) = (0, 0);
        }
        match leaders.held_by_hand(now) {
            Some(until) => self.hold(now, until.max(now.plus_ms(self.hold_ms.into()))),
            None => drop(self.extend_hold(leaders, now)),
        }
    }

    /// The end of the hold-off, and its reason; `None` if there is none.
    #[must_use]
    pub fn held_until(&self, now: Timestamp) -> Option<(Timestamp, Why)> {
        let left = self.left(self.hold_ms, now);
        let why = Why::of_code(self.why)?;
        (left > 0).then(|| (now.plus_ms(left.into()), why))
    }

    /// Until when an operator holds it.
    #[must_use]
    pub fn held_by_hand(&self, now: Timestamp) -> Option<Timestamp> {
        self.held_until(now).filter(|(_, why)| *why == Why::Operator).map(|(until, _)| until)
    }

    /// When the next request may begin, if a connection is free.
    #[must_use]
    pub fn next_at(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.left(self.wait_ms.max(self.hold_ms), now).into())
    }

    /// Current milliseconds between the end of a response and the next request.
    #[must_use]
    pub fn delay_ms(&self, pace: Pace) -> u32 {
        pace.delay_ms.max(self.rest_ms)
    }

    /// Time of the last change.
    #[must_use]
    pub const fn changed_at(&self) -> Timestamp {
        self.at
    }

    /// Consecutive failures, halved by each success.
    #[must_use]
    pub const fn failures(&self) -> u8 {
        self.failures
    }

    /// Whether a new state would be equivalent: this one can be discarded.
    #[must_use]
    pub fn is_forgettable(&self, now: Timestamp) -> bool {
        let is_old = now.since_ms(self.at) > FORGOTTEN_MS;
        self.connections == 0 && self.left(self.wait_ms.max(self.hold_ms), now) == 0 && (self.is_usual(0, now) || is_old)
    }

    /// Whether it equals the default for this delay, except for the time of the last request, so that nothing needs to be stored. An
    /// expired manual hold is ignored.
    #[must_use]
    pub fn is_usual(&self, delay_ms: u32, now: Timestamp) -> bool {
        let is_held = self.why != 0 && (!self.was_held_by_hand() || self.left(self.hold_ms, now) > 0);
        !is_held && self.failures == 0 && self.rest_ms <= delay_ms
    }

    /// Whether an operator holds or held it, and no response has changed it since.
    #[must_use]
    pub fn was_held_by_hand(&self) -> bool {
        self.why == Why::Operator.code()
    }

    /// Number of requests in progress.
    #[cfg(test)]
    pub const fn connections(&self) -> u16 {
        self.connections
    }

    /// The stored form: everything except the connections, which end with the process.
    #[must_use]
    pub fn to_row(self) -> [u8; Self::ROW] {
        let mut row = [0; Self::ROW];
        row[..8].copy_from_slice(&self.at.0.to_le_bytes());
        row[8..12].copy_from_slice(&self.wait_ms.to_le_bytes());
        row[12..16].copy_from_slice(&self.hold_ms.to_le_bytes());
        row[16..20].copy_from_slice(&self.rest_ms.to_le_bytes());
        (row[20], row[21]) = (self.failures, self.why);
        row
    }

    /// Parses a stored row; `None` if it is invalid.
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

    /// Rebases all durations to `now`, or to the last change if that is later.
    fn settle(&mut self, now: Timestamp) {
        let now = now.max(self.at);
        (self.wait_ms, self.hold_ms) = (self.left(self.wait_ms, now), self.left(self.hold_ms, now));
        self.at = now;
    }

    /// The site is overloaded and responded with 429 or 503.
    fn asked_for_rest(&mut self, pace: Pace, why: Why, retry_after_ms: Option<u32>) {
        let was_held = self.hold_ms > 0;
        if !was_held {
            self.failures = self.failures.saturating_add(1);
            self.rest_ms = self.rest_ms.max(pace.delay_ms).saturating_mul(2).clamp(FIRST_REST_MS, MOST_REST_MS);
        }
        match retry_after_ms {
            // After the first failure the site gets exactly the time that it asked for.
            Some(asked) => {
                let grown = if was_held { 0 } else { grown_ms(self.failures.saturating_sub(1)) };
                self.hold_off(asked.min(MOST_RETRY_AFTER_MS).max(grown), Why::RetryAfter);
            }
            None if was_held => {}
            None => self.hold_off(grown_ms(self.failures), why),
        }
    }

    /// A failure counts unless the request began before the current hold-off.
    fn failed(&mut self, why: Why) {
        if self.hold_ms == 0 {
            self.failures = self.failures.saturating_add(1);
            self.hold_off(grown_ms(self.failures.saturating_sub(TOLERATED)), why);
        }
    }

    fn succeeded(&mut self) {
        // A response to a request from before the hold-off is outdated.
        if self.hold_ms == 0 {
            self.failures /= 2;
            self.why = 0;
        }
    }

    fn hold_off(&mut self, ms: u32, why: Why) {
        if ms > self.hold_ms {
            // A manual hold stays manual, and lasts at least as long as the site requests.
            let is_by_hand = self.hold_ms > 0 && self.was_held_by_hand();
            (self.hold_ms, self.why) = (ms, if is_by_hand { self.why } else { why.code() });
        }
    }
}

/// The hold-off after this many counted failures: none, 10 s, 20 s, 40 s … up to the limit.
fn grown_ms(failures: u8) -> u32 {
    match failures.checked_sub(1) {
        None => 0,
        Some(doublings) => FIRST_HOLD_MS.saturating_mul(1 << doublings.min(16)).min(MOST_HOLD_MS),
    }
}

/// As a row.
impl From<SiteState> for Vec<u8> {
    fn from(state: SiteState) -> Self {
        state.to_row().into()
    }
}

impl TryFrom<Vec<u8>> for SiteState {
    type Error = &'static str;

    fn try_from(row: Vec<u8>) -> Result<Self, &'static str> {
        Self::of_row(&row).ok_or("not the state of a site")
    }
}
