//! The current role of this broker: leader or standby. The program writes it and the service reads it.

use crate::domain::time::Timestamp;
use crate::store::Member;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use tokio::sync::watch;

/// The role of a broker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Role {
    /// This broker is the leader.
    Leader {
        /// Increased by one with each new leader.
        term: i64,
    },
    /// Another broker is the leader.
    Standby {
        /// Address of the leader for clients, if there is a leader.
        leader: Option<String>,
        /// The term of the leader.
        term: i64,
        /// The database schema matches this program, so this broker can read the tables.
        can_read: bool,
    },
}

/// A broker remembers this many doubts: more than there are during the silence after which an agent or a worker is lost.
const DOUBTS: usize = 1_000;

/// See the module documentation.
#[derive(Debug)]
pub struct Brokers {
    /// This broker.
    pub me: Member,
    role: watch::Sender<Role>,
    /// Until when no other broker can lead, by the monotonic clock.
    sole_until: AtomicI64,
    /// The doubts that have ended, with their beginning and end by the monotonic clock: the oldest first.
    doubts: Mutex<VecDeque<(i64, i64)>>,
}

impl Brokers {
    /// A broker with this role.
    #[must_use]
    pub fn new(me: Member, role: Role) -> Self {
        Self { me, role: watch::Sender::new(role), sole_until: AtomicI64::new(i64::MAX), doubts: Mutex::default() }
    }

    /// The lease was renewed. If it is not renewed again, another broker may lead from this time on; `None`: no other broker is known, or
    /// the store is a file. At a broker that owns runs: another one may own them from this time on.
    pub fn renewed(&self, sole_until: Option<Timestamp>) {
        self.renewed_at(Timestamp::steady(), sole_until);
    }

    fn renewed_at(&self, Timestamp(now): Timestamp, sole_until: Option<Timestamp>) {
        // Locked first: a thread that finds no doubt any more must find this one among those that have ended.
        let mut doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        // If the new lease has run out, too, another doubt begins where this one ends.
        let before = self.sole_until.swap(sole_until.map_or(i64::MAX, |until| until.0.max(now)), Relaxed);
        if now > before {
            doubts.push_back((before, now));
            if doubts.len() > DOUBTS {
                doubts.pop_front();
            }
        }
    }

    /// Another broker may own the runs of this one from this time on, or earlier if that is known.
    pub fn sole_at_most_until(&self, until: Timestamp) {
        self.sole_until.fetch_min(until.0, Relaxed);
    }

    /// Whether another broker may lead already, as this one has not renewed its lease in time. Then it must answer no agent and no worker: these would
    /// keep what the other broker gives to others.
    #[must_use]
    pub fn is_doubtful(&self) -> bool {
        Timestamp::steady().0 >= self.sole_until.load(Relaxed)
    }

    /// Adds the time in which this broker was in doubt to the time at which the silence of an agent or a worker began. In doubt the broker
    /// accepts nothing from them, so that time does not count as silence.
    #[must_use]
    pub fn without_doubts(&self, silent_since: Timestamp) -> Timestamp {
        let doubts = self.doubts.lock().unwrap_or_else(PoisonError::into_inner);
        let later = doubts.iter().rev().map_while(|(began, ended)| Some(ended - silent_since.0.max(*began)).filter(|ms| *ms > 0));
        silent_since.plus_ms(later.sum())
    }

    /// The current role.
    #[must_use]
    pub fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    /// Resolves when the role is one for which this is true.
    pub fn becomes<F: FnMut(&Role) -> bool>(&self, is_it: F) -> impl Future<Output = ()> + use<F> {
        let mut role = self.role.subscribe();
        async move {
            // Without a sender this broker has no role any more.
            let _ = role.wait_for(is_it).await;
        }
    }

    /// Sets the role and returns whether it changed.
    pub fn set(&self, role: Role) -> bool {
        self.role.send_if_modified(|present| {
            let is_new = *present != role;
            *present = role;
            is_new
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::BrokerId;

    fn leader() -> Brokers {
        let me = Member { id: BrokerId::random(), url: String::new(), version: String::new(), started_at: Timestamp::now() };
        Brokers::new(me, Role::Leader { term: 1 })
    }

    #[test]
    fn silence_counts_without_the_doubts_of_the_broker() {
        let (brokers, t) = (leader(), Timestamp);
        brokers.renewed_at(t(0), Some(t(5_000)));
        assert_eq!(brokers.without_doubts(t(1_000)), t(1_000));
        // Renewed too late, and with a lease that has run out already: in doubt from 5,000 to 9,000.
        brokers.renewed_at(t(6_000), Some(t(5_500)));
        brokers.renewed_at(t(9_000), Some(t(11_000)));
        // In time, then too late.
        brokers.renewed_at(t(10_000), Some(t(15_000)));
        brokers.renewed_at(t(17_000), None);
        let expected =
            [(1_000, 7_000), (5_000, 11_000), (6_500, 11_000), (9_000, 11_000), (16_000, 17_000), (17_000, 17_000), (20_000, 20_000)];
        for (silent_since, counts_from) in expected {
            assert_eq!(brokers.without_doubts(t(silent_since)), t(counts_from), "{silent_since}");
        }
    }

    #[test]
    fn a_leader_is_in_doubt_from_the_end_of_its_lease_if_there_are_others() {
        let brokers = leader();
        let in_doubt = |until| {
            brokers.renewed(until);
            brokers.is_doubtful()
        };
        let now = Timestamp::steady();
        assert_eq!([Some(now.plus_ms(60_000)), Some(now)].map(in_doubt), [false, true]);
        assert_eq!([Some(now.plus_ms(60_000)), None].map(in_doubt), [false, false]);
        brokers.sole_at_most_until(now.plus_ms(60_000));
        assert!(!brokers.is_doubtful());
        brokers.renewed(Some(now));
        brokers.sole_at_most_until(now.plus_ms(60_000));
        assert!(brokers.is_doubtful(), "it gives no more time");
    }
}
