//! Tests for each group of tables.

use super::*;
use crate::domain::ids::{Counter, GroupId, PeerId};

#[test]
fn jobs_are_made_changed_and_listed() {
    with_store(|store, config| async move {
        let insert = |job: &Job| store.write(InsertJob { job: job.clone(), next_at: None });
        let first = job("first 100%");
        insert(&first).await.expect("made");
        assert_eq!(insert(&Job { name: "other".into(), ..first.clone() }).await, Err(StoreError::Conflict("id".into())));
        assert_eq!(insert(&job("first 100%")).await, Err(StoreError::Conflict("name".into())));
        let second = Job { group: Some("g".into()), ..job("Second") };
        insert(&second).await.expect("made");

        let mut change = first.clone();
        change.properties.0.insert("ThreadNum".into(), "4".into());
        change.properties.0.remove("FullClassName");
        change.is_enabled = false;
        change.update_by = Some("you".into());
        change.schedule = Some(Schedule::of_cron("*/5 * * * *"));
        let was = PlanState::new(T);
        let state = PlanState { decided_until: Timestamp(2_000), fires: 3, ..was };
        let update = |job: &Job| {
            store.write(UpdateJob {
                job: job.clone(),
                action: Action::Updated,
                was,
                state,
                next_at: Some(Timestamp(9)),
                events: Vec::new(),
            })
        };
        let stale = PlanState { fires: 9, ..was };
        let late = store
            .write(UpdateJob { job: change.clone(), action: Action::Updated, was: stale, state, next_at: None, events: Vec::new() })
            .await;
        assert_eq!(late, Err(StoreError::Conflict("plan".into())));
        let changed = update(&change).await.expect("changed");
        assert_eq!(changed, Job { version: 2, ..change.clone() });
        assert_eq!(update(&change).await, Err(StoreError::Conflict("version".into())));
        assert_eq!(update(&Job { name: "Second".into(), ..changed.clone() }).await, Err(StoreError::Conflict("name".into())));
        assert_eq!(update(&job("nobody")).await, Err(StoreError::NotFound));

        let store = reopened(store, &config).await;
        assert_eq!(store.read(GetJob(changed.id)).await, Ok(Some(changed.clone())));
        assert_eq!(
            store.read(LoadJobs(vec![changed.id])).await,
            Ok(vec![(changed.clone(), StoredPlan { state, next_at: Some(Timestamp(9)) })])
        );
        assert_eq!(store.read(LoadAgenda).await, Ok(vec![(changed.id, Timestamp(9))]));
        let changes = store.read(ListChanges { job_id: Some(changed.id), before: None, limit: 10 }).await.expect("changes");
        let told: Vec<_> = changes.iter().map(|c| (c.version, c.action.as_str(), c.by.as_deref())).collect();
        assert_eq!(told, [(2, "updated", Some("you")), (1, "created", Some("me"))]);

        let all = || ListJobs { limit: 10, ..ListJobs::default() };
        let names = |jobs: Vec<(Job, StoredPlan)>| jobs.into_iter().map(|(job, _)| job.name).collect::<Vec<_>>();
        let list = |list: ListJobs| store.read(list);
        assert_eq!(list(ListJobs { name: Some("ECON".into()), ..all() }).await.map(names), Ok(vec!["Second".into()]));
        assert_eq!(list(ListJobs { name: Some("%".into()), ..all() }).await.map(names), Ok(vec!["first 100%".into()]), "no wildcard");
        assert_eq!(list(ListJobs { enabled: Some(true), ..all() }).await.map(names), Ok(vec!["Second".into()]));
        assert_eq!(list(ListJobs { group: Some("g".into()), ..all() }).await.map(names), Ok(vec!["Second".into()]));
        assert_eq!(list(ListJobs { kind: Some(JobKind::Callback), ..all() }).await.map(names), Ok(vec![]));
        assert_eq!(list(ListJobs { sort: JobSort::Name, ..all() }).await.map(names), Ok(vec!["Second".into(), "first 100%".into()]));
        let by_name_back = ListJobs { sort: JobSort::Name, descending: true, ..all() };
        let after = Some((SortKey::Text("first 100%".into()), changed.id));
        assert_eq!(list(ListJobs { after, ..by_name_back }).await.map(names), Ok(vec!["Second".into()]));
        assert_eq!(list(ListJobs { sort: JobSort::NextFire, ..all() }).await.map(names), Ok(vec!["first 100%".into()]));
        // Both were made in the same millisecond, so the id decides.
        let both = list(all()).await.expect("jobs");
        assert!(both.len() == 2 && both[0].0.id < both[1].0.id);
        let after = Some((SortKey::Number(T.0), both[0].0.id));
        assert_eq!(list(ListJobs { after, ..all() }).await, Ok(vec![both[1].clone()]));

        assert_eq!(store.write(PurgeJob(changed.id)).await, Err(StoreError::Conflict("not-deleted".into())));
        let deleted = Job { is_deleted: true, ..changed };
        let delete = UpdateJob { job: deleted, action: Action::Deleted, was: state, state, next_at: None, events: Vec::new() };
        let deleted = store.write(delete).await.expect("deleted");
        assert_eq!(store.read(all()).await.map(|jobs| jobs.len()), Ok(1));
        assert_eq!(store.read(ListJobs { deleted: true, ..all() }).await.map(names), Ok(vec!["first 100%".into()]));
        assert_eq!(store.read(GetJob(deleted.id)).await, Ok(Some(deleted.clone())));
        store.write(InsertJob { job: job("first 100%"), next_at: None }).await.expect("the name is free again");
        store.write(PurgeJob(deleted.id)).await.expect("purged");
        assert_eq!(store.read(GetJob(deleted.id)).await, Ok(None));
    });
}

