//! Tables of results that several brokers write: the leader, and those that own runs.

use super::leader::{take_over, take_over_as};
use super::*;
use crate::store::op::Tx;
use crate::store::segments::Settlement;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Integer, Nullable, Text};
use std::sync::mpsc;

/// Each pack fills a segment.
pub(super) const ROLL: u64 = 4;

#[derive(QueryableByName, Debug, Clone, PartialEq)]
pub(super) struct Row {
    #[diesel(sql_type = Integer)]
    pub(super) number: i32,
    #[diesel(sql_type = BigInt)]
    pub(super) live: i64,
    #[diesel(sql_type = Nullable<Text>)]
    pub(super) writer: Option<String>,
}

pub(super) fn rows(config: &StoreConfig) -> Vec<Row> {
    let mut conn = dialect::reader(&config.database).expect("a connection");
    diesel::sql_query("SELECT number, live, writer FROM segment ORDER BY number").load(&mut conn).expect("rows")
}

pub(super) fn execute(config: &StoreConfig, text: &str) {
    dialect::writer(&config.database).expect("a connection").batch_execute(text).expect("executed");
}

/// The segments, which must have a row and a table each, and the count of what is in the blocks.
pub(super) fn segments(config: &StoreConfig) -> Vec<i32> {
    let mut conn = dialect::reader(&config.database).expect("a connection");
    let mut there = segment_tables::numbers(&mut conn).expect("the tables of segments");
    there.sort_unstable();
    let needed = results::needed_segments(&mut conn).expect("read");
    let packs = |number: i32| needed.iter().find(|(needed, ..)| *needed == number).map_or(0, |(_, packs, _)| *packs as i64);
    let counted: Vec<(i32, i64)> = rows(config).into_iter().map(|row| (row.number, row.live)).collect();
    assert_eq!(counted, there.iter().map(|number| (*number, packs(*number))).collect::<Vec<_>>());
    assert!(needed.iter().all(|(number, ..)| there.contains(number)), "{needed:?} {there:?}");
    there
}

/// As [`at_server`], with a broker that owns runs.
pub(super) fn with_owner<F: Future<Output = ()>>(roll: u64, test: impl FnOnce(Store, Store, BrokerId, StoreConfig) -> F) {
    if server().is_some() {
        with_segments(roll, |leader, config| async move {
            let broker = BrokerId::random();
            let owner = owner_with(&leader, &config, broker, roll).await;
            test(leader, owner, broker, config).await;
        });
    }
}

async fn owner_with(leader: &Store, config: &StoreConfig, broker: BrokerId, roll: u64) -> Store {
    let right = leader.write(GrantOwnership { broker }).await.expect("granted");
    Store::own_with(config, right, |segments| segments.roll_at(roll)).expect("a store")
}

/// A run of this owner.
pub(super) async fn run_of(leader: &Store, owner: &Store, broker: BrokerId) -> (Run, i64) {
    let run = leader.write(by_hand(Run { owner: Some(broker), ..new_run(JobId::random()) })).await.expect("inserted").run;
    owner.write(AdoptRun { identity: run.identity }).await.expect("adopted")
}

/// Stores the results of new blocks, one after the other.
pub(super) async fn fill(store: &Store, run: &(Run, i64), seqs: std::ops::Range<u32>) {
    store.write(push(run, seqs.clone())).await.expect("pushed");
    for seq in seqs {
        store.write(result(run, seq, "pack")).await.expect("stored");
    }
}

pub(super) async fn packs(store: &Store, run: &(Run, i64), seqs: std::ops::Range<u32>) -> usize {
    let found = store.read(ReadResults { no: run.0.no, seqs: seqs.collect() }).await.expect("read");
    assert_eq!(found.damaged, vec![]);
    found.results.len()
}

