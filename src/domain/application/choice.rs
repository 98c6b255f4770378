//! Selects the nodes for a run of an application.

use super::super::ids::NodeId;
use super::super::node::{NodeFacts, NodeLoad};
use super::{ApplicationSettings, Choice};
use std::fmt;
use std::sync::Arc;

/// A node, with the data that the selection needs.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// Facts that the node reported.
    pub facts: Arc<NodeFacts>,
    /// It is enabled and was not asked to leave.
    pub is_open: bool,
    /// It is connected.
    pub is_online: bool,
    /// Its last reported load; `None` if it has not reported any.
    pub load: Option<NodeLoad>,
    /// Number of programs and blocks that it runs.
    pub at_work: u32,
}

impl Candidate {
    /// Number of programs that it accepts besides those that it runs.
    #[must_use]
    pub fn free_slots(&self) -> u32 {
        let most = self.facts.max_programs.map_or(self.facts.max_process_count, |most| most.min(self.facts.max_process_count));
        most.saturating_sub(self.at_work)
    }
}

/// Reasons why nodes were left out, counted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// In another group.
    pub group: u32,
    /// With another operating system.
    pub os: u32,
    /// Not connected.
    pub offline: u32,
    /// Disabled or drained by an operator.
    pub closed: u32,
    /// They accept no programs, by their own settings.
    pub forbidden: u32,
    /// They have not reported their load yet.
    pub unknown: u32,
    /// Busy processors.
    pub cpu: u32,
    /// Too little free memory.
    pub memory: u32,
    /// They have no free slot.
    pub full: u32,
}

/// The result of a selection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chosen {
    /// The nodes, in the order of the instances.
    pub nodes: Vec<NodeId>,
    /// Number of nodes requested; with [`Choice::All`] the number of nodes found.
    pub asked: u32,
    /// Why other nodes were left out.
    pub left_out: LeftOut,
    /// The job's limit of the load of processors, in percent.
    pub max_cpu: u32,
}

impl Chosen {
    /// Fewer nodes than requested.
    #[must_use]
    pub fn is_partial(&self) -> bool {
        (self.nodes.len() as u32) < self.asked
    }

    /// Why there are fewer nodes than requested, if so.
    #[must_use]
    pub fn remark(&self) -> Option<String> {
        match self.nodes.len() {
            0 => Some(format!("no node for the program: {}{}", self.left_out, self.advice())),
            some if self.is_partial() => Some(format!("on {some} of {} nodes: {}{}", self.asked, self.left_out, self.advice())),
            _ => None,
        }
    }
}

impl Chosen {
    /// What the job's owner can do about nodes that are busy.
    fn advice(&self) -> String {
        match self.left_out.cpu {
            0 => String::new(),
            _ => format!(
                ". `MaxCpu` of the job is {}: a higher value allows a higher load, and 101 allows any; with `NoNode=wait` the run waits for a node",
                self.max_cpu
            ),
        }
    }
}

impl fmt::Display for LeftOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [
            (self.group, "of another group"),
            (self.os, "with another operating system"),
            (self.offline, "offline"),
            (self.closed, "disabled or drained"),
            (self.forbidden, "whose agents do not allow programs (setting `applications`)"),
            (self.unknown, "without a heartbeat yet"),
            (self.cpu, "with busy processors"),
            (self.memory, "short of memory"),
            (self.full, "full"),
        ];
        let mut said = parts.iter().filter(|(count, _)| *count > 0).peekable();
        if said.peek().is_none() {
            return f.write_str("no other node is known");
        }
        for (nth, (count, what)) in said.enumerate() {
            let comma = if nth == 0 { "" } else { ", " };
            write!(f, "{comma}{count} {what}")?;
        }
        Ok(())
    }
}

