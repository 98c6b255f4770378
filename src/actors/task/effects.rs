//! Carries out the effects that the state machine of a task decided.

use super::TaskActor;
use crate::actors::allocator::WorkerPermit;
use crate::domain::ids::WorkerId;
use crate::domain::run::RunState;
use crate::domain::task::Strategy;
use crate::domain::task::state_machine::{Effect, Phase};
use crate::domain::task::worker_pool::Ask;
use crate::domain::time::Timestamp;
use crate::protocol::task::{SettledTask, TaskOrder, TaskRef};
use crate::store::{EndInstance, FinishTask, NextAsked, RetryTask, WithNext};
use actix::{ActorContext, AsyncContext, Context};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Maximum bytes of the combined results of the instances of a run; results beyond that are left out.
const MOST_RESULTS: usize = 1 << 20;

impl TaskActor {
    pub(super) fn carry_out(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            // A later decision may have made these two effects obsolete.
            Effect::Ask(i) if self.machine.instances[i].phase == Phase::Asking => self.ask(i, ctx),
            Effect::Send(i, worker) if self.machine.instances[i].phase == Phase::At(worker) => self.send(i, worker, ctx),
            Effect::Ask(_) | Effect::Send(..) => {}
            Effect::Withdraw(i) => {
                if let Some(allocator) = self.context.allocator() {
                    allocator.withdraw((self.run.identity, i as u32));
                }
            }
            Effect::Cancel(i, worker, attempt, reason) => {
                if let Some(worker) = self.context.addresses.workers.get(worker) {
                    worker.cancel(self.task(i, attempt), reason);
                }
            }
            Effect::LetGo(i, worker, attempt) => {
                self.parts[i].permit = None;
                if let Some(worker) = self.context.addresses.workers.get(worker) {
                    worker.let_go(self.task(i, attempt));
                }
            }
            Effect::Settle(i, worker, attempt) => self.settle(worker, self.task(i, attempt), None),
            Effect::Again(i, not_before, reason) => self.store_attempt(i, not_before, reason, ctx),
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

    pub(super) fn ask(&mut self, i: usize, ctx: &mut Context<Self>) {
        // If the allocator is missing, it is restarting and will request the state of all tasks.
        let Some(allocator) = self.context.allocator() else { return };
        allocator.ask(Box::new(self.wish(i)), self.handle(ctx));
    }

    /// The request of an instance to the allocator.
    pub(super) fn wish(&self, i: usize) -> Ask {
        let key = match self.settings.strategy {
            Strategy::Hash | Strategy::Sticky => self.key(),
            _ => 0,
        };
        Ask {
            asker: (self.run.identity, i as u32),
            handler: Arc::clone(&self.handler),
            job_id: self.run.job_id,
            settings: Arc::clone(&self.settings),
            key,
            priority: self.run.priority,
            excluded: self.machine.instances[i].excluded.clone(),
            only: self.parts[i].only,
            chance: self.run.identity.0.as_u128() as u64,
        }
    }

    pub(super) fn occupy(&mut self, i: usize, worker: WorkerId, ctx: &Context<Self>) {
        if let Some(allocator) = self.context.allocator() {
            allocator.occupy(worker, i as u32, self.handle(ctx));
        }
    }

    /// The hash key, for the strategies that use one.
    fn key(&self) -> u64 {
        let mut hasher = std::hash::DefaultHasher::new();
        let arguments = self.arguments.as_deref().map(|raw| raw.get());
        match (&self.settings.key, self.settings.strategy) {
            (Some(pointer), _) => {
                let value: Option<serde_json::Value> = arguments.and_then(|text| serde_json::from_str(text).ok());
                value.as_ref().and_then(|value| value.pointer(pointer)).map(ToString::to_string).hash(&mut hasher);
            }
            (None, Strategy::Sticky) => self.run.job_id.0.hash(&mut hasher),
            (None, _) => arguments.hash(&mut hasher),
        }
        hasher.finish()
    }

    pub(super) fn has_permit(&mut self, i: usize, permit: WorkerPermit) {
        self.involved.add_worker(permit.worker());
        self.parts[i].worker = Some(permit.worker());
        self.parts[i].permit = Some(permit);
    }

    /// Sends the order to the worker's actor.
    pub(super) fn send(&mut self, i: usize, id: WorkerId, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        let attempt = self.machine.instances[i].attempt;
        let Some(worker) = self.context.addresses.workers.get(id) else {
            // The order was not sent, so no worker has it.
            let steady = Timestamp::steady();
            let effects = self.machine.lease_over(i, id, attempt, steady, "its worker is not connected", super::moment(steady));
            self.effects.extend(effects);
            return;
        };
        if self.run.start_time.is_none() {
            self.run.start_time = Some(now);
            self.context.lateness.sent(now.since_ms(self.run.wanted_at()));
        }
        if self.run.state == RunState::Pending {
            self.run.state = RunState::Scheduled;
        }
        self.run.reason = None;
        if self.run.may_be_late() && !self.is_begun {
            // Otherwise, for a short run, the start is stored together with the end.
            self.store_begin(id, ctx);
        }
        let part = &mut self.parts[i];
        (part.began, part.is_judged, part.progress, part.text) = (Some(now), false, None, None);
        let data = self.run.rules.data.as_deref().and_then(|text| serde_json::value::RawValue::from_string(text.to_owned()).ok());
        worker.hold(TaskOrder {
            identity: self.run.identity,
            instance: i as u32,
            attempt,
            instances: self.parts.len() as u32,
            job_id: self.run.job_id,
            handler: self.handler.to_string(),
            arguments: self.arguments.clone(),
            data: data.map(Arc::from),
            lease: self.settings.lease_ms(),
            timeout: self.run.rules.timeout,
            planned_at: self.run.planned_at,
            trace_id: self.run.trace_id.clone(),
        });
        if let Some(timeout) = self.run.rules.timeout {
            ctx.run_later(std::time::Duration::from_millis(timeout), move |this, ctx| {
                let effects = this.machine.too_long(i, attempt, format!("it took longer than {timeout} ms"), Timestamp::steady());
                this.then(effects, ctx);
            });
        }
    }

    fn store_attempt(&mut self, i: usize, not_before: Timestamp, reason: String, ctx: &mut Context<Self>) {
        let instance = &self.machine.instances[i];
        log::warn!(
            "task attempt ended, another attempt follows run_id={} instance={i} attempt={}: {reason}",
            self.run.identity,
            instance.attempt
        );
        self.run.state = RunState::Pending;
        self.run.reason = Some(reason.clone());
        (self.parts[i].result, self.parts[i].began) = (None, None);
        if !self.is_placed {
            self.run.attempt = instance.attempt;
            self.is_begun = false;
        }
        let write = RetryTask {
            no: self.run.no,
            epoch: self.epoch,
            instance: self.is_placed.then_some(i as u32),
            attempt: instance.attempt,
            failures: instance.failures,
            not_before: not_before.on_the_wall(),
            reason,
            worker: self.parts[i].worker,
        };
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, |this, (), _| this.context.followers.ring(this.run.identity));
    }

