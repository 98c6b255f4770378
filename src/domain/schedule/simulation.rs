//! Simulates a job with seeded random numbers: fires, ends of runs, changes, requests, crashes before and after each write, clock
//! jumps. After every step the ledger must agree with the plan, and no run may be lost, duplicated or forgotten; after every
//! turn of the scheduler (the broker's own code) nothing due may be left.

use super::*;
use crate::domain::ids::JobId;
use crate::domain::run::RunState;
use std::collections::BTreeMap;

mod scheduler;

/// A small generator (xorshift64*): a seed determines the whole simulation.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % below.max(1)
    }

    fn chance(&mut self, of: u64) -> bool {
        self.roll(of) == 0
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Life {
    Queued,
    Open,
    Over(RunState, Timestamp),
    /// Withdrawn with its fire, before its time.
    Withdrawn,
}

#[derive(Debug, Clone, Copy)]
struct Run {
    planned_at: Timestamp,
    life: Life,
    /// It was created ahead of its time.
    is_ahead: bool,
    /// The effect of its end is not yet applied.
    follow: bool,
}

/// The stored state.
#[derive(Debug)]
struct Disk {
    definitions: Vec<Definition>,
    policies: Policies,
    state: PlanState,
    rows: BTreeMap<Timestamp, (Row, Option<usize>, i64)>,
    runs: Vec<Run>,
}

impl Disk {
    fn schedule(&self) -> &Schedule {
        &self.definitions.last().expect("it was created").schedule
    }

    fn is_enabled(&self) -> bool {
        self.definitions.last().is_some_and(|definition| definition.is_planned)
    }

    /// As `jobs::set_back`.
    fn set_back(&mut self, to: Timestamp) {
        for definition in self.definitions.iter_mut().filter(|definition| definition.from > to) {
            definition.schedule.set_back(to, definition.from);
            definition.from = to;
        }
    }

    /// As `fired_ahead`.
    fn fired_ahead(&self, state: &PlanState) -> Vec<Timestamp> {
        if state.may_have_fired_ahead() { self.fired_after(state.decided_until) } else { Vec::new() }
    }

    /// The stored next time of the job.
    fn next_at(&self) -> Option<Timestamp> {
        let plan = self.schedule().compile().expect("a schedule");
        plan.next(&self.state, self.open().any()).map(|next| next.at).filter(|_| self.is_enabled())
    }

    /// When the job was last changed.
    fn changed_at(&self) -> Timestamp {
        self.definitions.last().map(|definition| definition.from).unwrap_or_default()
    }

    /// Scheduled times after this one that have a run.
    fn fired_after(&self, after: Timestamp) -> Vec<Timestamp> {
        self.rows.range(after.plus_ms(1)..).filter(|(_, (_, run, _))| run.is_some()).map(|(at, _)| *at).collect()
    }

    fn open(&self) -> Open {
        let count = |life| self.runs.iter().filter(|run| run.life == life).count();
        Open { at_work: count(Life::Open), queued: count(Life::Queued) }
    }
}

struct World {
    dice: Dice,
    now: Timestamp,
    disk: Disk,
    /// The plan state in the memory of the job's actor; lost in a crash.
    memory: Option<PlanState>,
    /// The deciding part of the scheduler; it reads everything again after a crash.
    ticker: Ticker,
    job: JobId,
    /// How often the clock went back.
    steps_back: u64,
    crashes: u64,
    fires: u64,
    /// Fires that were decided ahead of their time, and those of them that were withdrawn.
    ahead: u64,
    withdrawn: u64,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
        for _ in 0..8 {
            dice.roll(2);
        }
        let now = Timestamp(1_700_000_000_000);
        let schedule = schedule(&mut dice, now);
        let definitions = vec![Definition { from: now, version: 1, is_planned: true, schedule }];
        let policies = policies(&mut dice);
        let disk = Disk { definitions, policies, state: PlanState::new(now), rows: BTreeMap::new(), runs: Vec::new() };
        let (ticker, job) = (Ticker::default(), JobId(uuid::Uuid::from_u128(u128::from(seed) + 1)));
        let mut world = Self { dice, now, disk, memory: None, ticker, job, steps_back: 0, crashes: 0, fires: 0, ahead: 0, withdrawn: 0 };
        world.load();
        world
    }

    /// A crash before the write loses it. A crash after the write keeps it, but the caller gets no result.
    fn write(&mut self, was: PlanState, change: impl FnOnce(&mut Disk)) -> bool {
        if self.dice.chance(40) {
            self.crash();
            return false;
        }
        if self.disk.state != was {
            self.memory = None;
            return false;
        }
        change(&mut self.disk);
        if self.dice.chance(40) {
            self.crash();
            return false;
        }
        true
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.memory = None;
        self.ticker = Ticker::default();
    }

    /// As `Room::write`.
    fn write_step(&mut self, was: PlanState, step: Step, now: Timestamp) -> bool {
        let state = step.state;
        let follows = follows(self.disk.schedule(), &self.disk.policies, &was);
        if step.replace {
            for run in self.disk.runs.iter_mut().filter(|run| matches!(run.life, Life::Open | Life::Queued)) {
                run.life = Life::Over(RunState::Stopped, now);
            }
        }
        self.fires += step.rows.iter().filter(|row| matches!(row.fate, FireOutcome::Fire { .. })).count() as u64;
        let version = self.disk.definitions.last().map_or(0, |definition| definition.version);
        let written = self.write(was, |disk| {
            if let Some(after) = step.rewind {
                disk.rows.retain(|at, (_, run, _)| *at <= after || run.is_some());
                disk.set_back(after);
            }
            let mut queued_any = false;
            for row in step.rows {
                assert!(!disk.rows.contains_key(&row.at), "{} is decided twice", row.at);
                let run = if let FireOutcome::Fire { queued } = row.fate {
                    queued_any |= queued;
                    let life = if queued { Life::Queued } else { Life::Open };
                    disk.runs.push(Run { planned_at: row.at, life, is_ahead: row.at > now, follow: follows });
                    Some(disk.runs.len() - 1)
                } else {
                    None
                };
                disk.rows.insert(row.at, (row, run, version));
            }
            if queued_any {
                disk.runs.iter_mut().filter(|run| matches!(run.life, Life::Open | Life::Queued)).for_each(|run| run.follow = true);
            }
            disk.state = state;
        });
        if written {
            self.memory = Some(state);
        }
        written
    }

    /// Ends a run and notifies its job, unless the message is lost.
    fn end_one(&mut self) {
        let open: Vec<usize> = (0..self.disk.runs.len()).filter(|i| self.disk.runs[*i].life == Life::Open).collect();
        if open.is_empty() {
            return;
        }
        let i = open[self.dice.roll(open.len() as u64) as usize];
        let how = [RunState::Success, RunState::Failed, RunState::Stopped][self.dice.roll(3) as usize];
        let run = &mut self.disk.runs[i];
        run.life = Life::Over(how, self.now);
        run.follow |= how == RunState::Failed;
        if self.dice.chance(30) {
            return self.crash();
        }
        let ended = Some(i).filter(|i| self.disk.runs[*i].follow);
        self.settle(ended);
    }

    /// As `Room::run_over`.
    fn settle(&mut self, ended: Option<usize>) {
        let was = *self.memory.get_or_insert(self.disk.state);
        let how = ended.and_then(|i| if let Life::Over(how, at) = self.disk.runs[i].life { Some((how, at)) } else { None });
        let aftermath = super::settle(&was, how, self.disk.open());
        if ended.is_none() && !aftermath.releases {
            return;
        }
        let written = self.write(was, |disk| {
            disk.state = aftermath.state;
            if let Some(i) = ended {
                disk.runs[i].follow = false;
            }
            if aftermath.releases
                && let Some(run) = disk.runs.iter_mut().find(|run| run.life == Life::Queued)
            {
                run.life = Life::Open;
            }
        });
        if written {
            self.memory = Some(aftermath.state);
            self.announce(false);
        }
    }

    /// Restart after a crash: handles everything that is unhandled.
    fn start(&mut self) {
        let unsettled: Vec<usize> =
            (0..self.disk.runs.len()).filter(|i| self.disk.runs[*i].follow && matches!(self.disk.runs[*i].life, Life::Over(..))).collect();
        for i in unsettled {
            self.settle(Some(i));
        }
        if self.disk.open().queued > 0 {
            self.settle(None);
        }
        self.load();
    }

    /// As `Room::withdraw`.
    fn withdraw(&mut self) -> bool {
        let was = *self.memory.get_or_insert(self.disk.state);
        let ahead = |(at, (row, run, _)): (&Timestamp, &(Row, Option<usize>, i64))| {
            let run = run.filter(|run| self.disk.runs[*run].is_ahead && self.disk.runs[*run].life == Life::Open)?;
            (*at > self.now && *at <= was.decided_until).then_some((*at, row.kind, run))
        };
        let Some((at, kind, run)) = self.disk.rows.iter().rev().find_map(ahead) else { return true };
        let changed_at = self.disk.changed_at();
        // Its actor may not answer, or has begun: then the run stays.
        if at <= changed_at || self.dice.chance(4) {
            return true;
        }
        let previous = self.disk.rows.range(..at).rev().find(|(_, (_, run, _))| run.is_some()).map(|(at, _)| *at);
        let until = self.disk.rows.range(..at).next_back().map(|(_, (row, ..))| row.until);
        let decided_until = until.map_or(changed_at, |until| until.max(changed_at));
        let state = withdrawn(&was, &Ahead { at, was_asked: kind == Kind::Asked, previous, decided_until }, self.now);
        let written = self.write(was, |disk| {
            disk.state = state;
            disk.rows.remove(&at);
            // The run is gone: no other run refers to it by its index.
            disk.runs[run].life = Life::Withdrawn;
        });
        if written {
            self.memory = Some(state);
            self.fires -= 1;
            self.withdrawn += 1;
            self.announce(true);
        }
        written
    }

    /// As `Room::change`.
    fn change(&mut self) {
        if !self.withdraw() {
            return;
        }
        if !self.due(self.now) {
            return;
        }
        let now = self.now.max(self.disk.state.decided_until);
        if !self.due(now) {
            return;
        }
        let was = *self.memory.get_or_insert(self.disk.state);
        let last = self.disk.definitions.last().cloned().expect("it was created");
        let mut next = Definition { from: now, version: last.version + 1, ..last.clone() };
        match self.dice.roll(4) {
            0 => next.is_planned = !last.is_planned,
            1 => next.schedule = schedule(&mut self.dice, now),
            2 => self.disk.policies = policies(&mut self.dice),
            _ => {}
        }
        let state = changed(&was, now, next.is_planned && !last.is_planned, next.schedule != last.schedule);
        let written = self.write(was, |disk| {
            disk.state = state;
            disk.definitions.push(next);
            // As `UpdateJob`: the new plan may wait for the ends of runs of the old one.
            disk.runs.iter_mut().filter(|run| matches!(run.life, Life::Open | Life::Queued)).for_each(|run| run.follow = true);
        });
        self.memory = written.then_some(state);
        if written {
            self.announce(false);
        }
    }

    fn ask(&mut self) {
        if !self.disk.is_enabled() || !self.withdraw() {
            return;
        }
        let was = *self.memory.get_or_insert(self.disk.state);
        let mut state = was;
        state.asked_at = Some(self.now.plus_ms(self.dice.roll(200_000) as i64 - 20_000).max(self.now));
        state.asked_from = Some(self.now).filter(|_| self.dice.chance(2));
        if self.write(was, |disk| disk.state = state) {
            self.memory = Some(state);
            self.announce(false);
        }
    }

    fn step(&mut self) {
        match self.dice.roll(100) {
            0..=1 => {
                let most = [2_000, 400_000, 8_000_000, 90_000_000][self.dice.roll(4) as usize];
                self.now = self.now.plus_ms(-(self.dice.roll(most) as i64));
                self.steps_back += 1;
                self.turn();
            }
            2 => self.now = self.now.plus_ms(self.dice.roll(7_200_000) as i64),
            3..=5 => self.change(),
            6..=8 => self.ask(),
            9 => self.crash(),
            10..=40 => self.end_one(),
            41..=55 => {
                self.due_soon();
                // Before its time.
                match self.dice.roll(6) {
                    _ if self.memory.is_none() => {}
                    0 => self.change(),
                    1 => self.ask(),
                    _ => {}
                }
            }
            _ => {
                self.now = self.now.plus_ms(self.dice.roll(20_000) as i64);
                self.turn();
            }
        }
        if self.memory.is_none() {
            self.start();
        }
        self.check();
    }

    fn check(&self) {
        let disk = &self.disk;
        let mut of_run = vec![0; disk.runs.len()];
        for (at, (row, run, _)) in &disk.rows {
            assert_eq!(matches!(row.fate, FireOutcome::Fire { .. }), run.is_some(), "{at}");
            if let Some(run) = run {
                of_run[*run] += 1;
                assert_eq!(disk.runs[*run].planned_at, *at);
            }
        }
        let expected = |run: &Run| i32::from(run.life != Life::Withdrawn);
        assert!(of_run.iter().zip(&disk.runs).all(|(rows, run)| *rows == expected(run)), "each run has its row");
        let entries: Vec<Entry> = disk
            .rows
            .values()
            .map(|(row, run, version)| Entry {
                at: row.at,
                until: row.until,
                instants: row.instants,
                kind: row.kind,
                is_fired: run.is_some(),
                version: *version,
            })
            .collect();
        let found = verify(&disk.definitions, &entries, Timestamp::default(), &disk.state);
        assert_eq!(found, [], "now {} state {:?} {:#?}", self.now, disk.state, disk.definitions);
        let open = disk.open();
        let waits_for = disk.runs.iter().any(|run| run.life == Life::Open || run.follow && matches!(run.life, Life::Over(..)));
        assert!(open.queued == 0 || waits_for || self.memory.is_none(), "a run waits for nothing");
    }
}