#[test]
fn a_worker_that_never_watched_gives_its_id_back() {
    with_store(|store, _| async move {
        let worker = WorkerId::random();
        let peer = PeerId::Worker(worker);
        let claim = ClaimId { peer, owner: "a".into(), others: Vec::new(), now: T };
        assert_eq!(store.write(claim).await, Ok(true));
        store.write(ForgetWorker(worker)).await.expect("it had its id");
        assert_eq!(store.read(OwnerOf(peer)).await, Ok(None));
        assert_eq!(store.write(ForgetWorker(worker)).await, Err(StoreError::NotFound));
    });
}

#[test]
fn one_instant_makes_one_run() {
    with_store(|store, _| async move {
        let id = JobId::random();
        let insert = |at| store.write(InsertRun { fire: Some((Timestamp(at), Kind::Outside)), ..by_hand(new_run(id)) });
        let (one, other) = (insert(5), insert(5));
        let (one, other) = (one.await.expect("made"), other.await.expect("the same"));
        assert!(!one.already && other.already);
        assert_eq!(one.run, other.run);
        assert!(!insert(6).await.expect("made").already);

        let skip =
            |at| RecordSkip { job_id: id, version: 1, planned_at: Timestamp(at), rule: "job-disabled", reason: "disabled".into(), now: T };
        for at in [5, 7, 7] {
            store.write(skip(at)).await.expect("recorded, or there already");
        }
        assert_eq!(insert(7).await, Err(StoreError::Conflict("fire".into())));
        assert!(insert(5).await.expect("the same").already, "a skip takes no run away");
        let again = InsertRun { fire: Some((Timestamp(7), Kind::Backfill)), ..by_hand(new_run(id)) };
        assert!(!store.write(again).await.expect("made up for").already);
        let all = ListFires { job_id: id, from: None, to: None, verdict: Some("fired".to_owned()), ascending: true, limit: 10 };
        let kinds = store.read(all).await.map(|rows| rows.iter().map(|row| row.kind).collect::<Vec<_>>());
        assert_eq!(kinds, Ok(vec![Kind::Outside, Kind::Outside, Kind::Backfill]), "verify-history counts only the runs of the plan");
        let runs = ListRuns { job_id: Some(id), limit: 10, ..ListRuns::default() };
        assert_eq!(store.read(runs).await.map(|runs| runs.len()), Ok(3));
    });
}

