//! Retention deletes old rows, and nothing else.

use super::*;
use crate::domain::job::Job;
use crate::domain::schedule::{Keep, Policies};
use crate::domain::worker::WorkerOrder;
use std::collections::HashMap;

async fn stored_job(store: &Store, name: &str, keep: Keep) -> Job {
    let job = Job { policies: Some(Policies { keep, ..Policies::default() }), ..job(name) };
    store.write(InsertJob { job: job.clone(), next_at: None }).await.expect("inserted");
    job
}

/// A run of the job that ended at this time.
async fn ended(store: &Store, job_id: JobId, at: i64, follow: bool) -> Run {
    let new = Run { state: RunState::Failed, finish_time: Some(Timestamp(at)), follow, ..new_run(job_id) };
    store.write(by_hand(new)).await.expect("inserted").run
}

async fn old(store: &Store, keep: u32, age_ms: u64, now: i64) -> Vec<i64> {
    let look = OldRuns { after_no: 0, keep, age_ms, limits: HashMap::new(), now: Timestamp(now) };
    store.read(look).await.expect("read").nos
}

#[test]
fn runs_go_by_count_by_age_and_with_their_job() {
    with_store(|store, _| async move {
        let usual = stored_job(&store, "usual", Keep::default()).await;
        let own = stored_job(&store, "own", Keep { runs: Some(1), age: Some(10_000) }).await;
        let open = store.write(by_hand(new_run(usual.id))).await.expect("inserted").run;
        let unsettled = ended(&store, usual.id, 1_000, true).await;
        let mut nos = Vec::new();
        for (job, at) in [(usual.id, 1_000), (usual.id, 2_000), (usual.id, 3_000), (own.id, 1_000), (own.id, 2_000)] {
            nos.push(ended(&store, job, at, false).await.no);
        }
        let orphan = ended(&store, JobId::random(), 3_000, false).await.no;
        assert_eq!(old(&store, 10, 100_000, 5_000).await, [nos[3], orphan], "the job's own count, and no job");
        assert_eq!(old(&store, 2, 100_000, 5_000).await, [nos[0], nos[3], orphan]);
        assert_eq!(old(&store, 10, 2_500, 5_000).await, [nos[0], nos[1], nos[3], orphan]);
        // Even if requested, it deletes neither open runs nor those with unapplied ends.
        let gone = store.write(DeleteRuns(vec![open.no, unsettled.no, nos[0]])).await.expect("deleted");
        assert_eq!(gone.runs, 3);
        let left: Vec<i64> = store
            .read(ListRuns { job_id: Some(usual.id), limit: 10, ..ListRuns::default() })
            .await
            .expect("read")
            .iter()
            .map(|run| run.no)
            .collect();
        assert_eq!(left, [nos[2], nos[1], unsettled.no, open.no]);
    });
}

#[test]
fn a_run_goes_with_its_blocks_in_steps() {
    with_store(|store, _| async move {
        let (big, other) = (run(&store).await, run(&store).await);
        store.write(push(&big, 0..250)).await.expect("pushed");
        store.write(push(&other, 0..3)).await.expect("pushed");
        store.write(stopped(&big, T)).await.expect("ended");
        let mut steps = 0;
        while store.write(DeleteRuns(vec![big.0.no])).await.expect("deleted").runs == 0 {
            steps += 1;
            assert!(steps < 10, "it comes to an end");
        }
        assert!(steps >= 1, "not all at once");
        let list = |no| store.read(ListBlocks { no, from: None, limit: 1_000, state: None });
        assert_eq!(list(big.0.no).await.map(|blocks| blocks.len()), Ok(0));
        assert_eq!(list(other.0.no).await.map(|blocks| blocks.len()), Ok(3));
        assert_eq!(store.read(GetRun(big.0.identity)).await, Ok(None));
    });
}

