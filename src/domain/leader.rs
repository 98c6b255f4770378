//! Leader election among several brokers: what a standby concludes from the lease, and what a leader concludes when it cannot renew.
//!
//! It never uses a clock that can be set. A standby measures with its own monotonic clock how long the lease has not changed; it
//! detects a dead leader at once by a lock that the operating system releases. Both only decide when to *try*: a takeover is one
//! transaction on the lease as observed, and every write of a leader checks its term. A wrong conclusion therefore costs time, but
//! never a lost write (lease with fencing token: Kleppmann, How to do distributed locking, 2016).

mod turn;

pub use turn::{End, Turn};

/// The fields of the lease that matter for decisions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Incremented by each takeover.
    pub term: i64,
    /// Incremented by the leader at each renewal.
    pub renewals: i64,
    /// Milliseconds without a renewal after which others may treat the leader as gone.
    pub ttl_ms: u64,
    /// The leader holds the file lock.
    pub is_locked: bool,
    /// The leader shut down cleanly.
    pub is_released: bool,
}

/// Who holds the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// The observer has just acquired it.
    Ours,
    /// Another process holds it, or the observer did not try.
    Theirs,
}

/// Why a broker may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There has never been a leader.
    First,
    /// The last leader shut down cleanly.
    Released,
    /// The lock of the leader is free: its process is dead.
    Dead,
    /// The lease was not renewed for its whole time to live: its process hangs.
    Silent,
}

impl Reason {
    /// A text for logs.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::First => "there is no leader yet",
            Self::Released => "the last leader shut down cleanly",
            Self::Dead => "the leader is dead",
            Self::Silent => "the leader does not renew its lease",
        }
    }
}

/// What a standby does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Check again soon.
    Wait,
    /// Try to take over the lease as observed.
    TakeOver(Reason),
}

/// What a standby remembers between checks.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watch {
    last: Option<Look>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: u64,
    seen: (i64, i64),
    /// Since when the lease has not changed.
    since: u64,
}

impl Watch {
    /// Whether a free lock is evidence. A leader that took over from a hanging one does not hold the lock, but it is alive.
    #[must_use]
    pub fn minds_the_lock(lease: Option<&Lease>) -> bool {
        lease.is_none_or(|lease| lease.is_locked || lease.is_released)
    }

    /// Checks the lease. `now` is in milliseconds of a monotonic clock.
    pub fn look(&mut self, lease: Option<&Lease>, lock: Lock, now: u64) -> Decision {
        let Some(lease) = lease else {
            self.last = None;
            // A process that holds the lock without a lease is about to write one, or is an old version without leases, which
            // cannot be fenced.
            return if lock == Lock::Ours { Decision::TakeOver(Reason::First) } else { Decision::Wait };
        };
        if lease.is_released {
            return Decision::TakeOver(Reason::Released);
        }
        if lock == Lock::Ours && lease.is_locked {
            return Decision::TakeOver(Reason::Dead);
        }
        let seen = (lease.term, lease.renewals);
        let since = match self.last {
            // If this standby was delayed itself, it did not observe the lease: the whole machine may have been suspended.
            Some(last) if last.seen == seen && now.saturating_sub(last.at) <= lease.ttl_ms / 2 => last.since,
            _ => now,
        };
        self.last = Some(Look { at: now, seen, since });
        if now.saturating_sub(since) >= lease.ttl_ms { Decision::TakeOver(Reason::Silent) } else { Decision::Wait }
    }
}

/// What a leader knows about its own lease.
#[derive(Debug, Clone, Copy)]
pub struct Tenure {
    ttl_ms: u64,
    renewed: u64,
    /// When it was last read and still ours, although not renewed.
    seen: u64,
}

impl Tenure {
    /// Renewals within the time to live: two may be late.
    const RENEWALS: u64 = 3;

    /// After a takeover, or the first renewal, at `now`.
    #[must_use]
    pub fn new(ttl_ms: u64, now: u64) -> Self {
        Self { ttl_ms, renewed: now, seen: now }
    }

