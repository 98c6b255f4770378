//! Simulates a job with seeded random numbers: fires, ends of runs, changes, requests, crashes before and after each write, clock
//! jumps. After every step the ledger must agree with the plan, and no run may be lost, duplicated or forgotten; after every
//! turn of the scheduler nothing due may be left. The scheduler's [`Ticker`] and the procedures of the job are those of the broker.

use super::*;
use crate::domain::ids::JobId;
use crate::domain::run::RunState;
use futures_util::FutureExt;
use std::collections::BTreeMap;

mod disk;
mod scheduler;

/// The simulated disk answers at once.
fn at_once<T>(procedure: impl Future<Output = T>) -> T {
    procedure.now_or_never().expect("the simulation does not wait")
}

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
    /// The time that it requested with its end.
    asked: Option<(Timestamp, Option<Timestamp>)>,
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
    /// What the job's actor knows; lost in a crash.
    memory: Option<JobCore>,
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
    fn write(&mut self, was: PlanState, change: impl FnOnce(&mut Disk)) -> Result<(), ()> {
        if self.dice.chance(40) {
            self.crash();
            return Err(());
        }
        if self.disk.state != was {
            self.memory = None;
            return Err(());
        }
        change(&mut self.disk);
        if self.dice.chance(40) {
            self.crash();
            return Err(());
        }
        Ok(())
    }

    fn crash(&mut self) {
        self.crashes += 1;
        self.memory = None;
        self.ticker = Ticker::default();
    }

    /// Ends a run and notifies its job, unless the message is lost.
    fn end_one(&mut self) {
        let open: Vec<usize> = (0..self.disk.runs.len()).filter(|i| self.disk.runs[*i].life == Life::Open).collect();
        if open.is_empty() {
            return;
        }
        let i = open[self.dice.roll(open.len() as u64) as usize];
        let how = [RunState::Success, RunState::Failed, RunState::Stopped][self.dice.roll(3) as usize];
        let (at, from) = self.wish();
        let run = &mut self.disk.runs[i];
        run.life = Life::Over(how, self.now);
        run.asked = (how == RunState::Success && self.dice.chance(8)).then_some((at, from));
        run.follow |= how == RunState::Failed || run.asked.is_some();
        if self.dice.chance(30) {
            return self.crash();
        }
        let ended = Some(i).filter(|i| self.disk.runs[*i].follow);
        self.settle(ended);
    }

    /// A time that a run requests.
    fn wish(&mut self) -> (Timestamp, Option<Timestamp>) {
        let at = self.now.plus_ms(self.dice.roll(200_000) as i64 - 20_000);
        (at, Some(self.now).filter(|_| self.dice.chance(2)))
    }

    /// As the job's actor at the end of a run.
    fn settle(&mut self, ended: Option<usize>) {
        let end = ended.and_then(|i| match self.disk.runs[i] {
            Run { life: Life::Over(state, at), asked, .. } => Some(RunEnd { state, at, asked }),
            _ => None,
        });
        if at_once(job_core::is_settled(self, end.is_some())) == Ok(false) {
            // After an error the end is settled by the next start.
            let _ = at_once(job_core::settle_end(self, end, ended));
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

    /// As the job's actor at a change.
    fn change(&mut self) {
        let Ok(now) = at_once(job_core::prepare_change(self)) else { return };
        let was = self.disk.state;
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
        self.memory = None;
        if written.is_ok() {
            // The actor reads the changed job when it is needed next.
            let _ = at_once(self.core());
            self.announce(false);
        }
    }

    fn ask(&mut self) {
        if self.disk.is_enabled() {
            let (at, from) = self.wish();
            let _ = at_once(job_core::ask(self, at, from));
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
    let mut numbers = chosen.as_deref().unwrap_or("1,100,400").split(',').map(|n| n.parse::<u64>().expect("a number"));
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