#[test]
fn an_owner_writes_all_that_a_run_of_a_block_job_does() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        let (no, epoch, download, rules) = (own.0.no, own.1, own.0.download.clone(), own.0.rules.clone());
        owner.write(SetDownload { no, epoch, download }).await.expect("stored");
        owner.write(SetRunRules { no, epoch, rules }).await.expect("stored");
        owner.write(SetRunState { no, epoch, state: RunState::Running, reason: None, worker: None }).await.expect("stored");
        owner.write(push(&own, 0..1)).await.expect("pushed");
        owner.write(SetStartReturned { no, epoch }).await.expect("stored");
        owner.write(MarkRetry { no, epoch, seq: 0, attempt: 1, node: None, exception: None }).await.expect("stored");
        let split = SplitBlock { no, epoch, stays: block(0), made: vec![block(1)], result: Some(result(&own, 1, "pack")), now: T };
        owner.write(split).await.expect("split");
        owner.write(result(&own, 0, "pack")).await.expect("stored");
        owner.write(DiscardResults { no, epoch, seq: 0, exception: "lost".into() }).await.expect("discarded");
        assert_eq!(segments(&config), [1, 2]);
        owner.write(RequeueFailed { no, epoch, blocks: vec![block(2)], marked: Vec::new(), now: T }).await.expect("queued");
        owner.write(PushFirst { no, epoch, blocks: vec![block(3)], now: T }).await.expect("pushed");
        owner.write(Ack { push: vec![block(4)], ..ack(&own, &[1]) }).await.expect("acknowledged");
        assert_eq!(segments(&config), [2]);
        let stored = owner.read(GetRun(own.0.identity)).await.expect("read").expect("a run");
        assert_eq!((stored.state, stored.start_returned, stored.owner), (RunState::Running, true, Some(broker)));
        assert_eq!(owner.read(CountBlocks { no }).await.expect("counts").blocks, 5);
    });
}

#[test]
fn two_writers_acknowledge_what_the_other_has_stored() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let (own, other) = (run_of(&leader, &owner, broker).await, run(&leader).await);
        fill(&owner, &own, 0..2).await;
        fill(&leader, &other, 0..2).await;
        fill(&owner, &own, 2..3).await;
        let (first, second) = (broker.to_string(), "leader".to_owned());
        let row = |number, live, writer: Option<&String>| Row { number, live, writer: writer.cloned() };
        let all = [row(1, 1, None), row(2, 1, None), row(3, 1, None), row(4, 1, Some(&second)), row(5, 1, Some(&first))];
        assert_eq!(rows(&config), all);
        assert_eq!(segments(&config), [1, 2, 3, 4, 5]);
        // Each finds what the other has stored.
        assert_eq!((packs(&leader, &own, 0..3).await, packs(&owner, &other, 0..2).await), (3, 2));
        leader.write(ack(&own, &[0, 0, 2])).await.expect("acknowledged");
        assert_eq!(segments(&config), [2, 3, 4, 5], "its owner still appends to the last");
        owner.write(ack(&other, &[0, 1])).await.expect("acknowledged");
        assert_eq!(segments(&config), [2, 4, 5]);
        owner.write(ack(&own, &[0, 1])).await.expect("acknowledged");
        assert_eq!(segments(&config), [4, 5]);
        // A segment without waiting packs goes when its writer begins the next one.
        fill(&leader, &other, 2..3).await;
        assert_eq!(segments(&config), [5, 6]);
        fill(&owner, &own, 3..4).await;
        assert_eq!(segments(&config), [6, 7]);
        assert_eq!((packs(&leader, &own, 0..4).await, packs(&owner, &other, 0..3).await), (1, 1));
    });
}

#[test]
fn many_transactions_of_two_writers_are_counted_right() {
    with_owner(100, |leader, owner, broker, config| async move {
        let (own, other) = (run_of(&leader, &owner, broker).await, run(&leader).await);
        tokio::join!(fill(&owner, &own, 0..60), fill(&leader, &other, 0..60));
        assert_eq!(segments(&config).len(), 6);
        // Both acknowledge from both runs, so each segment is changed by both.
        let every = |store: Store, half: u32| {
            let (own, other) = (own.clone(), other.clone());
            async move {
                for seq in (0..60).filter(|seq| seq % 2 == half) {
                    store.write(ack(&own, &[seq])).await.expect("acknowledged");
                    store.write(ack(&other, &[seq])).await.expect("acknowledged");
                }
            }
        };
        tokio::join!(every(leader.clone(), 0), every(owner.clone(), 1));
        let left = segments(&config);
        assert_eq!((left.len(), rows(&config).iter().filter(|row| row.writer.is_some()).count()), (2, 2), "both append to one");
        assert_eq!((leader.stats().failures, owner.stats().failures), (0, 0));
    });
}

