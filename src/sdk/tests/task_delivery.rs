//! Orders, results, and connections that break between them.

use super::broker::{Broker, block_on, order, reports, until, with_arguments};
use crate::domain::time::Timestamp;
use crate::protocol::task::{TaskOrder, TaskState};
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::sdk::{Error, TaskContext, TaskFailure, TaskHandler, TaskResult, Worker};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;

async fn add(task: TaskContext) -> TaskResult<i64> {
    let numbers: Vec<i64> = task.arguments()?;
    task.set_data(&numbers.len())?;
    task.next_at(Timestamp(1_000));
    Ok(numbers.iter().sum())
}

/// A handler that counts its calls and ends when it is released.
#[derive(Clone, Default)]
struct Held {
    calls: Rc<Cell<u32>>,
    ends: Rc<Cell<u32>>,
    go: Rc<Notify>,
}

impl TaskHandler for Held {
    type Output = &'static str;
    fn name(&self) -> &str {
        "held"
    }
    async fn run(&self, _task: TaskContext) -> TaskResult<Self::Output> {
        self.calls.set(self.calls.get() + 1);
        self.go.notified().await;
        self.ends.set(self.ends.get() + 1);
        Ok("done")
    }
}

#[test]
fn a_result_goes_with_all_that_belongs_to_it_until_it_is_settled() {
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.name("adder").group("g").version("2").tags(["gpu"]).slots(3).task("add", add)).await;
        let task = with_arguments("add", "[1,2,3]");
        broker.order(&task);
        broker.until("a result", |state| state.last_of(&task).is_some()).await;
        let last = broker.state().last_of(&task).expect("seen");
        assert_eq!((last.state, last.result.expect("a result").get()), (TaskState::Success, "6"));
        assert_eq!((last.data.expect("data").get(), last.next_at), ("3", Some(Timestamp(1_000))));
        let is_empty = |message: &FromWorker| matches!(message, FromWorker::Heartbeat { tasks: Some(tasks) } if tasks.is_empty());
        broker.until("it is forgotten", |state| state.connections[0].last().is_some_and(is_empty)).await;
        let FromWorker::Watch { class_names, worker: facts, .. } = broker.state().connections[0][0].clone() else {
            panic!("a watch is first")
        };
        assert_eq!((class_names, facts.slots), (vec!["add".to_owned()], Some(3)));
        assert_eq!((facts.name.as_deref(), facts.group.as_deref(), facts.version.as_deref()), (Some("adder"), Some("g"), Some("2")));
        assert_eq!(facts.tags, ["gpu"]);
        assert!(worker.stop().await.is_ok());
        assert_eq!(broker.state().states(&task), [TaskState::Success], "said once");
    });
}

#[test]
fn what_is_not_settled_is_said_again_on_the_next_connection() {
    block_on(async {
        let broker = Broker::start();
        broker.state().settles = false;
        let worker = broker.employ(|worker| worker.task("add", add)).await;
        let task = with_arguments("add", "[1]");
        broker.order(&task);
        broker.until("a result", |state| state.last_of(&task).is_some()).await;
        broker.cut();
        broker.until("it comes again", |state| state.connections.get(1).is_some_and(|heard| !reports(heard).is_empty())).await;
        let heard = broker.state().connections[1].clone();
        let FromWorker::Watch { tasks, .. } = &heard[0] else { panic!("a watch is first") };
        assert_eq!(*tasks, [task.task()]);
        assert_eq!(reports(&heard)[0].result.as_ref().expect("the result").get(), "1");
        // The same order again, with the same attempt: the report is repeated, the work is not.
        broker.state().settles = true;
        broker.order(&task);
        assert!(worker.stop().await.is_ok(), "it leaves when all is settled");
        assert!(broker.state().states(&task).iter().all(|state| *state == TaskState::Success));
    });
}

