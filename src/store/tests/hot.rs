//! Statements of fires and runs: rejections, kept values, and used indexes.

use super::*;
use crate::domain::schedule::Retry;
use diesel::prelude::*;
use diesel::sql_types::Text;

fn moved(was: PlanState, fires: u64) -> PlanState {
    PlanState { decided_until: was.decided_until.plus_ms(1), last_fire: Some(was.decided_until), fires, ..was }
}

#[test]
fn a_plan_goes_on_only_from_where_it_is() {
    with_store(|store, _| async move {
        let made = job("planned");
        store.write(InsertJob { job: made.clone(), next_at: None }).await.expect("made");
        let go = |job_id, was, state| store.write(MovePlan { job_id, was, state, next_at: Some(Timestamp(7)) });
        let (none, some) = (PlanState::new(T), PlanState { asked_at: Some(T), ..moved(PlanState::new(T), 1) });
        for (was, state) in [(none, some), (some, none)] {
            let at = Timestamp(77);
            for stale in [
                PlanState { decided_until: at, ..was },
                PlanState { asked_at: Some(at), ..was },
                PlanState { asked_at: was.asked_at.xor(Some(T)), ..was },
                PlanState { rest_from: at, ..was },
                PlanState { last_fire: Some(at), ..was },
                PlanState { last_fire: was.last_fire.xor(Some(T)), ..was },
                PlanState { fires: 9, ..was },
                PlanState { failures: 9, ..was },
                PlanState { asked_from: Some(at), ..was },
                PlanState { fired_until: Some(at), ..was },
            ] {
                assert_eq!(go(made.id, stale, state).await, Err(StoreError::Conflict("plan".into())), "{stale:?}");
            }
            let stored = store.read(LoadJobs(vec![made.id])).await.expect("read");
            assert_eq!(stored[0].1.state, was, "a refusal changes nothing");
            go(made.id, was, state).await.expect("it is there");
            let stored = store.read(LoadJobs(vec![made.id])).await.expect("read");
            assert_eq!(stored[0].1, StoredPlan { state, next_at: Some(Timestamp(7)) });
        }
        assert_eq!(go(JobId::random(), none, some).await, Err(StoreError::NotFound));
    });
}

#[test]
fn an_instant_that_is_in_the_ledger_makes_no_second_run() {
    with_store(|store, _| async move {
        let made = job("fires");
        store.write(InsertJob { job: made.clone(), next_at: None }).await.expect("made");
        let fire = |was: PlanState, instants: &[i64]| {
            let row = |at: &i64| NewFire {
                planned_at: Timestamp(*at),
                planned_until: Timestamp(*at),
                instants: 1,
                kind: Kind::Plan,
                outcome: Outcome::Fired(Box::new(new_run(made.id))),
                rule: "due",
                reason: None,
            };
            let state = moved(was, was.fires + 1);
            let rows = instants.iter().map(row).collect();
            let (job_id, rewind, next_at) = (made.id, None, None);
            store.write(WriteFires { job_id, version: 1, rows, was, state, next_at, rewind, events: Vec::new(), now: T })
        };
        let was = PlanState::new(T);
        let first = fire(was, &[5, 6]).await.expect("written");
        assert_eq!(first.iter().map(|run| run.planned_at).collect::<Vec<_>>(), [Some(Timestamp(5)), Some(Timestamp(6))]);
        assert_eq!(fire(was, &[7]).await, Err(StoreError::Conflict("plan".into())), "the plan went on");
        assert_eq!(fire(moved(was, 1), &[6]).await, Ok(Vec::new()), "it has a run");
        let was = moved(moved(was, 1), 2);
        let mut second = fire(was, &[5, 6, 8]).await.expect("written");
        assert_eq!(second.iter().map(|run| run.planned_at).collect::<Vec<_>>(), [Some(Timestamp(8))]);
        assert!(second[0].no > first[1].no, "a number of its own");
        let alone = fire(moved(was, 3), &[9]).await.expect("written");
        assert_eq!(alone.iter().map(|run| run.planned_at).collect::<Vec<_>>(), [Some(Timestamp(9))]);
        assert!(alone[0].no > second[0].no, "a number of its own");
        second.extend(alone);
        for run in first.iter().chain(&second) {
            assert_eq!(store.read(GetRun(run.identity)).await, Ok(Some(run.clone())));
            let fire = FireOf { job_id: made.id, planned_at: run.planned_at.expect("planned") };
            assert_eq!(store.read(fire).await, Ok(Some(Some(run.identity))));
        }
        assert_eq!(store.read(FireOf { job_id: made.id, planned_at: Timestamp(7) }).await, Ok(None));
    });
}