#[test]
fn whoever_lost_a_run_writes_nothing() {
    with_store(|store, _| async move {
        let old = run(&store).await;
        assert_eq!(store.write(AdoptRun { identity: Identity::random() }).await, Err(StoreError::NotFound));
        let adopt = store.write(AdoptRun { identity: old.0.identity });
        let worker = Some(WorkerId::random());
        let (no, epoch, reason) = (old.0.no, old.1, None);
        // In the same transaction as the adoption, and in a later one.
        for _ in 0..2 {
            let state = SetRunState { no, epoch, state: RunState::Running, reason: None, worker };
            let late = [
                store.write(push(&old, 0..1)).await,
                store.write(result(&old, 0, "p")).await,
                store.write(ack(&old, &[0])).await,
                store.write(MarkRetry { no, epoch, seq: 0, attempt: 1, node: None, exception: None }).await,
                store.write(state).await,
                store.write(SetStartReturned { no, epoch }).await,
            ];
            assert!(late.iter().all(|outcome| *outcome == Err(StoreError::Stale)), "{late:?}");
        }
        let (_, epoch) = adopt.await.expect("adopted");
        assert_eq!(epoch, old.1 + 1);
        let state = SetRunState { no, epoch, state: RunState::Running, reason, worker };
        store.write(state).await.expect("its own");
        store.write(SetStartReturned { no, epoch }).await.expect("its own");
        let stored = store.read(GetRun(old.0.identity)).await.expect("read").expect("the run");
        assert_eq!(stored, Run { state: RunState::Running, start_returned: true, worker_id: worker, ..old.0 });
        let nobody = push(&(Run { no: 99, ..stored }, 1), 0..1);
        assert_eq!(store.write(nobody).await, Err(StoreError::NotFound));
    });
}

#[test]
fn runs_are_listed_the_newest_first() {
    with_store(|store, _| async move {
        let job = JobId::random();
        let mut made = Vec::new();
        for state in [RunState::Pending, RunState::Failed, RunState::Pending] {
            let new = Run { state, reason: Some("why".into()), ..new_run(job) };
            made.push(store.write(by_hand(new)).await.expect("made").run);
        }
        made.reverse();
        let all = || ListRuns { limit: 2, ..ListRuns::default() };
        assert_eq!(store.read(all()).await, Ok(made[..2].to_vec()));
        assert_eq!(store.read(ListRuns { after_no: Some(made[1].no), ..all() }).await, Ok(made[2..].to_vec()));
        let pending = ListRuns { state: Some(RunState::Pending), job_id: Some(job), ..all() };
        assert_eq!(store.read(pending).await, Ok(vec![made[0].clone(), made[2].clone()]));
        let oldest = ListRuns { ascending: true, after_no: Some(made[2].no), ..all() };
        assert_eq!(store.read(oldest).await, Ok(vec![made[1].clone(), made[0].clone()]));
        for none in [
            ListRuns { kind: Some(JobKind::Callback), ..all() },
            ListRuns { group: Some("g".into()), ..all() },
            ListRuns { from: Some(Timestamp(T.0 + 1)), ..all() },
            ListRuns { to: Some(Timestamp(T.0 - 1)), ..all() },
        ] {
            assert_eq!(store.read(none).await, Ok(vec![]));
        }
        assert_eq!(store.read(OpenRuns).await, Ok(vec![made[2].identity, made[0].identity]));
    });
}

