//! Matches nodes that have free slots with runs that have ready blocks.
//!
//! Runs are served by priority, highest first; within a priority the run with the fewest dispatched blocks comes first (seed 002's
//! *Priority desc, BlockTimes asc*). A later run would be served alone until it had caught up with the others, so it
//! starts level with the least served of them (the start rule of fair queueing: Goyal, Vin and Cheng, *Start-time fair
//! queueing*, 1996). Nodes are served by free slots, the emptiest first.
//!
//! Runs with the same requirements for a node (group and operating system) share a *demand*, which keeps its suitable idle nodes in
//! order. So a change of a node or a run costs only the demands concerned, never nodes times runs.

use super::ids::{Identity, NodeId};
use super::node::{NodeFacts, SlotKind};
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RunKey {
    // Negated so that the highest priority sorts first.
    minus_priority: i64,
    served: u64,
    identity: Identity,
}

#[derive(Debug)]
struct RunSlot {
    key: RunKey,
    ready: usize,
    demand: DemandNo,
}

/// An idle node, in serving order.
type Idle = (Reverse<u32>, NodeId);

#[derive(Debug)]
struct NodeSlot {
    facts: Arc<NodeFacts>,
    free: u32,
    open: bool,
}

impl NodeSlot {
    /// Its position among the idle nodes, if it accepts work and has a free slot.
    fn idle(&self) -> Option<Idle> {
        (self.open && self.free > 0).then_some((Reverse(self.free), self.facts.node_id))
    }
}

/// The number of a demand; numbers are never reused.
type DemandNo = u64;

/// The requirements that some runs have for a node. Kept while such a run exists.
#[derive(Debug, Default)]
struct Demand {
    /// In lower case.
    node_group: Option<String>,
    /// In lower case.
    os: Option<String>,
    runs: usize,
    /// Its runs with ready blocks, in serving order.
    waiting: BTreeSet<RunKey>,
    /// Idle nodes that meet it.
    idle: BTreeSet<Idle>,
    /// Its current entry in [`Matchmaker::possible`].
    possible: Option<Idle>,
}

/// One decision: this run dispatches one block to this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The run.
    pub run: Identity,
    /// The node.
    pub node: NodeId,
}

/// The state for decisions about one kind of slot.
#[derive(Debug)]
pub struct Matchmaker {
    slot_kind: SlotKind,
    runs: HashMap<Identity, RunSlot>,
    /// Runs with ready blocks, in serving order.
    waiting: BTreeSet<RunKey>,
    nodes: HashMap<NodeId, NodeSlot>,
    /// Idle nodes by lower-case group: the initial set for a new demand.
    idle_by_group: HashMap<String, BTreeSet<Idle>>,
    demands: HashMap<DemandNo, Demand>,
    /// Demands by required group.
    demands_by_group: HashMap<Option<String>, Vec<DemandNo>>,
    last_demand: DemandNo,
    /// Demands with a waiting run and an idle node, by their first node.
    possible: BTreeSet<(Idle, DemandNo)>,
    /// Number of demands and nodes examined, for a test that bounds it.
    #[cfg(test)]
    examined: std::cell::Cell<u64>,
}

impl Matchmaker {
    /// A matchmaker without nodes and runs.
    #[must_use]
    pub fn new(slot_kind: SlotKind) -> Self {
        Self {
            slot_kind,
            runs: HashMap::new(),
            waiting: BTreeSet::new(),
            nodes: HashMap::new(),
            idle_by_group: HashMap::new(),
            demands: HashMap::new(),
            demands_by_group: HashMap::new(),
            last_demand: 0,
            possible: BTreeSet::new(),
            #[cfg(test)]
            examined: std::cell::Cell::default(),
        }
    }

    /// Whether the run is registered.
    #[must_use]
    pub fn has_run(&self, run: Identity) -> bool {
        self.runs.contains_key(&run)
    }

    /// A run has this many blocks ready. Registers or updates the run.
    pub fn run_ready(&mut self, identity: Identity, priority: i32, ready: usize, node_group: Option<&str>, os: Option<&str>) {
        let minus_priority = -i64::from(priority);
        let least_served = self.least_served(minus_priority);
        if !self.runs.contains_key(&identity) {
            let demand = self.join_demand(node_group, os);
            self.runs.insert(identity, RunSlot { key: RunKey { minus_priority, served: least_served, identity }, ready: 0, demand });
        }
        let Some(slot) = self.runs.get_mut(&identity) else { return };
        let (before, demand) = (slot.key, slot.demand);
        if slot.ready == 0 {
            // It may have been idle: it does not get unused service back.
            slot.key.served = slot.key.served.max(least_served);
        }
        slot.key.minus_priority = minus_priority;
        slot.ready = ready;
        let now = (ready > 0).then_some(slot.key);
        self.requeue(demand, before, now);
    }

