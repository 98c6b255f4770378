//! What the runs of a broker share of sites: whose turn it is where, and what robots.txt says.

use super::context::Times;
use crate::domain::robots::Robots;
use crate::domain::sites::{Board, Ended, Outcome, SiteRule};
use crate::domain::time::Timestamp;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The files that are kept in memory.
const MOST_ROBOTS: usize = 100_000;
/// Of more, so many go at once: looking for them takes time.
const ROBOTS_EVICTED: usize = 1_000;
/// The least time for which a node may go on without a word from its broker, in milliseconds.
const LEAST_RIGHT_MS: u64 = 10_000;

/// What requests to sites may come to.
pub const OUTCOMES: [&str; 8] = ["answered", "too_many_requests", "server_error", "timeout", "refused", "dns", "tls", "robots"];
/// The place of those that robots.txt forbids.
const ROBOTS: usize = 7;

/// The place of an outcome among [`OUTCOMES`]; none: nothing is known of it.
fn place(ended: Ended) -> Option<usize> {
    Some(match ended {
        Ended::Answered(429) => 1,
        Ended::Answered(500..=599) => 2,
        Ended::Answered(_) => 0,
        Ended::TimedOut => 3,
        Ended::Refused => 4,
        Ended::Dns => 5,
        Ended::Tls => 6,
        Ended::Unknown => return None,
    })
}

/// What the robots.txt of an origin says, and until when that holds by the wall clock.
#[derive(Debug, Clone)]
pub struct KnownRobots {
    /// The rules.
    pub robots: Arc<Robots>,
    /// Until when.
    pub until: Timestamp,
    /// Times in a row that the file could not be had.
    pub failures: u32,
}

/// An origin, and the product token of a user agent.
pub type RobotsKey = (Arc<str>, Arc<str>);

/// See the module's text.
#[derive(Debug)]
pub struct Sites {
    board: Mutex<Board>,
    robots: Mutex<HashMap<RobotsKey, KnownRobots>>,
    /// The operator's limits.
    pub rules: Vec<SiteRule>,
    requests: [AtomicU64; OUTCOMES.len()],
    /// Milliseconds without a word from the broker after which a node begins no more requests to sites.
    pub right_ms: u64,
}

impl Sites {
    /// Of a broker that has just begun.
    #[must_use]
    pub fn new(rules: Vec<SiteRule>, times: &Times) -> Self {
        // Two heartbeats may get lost.
        let right_ms = LEAST_RIGHT_MS.max(times.node_heartbeat * 3);
        Self { board: Mutex::new(Board::new(right_ms as i64)), robots: Mutex::default(), requests: Default::default(), rules, right_ms }
    }

    /// Whose turn it is.
    pub fn board(&self) -> MutexGuard<'_, Board> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Requests came to this.
    pub fn count(&self, outcomes: &[Outcome]) {
        for place in outcomes.iter().filter_map(|outcome| place(outcome.ended)) {
            self.requests[place].fetch_add(1, Relaxed);
        }
    }

    /// So many requests were forbidden by robots.txt.
    pub fn count_forbidden(&self, requests: usize) {
        self.requests[ROBOTS].fetch_add(requests as u64, Relaxed);
    }

    /// Requests to sites by what they came to, since the start.
    #[must_use]
    pub fn requests(&self) -> [(&'static str, u64); OUTCOMES.len()] {
        std::array::from_fn(|i| (OUTCOMES[i], self.requests[i].load(Relaxed)))
    }

    /// What is known of the robots.txt of an origin, also if it does not hold any more.
    #[must_use]
    pub fn robots(&self, key: &RobotsKey) -> Option<KnownRobots> {
        self.robots.lock().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// Keeps what was found out.
    pub fn keep_robots(&self, key: RobotsKey, known: KnownRobots) {
        let mut robots = self.robots.lock().unwrap_or_else(PoisonError::into_inner);
        if robots.len() >= MOST_ROBOTS {
            // Files that could not be had go last: they are not in the store. Of the others, those that hold shortest go first.
            let mut order: Vec<_> = robots.iter().map(|(key, known)| (known.failures > 0, known.until, key.clone())).collect();
            order.select_nth_unstable(ROBOTS_EVICTED);
            for (_, _, key) in &order[..ROBOTS_EVICTED] {
                robots.remove(key);
            }
        }
        robots.insert(key, known);
    }
}
