//! The orders of the messages and writes of a run. Its ports record: no other actor runs.

mod block_runs;

use super::{AtWork, Control, Ctx, Kind, RunLink, RunShell};
use crate::actors::brokers::{Brokers, Role};
use crate::actors::context::{BrokerContext, Times};
use crate::actors::involved::Involved;
use crate::actors::node::{NodeActor, NodeHandle, NodeHeartbeat};
use crate::actors::placement::allocator::ReleaseSlot;
use crate::actors::placement::{NodeSlot, Permit, WorkerSlot};
use crate::actors::registry::RegistryHandle;
use crate::actors::reply::{Answer, reply};
use crate::actors::run::{Blocks, Choice, PollOptions, StoredBlocks};
use crate::actors::supervision::{ChildKey, ExitGuard, Link, Recording, Stats};
use crate::actors::task::{Task, TaskEvent};
use crate::actors::worker::{WorkerActor, WorkerHandle};
use crate::domain::ids::{BrokerId, Identity, JobId, NodeId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::node::{NodeFacts, SlotKind};
use crate::domain::run::{Run, RunState};
use crate::domain::schedule::Retry;
use crate::domain::sites::Pace;
use crate::domain::time::Timestamp;
use crate::domain::worker::NotEligible;
use crate::protocol::api::RunOutput;
use crate::protocol::node::Heartbeat;
use crate::protocol::push::{Pushed, read_push};
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::store::{AdoptRun, GetRun, InsertRun, InstanceRow, Member, Store, StoreConfig, StoreError, UpsertNode};
use actix::{Actor, Addr};
use bytes::Bytes;
use std::sync::Arc;

/// A fifth kind of run, which ends as its messages say.
#[derive(Debug)]
struct Fifth;

impl Kind for Fifth {
    const KIND: JobKind = JobKind::Callback;
    type Stored = ();
    type Event = RunState;

    async fn load(_: &BrokerContext, _: &mut Run) -> Result<(), StoreError> {
        Ok(())
    }

    fn new(_: &BrokerContext, _: &Run, _: i64, (): ()) -> Self {
        Self
    }

    fn at_work(_: RunLink<Self>) -> AtWork {
        unreachable!("no test needs its address")
    }

    fn place(_: &RunState) -> &'static str {
        "fifth.end"
    }

    fn begin(run: &mut RunShell<Self>, _: &mut Ctx<Self>) {
        run.note_start(Timestamp::now());
    }

    fn stop(run: &mut RunShell<Self>, reason: String, by: Option<String>, ctx: &mut Ctx<Self>) {
        run.run.update_by = by;
        if reason != "slowly" {
            run.end(RunState::Stopped, Some(reason), ctx);
        }
    }

    fn handle(run: &mut RunShell<Self>, state: RunState, ctx: &mut Ctx<Self>) {
        run.end(state, Some("stopped by hand".to_owned()), ctx);
    }
}

/// A broker without actors.
struct Stage {
    context: BrokerContext,
    recording: Recording,
    identity: Identity,
}

impl Stage {
    /// The stored run that a test changes before its actor starts.
    async fn with(context: BrokerContext, recording: Recording, kind: JobKind, change: impl FnOnce(&mut Run)) -> Self {
        let identity = Identity::random();
        let new = Run::new(JobId::random(), kind, Timestamp::now());
        let mut run = Run { identity, job_name: "j".into(), class_name: "f".into(), ..new };
        change(&mut run);
        context.store.write(InsertRun { run, marks: None, version: 1, fire: None, key: None }).await.expect("inserted");
        Self { context, recording, identity }
    }

    async fn start<K: Kind>(&self, stored: K::Stored) -> Started<K> {
        self.start_as(stored, |_| {}).await
    }

    async fn start_as<K: Kind>(&self, stored: K::Stored, change: impl FnOnce(&mut Run)) -> Started<K> {
        let key = ChildKey::Run(K::KIND, self.identity);
        let (kind, name) = key.names();
        let (recording, stats) = (self.recording.clone(), Stats::new(kind, name, None));
        let guard = ExitGuard::new(Arc::clone(&stats), key, 1, move |_| recording.push("Died".to_owned()));
        let mut run = Box::new(self.stored().await);
        change(&mut run);
        let address = RunShell::<K>::new(guard, self.context.clone(), run, Run::FIRST_EPOCH, stored).start();
        Started { link: RunLink(Link::new(address.clone(), stats)), address }
    }