#[test]
fn a_result_that_comes_while_the_broker_is_away_is_said_when_it_is_back() {
    block_on(async {
        let broker = Broker::start();
        let held = Held::default();
        let handler = held.clone();
        let worker = broker.employ(|worker| worker.handler(handler)).await;
        let task = order("held");
        broker.order(&task);
        until("it begins", || held.calls.get() == 1).await;
        broker.state().is_there = false;
        broker.cut();
        broker.until("it is away", |state| state.closed == 1).await;
        held.go.notify_one();
        until("it ends", || held.ends.get() == 1).await;
        broker.state().is_there = true;
        broker.until("a result", |state| state.last_of(&task).is_some()).await;
        assert_eq!(broker.state().connections.len(), 2);
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn an_order_that_comes_twice_is_one_task() {
    block_on(async {
        let broker = Broker::start();
        broker.state().settles = false;
        let held = Held::default();
        let handler = held.clone();
        let worker = broker.employ(|worker| worker.handler(handler)).await;
        let task = order("held");
        broker.say(&ToWorker::Tasks(vec![task.clone(), task.clone()]));
        until("it begins", || held.calls.get() == 1).await;
        broker.cut();
        broker.until("it is back", |state| state.connections.get(1).is_some_and(|heard| !heard.is_empty())).await;
        let FromWorker::Watch { tasks, .. } = broker.state().connections[1][0].clone() else { panic!("a watch is first") };
        assert_eq!(tasks, [task.task()], "in hand");
        broker.order(&task);
        held.go.notify_one();
        broker.until("a result", |state| state.last_of(&task).is_some()).await;
        let said = broker.state().states(&task).len();
        broker.order(&task);
        broker.until("the result again", |state| state.states(&task).len() > said).await;
        assert_eq!(held.calls.get(), 1);
        // Another attempt is another task.
        let next = TaskOrder { attempt: 2, ..task.clone() };
        broker.order(&next);
        until("it begins again", || held.calls.get() == 2).await;
        held.go.notify_one();
        broker.state().settles = true;
        broker.order(&task);
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn what_cannot_be_taken_is_refused() {
    block_on(async {
        let broker = Broker::start();
        let held = Held::default();
        let handler = held.clone();
        let worker = broker.employ(|worker| worker.slots(1).handler(handler)).await;
        let (unknown, first, second) = (order("nobody.knows"), order("held"), order("held"));
        broker.say(&ToWorker::Tasks(vec![unknown.clone(), first.clone(), second.clone()]));
        broker.until("refusals", |state| state.last_of(&unknown).is_some() && state.last_of(&second).is_some()).await;
        for (task, why) in [(&unknown, "this worker does not watch `nobody.knows`"), (&second, "all 1 slots are used")] {
            let last = broker.state().last_of(task).expect("seen");
            assert_eq!((last.state, last.error.expect("a reason").message.as_str()), (TaskState::Refused, why));
        }
        held.go.notify_one();
        broker.until("the first", |state| state.last_of(&first).is_some()).await;
        assert_eq!(held.calls.get(), 1);
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn failures_and_panics_are_told_and_the_worker_lives() {
    async fn fails(task: TaskContext) -> TaskResult {
        match task.arguments::<u8>()? {
            0 => panic!("number {}", 0),
            1 => Err("x".parse::<f64>().unwrap_err())?,
            _ => Err(TaskFailure::new("never").permanent()),
        }
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("fails", fails)).await;
        let cases = [
            ("0", "panic: number 0", false),
            ("1", "invalid float literal", false),
            ("2", "never", true),
            ("-1", "the arguments are not as expected: invalid value: integer `-1`, expected u8 at line 1 column 2", true),
        ];
        for (arguments, message, permanent) in cases {
            let task = with_arguments("fails", arguments);
            broker.order(&task);
            broker.until(message, |state| state.last_of(&task).is_some()).await;
            let last = broker.state().last_of(&task).expect("seen");
            let error = last.error.expect("an error");
            assert_eq!((last.state, error.message.as_str(), error.permanent), (TaskState::Failed, message, permanent));
        }
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_hundred_that_end_together_are_told_together() {
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.slots(200).task("add", add)).await;
        let tasks: Vec<_> = (0..100).map(|_| with_arguments("add", "[2,2]")).collect();
        broker.say(&ToWorker::Tasks(tasks));
        broker.until("all", |state| state.reports().len() == 100).await;
        let messages = broker.state().heard().filter(|message| matches!(message, FromWorker::Reports(_))).count();
        assert!(messages <= 4, "{messages} messages");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn two_workers_of_one_program_do_not_meet() {
    block_on(async {
        let (broker, other) = (Broker::start(), Broker::start());
        let worker = broker.employ(|worker| worker.task("add", add)).await;
        let second = other.employ(|worker| worker.task("add", add)).await;
        let (task, another) = (with_arguments("add", "[1]"), with_arguments("add", "[2]"));
        broker.order(&task);
        other.order(&another);
        broker.until("the first", |state| state.last_of(&task).is_some()).await;
        other.until("the second", |state| state.last_of(&another).is_some()).await;
        assert!(worker.stop().await.is_ok());
        assert!(second.stop().await.is_ok());
        assert_eq!((broker.state().reports().len(), other.state().reports().len()), (1, 1));
    });
}

#[test]
fn a_name_is_watched_once() {
    block_on(async {
        let twice = Worker::new("http://127.0.0.1:1").task("add", add).task("add", add);
        assert!(matches!(twice.run(std::future::pending()).await, Err(Error::Classes(_))));
        let none = Worker::new("http://127.0.0.1:1");
        assert!(matches!(tokio::time::timeout(Duration::from_secs(5), none.run(std::future::pending())).await, Ok(Err(Error::Classes(_)))));
    });
}