#[test]
fn no_number_is_used_by_two_writers_or_twice() {
    with_owner(1, |leader, owner, broker, config| async move {
        let (own, other) = (run_of(&leader, &owner, broker).await, run(&leader).await);
        tokio::join!(fill(&owner, &own, 0..30), fill(&leader, &other, 0..30));
        assert_eq!(segments(&config), (1..=60).collect::<Vec<_>>());
        assert_eq!((packs(&leader, &own, 0..30).await, packs(&leader, &other, 0..30).await), (30, 30));
        let all: Vec<u32> = (0..30).collect();
        owner.write(ack(&own, &all)).await.expect("acknowledged");
        leader.write(ack(&other, &all)).await.expect("acknowledged");
        leader.write(RevokeOwnership { broker }).await.expect("revoked");
        let leader = reopened(leader, &config).await;
        leader.write(Barrier).await.expect("written");
        assert_eq!(segments(&config), Vec::<i32>::new());
        let owner = owner_with(&leader, &config, broker, 1).await;
        let own = run_of(&leader, &owner, broker).await;
        fill(&owner, &own, 0..1).await;
        assert_eq!(segments(&config), [61]);
    });
}

#[test]
fn a_segment_of_a_broker_that_lost_its_right_goes_when_it_is_acknowledged() {
    with_owner(100, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        fill(&owner, &own, 0..2).await;
        owner.write(ack(&own, &[0])).await.expect("acknowledged");
        assert_eq!(leader.write(RevokeOwnership { broker }).await, Ok(vec![own.0.identity]));
        assert_eq!(rows(&config), [Row { number: 1, live: 1, writer: None }]);
        let adopted = leader.write(AdoptRun { identity: own.0.identity }).await.expect("adopted");
        assert_eq!(packs(&leader, &adopted, 0..2).await, 1);
        leader.write(ack(&adopted, &[1])).await.expect("acknowledged");
        assert_eq!(segments(&config), Vec::<i32>::new());

        // Another right is the end of the first one, too.
        let first = owner_with(&leader, &config, broker, 100).await;
        let own = run_of(&leader, &first, broker).await;
        fill(&first, &own, 0..1).await;
        let second = owner_with(&leader, &config, broker, 100).await;
        assert_eq!(rows(&config), [Row { number: 2, live: 1, writer: None }]);
        fill(&second, &own, 1..2).await;
        second.write(ack(&own, &[0])).await.expect("acknowledged");
        assert_eq!(segments(&config), [3]);
        // A run that gives its results up.
        leader.write(RevokeOwnership { broker }).await.expect("revoked");
        let adopted = leader.write(AdoptRun { identity: own.0.identity }).await.expect("adopted");
        leader.write(stopped(&adopted, T)).await.expect("finished");
        assert_eq!(segments(&config), Vec::<i32>::new());
    });
}

/// A broker that owned runs before it led still has its right, and both of its stores write for a while.
#[test]
fn a_leader_that_gives_up_its_own_right_goes_on() {
    with_owner(100, |leader, before, me, config| async move {
        let own = run_of(&leader, &before, me).await;
        fill(&before, &own, 0..1).await;
        let leadership = take_over_as(&config, me);
        let leader = Store::lead_with(&config, leadership, |segments| segments.roll_at(ROLL)).expect("it leads");
        before.write(ack(&own, &[0])).await.expect("it still owns it");
        let other = run(&leader).await;
        fill(&leader, &other, 0..2).await;
        assert_eq!(segments(&config), [1, 2, 3], "the store of before appends to the first");
        fill(&before, &own, 1..2).await;
        before.write(ack(&own, &[1])).await.expect("acknowledged");
        leader.write(ack(&other, &[0, 1])).await.expect("acknowledged");
        assert_eq!(segments(&config), [1, 3]);
        leader.write(RevokeOwnership { broker: me }).await.expect("revoked");
        assert_eq!(segments(&config), [3], "the leader appends to this one");
        fill(&leader, &other, 2..3).await;
        assert_eq!(segments(&config), [4]);
    });
}

