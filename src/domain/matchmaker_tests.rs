//! Compares the matchmaker with a naive implementation, and bounds its work.

use super::*;
use proptest::prelude::*;
use uuid::Uuid;

fn run(n: u128) -> Identity {
    Identity(Uuid::from_u128(n))
}

fn node(n: u128) -> NodeId {
    NodeId(Uuid::from_u128(n))
}

fn facts(n: u128, group: &str, os: &str) -> NodeFacts {
    NodeFacts {
        node_id: node(n),
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

/// The naive rule: for each idle node, all waiting runs.
#[derive(Default)]
struct Plain {
    runs: HashMap<Identity, PlainRun>,
    nodes: HashMap<NodeId, NodeSlot>,
}

struct PlainRun {
    key: RunKey,
    ready: usize,
    node_group: Option<&'static str>,
    os: Option<&'static str>,
}

impl Plain {
    fn waiting(&self) -> Vec<RunKey> {
        let mut keys: Vec<_> = self.runs.values().filter(|run| run.ready > 0).map(|run| run.key).collect();
        keys.sort();
        keys
    }

    fn run_ready(&mut self, identity: Identity, priority: i32, ready: usize, node_group: Option<&'static str>, os: Option<&'static str>) {
        let minus_priority = -i64::from(priority);
        let least_served = self.waiting().iter().find(|key| key.minus_priority == minus_priority).map_or(0, |key| key.served);
        let key = RunKey { minus_priority, served: least_served, identity };
        let slot = self.runs.entry(identity).or_insert(PlainRun { key, ready: 0, node_group, os });
        if slot.ready == 0 {
            slot.key.served = slot.key.served.max(least_served);
        }
        (slot.key.minus_priority, slot.ready) = (minus_priority, ready);
    }

    fn serve(&mut self, identity: Identity) {
        let slot = self.runs.get_mut(&identity).expect("a run");
        slot.key.served += 1;
        slot.ready -= 1;
    }

    fn first_run_for(&self, facts: &NodeFacts, without: &[Identity]) -> Option<Identity> {
        self.waiting().into_iter().map(|key| key.identity).find(|identity| {
            let run = &self.runs[identity];
            !without.contains(identity) && facts.in_group(run.node_group) && facts.has_os(run.os)
        })
    }

    fn next_grant(&mut self) -> Option<Grant> {
        let mut idle: Vec<Idle> = self.nodes.values().filter_map(NodeSlot::idle).collect();
        idle.sort();
        let grant = idle.into_iter().find_map(|(_, node)| Some(Grant { run: self.first_run_for(&self.nodes[&node].facts, &[])?, node }))?;
        self.nodes.get_mut(&grant.node).expect("a node").free -= 1;
        self.serve(grant.run);
        Some(grant)
    }
}

#[derive(Debug, Clone)]
enum Step {
    Ready(u128, i32, usize, usize, usize),
    RunGone(u128),
    Node(u128, usize, usize, u32, bool),
    NodeFree(u128, u32),
    Credit(u128),
    NodeGone(u128),
    Grants(usize),
    Pull(usize, usize, Vec<u128>),
}

const GROUPS: [Option<&str>; 4] = [None, Some("default"), Some("VPS"), Some("nowhere")];
const SYSTEMS: [Option<&str>; 4] = [None, Some("linux"), Some("Debian"), Some("windows")];

fn step() -> impl Strategy<Value = Step> {
    let (r, n) = (1..8_u128, 1..8_u128);
    prop_oneof![
        4 => (r.clone(), -1..2, 0..5_usize, 0..4_usize, 0..4_usize).prop_map(|(r, p, ready, g, o)| Step::Ready(r, p, ready, g, o)),
        1 => r.clone().prop_map(Step::RunGone),
        4 => (n.clone(), 0..3_usize, 0..2_usize, 0..4_u32, any::<bool>()).prop_map(|(n, g, o, f, open)| Step::Node(n, g, o, f, open)),
        1 => (n.clone(), 0..4_u32).prop_map(|(n, free)| Step::NodeFree(n, free)),
        2 => n.clone().prop_map(Step::Credit),
        1 => n.prop_map(Step::NodeGone),
        4 => (1..6_usize).prop_map(Step::Grants),
        1 => (0..3_usize, 0..2_usize, prop::collection::vec(r, 0..3)).prop_map(|(g, o, without)| Step::Pull(g, o, without)),
    ]
}

fn node_facts(n: u128, group: usize, system: usize) -> NodeFacts {
    facts(n, ["Default", "vps", "other"][group], ["Debian Linux 12", "Windows 11"][system])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]
    #[test]
    fn it_grants_what_the_plain_rule_grants(steps in prop::collection::vec(step(), 1..80)) {
        let (mut plain, mut quick) = (Plain::default(), Matchmaker::new(SlotKind::Block));
        for step in steps {
            match step {
                Step::Ready(r, priority, ready, group, os) => {
                    // The requirements of a run never change.
                    let (group, os) = (GROUPS[(group + r as usize) % 4], SYSTEMS[(os * (r as usize % 2)) % 4]);
                    plain.run_ready(run(r), priority, ready, group, os);
                    quick.run_ready(run(r), priority, ready, group, os);
                }
                Step::RunGone(r) => {
                    plain.runs.remove(&run(r));
                    quick.run_gone(run(r));
                }
                Step::Node(n, group, system, free, open) => {
                    let facts = node_facts(n, group, system);
                    plain.nodes.insert(node(n), NodeSlot { facts: facts.clone().into(), free, open });
                    quick.node_changed(facts.into(), free, open);
                }
                Step::NodeFree(n, free) => {
                    if let Some(slot) = plain.nodes.get_mut(&node(n)) {
                        slot.free = free;
                    }
                    quick.node_free(node(n), free);
                }
                Step::Credit(n) => {
                    if let Some(slot) = plain.nodes.get_mut(&node(n)) {
                        slot.free = (slot.free + 1).min(slot.facts.max_process_count);
                    }
                    quick.credit(node(n));
                }
                Step::NodeGone(n) => {
                    plain.nodes.remove(&node(n));
                    quick.node_gone(node(n));
                }
                Step::Grants(most) => {
                    for _ in 0..most {
                        let expected = plain.next_grant();
                        prop_assert_eq!(quick.next_grant(), expected);
                        if expected.is_none() {
                            break;
                        }
                    }
                }
                Step::Pull(group, system, without) => {
                    let (facts, without) = (node_facts(99, group, system), without.into_iter().map(run).collect::<Vec<_>>());
                    let expected = plain.first_run_for(&facts, &without);
                    if let Some(identity) = expected {
                        plain.serve(identity);
                    }
                    prop_assert_eq!(quick.pull(&facts, &without), expected);
                }
            }
        }
        for n in 1..8 {
            quick.node_gone(node(n));
            quick.run_gone(run(n));
        }
        let is_empty = quick.demands.is_empty() && quick.demands_by_group.is_empty() && quick.idle_by_group.is_empty();
        prop_assert!(is_empty && quick.possible.is_empty() && quick.waiting.is_empty(), "something is left: {:?}", quick);
    }
}

/// 10,000 nodes and 64 runs that no node may serve, each of another group: the work per event does not grow with the number of
/// nodes, nor with the number of unrelated runs.
#[test]
fn the_work_of_an_event_does_not_grow_with_nodes_times_runs() {
    const NODES: u128 = 10_000;
    const RUNS: u128 = 64;
    let mut m = Matchmaker::new(SlotKind::Block);
    let groups: Vec<String> = (0..RUNS).map(|r| format!("group-{r}")).collect();
    for r in 0..RUNS {
        m.run_ready(run(r + 1), 0, 300, Some(&groups[r as usize]), None);
    }
    let most = |m: &mut Matchmaker, event: &mut dyn FnMut(&mut Matchmaker)| {
        m.examined.set(0);
        event(m);
        while m.next_grant().is_some() {}
        m.examined.get()
    };
    for n in 0..NODES {
        let examined = most(&mut m, &mut |m| m.node_changed(facts(n + 1, "default", "linux").into(), 5, true));
        assert!(examined <= 2, "a node that joins: {examined} are examined");
    }
    for r in 0..RUNS {
        let examined = most(&mut m, &mut |m| m.run_ready(run(r + 1), 0, 299, Some(&groups[r as usize]), None));
        assert!(examined <= 2, "a run that changes: {examined} are examined");
        let examined = most(&mut m, &mut |m| m.run_ready(run(1_000 + r), 0, 1, Some(&groups[r as usize]), None));
        assert!(examined <= 2, "a new run: {examined} are examined");
    }
    // A run without requirements is served at once; another run like it does not scan all nodes.
    let examined = most(&mut m, &mut |m| m.run_ready(run(5_000), 0, 1, None, None));
    assert!(examined <= NODES as u64 + 8, "the first run with its requirements: each idle node is examined once, and not {examined}");
    let examined = most(&mut m, &mut |m| m.run_ready(run(5_001), 0, 1, None, None));
    assert!(examined <= 8, "the second run: {examined} are examined");
    for n in 0..NODES {
        let examined = most(&mut m, &mut |m| m.credit(node(n + 1)));
        assert!(examined <= 4, "a free slot at a node: {examined} are examined");
        let examined = most(&mut m, &mut |m| m.node_gone(node(n + 1)));
        assert!(examined <= 4, "a node that leaves: {examined} are examined");
    }
}
