//! The brokers of the database, and what this broker may do.

use super::Service;
use crate::actors::brokers::Role;
use crate::actors::reply::problem_of;
use crate::domain::time::Timestamp;
use crate::protocol::brokers::{BrokerOutput, BrokerRole};
use crate::protocol::problem::Problem;
use crate::store::{CountRunsByOwner, GetLease, ListBrokers, ListOwnerships};

/// A standby broker that is silent for this many lease durations is shown as gone.
const SILENT_LEASES: i64 = 3;

/// The address of another broker that leads, and its term.
fn leader_of(role: &Role) -> Option<(String, i64)> {
    match role {
        Role::Standby { leader: Some(leader), term, .. } => Some((leader.clone(), *term)),
        _ => None,
    }
}

impl Service {
    /// Checks that this broker is the leader. Only the leader can write and reach peers.
    ///
    /// # Errors
    /// This broker is a standby; the problem contains the address of the leader.
    pub fn must_lead(&self) -> Result<(), Problem> {
        match self.context.brokers.role() {
            Role::Leader { .. } => Ok(()),
            Role::Standby { leader, .. } => Err(Problem::standby(leader.as_deref())),
        }
    }

    /// Checks that no other broker can lead yet, or, at a broker that owns runs, that it could write them a moment ago. Otherwise agents and
    /// workers must get no answer.
    ///
    /// # Errors
    /// This broker cannot renew its lease, or cannot write.
    pub fn check_lease(&self) -> Result<(), Problem> {
        match self.context.brokers.is_doubtful() {
            false => Ok(()),
            true if self.context.leader.is_some() => Err(Problem::right_in_doubt()),
            true => Err(Problem::in_doubt()),
        }
    }

    /// The address at which others reach this broker.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.context.brokers.me.url
    }

    /// The address of the leader and its term, if another broker leads.
    #[must_use]
    pub fn leader(&self) -> Option<(String, i64)> {
        leader_of(&self.context.brokers.role())
    }

    /// Resolves when this leader does not lead any more. A machine without power closes no connection.
    pub fn is_replaced(&self, leader: (String, i64)) -> impl Future<Output = ()> + use<> {
        self.leader_is_not(Some(leader))
    }

    /// Resolves when another broker leads than `leader`; `None`: when any other broker leads.
    pub fn leader_is_not(&self, leader: Option<(String, i64)>) -> impl Future<Output = ()> + use<> {
        self.context.brokers.becomes(move |role| leader_of(role) != leader)
    }

    /// Checks that this broker can read the store.
    ///
    /// # Errors
    /// This broker is a standby, and its version is later than that of the leader's tables.
    pub fn can_read(&self) -> Result<(), Problem> {
        match self.context.brokers.role() {
            Role::Standby { leader, can_read: false, .. } => Err(Problem::standby(leader.as_deref())),
            _ => Ok(()),
        }
    }

    /// Whether this service belongs to the standby role of a broker that has become the leader with another service.
    #[must_use]
    pub fn makes_way(&self) -> bool {
        let brokers = &self.context.brokers;
        matches!(brokers.role(), Role::Standby { leader: Some(leader), .. } if leader == brokers.me.url)
    }

    /// The current and recent brokers, in the order of their starts.
    ///
    /// # Errors
    /// The store fails.
    pub async fn brokers(&self) -> Result<Vec<BrokerOutput>, Problem> {
        let lease = self.context.store.read(GetLease).await.map_err(|e| problem_of(&e))?;
        let stored = self.context.store.read(ListBrokers).await.map_err(|e| problem_of(&e))?;
        // A standby of a later version reads the tables of an earlier one.
        let (runs, owners) = match self.can_read() {
            Ok(()) => {
                let runs = self.context.store.read(CountRunsByOwner).await.map_err(|e| problem_of(&e))?;
                (runs, self.context.store.read(ListOwnerships).await.map_err(|e| problem_of(&e))?)
            }
            Err(_) => (Vec::new(), Vec::new()),
        };
        let runs_of = |owner| runs.iter().find(|(of, _)| *of == owner).map_or(0, |(_, count)| *count);
        let now = Timestamp::now();
        let brokers = stored.into_iter().map(|broker| {
            let lease = lease.as_ref().filter(|lease| lease.broker == broker.member.id && !lease.lease.is_released);
            let silent = now.since_ms(broker.last_seen) > SILENT_LEASES * self.context.lease_ms as i64;
            let role = match lease {
                Some(_) => BrokerRole::Leader,
                // A former leader has ended, or will end when it resumes.
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
                runs: runs_of(if lease.is_some() { None } else { Some(broker.member.id) }),
                executes: lease.is_some() || owners.iter().any(|right| right.broker == broker.member.id),
                started_at: broker.member.started_at,
                last_seen: lease.map_or(broker.last_seen, |lease| lease.renewed_at),
            }
        });
        Ok(brokers.collect())
    }

    /// Whether this broker is the leader, and the term of the current leader.
    pub(super) fn leadership(&self) -> (bool, i64) {
        match self.context.brokers.role() {
            Role::Leader { term } => (true, term),
            Role::Standby { term, .. } => (false, term),
        }
    }
}
