//! Carries out the effects that the state machine of a task decided.

use super::{Task, TaskActor};
use crate::actors::placement::{Permit, WorkerSlot};
use crate::actors::run_shell::{Ctx, Ended};
use crate::domain::ids::WorkerId;
use crate::domain::run::{Run, RunState};
use crate::domain::task::state_machine::{AVERAGE_OF, Effect, Phase};
use crate::domain::time::Timestamp;
use crate::domain::trace::{Attempt, Peer, SpanId};
use crate::domain::worker_pool::WorkerRequest;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef};
use crate::store::{AverageTime, EndInstance, FinishTask, NextAsked, RetryTask, WithNext};
use actix::{ActorFutureExt, AsyncContext, fut::wrap_future};
use std::sync::Arc;

/// Maximum bytes of the combined results of the instances of a run; results beyond that are left out.
const MOST_RESULTS: usize = 1 << 20;

impl TaskActor {
    pub(super) fn carry_out(&mut self, effect: Effect, ctx: &mut Ctx<Task>) {
        match effect {
            // A later decision may have made these two effects obsolete.
            Effect::RequestSlot(i) if self.kind.machine.instances[i].phase == Phase::Requesting => self.request_slot(i, ctx),
            Effect::Send(i, worker) if self.kind.machine.instances[i].phase == Phase::AtWorker(worker) => self.send(i, worker, ctx),
            Effect::RequestSlot(_) | Effect::Send(..) => {}
            Effect::DecideInstances => self.place(ctx),
            Effect::ReadAverage(i, attempt, since_ms) => self.read_average(i, attempt, since_ms, ctx),
            Effect::WithdrawRequest(i) => {
                self.context.allocator.withdraw((self.run.identity, i as u32));
            }
            Effect::Cancel(i, worker, attempt, reason) => {
                if let Some(worker) = self.context.addresses.workers.get(worker) {
                    worker.cancel(self.task(i, attempt), reason);
                }
            }
            Effect::Release(i, worker, attempt) => {
                self.kind.parts[i].permit = None;
                if let Some(worker) = self.context.addresses.workers.get(worker) {
                    worker.release_task(self.task(i, attempt));
                }
            }
            Effect::Settle(i, worker, attempt) => self.settle(worker, self.task(i, attempt), None),
            Effect::Retry(i, not_before, reason) => self.store_attempt(i, not_before, reason, ctx),
            Effect::InstanceOver(i) => self.store_instance(i, ctx),
            Effect::Finish(state, reason) => self.finish(state, reason, ctx),
        }
    }

    fn task(&self, i: usize, attempt: u32) -> TaskRef {
        TaskRef { identity: self.run.identity, instance: i as u32, attempt }
    }

    pub(super) fn settle(&self, worker: WorkerId, task: TaskRef, refused: Option<String>) {
        if let Some(worker) = self.context.addresses.workers.get(worker) {
            worker.settled(SettledTask { identity: task.identity, instance: task.instance, attempt: task.attempt, refused });
        }
    }

    pub(super) fn request_slot(&mut self, i: usize, ctx: &mut Ctx<Task>) {
        // If the allocator is being rebuilt, the task requests the slot again afterwards.
        self.context.allocator.request_slot(Box::new(self.request(i)), self.link(ctx));
    }

    /// The request of an instance to the allocator.
    pub(super) fn request(&self, i: usize) -> WorkerRequest {
        WorkerRequest {
            requester: (self.run.identity, i as u32),
            excluded: self.kind.machine.instances[i].excluded.clone(),
            only: self.kind.parts[i].only,
            needs_slot: true,
            ..WorkerRequest::of_run(&self.run, Arc::clone(&self.kind.handler), Arc::clone(&self.kind.settings))
        }
    }

    pub(super) fn occupy(&mut self, i: usize, worker: WorkerId, ctx: &Ctx<Task>) {
        self.context.allocator.occupy_slot(worker, i as u32, self.link(ctx));
    }

    pub(super) fn set_permit(&mut self, i: usize, permit: Permit<WorkerSlot>) {
        self.kind.involved.add_worker(permit.slot().worker);
        self.kind.parts[i].worker = Some(permit.slot().worker);
        self.kind.parts[i].permit = Some(permit);
    }

