//! State machine of a task: from its first request for a worker to its end.
//!
//! A run has one instance, or several (a broadcast, shards). Each instance has one attempt at a time, at one worker at most: the
//! next attempt is requested only after the last one, or its lease, is known to be over.

mod deadlines;
mod instance;

pub use deadlines::{AVERAGE_OF, Limit};
pub use instance::Instance;

use super::{Strategy, TaskSettings};
use crate::domain::ids::WorkerId;
use crate::domain::run::{RunRules, RunState};
use crate::domain::time::Timestamp;
use std::sync::Arc;

/// A worker's report about an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptReport {
    /// It has the attempt or runs it.
    InProgress,
    /// It rejects the attempt.
    Refused(String),
    /// It ended well.
    Success,
    /// It failed; the flag means that a retry would fail too.
    Failed(String, bool),
    /// It ended because of a cancel order, or its worker gives it up, perhaps with a reason.
    Cancelled(Option<String>),
}

/// Actions in this order; effects after a write wait until the write is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Decide the number of instances from the workers that are connected now.
    DecideInstances,
    /// An instance requests a worker.
    RequestSlot(usize),
    /// It withdraws this request.
    WithdrawRequest(usize),
    /// Send its order to this worker.
    Send(usize, WorkerId),
    /// Read the average time of earlier runs, for an attempt that has been running for this many milliseconds.
    ReadAverage(usize, u32, i64),
    /// Order the worker to end an attempt.
    Cancel(usize, WorkerId, u32, String),
    /// The worker no longer has the attempt, as far as known.
    Release(usize, WorkerId, u32),
    /// Write: the next attempt, its earliest time, and why the last one is over.
    Retry(usize, Timestamp, String),
    /// Write: one of several instances is over.
    InstanceOver(usize),
    /// The worker may discard an attempt: its report is on disk.
    Settle(usize, WorkerId, u32),
    /// Write: the run is over.
    Finish(RunState, Option<String>),
}

/// State of an instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Phase {
    /// Its next attempt waits until this time.
    Pausing(Timestamp),
    /// It waits until the other runs of its job are over.
    Queued,
    /// It waits for a worker.
    Requesting,
    /// A worker has it.
    AtWorker(WorkerId),
    /// A worker may have it: until the worker reports it, or its lease ends at this time.
    Unclear(Timestamp),
    /// It has to end; after this time the run no longer waits for its worker.
    Ending(WorkerId, Timestamp, Then),
    /// It is over.
    Over(RunState),
}

/// The time of an event, and a random number between 0 and 1.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Moment {
    /// The current time.
    pub now: Timestamp,
    /// For the random part of pauses.
    pub chance: f64,
}

/// What follows when an attempt has ended on order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Then {
    /// The run was stopped.
    Stop,
    /// It took too long.
    Fail(String),
}

/// See the module documentation.
#[derive(Debug)]
pub struct StateMachine {
    /// Its instances, at least one.
    pub instances: Vec<Instance>,
    settings: Arc<TaskSettings>,
    rules: RunRules,
    /// Each instance has its own row.
    several: bool,
    stopping: Option<String>,
    finished: bool,
}

impl StateMachine {
    /// The state machine of a run with these instances; `several`: each of them has its own row, even if there is only one.
    #[must_use]
    pub fn new(settings: Arc<TaskSettings>, rules: RunRules, instances: Vec<Instance>, several: bool) -> Self {
        Self { instances, settings, rules, several, stopping: None, finished: false }
    }

