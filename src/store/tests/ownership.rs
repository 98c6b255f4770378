//! Brokers that do not lead and write the runs that they own, beside the leader.

use super::leader::take_over;
use super::*;
use crate::store::op::Tx;
use crate::store::schema::{meta, run_owner};
use diesel::prelude::*;
use std::sync::atomic::{AtomicBool, Ordering};

/// As [`with_store`], for what only a server has.
fn at_server<F: Future<Output = ()>>(test: impl FnOnce(Store, StoreConfig) -> F) {
    if server().is_some() {
        with_store(test);
    }
}

/// The store of a broker that owns runs.
async fn owner_of(leader: &Store, config: &StoreConfig, broker: BrokerId) -> Store {
    let ownership = leader.write(GrantOwnership { broker }).await.expect("granted");
    Store::own(config, ownership).expect("a store")
}

/// A new run that this broker executes.
async fn made(leader: &Store, owner: Option<BrokerId>) -> Identity {
    let run = Run { owner, kind: JobKind::Callback, ..new_run(JobId::random()) };
    let made = leader.write(by_hand(run)).await.expect("inserted").run;
    assert_eq!(made.owner, owner);
    made.identity
}

fn begin((run, epoch): &(Run, i64)) -> BeginRun {
    BeginRun { no: run.no, epoch: *epoch, state: RunState::Running, worker: None, again: None, may_be_late: false, now: T }
}

fn end((run, epoch): &(Run, i64)) -> WithNext<FinishRun> {
    let end = FinishRun {
        no: run.no,
        epoch: *epoch,
        state: RunState::Failed,
        reason: None,
        counters: Counters::default(),
        block_times: 0,
        start_time: Some(T),
        start_returned: false,
        result: None,
        follow: true,
        by: None,
        now: T,
    };
    WithNext { end, no: run.no, next: None, last: None }
}

fn line(run: &Run) -> AppendLogs {
    AppendLogs { run_no: run.no, lines: vec![NewLine { at: T, level: 2, source: "broker".to_owned(), text: "a line".to_owned() }] }
}

async fn lines(store: &Store, run: &Run) -> usize {
    let all = ListLogs { run_no: run.no, after: 0, level: 0, text: None, since: None, until: None, limit: 100 };
    store.read(all).await.expect("read").len()
}

async fn stored(store: &Store, identity: Identity) -> Run {
    store.read(GetRun(identity)).await.expect("read").expect("a run")
}

/// All that an actor of a run writes.
async fn execute(store: &Store, identity: Identity) -> Result<(), StoreError> {
    let adopted = store.write(AdoptRun { identity }).await?;
    let (no, epoch) = (adopted.0.no, adopted.1);
    store.write(begin(&adopted)).await?;
    let retry = RetryRun { no, epoch, attempt: 2, not_before: T, reason: "why".to_owned(), began: Some(T), now: T };
    store.write(retry).await?;
    let again = store.write(AdoptRuns(vec![identity])).await?.pop().expect("it is there");
    store.write(BeginRun { again: Some((2, T)), ..begin(&again) }).await?;
    store.write(line(&again.0)).await?;
    store.write(Barrier).await?;
    assert_eq!(store.write(end(&again)).await, Ok(true));
    Ok(())
}

#[test]
fn an_owner_writes_its_runs_while_the_leader_writes_others() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let mut runs = Vec::new();
        for place in 0..40 {
            runs.push(made(&leader, (place % 2 == 0).then_some(broker)).await);
        }
        let listed = leader.read(ListOwnerships).await.expect("read");
        assert_eq!(listed, [Ownership { broker, term: 1 }]);
        let mut counts = leader.read(CountRunsByOwner).await.expect("read");
        counts.sort_unstable();
        assert_eq!(counts, [(None, 20), (Some(broker), 20)]);
        let all = runs.iter().enumerate().map(|(place, run)| execute(if place % 2 == 0 { &owner } else { &leader }, *run));
        for outcome in futures_util::future::join_all(all).await {
            assert_eq!(outcome, Ok(()));
        }
        for (place, identity) in runs.into_iter().enumerate() {
            let run = stored(&leader, identity).await;
            assert_eq!((run.state, run.owner), (RunState::Failed, (place % 2 == 0).then_some(broker)));
            assert_eq!(lines(&owner, &run).await, 2, "its own, and that of the retry");
        }
        assert_eq!(leader.read(ListOwnerships).await, Ok(vec![Ownership { broker, term: 1 }]));
        owner.close().await;
        assert!(Store::open(&config).is_err(), "the lock of the leader is still held");
        leader.write(Barrier).await.expect("it leads");
    });
}

