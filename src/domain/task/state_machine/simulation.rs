//! Simulates one task with seeded random numbers: workers that die, hang, reject tasks and return, a network that delays and breaks, a
//! broker that is killed before and after each of its writes. Every step checks the guarantees.
//!
//! `WEBLOOM_TASK_SIMULATION=seed,count` selects other seeds, and how many.

use super::*;
use crate::domain::schedule::Retry;
use std::collections::VecDeque;
use uuid::Uuid;

const STEP: i64 = 20;
const WORKERS: usize = 3;
const LEASE: u64 = 1_000;
const HEARTBEAT: i64 = 300;

/// A small generator, so that a seed gives the same result everywhere.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 11) % n
    }
    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

#[derive(Debug, Clone, PartialEq)]
enum Down {
    Order(u32),
    Cancel(u32),
    Settled(u32),
    /// The response to a heartbeat: its sending time and the listed attempts.
    Pong(i64, Vec<u32>),
}

#[derive(Debug, Clone, PartialEq)]
enum Up {
    Heartbeat(i64, Vec<u32>),
    Report(u32, AttemptReport),
}

#[derive(Debug)]
struct SimulatedWorker {
    alive: bool,
    connected: bool,
    /// Ordered to end its attempt; its lease is no longer renewed.
    cancelled: Option<u32>,
    /// Attempt, when it will be done, its result, and the end of its lease.
    work: Option<(u32, i64, AttemptReport, i64)>,
    outbox: Option<(u32, AttemptReport)>,
    /// Sending time of the last answered heartbeat.
    proved: i64,
    next_heartbeat: i64,
    /// Attempts that succeeded.
    done: Vec<u32>,
    up: VecDeque<(i64, Up)>,
    down: VecDeque<(i64, Down)>,
}

/// The stored state.
#[derive(Debug, Clone)]
struct Disk {
    attempt: u32,
    failures: u32,
    not_before: Option<Timestamp>,
    end: Option<RunState>,
    ends: u32,
}

struct World {
    random: Random,
    now: i64,
    machine: StateMachine,
    disk: Disk,
    /// The broker's view of each worker: attempt and last renewal.
    held: Vec<Option<(u32, i64)>>,
    workers: Vec<SimulatedWorker>,
    is_requesting: bool,
    /// The broker is down until then.
    down_until: Option<i64>,
    stopped: bool,
    /// Failures that the broker counted since its start.
    failures: u32,
    trace: Vec<String>,
}

fn worker(i: usize) -> WorkerId {
    WorkerId(Uuid::from_u128(i as u128))
}

fn number(id: WorkerId) -> usize {
    id.0.as_u128() as usize
}

fn rules() -> RunRules {
    RunRules { retry: Some(Retry { limit: 2, delay: 0, ..Retry::default() }), ..RunRules::default() }
}

fn settings() -> Arc<TaskSettings> {
    Arc::new(TaskSettings { lease: Some(LEASE), cancel_grace: Some(400), lost_attempts: Some(6), ..TaskSettings::default() })
}

impl World {
    fn new(seed: u64) -> Self {
        let worker = |_| SimulatedWorker {
            alive: true,
            connected: true,
            cancelled: None,
            work: None,
            outbox: None,
            proved: 0,
            next_heartbeat: 0,
            done: Vec::new(),
            up: VecDeque::new(),
            down: VecDeque::new(),
        };
        let mut world = Self {
            random: Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            now: 0,
            machine: StateMachine::new(settings(), rules(), vec![Instance::new()], false),
            disk: Disk { attempt: 1, failures: 0, not_before: None, end: None, ends: 0 },
            held: vec![None; WORKERS],
            workers: (0..WORKERS).map(worker).collect(),
            is_requesting: false,
            down_until: None,
            stopped: false,
            failures: 0,
            trace: Vec::new(),
        };
        let effects = world.machine.begin();
        world.carry_out(effects);
        world
    }

    fn at(&self) -> Timestamp {
        Timestamp(self.now)
    }

    fn send_down(&mut self, i: usize, message: Down) {
        if self.workers[i].connected {
            let earliest = self.workers[i].down.back().map_or(0, |(at, _)| *at);
            let at = (self.now + self.random.below(8) as i64 * STEP).max(earliest);
            self.workers[i].down.push_back((at, message));
        }
    }