    /// Another actor becomes the owner of the run.
    async fn adopt(&self) {
        self.context.store.write(AdoptRun { identity: self.identity }).await.expect("adopted");
    }

    async fn stored(&self) -> Run {
        self.context.store.read(GetRun(self.identity)).await.expect("read").expect("a run")
    }
}

struct Started<K: Kind> {
    link: RunLink<K>,
    address: Addr<RunShell<K>>,
}

impl<K: Kind> Started<K> {
    /// Waits until the actor has ended.
    async fn over(&self) {
        let ended = async {
            while self.address.connected() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("the actor ends");
    }

    fn stop(&self, reason: &str) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.link.0.tell(Control::Stop { reason: reason.to_owned(), by: Some("me".into()), reply });
        answer
    }
}

fn on_stage(kind: JobKind, change: impl FnOnce(&mut Run), test: impl AsyncFnOnce(Stage)) {
    let _only = crate::fault::only_test_with_a_store();
    let folder = tempfile::tempdir().expect("a folder");
    actix::System::new().block_on(async {
        let store = Store::open(&StoreConfig::new(folder.path().join("test.db"))).expect("a store");
        let me = Member { id: BrokerId::random(), url: String::new(), version: String::new(), started_at: Timestamp::now() };
        let brokers = Arc::new(Brokers::new(me, Role::Leader { term: 1 }));
        let context = BrokerContext::new(store, Times::default(), brokers);
        let recording = Recording::default();
        context.set_registry(RegistryHandle(recording.link(ChildKey::Scheduler)));
        test(Stage::with(context, recording, kind, change).await).await;
    });
}

#[test]
fn a_fifth_kind_needs_only_what_is_its_own() {
    on_stage(
        JobKind::Callback,
        |_| {},
        async |stage: Stage| {
            let actor = stage.start::<Fifth>(()).await;
            actor.link.tell(RunState::Success);
            actor.link.tell(RunState::Failed);
            actor.over().await;
            let run = stage.stored().await;
            assert_eq!((run.state, run.reason.as_deref()), (RunState::Success, Some("stopped by hand")), "the end is decided once");
            assert!(run.start_time.is_some() && run.finish_time.is_some());
            assert_eq!(stage.recording.names(), ["RunEnded"]);
        },
    );
}

#[test]
fn a_failed_attempt_is_stored_before_another_actor_starts() {
    let retry = |run: &mut Run| run.rules.retry = Some(Retry { limit: 1, ..Retry::default() });
    on_stage(JobKind::Callback, retry, async |stage: Stage| {
        let actor = stage.start::<Fifth>(()).await;
        let (slow, ()) = (actor.stop("slowly"), actor.link.tell(RunState::Failed));
        for stopped in [slow, actor.stop("by hand")] {
            let stopped = stopped.wait().await.map(drop).map_err(|problem| problem.detail);
            assert_eq!(stopped, Err("the run is about to be retried".to_owned()));
        }
        actor.over().await;
        let run = stage.stored().await;
        assert_eq!((run.state, run.attempt, run.not_before.is_some()), (RunState::Pending, 2, true));
        assert_eq!(stage.recording.names(), ["RunBeginsAnew"]);
        // The second attempt is the last one.
        let actor = stage.start::<Fifth>(()).await;
        actor.link.tell(RunState::Failed);
        actor.over().await;
        assert_eq!((stage.stored().await.state, stage.recording.names()), (RunState::Failed, vec!["RunEnded".to_owned()]));
    });
}

