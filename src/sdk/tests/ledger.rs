//! The decisions of the ledger, without a clock.

use super::broker::{order, settled};
use crate::protocol::task::{TaskRef, TaskReport, TaskState};
use crate::sdk::task::ledger::{AGAIN, Expired, Ledger, OnCancel, Ordered};
use std::time::Duration;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_millis(1_000);
const HEARTBEAT: Duration = Duration::from_millis(3_000);

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn task() -> TaskRef {
    order("x").task()
}

fn success(task: TaskRef) -> TaskReport {
    let TaskRef { identity, instance, attempt } = task;
    let json = serde_json::json!({ "identity": identity, "instance": instance, "attempt": attempt, "state": TaskState::Success });
    serde_json::from_value(json).expect("a report")
}

/// A ledger with one task, ordered `after` the connection was begun.
fn one(after: u64) -> (Ledger<TaskRef>, TaskRef, Instant) {
    let began = Instant::now();
    let mut ledger = Ledger::new(9, HEARTBEAT, began);
    ledger.connected(began, began);
    let task = task();
    ledger.order(task, LEASE, began + ms(after), |_| task);
    (ledger, task, began)
}

#[test]
fn a_lease_counts_from_what_was_answered_last() {
    let (mut ledger, task, began) = one(300);
    assert_eq!(ledger.until(task), Some(began + LEASE), "from the connection, not from the order");
    assert!(ledger.next_beat() < began + ms(800), "in time");
    let (beat, named) = ledger.beat(began + ms(500));
    assert_eq!(named, [task]);
    assert_eq!(ledger.until(task), Some(began + LEASE), "a heartbeat alone proves nothing");
    ledger.answered(beat, began + ms(900));
    assert_eq!(ledger.until(task), Some(began + ms(500) + LEASE), "from when it was sent, not from the answer");
}

#[test]
fn the_answer_to_a_heartbeat_from_before_the_order_renews_nothing() {
    let began = Instant::now();
    let mut ledger = Ledger::new(9, HEARTBEAT, began);
    ledger.connected(began, began);
    let (before, _) = ledger.beat(began + ms(100));
    let task = task();
    assert_eq!(ledger.order(task, LEASE, began + ms(200), |_| task), Ordered::Begin(task));
    ledger.answered(before, began + ms(300));
    assert_eq!(ledger.until(task), Some(began + LEASE));
    let second = order("x").task();
    ledger.order(second, LEASE, began + ms(300), |_| second);
    assert_eq!(ledger.until(second), Some(began + ms(100) + LEASE), "but it counts for what is ordered later");
}

#[test]
fn what_is_told_to_end_is_not_renewed() {
    let (mut ledger, task, began) = one(0);
    assert_eq!(ledger.cancel(task), OnCancel::End(task));
    let (beat, _) = ledger.beat(began + ms(300));
    ledger.answered(beat, began + ms(301));
    assert_eq!(ledger.until(task), Some(began + LEASE));
    assert_eq!(ledger.cancel(order("x").task()), OnCancel::Unknown);
}

#[test]
fn a_lease_that_may_be_over_is_waited_for() {
    let (mut ledger, task, began) = one(1_200);
    assert_eq!(ledger.at_work().count(), 0);
    assert!(ledger.next_beat() <= began + ms(1_200), "it asks at once");
    assert_eq!(ledger.expire(began + ms(1_300)), Expired { warned: vec![], over: vec![] }, "what has not begun is not over");
    let (beat, _) = ledger.beat(began + ms(1_200));
    assert_eq!(ledger.answered(beat, began + ms(1_250)), [task]);
    assert_eq!(ledger.until(task), Some(began + ms(2_200)));
    assert!(ledger.check_at().is_some());
}

#[test]
fn a_task_is_warned_and_then_dropped_before_its_lease_ends() {
    let (mut ledger, task, began) = one(0);
    let warn = ledger.check_at().expect("there is a lease");
    assert_eq!(ledger.expire(warn - ms(1)), Expired { warned: vec![], over: vec![] });
    assert_eq!(ledger.expire(warn), Expired { warned: vec![task], over: vec![] });
    let over = ledger.check_at().expect("it is not over");
    assert!(warn < over && over < began + LEASE);
    assert_eq!(ledger.expire(over), Expired { warned: vec![], over: vec![task] });
}

#[test]
fn a_last_report_is_said_until_it_is_settled() {
    let (mut ledger, task, began) = one(0);
    ledger.finish(success(task));
    assert_eq!(ledger.say(began).len(), 1);
    assert_eq!(ledger.say(began).len(), 0, "once");
    assert_eq!(ledger.beat(began + ms(1_000)).1, [task], "named until it is settled");
    assert_eq!(ledger.say(began + ms(1_000)).len(), 0);
    ledger.beat(began + AGAIN);
    assert_eq!(ledger.say(began + AGAIN).len(), 1, "it was not settled for five seconds");
    ledger.connected(began + AGAIN, began + AGAIN);
    assert_eq!(ledger.say(began + AGAIN).len(), 1, "a new connection");
    assert_eq!(ledger.order(task, LEASE, began + AGAIN, |_| task), Ordered::Known);
    assert_eq!(ledger.say(began + AGAIN).len(), 1, "it was ordered again");
    assert!(!ledger.is_settled());
    ledger.settle(&[settled(task)]);
    assert!(ledger.is_settled() && !ledger.has_unsaid());
    // A reply to a report proves as much as one to a heartbeat, from when it was first sent on the connection.
    let next = order("x").task();
    ledger.order(next, LEASE, began + AGAIN + ms(10), |_| next);
    assert_eq!(ledger.until(next), Some(began + AGAIN + LEASE));
}

#[test]
fn another_leader_on_the_same_connection_gets_everything_again() {
    let (mut ledger, done, began) = one(0);
    let waits = order("x").task();
    ledger.order(waits, LEASE, began + ms(990), |_| waits);
    ledger.finish(success(done));
    assert_eq!(ledger.say(began + ms(100)).len(), 1);
    let (beat, named) = ledger.beat(began + ms(1_000));
    assert!(named.contains(&done) && named.contains(&waits));
    ledger.begin_again(began + ms(1_100));
    assert_eq!(ledger.tasks(), [done], "what has not begun may be at another worker");
    assert_eq!(ledger.answered(beat, began + ms(1_200)), [], "nor does it begin");
    assert_eq!(ledger.say(began + ms(1_200)).len(), 1);
    ledger.settle(&[settled(done)]);
    // The first time that it was sent may have reached this leader.
    let next = order("x").task();
    ledger.order(next, LEASE, began + ms(1_300), |_| next);
    assert_eq!(ledger.until(next), Some(began + ms(100) + LEASE));
}

#[test]
fn nothing_is_taken_over_its_places_or_when_it_is_closed() {
    let now = Instant::now();
    let mut ledger = Ledger::new(1, HEARTBEAT, now);
    let (first, second) = (task(), task());
    assert_eq!(ledger.order(first, LEASE, now, |_| first), Ordered::Begin(first));
    assert!(matches!(ledger.order(second, LEASE, now, |_| second), Ordered::Refuse(_)));
    ledger.finish(success(first));
    assert_eq!(ledger.order(second, LEASE, now, |_| second), Ordered::Begin(second));
    ledger.close("tired");
    assert_eq!(ledger.order(second, LEASE, now, |_| second), Ordered::Known);
    assert_eq!(ledger.order(order("x").task(), LEASE, now, |_| first), Ordered::Refuse("tired".to_owned()));
}