#[test]
fn the_ledger_goes_by_age_and_says_so() {
    with_store(|store, _| async move {
        let job = stored_job(&store, "a", Keep::default()).await;
        for at in [1_000, 2_000, 3_000] {
            let skip = RecordSkip { job_id: job.id, version: 1, planned_at: Timestamp(at), rule: "r", reason: "x".into(), now: T };
            store.write(skip.clone()).await.expect("recorded");
            store.write(RecordSkip { job_id: JobId::random(), ..skip }).await.expect("recorded");
        }
        assert_eq!(store.read(LedgerCleanedUntil).await, Ok(None));
        let before = Timestamp(2_500);
        let found = store.read(OldFires { after_job: String::new(), before }).await.expect("read");
        assert_eq!((found.rows.len(), found.next), (2 + 3, None), "two that are old, three of jobs that are gone");
        store.write(DeleteFires { rows: found.rows, before }).await.expect("deleted");
        assert_eq!(store.read(LedgerCleanedUntil).await, Ok(Some(before)));
        let all = ListFires { job_id: job.id, from: None, to: None, verdict: None, ascending: true, limit: 10 };
        assert_eq!(store.read(all).await.map(|fires| fires.iter().map(|f| f.planned_at.0).collect::<Vec<_>>()), Ok(vec![3_000]));
        // It never goes back.
        store.write(DeleteFires { rows: Vec::new(), before: Timestamp(1) }).await.expect("nothing");
        assert_eq!(store.read(LedgerCleanedUntil).await, Ok(Some(before)));
    });
}

#[test]
fn the_last_change_before_the_rest_stays() {
    with_store(|store, _| async move {
        let first = stored_job(&store, "a", Keep::default()).await;
        let state = PlanState::new(T);
        for (version, at) in [(1, 2_000), (2, 3_000)] {
            let job = Job { version, update_time: Timestamp(at), ..first.clone() };
            let update = UpdateJob { job, action: Action::Updated, was: state, state, next_at: None, events: Vec::new() };
            store.write(update).await.expect("updated");
        }
        let changes = store.read(ListChanges { job_id: None, before: None, limit: 9 }).await.expect("read");
        let ids: Vec<i64> = changes.iter().rev().map(|change| change.id).collect();
        let old = |before| store.read(OldChanges { after: 0, before: Timestamp(before) });
        assert_eq!(old(500).await, Ok((vec![], None)));
        assert_eq!(old(2_500).await, Ok((vec![ids[0]], None)), "how it was at 2,500 is still to be known");
        assert_eq!(old(9_000).await, Ok((vec![ids[0], ids[1]], None)));
    });
}

#[test]
fn a_late_begin_is_said_once() {
    with_store(|store, _| async move {
        let job = stored_job(&store, "a", Keep::default()).await;
        let rules = crate::domain::run::RunRules { late_after: Some(100), ..Default::default() };
        let mut made = Vec::new();
        for at in [1_000, 2_000] {
            let run = Run { rules: rules.clone(), ..new_run(job.id) };
            let insert = InsertRun { run, marks: None, version: 1, fire: Some((Timestamp(at), Kind::Outside)), key: None };
            made.push(store.write(insert).await.expect("inserted").run);
        }
        let late = |now| store.read(LateRuns { now: Timestamp(now), limit: 9 });
        assert_eq!(late(1_099).await.map(|runs| runs.len()), Ok(0));
        let runs = late(1_100).await.expect("read");
        assert_eq!(runs.len(), 1);
        store.write(NoteLate { runs, now: Timestamp(1_100) }).await.expect("noted");
        assert_eq!(late(1_200).await.map(|runs| runs.len()), Ok(0), "it is said once");
        // The second one was never checked while it waited.
        for run in &made {
            let begin = BeginRun {
                no: run.no,
                epoch: 1,
                state: RunState::Scheduled,
                worker: None,
                again: None,
                may_be_late: true,
                now: Timestamp(2_100),
            };
            store.write(begin).await.expect("begun");
        }
        let events = store.read(ListEvents { before: None, limit: 9 }).await.expect("read");
        let told: Vec<_> = events.iter().map(|(event, _)| (event.event.as_str(), event.identity)).collect();
        assert_eq!(told, [("late", Some(made[1].identity)), ("late", Some(made[0].identity))]);
    });
}

