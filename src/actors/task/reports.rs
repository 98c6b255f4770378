//! Handles messages about a task from its worker, the allocator and the worker's actor.

use super::{MARGIN_MS, Task, TaskActor};
use crate::actors::followers::Size;
use crate::actors::placement::{Permit, WorkerSlot};
use crate::actors::run_logs::{MOST_IN_CALL, check_lines, cut_line};
use crate::actors::run_shell::Ctx;
use crate::domain::ids::WorkerId;
use crate::domain::run::{Run, RunState};
use crate::domain::task::limits;
use crate::domain::task::state_machine::{AttemptReport, Phase};
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::protocol::log::{LogInput, LogLevel};
use crate::protocol::task::{TaskError, TaskRef, TaskReport, TaskState};
use actix::AsyncContext;
use futures_util::FutureExt;

fn attempt_report(state: TaskState, error: Option<&TaskError>) -> AttemptReport {
    let message = || error.map(|error| cut(&error.message, limits::MESSAGE));
    let reason = || message().unwrap_or_else(|| "no reason given".to_owned());
    match state {
        TaskState::Accepted | TaskState::Running => AttemptReport::InProgress,
        TaskState::Refused => AttemptReport::Refused(reason()),
        TaskState::Success => AttemptReport::Success,
        TaskState::Failed => AttemptReport::Failed(reason(), error.is_some_and(|error| error.permanent)),
        TaskState::Cancelled => AttemptReport::Cancelled(message()),
    }
}

fn cut(text: &str, most: usize) -> String {
    text.chars().take(most).collect()
}

