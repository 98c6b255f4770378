//! Capacity of all nodes. Nodes report their load; runs of applications reserve slots on them.
//!
//! One lock is held during a choice, so that two concurrent runs never reserve the same slot. A run for which no node fits waits here,
//! under the same lock. It is woken when a node fits.

use crate::domain::application::ApplicationSettings;
use crate::domain::application::choice::{Candidate, Chosen, choose, fits};
use crate::domain::ids::{Identity, NodeId};
use crate::domain::node::NodeFacts;
use crate::protocol::application::ProgramRef;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Fleet(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Nodes that are connected or disconnected a moment ago. `at_work` counts their blocks.
    nodes: BTreeMap<NodeId, Candidate>,
    /// Changes so far of which nodes there are, of their facts, and of whether they are open.
    changes: u64,
    programs: HashMap<NodeId, HashSet<ProgramRef>>,
    /// Runs for which no node fits, in the order in which they began to wait.
    waiting: Vec<Waiter>,
}

type Wake = Box<dyn FnOnce() + Send>;

/// A run that waits until a node fits.
struct Waiter {
    identity: Identity,
    settings: Arc<ApplicationSettings>,
    /// `None`: the run was woken. It keeps its place until it has a node, because another run may take the slot before.
    wake: Option<Wake>,
}

impl fmt::Debug for Waiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.identity.fmt(f)
    }
}

impl Inner {
    /// A node with the number of its blocks and programs.
    fn candidate(&self, node: &Candidate) -> Candidate {
        let programs = self.programs.get(&node.facts.node_id).map_or(0, |programs| programs.len() as u32);
        Candidate { at_work: node.at_work + programs, ..node.clone() }
    }

    fn choose(&self, settings: &ApplicationSettings) -> Chosen {
        let candidates: Vec<Candidate> = self.nodes.values().map(|node| self.candidate(node)).collect();
        let chances: Vec<u64> = candidates.iter().map(|_| uuid::Uuid::new_v4().as_u64_pair().1).collect();
        choose(settings, &candidates, |place| chances[place])
    }

    fn reserve_chosen(&mut self, chosen: &Chosen, identity: Identity, attempt: u32) {
        for (nth, node) in chosen.nodes.iter().enumerate() {
            self.programs.entry(*node).or_default().insert(ProgramRef { identity, instance: nth as u32, attempt });
        }
    }

    /// Wakes the runs that this node can take now, the oldest first, at most as many as it has free slots.
    fn runs_for(&mut self, node: NodeId) -> Vec<Wake> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let Some(candidate) = self.nodes.get(&node).map(|node| self.candidate(node)) else { return Vec::new() };
        let free = candidate.free_slots() as usize;
        if free == 0 {
            return Vec::new();
        }
        let fitting = self.waiting.iter_mut().filter(|waiter| fits(&waiter.settings, &candidate));
        fitting.filter_map(|waiter| waiter.wake.take()).take(free).collect()
    }
}

/// Wakes runs. The lock of the fleet must be free.
fn wake(runs: Vec<Wake>) {
    for run in runs {
        run();
    }
}

impl Fleet {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the current state of a node.
    pub fn update_node(&self, candidate: Candidate) {
        let node = candidate.facts.node_id;
        let mut inner = self.inner();
        let is_same = |known: &Candidate| known.is_open == candidate.is_open && known.facts == candidate.facts;
        let is_change = !inner.nodes.get(&node).is_some_and(is_same);
        inner.changes += u64::from(is_change);
        inner.nodes.insert(node, candidate);
        let runs = inner.runs_for(node);
        drop(inner);
        wake(runs);
    }

    /// Removes a lost node. Its programs stay until their runs release them.
    pub fn remove_node(&self, node: NodeId) {
        let mut inner = self.inner();
        inner.changes += u64::from(inner.nodes.remove(&node).is_some());
    }