#[test]
fn a_stop_is_answered_when_it_is_stored() {
    let later = |run: &mut Run| run.not_before = Some(Timestamp::now().plus_ms(10_000));
    on_stage(JobKind::Callback, later, async |stage: Stage| {
        let actor = stage.start::<Fifth>(()).await;
        let output = actor.stop("by hand").wait().await.expect("it stops");
        let run = stage.stored().await;
        assert_eq!((output.state, run.state, run.update_by.as_deref()), (RunState::Stopped, RunState::Stopped, Some("me")));
        assert_eq!((run.start_time, stage.recording.names()), (None, vec!["RunEnded".to_owned()]), "it had not begun");
    });
}

#[test]
fn a_message_that_comes_too_late_is_answered_with_the_end_of_the_run() {
    let retry = |run: &mut Run| run.rules.retry = Some(Retry { limit: 1, ..Retry::default() });
    on_stage(JobKind::Callback, retry, async |stage: Stage| {
        for (expected, status) in [("busy", 503), ("run-over", 409)] {
            let actor = stage.start::<Fifth>(()).await;
            actor.link.tell(RunState::Failed);
            actor.over().await;
            let problem = stage.context.answer_of(stage.identity, actor.stop("late")).await.expect_err("the actor has ended");
            assert_eq!((problem.kind, problem.status), (format!("/problems/{expected}"), status));
        }
    });
}

#[test]
fn a_run_that_another_actor_owns_ends_without_a_word() {
    on_stage(
        JobKind::Callback,
        |_| {},
        async |stage: Stage| {
            let actor = stage.start::<Fifth>(()).await;
            stage.adopt().await;
            let problem = actor.stop("by hand").wait().await.expect_err("it may not write");
            assert_eq!((problem.status, stage.stored().await.state), (503, RunState::Pending));
            actor.over().await;
            assert_eq!(stage.recording.names(), ["Died"], "the registry starts the next actor, and no end is announced");
        },
    );
}

#[test]
fn a_worker_may_forget_a_task_only_when_its_end_is_stored() {
    for is_stored in [true, false] {
        on_stage(
            JobKind::Task,
            |_| {},
            async move |stage: Stage| {
                let worker = WorkerId::random();
                let allocator = stage.recording.link(ChildKey::Allocator);
                stage.context.allocator.0.set(allocator.clone());
                stage.context.addresses.workers.put(worker, WorkerHandle(stage.recording.link(ChildKey::Worker(worker))));
                let actor = stage.start::<Task>(Vec::new()).await;
                if !is_stored {
                    stage.adopt().await;
                }
                actor.link.tell(TaskEvent::Granted(
                    0,
                    Permit::new(WorkerSlot { worker }, move || allocator.tell(ReleaseSlot { worker, incarnation: 1 })),
                ));
                let report = serde_json::json!({ "identity": stage.identity, "attempt": 1, "state": "success", "result": 7 });
                actor.link.tell(TaskEvent::Report(worker, Box::new(serde_json::from_value(report).expect("a report"))));
                actor.over().await;
                let end: &[&str] = if is_stored { &["Settled", "RunEnded"] } else { &["Died"] };
                assert_eq!(stage.recording.names(), [&["RequestSlot", "SendOrder", "ReleaseSlot", "ReleaseTask"], end].concat());
                assert_eq!(stage.stored().await.result.as_deref(), is_stored.then_some("7"));
            },
        );
    }
}

/// Its next actor must learn where the attempt is: it would give the task to another worker. Here there is none: the attempt ends.
#[test]
fn a_worker_asks_for_the_actor_of_its_task_again_when_that_died() {
    on_stage(
        JobKind::Task,
        |_| {},
        async |stage: Stage| {
            let (id, task) = (WorkerId::random(), TaskRef { identity: stage.identity, instance: 0, attempt: 1 });
            let (kind, name) = ChildKey::Worker(id).names();
            let stats = Stats::new(kind, name, None);
            let guard = ExitGuard::new(Arc::clone(&stats), ChildKey::Worker(id), 1, |_| {});
            let actor = WorkerActor::new(guard, stage.context.clone(), id, None, None).start();
            let worker = WorkerHandle(Link::new(actor, stats));
            let order =
                serde_json::json!({ "identity": stage.identity, "attempt": 1, "jobId": JobId::random(), "handler": "f", "lease": 60_000 });
            worker.send_order(serde_json::from_value(order).expect("an order"));
            for (dies, is_known) in [(false, true), (true, false)] {
                if dies {
                    worker.task_died(stage.identity);
                }
                worker.message(FromWorker::Heartbeat { tasks: Some(vec![task]) }).wait().await.expect("handled");
                let messages = worker.fetch(std::time::Duration::ZERO).wait().await.expect("messages");
                let is_cancelled = messages.iter().any(|message| matches!(message, ToWorker::Cancel { task: it, .. } if *it == task));
                assert_eq!(is_cancelled, !is_known, "{messages:?}");
            }
        },
    );
}