    /// Sends the order to the worker's actor.
    pub(super) fn send(&mut self, i: usize, id: WorkerId, ctx: &mut Ctx<Task>) {
        let now = Timestamp::now();
        let attempt = self.kind.machine.instances[i].attempt;
        let Some(worker) = self.context.addresses.workers.get(id) else {
            // The order was not sent, so no worker has it.
            let steady = Timestamp::steady();
            let effects = self.kind.machine.lease_over(i, id, attempt, steady, "its worker is not connected", super::moment(steady));
            self.kind.effects.extend(effects);
            return;
        };
        self.note_start(now);
        if self.run.state == RunState::Pending {
            self.run.state = RunState::Scheduled;
        }
        self.run.reason = None;
        if self.run.may_be_late() && !self.kind.is_begun {
            // Otherwise, for a short run, the start is stored together with the end.
            self.write_begin(id, ctx);
        }
        let part = &mut self.kind.parts[i];
        (part.began, part.progress, part.text) = (Some(now), None, None);
        let data = self.run.rules.data.as_deref().and_then(|text| serde_json::value::RawValue::from_string(text.to_owned()).ok());
        worker.send_order(TaskOrder {
            identity: self.run.identity,
            instance: i as u32,
            attempt,
            instances: self.kind.parts.len() as u32,
            job_id: self.run.job_id,
            handler: self.kind.handler.to_string(),
            arguments: self.kind.arguments.clone(),
            data: data.map(Arc::from),
            lease: self.kind.settings.lease_ms(),
            timeout: self.run.rules.timeout,
            planned_at: self.run.planned_at,
            trace_id: self.run.trace_id.clone(),
            span_id: self.context.telemetry.is_on().then(|| SpanId::of_attempt(self.run.identity, i as u32, attempt)),
        });
        self.kind.machine.sent(i, Timestamp::steady());
    }

    /// A failed read leaves the attempt without a limit.
    fn read_average(&mut self, i: usize, attempt: u32, since_ms: i64, ctx: &mut Ctx<Task>) {
        let read = self.context.store.read(AverageTime { job_id: self.run.job_id, runs: AVERAGE_OF });
        ctx.spawn(wrap_future(read).map(move |average, this: &mut Self, ctx: &mut Ctx<Task>| {
            if let Ok(average) = average {
                this.kind.machine.average(i, attempt, since_ms, average, Timestamp::steady());
                this.run_effects(Vec::new(), ctx);
            }
        }));
    }

