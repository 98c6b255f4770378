//! Simulates runs with losses: lost messages, absent nodes, broker crashes before and after a write. Each world is generated from
//! a seed, so that a failing one can be reproduced.

use super::super::ids::NodeId;
use super::super::run::RunState;
use super::super::time::Timestamp;
use super::state_machine::{Effect, Event, InstanceReport, Phase, Rules, StateMachine};
use std::collections::{BTreeMap, VecDeque};

const RULES: Rules = Rules { grace: 3_000, timeout: None, liveness: 20_000 };

struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum At {
    Accepted,
    Running,
    Over(bool),
}

/// An agent with one instance of the run, which follows docs/protocol.md.
#[derive(Default)]
struct Agent {
    program: Option<At>,
    had: bool,
    starts: u32,
    settled: bool,
    is_here: bool,
    inbox: VecDeque<&'static str>,
    outbox: VecDeque<Option<InstanceReport>>,
}

impl Agent {
    fn report(&self) -> Option<InstanceReport> {
        Some(match self.program? {
            At::Accepted => InstanceReport::Accepted,
            At::Running => InstanceReport::Running,
            At::Over(well) => InstanceReport::Over((!well).then(|| "code 1".to_owned())),
        })
    }

    fn read(&mut self) {
        match self.inbox.pop_front() {
            Some("start") if !self.had => {
                (self.program, self.had, self.starts) = (Some(At::Accepted), true, self.starts + 1);
                self.outbox.push_back(self.report());
            }
            Some("start") => self.outbox.extend(self.report().map(Some)),
            Some("exit") if !self.had => {
                // It never had the instance: it reports that, and remembers it in case the start order arrives late.
                (self.program, self.had) = (Some(At::Over(false)), true);
                self.outbox.push_back(self.report());
            }
            Some("exit") if self.program.is_some() => {
                if !matches!(self.program, Some(At::Over(_))) {
                    self.program = Some(At::Over(false));
                }
                self.outbox.push_back(self.report());
            }
            Some("settle") if matches!(self.program, Some(At::Over(_))) => (self.program, self.settled) = (None, true),
            _ => {}
        }
    }
}

struct World {
    dice: Dice,
    now: i64,
    machine: Option<StateMachine>,
    /// The stored state: phase and reason of each instance, and whether someone ended the run.
    disk: Vec<(Phase, Option<String>)>,
    stopped: bool,
    /// Writes in progress.
    writes: VecDeque<(usize, Phase, Option<String>)>,
    end: Option<RunState>,
    agents: Vec<Agent>,
    faults: bool,
}

