//! Index of the runs that have work at a node or a worker. Events of a node or a worker go only to those runs, so the cost does
//! not depend on the number of open runs.

use super::context::AddressBook;
use super::leader_link::LeaderLink;
use crate::domain::ids::{Identity, NodeId, WorkerId};
use crate::protocol::block_runs::FromBlockRun;
use crate::protocol::ownership::ToLeader;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Runs by peer. Each run maintains its own entries through an [`Involved`].
#[derive(Debug)]
pub struct RunsByPeer<K>(Mutex<HashMap<K, HashSet<Identity>>>);

impl<K> Default for RunsByPeer<K> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<K: Eq + Hash + Copy> RunsByPeer<K> {
    fn inner(&self) -> MutexGuard<'_, HashMap<K, HashSet<Identity>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn enter(&self, peer: K, run: Identity) {
        self.inner().entry(peer).or_default().insert(run);
    }

    fn leave(&self, peer: K, run: Identity) {
        let mut inner = self.inner();
        if let Some(runs) = inner.get_mut(&peer) {
            runs.remove(&run);
            if runs.is_empty() {
                inner.remove(&peer);
            }
        }
    }

    /// Number of runs that have work at this peer.
    #[must_use]
    pub fn count(&self, peer: K) -> u32 {
        self.inner().get(&peer).map_or(0, |runs| runs.len() as u32)
    }

    /// The runs that have work at this peer.
    #[must_use]
    pub fn of(&self, peer: K) -> Vec<Identity> {
        self.inner().get(&peer).into_iter().flatten().copied().collect()
    }
}

/// The peers where one run has work. Dropping it, with the run's actor, removes the run from the index.
#[derive(Debug)]
pub struct Involved {
    addresses: Arc<AddressBook>,
    /// At a broker that owns runs: the leader has the same index.
    leader: Option<LeaderLink>,
    run: Identity,
    nodes: HashSet<NodeId>,
    /// Nodes without work that the leader still lists for the run. Most of them get a block again soon.
    no_longer_at: HashSet<NodeId>,
    /// Usually few, so a list is smaller than a set; most tasks have one worker.
    workers: Vec<WorkerId>,
}

impl Involved {
    /// An empty set of peers for a run.
    #[must_use]
    pub fn new(addresses: &Arc<AddressBook>, leader: Option<LeaderLink>, run: Identity) -> Self {
        Self { addresses: Arc::clone(addresses), leader, run, nodes: HashSet::new(), no_longer_at: HashSet::new(), workers: Vec::new() }
    }

    /// Sends the leader all peers: there is a new connection, or the dispatcher was rebuilt.
    pub fn announce(&mut self) {
        self.send_no_longer_at();
        self.nodes.iter().for_each(|node| self.tell_leader(FromBlockRun::AtNode { node_id: *node, is_there: true }));
        self.workers.iter().for_each(|worker| self.tell_leader(FromBlockRun::AtWorker { worker_id: *worker, is_there: true }));
    }

    fn tell_leader(&self, message: FromBlockRun) {
        self.leader.iter().for_each(|leader| leader.send(ToLeader::OfRun { run_id: self.run, message: message.clone() }));
    }

    /// The run has work at this node.
    pub fn add_node(&mut self, node: NodeId) {
        if self.nodes.insert(node) {
            self.addresses.runs_by_node.enter(node, self.run);
            if !self.no_longer_at.remove(&node) {
                self.tell_leader(FromBlockRun::AtNode { node_id: node, is_there: true });
            }
        }
    }

    /// The run has no more work at this node. [`Self::send_no_longer_at`] sends this to the leader.
    pub fn remove_node(&mut self, node: NodeId) {
        if self.nodes.remove(&node) {
            self.addresses.runs_by_node.leave(node, self.run);
            if self.leader.is_some() {
                self.no_longer_at.insert(node);
            }
        }
    }

    /// Sends the leader the nodes where the run has no more work. To be called once a second.
    pub fn send_no_longer_at(&mut self) {
        for node_id in std::mem::take(&mut self.no_longer_at) {
            self.tell_leader(FromBlockRun::AtNode { node_id, is_there: false });
        }
    }

    /// The run has work at this worker.
    pub fn add_worker(&mut self, worker: WorkerId) {
        if !self.workers.contains(&worker) {
            self.workers.push(worker);
            self.addresses.runs_by_worker.enter(worker, self.run);
            self.tell_leader(FromBlockRun::AtWorker { worker_id: worker, is_there: true });
        }
    }

    /// The run has no more work at this worker.
    pub fn remove_worker(&mut self, worker: WorkerId) {
        if let Some(place) = self.workers.iter().position(|known| *known == worker) {
            self.workers.swap_remove(place);
            self.addresses.runs_by_worker.leave(worker, self.run);
            self.tell_leader(FromBlockRun::AtWorker { worker_id: worker, is_there: false });
        }
    }
}

impl Drop for Involved {
    fn drop(&mut self) {
        for node in &self.nodes {
            self.addresses.runs_by_node.leave(*node, self.run);
        }
        for worker in &self.workers {
            self.addresses.runs_by_worker.leave(*worker, self.run);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    #[test]
    fn the_leader_learns_once_a_second_where_a_run_has_nothing() {
        let (leader, mut sent) = LeaderLink::new();
        let (node, other) = (NodeId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let mut involved = Involved::new(&Arc::default(), Some(leader), Identity(Uuid::from_u128(4)));
        let mut sent = move || {
            std::iter::from_fn(|| sent.try_recv().ok())
                .map(|outgoing| match outgoing.message {
                    ToLeader::OfRun { message: FromBlockRun::AtNode { node_id, is_there }, .. } => (node_id, is_there),
                    other => panic!("{other:?}"),
                })
                .collect::<Vec<_>>()
        };
        involved.add_node(node);
        involved.remove_node(node);
        involved.add_node(node);
        involved.add_node(other);
        involved.send_no_longer_at();
        assert_eq!(sent(), [(node, true), (other, true)], "it has work at both");
        involved.remove_node(node);
        assert_eq!(sent(), []);
        involved.send_no_longer_at();
        involved.send_no_longer_at();
        assert_eq!(sent(), [(node, false)]);
        involved.add_node(node);
        assert_eq!(sent(), [(node, true)]);
        involved.remove_node(node);
        involved.announce();
        assert_eq!(sent(), [(node, false), (other, true)], "the connection may be the same one");
    }

    #[test]
    fn a_run_is_listed_where_it_has_something_and_nowhere_after_its_end() {
        let addresses = Arc::new(AddressBook::default());
        let (node, other) = (NodeId(Uuid::from_u128(1)), NodeId(Uuid::from_u128(2)));
        let worker = WorkerId(Uuid::from_u128(3));
        let run = Identity(Uuid::from_u128(4));
        let mut involved = Involved::new(&addresses, None, run);
        involved.add_node(node);
        involved.add_node(other);
        involved.add_node(node);
        involved.add_worker(worker);
        assert_eq!(addresses.runs_by_node.of(node), [run]);
        assert_eq!(addresses.runs_by_worker.of(worker), [run]);
        involved.remove_node(node);
        assert_eq!(addresses.runs_by_node.of(node), []);
        assert_eq!(addresses.runs_by_node.of(other), [run]);
        drop(involved);
        assert!(addresses.runs_by_node.inner().is_empty() && addresses.runs_by_worker.inner().is_empty());
    }
}