    fn send_up(&mut self, i: usize, message: Up) {
        if self.workers[i].connected {
            let earliest = self.workers[i].up.back().map_or(0, |(at, _)| *at);
            let at = (self.now + self.random.below(8) as i64 * STEP).max(earliest);
            self.workers[i].up.push_back((at, message));
        }
    }

    /// The shell: effects after a write wait for it, and a crash may come before and after each write.
    fn carry_out(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            self.trace.push(format!("{}: {effect:?}", self.now));
            match effect {
                Effect::RequestSlot(_) => self.is_requesting = true,
                Effect::WithdrawRequest(_) => self.is_requesting = false,
                Effect::DecideInstances | Effect::ReadAverage(..) => unreachable!("there is one instance, and it is short"),
                Effect::Send(_, id) => {
                    self.held[number(id)] = Some((self.disk.attempt, self.now));
                    assert_eq!(self.disk.attempt, self.machine.instances[0].attempt, "sent before it was stored");
                    self.send_down(number(id), Down::Order(self.disk.attempt));
                }
                Effect::Cancel(_, id, attempt, _) => self.send_down(number(id), Down::Cancel(attempt)),
                Effect::Release(_, id, _) => self.held[number(id)] = None,
                Effect::Settle(_, id, attempt) => self.send_down(number(id), Down::Settled(attempt)),
                Effect::InstanceOver(_) => unreachable!("there is one instance"),
                Effect::Retry(_, at, _) => {
                    if self.random.one_in(12) {
                        return self.crash();
                    }
                    assert!(self.machine.instances[0].attempt > self.disk.attempt, "attempts only grow");
                    self.disk.attempt = self.machine.instances[0].attempt;
                    self.disk.failures = self.machine.instances[0].failures;
                    self.disk.not_before = Some(at);
                    if self.random.one_in(12) {
                        return self.crash();
                    }
                }
                Effect::Finish(state, _) => {
                    if self.random.one_in(12) {
                        return self.crash();
                    }
                    assert_eq!(self.disk.end, None, "it ended twice");
                    self.disk.end = Some(state);
                    self.disk.ends += 1;
                    if self.random.one_in(12) {
                        return self.crash();
                    }
                }
            }
        }
    }

    fn crash(&mut self) {
        self.trace.push(format!("{}: the broker is killed", self.now));
        self.failures = self.disk.failures;
        self.down_until = Some(self.now + 100 + self.random.below(1_500) as i64);
        self.held = vec![None; WORKERS];
        self.is_requesting = false;
        for i in 0..WORKERS {
            self.cut(i);
        }
    }

    fn cut(&mut self, i: usize) {
        let worker = &mut self.workers[i];
        worker.connected = false;
        worker.up.clear();
        worker.down.clear();
    }

    /// A new broker: it starts from the stored state.
    fn boot(&mut self) {
        let phase = match (self.disk.end, self.disk.not_before) {
            (Some(state), _) => Phase::Over(state),
            // Nothing was sent for an attempt that had to wait.
            (None, Some(at)) if at.0 > self.now => Phase::Pausing(at),
            _ => Phase::Unclear(self.at().plus_ms(LEASE as i64)),
        };
        let (attempt, failures) = (self.disk.attempt, self.disk.failures);
        self.machine = StateMachine::new(settings(), rules(), vec![Instance::taken_over(phase, attempt, failures)], false);
        if self.disk.end.is_some() {
            self.machine.finished = true;
        } else {
            let effects = self.machine.begin();
            self.carry_out(effects);
        }
    }

    fn broker(&mut self) {
        if let Some(until) = self.down_until {
            if self.now >= until {
                self.down_until = None;
                self.boot();
            }
            return;
        }
        let chance = self.random.below(1_000) as f64 / 1_000.0;
        for i in 0..WORKERS {
            while self.down_until.is_none() && self.workers[i].up.front().is_some_and(|(at, _)| *at <= self.now) {
                let (_, message) = self.workers[i].up.pop_front().expect("it was looked at");
                self.receive(i, message, chance);
            }
            if let Some((attempt, renewed)) = self.held[i].filter(|(_, renewed)| self.now - renewed > LEASE as i64) {
                self.held[i] = None;
                let over = Timestamp(renewed + LEASE as i64);
                let effects = self.machine.lease_over(0, worker(i), attempt, over, "its lease is over", Moment { now: self.at(), chance });
                self.carry_out(effects);
            }
        }
        if self.down_until.is_some() {
            return;
        }
        if self.machine.wake().is_some_and(|at| at <= self.at()) {
            let effects = self.machine.tick(Moment { now: self.at(), chance });
            self.carry_out(effects);
        }
        if self.is_requesting && self.down_until.is_none() {
            let i = self.random.below(WORKERS as u64) as usize;
            if self.workers[i].connected && self.held[i].is_none() {
                self.is_requesting = false;
                let effects = self.machine.granted(0, worker(i));
                self.carry_out(effects);
            }
        }
        if self.random.one_in(4_000) && self.down_until.is_none() {
            self.stopped = true;
            let effects = self.machine.stop("as you like".to_owned(), self.at());
            self.carry_out(effects);
        }
        if self.random.one_in(150) && self.down_until.is_none() {
            let attempt = self.machine.instances[0].attempt;
            let effects = self.machine.too_long(0, attempt, "too long".to_owned(), self.at());
            self.carry_out(effects);
        }
        if self.random.one_in(600) {
            self.crash();
        }
    }

    fn receive(&mut self, i: usize, message: Up, chance: f64) {
        match message {
            Up::Heartbeat(sent, tasks) => {
                for attempt in tasks.clone() {
                    let is_ending = matches!(self.machine.instances[0].phase, Phase::Ending(..));
                    if self.machine.claimed(0, worker(i), attempt) {
                        if !is_ending {
                            self.held[i] = Some((attempt, self.now));
                        } else {
                            self.send_down(i, Down::Cancel(attempt));
                        }
                    } else {
                        self.send_down(i, Down::Cancel(attempt));
                    }
                }
                self.send_down(i, Down::Pong(sent, tasks));
            }
            Up::Report(attempt, report) => {
                match self.machine.report(0, worker(i), attempt, report.clone(), Moment { now: self.at(), chance }) {
                    Ok(effects) => {
                        self.failures += u32::from(matches!(report, AttemptReport::Failed(..)));
                        self.carry_out(effects);
                    }
                    // It changes nothing; the worker may discard it.
                    Err(_) => self.send_down(i, Down::Settled(attempt)),
                }
            }
        }
    }

    fn worker(&mut self, i: usize) {
        if !self.workers[i].alive {
            if self.random.one_in(60) {
                self.workers[i].alive = true;
            }
            return;
        }
        if self.random.one_in(400) {
            // Killed: it loses its state.
            self.cut(i);
            let done = std::mem::take(&mut self.workers[i].done);
            self.workers[i] = SimulatedWorker {
                alive: false,
                work: None,
                outbox: None,
                done,
                up: VecDeque::new(),
                down: VecDeque::new(),
                ..self.workers[i]
            };
            return;
        }
        if self.random.one_in(300) {
            self.cut(i);
        }
        if !self.workers[i].connected && self.down_until.is_none() && self.random.one_in(20) {
            // It reports its current attempt first, then its reports.
            let worker = &mut self.workers[i];
            (worker.connected, worker.next_heartbeat) = (true, self.now);
            self.send_heartbeat(i);
            if let Some((attempt, report)) = self.workers[i].outbox.clone() {
                self.send_up(i, Up::Report(attempt, report));
            }
        }
        while self.workers[i].down.front().is_some_and(|(at, _)| *at <= self.now) {
            let (_, message) = self.workers[i].down.pop_front().expect("it was looked at");
            self.handle_message(i, message);
        }
        if self.now >= self.workers[i].next_heartbeat {
            self.send_heartbeat(i);
        }
        if let Some((attempt, done_at, report, lease)) = self.workers[i].work.clone() {
            if self.now >= lease {
                self.workers[i].work = None;
            } else if self.now >= done_at {
                self.workers[i].work = None;
                if report == AttemptReport::Success {
                    self.workers[i].done.push(attempt);
                }
                self.workers[i].outbox = Some((attempt, report.clone()));
                self.send_up(i, Up::Report(attempt, report));
            }
        }
    }

    fn send_heartbeat(&mut self, i: usize) {
        let worker = &self.workers[i];
        let mut tasks: Vec<u32> = worker.work.iter().map(|(attempt, ..)| *attempt).collect();
        tasks.extend(worker.outbox.iter().map(|(attempt, _)| *attempt));
        self.workers[i].next_heartbeat = self.now + HEARTBEAT;
        self.send_up(i, Up::Heartbeat(self.now, tasks));
    }

    fn handle_message(&mut self, i: usize, message: Down) {
        match message {
            Down::Order(attempt) => {
                let has = |worker: &SimulatedWorker| {
                    worker.work.as_ref().is_some_and(|(a, ..)| *a == attempt) || worker.outbox.as_ref().is_some_and(|(a, _)| *a == attempt)
                };
                if has(&self.workers[i]) || self.workers[i].work.is_some() {
                    return;
                }
                let report = match self.random.below(10) {
                    0..=3 => AttemptReport::Failed("it failed".to_owned(), false),
                    4 => AttemptReport::Refused("no".to_owned()),
                    _ => AttemptReport::Success,
                };
                let takes = if self.random.one_in(6) { 20_000 } else { self.random.below(1_500) as i64 };
                // Count from the sending time of the last answered heartbeat before the order: the order was not sent before that.
                let lease = self.workers[i].proved + LEASE as i64;
                self.workers[i].work = Some((attempt, self.now + takes, report, lease));
            }
            Down::Cancel(attempt) => {
                // One in three ignores the order, and is stopped by the end of its lease.
                let ends = !self.random.one_in(3);
                let worker = &mut self.workers[i];
                worker.cancelled = Some(attempt);
                if ends && worker.work.as_ref().is_some_and(|(a, ..)| *a == attempt) {
                    worker.work = None;
                    worker.outbox = Some((attempt, AttemptReport::Cancelled(None)));
                    self.send_up(i, Up::Report(attempt, AttemptReport::Cancelled(None)));
                }
            }
            Down::Settled(attempt) => {
                let worker = &mut self.workers[i];
                worker.outbox.take_if(|(a, _)| *a == attempt);
            }
            Down::Pong(sent, listed) => {
                let worker = &mut self.workers[i];
                worker.proved = worker.proved.max(sent);
                let cancelled = worker.cancelled;
                if let Some((.., lease)) =
                    worker.work.as_mut().filter(|(attempt, ..)| cancelled != Some(*attempt) && listed.contains(attempt))
                {
                    *lease = (*lease).max(sent + LEASE as i64);
                }
            }
        }
    }

    fn check(&self) {
        let running: Vec<_> = self.workers.iter().enumerate().filter_map(|(i, h)| h.work.as_ref().map(|w| (i, w.0))).collect();
        // A stopped run is closed even if its worker continues; one that exceeds its time limit waits for the lease.
        if !self.stopped {
            assert!(running.len() <= 1, "at work twice: {running:?}\n{}", self.trace.join("\n"));
        }
        assert!(self.disk.ends <= 1);
        assert!(self.failures <= 3 || self.stopped, "more attempts than the policy allows\n{}", self.trace.join("\n"));
    }
}