    /// The lowest served count of the waiting runs of this priority.
    fn least_served(&self, minus_priority: i64) -> u64 {
        let first = RunKey { minus_priority, served: 0, identity: Identity(uuid::Uuid::nil()) };
        self.waiting.range(first..).next().filter(|key| key.minus_priority == minus_priority).map_or(0, |key| key.served)
    }

    /// A run is over, or its actor ended.
    pub fn run_gone(&mut self, identity: Identity) {
        if let Some(slot) = self.runs.remove(&identity) {
            self.requeue(slot.demand, slot.key, None);
            self.leave_demand(slot.demand);
        }
    }

    /// A node connected, or its facts changed. `open`: it accepts dispatched work.
    pub fn node_changed(&mut self, facts: Arc<NodeFacts>, free: u32, open: bool) {
        let node = facts.node_id;
        if self.nodes.get(&node).is_some_and(|slot| slot.facts == facts) {
            return self.change_node(node, |slot| (slot.free, slot.open) = (free, open));
        }
        self.node_gone(node);
        self.nodes.insert(node, NodeSlot { facts, free: 0, open });
        self.node_free(node, free);
    }

    /// Sets the number of free slots of a node.
    pub fn node_free(&mut self, node: NodeId, free: u32) {
        self.change_node(node, |slot| slot.free = free);
    }

    /// A block that was not granted here takes a slot of a node.
    pub fn debit(&mut self, node: NodeId) {
        self.change_node(node, |slot| slot.free = slot.free.saturating_sub(1));
    }

    /// A block has left a node: one more slot is free.
    pub fn credit(&mut self, node: NodeId) {
        let slot_kind = self.slot_kind;
        self.change_node(node, |slot| slot.free = (slot.free + 1).min(slot.facts.slots(slot_kind)));
    }

    /// A node is gone.
    pub fn node_gone(&mut self, node: NodeId) {
        self.node_free(node, 0);
        self.nodes.remove(&node);
    }

    fn change_node(&mut self, node: NodeId, change: impl FnOnce(&mut NodeSlot)) {
        let Some(slot) = self.nodes.get_mut(&node) else { return };
        let before = slot.idle();
        change(slot);
        let now = slot.idle();
        if before == now {
            return;
        }
        let group = slot.facts.group.to_ascii_lowercase();
        let concerned = self.suiting(&self.nodes[&node].facts);
        for no in concerned {
            if let Some(demand) = self.demands.get_mut(&no) {
                exchange(&mut demand.idle, before, now);
            }
            self.update_possible(no);
        }
        let idle = self.idle_by_group.entry(group.clone()).or_default();
        exchange(idle, before, now);
        if idle.is_empty() {
            self.idle_by_group.remove(&group);
        }
    }

    /// The next decision, if there is one. It counts as carried out: one slot fewer at the node, one block fewer in the run.
    pub fn next_grant(&mut self) -> Option<Grant> {
        let ((_, node), _) = *self.possible.first()?;
        let run = self.first_run_for(&self.nodes.get(&node)?.facts, &HashSet::new())?;
        self.change_node(node, |slot| slot.free -= 1);
        self.serve(run);
        Some(Grant { run, node })
    }

    /// A node other than this one for a block that a run has besides its ready ones. It counts as carried out.
    pub fn grant_elsewhere(&mut self, run: Identity, not: NodeId) -> Option<Grant> {
        let demand = self.demands.get(&self.runs.get(&run)?.demand)?;
        let (_, node) = *demand.idle.iter().find(|(_, node)| *node != not)?;
        self.change_node(node, |slot| slot.free -= 1);
        Some(Grant { run, node })
    }

    /// The run whose block a requesting node should get, except the runs in `without`. Counts as carried out.
    pub fn pull(&mut self, facts: &NodeFacts, without: &[Identity]) -> Option<Identity> {
        let run = self.first_run_for(facts, &without.iter().copied().collect())?;
        self.serve(run);
        Some(run)
    }

