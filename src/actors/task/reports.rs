//! Handles messages about a task from its worker, the allocator and the worker's actor.

use super::{Claimed, Granted, LeaseOver, MARGIN, NoEligibleWorker, Occupied, Report, StillAtWork, TaskActor};
use crate::actors::followers::Size;
use crate::actors::run_logs::check_lines;
use crate::domain::ids::WorkerId;
use crate::domain::run::{Run, RunState};
use crate::domain::task::limits;
use crate::domain::task::state_machine::{AttemptReport, Phase};
use crate::domain::time::Timestamp;
use crate::protocol::log::{LogInput, LogLevel};
use crate::protocol::task::{TaskError, TaskReport, TaskState};
use crate::store::AverageTime;
use actix::{ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use futures_util::FutureExt;
use std::time::Duration;

/// A task without a timeout is compared with earlier runs after this many milliseconds, and never earlier.
const LEAST_DEADLINE: i64 = 5 * 60 * 1_000;
/// Its time limit if there are no earlier runs, in milliseconds.
const NO_AVERAGE: i64 = 2 * 60 * 60 * 1_000;
/// The time limit is this multiple of the average, and the average is over this many runs.
const TIMES_AVERAGE: i64 = 3;
const AVERAGE_OF: i64 = 100;

fn attempt_report(state: TaskState, error: Option<&TaskError>) -> AttemptReport {
    let reason = || error.map_or_else(|| "no reason given".to_owned(), |error| cut(&error.message, limits::MESSAGE));
    match state {
        TaskState::Accepted | TaskState::Running => AttemptReport::AtWork,
        TaskState::Refused => AttemptReport::Refused(reason()),
        TaskState::Success => AttemptReport::Success,
        TaskState::Failed => AttemptReport::Failed(reason(), error.is_some_and(|error| error.permanent)),
        TaskState::Cancelled => AttemptReport::Cancelled,
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

impl TaskActor {
    fn heard(&mut self, worker: WorkerId, report: TaskReport, ctx: &mut Context<Self>) {
        let task = report.task();
        let i = report.instance as usize;
        let result = attempt_report(report.state, report.error.as_ref());
        let now = Timestamp::steady();
        let knew = self.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(worker));
        let decided = self.machine.report(i, worker, report.attempt, result, super::moment(now));
        let effects = match decided {
            Ok(effects) => effects,
            Err(why) => {
                log::info!("late task report ignored run_id={} attempt={}: {why}", task.identity, task.attempt);
                if report.state.is_final() {
                    self.settle(worker, task, Some(why));
                } else if let Some(handle) = self.context.addresses.workers.get(worker) {
                    handle.cancel(task, why);
                }
                return;
            }
        };
        if !knew {
            self.adopted(i, worker, ctx);
        }
        self.note_first_sign(Timestamp::now());
        self.keep(i, report);
        if effects.is_empty() {
            self.note_begin(worker, RunState::Running, ctx);
        }
        self.then(effects, ctx);
    }

    fn note_first_sign(&mut self, now: Timestamp) {
        if self.run.state == RunState::Scheduled {
            if let Some(start) = self.run.start_time {
                self.context.lateness.started(now.since_ms(start));
            }
            self.run.state = RunState::Running;
        }
    }

    /// Adopts an attempt on a worker to which this actor did not send it.
    fn adopted(&mut self, i: usize, worker: WorkerId, ctx: &mut Context<Self>) {
        log::info!("worker already runs the task run_id={} instance={i} worker_id={worker}", self.run.identity);
        self.involved.add_worker(worker);
        self.parts[i].worker = Some(worker);
        self.parts[i].began.get_or_insert_with(Timestamp::now);
        self.run.start_time.get_or_insert_with(Timestamp::now);
        self.occupy(i, worker, ctx);
        self.mind_time(ctx);
    }

    /// Stores the values of a report besides its state.
    fn keep(&mut self, i: usize, report: TaskReport) {
        let part = &mut self.parts[i];
        part.progress = report.progress.or(part.progress);
        part.text = report.text.map(|text| cut(&text, limits::TEXT)).or(part.text.take());
        part.data = report.data.or(part.data.take());
        part.next_at = report.next_at.or(part.next_at);
        if report.state == TaskState::Success {
            part.result = report.result;
        }
        let mut lines = report.logs;
        if let Some(stack) = report.error.and_then(|error| error.stack) {
            let level = Some(LogLevel::Name("error".to_owned()));
            // The log stores one entry per line.
            lines.extend(cut(&stack, limits::STACK).lines().map(|line| LogInput {
                text: line.to_owned(),
                level: level.clone(),
                ..LogInput::default()
            }));
        }
        if !lines.is_empty() {
            self.log(lines);
        }
    }

    /// Writes log lines outside of the actor, so they are kept even if the task ends with them. For a run that this broker began,
    /// they precede its end. Otherwise the size of the log must be read first, and the end waits for them.
    fn log(&mut self, lines: Vec<LogInput>) {
        let (context, no, identity, now) = (self.context.clone(), self.run.no, self.run.identity, Timestamp::now());
        let lines = match check_lines(lines, now) {
            Ok(lines) => lines,
            Err(problem) => return log::warn!("rejected log lines of a task run_id={identity}: {problem}"),
        };
        let kept = move |done| {
            if let Err(problem) = done {
                log::warn!("failed to store log lines of a task run_id={identity}: {problem}");
            }
        };
        if self.epoch == Run::FIRST_EPOCH {
            if !std::mem::replace(&mut self.has_logged, true) {
                context.followers.learn(no, Size::default());
            }
            drop(actix::spawn(context.take_lines(no, identity, lines, now).map(kept)));
        } else {
            let before = self.logging.take();
            self.logging = Some(actix::spawn(async move {
                if let Some(before) = before {
                    drop(before.await);
                }
                kept(context.take_lines(no, identity, lines, now).await);
            }));
        }
    }

    /// Sets the time limit of a task without a timeout from earlier runs.
    fn judge(&mut self, i: usize, attempt: u32, since_ms: i64, ctx: &mut Context<Self>) {
        if self.run.rules.timeout.is_some() || since_ms < LEAST_DEADLINE || self.parts[i].is_judged {
            return;
        }
        self.parts[i].is_judged = true;
        let read = self.context.store.read(AverageTime { job_id: self.run.job_id, runs: AVERAGE_OF });
        ctx.spawn(wrap_future(read).map(move |average, this: &mut Self, ctx: &mut Context<Self>| {
            let Ok(average) = average else { return };
            let most = average.map_or(NO_AVERAGE, |average| (average as i64 * TIMES_AVERAGE).max(LEAST_DEADLINE));
            let rest = (most - since_ms).max(0) as u64;
            ctx.run_later(Duration::from_millis(rest), move |this, ctx| {
                let effects = this.machine.too_long(
                    i,
                    attempt,
                    format!("it took longer than {most} ms, far longer than earlier runs"),
                    Timestamp::steady(),
                );
                this.then(effects, ctx);
            });
            let _ = this;
        }));
    }
}

impl Handler<Granted> for TaskActor {
    type Result = ();
    fn handle(&mut self, Granted { instance, permit }: Granted, ctx: &mut Self::Context) {
        self.guard.message("task.granted");
        let i = instance as usize;
        let effects = self.machine.granted(i, permit.worker());
        if !effects.is_empty() {
            self.has_permit(i, permit);
            self.then(effects, ctx);
        }
    }
}

impl Handler<Occupied> for TaskActor {
    type Result = ();
    fn handle(&mut self, Occupied { instance, permit }: Occupied, _: &mut Self::Context) {
        self.guard.message("task.occupied");
        let i = instance as usize;
        if self.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(permit.worker())) {
            self.has_permit(i, permit);
        }
    }
}

impl Handler<NoEligibleWorker> for TaskActor {
    type Result = ();
    fn handle(&mut self, NoEligibleWorker { instance, why }: NoEligibleWorker, ctx: &mut Self::Context) {
        self.guard.message("task.no_worker");
        let i = instance as usize;
        let reason = why.reason(&self.handler);
        // If the worker of a broadcast has left, its instance does not wait for it.
        if self.parts.get(i).is_some_and(|part| part.only.is_none()) && self.waits_for_workers() {
            self.run.reason = Some(reason);
            if self.settings.no_worker == crate::domain::task::NoWorker::Fail {
                // Ask again after the time in which the workers of the previous broker may reconnect.
                let until = self.context.began.plus_ms(self.context.times.worker_offline as i64);
                let rest = until.since_ms(Timestamp::steady()).max(0) as u64 + 1;
                ctx.run_later(Duration::from_millis(rest), move |this, ctx| {
                    if this.machine.instances.get(i).is_some_and(|instance| instance.phase == Phase::Asking) {
                        this.ask(i, ctx);
                    }
                });
            }
            return;
        }
        let effects = self.machine.no_worker(i, reason);
        self.then(effects, ctx);
    }
}

impl Handler<Report> for TaskActor {
    type Result = ();
    fn handle(&mut self, Report { worker, report }: Report, ctx: &mut Self::Context) {
        self.guard.message("task.report");
        self.heard(worker, *report, ctx);
    }
}

impl Handler<Claimed> for TaskActor {
    type Result = ();
    fn handle(&mut self, Claimed { worker, task }: Claimed, ctx: &mut Self::Context) {
        self.guard.message("task.claimed");
        let i = task.instance as usize;
        let knew = self.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(worker));
        let is_its = self.machine.claimed(i, worker, task.attempt);
        let is_ending = matches!(self.machine.instances.get(i).map(|instance| &instance.phase), Some(Phase::Ending(..)));
        let Some(handle) = self.context.addresses.workers.get(worker) else { return };
        if !is_its || is_ending {
            return handle.cancel(task, "the attempt is no longer valid".to_owned());
        }
        handle.holds(task, self.settings.lease_ms());
        if !knew {
            self.adopted(i, worker, ctx);
        }
    }
}