#[test]
fn a_broker_adopts_only_the_runs_that_it_executes() {
    at_server(|leader, config| async move {
        let (broker, other) = (BrokerId::random(), BrokerId::random());
        let (owner, _other) = (owner_of(&leader, &config, broker).await, owner_of(&leader, &config, other).await);
        let (own, others, leaders) = (made(&leader, Some(broker)).await, made(&leader, Some(other)).await, made(&leader, None).await);
        let all = AdoptRuns(vec![own, others, leaders]);
        let identities = |adopted: Vec<(Run, i64)>| adopted.into_iter().map(|(run, _)| run.identity).collect::<Vec<_>>();
        assert_eq!(owner.write(all.clone()).await.map(identities), Ok(vec![own]));
        assert_eq!(leader.write(all).await.map(identities), Ok(vec![leaders]));
        for (store, identity) in [(&owner, others), (&owner, leaders), (&leader, own), (&leader, others)] {
            assert_eq!(store.write(AdoptRun { identity }).await, Err(StoreError::NotFound));
        }
    });
}

#[test]
fn the_next_leader_starts_only_the_runs_that_no_other_broker_has() {
    at_server(|first, config| async move {
        let (broker, other) = (BrokerId::random(), BrokerId::random());
        let (owner, _other) = (owner_of(&first, &config, broker).await, owner_of(&first, &config, other).await);
        let mut runs = Vec::new();
        for owner in [Some(broker), None, Some(broker), Some(other), Some(broker)] {
            runs.push(made(&first, owner).await);
        }
        execute(&owner, runs[2]).await.expect("executed");
        let leader = Store::lead(&config, take_over(&config)).expect("it leads");
        assert_eq!(leader.read(OpenRuns).await, Ok(vec![runs[1]]));
        assert_eq!(leader.read(OwnedRuns(broker)).await, Ok(vec![runs[0], runs[4]]), "the oldest first, and none that is over");
        execute(&owner, runs[0]).await.expect("it owns the run, whoever leads");
        assert_eq!(first.write(Barrier).await, Err(StoreError::NotLeading));
    });
}

#[test]
fn runs_that_were_taken_away_belong_to_the_leader() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let runs = [made(&leader, Some(broker)).await, made(&leader, Some(broker)).await, made(&leader, Some(broker)).await];
        execute(&owner, runs[0]).await.expect("executed");
        let adopted = owner.write(AdoptRun { identity: runs[2] }).await.expect("adopted");
        assert_eq!(leader.write(RevokeOwnership { broker }).await, Ok(vec![runs[1], runs[2]]));
        assert_eq!(owner.write(begin(&adopted)).await, Err(StoreError::NotLeading));
        assert_eq!(owner.deposed().await, crate::domain::leader::End::TakenOver);
        assert_eq!(owner.write(Barrier).await, Err(StoreError::NotLeading), "whatever it is");
        assert_eq!(leader.read(ListOwnerships).await, Ok(vec![]));
        assert_eq!(stored(&leader, runs[0]).await.owner, Some(broker), "it was executed there");
        assert_eq!(stored(&leader, runs[2]).await.owner, None);
        assert_eq!(leader.write(begin(&adopted)).await, Err(StoreError::Stale), "also before it is adopted");
        let mut open = leader.write(AdoptRuns(runs.to_vec())).await.expect("adopted");
        open.sort_by_key(|(run, _)| run.no);
        assert_eq!(open.iter().map(|(run, _)| run.identity).collect::<Vec<_>>(), runs[1..]);
        assert!(open[1].1 > adopted.1);
        assert_eq!(leader.write(end(&open[1])).await, Ok(true));
        assert_eq!(leader.write(RevokeOwnership { broker }).await, Ok(vec![]), "there is nothing left");
        assert_eq!(leader.write(RevokeOwnership { broker: BrokerId::random() }).await, Ok(vec![]));
        let late = leader.write(by_hand(Run { owner: Some(broker), ..new_run(JobId::random()) })).await.expect("inserted").run;
        assert_eq!((late.owner, stored(&leader, late.identity).await), (None, late), "nobody else would execute it");
        // It may own runs again.
        let again = owner_of(&leader, &config, broker).await;
        let next = made(&leader, Some(broker)).await;
        execute(&again, next).await.expect("executed");
    });
}

