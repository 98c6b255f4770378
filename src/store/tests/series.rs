//! The rings of the time series, and what needs attention.

use super::*;
use crate::domain::series::{Gauge, Point, RINGS, bucket};

const DAY: i64 = 86_400_000;
const MB: u64 = 1 << 20;

fn point(name: &str, sum: u64) -> Point {
    Point { sums: [(name.to_owned(), sum)].into(), ..Point::default() }
}

async fn all(store: &Store, ring: usize) -> Vec<(Timestamp, Point)> {
    let read = ReadSeries { ring: RINGS[ring], from: Timestamp(0), to: Timestamp(i64::MAX) };
    store.read(read).await.expect("points").into_iter().collect()
}

#[test]
fn a_minute_is_added_to_all_rings_and_survives_a_restart() {
    with_store(|store, config| async move {
        let base = Timestamp(100 * DAY);
        for (minute, sum) in [(0, 1), (0, 2), (1, 4), (15, 8), (400, 16)] {
            let at = base.plus_ms(minute * 60_000 + 30_000);
            store.write(AddToSeries { at, point: point("bytes", sum) }).await.expect("added");
        }
        let store = reopened(store, &config).await;
        let sums = async |ring: usize| {
            let of = |(at, point): (Timestamp, Point)| (at.since_ms(base) / 60_000, point.sums["bytes"]);
            all(&store, ring).await.into_iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(sums(0).await, [(0, 3), (1, 4), (15, 8), (400, 16)]);
        assert_eq!(sums(1).await, [(0, 7), (15, 8), (390, 16)]);
        assert_eq!(sums(2).await, [(0, 15), (360, 16)]);
        // The step in which the period begins belongs to it.
        let read = ReadSeries { ring: RINGS[1], from: base.plus_ms(60_000), to: base.plus_ms(15 * 60_000) };
        assert_eq!(store.read(read).await.expect("points").len(), 2);
    });
}

/// The largest point that the recorder can make: every kind of error, every bucket, numbers of sixteen digits.
fn largest_point() -> Point {
    let mut point = Point::default();
    for kind in 0..32 {
        point.sums.insert(format!("errors.a-long-kind-{kind}"), 1 << 53);
    }
    for duration in ["lateness", "delay", "answer"] {
        point.sums.extend((0..14).map(|i| (bucket(duration, 60_000 - i), 1 << 53)));
    }
    for gauge in 0..10 {
        point.gauges.insert(format!("requests.waiting{gauge}"), Gauge::of(1 << 53));
    }
    point
}

#[test]
fn a_year_fits_in_50_mb() {
    with_file(|store, config| async move {
        // Each ring gets more rows than it keeps.
        let mut at = Timestamp(1_000 * DAY);
        for ring in [2, 1, 0] {
            for _ in 0..RINGS[ring].rows + 20 {
                at = at.plus_ms(RINGS[ring].step_ms);
                store.write(AddToSeries { at, point: largest_point() }).await.expect("added");
            }
        }
        let mut rows = 0;
        for (i, ring) in RINGS.into_iter().enumerate() {
            let kept = all(&store, i).await;
            assert_eq!(kept.len() as i64, ring.rows);
            assert_eq!(kept.last().map(|(start, _)| *start), Some(ring.start_of(at)), "the newest row is kept");
            rows += kept.len() as u64;
        }
        let year: i64 = RINGS[2].rows * RINGS[2].step_ms;
        assert!(year >= 365 * DAY);
        store.close().await;
        let bytes = std::fs::metadata(path_of(&config)).expect("a file").len();
        println!("{rows} rows, {} bytes of the largest point, {bytes} bytes of the file", largest_point().to_text().len());
        assert!(bytes < 50 * MB, "{bytes} bytes");
    });
}

#[test]
fn a_clock_that_was_wrong_for_a_while_costs_one_row() {
    with_store(|store, _| async move {
        for at in [Timestamp(100 * DAY), Timestamp(9_999 * DAY), Timestamp(100 * DAY + 60_000)] {
            store.write(AddToSeries { at, point: point("bytes", 1) }).await.expect("added");
        }
        assert_eq!(all(&store, 0).await.len(), 3);
    });
}

fn end(run: &Run, epoch: i64, state: RunState, now: Timestamp) -> FinishRun {
    FinishRun {
        no: run.no,
        epoch,
        state,
        reason: Some("why".into()),
        counters: Counters::default(),
        block_times: 0,
        start_time: None,
        start_returned: true,
        result: None,
        follow: false,
        by: None,
        now,
    }
}

#[test]
fn a_job_is_shown_until_it_succeeds_or_is_deleted() {
    with_store(|store, _| async move {
        let (bad, mended, gone) = (job("bad"), job("mended"), job("gone"));
        for job in [&bad, &mended, &gone] {
            store.write(InsertJob { job: job.clone(), next_at: None }).await.expect("made");
        }
        let over = async |job: &Job, state, at: i64| {
            let new = Run { job_name: job.name.clone(), ..new_run(job.id) };
            let made = store.write(by_hand(new)).await.expect("inserted").run;
            let (run, epoch) = store.write(AdoptRun { identity: made.identity }).await.expect("adopted");
            store.write(end(&run, epoch, state, Timestamp(at))).await.expect("ended");
            run.identity
        };
        over(&bad, RunState::Success, 3_000).await;
        over(&bad, RunState::Failed, 4_000).await;
        let last = over(&bad, RunState::Failed, 5_000).await;
        over(&mended, RunState::Failed, 6_000).await;
        over(&mended, RunState::Success, 7_000).await;
        over(&gone, RunState::Failed, 8_000).await;
        let deleted = UpdateJob {
            job: Job { is_deleted: true, ..gone },
            action: Action::Deleted,
            was: PlanState::new(T),
            state: PlanState::new(T),
            next_at: None,
            events: Vec::new(),
        };
        store.write(deleted).await.expect("deleted");
        let failed = async |since: i64| store.read(FailedJobs { since: Timestamp(since), limit: 10 }).await.expect("a list");
        let expected =
            JobTrouble { job_id: bad.id, job_name: "bad".into(), identity: Some(last), reason: Some("why".into()), at: Timestamp(5_000) };
        assert_eq!(failed(4_500).await, [expected]);
        assert_eq!(failed(5_001).await, []);
        // Runs that have not begun.
        let overdue = async |before: i64| store.read(OverdueRuns { before: Timestamp(before), limit: 10 }).await.expect("a list");
        assert_eq!(overdue(9_000).await, []);
        let waits = store.write(by_hand(new_run(bad.id))).await.expect("inserted").run;
        store.write(by_hand(new_run(bad.id))).await.expect("inserted");
        store.write(by_hand(Run { queued: true, ..new_run(bad.id) })).await.expect("inserted");
        let found: Vec<_> = overdue(T.0 + 1).await.into_iter().map(|run| (run.identity, run.at)).collect();
        assert_eq!(found, [(Some(waits.identity), T)]);
        assert_eq!(overdue(T.0).await, []);
        // A run with a time, whether it was decided ahead, left the queue or is to be tried again, counts from then on.
        let later = store.write(by_hand(Run { not_before: Some(Timestamp(T.0 + 500)), ..new_run(gone.id) })).await.expect("inserted").run;
        assert_eq!(overdue(T.0 + 500).await.len(), 1);
        let found: Vec<_> = overdue(T.0 + 501).await.into_iter().map(|run| (run.identity, run.at)).collect();
        assert_eq!(found, [(Some(waits.identity), T), (Some(later.identity), Timestamp(T.0 + 500))]);
    });
}

/// A job is silent from the report until its next success.
#[test]
fn silent_jobs_and_events_are_listed_by_job() {
    with_store(|store, _| async move {
        let policies = serde_json::from_value(serde_json::json!({ "silentAfter": 60_000 })).expect("policies");
        let silent = Job { policies: Some(policies), ..job("silent") };
        store.write(InsertJob { job: silent.clone(), next_at: None }).await.expect("made");
        assert_eq!(store.read(SilentNow { limit: 9 }).await, Ok(Vec::new()));
        let now = Timestamp(900_000);
        let found = store.read(SilentJobs { now, limit: 9 }).await.expect("a list");
        assert_eq!(found.len(), 1);
        store.write(NoteSilent { jobs: found, now }).await.expect("noted");
        let list = store.read(SilentNow { limit: 9 }).await.expect("a list");
        assert_eq!(list.iter().map(|job| (job.job_name.as_str(), job.at)).collect::<Vec<_>>(), [("silent", now)]);
        let events = async |event, since: i64| store.read(EventsOf { event, since: Timestamp(since), limit: 9 }).await.expect("a list");
        assert_eq!(events("silent", now.0).await.iter().map(|job| job.job_name.as_str()).collect::<Vec<_>>(), ["silent"]);
        assert_eq!((events("silent", now.0 + 1).await, events("late", 0).await), (Vec::new(), Vec::new()));
        let deleted = UpdateJob {
            job: Job { is_deleted: true, ..silent },
            action: Action::Deleted,
            was: PlanState::new(T),
            state: PlanState::new(T),
            next_at: None,
            events: Vec::new(),
        };
        store.write(deleted).await.expect("deleted");
        assert_eq!(events("silent", now.0).await, Vec::new());
    });
}