/// Keeps its transaction open until the test sends a signal.
pub(super) struct Pause {
    began: mpsc::Sender<()>,
    go_on: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Pause {
    /// Also returns what tells that it began, and what ends it.
    pub(super) fn new() -> (Self, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((began, has_begun), (end, go_on)) = (mpsc::channel(), mpsc::channel());
        (Self { began, go_on: std::sync::Mutex::new(go_on) }, has_begun, end)
    }
}

impl WriteOp for Pause {
    type Output = ();
    const BY_OWNER: bool = true;

    fn apply(&self, _: &mut Tx<'_>) -> Result<(), StoreError> {
        self.began.send(()).expect("the test waits");
        self.go_on.lock().expect("no panic").recv().expect("the test goes on");
        Ok(())
    }
}

#[test]
fn a_new_leader_does_not_count_what_an_owner_has_not_counted_yet() {
    with_owner(100, |first, owner, broker, config| async move {
        let own = run_of(&first, &owner, broker).await;
        fill(&owner, &own, 0..3).await;
        owner.write(push(&own, 3..4)).await.expect("pushed");
        let leadership = take_over(&config);
        let (pause, has_begun, go_on) = Pause::new();
        // In one transaction, which has changed the blocks, but not the counts.
        let (acked, paused) = (owner.write(ack(&own, &[0, 1])), owner.write(pause));
        let at_leader = config.clone();
        let counted = tokio::task::spawn_blocking(move || {
            has_begun.recv().expect("it began");
            let mut conn = dialect::writer(&at_leader.database).expect("a connection");
            segment_tables::recount(&mut conn, &mut leadership.clone()).expect("it does not wait");
            let counted = rows(&at_leader);
            go_on.send(()).expect("it waits");
            counted
        });
        let counted = counted.await.expect("no panic");
        assert_eq!(counted, [Row { number: 1, live: 3, writer: Some(broker.to_string()) }]);
        assert_eq!((acked.await, paused.await), (Ok(()), Ok(())));
        assert_eq!(rows(&config)[0].live, 1);
        fill(&owner, &own, 4..5).await;
        owner.write(ack(&own, &[2, 4])).await.expect("acknowledged");
        assert_eq!((segments(&config), rows(&config)[0].live), (vec![1], 0), "the owner appends to it");
    });
}

/// Waits until this number of sessions waits for locks.
fn until_waiting(config: &StoreConfig) {
    #[derive(QueryableByName)]
    struct Waiting {
        #[diesel(sql_type = BigInt)]
        sessions: i64,
    }
    let mut conn = dialect::reader(&config.database).expect("a connection");
    let waiting = "SELECT COUNT(*) AS sessions FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()";
    while diesel::sql_query(waiting).get_result::<Waiting>(&mut conn).expect("read").sessions == 0 {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
}

#[test]
fn a_new_leader_waits_for_what_an_owner_has_counted() {
    with_owner(100, |first, owner, broker, config| async move {
        let own = run_of(&first, &owner, broker).await;
        fill(&owner, &own, 0..3).await;
        let leadership = take_over(&config);
        // What the transaction of an owner does, up to its commit.
        let mut conn = dialect::writer(&config.database).expect("a connection");
        let acknowledge = format!("BEGIN; UPDATE block SET acked = TRUE WHERE key = {}", crate::store::columns::block_key(own.0.no, 0));
        conn.batch_execute(&acknowledge).expect("acknowledged");
        let mut settlement = Settlement::default();
        settlement.release(1, 1);
        segment_tables::SegmentTables::of(Some(broker)).count(&mut conn, &settlement).expect("counted");
        let at_leader = config.clone();
        let counted = std::thread::spawn(move || {
            let mut conn = dialect::writer(&at_leader.database).expect("a connection");
            segment_tables::recount(&mut conn, &mut leadership.clone()).expect("counted");
        });
        until_waiting(&config);
        conn.batch_execute("COMMIT").expect("committed");
        counted.join().expect("no panic");
        assert_eq!((segments(&config), rows(&config)[0].live), (vec![1], 2));
    });
}

/// As if it had died before it could drop the table.
#[test]
fn what_a_writer_left_without_packs_is_dropped_by_the_next_one() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        fill(&owner, &own, 0..3).await;
        let left = || async {
            let mut dump = dialect::writer(&config.database).expect("a connection");
            dump.batch_execute("BEGIN; LOCK TABLE result_1, result_2, result_3 IN ACCESS SHARE MODE").expect("locked");
            owner.write(ack(&own, &[0, 1])).await.expect("acknowledged");
            dump.batch_execute("COMMIT").expect("it ends");
        };
        left().await;
        assert_eq!(segments(&config), [1, 2, 3]);
        leader.write(RevokeOwnership { broker }).await.expect("revoked");
        let adopted = leader.write(AdoptRun { identity: own.0.identity }).await.expect("adopted");
        assert_eq!(segments(&config), [1, 2, 3], "nothing else is to be dropped");
        leader.write(ack(&adopted, &[2])).await.expect("acknowledged");
        assert_eq!(segments(&config), Vec::<i32>::new());

        let other = run(&leader).await;
        fill(&leader, &other, 0..2).await;
        let mut dump = dialect::writer(&config.database).expect("a connection");
        dump.batch_execute("BEGIN; LOCK TABLE result_4 IN ACCESS SHARE MODE").expect("locked");
        leader.write(ack(&other, &[0])).await.expect("acknowledged");
        dump.batch_execute("COMMIT").expect("it ends");
        assert_eq!(segments(&config), [4, 5]);
        let leader = Store::lead(&config, take_over(&config)).expect("it leads");
        leader.write(Barrier).await.expect("written");
        assert_eq!(segments(&config), [5], "it is complete, but a pack waits");
    });
}

