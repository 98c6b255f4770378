//! State machine of an application run: its instances, each on its own node, from the start order to the end of all.
//!
//! No single message is essential. The broker repeats an order until the node answers; it queries a node that reconnects; a node that is
//! away too long loses its instance. A report about an instance that is already over here changes nothing: the node is ordered to end it.
//!
//! An instance never starts twice: each order contains the attempt, and a node does not start an attempt that it had before. The
//! broker does not even query an instance that was reported as running before its node has listed it.

use super::super::ids::NodeId;
use super::super::run::RunState;
use super::super::time::Timestamp;

/// Milliseconds after which an unanswered order is repeated.
pub const TELL_AGAIN_MS: i64 = 2_000;
/// Milliseconds that a connected node has to answer a start order.
pub const ANSWER_MS: i64 = 60_000;
/// Milliseconds without a report after which a node that lists a program is queried: a report may have been lost.
const ASK_AGAIN_MS: i64 = 30_000;
/// Milliseconds beyond the grace period within which a node must report the end of a program.
pub const MARGIN_MS: i64 = 10_000;
/// Consecutive lists without a program that its node had accepted, after which the program counts as gone.
const MISSED_LISTS: u32 = 2;

/// Time limits of a run.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Milliseconds between asking a program to end and killing it.
    pub grace: u64,
    /// Milliseconds that an attempt may take.
    pub timeout: Option<u64>,
    /// Milliseconds without a message from its node after which an instance is lost.
    pub liveness: u64,
}

/// State of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// A start order was sent to its node.
    Ordered,
    /// Its node has accepted the order.
    Accepted,
    /// It runs.
    Running,
    /// It ended in this state.
    Over(RunState),
}

/// A node's report about an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InstanceReport {
    /// It has accepted the order.
    Accepted,
    /// It runs.
    Running,
    /// It is over; the text is the reason if it failed.
    Over(Option<String>),
}

/// An input of the state machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The node of an instance reported its state.
    Reported(usize, InstanceReport),
    /// A node listed the instances of the run that it has.
    Listed(NodeId, Vec<usize>),
    /// A node is lost; the time is the one at which its silence began.
    NodeGone(NodeId, Timestamp),
    /// The end of an instance is stored.
    Stored(usize),
    /// The run was ordered to end.
    Stop(String),
    /// Time has passed. The listed nodes are connected.
    Tick(Vec<NodeId>),
}

/// An action for the caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Order the node of this instance to start it.
    Start(usize),
    /// Order the node of this instance to end it, with the reason.
    Exit(usize, String),
    /// Store the current state of this instance.
    Store(usize),
    /// Acknowledge to the node that the end of this instance is stored.
    Settle(usize),
    /// The run is over: store that. Emitted once.
    End(RunState, Option<String>),
}

/// One instance.
#[derive(Debug, Clone)]
pub struct Instance {
    /// Its node.
    pub node: NodeId,
    /// Its state.
    pub phase: Phase,
    /// Why it ended as it did.
    pub reason: Option<String>,
    /// Its end is on disk.
    stored: bool,
    /// Since when the start order is outstanding.
    told_since: Timestamp,
    /// When its node was last sent an order.
    told: Timestamp,
    /// When its node last reported it; `None`: not since the broker started.
    heard: Option<Timestamp>,
    /// Consecutive lists of its node without it.
    missed: u32,
    /// Since when its node is disconnected.
    gone: Option<Timestamp>,
}

impl Instance {
    fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over(_))
    }
}

#[derive(Debug, Clone)]
struct Ending {
    state: RunState,
    reason: String,
    since: Timestamp,
}

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct StateMachine {
    instances: Vec<Instance>,
    rules: Rules,
    began: Timestamp,
    ending: Option<Ending>,
    ended: bool,
}

impl StateMachine {
    /// A run whose chosen nodes are stored; returns the first orders.
    #[must_use]
    pub fn begin(nodes: &[NodeId], rules: Rules, now: Timestamp) -> (Self, Vec<Effect>) {
        let phases = nodes.iter().map(|node| (*node, Phase::Ordered, None));
        let machine = Self::of(phases, rules, now, now, None);
        let effects = (0..nodes.len()).map(Effect::Start).collect();
        (machine, effects)
    }