fn follows(schedule: &Schedule, policies: &Policies, state: &PlanState) -> bool {
    let rests = schedule.triggers.iter().any(|trigger| trigger.after_end);
    rests || matches!(policies.overlap, Some(Overlap::QueueOne | Overlap::QueueAll)) || state.failures > 0
}

fn schedule(dice: &mut Dice, now: Timestamp) -> Schedule {
    let every = |ms, after_end| Trigger { every: Some(ms), anchor: Some(now), after_end, ..Trigger::default() };
    let cron = |text: &str| Trigger { cron: Some(text.to_owned()), ..Trigger::default() };
    let mut schedule = Schedule::default();
    for _ in 0..=dice.roll(2) {
        schedule.triggers.push(match dice.roll(5) {
            0 => every(1_000 + dice.roll(90_000), false),
            1 => every(1_000 + dice.roll(90_000), true),
            2 => cron("* * * * *"),
            3 => cron("*/5 * * * *"),
            _ => Trigger { at: Some(now.plus_ms(dice.roll(300_000) as i64)), ..Trigger::default() },
        });
    }
    if dice.chance(4) {
        let from = now.plus_ms(dice.roll(600_000) as i64);
        schedule.blackouts.push(Blackout { from: Some(from), to: Some(from.plus_ms(200_000)), ..Blackout::default() });
    }
    if dice.chance(6) {
        schedule.max_fires = Some(1 + dice.roll(200));
    }
    if dice.chance(6) {
        schedule.end_at = Some(now.plus_ms(600_000 + dice.roll(6_000_000) as i64));
    }
    if dice.chance(5) {
        schedule.longest_silence = Some(60_000 + dice.roll(600_000));
    }
    schedule
}