#[test]
fn a_frontier_comes_back_as_it_was() {
    with_store(|store, config| async move {
        let (other, owned) = (run(&store).await, run(&store).await);
        let (no, epoch) = (owned.0.no, owned.1);
        store.write(push(&other, 0..3)).await.expect("pushed");
        store.write(push(&owned, 0..5)).await.expect("pushed");
        let node = NodeId::random();
        let retry = |seq, attempt| MarkRetry { no, epoch, seq, attempt, node: Some(node), exception: Some("lost".into()) };
        store.write(retry(1, 1)).await.expect("retry");
        store.write(retry(1, 2)).await.expect("retry");
        store.write(StoreResult { node: Some(node), ..result(&owned, 2, "pack") }).await.expect("stored");
        store.write(StoreResult { failed: true, exception: Some("broken".into()), ..result(&owned, 3, "pack") }).await.expect("stored");
        assert_eq!(store.write(retry(3, 1)).await, Err(StoreError::Conflict("state".into())));
        assert_eq!(store.write(retry(77, 1)).await, Err(StoreError::NotFound));
        // Acknowledges a block and pushes a new one; a repetition changes nothing, nor does a block without results.
        store.write(Ack { push: vec![NewBlock { attempts: 2, ..block(5) }], ..ack(&owned, &[2, 0]) }).await.expect("acknowledged");
        store.write(ack(&owned, &[2])).await.expect("acknowledged");

        let store = reopened(store, &config).await;
        let (blocks, seen) = store.read(LoadFrontier { no }).await.expect("a frontier");
        let stored: Vec<_> = blocks.iter().map(|b| (b.seq, b.phase, b.attempts, b.requests, b.success, b.error)).collect();
        let expected = [
            (0, Phase::Ready, 0, 3, 0, 0),
            (1, Phase::Retry, 2, 3, 0, 0),
            (2, Phase::Done, 1, 3, 2, 1),
            (3, Phase::Answered, 1, 3, 2, 1),
            (4, Phase::Ready, 0, 3, 0, 0),
            (5, Phase::Ready, 2, 3, 0, 0),
        ];
        assert_eq!(stored, expected);
        let expected: Vec<Fingerprint> = (0..6).flat_map(|seq| prints(seq).to_vec()).collect();
        assert_eq!(seen.len(), expected.len());
        assert!(expected.into_iter().all(|print| seen.contains(print)));

        let payloads = store.read(ReadPayloads { no, seqs: vec![5, 77, 1] }).await.expect("payloads");
        let read: Vec<_> = payloads.iter().map(|p| (p.seq, p.raw_length, &p.payload[..], p.prints.clone())).collect();
        assert_eq!(read, [(5, 99, &b"payload 5"[..], prints(5)), (1, 99, b"payload 1", prints(1))]);
        let results = store.read(ReadResults { no, seqs: vec![0, 2, 3] }).await.expect("results").results;
        assert_eq!(results.iter().map(|r| r.seq).collect::<Vec<_>>(), [3]);

        let list = ListBlocks { no, from: None, state: None, limit: 100 };
        let rows = store.read(list).await.expect("blocks");
        let states: Vec<_> = rows.iter().map(|row| (row.state.name(), row.acked, row.node)).collect();
        let expected = [
            ("ready", false, None),
            ("retry", false, Some(node)),
            ("success", true, Some(node)),
            ("failed", false, None),
            ("ready", false, None),
            ("ready", false, None),
        ];
        assert_eq!(states, expected);
        assert_eq!(rows.iter().map(|row| row.exception.as_deref()).collect::<Vec<_>>()[3], Some("broken"));
        let ready = ListBlocks { from: Some(1), state: Some(BlockState::Ready), limit: 1, ..list };
        assert_eq!(store.read(ready).await, Ok(vec![rows[4].clone()]));
        let mut counts = store.read(NodeCounts { no }).await.expect("counts");
        counts.sort();
        assert_eq!(counts, [(None, 2, 1, T), (Some(node), 2, 1, T)]);
    });
}

fn facts() -> NodeFacts {
    NodeFacts {
        node_id: NodeId::random(),
        name: None,
        node_type: "Console".into(),
        ip_address: "10.0.0.1".into(),
        processor_count: u32::MAX,
        group: "vps".into(),
        operating_system: "linux".into(),
        memory: 1 << 40,
        max_process_count: 5,
        max_sites: None,
        max_programs: None,
    }
}

#[test]
fn a_node_changes_what_it_says_and_not_whether_it_is_enabled() {
    with_store(|store, _| async move {
        let facts = facts();
        let node = facts.node_id;
        assert_eq!(
            store.write(SetNodeWork { node, work: NodeWork::Disabled, reason: None, by: None, now: T }).await,
            Err(StoreError::NotFound)
        );
        let load = NodeLoad { process_count: 1, cpu: 99, free_memory: 7 };
        assert_eq!(store.write(AddNodeStatus { node, load, now: T }).await, Err(StoreError::NotFound));
        let made = store.write(UpsertNode { facts: facts.clone(), by: None, now: T }).await.expect("made");
        assert!(made.is_enabled && made.facts == facts);
        assert!(
            !store
                .write(SetNodeWork { node, work: NodeWork::Disabled, reason: None, by: None, now: T })
                .await
                .expect("disabled")
                .is_enabled
        );
        let moved = NodeFacts { ip_address: "10.0.0.2".into(), ..facts };
        let again = store.write(UpsertNode { facts: moved.clone(), by: None, now: Timestamp(2_000) }).await.expect("changed");
        assert!(!again.is_enabled && again.facts == moved && again.creation_time == T);

        for n in 0..1_500 {
            let load = NodeLoad { process_count: n, ..load };
            drop(store.write(AddNodeStatus { node, load, now: Timestamp(3_000 + i64::from(n)) }));
        }
        store.write(Barrier).await.expect("all before it, and those that can wait join its transaction");
        let last = store.read(NodeStatus { node, from: None, to: None, limit: 2 }).await.expect("loads");
        assert_eq!(last.iter().map(|(load, time)| (load.process_count, time.0)).collect::<Vec<_>>(), [(1_499, 4_499), (1_498, 4_498)]);
        assert_eq!(store.read(GetNode(node)).await.map(|n| n.map(|n| n.last_online_time)), Ok(Some(Timestamp(4_499))));
        assert_eq!(store.read(ListNodes).await.map(|nodes| nodes.len()), Ok(1));
        let prune = PruneNodeStatus { before: Timestamp(3_000 + 1_200) };
        for expected in [200, 200, 200, 200, 200, 200, 0] {
            assert_eq!(store.write(prune).await, Ok(expected));
        }
        assert_eq!(store.read(NodeStatus { node, from: None, to: None, limit: 1_000 }).await.map(|loads| loads.len()), Ok(300));
    });
}

