//! Who gets work: matches nodes that have room with runs that have blocks.
//!
//! Runs are taken by priority, the highest first; among equals the one that has had the fewest blocks (seed 002's
//! *Priority desc, BlockTimes asc*). A run that comes later would be served alone until it had caught up with the
//! others, so it starts level with the least served of them (the start rule of fair queueing: Goyal, Vin and Cheng,
//! *Start-time fair queueing*, 1996). Nodes are taken by room, the emptiest first.

use super::ids::{Identity, NodeId};
use super::node::NodeFacts;
use std::collections::{BTreeSet, HashMap};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RunKey {
    // Reversed, so that the highest priority comes first.
    minus_priority: i64,
    served: u64,
    identity: Identity,
}

#[derive(Debug)]
struct RunSlot {
    key: RunKey,
    ready: usize,
    node_group: Option<String>,
    os: Option<String>,
}

#[derive(Debug)]
struct NodeSlot {
    facts: NodeFacts,
    free: u32,
    open: bool,
}

/// One decision: this run is to hand one block to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The run.
    pub run: Identity,
    /// The node.
    pub node: NodeId,
}

/// The state that decisions are made from.
#[derive(Debug, Default)]
pub struct Matchmaker {
    runs: HashMap<Identity, RunSlot>,
    /// Runs that have something ready, in the order in which they are served.
    waiting: BTreeSet<RunKey>,
    nodes: HashMap<NodeId, NodeSlot>,
    /// Nodes that have room and take work.
    idle: BTreeSet<(std::cmp::Reverse<u32>, NodeId)>,
}

impl Matchmaker {
    /// A run has this many blocks ready. It is made known by this, and renewed.
    pub fn run_ready(&mut self, identity: Identity, priority: i32, ready: usize, node_group: Option<&str>, os: Option<&str>) {
        let minus_priority = -i64::from(priority);
        let level = self.level(minus_priority);
        let slot = self.runs.entry(identity).or_insert_with(|| RunSlot {
            key: RunKey { minus_priority, served: level, identity },
            ready: 0,
            node_group: node_group.map(str::to_owned),
            os: os.map(str::to_owned),
        });
        self.waiting.remove(&slot.key);
        if slot.ready == 0 {
            // It may have rested: what it did not use it does not get back.
            slot.key.served = slot.key.served.max(level);
        }
        slot.key.minus_priority = minus_priority;
        slot.ready = ready;
        if ready > 0 {
            self.waiting.insert(slot.key);
        }
    }

    /// The least that a waiting run of this priority has been served.
    fn level(&self, minus_priority: i64) -> u64 {
        self.waiting.iter().filter(|key| key.minus_priority == minus_priority).map(|key| key.served).next().unwrap_or(0)
    }

    /// A run is over, or its actor is.
    pub fn run_gone(&mut self, identity: Identity) {
        if let Some(slot) = self.runs.remove(&identity) {
            self.waiting.remove(&slot.key);
        }
    }

    /// A node is there, or what is known of it has changed. `open`: it takes work that is sent to it.
    pub fn node_changed(&mut self, facts: NodeFacts, free: u32, open: bool) {
        self.node_gone(facts.node_id);
        if open && free > 0 {
            self.idle.insert((std::cmp::Reverse(free), facts.node_id));
        }
        self.nodes.insert(facts.node_id, NodeSlot { facts, free, open });
    }

    /// A node has this much room.
    pub fn node_free(&mut self, node: NodeId, free: u32) {
        let Some(slot) = self.nodes.get_mut(&node) else { return };
        self.idle.remove(&(std::cmp::Reverse(slot.free), node));
        slot.free = free;
        if slot.open && free > 0 {
            self.idle.insert((std::cmp::Reverse(free), node));
        }
    }

    /// A block has left a node: it has room for one more.
    pub fn credit(&mut self, node: NodeId) {
        if let Some(slot) = self.nodes.get(&node) {
            let free = (slot.free + 1).min(slot.facts.max_process_count);
            self.node_free(node, free);
        }
    }

    /// A node is gone.
    pub fn node_gone(&mut self, node: NodeId) {
        if let Some(slot) = self.nodes.remove(&node) {
            self.idle.remove(&(std::cmp::Reverse(slot.free), node));
        }
    }