#[test]
fn a_later_grant_ends_an_earlier_one() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let grant = || async { leader.write(GrantOwnership { broker }).await.expect("granted") };
        let (first, first_right) = (owner_of(&leader, &config, broker).await, 1);
        first.write(Barrier).await.expect("it owns runs");
        let right = grant().await;
        assert_eq!(right, Ownership { broker, term: first_right + 1 });
        let second = Store::own(&config, right).expect("a store");
        let identity = made(&leader, Some(broker)).await;
        assert_eq!(first.write(AdoptRun { identity }).await, Err(StoreError::NotLeading));
        assert_eq!(first.deposed().await, crate::domain::leader::End::TakenOver);
        execute(&second, identity).await.expect("executed");
        leader.write(RevokeOwnership { broker }).await.expect("revoked");
        let right = grant().await;
        assert_eq!(right.term, first_right + 2, "no term is given again");
        assert_eq!(second.write(Barrier).await, Err(StoreError::NotLeading));
        // A right is good for one store.
        Store::own(&config, right).expect("a store").write(Barrier).await.expect("it owns runs");
        let late = Store::own(&config, right).expect("a store");
        assert_eq!(late.write(Barrier).await, Err(StoreError::NotLeading));
        assert_eq!(late.deposed().await, crate::domain::leader::End::Rewound);
    });
}

#[test]
fn an_owner_may_not_write_what_is_for_the_leader() {
    at_server(|leader, config| async move {
        let owner = owner_of(&leader, &config, BrokerId::random()).await;
        let site = KeepSite { name: "a".into(), state: None, held_by: None, now: T };
        let robots = KeepRobots { origin: "http://a".into(), agent: "a".into(), rules: String::new(), until: T };
        let refused = [
            owner.write(by_hand(new_run(JobId::random()))).await.map(drop),
            owner.write(GrantOwnership { broker: BrokerId::random() }).await.map(drop),
            owner.write_unbounded(site).await.map(drop),
            owner.write(robots).await.map(drop),
            owner
                .write_unbounded(WithNext { end: RevokeOwnership { broker: BrokerId::random() }, no: 1, next: None, last: None })
                .await
                .map(drop),
        ];
        for refusal in refused {
            assert!(matches!(&refusal, Err(StoreError::Failed(why)) if why.contains("only the leader")), "{refusal:?}");
        }
        assert_eq!(owner.stats(), StoreStats { times: owner.stats().times, ..StoreStats::default() }, "nothing was queued");
        owner.write(Barrier).await.expect("it still owns runs");
    });
}

#[test]
fn nobody_owns_runs_in_a_file() {
    with_file(|leader, config| async move {
        let ownership = leader.write(GrantOwnership { broker: BrokerId::random() }).await.expect("granted");
        assert!(matches!(Store::own(&config, ownership), Err(StoreError::Failed(_))));
    });
}

/// Keeps its transaction open until another writer waits for it.
struct UntilAnotherWaits {
    began: std::sync::Mutex<Option<tokio::sync::oneshot::Sender<()>>>,
    database: DatabaseAddress,
}

impl UntilAnotherWaits {
    /// Also returns what completes when it began to wait.
    fn new(config: &StoreConfig) -> (Self, tokio::sync::oneshot::Receiver<()>) {
        let (began, has_begun) = tokio::sync::oneshot::channel();
        (Self { began: std::sync::Mutex::new(Some(began)), database: config.database.clone() }, has_begun)
    }
}

impl WriteOp for UntilAnotherWaits {
    type Output = ();
    const BY_OWNER: bool = true;

