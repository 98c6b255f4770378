//! Which token owns an id.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::PeerId;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{ClaimId, OwnedIds, OwnerOf};

impl Service {
    /// The stored HMAC of the token that owns an id.
    ///
    /// # Errors
    /// The store fails.
    pub async fn owner_of(&self, peer: PeerId) -> Result<Option<String>, Problem> {
        self.context.store.read(OwnerOf(peer)).await.map_err(|e| problem_of(&e))
    }

    /// All ids that have an owner, each with its stored HMAC.
    ///
    /// # Errors
    /// The store fails.
    pub async fn owned_ids(&self) -> Result<Vec<(String, String)>, Problem> {
        self.context.store.read(OwnedIds).await.map_err(|e| problem_of(&e))
    }

    /// Assigns an id to a token, unless another configured token owns it. Returns whether the token owns it.
    ///
    /// # Errors
    /// The store fails.
    pub async fn claim_id(&self, peer: PeerId, owner: String, others: Vec<String>) -> Result<bool, Problem> {
        match self.owner_of(peer).await? {
            Some(stored) if stored == owner => Ok(true),
            Some(stored) if others.contains(&stored) => Ok(false),
            _ => {
                let claim = ClaimId { peer, owner, others, now: Timestamp::now() };
                self.context.store.write(claim).await.map_err(|e| problem_of(&e))
            }
        }
    }
}