    /// Whether the end is decided.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.finished
    }

    /// Whether each instance has its own row.
    #[must_use]
    pub fn is_several(&self) -> bool {
        self.several
    }

    /// The number of its instances is not decided yet: the strategy derives it from the workers that are connected at its time.
    #[must_use]
    pub fn is_unplaced(&self) -> bool {
        matches!(self.settings.strategy, Strategy::Broadcast | Strategy::Shard) && !self.several
    }

    /// The instances are decided and stored.
    pub fn placed(&mut self, count: usize) -> Vec<Effect> {
        (self.instances, self.several) = (vec![Instance::new(); count], true);
        self.begin()
    }

    fn request_effect(&self, i: usize) -> Effect {
        if self.is_unplaced() { Effect::DecideInstances } else { Effect::RequestSlot(i) }
    }

    /// Milliseconds of the lease.
    #[must_use]
    pub fn lease(&self) -> i64 {
        self.settings.lease_ms() as i64
    }

    /// Starts it when its run is not queued any more, or continues it in a new actor.
    pub fn begin(&mut self) -> Vec<Effect> {
        match self.instances[0].phase {
            Phase::Queued => self.instances[0].phase = Phase::Requesting,
            // Without stored instances no worker can have received one.
            Phase::Unclear(_) if self.is_unplaced() => self.instances[0].phase = Phase::Requesting,
            _ => {}
        }
        let is_requesting = |i: &usize| self.instances[*i].phase == Phase::Requesting;
        let mut effects: Vec<_> = (0..self.instances.len()).filter(is_requesting).map(|i| self.request_effect(i)).collect();
        self.finish_if_over(&mut effects);
        effects
    }

    /// Time has passed.
    pub fn tick(&mut self, moment: Moment) -> Vec<Effect> {
        let now = moment.now;
        let mut effects = Vec::new();
        for i in 0..self.instances.len() {
            match self.instances[i].phase.clone() {
                Phase::Pausing(at) if at <= now => {
                    self.instances[i].phase = Phase::Requesting;
                    effects.push(self.request_effect(i));
                }
                Phase::AtWorker(_) => self.check_limit(i, now, &mut effects),
                Phase::Unclear(until) if until <= now => {
                    self.lost(i, None, "no worker reported that it has it".to_owned(), now, &mut effects);
                }
                Phase::Ending(worker, until, then) if until <= now => {
                    effects.push(Effect::Release(i, worker, self.instances[i].attempt));
                    self.ended(i, then, moment, &mut effects);
                }
                _ => {}
            }
        }
        self.finish_if_over(&mut effects);
        effects
    }

    /// A slot at this worker was granted. A late grant is ignored.
    pub fn granted(&mut self, i: usize, worker: WorkerId) -> Vec<Effect> {
        match self.instances.get_mut(i) {
            Some(instance) if instance.phase == Phase::Requesting && !self.finished => {
                instance.phase = Phase::AtWorker(worker);
                vec![Effect::Send(i, worker)]
            }
            _ => Vec::new(),
        }
    }

    /// No worker may have it, and its settings do not allow waiting: the attempt has failed. `permanent`: no other attempt can find a worker.
    pub fn no_worker(&mut self, i: usize, reason: String, permanent: bool, moment: Moment) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.instances.get(i).is_some_and(|instance| instance.phase == Phase::Requesting) {
            effects.push(Effect::WithdrawRequest(i));
            self.failed(i, None, reason, permanent, moment, &mut effects);
            self.finish_if_over(&mut effects);
        }
        effects
    }

    /// A worker has this attempt, which may not be recorded here. Returns false if the worker must drop it.
    pub fn claimed(&mut self, i: usize, worker: WorkerId, attempt: u32) -> bool {
        let Some(instance) = self.instances.get_mut(i).filter(|instance| instance.attempt == attempt) else { return false };
        match instance.phase {
            Phase::AtWorker(other) | Phase::Ending(other, ..) => other == worker,
            Phase::Unclear(_) if self.stopping.is_none() => {
                instance.phase = Phase::AtWorker(worker);
                true
            }
            _ => false,
        }
    }

    /// Handles a report. `Err`: the report changes nothing, with the reason.
    ///
    /// # Errors
    /// The attempt is not the current one, or belongs to another worker.
    pub fn report(
        &mut self,
        i: usize,
        worker: WorkerId,
        attempt: u32,
        report: AttemptReport,
        moment: Moment,
    ) -> Result<Vec<Effect>, String> {
        let now = moment.now;
        let Some(instance) = self.instances.get_mut(i) else { return Err(format!("there is no instance {i}")) };
        if instance.is_over() || self.finished {
            return Err("it is over".to_owned());
        }
        if instance.attempt != attempt {
            return Err(format!("attempt {attempt} is not the current one, {} is", instance.attempt));
        }
        match &instance.phase {
            Phase::AtWorker(holder) | Phase::Ending(holder, ..) if *holder == worker => {}
            // The worker that reports the current attempt of an unclaimed task has it.
            Phase::Unclear(_) => instance.phase = Phase::AtWorker(worker),
            _ => return Err("another worker has it, or no worker has it".to_owned()),
        }
        let mut effects = Vec::new();
        if report == AttemptReport::InProgress {
            return Ok(effects);
        }
        let ending = match &instance.phase {
            Phase::Ending(_, _, then) => Some(then.clone()),
            _ => None,
        };
        effects.push(Effect::Release(i, worker, attempt));
        match (report, ending) {
            // It ended before the cancel order arrived: the success counts.
            (AttemptReport::Success, _) => self.over(i, RunState::Success, None, &mut effects),
            (_, Some(then)) => self.ended(i, then, moment, &mut effects),
            (AttemptReport::Failed(reason, permanent), None) => self.failed(i, Some(worker), reason, permanent, moment, &mut effects),
            (AttemptReport::Refused(reason), None) => self.lost(i, Some(worker), format!("refused: {reason}"), now, &mut effects),
            (AttemptReport::Cancelled(why), None) => {
                let why = why.map(|why| format!(": {why}")).unwrap_or_default();
                self.lost(i, Some(worker), format!("its worker gave it up{why}"), now, &mut effects);
            }
            // Handled above.
            (AttemptReport::InProgress, None) => {}
        }
        effects.push(Effect::Settle(i, worker, attempt));
        self.finish_if_over(&mut effects);
        Ok(effects)
    }

    /// The lease of its worker ends at this time.
    pub fn lease_over(&mut self, i: usize, worker: WorkerId, attempt: u32, at: Timestamp, why: &str, moment: Moment) -> Vec<Effect> {
        let now = moment.now;
        let mut effects = Vec::new();
        let Some(instance) = self.instances.get_mut(i).filter(|instance| instance.attempt == attempt) else { return effects };
        if instance.worker() != Some(worker) || self.finished {
            return effects;
        }
        effects.push(Effect::Release(i, worker, attempt));
        match instance.phase.clone() {
            Phase::Ending(_, _, then) if at <= now => self.ended(i, then, moment, &mut effects),
            Phase::Ending(_, until, then) => instance.phase = Phase::Ending(worker, until.min(at), then),
            _ if at <= now => self.lost(i, Some(worker), why.to_owned(), now, &mut effects),
            _ => {
                instance.reason = Some(why.to_owned());
                instance.exclude(worker);
                instance.phase = Phase::Unclear(at);
            }
        }
        self.finish_if_over(&mut effects);
        effects
    }

    fn grace(&self) -> i64 {
        self.settings.cancel_grace.unwrap_or(TaskSettings::CANCEL_GRACE) as i64
    }

    /// The run has to end.
    pub fn stop(&mut self, reason: String, now: Timestamp) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.finished {
            return effects;
        }
        let until = now.plus_ms(self.grace());
        self.stopping = Some(reason.clone());
        for i in 0..self.instances.len() {
            let instance = &mut self.instances[i];
            match instance.phase {
                Phase::AtWorker(worker) | Phase::Ending(worker, _, Then::Fail(_)) => {
                    instance.phase = Phase::Ending(worker, until, Then::Stop);
                    effects.push(Effect::Cancel(i, worker, instance.attempt, reason.clone()));
                }
                Phase::Requesting => {
                    effects.push(Effect::WithdrawRequest(i));
                    self.over(i, RunState::Stopped, Some(reason.clone()), &mut effects);
                }
                Phase::Queued | Phase::Pausing(_) | Phase::Unclear(_) => {
                    self.over(i, RunState::Stopped, Some(reason.clone()), &mut effects)
                }
                Phase::Ending(_, _, Then::Stop) | Phase::Over(_) => {}
            }
        }
        self.finish_if_over(&mut effects);
        effects
    }

    /// It has ended on order.
    fn ended(&mut self, i: usize, then: Then, moment: Moment, effects: &mut Vec<Effect>) {
        match then {
            Then::Stop => self.over(i, RunState::Stopped, self.stopping.clone(), effects),
            Then::Fail(reason) => {
                let worker = self.instances[i].worker();
                match worker {
                    Some(worker) => self.failed(i, Some(worker), reason, false, moment, effects),
                    None => self.over(i, RunState::Failed, Some(reason), effects),
                }
            }
        }
    }

    fn failed(&mut self, i: usize, worker: Option<WorkerId>, reason: String, permanent: bool, moment: Moment, effects: &mut Vec<Effect>) {
        let instance = &mut self.instances[i];
        instance.failures += 1;
        if let Some(worker) = worker {
            instance.exclude(worker);
        }
        // The policy counts failures; attempts lost with their worker are not failures of the function.
        match self.rules.next_attempt(instance.failures, moment.chance).filter(|_| !permanent && self.stopping.is_none()) {
            Some(pause) => self.retry(i, moment.now.plus_ms(pause), reason, effects),
            None => self.over(i, RunState::Failed, Some(reason), effects),
        }
    }

    /// An attempt is over without a report about its result.
    fn lost(&mut self, i: usize, worker: Option<WorkerId>, reason: String, now: Timestamp, effects: &mut Vec<Effect>) {
        let most = self.settings.lost_attempts.unwrap_or(TaskSettings::LOST_ATTEMPTS);
        let instance = &mut self.instances[i];
        if let Some(worker) = worker {
            instance.exclude(worker);
        }
        if self.stopping.is_some() {
            return self.over(i, RunState::Stopped, self.stopping.clone(), effects);
        }
        if instance.is_taken_over {
            // It does not count: the broker died, or was away for longer than the lease.
            instance.uncounted += 1;
            return self.retry(i, now, reason, effects);
        }
        if instance.lost() >= most {
            let reason = format!("{} attempts were lost, the last: {reason}", instance.lost() + 1);
            return self.over(i, RunState::Failed, Some(reason), effects);
        }
        // The pause grows with the number of losses, so that a task that kills its workers does not kill them all at once.
        let pause = if instance.lost() == 0 { 0 } else { 500 << instance.lost().min(6) };
        self.retry(i, now.plus_ms(pause), reason, effects);
    }

    fn retry(&mut self, i: usize, not_before: Timestamp, reason: String, effects: &mut Vec<Effect>) {
        let instance = &mut self.instances[i];
        let reason = format!("attempt {} failed: {reason}", instance.attempt);
        instance.attempt += 1;
        (instance.is_taken_over, instance.limit) = (false, Limit::default());
        instance.reason = Some(reason.clone());
        instance.phase = Phase::Pausing(not_before);
        effects.push(Effect::Retry(i, not_before, reason));
    }

    fn over(&mut self, i: usize, state: RunState, reason: Option<String>, effects: &mut Vec<Effect>) {
        let instance = &mut self.instances[i];
        (instance.phase, instance.reason) = (Phase::Over(state), reason);
        if self.several {
            effects.push(Effect::InstanceOver(i));
        }
    }

    /// Ends the run when all instances are over. The end is written before the effects of the last report.
    fn finish_if_over(&mut self, effects: &mut Vec<Effect>) {
        if self.finished || !self.instances.iter().all(Instance::is_over) {
            return;
        }
        self.finished = true;
        let (state, reason) = self.sum();
        let at = effects.iter().position(|effect| matches!(effect, Effect::Settle(..))).unwrap_or(effects.len());
        effects.insert(at, Effect::Finish(state, reason));
    }

    /// The combined result of all instances.
    fn sum(&self) -> (RunState, Option<String>) {
        let count = |state: RunState| self.instances.iter().filter(|instance| instance.phase == Phase::Over(state)).count();
        let reason = |state: RunState| self.instances.iter().find(|i| i.phase == Phase::Over(state)).and_then(|i| i.reason.clone());
        let all = self.instances.len();
        let (failed, stopped) = (count(RunState::Failed), count(RunState::Stopped));
        match (failed, stopped) {
            (0, 0) => (RunState::Success, None),
            (0, _) => (RunState::Stopped, reason(RunState::Stopped)),
            (_, 0) | (_, _) if self.stopping.is_some() => (RunState::Stopped, self.stopping.clone()),
            _ if all == 1 => (RunState::Failed, reason(RunState::Failed)),
            _ => {
                let first = reason(RunState::Failed).unwrap_or_default();
                (RunState::Failed, Some(format!("{failed} of {all} instances failed, the first: {first}")))
            }
        }
    }
}

#[cfg(test)]
mod simulation;

#[cfg(test)]
mod tests;
