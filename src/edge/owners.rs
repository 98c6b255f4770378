//! Ownership of ids: a node's or worker's id belongs to a token, and no other token of its role may use it.

use super::Edge;
use super::auth::Caller;
use super::error::Failure;
use crate::config::tokens::TokenKey;
use crate::domain::ids::PeerId;
use crate::protocol::problem::Problem;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};

/// Number of cached owners; beyond that, the store is asked again.
const MOST: usize = 100_000;

/// The owner tokens of ids that have called.
#[derive(Debug, Clone, Default)]
pub struct Owners(Arc<RwLock<HashMap<PeerId, TokenKey>>>);

impl Owners {
    fn get(&self, peer: PeerId) -> Option<TokenKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).get(&peer).copied()
    }

    fn set(&self, peer: PeerId, owner: TokenKey) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(peer, owner);
    }

    /// Removes the owner of an id: its node or its worker was removed.
    pub fn forget(&self, peer: PeerId) {
        self.0.write().unwrap_or_else(PoisonError::into_inner).remove(&peer);
    }
}

/// Claims this id for the caller's token, from now on.
///
/// # Errors
/// It belongs to another token.
pub async fn own(edge: &Edge, caller: &Caller, peer: PeerId) -> Result<(), Failure> {
    // An admin may act for every id and owns none; without tokens there are no owners.
    let Some(key) = caller.token else { return Ok(()) };
    match edge.owners.get(peer) {
        Some(owner) if owner == key => return Ok(()),
        Some(owner) if edge.tokens.has(owner) => return Err(foreign(peer)),
        _ => {}
    }
    let (mine, others): (Vec<_>, Vec<_>) = edge.tokens.owners(&peer.to_string()).into_iter().partition(|(owner, _)| *owner == key);
    let Some((_, mine)) = mine.into_iter().next() else { return Err(Problem::unknown_token().into()) };
    if !edge.service.claim_id(peer, mine, others.into_iter().map(|(_, owner)| owner).collect()).await? {
        return Err(foreign(peer));
    }
    edge.owners.set(peer, key);
    Ok(())
}

/// Checks that the caller may act for this id, which it did not claim by name. The owner does not change.
///
/// # Errors
/// It belongs to another token.
pub async fn may_speak_for(edge: &Edge, caller: &Caller, peer: PeerId) -> Result<(), Failure> {
    let Some(key) = caller.token else { return Ok(()) };
    let Some(stored) = edge.service.owner_of(peer).await? else { return Ok(()) };
    let owner = edge.tokens.owners(&peer.to_string()).into_iter().find(|(_, owner)| *owner == stored);
    if owner.is_none_or(|(owner, _)| owner == key) { Ok(()) } else { Err(foreign(peer)) }
}

fn foreign(peer: PeerId) -> Failure {
    let kind = peer.kind();
    Problem::forbidden(format!(
        "the {kind}'s id {peer} belongs to another token: use an id of your own, or have an admin remove the {kind}"
    ))
    .into()
}
