//! The procedures of a job: what happens when a scheduled time comes or is near, when a run ends or requests the next time, before a
//! change, and when a fire that was decided ahead of its time is withdrawn.
//!
//! They decide, and say in which order to read, write and notify. A [`JobPorts`] does that: in the broker the job's actor with the
//! store and the other actors, in the simulation a simulated disk. So the simulation drives the code of the broker.

use super::ahead::{AHEAD_MS, Ahead, decide_ahead, withdrawn};
use super::decide::{Circumstances, FireOutcome, Open, SMALL_STEP_MS, Step, decide};
use super::plan::{Plan, PlanState};
use super::policies::Policies;
use super::settle::{RunEndEffects, settle};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;

/// What is known of a job. It is read from the store, and changes with each write.
#[derive(Debug)]
pub struct JobCore {
    /// Its policies.
    pub rules: Policies,
    /// Its plan.
    pub plan: Plan,
    /// How far the plan is decided.
    pub state: PlanState,
    /// The next scheduled time.
    pub next_at: Option<Timestamp>,
    /// It is enabled and not deleted.
    pub is_on: bool,
    /// When it was last changed.
    pub changed_at: Timestamp,
    /// Its kind and its policies permit deciding a fire ahead of its time.
    pub may_be_ahead: bool,
    /// A run may leave data for the next one.
    pub leaves_data: bool,
}

impl JobCore {
    /// The next scheduled time in this state, while runs are open or not.
    #[must_use]
    pub fn next(&self, state: &PlanState, is_open: bool) -> Option<Timestamp> {
        if !self.is_on {
            return None;
        }
        self.plan.next(state, is_open).map(|next| next.at)
    }

    /// The next scheduled time, if it is near and has not come.
    fn near(&self, now: Timestamp) -> Option<Timestamp> {
        self.next_at.filter(|at| *at > now && at.since_ms(now) <= AHEAD_MS)
    }

    /// When the scheduler should notify the job. If the clock went back, that is at once: the scheduler reads only the stored state.
    #[must_use]
    pub fn notify_at(&self, now: Timestamp) -> Option<Timestamp> {
        if self.is_on && self.state.is_from_later(now) { Some(now) } else { self.next_at }
    }
}

/// A new state of a plan, to be stored if the stored one is still `was`.
#[derive(Debug, Clone, Copy)]
pub struct Move {
    /// The state on which the decision is based.
    pub was: PlanState,
    /// The new state.
    pub state: PlanState,
    /// The next scheduled time in it.
    pub next_at: Option<Timestamp>,
    /// When it was decided.
    pub now: Timestamp,
}

/// The end of a run.
#[derive(Debug, Clone, Copy)]
pub struct RunEnd {
    /// Its last state.
    pub state: RunState,
    /// When.
    pub at: Timestamp,
    /// The time that it requested for the next run, and since when that is a pause; see [`PlanState::ask`].
    pub asked: Option<(Timestamp, Option<Timestamp>)>,
}

/// Where the procedures read, write and notify. After an error of a write, nothing is known of the job: the next call reads it again.
pub trait JobPorts {
    /// Why something could not be read or written.
    type Error;
    /// Keeps the actor of a run away while the run is withdrawn.
    type Held;
    /// What the write of the end of a run needs besides the decision.
    type Ending;

    /// The current time.
    fn now(&self) -> Timestamp;
    /// The job, read if it is not known.
    fn core(&mut self) -> impl Future<Output = Result<&mut JobCore, Self::Error>>;
    /// Forgets the job.
    fn forget_core(&mut self);
    /// The unfinished runs of a job that is known.
    fn open(&self) -> Open;
    /// Reads the unfinished runs again.
    fn look_again(&mut self) -> impl Future<Output = Result<(), Self::Error>>;
    /// Scheduled times after this one that have a run.
    fn fired_after(&self, after: Timestamp) -> impl Future<Output = Result<Vec<Timestamp>, Self::Error>>;
    /// The clock went back, and the plan is decided again from `to`: the scheduled times of the last row that begins until then.
    fn rewinds(&self, from: Timestamp, to: Timestamp) -> impl Future<Output = Result<Option<(Timestamp, Timestamp)>, Self::Error>>;
    /// Stops the unfinished runs, because another run replaces them. An error: one of them could not be stopped.
    fn stop_open(&mut self) -> impl Future<Output = Result<(), Self::Error>>;
    /// Stores a decision, and starts its runs.
    fn write_step(&mut self, step: Step, to: &Move) -> impl Future<Output = Result<(), Self::Error>>;
    /// The time of the run that was created ahead of its time, if that has not come.
    fn ahead(&self, now: Timestamp) -> Option<Timestamp>;
    /// Stops the actor of this run. `None`: it has begun, or does not answer.
    fn hold_ahead(&mut self, at: Timestamp) -> impl Future<Output = Option<Self::Held>>;
    /// The fire of this time in the ledger. Its `decided_until` is the end of the row before it.
    fn read_ahead(&self, at: Timestamp) -> impl Future<Output = Result<Option<Ahead>, Self::Error>>;
    /// Stores that this fire is withdrawn, with its run.
    fn write_withdrawal(&mut self, at: Timestamp, to: &Move) -> impl Future<Output = Result<(), Self::Error>>;
    /// Stores the effects of the end of a run, and starts the run that leaves the queue.
    fn write_end(&mut self, ending: Self::Ending, effects: &RunEndEffects, to: &Move) -> impl Future<Output = Result<(), Self::Error>>;
    /// Stores a state.
    fn write_move(&mut self, to: &Move) -> impl Future<Output = Result<(), Self::Error>>;
    /// Sends the scheduler the next time; with `at_its_time` it must not notify the job before that.
    fn announce(&mut self, at_its_time: bool);
}