impl TaskActor {
    pub(super) fn reported(&mut self, worker: WorkerId, report: TaskReport, ctx: &mut Ctx<Task>) {
        let task = report.task();
        let i = report.instance as usize;
        let result = attempt_report(report.state, report.error.as_ref());
        let now = Timestamp::steady();
        let was_known = self.kind.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(worker));
        let decided = self.kind.machine.report(i, worker, report.attempt, result, super::moment(now));
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
        if !was_known {
            self.adopted(i, worker, ctx);
        }
        self.note_first_sign(Timestamp::now());
        self.keep_report(i, report);
        if effects.is_empty() {
            self.store_first_sign(worker, RunState::Running, ctx);
        }
        self.run_effects(effects, ctx);
    }

    fn note_first_sign(&mut self, now: Timestamp) {
        if self.run.state == RunState::Scheduled {
            if let Some(start) = self.run.start_time {
                self.context.counters.lateness.started(now.since_ms(start));
            }
            self.run.state = RunState::Running;
        }
    }

    /// Adopts an attempt on a worker to which this actor did not send it.
    fn adopted(&mut self, i: usize, worker: WorkerId, ctx: &mut Ctx<Task>) {
        log::info!("worker already runs the task run_id={} instance={i} worker_id={worker}", self.run.identity);
        self.kind.involved.add_worker(worker);
        self.kind.parts[i].worker = Some(worker);
        self.kind.parts[i].began.get_or_insert_with(Timestamp::now);
        self.run.start_time.get_or_insert_with(Timestamp::now);
        self.occupy(i, worker, ctx);
        if self.kind.machine.instances[i].worker() == Some(worker) {
            // When its timeout began is not known any more, so it begins again.
            self.kind.machine.sent(i, Timestamp::steady());
        }
        self.set_timer(ctx);
    }

    /// Stores the values of a report besides its state.
    fn keep_report(&mut self, i: usize, report: TaskReport) {
        let part = &mut self.kind.parts[i];
        part.progress = report.progress.or(part.progress);
        part.text = report.text.map(|text| cut(&text, limits::TEXT)).or(part.text.take());
        part.data = report.data.or(part.data.take());
        part.next_at = report.next_at.or(part.next_at);
        if report.state == TaskState::Success {
            part.result = report.result;
        }
        if !report.logs.is_empty() {
            self.log(report.logs);
        }
        if let Some(stack) = report.error.and_then(|error| error.stack) {
            let level = Some(LogLevel::Name("error".to_owned()));
            // The log stores one entry per line.
            let line = |line: &str| LogInput { text: cut_line(line.to_owned()), level: level.clone(), ..LogInput::default() };
            self.log(cut(&stack, limits::STACK).lines().take(MOST_IN_CALL).map(line).collect());
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
            if !std::mem::replace(&mut self.kind.has_logged, true) {
                context.followers.learn(no, Size::default());
            }
            drop(actix::spawn(context.take_lines(no, identity, lines, now).map(kept)));
        } else {
            let before = self.kind.logging.take();
            self.kind.logging = Some(actix::spawn(async move {
                if let Some(before) = before {
                    drop(before.await);
                }
                kept(context.take_lines(no, identity, lines, now).await);
            }));
        }
    }

    pub(super) fn granted(&mut self, i: usize, permit: Permit<WorkerSlot>, ctx: &mut Ctx<Task>) {
        let effects = self.kind.machine.granted(i, permit.slot().worker);
        if !effects.is_empty() {
            self.set_permit(i, permit);
            self.run_effects(effects, ctx);
        }
    }

    pub(super) fn occupied(&mut self, i: usize, permit: Permit<WorkerSlot>) {
        if self.kind.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(permit.slot().worker)) {
            self.set_permit(i, permit);
        }
    }

    pub(super) fn no_worker(&mut self, i: usize, why: &NotEligible, ctx: &mut Ctx<Task>) {
        let reason = why.reason(&self.kind.handler);
        // If the worker of a broadcast has left, its instance does not wait for it.
        if self.kind.parts.get(i).is_some_and(|part| part.only.is_none()) && self.waits_for_workers() {
            self.run.reason = Some(reason);
            if self.kind.settings.no_worker == crate::domain::task::NoWorker::Fail {
                // Request again after the time in which the workers of the previous broker may reconnect.
                ctx.run_later(self.until_workers_are_back(), move |this, ctx| {
                    if this.kind.machine.instances.get(i).is_some_and(|instance| instance.phase == Phase::Requesting) {
                        this.request_slot(i, ctx);
                    }
                });
            }
            return;
        }
        // The instance of a broadcast is for one worker.
        let permanent = self.kind.parts.get(i).is_some_and(|part| part.only.is_some());
        let effects = self.kind.machine.no_worker(i, reason, permanent, super::moment(Timestamp::steady()));
        self.run_effects(effects, ctx);
    }

    pub(super) fn claimed(&mut self, worker: WorkerId, task: TaskRef, ctx: &mut Ctx<Task>) {
        let i = task.instance as usize;
        let was_known = self.kind.machine.instances.get(i).is_some_and(|instance| instance.worker() == Some(worker));
        let is_its = self.kind.machine.claimed(i, worker, task.attempt);
        let is_ending = matches!(self.kind.machine.instances.get(i).map(|instance| &instance.phase), Some(Phase::Ending(..)));
        let Some(handle) = self.context.addresses.workers.get(worker) else { return };
        if !is_its || is_ending {
            return handle.cancel(task, "the attempt is no longer valid".to_owned());
        }
        handle.adopt_task(task, self.kind.settings.lease_ms());
        if !was_known {
            self.adopted(i, worker, ctx);
        }
    }

    pub(super) fn lease_over(
        &mut self,
        worker: WorkerId,
        task: Option<TaskRef>,
        last_message: Timestamp,
        why: &'static str,
        ctx: &mut Ctx<Task>,
    ) {
        let now = Timestamp::steady();
        let at = last_message.plus_ms(self.kind.machine.lease() + MARGIN_MS);
        if task.is_none() {
            self.kind.involved.remove_worker(worker);
        }
        for i in 0..self.kind.machine.instances.len() {
            let attempt = self.kind.machine.instances[i].attempt;
            if task.is_none_or(|task| task.instance as usize == i && task.attempt == attempt) {
                let effects = self.kind.machine.lease_over(i, worker, attempt, at, why, super::moment(now));
                self.run_effects(effects, ctx);
            }
        }
    }

    pub(super) fn still_running(&mut self, task: TaskRef, since_ms: i64, ctx: &mut Ctx<Task>) {
        let i = task.instance as usize;
        let Some(instance) = self.kind.machine.instances.get(i).filter(|instance| instance.attempt == task.attempt) else { return };
        if let Phase::AtWorker(worker) = instance.phase {
            let state = self.run.state;
            self.store_first_sign(worker, state, ctx);
            let effects = self.kind.machine.still_running(i, task.attempt, since_ms);
            self.run_effects(effects, ctx);
        }
    }
}