#[test]
fn a_run_comes_back_as_it_was_made_and_as_it_ended() {
    with_store(|store, config| async move {
        let mut new = Run { follow: true, retry_of: Some(Identity::random()), reason: Some("why".into()), ..new_run(JobId::random()) };
        (new.download.thread_num, new.queue.block_size) = (4, 77);
        new.rules.retry = Some(Retry { limit: 3, ..Retry::default() });
        let insert = InsertRun { run: new.clone(), marks: None, version: 1, fire: None, key: Some("k".into()) };
        let made = store.write(insert.clone()).await.expect("made").run;
        let usual = store.write(by_hand(new_run(new.job_id))).await.expect("made").run;
        let store = reopened(store, &config).await;
        for run in [&made, &usual] {
            assert_eq!(store.read(GetRun(run.identity)).await, Ok(Some(run.clone())));
        }
        assert_eq!(store.write(insert).await.map(|inserted| (inserted.already, inserted.run.no)), Ok((true, made.no)));

        let counters = Counters { left: 0, success: 2, error: 1, total: 3 };
        let end = |run: &Run, epoch, follow| FinishRun {
            no: run.no,
            epoch,
            state: RunState::Success,
            reason: Some("well".into()),
            counters,
            block_times: 8,
            start_time: Some(Timestamp(5)),
            start_returned: true,
            result: Some("[1]".into()),
            follow,
            by: Some("me".into()),
            now: Timestamp(9),
        };
        assert_eq!(store.write(end(&made, 9, false)).await, Err(StoreError::Stale));
        assert_eq!(store.write(end(&Run { no: 99, ..made.clone() }, 1, false)).await, Err(StoreError::NotFound));
        assert_eq!(store.read(GetRun(made.identity)).await, Ok(Some(made.clone())), "a refusal changes nothing");
        for (run, asked, follow) in [(&made, false, true), (&usual, false, false)] {
            assert_eq!(store.write(end(run, 1, asked)).await, Ok(follow), "as it was made");
            let ended = Run {
                state: RunState::Success,
                reason: Some("well".into()),
                counters,
                block_times: 8,
                start_time: Some(Timestamp(5)),
                start_returned: true,
                result: Some("[1]".into()),
                finish_time: Some(Timestamp(9)),
                update_by: Some("me".into()),
                ..run.clone()
            };
            assert_eq!(store.read(GetRun(run.identity)).await, Ok(Some(ended)));
        }
    });
}

#[test]
fn the_first_attempt_is_the_one_that_counts() {
    with_store(|store, _| async move {
        let (old, epoch) = run(&store).await;
        let begin = |epoch, now| {
            let (no, now) = (old.no, Timestamp(now));
            store.write(BeginRun { no, epoch, state: RunState::Scheduled, worker: None, again: None, may_be_late: true, now })
        };
        assert_eq!(begin(epoch + 1, 4).await, Err(StoreError::Stale));
        for now in [5, 6] {
            begin(epoch, now).await.expect("begun");
        }
        let stored = store.read(GetRun(old.identity)).await.expect("read").expect("the run");
        assert_eq!(stored, Run { state: RunState::Scheduled, start_time: Some(Timestamp(5)), ..old });
    });
}

#[derive(QueryableByName)]
struct Step {
    #[diesel(sql_type = Text)]
    detail: String,
}

#[test]
fn runs_that_are_open_or_ended_badly_are_found_by_an_index() {
    with_file(|_store, config| async move {
        let mut conn = dialect::reader(&config.database).expect("a connection");
        let plan = |conn: &mut dialect::Conn, condition: &str| {
            let query = format!("EXPLAIN QUERY PLAN SELECT * FROM run WHERE {condition} ORDER BY no DESC LIMIT 10");
            let steps: Vec<Step> = diesel::sql_query(query).load(conn).expect("a plan");
            steps.into_iter().map(|step| step.detail).collect::<Vec<_>>().join("; ")
        };
        for (state, index) in [
            (RunState::Pending, "run_open"),
            (RunState::Scheduled, "run_open"),
            (RunState::Running, "run_open"),
            (RunState::Failed, "run_ended_badly"),
            (RunState::Stopped, "run_ended_badly"),
        ] {
            let plan = {
                let condition = run_lists::in_state(&conn, state);
                plan(&mut conn, &condition)
            };
            assert!(plan.contains(index), "{state:?}: {plan}");
        }
        let among = run_lists::among_open(&conn);
        let plan = plan(&mut conn, among);
        assert!(plan.contains("run_open"), "{plan}");
    });
}

#[test]
fn columns_hold_what_other_versions_wrote_and_a_damaged_one_is_named() {
    with_store(|store, config| async move {
        let new = Run { retry_of: Some(Identity::random()), finish_time: Some(Timestamp(7)), ..new_run(JobId::random()) };
        let made = store.write(by_hand(new.clone())).await.expect("inserted").run;
        let mut conn = dialect::writer(&config.database).expect("a connection");
        let all = "concat_ws('|', identity, job_id, state, download, queue, rules, kind, retry_of, creation_time, finish_time)";
        let stored: Step = diesel::sql_query(format!("SELECT {all} AS detail FROM run")).get_result(&mut conn).expect("a row");
        let (id, job, before) = (made.identity.0.simple(), made.job_id.0.simple(), new.retry_of.expect("set").0.simple());
        let texts = format!("{id}|{job}|pending|{{}}|{{\"redirects\":\"request\"}}|{{}}|block|{before}|1000|7");
        assert_eq!(stored.detail, texts);
        diesel::sql_query("UPDATE run SET state = 'asleep'").execute(&mut conn).expect("written");
        let error = store.read(GetRun(made.identity)).await.expect_err("no state");
        assert_eq!(error.to_string(), "not stored: the database contains an invalid value in column `state`: `asleep`");
    });
}