    fn apply(&self, _: &mut Tx<'_>) -> Result<(), StoreError> {
        #[derive(QueryableByName)]
        struct Waiting {
            #[diesel(sql_type = diesel::sql_types::BigInt)]
            sessions: i64,
        }
        if let Some(began) = self.began.lock().expect("no panic").take() {
            began.send(()).expect("the test waits");
        }
        let mut conn = dialect::reader(&self.database).expect("a connection");
        let waiting = "SELECT COUNT(*) AS sessions FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
        while diesel::sql_query(waiting).get_result::<Waiting>(&mut conn).expect("read").sessions == 0 {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        Ok(())
    }
}

#[test]
fn a_transaction_in_progress_ends_before_its_runs_are_taken_away() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let identity = made(&leader, Some(broker)).await;
        let adopted = owner.write(AdoptRun { identity }).await.expect("adopted");
        let (wait, has_begun) = UntilAnotherWaits::new(&config);
        // In one transaction.
        let (waited, ended) = (owner.write(wait), owner.write(end(&adopted)));
        has_begun.await.expect("it began");
        assert_eq!(leader.write(RevokeOwnership { broker }).await, Ok(vec![]), "the run is over");
        assert_eq!((waited.await, ended.await), (Ok(()), Ok(true)));
        assert_eq!(stored(&leader, identity).await.owner, Some(broker));
    });
}

#[test]
fn a_transaction_in_progress_ends_before_its_run_is_free() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let identity = made(&leader, Some(broker)).await;
        let adopted = owner.write(AdoptRun { identity }).await.expect("adopted");
        let (wait, has_begun) = UntilAnotherWaits::new(&config);
        // In one transaction, which does not change the row of the run.
        let (pushed, waited) = (owner.write(push(&adopted, 0..1)), owner.write(wait));
        has_begun.await.expect("it began");
        assert_eq!(leader.write(FreeRun { identity, owner: broker }).await, Ok(true));
        assert_eq!(leader.read(CountBlocks { no: adopted.0.no }).await.expect("counts").blocks, 1);
        assert_eq!((pushed.await, waited.await), (Ok(()), Ok(())));
        assert_eq!(owner.write(push(&adopted, 1..2)).await, Err(StoreError::Stale));
    });
}

#[test]
fn a_run_that_its_owner_gives_up_is_free() {
    at_server(|leader, config| async move {
        let [broker, other] = [(); 2].map(|()| BrokerId::random());
        let owner = owner_of(&leader, &config, broker).await;
        let identity = made(&leader, Some(broker)).await;
        let adopted = owner.write(AdoptRun { identity }).await.expect("adopted");
        assert_eq!(leader.write(FreeRun { identity, owner: other }).await, Ok(false));
        assert_eq!(leader.write(FreeRun { identity, owner: broker }).await, Ok(true));
        assert_eq!(leader.write(FreeRun { identity, owner: broker }).await, Ok(false));
        assert_eq!(owner.write(begin(&adopted)).await, Err(StoreError::Stale));
        assert_eq!(leader.write(AdoptRun { identity }).await.map(|(_, epoch)| epoch), Ok(adopted.1 + 2));
    });
}

#[cfg(feature = "faults")]
#[test]
fn an_owner_finds_out_what_became_of_a_commit_without_an_answer() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let identity = made(&leader, Some(broker)).await;
        let adopted = owner.write(AdoptRun { identity }).await.expect("adopted");
        crate::fault::plan("store.commit=fail@1");
        owner.write(line(&adopted.0)).await.expect("it was not stored, so it is repeated");
        assert_eq!(lines(&owner, &adopted.0).await, 1);

        // The transaction is over before its commit fails.
        let is_again = AtomicBool::new(false);
        let once = Committed(move || assert!(!is_again.swap(true, Ordering::SeqCst), "it is stored, so it is not repeated"));
        crate::fault::plan("store.commit=fail@1");
        let (ended, committed) = (owner.write(end(&adopted)), owner.write(once));
        assert_eq!((ended.await, committed.await), (Ok(true), Ok(())));
        assert_eq!(stored(&owner, identity).await.state, RunState::Failed);
        owner.write(line(&adopted.0)).await.expect("it goes on");

        // The runs are taken away before the outcome is looked up.
        let database = config.database.clone();
        let revoked = Committed(move || {
            let mut conn = dialect::writer(&database).expect("a connection");
            diesel::delete(run_owner::table).execute(&mut conn).expect("deleted");
        });
        crate::fault::plan("store.commit=fail@1");
        assert!(matches!(owner.write(revoked).await, Err(StoreError::Unknown(_))));
        assert_eq!(owner.deposed().await, crate::domain::leader::End::TakenOver);
    });
}

