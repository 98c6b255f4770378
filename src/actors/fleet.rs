//! Capacity of all nodes. Nodes report their load; runs of applications reserve slots on them.
//!
//! One lock is held during a choice, so that two concurrent runs never reserve the same slot.

use crate::domain::application::ApplicationSettings;
use crate::domain::application::choice::{Candidate, Chosen, choose};
use crate::domain::ids::{Identity, NodeId};
use crate::protocol::application::ProgramRef;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Fleet(Mutex<Inner>);

#[derive(Debug, Default)]
struct Inner {
    /// Nodes that are connected or disconnected a moment ago. `at_work` counts their blocks.
    nodes: BTreeMap<NodeId, Candidate>,
    programs: HashMap<NodeId, HashSet<ProgramRef>>,
}

impl Fleet {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores the current state of a node.
    pub fn learn(&self, candidate: Candidate) {
        self.inner().nodes.insert(candidate.facts.node_id, candidate);
    }

    /// Removes a lost node. Its programs stay until their runs release them.
    pub fn forget(&self, node: NodeId) {
        self.inner().nodes.remove(&node);
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
        let programs = |node: &NodeId| inner.programs.get(node).map_or(0, |programs| programs.len() as u32);
        let with_programs = |node: &Candidate| Candidate { at_work: node.at_work + programs(&node.facts.node_id), ..node.clone() };
        let candidates: Vec<Candidate> = inner.nodes.values().map(with_programs).collect();
        let chances: Vec<u64> = candidates.iter().map(|_| uuid::Uuid::new_v4().as_u64_pair().1).collect();
        let chosen = choose(settings, &candidates, |place| chances[place]);
        for (nth, node) in chosen.nodes.iter().enumerate() {
            inner.programs.entry(*node).or_default().insert(ProgramRef { identity, instance: nth as u32, attempt });
        }
        chosen
    }

    /// Reserves the slot of a program on a node.
    pub fn take(&self, node: NodeId, program: ProgramRef) {
        self.inner().programs.entry(node).or_default().insert(program);
    }

    /// Frees the slot of a program that has ended or that its run has given up.
    pub fn give_back(&self, node: NodeId, program: ProgramRef) {
        let inner = &mut *self.inner();
        if let Some(programs) = inner.programs.get_mut(&node) {
            programs.remove(&program);
            if programs.is_empty() {
                inner.programs.remove(&node);
            }
        }
    }

    /// Frees all slots of a run that ended or whose actor ended.
    pub fn leave(&self, identity: Identity) {
        self.inner().programs.retain(|_, programs| {
            programs.retain(|program| program.identity != identity);
            !programs.is_empty()
        });
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
