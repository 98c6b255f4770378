//! Which agent owns the id of a node: at most one at a time, for as long as it is connected.

use crate::domain::ids::NodeId;
use crate::domain::node::Instance;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct NodeOwners(Mutex<HashMap<NodeId, Owner>>);

#[derive(Debug)]
struct Owner {
    /// `None` if the agent sends no instance; then the latest agent to connect owns the id.
    instance: Option<Instance>,
    /// The number of its session.
    session: u64,
    address: String,
}

impl NodeOwners {
    /// Claims the id for an agent that connects. The error is the address of the connected agent that owns the id.
    ///
    /// # Errors
    /// Another connected agent owns the id.
    pub fn claim(&self, id: NodeId, instance: Option<Instance>, session: u64, address: &str) -> Result<(), String> {
        let mut owners = self.owners();
        if let (Some(owner), Some(new)) = (owners.get(&id), instance)
            && owner.instance.is_some_and(|old| !new.continues(old.id))
        {
            return Err(owner.address.clone());
        }
        owners.insert(id, Owner { instance, session, address: address.to_owned() });
        Ok(())
    }

    /// Releases the id if this session owns it.
    pub fn release(&self, id: NodeId, session: u64) {
        let mut owners = self.owners();
        if owners.get(&id).is_some_and(|owner| owner.session == session) {
            owners.remove(&id);
        }
    }

    /// Removes the owner of a deleted node: the next agent gets the id.
    pub fn forget(&self, id: NodeId) {
        self.owners().remove(&id);
    }

    fn owners(&self) -> std::sync::MutexGuard<'_, HashMap<NodeId, Owner>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn one_agent_has_the_id() {
        let (owners, id) = (NodeOwners::default(), NodeId::random());
        let first = Instance { id: Uuid::new_v4(), after: None };
        let other = Instance { id: Uuid::new_v4(), after: None };
        assert_eq!(owners.claim(id, Some(first), 1, "10.0.0.1"), Ok(()));
        assert_eq!(owners.claim(id, Some(other), 2, "10.0.0.2"), Err("10.0.0.1".to_owned()));
        assert_eq!(owners.claim(NodeId::random(), Some(other), 3, "10.0.0.2"), Ok(()), "another id");
        // The connection broke without the broker noticing, and the agent restarted in the same folder.
        assert_eq!(owners.claim(id, Some(first), 4, "10.0.0.1"), Ok(()));
        let again = Instance { id: Uuid::new_v4(), after: Some(first.id) };
        assert_eq!(owners.claim(id, Some(again), 5, "10.0.0.1"), Ok(()));
        assert!(owners.claim(id, Some(first), 6, "10.0.0.3").is_err(), "a copy of its folder");
        owners.release(id, 4);
        assert!(owners.claim(id, Some(other), 7, "10.0.0.2").is_err(), "an old session ended");
        owners.release(id, 5);
        assert_eq!(owners.claim(id, Some(other), 8, "10.0.0.2"), Ok(()));
        // An agent that sends no instance always gets the id.
        assert_eq!(owners.claim(id, None, 9, "10.0.0.4"), Ok(()));
        assert_eq!(owners.claim(id, Some(first), 10, "10.0.0.1"), Ok(()));
        owners.forget(id);
        assert_eq!(owners.claim(id, Some(other), 11, "10.0.0.2"), Ok(()));
    }
}
