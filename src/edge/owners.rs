//! Ownership of ids: a node's or worker's id belongs to a token, and no other token of its role may use it.

use super::Edge;
use super::auth::Caller;
use super::body::aside;
use super::error::Failure;
use crate::config::tokens::TokenKey;
use crate::domain::ids::PeerId;
use crate::protocol::problem::Problem;
use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, Instant};

/// Number of cached owners; beyond that, the store is asked again.
const MOST: usize = 100_000;

/// When a token owns the maximum number of ids, how long its ids are not counted again: cleanups release ids. For as long a broker that does not lead
/// takes an owner as it was.
const RECOUNT: Duration = Duration::from_secs(10);

/// The owner tokens of ids that have called.
#[derive(Debug, Clone, Default)]
pub struct Owners(Arc<RwLock<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// With the time at which it was known.
    by_peer: HashMap<PeerId, (TokenKey, Instant)>,
    /// Ids of each token that has claimed one. It may be too high: ids that were released are not subtracted.
    counts: HashMap<TokenKey, Count>,
}

#[derive(Debug, Clone, Copy)]
struct Count {
    ids: usize,
    at: Instant,
}

impl Owners {
    fn get(&self, peer: PeerId) -> Option<TokenKey> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).by_peer.get(&peer).map(|(owner, _)| *owner)
    }

    /// What was known a moment ago: a broker that does not lead is not notified when an id is released.
    fn lately(&self, peer: PeerId) -> Option<TokenKey> {
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        known.by_peer.get(&peer).filter(|(_, at)| at.elapsed() < RECOUNT).map(|(owner, _)| *owner)
    }

    fn set(&self, peer: PeerId, owner: TokenKey) {
        let known = &mut self.0.write().unwrap_or_else(PoisonError::into_inner).by_peer;
        if known.len() >= MOST {
            known.clear();
        }
        known.insert(peer, (owner, Instant::now()));
    }

    /// Removes the owner of an id: its node or its worker was removed.
    pub fn forget(&self, peer: PeerId) {
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        known.by_peer.remove(&peer);
        known.counts.clear();
    }

    fn count(&self, owner: TokenKey) -> Option<Count> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).counts.get(&owner).copied()
    }

    fn counted(&self, owner: TokenKey, ids: usize) {
        let count = Count { ids, at: Instant::now() };
        self.0.write().unwrap_or_else(PoisonError::into_inner).counts.insert(owner, count);
    }

    /// Counts a new id.
    fn count_one(&self, owner: TokenKey) {
        if let Some(count) = self.0.write().unwrap_or_else(PoisonError::into_inner).counts.get_mut(&owner) {
            count.ids += 1;
        }
    }
}

/// Claims this id for the caller's token, from now on. A broker that does not lead cannot store a claim: it accepts an id that no token has claimed.
///
/// # Errors
/// It belongs to another token.
pub async fn own(edge: &Edge, caller: &Caller, peer: PeerId) -> Result<(), Failure> {
    // An admin may act for every id and owns none; without tokens there are no owners.
    let Some(key) = caller.token else { return Ok(()) };
    if edge.service.is_owner() {
        return if edge.owners.lately(peer) == Some(key) { Ok(()) } else { may_speak_for(edge, caller, peer).await };
    }
    match edge.owners.get(peer) {
        Some(owner) if owner == key => return Ok(()),
        Some(owner) if edge.tokens.has(owner) => return Err(foreign(peer)),
        _ => {}
    }
    let (mine, others): (Vec<_>, Vec<_>) = edge.tokens.owners(&peer.to_string()).into_iter().partition(|(owner, _)| *owner == key);
    let Some((_, mine)) = mine.into_iter().next() else { return Err(Problem::unknown_token().into()) };
    let is_new = edge.service.owner_of(peer).await?.is_none_or(|stored| stored != mine);
    if is_new {
        may_own_more(edge, caller, key, peer).await?;
    }
    if !edge.service.claim_id(peer, mine, others.into_iter().map(|(_, owner)| owner).collect()).await? {
        return Err(foreign(peer));
    }
    if is_new {
        edge.owners.count_one(key);
    }
    edge.owners.set(peer, key);
    Ok(())
}

/// Checks that the token may own one more id. Each id leaves rows for weeks, so one token must not make them without a limit.
///
/// # Errors
/// It owns the maximum number.
async fn may_own_more(edge: &Edge, caller: &Caller, key: TokenKey, peer: PeerId) -> Result<(), Failure> {
    let most = edge.ids_per_token;
    let owned = match edge.owners.count(key) {
        Some(count) if count.ids < most || count.at.elapsed() < RECOUNT => count.ids,
        _ => {
            let (ids, tokens) = (edge.service.owned_ids().await?, edge.tokens.clone());
            // The stored value is an HMAC under the token, so whose it is can only be computed.
            let owns = move |id: &str, stored: &String| tokens.owner(key, id).as_ref() == Some(stored);
            let owned = aside(move || Ok(ids.iter().filter(|(id, stored)| owns(id, stored)).count())).await?;
            edge.owners.counted(key, owned);
            owned
        }
    };
    if owned < most {
        return Ok(());
    }
    log::warn!(
        "id refused because the token owns the maximum number peer={peer} token={} ids={owned}",
        caller.name.as_deref().unwrap_or("")
    );
    let detail = format!(
        "nodes and workers with this token have {most} ids, the maximum: use the id of an earlier start again, have an admin remove nodes or workers that are gone, or raise --ids-per-token"
    );
    Err(Problem::too_many(detail).into())
}

/// Checks that the caller may act for this id, which it did not claim by name. The owner does not change.
///
/// # Errors
/// It belongs to another token.
pub async fn may_speak_for(edge: &Edge, caller: &Caller, peer: PeerId) -> Result<(), Failure> {
    let Some(key) = caller.token else { return Ok(()) };
    let Some(stored) = edge.service.owner_of(peer).await? else { return Ok(()) };
    let id = peer.to_string();
    // Only a call for another token's id has to look at the other tokens.
    if edge.tokens.owner(key, &id).as_ref() == Some(&stored) {
        if edge.service.is_owner() {
            edge.owners.set(peer, key);
        }
        return Ok(());
    }
    if edge.tokens.owners(&id).iter().any(|(_, owner)| *owner == stored) { Err(foreign(peer)) } else { Ok(()) }
}

fn foreign(peer: PeerId) -> Failure {
    let kind = peer.kind();
    Problem::forbidden(format!(
        "the {kind}'s id {peer} belongs to another token: use an id of your own, or have an admin remove the {kind}"
    ))
    .into()
}
