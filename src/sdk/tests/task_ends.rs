//! Tasks that are asked to end, or are dropped: leases, cancels, workers that stop, drain or are kicked.

use super::broker::{Broker, block_on, order, until};
use crate::protocol::task::{TaskOrder, TaskState};
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::sdk::{Error, TaskContext, TaskFailure, TaskResult};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// What happened to a handler.
#[derive(Default)]
struct Fate {
    begun: Cell<Option<Instant>>,
    told: Cell<Option<Instant>>,
    reason: RefCell<String>,
    dropped: Cell<Option<Instant>>,
}

struct OnDrop(Rc<Fate>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.dropped.set(Some(Instant::now()));
    }
}

/// Waits for the request to end, and ends only if `obeys`.
fn waits(fate: &Rc<Fate>, obeys: bool) -> impl Fn(TaskContext) -> std::pin::Pin<Box<dyn Future<Output = TaskResult>>> + 'static {
    let fate = Rc::clone(fate);
    move |task| {
        let fate = Rc::clone(&fate);
        Box::pin(async move {
            let _dropped = OnDrop(Rc::clone(&fate));
            fate.begun.set(Some(Instant::now()));
            let reason = task.cancelled().await;
            assert!(task.is_cancelled());
            fate.reason.replace(reason);
            fate.told.set(Some(Instant::now()));
            match obeys {
                true => Err(TaskFailure::new("as you like")),
                false => std::future::pending().await,
            }
        })
    }
}

