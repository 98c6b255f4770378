//! The brokers of the database, and what this one may do.

use super::Service;
use crate::actors::brokers::Role;
use crate::actors::reply::problem_of;
use crate::domain::time::Timestamp;
use crate::protocol::brokers::{BrokerOutput, BrokerRole};
use crate::protocol::problem::Problem;
use crate::store::{GetLease, ListBrokers};

/// Leases without a sign after which a broker that stood by is shown as gone.
const SILENT_LEASES: i64 = 3;

impl Service {
    /// Whether this broker leads: else it can neither write nor reach anybody.
    ///
    /// # Errors
    /// It stands by; the problem names the leader.
    pub fn must_lead(&self) -> Result<(), Problem> {
        match self.context.brokers.role() {
            Role::Leader { .. } => Ok(()),
            Role::Standby { leader, .. } => Err(Problem::standby(leader.as_deref())),
        }
    }

    /// Whether what is stored can be read here.
    ///
    /// # Errors
    /// This broker stands by, and is of a later version than the leader's tables.
    pub fn can_read(&self) -> Result<(), Problem> {
        match self.context.brokers.role() {
            Role::Standby { leader, can_read: false, .. } => Err(Problem::standby(leader.as_deref())),
            _ => Ok(()),
        }
    }

    /// Whether this service is one of a broker that stood by, and leads by now from another.
    #[must_use]
    pub fn makes_way(&self) -> bool {
        let brokers = &self.context.brokers;
        matches!(brokers.role(), Role::Standby { leader: Some(leader), .. } if leader == brokers.me.url)
    }

    /// The brokers that are or were there lately, in the order of their starts.
    ///
    /// # Errors
    /// The store fails.
    pub async fn brokers(&self) -> Result<Vec<BrokerOutput>, Problem> {
        let lease = self.context.store.read(GetLease).await.map_err(|e| problem_of(&e))?;
        let stored = self.context.store.read(ListBrokers).await.map_err(|e| problem_of(&e))?;
        let now = Timestamp::now();
        let brokers = stored.into_iter().map(|broker| {
            let lease = lease.as_ref().filter(|lease| lease.broker == broker.member.id && !lease.lease.is_released);
            let silent = now.since_ms(broker.last_seen) > SILENT_LEASES * self.context.lease_ms as i64;
            let role = match lease {
                Some(_) => BrokerRole::Leader,
                // One that led and does not any more has ended, or will when it wakes up.
                None if broker.is_leader || silent => BrokerRole::Gone,
                None => BrokerRole::Standby,
            };
            BrokerOutput {
                id: broker.member.id,
                url: broker.member.url,
                version: broker.member.version,
                role,
                is_this: broker.member.id == self.context.brokers.me.id,
                term: lease.map(|lease| lease.lease.term),
                leads_since: lease.map(|lease| lease.since),
                started_at: broker.member.started_at,
                last_seen: lease.map_or(broker.last_seen, |lease| lease.renewed_at),
            }
        });
        Ok(brokers.collect())
    }

    /// Whether this broker leads, and the term of whoever does.
    pub(super) fn leadership(&self) -> (bool, i64) {
        match self.context.brokers.role() {
            Role::Leader { term } => (true, term),
            Role::Standby { term, .. } => (false, term),
        }
    }
}