#[test]
fn a_load_counts_for_as_long_as_it_was() {
    with_store(|store, _| async move {
        let node = store.write(UpsertNode { facts: facts(), by: None, now: T }).await.expect("made").facts.node_id;
        let begin = Timestamp(1_200_000);
        // The processors are busy for two of 120 seconds, of which many reports tell. Then the node is away.
        let busy = (0..20).map(|i| (60_000 + i * 100, 90));
        for (ms, cpu) in
            [(0, 10), (30_000, 10)].into_iter().chain(busy).chain([(62_000, 10), (90_000, 10), (119_999, 10), (700_000, 50), (700_000, 70)])
        {
            let load = NodeLoad { process_count: cpu, cpu, free_memory: u64::from(cpu) * 1_000_000 };
            drop(store.write(AddNodeStatus { node, load, now: begin.plus_ms(ms) }));
        }
        store.write(Barrier).await.expect("they join its transaction");
        let steps = store.read(NodeLoadSteps { node, from: begin, step: 120_000 }).await.expect("steps");
        let steps: Vec<_> = steps.iter().map(|(load, at)| (at.since_ms(begin), load.cpu, load.process_count)).collect();
        assert_eq!(steps, [(0, 11, 90), (600_000, 70, 70)], "10 % but for two seconds");
    });
}

#[test]
fn things_are_found_by_numbers_and_a_store_counts_on() {
    with_store(|store, config| async move {
        // As made by an earlier broker with a clock that was ahead.
        let last = Identity(Counter::new().next_id(Timestamp(4_100_000_000_000)));
        for identity in [Identity::random(), last] {
            store.write(by_hand(Run { identity, ..new_run(JobId::random()) })).await.expect("inserted");
        }
        let of = |kind| OfNumber { kind, number: last.number() };
        assert_eq!(store.read(of(Numbered::Run)).await, Ok(vec![last.0]));
        for kind in [Numbered::Job, Numbered::Group, Numbered::Node, Numbered::Worker, Numbered::Channel] {
            assert_eq!(store.read(of(kind)).await, Ok(Vec::new()), "{kind:?}");
        }
        let _again = reopened(store, &config).await;
        assert!(Identity::at(Timestamp(1_700_000_000_000)).number() > last.number());
    });
}

#[test]
fn a_store_counts_on_after_all_that_it_made() {
    with_store(|mut store, config| async move {
        const HOUR: i64 = 3_600_000;
        // Later than the ids of any other test.
        let at = |hours: i64| Counter::new().next_id(Timestamp(4_200_000_000_000 + hours * HOUR));
        let next = || Identity::at(T).number();
        let run = |id| Run { identity: Identity(id), ..new_run(JobId::random()) };
        // Runs are not stored in the order of their ids.
        for id in [at(2), Identity::random().0] {
            store.write(by_hand(run(id))).await.expect("a run");
        }
        // Not made by a broker: another version, and a future time.
        let chosen = [uuid::Uuid::from_u64_pair(at(4).as_u64_pair().0 ^ 0x3000, 7), at(48), uuid::Uuid::max()];
        for (nth, id) in chosen.into_iter().enumerate() {
            let job = Job { id: JobId(id), ..job(&format!("chosen {nth}")) };
            store.write(InsertJob { job, next_at: None }).await.expect("a job");
        }
        // The run that was stored last is not the newest.
        store.write(by_hand(run(at(1)))).await.expect("a run");
        store = reopened(store, &config).await;
        let after = next();
        assert!(after > Identity(at(2)).number() && after < Identity(at(4)).number(), "{after}");
        let job = Job { id: JobId(at(6)), ..job("made") };
        store.write(InsertJob { job, next_at: None }).await.expect("a job");
        store = reopened(store, &config).await;
        let after = next();
        assert!(after > Identity(at(6)).number() && after < Identity(at(48)).number(), "{after}");
        let id = GroupId(at(8));
        let (create_by, update_by, description) = (None, None, None);
        let group = Group { id, name: "made".into(), description, create_by, update_by, creation_time: T, update_time: T };
        store.write(InsertGroup(group)).await.expect("a group");
        let _again = reopened(store, &config).await;
        assert!(next() > Identity(at(8)).number());
    });
}