    /// Restores a stored run: the node, phase and reason of each instance, and the reason to end the run if there is one.
    /// The state of its nodes is unknown.
    #[must_use]
    pub fn restore(
        stored: Vec<(NodeId, Phase, Option<String>)>,
        rules: Rules,
        began: Timestamp,
        stop: Option<String>,
        now: Timestamp,
    ) -> (Self, Vec<Effect>) {
        let mut machine = Self::of(stored.into_iter(), rules, began, now, stop);
        for instance in &mut machine.instances {
            instance.gone = Some(now);
        }
        let mut effects = Vec::new();
        machine.look_for_end(&mut effects);
        (machine, effects)
    }

    fn of(
        instances: impl Iterator<Item = (NodeId, Phase, Option<String>)>,
        rules: Rules,
        began: Timestamp,
        now: Timestamp,
        stop: Option<String>,
    ) -> Self {
        let instance = |(node, phase, reason)| Instance {
            node,
            phase,
            reason,
            stored: true,
            told_since: now,
            told: now,
            heard: None,
            missed: 0,
            gone: None,
        };
        let ending = stop.map(|reason| Ending { state: RunState::Stopped, reason, since: now });
        Self { instances: instances.map(instance).collect(), rules, began, ending, ended: false }
    }

    /// The instances.
    #[must_use]
    pub fn instances(&self) -> &[Instance] {
        &self.instances
    }

    /// Handles an event.
    #[must_use]
    pub fn handle(&mut self, event: Event, now: Timestamp) -> Vec<Effect> {
        let mut out = Vec::new();
        match event {
            Event::Reported(nth, report) if nth < self.instances.len() => self.reported(nth, report, now, &mut out),
            Event::Reported(..) => {}
            Event::Listed(node, listed) => self.listed(node, &listed, now, &mut out),
            Event::NodeGone(node, since) => {
                for instance in self.instances.iter_mut().filter(|instance| instance.node == node) {
                    instance.gone.get_or_insert(since);
                }
            }
            Event::Stored(nth) => {
                self.instances[nth].stored = true;
                out.push(Effect::Settle(nth));
            }
            Event::Stop(reason) => self.end_all(RunState::Stopped, reason, now, &mut out),
            Event::Tick(here) => self.tick(&here, now, &mut out),
        }
        self.look_for_end(&mut out);
        out
    }

    fn reported(&mut self, nth: usize, report: InstanceReport, now: Timestamp, out: &mut Vec<Effect>) {
        let instance = &mut self.instances[nth];
        if instance.is_over() {
            // A late report. The final state is stored or being written.
            return match report {
                InstanceReport::Over(_) if instance.stored => out.push(Effect::Settle(nth)),
                InstanceReport::Over(_) => {}
                InstanceReport::Accepted | InstanceReport::Running => self.exit(nth, "the run no longer counts on it", now, out),
            };
        }
        (instance.heard, instance.missed, instance.gone) = (Some(now), 0, None);
        match report {
            InstanceReport::Accepted if instance.phase == Phase::Ordered => instance.phase = Phase::Accepted,
            InstanceReport::Accepted => {}
            InstanceReport::Running if instance.phase == Phase::Running => {}
            InstanceReport::Running => {
                instance.phase = Phase::Running;
                out.push(Effect::Store(nth));
            }
            InstanceReport::Over(failure) => self.over(nth, failure, out),
        }
    }

    /// An instance is over: it succeeded unless a failure is given.
    fn over(&mut self, nth: usize, failure: Option<String>, out: &mut Vec<Effect>) {
        let ended = self.ending.as_ref().map(|ending| ending.state);
        let instance = &mut self.instances[nth];
        instance.phase = Phase::Over(if failure.is_none() { RunState::Success } else { ended.unwrap_or(RunState::Failed) });
        instance.reason = failure;
        instance.stored = false;
        out.push(Effect::Store(nth));
    }

