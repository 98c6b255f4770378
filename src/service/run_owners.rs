//! The brokers that execute runs for the leader.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run_owners::RunOwnersHandle;
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::job::JobKind;
use crate::protocol::brokers::{BrokerOutput, BrokerRole};
use crate::protocol::ownership::{Question, RunAnswer};
use crate::protocol::problem::Problem;
use crate::store::{GetRun, LinkSecret, ListBrokers};
use futures_util::future::join_all;
use std::time::Duration;
use subtle::ConstantTimeEq as _;
use tokio::time::timeout;

/// How long a list waits for the answer of another broker.
const OWNER_WITHIN: Duration = Duration::from_secs(1);

impl Service {
    /// At the leader: the answers of the other brokers that execute runs. One that does not answer in time is left out.
    pub(super) async fn ask_owners(&self, question: Question) -> Vec<(BrokerId, RunAnswer)> {
        if !self.leadership().0 {
            return Vec::new();
        }
        let asked = match timeout(OWNER_WITHIN, self.context.run_owners.ask(question).wait()).await {
            Ok(Ok(asked)) => asked,
            // The actor that knows them is being rebuilt.
            Ok(Err(_)) | Err(_) => return Vec::new(),
        };
        let answers = asked.into_iter().map(async |(broker, answer)| match timeout(OWNER_WITHIN, answer.wait()).await {
            Ok(Ok(answer)) => Some((broker, answer)),
            Ok(Err(_)) | Err(_) => None,
        });
        join_all(answers).await.into_iter().flatten().collect()
    }

    /// The brokers that own runs.
    #[must_use]
    pub fn owners(&self) -> &RunOwnersHandle {
        &self.context.run_owners
    }

    /// Checks the secret of another broker.
    ///
    /// # Errors
    /// This broker does not lead, or the secret is wrong.
    pub fn admit_owner(&self, secret: &[u8]) -> Result<(), Problem> {
        self.must_lead()?;
        if self.knows_secret(secret) { Ok(()) } else { Err(Problem::unknown_token()) }
    }

    /// Whether this is the secret by which leader and owners of runs recognize each other.
    #[must_use]
    pub fn knows_secret(&self, secret: &[u8]) -> bool {
        self.link_secret().is_some_and(|expected| !expected.is_empty() && bool::from(expected.as_bytes().ct_eq(secret)))
    }

    /// The secret by which leader and owners of runs recognize each other.
    #[must_use]
    pub fn link_secret(&self) -> Option<&str> {
        self.context.link_secret.as_deref()
    }

    /// The same secret as it is stored, for a standby. It never changes.
    ///
    /// # Errors
    /// The store fails, or no leader has stored one.
    pub async fn stored_link_secret(&self) -> Result<String, Problem> {
        let stored = self.context.store.read(LinkSecret).await.map_err(|e| problem_of(&e))?;
        stored.ok_or_else(|| Problem::busy("no leader has stored the secret of the brokers"))
    }

    /// Whether this broker owns runs and does not lead.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.context.leader.is_some()
    }

    /// Whether the actor of this block run is at this broker, or other brokers have no runs.
    #[must_use]
    pub fn executes(&self, identity: Identity) -> bool {
        !self.context.store.is_remote() || self.context.addresses.runs.get(identity).is_some()
    }

    /// Another broker that executes this block run, from its row.
    ///
    /// # Errors
    /// The store fails.
    pub async fn stored_owner(&self, identity: Identity) -> Result<Option<BrokerId>, Problem> {
        // Its actor is being built here.
        if self.context.addresses.building.get(identity).is_some() {
            return Ok(None);
        }
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        let owner = run.filter(|run| run.kind == JobKind::Block && !run.state.is_final()).and_then(|run| run.owner);
        Ok(owner.filter(|owner| *owner != self.context.brokers.me.id))
    }

    /// Whether this broker executes this block run, or has executed it to its end. `is_open`: a run that has ended does not count.
    ///
    /// # Errors
    /// The store fails.
    pub async fn has_executed(&self, identity: Identity, is_open: bool) -> Result<bool, Problem> {
        if self.executes(identity) || self.context.addresses.building.get(identity).is_some() {
            return Ok(true);
        }
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        Ok(run.is_some_and(|run| run.owner == Some(self.context.brokers.me.id) && !(is_open && run.state.is_final())))
    }

    /// The address of a broker.
    ///
    /// # Errors
    /// The store fails.
    pub async fn url_of_broker(&self, id: BrokerId) -> Result<Option<String>, Problem> {
        let brokers = self.context.store.read(ListBrokers).await.map_err(|e| problem_of(&e))?;
        Ok(brokers.into_iter().find(|broker| broker.member.id == id).map(|broker| broker.member.url))
    }

    /// Moves the runs of a broker to others; it gets no more until it is started again.
    ///
    /// # Errors
    /// There is no such broker, it leads, or it is not connected to the leader.
    pub async fn drain_broker(&self, id: BrokerId) -> Result<BrokerOutput, Problem> {
        let brokers = self.brokers().await?;
        let Some(broker) = brokers.into_iter().find(|broker| broker.id == id) else {
            return Err(Problem::not_found(format!("there is no broker {id}; GET /api/v1/brokers lists them")));
        };
        if broker.role == BrokerRole::Leader {
            let detail = "this broker leads: stop it, and another one takes over its runs";
            return Err(Problem::conflict("leads", detail));
        }
        self.context.run_owners.drain(id).wait().await?;
        Ok(broker)
    }
}
