//! The brokers that execute runs for the leader.

use super::Service;
use crate::actors::run_owners::RunOwnersHandle;
use crate::domain::ids::BrokerId;
use crate::protocol::brokers::{BrokerOutput, BrokerRole};
use crate::protocol::problem::Problem;
use subtle::ConstantTimeEq as _;

impl Service {
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
        let expected = self.context.link_secret.as_deref().unwrap_or_default().as_bytes();
        if !expected.is_empty() && bool::from(expected.ct_eq(secret)) { Ok(()) } else { Err(Problem::unknown_token()) }
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