    fn store_attempt(&mut self, i: usize, not_before: Timestamp, reason: String, ctx: &mut Ctx<Task>) {
        let instance = &self.kind.machine.instances[i];
        log::warn!(
            "task attempt ended, another attempt follows run_id={} instance={i} attempt={}: {reason}",
            self.run.identity,
            instance.attempt
        );
        self.run.state = RunState::Pending;
        self.run.reason = Some(reason.clone());
        // What a failed attempt set is not the next one's; after a restart of the broker it would be unknown too.
        let part = &mut self.kind.parts[i];
        (part.result, part.data, part.next_at) = (None, None, None);
        let began = part.began.take();
        let failed = (instance.attempt.saturating_sub(1), RunState::Failed, Some(reason.clone()));
        let span = self.span(|this| this.attempt_of(i, began, failed, Timestamp::now()));
        if !self.kind.machine.is_several() {
            self.run.attempt = instance.attempt;
            self.kind.is_begun = false;
        }
        let write = RetryTask {
            no: self.run.no,
            epoch: self.epoch,
            instance: self.kind.machine.is_several().then_some(i as u32),
            attempt: instance.attempt,
            failures: instance.failures,
            not_before: not_before.on_the_wall(),
            reason,
            worker: self.kind.parts[i].worker,
            began,
            now: Timestamp::now(),
        };
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, |this, (), _| {
            this.context.telemetry.spans(|| span);
            this.context.followers.ring(this.run.identity);
        });
    }

    fn store_instance(&mut self, i: usize, ctx: &mut Ctx<Task>) {
        let Phase::Over(state) = self.kind.machine.instances[i].phase else { return };
        let now = Timestamp::now();
        let part = &self.kind.parts[i];
        let write = EndInstance {
            no: self.run.no,
            epoch: self.epoch,
            instance: i as u32,
            peer: part.worker,
            state,
            reason: self.kind.machine.instances[i].reason.clone(),
            result: part.result.as_ref().map(|raw| raw.get().to_owned()),
            start_time: part.began,
            now,
        };
        let instance = &self.kind.machine.instances[i];
        let over = (instance.attempt, state, instance.reason.clone());
        let span = self.span(|this| this.attempt_of(i, this.kind.parts[i].began, over, now));
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, |this, (), _| this.context.telemetry.spans(|| span));
    }

    /// An attempt that ends, with its number, state and reason; none if it was sent to no worker.
    fn attempt_of(
        &self,
        i: usize,
        began: Option<Timestamp>,
        (attempt, state, reason): (u32, RunState, Option<String>),
        now: Timestamp,
    ) -> Option<Attempt> {
        let peer = self.kind.parts[i].worker.map(Peer::Worker);
        let instance = self.kind.machine.is_several().then_some(i as u32);
        // An earlier actor may have sent it.
        let is_sent = began.is_some() || peer.is_some() && self.epoch > Run::FIRST_EPOCH;
        is_sent.then_some(Attempt { instance, attempt, peer, state, reason, began, ended: now })
    }

    /// The result of the run: the result of its only instance, or a list of all results.
    fn result(&self, state: RunState) -> Option<String> {
        if let ([part], false) = (self.kind.parts.as_slice(), self.kind.machine.is_several()) {
            return part.result.as_ref().filter(|_| state == RunState::Success).map(|raw| raw.get().to_owned());
        }
        let mut out = String::from("[");
        for (i, (part, instance)) in self.kind.parts.iter().zip(&self.kind.machine.instances).enumerate() {
            let Phase::Over(state) = instance.phase else { continue };
            let item = serde_json::json!({
                "instance": i, "worker": part.worker, "state": state, "reason": instance.reason,
            });
            let result = part.result.as_deref().map(serde_json::value::RawValue::get);
            let result = result.filter(|text| out.len() + text.len() < MOST_RESULTS).unwrap_or("null");
            let item = item.to_string();
            if i > 0 {
                out.push(',');
            }
            out.push_str(item.trim_end_matches('}'));
            out.push_str(",\"result\":");
            out.push_str(result);
            out.push('}');
        }
        out.push(']');
        Some(out)
    }

    fn finish(&mut self, state: RunState, reason: Option<String>, ctx: &mut Ctx<Task>) {
        let now = Timestamp::now();
        let result = self.result(state);
        let data = self.kind.parts.iter_mut().rev().find_map(|part| part.data.take());
        let data = data.map(|raw| (self.run.job_id, self.run.identity, Box::<str>::from(raw.get()).into_string()));
        // The worker uses its own clock, so treat the time that it requested as a pause from now on.
        let next = self.kind.parts.iter().filter_map(|part| part.next_at).min().map(|at| NextAsked { at, from: Some(now) });
        // A stop may have been requested, but the run ended in another way before.
        self.run.update_by.take_if(|_| state != RunState::Stopped);
        let write = FinishTask {
            no: self.run.no,
            epoch: self.epoch,
            state,
            reason: reason.clone(),
            result: result.clone(),
            failures: self.kind.machine.instances.iter().map(|instance| instance.failures).sum(),
            start_time: self.run.start_time,
            worker: self.kind.parts.first().filter(|_| !self.kind.machine.is_several()).and_then(|part| part.worker),
            // The job needs the data and the requested time, because it has the values from before.
            follow: self.run.follow || state == RunState::Failed || data.is_some() || next.is_some(),
            by: self.run.update_by.clone(),
            data,
            now,
        };
        let several = self.kind.machine.is_several();
        let last = self.last_attempt(write.worker, state, reason.as_deref(), now).filter(|_| !several);
        let (store, no) = (self.context.store.clone(), self.run.no);
        let logging = self.kind.logging.take();
        let write = async move {
            if let Some(logging) = logging {
                drop(logging.await);
            }
            // The job processes the requested time together with the end; it may be waiting for the end.
            store.write_unbounded(WithNext { end: write, no, next, last }).await
        };
        let span = self.span(|this| {
            // Of several instances, each has a span of its own.
            let (instance, part) = (this.kind.machine.instances.first().filter(|_| !several)?, this.kind.parts.first()?);
            this.attempt_of(0, part.began, (instance.attempt, state, reason.clone()), now)
        });
        let ended = Ended { state, reason, result, counters: self.run.counters, now };
        self.write(ctx, write, move |this, follow, ctx| {
            this.context.telemetry.spans(|| span);
            this.ended(ended, follow, ctx);
        });
    }
}
