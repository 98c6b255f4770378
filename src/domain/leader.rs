//! Which of several brokers leads: what a standby makes of what it sees, and what a leader makes of its own silence.
//!
//! No clock that can be set is asked. A standby counts on its own steady clock how long the lease of the leader has not
//! moved; that the leader is dead it sees at once by a lock that the system gives back. Both only say when to *try*: taking
//! over is one transaction on the lease as it was seen, and every write of a leader checks its term. So whoever is wrong
//! about the other costs time, and never a write (lease with fencing token: Kleppmann, How to do distributed locking, 2016).

/// The lease, as far as it decides anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Counted up by each that takes over.
    pub term: i64,
    /// Counted up by the leader.
    pub renewals: i64,
    /// Milliseconds without a renewal after which the leader may be taken for gone.
    pub ttl_ms: u64,
    /// The leader holds the lock.
    pub is_locked: bool,
    /// The leader ended well.
    pub is_released: bool,
}

/// Who has the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lock {
    /// Whoever looks has just got it.
    Ours,
    /// Another, or it was not asked for.
    Theirs,
}

/// Why a broker may take over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// There has never been a leader.
    First,
    /// The last one ended well.
    Released,
    /// The lock that the leader held is free: its process is dead.
    Dead,
    /// The lease has not moved for as long as it holds: its process hangs.
    Silent,
}

impl Reason {
    /// In words.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Self::First => "there is no leader yet",
            Self::Released => "the last leader ended well",
            Self::Dead => "the leader is dead",
            Self::Silent => "the leader is silent",
        }
    }
}

/// What a standby does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Looks again, soon.
    Wait,
    /// Tries to take over what it has seen.
    TakeOver(Reason),
}

/// What a standby remembers from look to look.
#[derive(Debug, Clone, Copy, Default)]
pub struct Watch {
    last: Option<Look>,
}

#[derive(Debug, Clone, Copy)]
struct Look {
    at: u64,
    seen: (i64, i64),
    /// Since when it has been seen so.
    since: u64,
}

impl Watch {
    /// Whether a free lock would say anything. A leader that took over from one that hangs has none, and lives.
    #[must_use]
    pub fn minds_the_lock(lease: Option<&Lease>) -> bool {
        lease.is_none_or(|lease| lease.is_locked || lease.is_released)
    }

    /// Looks. `now` is in milliseconds of a clock that is never set.
    pub fn look(&mut self, lease: Option<&Lease>, lock: Lock, now: u64) -> Decision {
        let Some(lease) = lease else {
            self.last = None;
            // Who has the lock without a lease is about to write one, or is of a version that has none: it cannot be fenced.
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
            // Whoever was held up himself has not watched: it may be that the whole machine stood still.
            Some(last) if last.seen == seen && now.saturating_sub(last.at) <= lease.ttl_ms / 2 => last.since,
            _ => now,
        };
        self.last = Some(Look { at: now, seen, since });
        if now.saturating_sub(since) >= lease.ttl_ms { Decision::TakeOver(Reason::Silent) } else { Decision::Wait }
    }
}

/// What a leader knows of its own lease.
#[derive(Debug, Clone, Copy)]
pub struct Tenure {
    ttl_ms: u64,
    renewed: u64,
    /// When it was seen to be ours, though it was not renewed.
    seen: u64,
}

impl Tenure {
    /// Renewals in the time after which others may take over: two may be late.
    const RENEWALS: u64 = 3;

    /// Taken over, or renewed for the first time, at `now`.
    #[must_use]
    pub fn new(ttl_ms: u64, now: u64) -> Self {
        Self { ttl_ms, renewed: now, seen: now }
    }

    /// Milliseconds between two renewals.
    #[must_use]
    pub fn every_ms(&self) -> u64 {
        (self.ttl_ms / Self::RENEWALS).max(1)
    }

    /// A renewal that began at `began` is on disk. What others have seen of it they saw after that.
    pub fn renewed(&mut self, began: u64) {
        self.renewed = self.renewed.max(began);
    }

    /// It is ours still at `now`: that was read.
    pub fn seen(&mut self, now: u64) {
        self.seen = self.seen.max(now);
    }

    /// Others may have taken over: the leader does not know, and has to look.
    #[must_use]
    pub fn is_doubtful(&self, now: u64) -> bool {
        now.saturating_sub(self.renewed) >= self.ttl_ms
    }

    /// It could be neither renewed nor read for two leases: the leader must take itself for deposed.
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