/// By hand: `cargo test --release --lib retention::writers -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
fn writers_beside_the_cleaning() {
    with_store(|store, _| async move {
        let job = stored_job(&store, "a", Keep::default()).await;
        let mut nos = Vec::new();
        for n in 0..2_000 {
            let owned = run(&store).await;
            store.write(push(&owned, 0..20)).await.expect("pushed");
            nos.push(owned.0.no);
            store.write(stopped(&owned, Timestamp(n))).await.expect("ended");
        }
        for clean in [false, true] {
            let deleting = store.clone();
            let mut rest = if clean { std::mem::take(&mut nos) } else { Vec::new() };
            let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
            let cleaning = actix::spawn(async move {
                let mut gone = 0;
                while !rest.is_empty() && stopped.try_recv().is_err() {
                    let begin = std::time::Instant::now();
                    let done = deleting.write(DeleteRuns(rest.iter().copied().take(200).collect())).await.expect("deleted");
                    rest.drain(..done.runs);
                    gone += done.runs;
                    // The janitor does the same.
                    tokio::time::sleep((begin.elapsed() * 10).max(std::time::Duration::from_millis(20))).await;
                }
                gone
            });
            let mut times = Vec::new();
            for _ in 0..1_500 {
                let begin = std::time::Instant::now();
                store.write(by_hand(new_run(job.id))).await.expect("inserted");
                times.push(begin.elapsed().as_micros());
            }
            let _ = stop.send(());
            let gone = cleaning.await.expect("it ends");
            times.sort_unstable();
            println!("cleaning={clean} runs_gone={gone} p50={} us p99={} us max={} us", times[750], times[1_485], times[1_499]);
        }
    });
}

#[test]
fn watches_and_workers_that_are_long_gone_go() {
    with_store(|store, _| async move {
        let meet = async |at: i64| {
            let worker = WorkerId::random();
            let said = MeetWorker {
                by: None,
                worker,
                name: None,
                group: None,
                version: None,
                tags: Vec::new(),
                class_names: vec!["a".into()],
                slots: None,
                now: Timestamp(at),
            };
            store.write(said).await.expect("met");
            store.write(WatchClasses { worker, class_names: vec!["a".into()], now: Timestamp(at) }).await.expect("watches");
            worker
        };
        let (old, here, barred, young) = (meet(1).await, meet(1).await, meet(1).await, meet(50).await);
        for (worker, at) in [(old, 2), (barred, 2), (young, 51)] {
            store.write(WorkerGone { worker, now: Timestamp(at) }).await.expect("gone");
        }
        let order = OrderWorker { worker: barred, order: WorkerOrder::Kick, reason: None, by: None, now: Timestamp(3) };
        store.write(order).await.expect("kicked");
        assert_eq!(store.write(PruneWorkers { before: Timestamp(50) }).await, Ok(3), "two watches and one record");
        assert_eq!(store.write(PruneWorkers { before: Timestamp(50) }).await, Ok(0));
        let left = store.read(ListWorkerRecords { limit: 9, ..ListWorkerRecords::default() }).await.expect("read");
        let mut expected = vec![here, barred, young];
        expected.sort_unstable();
        assert_eq!(left.iter().map(|record| record.id).collect::<Vec<_>>(), expected);
        assert_eq!(store.read(ListWorkers { worker: None, limit: 9 }).await.map(|rows| rows.len()), Ok(2));
    });
}

#[test]
fn lines_are_measured_in_bytes_and_deleted() {
    with_store(|store, _| async move {
        let owned = run(&store).await;
        let line = |text: &str| NewLine { at: T, level: 2, source: "worker".into(), text: text.into() };
        let lines = ["ab", "cd\u{e9}", "a\0b", ""].map(line).to_vec();
        store.write(AppendLogs { run_no: owned.0.no, lines }).await.expect("added");
        let (bytes, last, more) = store.read(LogBytes { after: 0 }).await.expect("measured");
        assert_eq!((bytes, more), (2 + 4 + 5, false), "the character U+0000 is replaced");
        assert_eq!(store.write(DeleteOldestLines).await, Ok(bytes));
        assert_eq!(store.read(LogBytes { after: last - 4 }).await, Ok((0, last - 4, false)));
    });
}
