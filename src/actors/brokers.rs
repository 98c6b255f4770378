//! The current role of this broker: leader or standby. The program writes it and the service reads it.

use crate::domain::time::Timestamp;
use crate::store::Member;
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};
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

/// See the module documentation.
#[derive(Debug)]
pub struct Brokers {
    /// This broker.
    pub me: Member,
    role: watch::Sender<Role>,
    /// Until when no other broker can lead, by the monotonic clock.
    sole_until: AtomicI64,
    /// When the last doubt ended, by the monotonic clock.
    answers_since: AtomicI64,
}

impl Brokers {
    /// A broker with this role.
    #[must_use]
    pub fn new(me: Member, role: Role) -> Self {
        Self { me, role: watch::Sender::new(role), sole_until: AtomicI64::new(i64::MAX), answers_since: AtomicI64::new(0) }
    }

    /// The lease was renewed. If it is not renewed again, another broker may lead from this time on; `None`: no other broker is known, or
    /// the store is a file. At a broker that owns runs: another one may own them from this time on.
    pub fn renewed(&self, sole_until: Option<Timestamp>) {
        let before = self.sole_until.swap(sole_until.map_or(i64::MAX, |until| until.0), Relaxed);
        let now = Timestamp::steady();
        if now.0 >= before {
            self.answers_since.store(now.0, Relaxed);
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

    /// From when the silence of an agent or a worker counts that began at this time. In doubt this broker accepts nothing from them, so the
    /// time until it answers again does not count.
    #[must_use]
    pub fn counts_from(&self, silent_since: Timestamp) -> Timestamp {
        silent_since.max(Timestamp(self.answers_since.load(Relaxed)))
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

    #[test]
    fn a_leader_is_in_doubt_from_the_end_of_its_lease_if_there_are_others() {
        let me = Member { id: BrokerId::random(), url: String::new(), version: String::new(), started_at: Timestamp::now() };
        let brokers = Brokers::new(me, Role::Leader { term: 1 });
        let in_doubt = |until| {
            brokers.renewed(until);
            brokers.is_doubtful()
        };
        let now = Timestamp::steady();
        assert_eq!([Some(now.plus_ms(60_000)), Some(now)].map(in_doubt), [false, true]);
        let before = now.plus_ms(-1_000);
        assert_eq!(brokers.counts_from(before), before, "the doubt has not ended");
        assert_eq!([Some(now.plus_ms(60_000)), None].map(in_doubt), [false, false]);
        assert!(brokers.counts_from(before) >= now);
        let later = now.plus_ms(60_000);
        assert_eq!(brokers.counts_from(later), later);
        brokers.sole_at_most_until(now.plus_ms(60_000));
        assert!(!brokers.is_doubtful());
        brokers.renewed(Some(now));
        brokers.sole_at_most_until(now.plus_ms(60_000));
        assert!(brokers.is_doubtful(), "it gives no more time");
    }
}