#[test]
fn an_attempt_that_is_taken_over_has_its_timeout_again() {
    on_stage(
        JobKind::Task,
        |run| run.rules.timeout = Some(50),
        async |stage: Stage| {
            let worker = WorkerId::random();
            stage.context.allocator.0.set(stage.recording.link(ChildKey::Allocator));
            stage.context.addresses.workers.put(worker, WorkerHandle(stage.recording.link(ChildKey::Worker(worker))));
            let instance = InstanceRow {
                instance: 0,
                peer: Some(worker.0),
                attempt: 1,
                state: RunState::Running,
                reason: None,
                result: None,
                start_time: None,
                finish_time: None,
                lines: 0,
                exit_reason: None,
            };
            let actor = stage.start::<Task>(vec![instance]).await;
            let report = serde_json::json!({ "identity": stage.identity, "attempt": 1, "state": "running" });
            actor.link.tell(TaskEvent::Report(worker, Box::new(serde_json::from_value(report).expect("a report"))));
            let ended = async {
                while stage.recording.count() < 2 {
                    tokio::time::sleep(std::time::Duration::from_millis(5)).await;
                }
            };
            tokio::time::timeout(std::time::Duration::from_secs(20), ended).await.expect("its time is over");
            assert_eq!(stage.recording.names(), ["OccupySlot", "CancelTask"]);
        },
    );
}

/// The previous leader needs no write to send an attempt that was stored before, so this one waits for a worker to claim it.
#[test]
fn an_attempt_that_the_previous_leader_may_send_is_not_sent_at_its_time() {
    for (answers_ms, is_claimed) in [(60_000, true), (0, false)] {
        on_stage(
            JobKind::Task,
            |_| {},
            async move |mut stage: Stage| {
                let worker = WorkerId::random();
                stage.context.predecessor_until = Timestamp::steady().plus_ms(answers_ms);
                stage.context.allocator.0.set(stage.recording.link(ChildKey::Allocator));
                stage.context.addresses.workers.put(worker, WorkerHandle(stage.recording.link(ChildKey::Worker(worker))));
                let plan = |run: &mut Run| {
                    (run.attempt, run.not_before) = (2, Some(Timestamp::now().plus_ms(10_000)));
                };
                let actor = stage.start_as::<Task>(Vec::new(), plan).await;
                actor.link.tell(TaskEvent::Claimed(worker, TaskRef { identity: stage.identity, instance: 0, attempt: 2 }));
                actor.stop("enough").wait().await.ok();
                assert_eq!(stage.recording.names().contains(&"OccupySlot".to_owned()), is_claimed);
            },
        );
    }
}

#[test]
fn only_a_task_that_waits_for_its_scheduled_time_is_withdrawn() {
    // At most two seconds ahead.
    for (ms, is_withdrawn) in [(900, true), (-1, false)] {
        on_stage(
            JobKind::Task,
            |_| {},
            async move |stage: Stage| {
                let plan = |run: &mut Run| {
                    run.planned_at = Some(Timestamp::now().plus_ms(ms));
                    run.not_before = run.planned_at;
                };
                let actor = stage.start_as::<Task>(Vec::new(), plan).await;
                let (reply, answer) = reply();
                actor.link.0.tell(Control::Withdraw(reply));
                assert_eq!(answer.wait().await.ok(), Some(is_withdrawn));
                assert_eq!(actor.address.connected(), !is_withdrawn);
                assert_eq!(stage.recording.names(), [""; 0], "the job notifies the registry");
            },
        );
    }
}