/// Selects nodes. `chances` returns for each candidate index a number that decides between equal candidates, so equal numbers give
/// the same selection.
#[must_use]
pub fn choose(settings: &ApplicationSettings, candidates: &[Candidate], chances: impl Fn(usize) -> u64) -> Chosen {
    let mut left_out = LeftOut::default();
    let mut fit: Vec<(usize, &Candidate)> = Vec::new();
    for (place, node) in candidates.iter().enumerate() {
        match obstacle(settings, node, &mut left_out) {
            Some(count) => *count += 1,
            None => fit.push((place, node)),
        }
    }
    match settings.choice {
        Choice::Random => fit.sort_by_key(|(place, _)| chances(*place)),
        Choice::LeastLoaded => fit.sort_by_key(|(place, node)| {
            let share = u64::from(node.at_work) * 1_000 / u64::from(node.facts.max_process_count.max(1));
            (share, node.load.map_or(100, |load| load.cpu), chances(*place))
        }),
        Choice::All => fit.sort_by_key(|(_, node)| node.facts.node_id),
    }
    let asked = if settings.choice == Choice::All { fit.len() as u32 } else { settings.node_count };
    let nodes = fit.iter().take(asked as usize).map(|(_, node)| node.facts.node_id).collect();
    Chosen { nodes, asked: asked.max(1), left_out, max_cpu: settings.max_cpu }
}

/// The reason against a node: the counter to increment.
fn obstacle<'a>(settings: &ApplicationSettings, node: &Candidate, out: &'a mut LeftOut) -> Option<&'a mut u32> {
    if !node.facts.in_group(settings.node_group.as_deref()) {
        return Some(&mut out.group);
    }
    if !node.facts.has_os(settings.os.as_deref()) {
        return Some(&mut out.os);
    }
    if !node.is_online {
        return Some(&mut out.offline);
    }
    if !node.is_open {
        return Some(&mut out.closed);
    }
    if node.facts.max_programs == Some(0) {
        return Some(&mut out.forbidden);
    }
    let Some(load) = node.load else { return Some(&mut out.unknown) };
    if load.cpu >= settings.max_cpu {
        return Some(&mut out.cpu);
    }
    if load.free_memory <= settings.min_free_memory {
        return Some(&mut out.memory);
    }
    (node.free_slots() == 0).then_some(&mut out.full)
}