    /// A number that rises when a node comes, leaves, or changes.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.inner().changes
    }

    /// The facts of all nodes, and whether they are open.
    #[must_use]
    pub fn nodes(&self) -> Vec<(Arc<NodeFacts>, bool)> {
        self.inner().nodes.values().map(|node| (Arc::clone(&node.facts), node.is_open)).collect()
    }

    /// Whether more than one node may take blocks of this group and operating system.
    #[must_use]
    pub fn has_several(&self, node_group: Option<&str>, os: Option<&str>) -> bool {
        let fits = |node: &&Candidate| node.is_open && node.facts.in_group(node_group) && node.facts.has_os(os);
        self.inner().nodes.values().filter(fits).nth(1).is_some()
    }

    /// Chooses nodes for an attempt of a run, and reserves a slot on each.
    #[must_use]
    pub fn choose(&self, settings: &ApplicationSettings, identity: Identity, attempt: u32) -> Chosen {
        let inner = &mut *self.inner();
        let chosen = inner.choose(settings);
        inner.reserve_chosen(&chosen, identity, attempt);
        chosen
    }

    /// Same as [`Fleet::choose`]. If no node fits, the run waits, and `wake` is called once when one fits.
    #[must_use]
    pub fn choose_or_wait(
        &self,
        settings: &Arc<ApplicationSettings>,
        identity: Identity,
        attempt: u32,
        wake: impl FnOnce() + Send + 'static,
    ) -> Chosen {
        let inner = &mut *self.inner();
        let place = inner.waiting.iter().position(|waiter| waiter.identity == identity);
        let chosen = inner.choose(settings);
        inner.reserve_chosen(&chosen, identity, attempt);
        let waiter = || Waiter { identity, settings: Arc::clone(settings), wake: Some(Box::new(wake)) };
        match place {
            Some(place) if chosen.nodes.is_empty() => inner.waiting[place] = waiter(),
            Some(place) => drop(inner.waiting.remove(place)),
            None if chosen.nodes.is_empty() => inner.waiting.push(waiter()),
            None => {}
        }
        chosen
    }

    /// The nodes that would be chosen now. Reserves nothing.
    #[must_use]
    pub fn preview(&self, settings: &ApplicationSettings) -> Chosen {
        self.inner().choose(settings)
    }

    /// Reserves the slot of a program on a node.
    pub fn reserve(&self, node: NodeId, program: ProgramRef) {
        self.inner().programs.entry(node).or_default().insert(program);
    }

    /// Frees the slot of a program that has ended or that its run has given up.
    pub fn release(&self, node: NodeId, program: ProgramRef) {
        let mut inner = self.inner();
        let Some(programs) = inner.programs.get_mut(&node) else { return };
        programs.remove(&program);
        if programs.is_empty() {
            inner.programs.remove(&node);
        }
        let runs = inner.runs_for(node);
        drop(inner);
        wake(runs);
    }

    /// Frees all slots of a run that has ended or gives up its choice. It waits for no node any more.
    pub fn release_all(&self, identity: Identity) {
        let mut inner = self.inner();
        inner.waiting.retain(|waiter| waiter.identity != identity);
        let mut freed = Vec::new();
        inner.programs.retain(|node, programs| {
            let before = programs.len();
            programs.retain(|program| program.identity != identity);
            if programs.len() < before {
                freed.push(*node);
            }
            !programs.is_empty()
        });
        let runs = freed.into_iter().flat_map(|node| inner.runs_for(node)).collect();
        drop(inner);
        wake(runs);
    }

    /// Number of runs that wait until a node fits, without those that were woken.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.inner().waiting.iter().filter(|waiter| waiter.wake.is_some()).count()
    }

    /// Number of programs on a node, by run.
    #[must_use]
    pub fn programs_by_run(&self, node: NodeId) -> HashMap<Identity, u32> {
        let mut runs = HashMap::new();
        for program in self.inner().programs.get(&node).into_iter().flatten() {
            *runs.entry(program.identity).or_default() += 1;
        }
        runs
    }

    /// Number of programs on a node.
    #[must_use]
    pub fn programs(&self, node: NodeId) -> u32 {
        self.inner().programs.get(&node).map_or(0, |programs| programs.len() as u32)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::Properties;
    use crate::domain::node::NodeLoad;

    fn settings(group: &str) -> Arc<ApplicationSettings> {
        let pairs = [("Application", "x"), ("NoNode", "wait"), ("NodeGroup", group)];
        let all = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
        Arc::new(ApplicationSettings::read(&Properties(all.into())).expect("settings"))
    }

    /// A node with this number of slots; `cpu`: its last heartbeat, if it sent one.
    fn node(n: u128, group: &str, slots: u32, cpu: Option<u32>) -> Candidate {
        let node = crate::domain::application::choice::tests::node(n);
        let facts = Arc::new(NodeFacts { group: group.to_owned(), max_process_count: slots, ..(*node.facts).clone() });
        let load = cpu.map(|cpu| NodeLoad { cpu, ..node.load.expect("a heartbeat") });
        Candidate { facts, load, ..node }
    }

    /// Runs that wait in a fleet, and what woke them.
    #[derive(Default)]
    struct Runs {
        fleet: Fleet,
        woken: Arc<Mutex<Vec<&'static str>>>,
    }

    impl Runs {
        fn begin(&self, name: &'static str, group: &str) -> (Identity, Chosen) {
            let identity = Identity::random();
            (identity, self.choose(identity, name, group))
        }

        fn choose(&self, identity: Identity, name: &'static str, group: &str) -> Chosen {
            let woken = Arc::clone(&self.woken);
            let wake = move || woken.lock().expect("not poisoned").push(name);
            self.fleet.choose_or_wait(&settings(group), identity, 1, wake)
        }

        fn woken(&self) -> Vec<&'static str> {
            std::mem::take(&mut self.woken.lock().expect("not poisoned"))
        }
    }

    #[test]
    fn a_run_waits_until_a_node_fits() {
        let runs = Runs::default();
        let (first, chosen) = runs.begin("first", "red");
        assert!(chosen.nodes.is_empty());
        runs.fleet.update_node(node(1, "blue", 1, Some(5)));
        runs.fleet.update_node(node(2, "red", 1, None));
        runs.fleet.update_node(node(2, "red", 1, Some(95)));
        assert_eq!((runs.woken(), runs.fleet.waiting()), (vec![], 1), "another group, no heartbeat, a busy processor");
        runs.fleet.update_node(node(2, "red", 1, Some(5)));
        runs.fleet.update_node(node(2, "red", 1, Some(5)));
        assert_eq!((runs.woken(), runs.fleet.waiting()), (vec!["first"], 0), "it is woken once");
        assert_eq!(runs.fleet.preview(&settings("red")).nodes.len(), 1);
        let chosen = runs.fleet.choose(&settings("red"), first, 1);
        assert_eq!(chosen.nodes.len(), 1);

        let (_, chosen) = runs.begin("second", "red");
        assert!(chosen.nodes.is_empty(), "the node is full");
        let (third, _) = runs.begin("third", "red");
        runs.fleet.update_node(node(2, "red", 1, Some(5)));
        assert_eq!(runs.woken(), [""; 0]);
        runs.fleet.release(chosen_node(2), ProgramRef { identity: first, instance: 0, attempt: 1 });
        assert_eq!(runs.woken(), ["second"], "one slot is free: it is for the run that waits longest");
        runs.fleet.release_all(third);
        runs.fleet.update_node(node(2, "red", 9, Some(5)));
        assert_eq!((runs.woken(), runs.fleet.waiting()), (vec![], 0), "a run that ended waits no more");
    }

    #[test]
    fn the_end_of_a_run_frees_its_slots_for_those_that_wait() {
        let runs = Runs::default();
        runs.fleet.update_node(node(1, "red", 1, Some(5)));
        let (first, chosen) = runs.begin("first", "red");
        assert_eq!(chosen.nodes, [chosen_node(1)]);
        runs.begin("second", "red");
        runs.fleet.release_all(first);
        assert_eq!(runs.woken(), ["second"]);
    }

    #[test]
    fn a_run_that_was_woken_too_late_keeps_its_place() {
        let runs = Runs::default();
        let (first, _) = runs.begin("first", "red");
        let (second, _) = runs.begin("second", "red");
        runs.fleet.update_node(node(1, "red", 1, Some(5)));
        assert_eq!(runs.woken(), ["first"]);
        let (other, chosen) = runs.begin("other", "red");
        assert_eq!(chosen.nodes, [chosen_node(1)]);
        assert!(runs.choose(first, "first", "red").nodes.is_empty());
        runs.fleet.release_all(other);
        assert_eq!(runs.woken(), ["first"], "not the second one");
        assert_eq!(runs.choose(first, "first", "red").nodes, [chosen_node(1)]);
        runs.fleet.release_all(first);
        assert_eq!(runs.woken(), ["second"]);
        assert_eq!(runs.choose(second, "second", "red").nodes, [chosen_node(1)]);
        assert_eq!(runs.fleet.0.lock().expect("not poisoned").waiting.len(), 0);
    }

    fn chosen_node(n: u128) -> NodeId {
        NodeId(uuid::Uuid::from_u128(n))
    }
}