    fn first_run_for(&self, facts: &NodeFacts, without: &HashSet<Identity>) -> Option<Identity> {
        let demands = self.suiting(facts).into_iter().filter_map(|no| self.demands.get(&no));
        demands.filter_map(|demand| demand.waiting.iter().find(|key| !without.contains(&key.identity))).min().map(|key| key.identity)
    }

    /// The demands that a node meets.
    fn suiting(&self, facts: &NodeFacts) -> Vec<DemandNo> {
        let group = Some(facts.group.to_ascii_lowercase());
        let candidates = [&None, &group].into_iter().filter_map(|group| self.demands_by_group.get(group)).flatten();
        candidates.filter(|no| self.demands.get(no).is_some_and(|demand| self.suits(facts, demand))).copied().collect()
    }

    fn suits(&self, facts: &NodeFacts, demand: &Demand) -> bool {
        #[cfg(test)]
        self.examined.set(self.examined.get() + 1);
        facts.in_group(demand.node_group.as_deref()) && facts.has_os(demand.os.as_deref())
    }

    /// Adds a run to the demand with these requirements.
    fn join_demand(&mut self, node_group: Option<&str>, os: Option<&str>) -> DemandNo {
        let (node_group, os) = (node_group.map(str::to_ascii_lowercase), os.map(str::to_lowercase));
        let known = self.demands_by_group.get(&node_group).into_iter().flatten().copied();
        if let Some(no) = known.into_iter().find(|no| self.demands.get(no).is_some_and(|demand| demand.os == os)) {
            self.demands.entry(no).and_modify(|demand| demand.runs += 1);
            return no;
        }
        self.last_demand += 1;
        let mut demand = Demand { node_group, os, runs: 1, ..Demand::default() };
        let pools: Vec<&BTreeSet<Idle>> = match &demand.node_group {
            Some(group) => self.idle_by_group.get(group).into_iter().collect(),
            None => self.idle_by_group.values().collect(),
        };
        let suits = |idle: &&Idle| self.nodes.get(&idle.1).is_some_and(|slot| self.suits(&slot.facts, &demand));
        demand.idle = pools.into_iter().flatten().filter(suits).copied().collect();
        self.demands_by_group.entry(demand.node_group.clone()).or_default().push(self.last_demand);
        self.demands.insert(self.last_demand, demand);
        self.last_demand
    }

    /// Removes a run from its demand.
    fn leave_demand(&mut self, no: DemandNo) {
        let Some(demand) = self.demands.get_mut(&no) else { return };
        demand.runs -= 1;
        if demand.runs > 0 {
            return;
        }
        let Some(demand) = self.demands.remove(&no) else { return };
        if let Some(of_group) = self.demands_by_group.get_mut(&demand.node_group) {
            of_group.retain(|other| *other != no);
            if of_group.is_empty() {
                self.demands_by_group.remove(&demand.node_group);
            }
        }
    }

    /// Updates the position of a waiting run; `None`: it no longer waits.
    fn requeue(&mut self, no: DemandNo, before: RunKey, now: Option<RunKey>) {
        exchange(&mut self.waiting, Some(before), now);
        if let Some(demand) = self.demands.get_mut(&no) {
            exchange(&mut demand.waiting, Some(before), now);
        }
        self.update_possible(no);
    }

    /// Updates the entry of a demand in the list of those that can be served.
    fn update_possible(&mut self, no: DemandNo) {
        let Some(demand) = self.demands.get_mut(&no) else { return };
        let now = if demand.waiting.is_empty() { None } else { demand.idle.first().copied() };
        let before = std::mem::replace(&mut demand.possible, now);
        if before != now {
            exchange(&mut self.possible, before.map(|idle| (idle, no)), now.map(|idle| (idle, no)));
        }
    }

    fn serve(&mut self, identity: Identity) {
        let Some(slot) = self.runs.get_mut(&identity) else { return };
        let (before, demand) = (slot.key, slot.demand);
        slot.key.served += 1;
        slot.ready -= 1;
        let now = (slot.ready > 0).then_some(slot.key);
        self.requeue(demand, before, now);
    }
}

/// Replaces one element of a set.
fn exchange<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, now: Option<T>) {
    if let Some(before) = before {
        set.remove(&before);
    }
    set.extend(now);
}