fn simulate(seed: u64) {
    let mut world = World::new(seed);
    // Until it is over, and some steps longer for late messages.
    let mut after = 400;
    for step in 0..200_000 {
        world.now += STEP;
        world.broker();
        for i in 0..WORKERS {
            world.worker(i);
        }
        world.check();
        if world.disk.end.is_some() {
            after -= 1;
            if after == 0 {
                break;
            }
        }
        assert!(step < 199_999, "seed {seed}: it never ends: {:?}\n{}", world.machine, world.trace.join("\n"));
    }
    match world.disk.end {
        Some(RunState::Success) => {
            assert!(world.workers.iter().any(|worker| worker.done.contains(&world.disk.attempt)), "seed {seed}: nobody has done it");
        }
        Some(RunState::Stopped) => assert!(world.stopped, "seed {seed}: nobody stopped it"),
        Some(RunState::Failed) => assert!(world.disk.attempt > 2, "seed {seed}: it failed too soon\n{}", world.trace.join("\n")),
        other => panic!("seed {seed}: {other:?}"),
    }
    assert!(
        world.workers.iter().all(|worker| worker.outbox.is_none() || !worker.alive || !worker.connected),
        "seed {seed}: a report is never settled"
    );
}

#[test]
fn one_task_through_everything() {
    let given = std::env::var("WEBLOOM_TASK_SIMULATION").unwrap_or_default();
    let numbers: Vec<u64> = given.split(',').filter_map(|n| n.trim().parse().ok()).collect();
    let (seed, count) = (numbers.first().copied().unwrap_or(1), numbers.get(1).copied().unwrap_or(400));
    for i in 0..count {
        simulate(seed + i);
    }
}