    fn listed(&mut self, node: NodeId, listed: &[usize], now: Timestamp, out: &mut Vec<Effect>) {
        for nth in 0..self.instances.len() {
            if self.instances[nth].node != node {
                continue;
            }
            let has_it = listed.contains(&nth);
            let (is_ending, instance) = (self.ending.is_some(), &mut self.instances[nth]);
            match instance.phase {
                Phase::Over(_) if has_it && instance.stored => {
                    self.exit(nth, "the run no longer counts on it", now, out);
                    out.push(Effect::Settle(nth));
                }
                Phase::Over(_) => {}
                _ if has_it => {
                    (instance.missed, instance.gone) = (0, None);
                    let is_silent = instance.heard.is_none_or(|heard| now.since_ms(heard) >= ASK_AGAIN_MS);
                    if is_silent && now.since_ms(instance.told) >= TELL_AGAIN_MS.min(ASK_AGAIN_MS) {
                        // The node had this attempt, so it does not start it again; it reports its state.
                        instance.told = now;
                        out.push(Effect::Start(nth));
                    }
                }
                // The order is repeated until the node accepts or rejects it.
                Phase::Ordered if !is_ending => {}
                _ => {
                    instance.missed += 1;
                    if instance.missed >= MISSED_LISTS {
                        self.over(nth, Some("its node does not have it".to_owned()), out);
                    }
                }
            }
        }
    }

    fn exit(&mut self, nth: usize, reason: &str, now: Timestamp, out: &mut Vec<Effect>) {
        self.instances[nth].told = now;
        out.push(Effect::Exit(nth, reason.to_owned()));
    }

    fn end_all(&mut self, state: RunState, reason: String, now: Timestamp, out: &mut Vec<Effect>) {
        if self.ending.is_some() {
            return;
        }
        for nth in 0..self.instances.len() {
            if !self.instances[nth].is_over() {
                self.instances[nth].missed = 0;
                self.exit(nth, &reason, now, out);
            }
        }
        self.ending = Some(Ending { state, reason, since: now });
    }

    fn tick(&mut self, here: &[NodeId], now: Timestamp, out: &mut Vec<Effect>) {
        if let Some(limit) = self.rules.timeout.filter(|limit| now.since_ms(self.began) > *limit as i64) {
            self.end_all(RunState::Failed, format!("it took longer than {limit} ms"), now, out);
        }
        for nth in 0..self.instances.len() {
            let instance = &mut self.instances[nth];
            if instance.is_over() {
                continue;
            }
            if here.contains(&instance.node) {
                if instance.gone.take().is_some() {
                    // It has just reconnected: send the order at once, with the full time to answer.
                    (instance.told_since, instance.told) = (now, now.plus_ms(-TELL_AGAIN_MS));
                }
            } else if now.since_ms(*instance.gone.get_or_insert(now)) > self.rules.liveness as i64 {
                let away = format!("its node did not report for {} ms", self.rules.liveness);
                self.over(nth, Some(away), out);
                continue;
            }
            self.tell(nth, now, out);
        }
    }

    /// Repeats an unanswered order.
    fn tell(&mut self, nth: usize, now: Timestamp, out: &mut Vec<Effect>) {
        let patience = self.rules.grace as i64 + MARGIN_MS;
        let instance = &mut self.instances[nth];
        let is_due = now.since_ms(instance.told) >= TELL_AGAIN_MS && instance.gone.is_none();
        match &self.ending {
            Some(ending) if now.since_ms(ending.since) > patience => {
                self.over(nth, Some("its node did not report its end".to_owned()), out);
            }
            Some(ending) if is_due => {
                let reason = ending.reason.clone();
                self.exit(nth, &reason, now, out);
            }
            Some(_) => {}
            None if instance.phase != Phase::Ordered => {}
            None if instance.gone.is_none() && now.since_ms(instance.told_since) > ANSWER_MS => {
                self.over(nth, Some("its node does not answer the order to start it".to_owned()), out);
                self.exit(nth, "the order to start it was not answered", now, out);
            }
            None if is_due => {
                instance.told = now;
                out.push(Effect::Start(nth));
            }
            None => {}
        }
    }