    fn store_instance(&mut self, i: usize, ctx: &mut Context<Self>) {
        let Phase::Over(state) = self.machine.instances[i].phase else { return };
        let part = &self.parts[i];
        let write = EndInstance {
            no: self.run.no,
            epoch: self.epoch,
            instance: i as u32,
            peer: part.worker,
            state,
            reason: self.machine.instances[i].reason.clone(),
            result: part.result.as_ref().map(|raw| raw.get().to_owned()),
            start_time: part.began,
            now: Timestamp::now(),
        };
        let write = self.context.store.write_unbounded(write);
        self.write(ctx, write, |_, (), _| {});
    }

    /// The result of the run: the result of its only instance, or a list of all results.
    fn result(&self, state: RunState) -> Option<String> {
        if let ([part], false) = (self.parts.as_slice(), self.is_placed) {
            return part.result.as_ref().filter(|_| state == RunState::Success).map(|raw| raw.get().to_owned());
        }
        let mut out = String::from("[");
        for (i, (part, instance)) in self.parts.iter().zip(&self.machine.instances).enumerate() {
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

    fn finish(&mut self, state: RunState, reason: Option<String>, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        let result = self.result(state);
        let data = self.parts.iter_mut().rev().find_map(|part| part.data.take());
        let data = data.map(|raw| (self.run.job_id, self.run.identity, Box::<str>::from(raw.get()).into_string()));
        // The worker uses its own clock, so treat the time that it requested as a pause from now on.
        let next = self.parts.iter().filter_map(|part| part.next_at).min().map(|at| NextAsked { at, from: Some(now) });
        // Someone may have requested a stop, but the run ended in another way first.
        self.run.update_by.take_if(|_| state != RunState::Stopped);
        let write = FinishTask {
            no: self.run.no,
            epoch: self.epoch,
            state,
            reason: reason.clone(),
            result: result.clone(),
            failures: self.machine.instances.iter().map(|instance| instance.failures).sum(),
            start_time: self.run.start_time,
            worker: self.parts.first().filter(|_| !self.is_placed).and_then(|part| part.worker),
            // The job needs the data and the requested time, because it has the values from before.
            follow: self.run.follow || state == RunState::Failed || data.is_some() || next.is_some(),
            by: self.run.update_by.clone(),
            data,
            now,
        };
        let (store, no) = (self.context.store.clone(), self.run.no);
        let logging = self.logging.take();
        let write = async move {
            if let Some(logging) = logging {
                drop(logging.await);
            }
            // The job processes the requested time together with the end; it may be waiting for the end.
            store.write_unbounded(WithNext { end: write, no, next }).await
        };
        self.write(ctx, write, move |this, follow, ctx| {
            (this.run.state, this.run.reason, this.run.result) = (state, reason, result);
            (this.run.queued, this.run.not_before, this.run.finish_time) = (false, None, Some(now));
            this.context.counts.ended(state);
            // With thousands of successful short tasks per second, one log line each would be too much.
            let level = if state == RunState::Success { log::Level::Debug } else { log::Level::Info };
            log::log!(level, "run ended run_id={} state={} attempt={}", this.run.identity, state.name(), this.run.attempt);
            for reply in std::mem::take(&mut this.stops) {
                reply.send(Ok(this.output()));
            }
            // The remaining effects contain the last messages to its worker; none of them writes to the store.
            while let Some(effect) = this.effects.pop_front() {
                this.carry_out(effect, ctx);
            }
            this.context.registry().run_ended(this.run.identity, this.run.job_id, follow);
            this.guard.finish();
            ctx.stop();
        });
    }
}