/// Stores the new state in memory, after the write.
async fn moved<P: JobPorts>(ports: &mut P, to: &Move) -> Result<(), P::Error> {
    let core = ports.core().await?;
    (core.state, core.next_at) = (to.state, to.next_at);
    Ok(())
}

/// Repeated scheduled times that already have a run. There are some only if the clock went back.
async fn fired_ahead<P: JobPorts>(ports: &mut P) -> Result<Vec<Timestamp>, P::Error> {
    let state = ports.core().await?.state;
    if state.may_have_fired_ahead() { ports.fired_after(state.decided_until).await } else { Ok(Vec::new()) }
}

/// Decides what is due now, and also the next fire if its time is near and nothing can change it any more. Returns whether that
/// fire must be decided at its time.
///
/// # Errors
/// A port fails.
pub async fn due<P: JobPorts>(ports: &mut P, now: Timestamp) -> Result<bool, P::Error> {
    let core = ports.core().await?;
    // After a step of the clock, the plan is reset first, even if the next scheduled time is near.
    if core.near(now).is_none() || core.state.is_from_later(now) {
        settle_due(ports, now).await?;
    }
    let core = ports.core().await?;
    if !core.is_on {
        core.next_at = None;
    }
    let Some(at) = core.near(now) else { return Ok(false) };
    let (may_be_ahead, leaves_data) = (core.may_be_ahead, core.leaves_data);
    if !may_be_ahead || leaves_data && ports.open().any() {
        return Ok(true);
    }
    let fired_ahead = fired_ahead(ports).await?;
    let given = Circumstances { open: ports.open(), fired_ahead: &fired_ahead };
    let core = ports.core().await?;
    match decide_ahead(&core.plan, &core.rules, &core.state, &given, at) {
        Some(step) => write(ports, step, now).await.map(|()| false),
        None => Ok(true),
    }
}

/// Decides until nothing is due at `until`.
///
/// # Errors
/// A port fails.
pub async fn settle_due<P: JobPorts>(ports: &mut P, until: Timestamp) -> Result<(), P::Error> {
    loop {
        // There may be much to decide, and the clock may go back in the meantime.
        let clock = ports.now();
        let now = if until.since_ms(clock) > SMALL_STEP_MS { clock } else { until };
        let core = ports.core().await?;
        // Reset the plan of a disabled job too after the clock went back: the job may be enabled later.
        if !core.is_on && !core.state.is_from_later(now) {
            core.next_at = None;
            return Ok(());
        }
        if core.next_at.is_some_and(|at| at <= now) && ports.open().any() {
            ports.look_again().await?;
        }
        let fired_ahead = fired_ahead(ports).await?;
        let given = Circumstances { open: ports.open(), fired_ahead: &fired_ahead };
        let core = ports.core().await?;
        let was = core.state;
        let mut step = decide(&core.plan, &core.rules, &was, &given, now);
        if let Some(after) = step.rewind
            && let Some((at, until)) = ports.rewinds(was.latest(), after).await?
            && until > after
        {
            step.rewind_around(at);
        }
        if step.is_empty() {
            // A newer run may have delayed the plan. Without this update, the job would be notified again and again.
            let is_open = ports.open().any();
            let core = ports.core().await?;
            core.next_at = core.next(&was, is_open);
            return Ok(());
        }
        let more = step.more || step.rewind.is_some();
        let changed_at = ports.core().await?.changed_at;
        let changes_again = step.rewind.is_some_and(|to| changed_at > to);
        write(ports, step, now).await?;
        if changes_again {
            // The changes that were made during the repeated time now apply again, and the stored row contains them.
            ports.forget_core();
        }
        if !more {
            return Ok(());
        }
    }
}

