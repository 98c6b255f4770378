//! Reports of tasks before they end.

use super::broker::{Broker, block_on, order};
use crate::domain::ids::WorkerId;
use crate::protocol::task::{TaskOrder, TaskReport, TaskState};
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::sdk::{Level, TaskContext, TaskResult};
use std::time::Duration;
use tokio::time::Instant;

#[test]
fn progress_is_the_newest_and_ten_times_a_second_at_most() {
    async fn counts(task: TaskContext) -> TaskResult<u64> {
        let began = Instant::now();
        for n in 0..=100 {
            task.progress(2 * n, format!("step {n}"));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(began.elapsed().as_millis() as u64)
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("counts", counts)).await;
        let task = order("counts");
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        let reports = broker.state().reports();
        let last = reports.last().expect("some");
        // A report may have included the last progress just before the task ended: then the last report has none.
        let progress: Vec<_> = reports.iter().filter(|report| report.progress.is_some()).collect();
        let newest = progress.last().expect("some");
        assert_eq!((newest.progress, newest.text.as_deref()), (Some(100), Some("step 100")));
        let took: u64 = last.result.as_ref().expect("a result").get().parse().expect("a number");
        let running = reports.iter().filter(|report| report.state == TaskState::Running).count() as u64;
        assert!(running >= 3 && running <= took / 100 + 1, "{running} reports in {took} ms");
        assert!(progress.is_sorted_by_key(|report| report.progress), "none is older than the one before");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn lines_are_batched_and_arrive_before_the_result() {
    async fn talks(task: TaskContext) -> TaskResult {
        (0..2_500).for_each(|n| task.log(Level::Warn, format!("line {n}")));
        Ok(())
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("talks", talks)).await;
        let task = order("talks");
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        let lines = |message: &FromWorker| match message {
            FromWorker::Reports(reports) => Some(reports.iter().map(|report| report.logs.len()).sum::<usize>()),
            _ => None,
        };
        let per_message: Vec<usize> = broker.state().heard().filter_map(lines).collect();
        assert_eq!(per_message, [1_000, 1_000, 500]);
        let reports = broker.state().reports();
        let all: Vec<&str> = reports.iter().flat_map(|report| &report.logs).map(|line| line.text.as_str()).collect();
        assert!(all.iter().enumerate().all(|(n, text)| *text == format!("line {n}")));
        assert!(reports[0].logs[0].at.is_some());
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_task_that_floods_a_broker_that_is_away_keeps_the_newest_lines() {
    async fn floods(task: TaskContext) -> TaskResult {
        (0..25_000).for_each(|n| task.log(Level::Info, n.to_string()));
        Ok(())
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("floods", floods)).await;
        let task = order("floods");
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        let texts: Vec<String> = broker.state().reports().into_iter().flat_map(|report| report.logs).map(|line| line.text).collect();
        assert!(texts[0].starts_with("15000 lines were dropped"), "{}", texts[0]);
        assert_eq!((texts[1].as_str(), texts.last().map(String::as_str), texts.len()), ("15000", Some("24999"), 10_001));
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_task_knows_what_it_was_ordered() {
    async fn knows(task: TaskContext) -> TaskResult<(u32, u32, u32, String, bool)> {
        let trace = task.traceparent().unwrap_or_default();
        assert_eq!(Some(trace.clone()), task.traceparent(), "one span an attempt");
        assert_eq!(task.data::<Option<u8>>()?, Some(7));
        Ok((task.attempt(), task.instance(), task.instances(), trace, task.deadline().is_some()))
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("knows", knows)).await;
        let data = serde_json::value::RawValue::from_string("7".to_owned()).expect("JSON");
        let trace_id = Some("0af7651916cd43dd8448eb211c80319c".to_owned());
        let parts = TaskOrder { attempt: 2, instance: 3, instances: 5, data: Some(data.into()), ..order("knows") };
        let task = TaskOrder { trace_id, timeout: Some(1_000), ..parts };
        broker.order(&task);
        broker.until("it ends", |state| state.last_of(&task).is_some()).await;
        let last: TaskReport = broker.state().last_of(&task).expect("seen");
        let (attempt, instance, instances, trace, has_deadline): (u32, u32, u32, String, bool) =
            serde_json::from_str(last.result.expect("a result").get()).expect("what it knows");
        assert_eq!((attempt, instance, instances, has_deadline), (2, 3, 5, true));
        assert!(trace.starts_with("00-0af7651916cd43dd8448eb211c80319c-") && trace.ends_with("-01") && trace.len() == 55, "{trace}");
        assert!(worker.stop().await.is_ok());
    });
}

#[test]
fn a_second_welcome_is_answered_with_what_the_worker_watches() {
    async fn waits(_: TaskContext) -> TaskResult {
        std::future::pending().await
    }
    block_on(async {
        let broker = Broker::start();
        let worker = broker.employ(|worker| worker.task("waits", waits)).await;
        let task = order("waits");
        broker.order(&task);
        let has_it = |message: &FromWorker| matches!(message, FromWorker::Heartbeat { tasks: Some(tasks) } if *tasks == [task.task()]);
        broker.until("it runs", |state| state.heard().any(has_it)).await;
        // The broker has rebuilt the actor of the worker.
        broker.say(&ToWorker::Welcome { worker_id: WorkerId::random(), heartbeat: 20, offline: 3_000, separate_reports: true });
        let is_it = |message: &FromWorker| matches!(message, FromWorker::Watch { tasks, .. } if *tasks == [task.task()]);
        broker.until("it watches again, with the task", |state| state.heard().any(is_it)).await;
        drop(worker);
    });
}