fn policies(dice: &mut Dice) -> Policies {
    let policy = [MisfirePolicy::Once, MisfirePolicy::Skip, MisfirePolicy::All][dice.roll(3) as usize];
    let overlap = [Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll, Overlap::Replace, Overlap::Allow][dice.roll(5) as usize];
    let misfire = Misfire { policy, grace: dice.roll(10_000), window: dice.roll(4_000_000), limit: 1 + dice.roll(20) as u32 };
    Policies { misfire, overlap: Some(overlap), ..Policies::default() }
}

/// Thousands of simulated hours. `WEBLOOM_SIMULATION=seed,lives,steps` selects others.
#[test]
fn ledger_and_plan_agree_whatever_happens() {
    let chosen = std::env::var("WEBLOOM_SIMULATION").ok();
    let mut numbers = chosen.as_deref().unwrap_or("1,300,400").split(',').map(|n| n.parse::<u64>().expect("a number"));
    let mut number = || numbers.next().expect("seed,lives,steps");
    let (seed, lives, steps) = (number(), number(), number());
    let (mut fires, mut ahead, mut withdrawn, mut crashes, mut hours, mut back) = (0, 0, 0, 0, 0, 0);
    for seed in seed..seed + lives {
        let mut world = World::new(seed);
        let begin = world.now;
        for step in 0..steps {
            let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.step()));
            if let Err(panic) = result {
                panic!("seed {seed} step {step}: {}", panic.downcast_ref::<String>().cloned().unwrap_or_default());
            }
        }
        fires += world.fires;
        ahead += world.ahead;
        withdrawn += world.withdrawn;
        crashes += world.crashes;
        hours += world.now.since_ms(begin).abs() / 3_600_000;
        back += world.steps_back;
    }
    let is_much =
        fires > 10 * lives && ahead > lives && withdrawn > lives / 2 && crashes > lives && hours > lives as i64 / 2 && back > lives;
    assert!(is_much, "{fires} fires, {ahead} ahead, {withdrawn} taken back, {crashes} crashes, {hours} hours, {back} steps back");
}
