//! Handles the end of children: rebuilds them with growing delays, or gives them up after too many crashes.

use super::{ChildDied, ChildKey, NodeLeft, Registry, Shutdown, WorkerLeft};
use crate::actors::run::RunHandle;
use crate::actors::run_shell::AtWork;
use crate::actors::session_sender::Frame;
use crate::actors::task::{TaskEvent, TaskHandle};
use crate::domain::ids::{Identity, NodeId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::run::RunState;
use crate::domain::seen::SeenSet;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{AdoptRun, FinishRun, GetNode, LoadFrontier, StoreError, WorkerGone};
use actix::{ActorFutureExt, AsyncContext, Context, Handler, fut::wrap_future};
use std::sync::Arc;
use std::time::Duration;

impl Registry {
    fn tasks(&self) -> impl Iterator<Item = TaskHandle> + use<> {
        self.context.addresses.others.all().into_iter().filter_map(|(_, at_work)| match at_work {
            AtWork::Task(task) => Some(task),
            _ => None,
        })
    }

    fn task(&self, identity: Identity) -> Option<TaskHandle> {
        match self.context.addresses.others.get(identity) {
            Some(AtWork::Task(task)) => Some(task),
            _ => None,
        }
    }

    /// The runs that have blocks at a node.
    fn runs_at_node(&self, id: NodeId) -> impl Iterator<Item = RunHandle> + use<> {
        let addresses = Arc::clone(&self.context.addresses);
        addresses.runs_by_node.of(id).into_iter().filter_map(move |identity| addresses.block_run(identity))
    }

    fn rebuild(&mut self, key: ChildKey, ctx: &mut Context<Self>) {
        match key {
            ChildKey::Dispatcher => {
                self.start_dispatcher();
                for (_, node) in self.context.addresses.nodes.all() {
                    node.reannounce();
                }
                for run in self.context.addresses.block_runs() {
                    run.reannounce();
                }
            }
            ChildKey::Allocator => {
                self.start_allocator(true);
                for (_, worker) in self.context.addresses.workers.all() {
                    worker.reannounce();
                }
                for task in self.tasks() {
                    task.tell(TaskEvent::RequestAgain);
                }
                for run in self.context.addresses.block_runs() {
                    run.allocator_restarted();
                }
            }
            ChildKey::Scheduler => self.start_scheduler(),
            ChildKey::RunOwners => self.start_run_owners(),
            ChildKey::Alerts => self.start_alerts(),
            ChildKey::Janitor => self.start_janitor(),
            ChildKey::Recorder => self.start_recorder(),
            ChildKey::Run(_, identity) => self.start_run(identity, ctx),
            ChildKey::Node(id) => self.rebuild_node(id, ctx),
            ChildKey::Worker(id) => {
                // The allocator has its watches; the runs repeat their messages to it.
                self.start_worker(id, None);
                if !self.watching.contains(&id)
                    && let Some(sender) = self.worker_sessions.get(&id)
                {
                    // It crashed before it sent its watches to the allocator, so only the worker itself knows them.
                    sender.send(Frame::Close("reconnect and send your watches again".to_owned()));
                }
                for identity in self.context.addresses.runs_by_worker.of(id) {
                    if let Some(run) = self.context.addresses.block_run(identity) {
                        run.worker_needs_start(id);
                    } else if let Some(task) = self.task(identity) {
                        task.tell(TaskEvent::WorkerRestarted(id));
                    }
                }
            }
            ChildKey::Job(_) => self.leave(key),
        }
    }

    fn rebuild_node(&mut self, id: NodeId, ctx: &mut Context<Self>) {
        let read = self.context.store.read(GetNode(id));
        ctx.spawn(wrap_future(read).map(move |record, this: &mut Self, ctx: &mut Context<Self>| match record {
            // It reconnected while its record was read.
            Ok(Some(_)) if this.context.addresses.nodes.get(id).is_some() => {}
            Ok(Some(mut record)) => {
                (record.facts.max_sites, record.facts.max_programs) = this.node_limits.get(&id).copied().unwrap_or_default();
                this.start_node(record);
                // The new actor has lost the list of sent blocks; the runs send it again.
                for run in this.runs_at_node(id) {
                    run.node_restarted(id);
                }
            }
            Ok(None) => log::error!("node of a crashed actor is not in the store node={id}"),
            Err(error) => {
                log::error!("failed to load a node, trying again node={id}: {error}");
                ctx.run_later(Duration::from_secs(1), move |this, ctx| this.rebuild_node(id, ctx));
            }
        }));
    }

    /// Gives up a child that crashed too often, and notifies its dependants.
    fn give_up(&mut self, key: ChildKey, error: &str, ctx: &mut Context<Self>) {
        log::error!("{} crashed too often and is given up: {error}", key.label());
        match key {
            ChildKey::Dispatcher | ChildKey::Scheduler | ChildKey::Allocator | ChildKey::RunOwners => {
                log::error!("the broker cannot run without it, the process ends");
                std::process::abort();
            }
            // The broker works without them; they are restarted after a while.
            ChildKey::Alerts | ChildKey::Janitor | ChildKey::Recorder => {
                if let Some(child) = self.children.get(&key) {
                    child.stats.restarted();
                }
                ctx.run_later(Duration::from_secs(60), move |this, ctx| this.rebuild(key, ctx));
            }
            ChildKey::Run(_, identity) => self.close_run(key, identity, format!("its actor crashed too often, last error: {error}"), ctx),
            ChildKey::Node(id) => self.forget_node(id, false),
            ChildKey::Worker(id) => self.forget_worker(id, Timestamp::steady()),
            ChildKey::Job(_) => self.leave(key),
        }
    }

    /// Closes a run as failed. If that is not possible now, it is tried again: a run that is open and has no actor cannot even be stopped.
    fn close_run(&mut self, key: ChildKey, identity: Identity, reason: String, ctx: &mut Context<Self>) {
        let closed = fail_run(self.context.clone(), identity, reason.clone());
        ctx.spawn(wrap_future(closed).map(move |done, this: &mut Self, ctx: &mut Context<Self>| {
            // With these errors it is over, or somebody else's.
            if let Err(error) = done
                && !matches!(error, StoreError::NotFound | StoreError::Stale | StoreError::Conflict(_))
            {
                log::error!("failed to close a run that was given up, trying again run_id={identity}: {error}");
                ctx.run_later(Duration::from_secs(1), move |this, ctx| this.close_run(key, identity, reason, ctx));
                return;
            }
            this.context.addresses.building.remove(identity);
            this.context.fleet.release_all(identity);
            this.context.allocator.withdraw((identity, 0));
            this.context.sites.run_gone(identity);
            this.leave(key);
            for reply in this.awaited_runs.remove(&identity).unwrap_or_default() {
                reply.send(Err(Problem::conflict("run-over", format!("run {identity} is over"))));
            }
        }));
    }

    fn forget_node(&mut self, id: NodeId, is_removed: bool) {
        self.context.addresses.nodes.remove(id);
        self.context.fleet.remove_node(id);
        self.context.addresses.node_owners.forget(id);
        if let Some((sender, _)) = self.node_sessions.remove(&id).filter(|_| !is_removed) {
            // An open connection without an actor would get nothing more. The node connects again.
            sender.send(Frame::Close("the broker has given this connection up".to_owned()));
        }
        self.node_limits.remove(&id);
        self.leave(ChildKey::Node(id));
        // The actor notified the runs of the blocks it knew; only the run itself knows of a block on its way.
        for run in self.runs_at_node(id) {
            run.node_given_up(id);
        }
    }

    fn forget_worker(&mut self, id: WorkerId, silent_since: Timestamp) {
        self.context.addresses.workers.remove(id);
        if let Some(sender) = self.worker_sessions.remove(&id) {
            // The worker may have connected again when its actor had just ended: this connection would have no actor.
            sender.send(Frame::Close("connect again".to_owned()));
        }
        self.watching.remove(&id);
        self.leave(ChildKey::Worker(id));
        drop(self.context.store.write_unbounded(WorkerGone { worker: id, now: Timestamp::now() }));
        self.context.allocator.worker_left(id);
        for identity in self.context.addresses.runs_by_worker.of(id) {
            if let Some(run) = self.context.addresses.block_run(identity) {
                run.worker_lost(id);
            } else if let Some(task) = self.task(identity) {
                task.tell(TaskEvent::LeaseOver { worker: id, task: None, last_message: silent_since, why: "its worker is gone" });
            }
        }
    }
}

/// Closes a run whose actor crashes again and again.
async fn fail_run(context: crate::actors::context::BrokerContext, identity: Identity, reason: String) -> Result<(), StoreError> {
    let (run, epoch) = context.store.write_unbounded(AdoptRun { identity }).await?;
    if run.state.is_final() {
        // Its last actor ended before it knew that the end is stored.
        context.registry().run_ended(identity, run.job_id, run.state, run.follow);
        return Ok(());
    }
    let (blocks, _) = context.store.read(LoadFrontier { no: run.no }).await?;
    let counters = crate::domain::frontier::Frontier::restore(run.queue, run.start_returned, &blocks, SeenSet::new()).counters();
    let end = FinishRun {
        no: run.no,
        epoch,
        state: RunState::Failed,
        reason: Some(reason),
        counters,
        block_times: run.block_times,
        start_time: run.start_time,
        start_returned: run.start_returned,
        result: None,
        follow: true,
        by: None,
        now: Timestamp::now(),
    };
    let follow = context.store.write_unbounded(end).await?;
    context.counters.counts.ended(RunState::Failed);
    context.registry().run_ended(identity, run.job_id, RunState::Failed, follow);
    Ok(())
}

impl Handler<ChildDied> for Registry {
    type Result = ();
    fn handle(&mut self, ChildDied(death): ChildDied, ctx: &mut Self::Context) {
        let _timed = self.timed("registry.child_died");
        let Some(child) = self.children.get_mut(&death.key).filter(|child| child.generation == death.generation) else { return };
        // Remove the ended actor; until it is rebuilt, callers get 503.
        match death.key {
            ChildKey::Run(kind, id) => {
                self.context.addresses.building.put(id, ());
                self.context.addresses.take_run(id);
                match kind {
                    JobKind::Block => self.context.dispatcher.run_gone(id),
                    JobKind::Task => self.context.addresses.workers.all().iter().for_each(|(_, worker)| worker.task_died(id)),
                    JobKind::Application | JobKind::Callback => {}
                }
            }
            ChildKey::Node(id) => {
                self.context.addresses.nodes.remove(id);
                self.context.dispatcher.node_gone(id);
            }
            ChildKey::Worker(id) => self.context.addresses.workers.remove(id),
            // A job's actor is started when it is needed next, even after too many crashes.
            ChildKey::Job(id) => self.context.addresses.jobs.remove(id),
            ChildKey::Dispatcher
            | ChildKey::Allocator
            | ChildKey::Scheduler
            | ChildKey::RunOwners
            | ChildKey::Alerts
            | ChildKey::Janitor
            | ChildKey::Recorder => {}
        }
        let Some(pause) = child.budget.spend(Timestamp::steady(), death.is_outage) else {
            return self.give_up(death.key, &death.error, ctx);
        };
        log::warn!("{} crashed and restarts in {pause} ms: {}", death.key.label(), death.error);
        child.stats.restarted();
        ctx.run_later(Duration::from_millis(pause), move |this, ctx| {
            if this.children.get(&death.key).is_some_and(|child| child.generation == death.generation) {
                this.rebuild(death.key, ctx);
            }
        });
    }
}

impl Handler<NodeLeft> for Registry {
    type Result = ();
    fn handle(&mut self, NodeLeft { id, is_removed }: NodeLeft, _: &mut Self::Context) {
        let _timed = self.timed("registry.node_left");
        self.forget_node(id, is_removed);
    }
}

impl Handler<WorkerLeft> for Registry {
    type Result = ();
    fn handle(&mut self, WorkerLeft { id, silent_since }: WorkerLeft, _: &mut Self::Context) {
        let _timed = self.timed("registry.worker_left");
        self.forget_worker(id, silent_since);
    }
}

impl Handler<Shutdown> for Registry {
    type Result = ();
    fn handle(&mut self, Shutdown(reply): Shutdown, _: &mut Self::Context) {
        let _timed = self.timed("registry.shutdown");
        self.context.followers.close();
        for (_, node) in self.context.addresses.nodes.all() {
            node.disconnect("the broker is shutting down");
        }
        for (_, worker) in self.context.addresses.workers.all() {
            worker.disconnect("the broker is shutting down");
        }
        for (_, run) in self.context.addresses.runs.all() {
            run.end_polls();
        }
        // It is written before the lease is released.
        drop(self.context.counters.minute.store(&self.context, Timestamp::now()));
        reply.send(Ok(()));
    }
}