impl Handler<LeaseOver> for TaskActor {
    type Result = ();
    fn handle(&mut self, LeaseOver { worker, task, heard, why }: LeaseOver, ctx: &mut Self::Context) {
        self.guard.message("task.lease_over");
        let now = Timestamp::steady();
        let at = heard.plus_ms(self.machine.lease() + MARGIN);
        if task.is_none() {
            self.involved.remove_worker(worker);
        }
        for i in 0..self.machine.instances.len() {
            let attempt = self.machine.instances[i].attempt;
            if task.is_none_or(|task| task.instance as usize == i && task.attempt == attempt) {
                let effects = self.machine.lease_over(i, worker, attempt, at, why, super::moment(now));
                self.then(effects, ctx);
            }
        }
    }
}

impl Handler<StillAtWork> for TaskActor {
    type Result = ();
    fn handle(&mut self, StillAtWork { task, since_ms }: StillAtWork, ctx: &mut Self::Context) {
        self.guard.message("task.still_at_work");
        let i = task.instance as usize;
        let Some(instance) = self.machine.instances.get(i).filter(|instance| instance.attempt == task.attempt) else { return };
        if let Phase::At(worker) = instance.phase {
            let state = self.run.state;
            self.note_begin(worker, state, ctx);
            self.judge(i, task.attempt, since_ms, ctx);
        }
    }
}
