//! The worker of a run: one at a time, replaced when it is lost.

use super::{Choice, RunActor, StartReturned, WorkerEvent};
use crate::domain::ids::WorkerId;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use crate::domain::worker_pool::WorkerRequest;
use crate::protocol::worker::{StartRun, ToWorker};
use crate::store::SetStartReturned;
use actix::{Context, Handler};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Interval between two start orders to a worker that did not answer, in milliseconds.
const REPEAT_START_MS: i64 = 30_000;

impl RunActor {
    pub(super) fn find_worker(&mut self, ctx: &Context<Self>) {
        if !self.lifecycle.is_ending() && !self.kind.waits && self.kind.worker.is_none() {
            self.search(ctx);
        }
    }

    /// Sends a request to the allocator, unless one is being answered.
    pub(super) fn search(&mut self, ctx: &Context<Self>) {
        // If the allocator is being rebuilt, the registry notifies all runs afterwards.
        if !self.kind.searching {
            (self.kind.searching, self.kind.is_unplaced) = (true, true);
            let class = self.run.class_name.as_str().into();
            self.context
                .allocator
                .find_worker(Box::new(WorkerRequest::of_run(&self.run, class, Arc::clone(&self.run.queue.workers))), self.link(ctx));
        }
    }

    /// The run needs no worker any more.
    pub(super) fn stop_searching(&self) {
        if self.kind.is_unplaced {
            self.context.allocator.withdraw((self.identity(), 0));
        }
    }

    pub(super) fn found(&mut self, choice: Choice, ctx: &mut Context<Self>) {
        (self.kind.searching, self.kind.search_at) = (false, None);
        self.kind.is_unplaced = choice.worker.is_err();
        if self.kind.worker.is_some() || self.lifecycle.is_ending() {
            return;
        }
        if self.kind.waits {
            self.kind.chosen = Some(choice);
            return;
        }
        let id = match choice.worker {
            Ok(id) => id,
            Err(why) => return self.no_worker(&why, ctx),
        };
        self.kind.worker = Some(id);
        self.kind.involved.add_worker(id);
        self.kind.start_request = None;
        self.run.reason = None;
        self.send_start(id);
        if self.run.state == RunState::Pending {
            self.set_scheduled(ctx);
        }
    }

    /// Whether workers that watch its class may still reconnect to this broker.
    pub(super) fn workers_may_come_back(&self) -> bool {
        self.context.workers_may_come_back(&self.run.class_name, self.epoch > Run::FIRST_EPOCH)
    }

    /// Repeats a start order that was not answered, because it may have been lost on its way to a worker in polling mode, whose
    /// messages are not acknowledged. A worker that already has the run ignores it.
    pub(super) fn repeat_start(&mut self, now: Timestamp) {
        let silent = now.since_ms(self.kind.start_sent) >= REPEAT_START_MS;
        let is_told = self.kind.frontier.start_returned() && self.run.state != RunState::Scheduled;
        if let Some(id) = self.kind.worker.filter(|_| silent && !self.lifecycle.is_ending() && !is_told) {
            self.send_start(id);
        }
    }

    fn send_start(&mut self, id: WorkerId) {
        self.kind.start_sent = Timestamp::steady();
        let Some(worker) = self.context.addresses.workers.get(id) else {
            // It is gone, and the registry is about to forget it.
            (self.kind.worker, self.kind.search_at) = (None, Some(self.kind.start_sent));
            return;
        };
        worker.send(ToWorker::Start(StartRun {
            identity: self.identity(),
            job_id: self.run.job_id,
            class_name: self.run.class_name.clone(),
            arguments: self.run.arguments.clone(),
            properties: BTreeMap::clone(&self.kind.properties),
            start_returned: self.kind.frontier.start_returned(),
            planned_at: self.run.planned_at,
            attempt: self.run.attempt,
            trace_id: self.run.trace_id.clone(),
        }));
    }

    fn worker_lost(&mut self, id: WorkerId, ctx: &mut Context<Self>) {
        self.kind.involved.remove_worker(id);
        if self.kind.frontier.worker_gone(id) {
            self.serve_pollers(ctx);
        }
        if self.kind.worker == Some(id) {
            log::warn!("worker of a run lost, searching for another one run_id={} worker_id={id}", self.identity());
            self.kind.worker = None;
            self.run.reason = Some(format!("waits for a worker that watches {}", self.run.class_name));
            self.find_worker(ctx);
        }
    }
}

impl Handler<WorkerEvent> for RunActor {
    type Result = ();
    fn handle(&mut self, event: WorkerEvent, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.worker_news");
        match event {
            WorkerEvent::Changed => {
                self.kind.is_unplaced = false;
                self.find_worker(ctx);
            }
            WorkerEvent::AllocatorRestarted => {
                // The new allocator does not have this run, even if the last one has answered it.
                (self.kind.searching, self.kind.chosen) = (false, None);
                if self.kind.waits && self.run.is_ahead() {
                    self.search(ctx);
                } else {
                    self.find_worker(ctx);
                }
            }
            WorkerEvent::Found(choice) => self.found(choice, ctx),
            // The next attempt begins later, with an order to start.
            WorkerEvent::Continues(_) if self.kind.waits => {}
            WorkerEvent::Continues(id) => {
                // The worker kept the run during a reconnect, or during a restart of the broker. If another worker was started in
                // the meantime, both may continue: a block is delivered to one of them and acknowledged once.
                if self.kind.worker.is_none() {
                    // If the worker is lost at this moment, the run is notified, or the worker has no address any more.
                    self.kind.involved.add_worker(id);
                    if self.context.addresses.workers.get(id).is_some() {
                        self.kind.worker = Some(id);
                        self.run.reason = None;
                    }
                }
                if !self.kind.frontier.start_returned() && self.kind.worker == Some(id) {
                    self.send_start(id);
                }
            }
            WorkerEvent::NeedsStart(id) if self.kind.worker == Some(id) => self.send_start(id),
            WorkerEvent::NeedsStart(_) => {}
            WorkerEvent::Lost(id) => self.worker_lost(id, ctx),
        }
    }
}

impl Handler<StartReturned> for RunActor {
    type Result = ();
    fn handle(&mut self, m: StartReturned, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.start_returned");
        if self.lifecycle.is_ending() || self.kind.frontier.start_returned() {
            return m.reply.send(Ok(())); // repeated message
        }
        if let Some(error) = m.error {
            let reason = format!("the worker could not start it: {}", error.chars().take(1_000).collect::<String>());
            self.when_done(|ended| m.reply.send(ended.map(drop)));
            return self.end(RunState::Failed, Some(reason), ctx);
        }
        self.kind.frontier.set_start_returned();
        if self.kind.frontier.is_drained() {
            // There is nothing to do; the write of the end contains everything.
            self.run.start_returned = true;
            self.note_started();
            self.when_done(|ended| m.reply.send(ended.map(drop)));
            return self.succeed(ctx);
        }
        let write = self.context.store.write_unbounded(SetStartReturned { no: self.run.no, epoch: self.epoch });
        Self::then(ctx, write, move |this, _, ctx| {
            this.run.start_returned = true;
            m.reply.send(Ok(()));
            this.set_state(RunState::Running, ctx);
            this.end_if_drained(ctx);
        });
    }
}