#[test]
fn a_task_ends_before_its_lease_when_the_broker_is_not_heard_of() {
    block_on(async {
        let broker = Broker::start();
        let fate = Rc::new(Fate::default());
        let function = waits(&fate, false);
        let worker = broker.employ(|worker| worker.task("waits", function)).await;
        let task = TaskOrder { lease: 3_000, ..order("waits") };
        // The last heartbeat with a reply was sent before this.
        broker.state().pongs = false;
        let sent = Instant::now();
        broker.order(&task);
        until("it is dropped", || fate.dropped.get().is_some()).await;
        let (told, dropped) = (fate.told.get().expect("told"), fate.dropped.get().expect("dropped"));
        assert!(told < dropped, "it is told first");
        assert!(dropped <= sent + Duration::from_millis(3_000), "dropped after {:?}", dropped - sent);
        assert!(fate.reason.borrow().contains("lease"), "{}", fate.reason.borrow());
        broker.until("it says so", |state| state.last_of(&task).is_some()).await;
        assert_eq!(broker.state().last_of(&task).expect("seen").state, TaskState::Cancelled, "somebody else may have it");
        broker.state().pongs = true;
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn heartbeats_keep_a_lease_and_a_silent_connection_does_not() {
    block_on(async {
        let broker = Broker::start();
        // Less often than the lease asks for.
        broker.state().heartbeat = 10_000;
        let done = Rc::new(Cell::new(false));
        let seen = Rc::clone(&done);
        let worker = broker
            .employ(|worker| {
                worker.task("long", move |task: TaskContext| {
                    let done = Rc::clone(&seen);
                    async move {
                        tokio::select! {
                            reason = task.cancelled() => Err(TaskFailure::new(reason)),
                            () = tokio::time::sleep(Duration::from_millis(7_000)) => {
                                done.set(true);
                                Ok(())
                            }
                        }
                    }
                })
            })
            .await;
        let task = TaskOrder { lease: 3_000, ..order("long") };
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        assert_eq!(broker.state().states(&task), [TaskState::Accepted, TaskState::Success]);
        assert!(done.get());
        let named = |message: &&FromWorker| matches!(message, FromWorker::Heartbeat { tasks: Some(tasks) } if tasks.contains(&task.task()));
        let beats = broker.state().heard().filter(named).count();
        assert!((4..=15).contains(&beats), "{beats} heartbeats");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn an_order_with_a_lease_that_may_be_over_begins_when_the_broker_is_heard_of() {
    block_on(async {
        let broker = Broker::start();
        broker.state().heartbeat = 60_000;
        broker.state().pongs = false;
        let fate = Rc::new(Fate::default());
        let function = waits(&fate, true);
        let worker = broker.employ(|worker| worker.task("waits", function)).await;
        // Longer than the lease: the worker's proof is too old.
        tokio::time::sleep(Duration::from_millis(250)).await;
        let task = TaskOrder { lease: 200, ..order("waits") };
        broker.order(&task);
        let names = |message: &FromWorker| matches!(message, FromWorker::Heartbeat { tasks: Some(tasks) } if tasks.contains(&task.task()));
        broker.until("it asks", |state| state.heard().any(names)).await;
        assert_eq!(fate.begun.get(), None);
        // The connection breaks: tasks that have not begun are forgotten, and sent again.
        broker.state().pongs = true;
        broker.cut();
        broker.until("it is back", |state| state.connections.get(1).is_some_and(|heard| !heard.is_empty())).await;
        assert!(matches!(&broker.state().connections[1][0], FromWorker::Watch { tasks, .. } if tasks.is_empty()));
        tokio::time::sleep(Duration::from_millis(250)).await;
        broker.order(&task);
        until("it begins", || fate.begun.get().is_some()).await;
        assert!(broker.state().connections[1].iter().any(names), "not before it is answered");
        broker.say(&ToWorker::Cancel { task: task.task(), reason: "enough".to_owned() });
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_cancelled_task_is_told_and_reports() {
    block_on(async {
        let broker = Broker::start();
        let fate = Rc::new(Fate::default());
        let function = waits(&fate, true);
        let worker = broker.employ(|worker| worker.task("waits", function)).await;
        let task = order("waits");
        broker.order(&task);
        until("it begins", || fate.begun.get().is_some()).await;
        broker.say(&ToWorker::Cancel { task: task.task(), reason: "wrong data".to_owned() });
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        let last = broker.state().last_of(&task).expect("seen");
        assert_eq!((last.state, last.error.expect("why").message.as_str()), (TaskState::Cancelled, "as you like"));
        assert_eq!(*fate.reason.borrow(), "wrong data");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_cancelled_task_that_does_not_listen_loses_its_lease() {
    block_on(async {
        let broker = Broker::start();
        let fate = Rc::new(Fate::default());
        let function = waits(&fate, false);
        let worker = broker.employ(|worker| worker.task("waits", function)).await;
        let task = TaskOrder { lease: 3_000, ..order("waits") };
        broker.order(&task);
        until("it begins", || fate.begun.get().is_some()).await;
        let sent = Instant::now();
        broker.say(&ToWorker::Cancel { task: task.task(), reason: "too long".to_owned() });
        until("it is dropped", || fate.dropped.get().is_some()).await;
        assert!(fate.dropped.get().expect("dropped") <= sent + Duration::from_millis(3_000), "heartbeats do not renew it any more");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_worker_that_is_put_out_drops_all_and_stays_away() {
    block_on(async {
        let broker = Broker::start();
        let fates = [Rc::new(Fate::default()), Rc::new(Fate::default())];
        let (obeys, does_not) = (waits(&fates[0], true), waits(&fates[1], false));
        let worker = broker.employ(|worker| worker.task("obeys", obeys).task("does-not", does_not)).await;
        broker.say(&ToWorker::Tasks(vec![order("obeys"), order("does-not")]));
        until("they begin", || fates.iter().all(|fate| fate.begun.get().is_some())).await;
        broker.say(&ToWorker::Kicked { reason: "it eats all memory".to_owned() });
        let ended = worker.end().await;
        assert!(matches!(&ended, Err(Error::Kicked(reason)) if reason == "it eats all memory"), "{ended:?}");
        until("both are gone", || fates.iter().all(|fate| fate.told.get().is_some() && fate.dropped.get().is_some())).await;
        assert_eq!(broker.state().connections.len(), 1);
    });
}

#[test]
fn a_draining_worker_finishes_takes_nothing_new_and_leaves() {
    block_on(async {
        let broker = Broker::start();
        let fate = Rc::new(Fate::default());
        let function = waits(&fate, true);
        let worker = broker.employ(|worker| worker.task("waits", function)).await;
        let (task, late) = (order("waits"), order("waits"));
        broker.order(&task);
        until("it begins", || fate.begun.get().is_some()).await;
        broker.say(&ToWorker::Drain { reason: Some("a new version".to_owned()) });
        let closed = |message: &FromWorker| matches!(message, FromWorker::Watch { worker, .. } if worker.slots == Some(0));
        broker.until("it has no places", |state| state.heard().any(closed)).await;
        broker.order(&late);
        broker.until("a refusal", |state| state.states(&late) == [TaskState::Refused]).await;
        assert_eq!(fate.told.get(), None, "what is in hand goes on");
        broker.say(&ToWorker::Cancel { task: task.task(), reason: "so that it ends".to_owned() });
        assert!(worker.end().await.is_ok());
        assert_eq!(broker.state().last_of(&task).expect("it was told").state, TaskState::Cancelled);
    });
}

#[test]
fn a_worker_that_stops_gives_its_tasks_the_grace() {
    async fn short(_: TaskContext) -> TaskResult<u8> {
        tokio::time::sleep(Duration::from_millis(200)).await;
        Ok(1)
    }
    block_on(async {
        let broker = Broker::start();
        let fates = [Rc::new(Fate::default()), Rc::new(Fate::default())];
        let (obeys, does_not) = (waits(&fates[0], true), waits(&fates[1], false));
        let grace = Duration::from_millis(1_000);
        let worker = broker.employ(|worker| worker.grace(grace).task("short", short).task("obeys", obeys).task("does-not", does_not)).await;
        let tasks = [order("short"), order("obeys"), order("does-not")];
        broker.say(&ToWorker::Tasks(tasks.to_vec()));
        until("they begin", || fates.iter().all(|fate| fate.begun.get().is_some())).await;
        let began = Instant::now();
        assert!(worker.stop().await.is_ok());
        let last = tasks.map(|task| broker.state().last_of(&task).expect("all were told").state);
        assert_eq!(last, [TaskState::Success, TaskState::Cancelled, TaskState::Cancelled]);
        assert!(fates[0].told.get().expect("told") >= began + Duration::from_millis(700), "not before it must");
        assert!(began.elapsed() < Duration::from_millis(1_900), "{:?}", began.elapsed());
    });
}

#[test]
fn a_worker_that_is_dropped_drops_its_tasks() {
    block_on(async {
        let broker = Broker::start();
        let fate = Rc::new(Fate::default());
        let worker = crate::sdk::Worker::new(&broker.address).task("waits", waits(&fate, false));
        let running = worker.run(std::future::pending());
        let ordered = async {
            broker.until("it watches", |state| !state.connections.is_empty()).await;
            broker.order(&order("waits"));
            until("it begins", || fate.begun.get().is_some()).await;
        };
        tokio::select! {
            ended = running => panic!("{ended:?}"),
            () = ordered => {}
        }
        until("it is dropped", || fate.dropped.get().is_some()).await;
    });
}