/// Whether a node may run a program of this job now.
#[must_use]
pub fn fits(settings: &ApplicationSettings, node: &Candidate) -> bool {
    obstacle(settings, node, &mut LeftOut::default()).is_none()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::super::job::Properties;
    use super::*;
    use proptest::prelude::*;

    fn settings(pairs: &[(&str, &str)]) -> ApplicationSettings {
        let mut all = std::collections::BTreeMap::from([("Application".to_owned(), "x".to_owned())]);
        all.extend(pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())));
        ApplicationSettings::read(&Properties(all)).expect("settings")
    }

    /// A node that fits most jobs.
    pub(crate) fn node(n: u128) -> Candidate {
        let facts = NodeFacts {
            node_id: NodeId(uuid::Uuid::from_u128(n)),
            name: None,
            node_type: "Console".to_owned(),
            ip_address: String::new(),
            processor_count: 4,
            group: "Vps".to_owned(),
            operating_system: "Ubuntu Linux".to_owned(),
            memory: 8_000,
            max_process_count: 4,
            max_sites: None,
            max_programs: None,
        };
        let load = Some(NodeLoad { process_count: 0, cpu: 10, free_memory: 1_000 });
        Candidate { facts: facts.into(), is_open: true, is_online: true, load, at_work: 0 }
    }

    fn numbers(chosen: &Chosen) -> Vec<u128> {
        chosen.nodes.iter().map(|node| node.0.as_u128()).collect()
    }

    #[test]
    fn each_obstacle_is_counted() {
        let mut nodes: Vec<Candidate> = (0..9).map(node).collect();
        Arc::make_mut(&mut nodes[0].facts).group = "other".to_owned();
        Arc::make_mut(&mut nodes[1].facts).operating_system = "Windows".to_owned();
        nodes[2].is_online = false;
        nodes[3].is_open = false;
        nodes[4].load = None;
        nodes[5].load = Some(NodeLoad { process_count: 0, cpu: 90, free_memory: 1_000 });
        nodes[6].load = Some(NodeLoad { process_count: 0, cpu: 89, free_memory: 150 });
        nodes[7].at_work = 4;
        let settings = settings(&[("NodeCount", "2"), ("NodeGroup", "vps"), ("Os", "LINUX")]);
        let chosen = choose(&settings, &nodes, |_| 0);
        assert_eq!((numbers(&chosen), chosen.asked, chosen.is_partial()), (vec![8], 2, true));
        let one = LeftOut { group: 1, os: 1, offline: 1, closed: 1, forbidden: 0, unknown: 1, cpu: 1, memory: 1, full: 1 };
        assert_eq!(chosen.left_out, one);
        let remark = chosen.remark().expect("partial");
        assert!(remark.starts_with("on 1 of 2 nodes: 1 of another group, 1 with another operating system, 1 offline"), "{remark}");
        assert!(remark.contains("`MaxCpu` of the job is 90: a higher value"), "{remark}");
        let none = choose(&settings, &nodes[..3], |_| 0);
        assert_eq!(
            none.remark().as_deref(),
            Some("no node for the program: 1 of another group, 1 with another operating system, 1 offline")
        );
        assert_eq!(choose(&settings, &[], |_| 0).remark().as_deref(), Some("no node for the program: no other node is known"));
    }

    #[test]
    fn the_least_loaded_come_first() {
        let mut nodes: Vec<Candidate> = (0..4).map(node).collect();
        nodes[0].at_work = 2;
        nodes[1].load = Some(NodeLoad { process_count: 0, cpu: 50, free_memory: 1_000 });
        nodes[3].at_work = 1;
        Arc::make_mut(&mut nodes[3].facts).max_process_count = 100;
        assert_eq!(numbers(&choose(&settings(&[("NodeCount", "4")]), &nodes, |_| 0)), [2, 1, 3, 0]);
        assert_eq!(numbers(&choose(&settings(&[("NodeCount", "1"), ("Choice", "all")]), &nodes, |_| 0)), [0, 1, 2, 3]);
        assert_eq!(numbers(&choose(&settings(&[("NodeCount", "2"), ("Choice", "random")]), &nodes, |n| [3, 1, 2, 0][n])), [3, 1]);
    }

    proptest! {
        #[test]
        fn nobody_is_chosen_who_would_not_do(loads in proptest::collection::vec((0u32..120, 0u64..400, 0u32..6, any::<bool>(), any::<bool>()), 0..12),
            count in 1u32..6, seed: u64) {
            let nodes: Vec<Candidate> = loads.iter().enumerate().map(|(n, (cpu, free_memory, at_work, is_open, is_online))| Candidate {
                load: Some(NodeLoad { process_count: 0, cpu: *cpu, free_memory: *free_memory }),
                at_work: *at_work, is_open: *is_open, is_online: *is_online, ..node(n as u128)
            }).collect();
            let chosen = choose(&settings(&[("NodeCount", &count.to_string()), ("Choice", "random")]), &nodes, |n| seed.rotate_left(n as u32 * 7));
            let fit = nodes.iter().filter(|n| n.is_open && n.is_online && n.at_work < 4
                && n.load.is_some_and(|l| l.cpu < 90 && l.free_memory > 150)).count();
            prop_assert_eq!(chosen.nodes.len(), fit.min(count as usize));
            let mut once = chosen.nodes.clone();
            once.sort();
            once.dedup();
            prop_assert_eq!(once.len(), chosen.nodes.len());
            for id in &chosen.nodes {
                let node = nodes.iter().find(|node| node.facts.node_id == *id).expect("a candidate");
                prop_assert!(node.is_open && node.is_online && node.at_work < 4);
            }
        }
    }
}