#[test]
fn of_very_many_that_share_a_number_some_are_found() {
    with_store(|store, _| async move {
        let mut ids = Vec::new();
        for version in [0, 4, 7] {
            for nth in 0..4 {
                ids.push(JobId(uuid::Uuid::from_u64_pair(77 << 16 | version << 12 | 5, nth)));
            }
        }
        for id in &ids {
            let job = Job { id: *id, ..job(&id.to_string()) };
            store.write(InsertJob { job, next_at: None }).await.expect("a job");
        }
        let found = store.read(OfNumber { kind: Numbered::Job, number: ids[0].number() }).await.expect("found");
        assert_eq!(found.len(), 6, "two of each version: {found:?}");
        assert!(found.iter().all(|found| ids.contains(&JobId(*found))));
    });
}

#[test]
fn watches_begin_and_end() {
    with_store(|store, _| async move {
        let (worker, other) = (WorkerId::random(), WorkerId::random());
        let watch = |worker, names: &[&str], now| {
            let class_names = names.iter().map(|name| (*name).to_owned()).collect();
            store.write(WatchClasses { worker, class_names, now: Timestamp(now) })
        };
        watch(worker, &["a", "b", "a"], 1).await.expect("watches");
        watch(other, &["a"], 2).await.expect("watches");
        watch(worker, &["b", "c"], 3).await.expect("watches others");
        let rows = || async {
            let rows = store.read(ListWorkers { worker: None, limit: 10 }).await.expect("watches");
            let short = |row: WorkerRow| {
                (row.full_class_name, row.connection_id == worker, row.connect_time.0, row.disconnect_time.map(|time| time.0))
            };
            rows.into_iter().map(short).collect::<Vec<_>>()
        };
        let row = |name: &str, mine, from, to| (name.to_owned(), mine, from, to);
        let (c, a2) = (row("c", true, 3, None), row("a", false, 2, None));
        assert_eq!(rows().await, [c, a2.clone(), row("b", true, 1, None), row("a", true, 1, Some(3))]);
        store.write(WorkerGone { worker, now: Timestamp(4) }).await.expect("gone");
        let gone = [row("c", true, 3, Some(4)), a2, row("b", true, 1, Some(4)), row("a", true, 1, Some(3))];
        assert_eq!(rows().await, gone);
        store.write(CloseWorkers { now: Timestamp(5) }).await.expect("closed");
        assert_eq!(rows().await[1], row("a", false, 2, Some(5)));
    });
}

/// A store of a version that marked queued runs by the last of all times.
#[test]
fn queued_runs_of_an_older_version_are_queued() {
    with_file(|store, config| async move {
        let [queued, waiting] =
            [(true, None), (false, Some(T.plus_ms(5)))].map(|(queued, not_before)| Run { queued, not_before, ..new_run(JobId::random()) });
        for new in [&queued, &waiting] {
            store.write(by_hand(new.clone())).await.expect("inserted");
        }
        store.close().await;
        let mut conn = dialect::writer(&config.database).expect("a connection");
        let undo = include_str!("../../../migrations/sqlite/2026-11-23-140000_run_queued/down.sql");
        let before = format!("{undo} DELETE FROM __diesel_schema_migrations WHERE version = '20261123140000'");
        diesel::connection::SimpleConnection::batch_execute(&mut conn, &before).expect("written");
        drop(conn);
        let store = Store::open(&config).expect("a store");
        for new in [queued, waiting] {
            let run = store.read(GetRun(new.identity)).await.expect("read").expect("a run");
            assert_eq!((run.queued, run.not_before), (new.queued, new.not_before));
        }
        assert_eq!(store.read(OpenRuns).await.expect("read").len(), 1, "a queued run has no actor");
    });
}