#[cfg(test)]
#[path = "matchmaker_tests.rs"]
mod against_plain;

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
            name: None,
            node_type: "Console".into(),
            ip_address: "127.0.0.1".into(),
            processor_count: 1,
            group: group.into(),
            operating_system: os.into(),
            memory: 1,
            max_process_count: 5,
            max_sites: None,
            max_programs: None,
        }
    }

    fn grants(matchmaker: &mut Matchmaker, most: usize) -> Vec<u128> {
        std::iter::from_fn(|| matchmaker.next_grant()).take(most).map(|g| g.run.0.as_u128()).collect()
    }

    #[test]
    fn priority_first_then_fairly() {
        let mut m = Matchmaker::new(SlotKind::Block);
        m.node_changed(facts(1, "default", "linux").into(), 100, true);
        m.run_ready(run(1), 0, 50, None, None);
        m.run_ready(run(2), 0, 50, None, None);
        m.run_ready(run(3), 7, 2, None, None);
        let order = grants(&mut m, 22);
        assert_eq!(order[..2], [3, 3]);
        assert_eq!(order[2..].iter().filter(|r| **r == 1).count(), 10, "{order:?}");
        // A late run is not served alone until it has caught up.
        m.run_ready(run(4), 0, 50, None, None);
        let order = grants(&mut m, 9);
        for n in [1, 2, 4] {
            assert_eq!(order.iter().filter(|r| **r == n).count(), 3, "{order:?}");
        }
    }

    #[test]
    fn the_node_with_the_most_free_slots_comes_first_and_gets_no_more_than_it_has() {
        let mut m = Matchmaker::new(SlotKind::Block);
        m.node_changed(facts(1, "a", "linux").into(), 1, true);
        m.node_changed(facts(2, "a", "linux").into(), 3, true);
        m.node_changed(facts(3, "a", "linux").into(), 9, false);
        m.run_ready(run(1), 0, 50, None, None);
        let nodes: Vec<u128> = std::iter::from_fn(|| m.next_grant()).map(|g| g.node.0.as_u128()).collect();
        assert_eq!(nodes.len(), 4);
        assert_eq!(nodes[..2], [2, 2], "{nodes:?}");
        m.node_free(NodeId(Uuid::from_u128(1)), 1);
        assert_eq!(grants(&mut m, 9), [1]);
    }

    #[test]
    fn group_and_system_are_asked_for_without_case() {
        let mut m = Matchmaker::new(SlotKind::Block);
        m.node_changed(facts(1, "vps_redial", "Debian Linux 12").into(), 5, true);
        m.run_ready(run(1), 9, 5, Some("InHouse"), None);
        m.run_ready(run(2), 5, 5, None, Some("windows"));
        m.run_ready(run(3), 0, 1, Some("VPS_Redial"), Some("linux"));
        assert_eq!(grants(&mut m, 9), [3]);
        m.run_ready(run(4), 0, 2, None, None);
        assert_eq!(m.pull(&facts(2, "inhouse", "linux"), &[run(1)]), Some(run(4)));
        assert_eq!(m.pull(&facts(2, "inhouse", "linux"), &[]), Some(run(1)));
    }

    #[test]
    fn a_block_that_failed_at_a_node_goes_to_another() {
        let mut m = Matchmaker::new(SlotKind::Block);
        m.node_changed(facts(1, "a", "linux").into(), 5, true);
        m.run_ready(run(1), 0, 0, Some("a"), None);
        let node = |n: u128| NodeId(Uuid::from_u128(n));
        assert_eq!(m.grant_elsewhere(run(1), node(1)), None, "there is no other");
        m.node_changed(facts(2, "b", "linux").into(), 5, true);
        assert_eq!(m.grant_elsewhere(run(1), node(1)), None, "it is of another group");
        m.node_changed(facts(3, "a", "linux").into(), 1, true);
        assert_eq!(m.grant_elsewhere(run(1), node(1)).map(|grant| grant.node), Some(node(3)));
        assert_eq!(m.grant_elsewhere(run(1), node(1)), None, "its slot is taken");
        assert_eq!(m.grant_elsewhere(run(2), node(1)), None);
    }

    #[test]
    fn a_run_or_node_that_is_gone_gets_nothing() {
        let mut m = Matchmaker::new(SlotKind::Block);
        m.node_changed(facts(1, "a", "linux").into(), 5, true);
        m.run_ready(run(1), 0, 5, None, None);
        m.run_gone(run(1));
        assert_eq!(grants(&mut m, 9), [] as [u128; 0]);
        m.run_ready(run(1), 0, 5, None, None);
        m.node_gone(NodeId(Uuid::from_u128(1)));
        assert_eq!(grants(&mut m, 9), [] as [u128; 0]);
    }
}