#[cfg(feature = "faults")]
#[test]
fn a_transaction_that_is_repeated_is_counted_once() {
    with_owner(100, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        owner.write(push(&own, 0..2)).await.expect("pushed");
        for acked in [None, Some(0)] {
            crate::fault::plan("store.commit=fail@1");
            let seq = acked.map_or(0, |acked| acked + 1);
            let (stored, acked) = (owner.write(result(&own, seq, "pack")), owner.write(ack(&own, &Vec::from_iter(acked))));
            assert_eq!((stored.await, acked.await), (Ok(()), Ok(())));
        }
        assert_eq!(owner.stats().failures, 2, "only the commits");
        assert_eq!(segments(&config), [2], "a segment that was not committed is begun again");
        assert_eq!(packs(&leader, &own, 0..2).await, 1);
        // A segment that it cannot use does not prevent it from going on.
        execute(&config, "DROP TABLE result_2");
        owner.write(push(&own, 2..4)).await.expect("pushed");
        owner.write(result(&own, 2, "pack")).await.expect("stored");
        owner.write(result(&own, 3, "pack")).await.expect("stored");
        assert_eq!(packs(&leader, &own, 2..4).await, 2);
    });
}

#[test]
fn the_leader_of_a_copy_counts_its_segments() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        fill(&owner, &own, 0..4).await;
        owner.write(ack(&own, &[1])).await.expect("acknowledged");
        assert_eq!(segments(&config), [1, 3, 4]);
        leader.close().await;
        let (folder, other) = (tempfile::tempdir().expect("a folder"), super::config(&tempfile::tempdir().expect("a folder")));
        let file = StoreConfig::new(folder.path().join("a.db"));
        crate::store::copy::copy(&config.database, &file.database).expect("copied");
        crate::store::copy::copy(&file.database, &other.database).expect("copied");
        for config in [config, other] {
            let store = Store::open(&config).expect("a store");
            assert_eq!(segments(&config), [1, 3, 4]);
            assert!(rows(&config).iter().all(|row| row.writer.is_none()), "the brokers of the source have no right");
            let adopted = store.write(AdoptRun { identity: own.0.identity }).await.expect("adopted");
            assert_eq!(packs(&store, &adopted, 0..4).await, 3);
            fill(&store, &adopted, 4..5).await;
            store.write(ack(&adopted, &[0, 2, 3])).await.expect("acknowledged");
            assert_eq!(segments(&config), [5], "no number is given twice");
        }
    });
}