    /// Blocks that are ready in all.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.runs.values().map(|run| run.ready).sum()
    }

    /// The next decision, if there is one. It is counted as carried out: one place less at the node, one block less in
    /// the run.
    pub fn next_grant(&mut self) -> Option<Grant> {
        if self.waiting.is_empty() {
            return None;
        }
        let grant = self
            .idle
            .iter()
            .find_map(|(_, node)| self.first_run_for(&self.nodes.get(node)?.facts, &[]).map(|run| Grant { run, node: *node }))?;
        let free = self.nodes.get(&grant.node).map_or(0, |slot| slot.free);
        self.node_free(grant.node, free.saturating_sub(1));
        self.serve(grant.run);
        Some(grant)
    }

    /// The run that a node which asks should have a block of; those that it names are left out. Counted as carried out.
    pub fn pull(&mut self, facts: &NodeFacts, without: &[Identity]) -> Option<Identity> {
        let run = self.first_run_for(facts, without)?;
        self.serve(run);
        Some(run)
    }

    fn first_run_for(&self, facts: &NodeFacts, without: &[Identity]) -> Option<Identity> {
        self.waiting.iter().map(|key| key.identity).find(|identity| {
            !without.contains(identity)
                && self.runs.get(identity).is_some_and(|run| facts.in_group(run.node_group.as_deref()) && facts.has_os(run.os.as_deref()))
        })
    }

    fn serve(&mut self, identity: Identity) {
        let Some(slot) = self.runs.get_mut(&identity) else { return };
        self.waiting.remove(&slot.key);
        slot.key.served += 1;
        slot.ready -= 1;
        if slot.ready > 0 {
            self.waiting.insert(slot.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use uuid::Uuid;

    fn run(n: u128) -> Identity {
        Identity(Uuid::from_u128(n))
    }

    fn facts(n: u128, group: &str, os: &str) -> NodeFacts {
        NodeFacts {
            node_id: NodeId(Uuid::from_u128(n)),
            node_type: "Console".into(),
            ip_address: "127.0.0.1".into(),
            processor_count: 1,
            group: group.into(),
            operating_system: os.into(),
            memory: 1,
            max_process_count: 5,
            max_programs: None,
        }
    }

    fn grants(matchmaker: &mut Matchmaker, most: usize) -> Vec<u128> {
        std::iter::from_fn(|| matchmaker.next_grant()).take(most).map(|g| g.run.0.as_u128()).collect()
    }

    #[test]
    fn priority_first_then_fairly() {
        let mut m = Matchmaker::default();
        m.node_changed(facts(1, "default", "linux"), 100, true);
        m.run_ready(run(1), 0, 50, None, None);
        m.run_ready(run(2), 0, 50, None, None);
        m.run_ready(run(3), 7, 2, None, None);
        let order = grants(&mut m, 22);
        assert_eq!(order[..2], [3, 3]);
        assert_eq!(order[2..].iter().filter(|r| **r == 1).count(), 10, "{order:?}");
        // One that comes late is not served alone until it has caught up.
        m.run_ready(run(4), 0, 50, None, None);
        let order = grants(&mut m, 9);
        for n in [1, 2, 4] {
            assert_eq!(order.iter().filter(|r| **r == n).count(), 3, "{order:?}");
        }
    }

    #[test]
    fn the_emptiest_node_first_and_never_more_than_it_has_room_for() {
        let mut m = Matchmaker::default();
        m.node_changed(facts(1, "a", "linux"), 1, true);
        m.node_changed(facts(2, "a", "linux"), 3, true);
        m.node_changed(facts(3, "a", "linux"), 9, false);
        m.run_ready(run(1), 0, 50, None, None);
        let nodes: Vec<u128> = std::iter::from_fn(|| m.next_grant()).map(|g| g.node.0.as_u128()).collect();
        assert_eq!(nodes.len(), 4);
        assert_eq!(nodes[..2], [2, 2], "{nodes:?}");
        m.node_free(NodeId(Uuid::from_u128(1)), 1);
        assert_eq!(grants(&mut m, 9), [1]);
    }

    #[test]
    fn group_and_system_are_asked_for_without_case() {
        let mut m = Matchmaker::default();
        m.node_changed(facts(1, "vps_redial", "Debian Linux 12"), 5, true);
        m.run_ready(run(1), 9, 5, Some("InHouse"), None);
        m.run_ready(run(2), 5, 5, None, Some("windows"));
        m.run_ready(run(3), 0, 1, Some("VPS_Redial"), Some("linux"));
        assert_eq!(grants(&mut m, 9), [3]);
        m.run_ready(run(4), 0, 2, None, None);
        assert_eq!(m.pull(&facts(2, "inhouse", "linux"), &[run(1)]), Some(run(4)));
        assert_eq!(m.pull(&facts(2, "inhouse", "linux"), &[]), Some(run(1)));
    }

    #[test]
    fn who_is_gone_gets_nothing() {
        let mut m = Matchmaker::default();
        m.node_changed(facts(1, "a", "linux"), 5, true);
        m.run_ready(run(1), 0, 5, None, None);
        m.run_gone(run(1));
        assert_eq!(grants(&mut m, 9), [] as [u128; 0]);
        m.run_ready(run(1), 0, 5, None, None);
        m.node_gone(NodeId(Uuid::from_u128(1)));
        assert_eq!(grants(&mut m, 9), [] as [u128; 0]);
    }
}