    fn look_for_end(&mut self, out: &mut Vec<Effect>) {
        if self.ended || !self.instances.iter().all(Instance::is_over) {
            return;
        }
        self.ended = true;
        let (state, reason) = match &self.ending {
            Some(ending) => (ending.state, Some(ending.reason.clone())),
            None => self.sum(),
        };
        out.push(Effect::End(state, reason));
    }

    fn sum(&self) -> (RunState, Option<String>) {
        let failed = |instance: &&Instance| instance.phase != Phase::Over(RunState::Success);
        let Some(first) = self.instances.iter().position(|instance| failed(&instance)) else { return (RunState::Success, None) };
        let why = self.instances[first].reason.as_deref().unwrap_or("it was ended");
        let count = self.instances.iter().filter(failed).count();
        let reason = match self.instances.len() {
            1 => why.to_owned(),
            all => format!("{count} of {all} instances failed; instance {first}: {why}"),
        };
        (RunState::Failed, Some(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODES: [NodeId; 2] = [NodeId(uuid::Uuid::from_u128(1)), NodeId(uuid::Uuid::from_u128(2))];

    fn rules() -> Rules {
        Rules { grace: 1_000, timeout: Some(100_000), liveness: 30_000 }
    }

    fn begun() -> StateMachine {
        let (machine, effects) = StateMachine::begin(&NODES, rules(), Timestamp(0));
        assert_eq!(effects, [Effect::Start(0), Effect::Start(1)]);
        machine
    }

    fn tick(machine: &mut StateMachine, now: i64) -> Vec<Effect> {
        machine.handle(Event::Tick(NODES.to_vec()), Timestamp(now))
    }

    fn reported(machine: &mut StateMachine, nth: usize, report: InstanceReport, now: i64) -> Vec<Effect> {
        machine.handle(Event::Reported(nth, report), Timestamp(now))
    }

    #[test]
    fn an_order_is_told_until_it_is_answered() {
        let mut machine = begun();
        assert_eq!(tick(&mut machine, 1_999), []);
        assert_eq!(tick(&mut machine, 2_000), [Effect::Start(0), Effect::Start(1)]);
        assert_eq!(reported(&mut machine, 0, InstanceReport::Accepted, 2_100), []);
        assert_eq!(tick(&mut machine, 4_000), [Effect::Start(1)]);
        assert_eq!(reported(&mut machine, 1, InstanceReport::Over(Some("refused".into())), 4_100), [Effect::Store(1)]);
        assert_eq!(tick(&mut machine, 9_000), []);
        assert_eq!(reported(&mut machine, 0, InstanceReport::Running, 9_000), [Effect::Store(0)]);
        let end = Effect::End(RunState::Failed, Some("1 of 2 instances failed; instance 1: refused".into()));
        assert_eq!(reported(&mut machine, 0, InstanceReport::Over(None), 9_500), [Effect::Store(0), end]);
        assert_eq!(reported(&mut machine, 0, InstanceReport::Over(None), 9_500), [], "its end is not stored yet");
        assert_eq!(machine.handle(Event::Stored(0), Timestamp(9_600)), [Effect::Settle(0)]);
        assert_eq!(reported(&mut machine, 0, InstanceReport::Over(None), 9_700), [Effect::Settle(0)]);
    }

    #[test]
    fn a_stopped_run_waits_for_its_programs_but_not_for_ever() {
        let mut machine = begun();
        let _ = reported(&mut machine, 0, InstanceReport::Running, 10);
        let why = || "by hand".to_owned();
        assert_eq!(machine.handle(Event::Stop(why()), Timestamp(20)), [Effect::Exit(0, why()), Effect::Exit(1, why())]);
        assert_eq!(reported(&mut machine, 0, InstanceReport::Over(Some("signal 15".into())), 30), [Effect::Store(0)]);
        assert_eq!(tick(&mut machine, 2_020), [Effect::Exit(1, why())]);
        assert_eq!(tick(&mut machine, 11_020), [Effect::Exit(1, why())]);
        assert_eq!(tick(&mut machine, 11_021), [Effect::Store(1), Effect::End(RunState::Stopped, Some(why()))]);
        assert_eq!(machine.instances()[1].phase, Phase::Over(RunState::Stopped));
        assert_eq!(reported(&mut machine, 1, InstanceReport::Running, 12_000), [Effect::Exit(1, "the run no longer counts on it".into())]);
    }

    #[test]
    fn a_node_may_be_away_for_a_while() {
        let mut machine = begun();
        for nth in 0..2 {
            let _ = reported(&mut machine, nth, InstanceReport::Running, 10);
        }
        let _ = machine.handle(Event::NodeGone(NODES[1], Timestamp(5_000)), Timestamp(8_000));
        let only = |machine: &mut StateMachine, now| machine.handle(Event::Tick(vec![NODES[0]]), Timestamp(now));
        assert_eq!(only(&mut machine, 35_000), []);
        assert_eq!(tick(&mut machine, 35_000), [], "it is back in time");
        assert_eq!(only(&mut machine, 40_000), []);
        assert_eq!(only(&mut machine, 70_001), [Effect::Store(1)]);
        assert_eq!(machine.instances()[1].reason.as_deref(), Some("its node did not report for 30000 ms"));
    }

    #[test]
    fn a_program_that_its_node_forgot_is_over() {
        let mut machine = begun();
        let _ = reported(&mut machine, 0, InstanceReport::Running, 10);
        let list =
            |machine: &mut StateMachine, listed: &[usize], now| machine.handle(Event::Listed(NODES[0], listed.to_vec()), Timestamp(now));
        assert_eq!(list(&mut machine, &[], 100), []);
        assert_eq!(list(&mut machine, &[0], 200), []);
        assert_eq!(list(&mut machine, &[], 300), []);
        assert_eq!(list(&mut machine, &[], 400), [Effect::Store(0)]);
        assert_eq!(list(&mut machine, &[0], 450), [], "before that is stored it is not told");
        let _ = machine.handle(Event::Stored(0), Timestamp(500));
        let exit = Effect::Exit(0, "the run no longer counts on it".into());
        assert_eq!(list(&mut machine, &[0], 600), [exit, Effect::Settle(0)], "it has it after all");
    }

    #[test]
    fn what_was_stored_is_asked_for_and_not_started_anew() {
        let stored = vec![(NODES[0], Phase::Running, None), (NODES[1], Phase::Ordered, None)];
        let (mut machine, effects) = StateMachine::restore(stored.clone(), rules(), Timestamp(0), None, Timestamp(50_000));
        assert_eq!(effects, []);
        assert_eq!(tick(&mut machine, 50_100), [Effect::Start(1)], "a running one is not ordered");
        let asked = machine.handle(Event::Listed(NODES[0], vec![0]), Timestamp(50_200));
        assert_eq!(asked, [Effect::Start(0)], "its node has it: it says where it is");
        let over = Effect::End(RunState::Failed, Some("it took longer than 100000 ms".into()));
        let effects = tick(&mut machine, 100_001);
        assert!(effects.contains(&Effect::Exit(0, "it took longer than 100000 ms".into())), "{effects:?}");
        let _ = reported(&mut machine, 0, InstanceReport::Over(None), 100_100);
        assert!(reported(&mut machine, 1, InstanceReport::Over(Some("x".into())), 100_100).contains(&over));

        let (machine, _) = StateMachine::restore(stored, rules(), Timestamp(0), Some("by hand".into()), Timestamp(0));
        assert_eq!(machine.ending.map(|ending| ending.reason).as_deref(), Some("by hand"));
    }

    #[test]
    fn a_node_that_never_answers_is_given_up() {
        let mut machine = begun();
        let _ = reported(&mut machine, 0, InstanceReport::Over(None), 10);
        let effects = tick(&mut machine, 60_001);
        let reason = "1 of 2 instances failed; instance 1: its node does not answer the order to start it".to_owned();
        let exit = Effect::Exit(1, "the order to start it was not answered".into());
        assert_eq!(effects, [Effect::Store(1), exit, Effect::End(RunState::Failed, Some(reason))]);
    }
}