fn id(nth: usize) -> NodeId {
    NodeId(uuid::Uuid::from_u128(nth as u128 + 1))
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let count = 1 + dice.roll(3) as usize;
        let nodes: Vec<NodeId> = (0..count).map(id).collect();
        let (machine, effects) = StateMachine::begin(&nodes, RULES, Timestamp(0));
        let agents = (0..count).map(|_| Agent { is_here: true, ..Agent::default() }).collect();
        let disk = vec![(Phase::Ordered, None); count];
        let mut world =
            Self { dice, now: 0, machine: Some(machine), disk, stopped: false, writes: VecDeque::new(), end: None, agents, faults: true };
        world.carry_out(effects);
        world
    }

    fn tell(&mut self, nth: usize, what: &'static str) {
        let lost = self.faults && self.dice.roll(4) == 0;
        if self.agents[nth].is_here && !lost {
            self.agents[nth].inbox.push_back(what);
        }
    }

    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Start(nth) => {
                    assert!(!matches!(self.disk[nth].0, Phase::Over(_)), "an order for what is over");
                    self.tell(nth, "start");
                }
                Effect::Exit(nth, _) => self.tell(nth, "exit"),
                Effect::Settle(nth) => {
                    assert!(matches!(self.disk[nth].0, Phase::Over(_)), "settled before it was stored");
                    self.tell(nth, "settle");
                }
                Effect::Store(nth) => {
                    let instance = &self.machine.as_ref().expect("it decided this").instances()[nth];
                    self.writes.push_back((nth, instance.phase, instance.reason.clone()));
                }
                Effect::End(state, _) => {
                    // The end is written after all instances.
                    while !self.writes.is_empty() {
                        self.commit();
                    }
                    assert!(self.end.replace(state).is_none(), "a run ends once");
                    self.machine = None;
                    return;
                }
            }
        }
    }

    fn commit(&mut self) {
        let Some((nth, phase, reason)) = self.writes.pop_front() else { return };
        self.disk[nth] = (phase, reason);
        if matches!(phase, Phase::Over(_)) {
            self.happens(Event::Stored(nth));
        }
    }

    fn happens(&mut self, event: Event) {
        if let Some(machine) = &mut self.machine {
            let effects = machine.handle(event, Timestamp(self.now));
            self.carry_out(effects);
        }
    }

    /// Delivers a message of a node, or its list if there is no message.
    fn hear(&mut self, nth: usize) {
        let Some(report) = self.agents[nth].outbox.pop_front() else { return };
        if self.faults && self.dice.roll(4) == 0 {
            return;
        }
        if self.end.is_some() {
            // A node's actor responds like this for a run that is over.
            self.tell(nth, "exit");
            return self.tell(nth, "settle");
        }
        match report {
            Some(report) => self.happens(Event::Reported(nth, report)),
            None => {
                let listed = if self.agents[nth].program.is_some() { vec![nth] } else { Vec::new() };
                self.happens(Event::Listed(id(nth), listed));
            }
        }
    }

    fn crash(&mut self) {
        if self.end.is_some() {
            return;
        }
        self.writes.clear();
        for agent in &mut self.agents {
            (agent.inbox, agent.outbox) = (VecDeque::new(), agent.report().map(Some).into_iter().collect());
        }
        let stored = self.disk.iter().enumerate().map(|(nth, (phase, reason))| (id(nth), *phase, reason.clone())).collect();
        let stop = self.stopped.then(|| "stopped".to_owned());
        let (machine, effects) = StateMachine::restore(stored, RULES, Timestamp(0), stop, Timestamp(self.now));
        self.machine = Some(machine);
        self.carry_out(effects);
    }

    fn step(&mut self) {
        self.now += 200 + self.dice.roll(400) as i64;
        let nth = self.dice.roll(self.agents.len() as u64) as usize;
        match self.dice.roll(if self.faults { 24 } else { 16 }) {
            0..=3 => self.agents[nth].read(),
            4..=7 => self.hear(nth),
            8..=9 => self.commit(),
            10 if self.agents[nth].is_here => self.agents[nth].outbox.push_back(None),
            11..=12 => {
                let here = (0..self.agents.len()).filter(|nth| self.agents[*nth].is_here).map(id).collect();
                self.happens(Event::Tick(here));
            }
            13..=14 => {
                let ends_well = self.dice.roll(4) > 0;
                let agent = &mut self.agents[nth];
                agent.program = match agent.program {
                    Some(At::Accepted) => Some(At::Running),
                    Some(At::Running) => Some(At::Over(ends_well)),
                    other => other,
                };
                let report = agent.report();
                agent.outbox.extend(report.map(Some));
            }
            16 => self.crash(),
            17..=18 => {
                let agent = &mut self.agents[nth];
                agent.is_here = !agent.is_here;
                (agent.inbox, agent.outbox) = (VecDeque::new(), agent.report().map(Some).into_iter().collect());
                if !agent.is_here {
                    agent.outbox.clear();
                    self.happens(Event::NodeGone(id(nth), Timestamp(self.now - 500)));
                }
            }
            19 if self.dice.roll(10) == 0 && self.end.is_none() => {
                self.stopped = true;
                self.happens(Event::Stop("stopped".to_owned()));
            }
            _ => {}
        }
        for agent in &self.agents {
            assert!(agent.starts <= 1, "started twice");
        }
    }

    fn is_quiet(&self) -> bool {
        let rests = |agent: &Agent| agent.program.is_none() || agent.settled;
        self.end.is_some() && self.agents.iter().all(rests)
    }
}

#[test]
fn every_run_ends_and_no_program_is_started_twice() {
    let mut ends: BTreeMap<&str, u32> = BTreeMap::new();
    for seed in 1..=600 {
        let mut world = World::new(seed);
        for _ in 0..world.dice.roll(400) {
            world.step();
        }
        world.faults = false;
        for agent in &mut world.agents {
            agent.is_here = true;
        }
        let mut steps = 0;
        while !world.is_quiet() {
            world.step();
            steps += 1;
            assert!(steps < 20_000, "seed {seed}: it does not come to rest: {:?} {:?}", world.disk, world.end);
        }
        let end = world.end.expect("it is over");
        let all_well = world.disk.iter().all(|(phase, _)| *phase == Phase::Over(RunState::Success));
        if end == RunState::Success {
            assert!(all_well, "seed {seed}");
        } else if !world.stopped {
            assert!(!all_well, "seed {seed}");
        }
        *ends.entry(end.name()).or_default() += 1;
    }
    assert!(ends.len() == 3 && ends.values().all(|count| *count > 20), "worlds of every kind: {ends:?}");
}