    /// Milliseconds between two renewals.
    #[must_use]
    pub fn every_ms(&self) -> u64 {
        (self.ttl_ms / Self::RENEWALS).max(1)
    }

    /// A renewal that began at `began` is on disk. Other brokers saw it only after `began`.
    pub fn renewed(&mut self, began: u64) {
        self.renewed = self.renewed.max(began);
    }

    /// The lease was read at `now` and is still ours.
    pub fn seen(&mut self, now: u64) {
        self.seen = self.seen.max(now);
    }

    /// Another broker may have taken over: the leader must read the lease.
    #[must_use]
    pub fn is_doubtful(&self, now: u64) -> bool {
        now.saturating_sub(self.renewed) >= self.ttl_ms
    }

    /// The lease was neither renewed nor read for twice its time to live: the leader must treat itself as deposed.
    #[must_use]
    pub fn is_over(&self, now: u64) -> bool {
        now.saturating_sub(self.renewed.max(self.seen)) >= 2 * self.ttl_ms
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Lease = Lease { term: 4, renewals: 9, ttl_ms: 1_000, is_locked: true, is_released: false };

    fn looks(watch: &mut Watch, lease: Lease, upto: std::ops::RangeInclusive<u64>) -> Option<u64> {
        upto.step_by(50).find(|now| watch.look(Some(&lease), Lock::Theirs, *now) == Decision::TakeOver(Reason::Silent))
    }

    #[test]
    fn without_a_lease_the_lock_decides() {
        let mut watch = Watch::default();
        assert_eq!(watch.look(None, Lock::Theirs, 0), Decision::Wait);
        assert_eq!(watch.look(None, Lock::Theirs, 1_000_000), Decision::Wait, "who has no lease cannot be fenced");
        assert_eq!(watch.look(None, Lock::Ours, 1), Decision::TakeOver(Reason::First));
    }

    #[test]
    fn a_free_lock_means_death_only_of_who_held_it() {
        assert_eq!(Watch::default().look(Some(&LEASE), Lock::Ours, 0), Decision::TakeOver(Reason::Dead));
        let unlocked = Lease { is_locked: false, ..LEASE };
        assert_eq!(Watch::default().look(Some(&unlocked), Lock::Ours, 0), Decision::Wait);
        assert!(!Watch::minds_the_lock(Some(&unlocked)));
        let released = Lease { is_released: true, ..LEASE };
        assert_eq!(Watch::default().look(Some(&released), Lock::Theirs, 0), Decision::TakeOver(Reason::Released));
    }

    #[test]
    fn silence_is_counted_from_the_last_renewal_that_was_seen() {
        let mut watch = Watch::default();
        assert_eq!(looks(&mut watch, LEASE, 0..=900), None);
        let renewed = Lease { renewals: 10, ..LEASE };
        assert_eq!(looks(&mut watch, renewed, 950..=5_000), Some(1_950));
    }

    #[test]
    fn who_was_held_up_himself_begins_anew() {
        let mut watch = Watch::default();
        assert_eq!(looks(&mut watch, LEASE, 0..=900), None);
        assert_eq!(looks(&mut watch, LEASE, 1_500..=5_000), Some(2_500), "600 ms without a look are no watch");
    }

    #[test]
    fn a_leader_doubts_itself_before_it_gives_up() {
        let mut tenure = Tenure::new(900, 0);
        assert_eq!(tenure.every_ms(), 300);
        tenure.renewed(300);
        assert!(!tenure.is_doubtful(1_199) && tenure.is_doubtful(1_200));
        assert!(!tenure.is_over(2_099) && tenure.is_over(2_100));
        tenure.seen(1_200);
        assert!(tenure.is_doubtful(1_200) && !tenure.is_over(2_100) && tenure.is_over(3_000));
        tenure.renewed(200);
        assert!(tenure.is_doubtful(1_200), "an earlier one changes nothing");
    }
}