async fn write<P: JobPorts>(ports: &mut P, step: Step, now: Timestamp) -> Result<(), P::Error> {
    if step.replace {
        ports.stop_open().await?;
    }
    let is_open = ports.open().any() || step.rows.iter().any(|row| matches!(row.fate, FireOutcome::Fire { .. }));
    let core = ports.core().await?;
    let to = Move { was: core.state, state: step.state, next_at: core.next(&step.state, is_open), now };
    ports.write_step(step, &to).await?;
    moved(ports, &to).await
}

/// Withdraws the fire that was decided ahead of its time and has not begun, because something unforeseen arrives: a change of the
/// job, a trigger, or a run that requests the next time.
///
/// # Errors
/// A port fails.
pub async fn withdraw<P: JobPorts>(ports: &mut P) -> Result<(), P::Error> {
    let now = ports.now();
    let core = ports.core().await?;
    let (decided, changed_at) = (core.state.decided_until, core.changed_at);
    // A fire that an earlier change of the job has kept stays: the plan continues from there.
    let Some(at) = ports.ahead(now).filter(|at| *at <= decided && *at > changed_at) else { return Ok(()) };
    // If there is no actor, the decision stays.
    let Some(_held) = ports.hold_ahead(at).await else { return Ok(()) };
    let Some(ahead) = ports.read_ahead(at).await? else { return Ok(()) };
    let others = ports.open().at_work + ports.open().queued > 1;
    let core = ports.core().await?;
    let ahead = Ahead { decided_until: ahead.decided_until.max(changed_at), ..ahead };
    let state = withdrawn(&core.state, &ahead, now);
    let to = Move { was: core.state, state, next_at: core.next(&state, others), now };
    ports.write_withdrawal(at, &to).await?;
    moved(ports, &to).await?;
    // Not at once again: the unforeseen event goes first.
    ports.announce(true);
    Ok(())
}

/// Whether the end of a run changes nothing: its effects are applied already, no run leaves the queue, and the next time stays.
///
/// # Errors
/// A port fails.
pub async fn is_settled<P: JobPorts>(ports: &mut P, has_effects: bool) -> Result<bool, P::Error> {
    let core = ports.core().await?;
    let (next_at, state) = (core.next_at, core.state);
    let open = ports.open();
    let releases = open.at_work == 0 && open.queued > 0;
    Ok(!has_effects && !releases && next_at == ports.core().await?.next(&state, open.any()))
}

/// Applies the end of a run to the plan; `None`: only lets a queued run begin.
///
/// # Errors
/// A port fails.
pub async fn settle_end<P: JobPorts>(ports: &mut P, end: Option<RunEnd>, ending: P::Ending) -> Result<(), P::Error> {
    let asked = end.and_then(|end| end.asked);
    if asked.is_some() {
        withdraw(ports).await?;
    }
    let now = ports.now();
    ports.core().await?;
    let open = ports.open();
    let core = ports.core().await?;
    let mut effects = settle(&core.state, end.map(|end| (end.state, end.at)), open);
    if let Some((at, from)) = asked.filter(|_| core.is_on) {
        effects.state.ask(at, from, now);
    }
    let state = effects.state;
    let to = Move { was: core.state, state, next_at: core.next(&state, open.any()), now };
    ports.write_end(ending, &effects, &to).await?;
    moved(ports, &to).await?;
    ports.announce(false);
    Ok(())
}

/// A run requests the next time of its job. Returns the next scheduled time.
///
/// # Errors
/// A port fails.
pub async fn ask<P: JobPorts>(ports: &mut P, at: Timestamp, from: Option<Timestamp>) -> Result<Option<Timestamp>, P::Error> {
    withdraw(ports).await?;
    let now = ports.now();
    ports.core().await?;
    let is_open = ports.open().any();
    let core = ports.core().await?;
    let mut state = core.state;
    state.ask(at, from, now);
    let to = Move { was: core.state, state, next_at: core.next(&state, is_open), now };
    ports.write_move(&to).await?;
    moved(ports, &to).await?;
    ports.announce(false);
    Ok(to.next_at)
}

/// Decides everything that is due under the old definition of a job that is about to change. Returns when the new one begins.
///
/// # Errors
/// A port fails.
pub async fn prepare_change<P: JobPorts>(ports: &mut P) -> Result<Timestamp, P::Error> {
    withdraw(ports).await?;
    // If the clock went back, use the current time and not the time at which the plan was decided.
    let now = ports.now();
    settle_due(ports, now).await?;
    let now = ports.now().max(ports.core().await?.state.decided_until);
    settle_due(ports, now).await?;
    // The next scheduled time may depend on a run whose end caused no message.
    ports.look_again().await?;
    Ok(now)
}