/// Commits within its transaction, and then does something else.
struct Committed<F>(F);

impl<F: Fn() + Send + 'static> WriteOp for Committed<F> {
    type Output = ();
    const BY_OWNER: bool = true;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        tx.conn.batch_execute("COMMIT")?;
        (self.0)();
        Ok(())
    }
}

/// Changes two rows, the first time only when another writer has changed one of them too.
struct Crossing {
    keys: [&'static str; 2],
    other: Arc<std::sync::Barrier>,
    is_again: AtomicBool,
}

impl WriteOp for Crossing {
    type Output = ();
    const BY_OWNER: bool = true;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let change = |conn: &mut dialect::Conn, key| {
            let row = (meta::key.eq(key), meta::value.eq("x"));
            let insert = dialect::OnConflict::with_conflict_rule(
                diesel::insert_into(meta::table).values(row),
                "(key) DO UPDATE SET value = meta.value || 'x'",
            );
            insert.execute(conn)
        };
        change(tx.conn, self.keys[0])?;
        if !self.is_again.swap(true, Ordering::SeqCst) {
            self.other.wait();
        }
        change(tx.conn, self.keys[1])?;
        Ok(())
    }
}

#[test]
fn a_transaction_that_another_writer_disturbed_is_repeated() {
    at_server(|leader, config| async move {
        let owner = owner_of(&leader, &config, BrokerId::random()).await;
        let other = Arc::new(std::sync::Barrier::new(2));
        let crossing = |keys| Crossing { keys, other: Arc::clone(&other), is_again: AtomicBool::new(false) };
        let (one, two) = (leader.write(crossing(["a", "b"])), owner.write(crossing(["b", "a"])));
        assert_eq!((one.await, two.await), (Ok(()), Ok(())));
        let failures = [&leader, &owner].map(|store| store.stats().failures);
        assert_eq!(failures, [0, 0], "the database has ended one of them, which is no failure");
        let mut conn = dialect::reader(&config.database).expect("a connection");
        let written: Vec<String> = meta::table.filter(meta::key.eq_any(["a", "b"])).select(meta::value).load(&mut conn).expect("read");
        assert_eq!(written, ["xx", "xx"]);
    });
}

#[test]
fn a_copy_has_no_owners_and_neither_has_its_source() {
    at_server(|leader, config| async move {
        let broker = BrokerId::random();
        let owner = owner_of(&leader, &config, broker).await;
        let (open, over) = (made(&leader, Some(broker)).await, made(&leader, Some(broker)).await);
        execute(&owner, over).await.expect("executed");
        let adopted = owner.write(AdoptRun { identity: open }).await.expect("adopted");
        leader.close().await;
        let target = self::config(&tempfile::tempdir().expect("a folder"));
        crate::store::copy::copy(&config.database, &target.database).expect("copied");
        assert_eq!(owner.write(end(&adopted)).await, Err(StoreError::NotLeading), "a command works alone");
        for config in [target, config] {
            let store = Store::open(&config).expect("a store");
            assert_eq!(store.read(ListOwnerships).await, Ok(vec![]));
            assert_eq!((stored(&store, open).await.owner, stored(&store, over).await.owner), (None, Some(broker)));
            assert_eq!(store.read(OpenRuns).await, Ok(vec![open]));
            let term = store.write(GrantOwnership { broker }).await.expect("granted").term;
            assert_eq!(term, 2, "as if it were the source");
        }
    });
}

#[test]
fn a_restored_store_has_no_owners() {
    with_store(|store, config| async move {
        let broker = BrokerId::random();
        store.write(GrantOwnership { broker }).await.expect("granted");
        let identity = made(&store, Some(broker)).await;
        let mut conn = dialect::writer(&config.database).expect("a connection");
        super::super::leader::forget_brokers(&mut conn).expect("forgotten");
        assert_eq!(store.read(ListOwnerships).await, Ok(vec![]));
        assert_eq!(stored(&store, identity).await.owner, None);
    });
}
