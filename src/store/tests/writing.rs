//! The queue, the transactions, and what happens when something goes wrong.

use super::*;
use crate::store::op::{Source, Tx};
use crate::store::schema::meta;
use diesel::prelude::*;

#[test]
fn what_was_answered_is_there_after_the_next_start_and_in_order() {
    with_store(|store, config| async move {
        let owned = run(&store).await;
        // Not awaited one by one: the order is that of the calls.
        let pushes: Vec<_> = (0..600).map(|seq| store.write(push(&owned, seq..seq + 1))).collect();
        let answers: Vec<_> = (0..600).map(|seq| store.write(result(&owned, seq, &format!("pack {seq}")))).collect();
        let acks = store.write(ack(&owned, &[0, 2]));
        let again = store.write(result(&owned, 1, "late"));
        for push in pushes {
            push.await.expect("pushed");
        }
        for answer in answers {
            answer.await.expect("a result after its push");
        }
        acks.await.expect("acknowledged");
        assert_eq!(again.await, Err(StoreError::Conflict("state".into())));
        let stats = store.stats();
        assert_eq!((stats.depth, stats.written), (0, 1_204), "{stats:?}");
        assert!(stats.batches < 50, "they share transactions: {stats:?}");

        let store = reopened(store, &config).await;
        let (blocks, seen) = store.read(LoadFrontier { no: owned.0.no }).await.expect("a frontier");
        assert_eq!((blocks.len(), seen.len()), (600, 1_800));
        let phases: Vec<_> = blocks[..4].iter().map(|block| block.phase).collect();
        assert_eq!(phases, [Phase::Done, Phase::Answered, Phase::Done, Phase::Answered]);
        assert!(prints(1).iter().all(|print| seen.contains(*print)));
        let results = store.read(ReadResults { no: owned.0.no, seqs: vec![599, 0, 1] }).await.expect("results").results;
        let packs: Vec<_> = results.iter().map(|r| (r.seq, &r.pack[..], &r.payload[..])).collect();
        assert_eq!(packs, [(599, &b"pack 599"[..], &b"payload 599"[..]), (1, b"pack 1", b"payload 1")]);
        store.close().await;
    });
}

/// Inserts a row, then does as configured.
struct Leave(&'static str, Then);

#[derive(Clone, Copy, PartialEq)]
enum Then {
    Go,
    Fail,
    Panic,
}

impl WriteOp for Leave {
    type Output = &'static str;
    fn apply(&self, tx: &mut Tx<'_>) -> Result<&'static str, StoreError> {
        diesel::insert_into(meta::table).values((meta::key.eq(self.0), meta::value.eq("x"))).execute(tx.conn)?;
        match self.1 {
            Then::Go => Ok(self.0),
            Then::Fail => Err(StoreError::Failed("on purpose".into())),
            Then::Panic => panic!("on purpose"),
        }
    }
}

struct Traces;

impl ReadOp for Traces {
    type Output = Vec<String>;
    fn read(&self, from: &mut Source<'_>) -> Result<Vec<String>, StoreError> {
        Ok(meta::table.filter(meta::value.eq("x")).order(meta::key).select(meta::key).load(from.conn)?)
    }
}

struct PanickingRead;

impl ReadOp for PanickingRead {
    type Output = ();
    fn read(&self, _: &mut Source<'_>) -> Result<(), StoreError> {
        panic!("on purpose")
    }
}

async fn three(store: &Store, second: Then) -> [Result<&'static str, StoreError>; 3] {
    let (a, b, c) = (store.write(Leave("a", Then::Go)), store.write(Leave("b", second)), store.write(Leave("c", Then::Go)));
    [a.await, b.await, c.await]
}

#[test]
fn one_that_fails_does_not_take_the_others_along() {
    with_store(|store, _| async move {
        let outcome = three(&store, Then::Fail).await;
        assert_eq!(outcome, [Ok("a"), Err(StoreError::Failed("on purpose".into())), Ok("c")]);
        assert_eq!(store.read(Traces).await, Ok(vec!["a".into(), "c".into()]));
        // A duplicate key is an error of the database.
        assert!(matches!(store.write(Leave("a", Then::Go)).await, Err(StoreError::Failed(_))));
        assert_eq!(store.write(Leave("d", Then::Go)).await, Ok("d"));
        assert!(store.stats().last_error.is_some());
    });
}

#[test]
fn one_that_panics_does_not_take_the_others_along() {
    with_store(|store, config| async move {
        let outcome = three(&store, Then::Panic).await;
        assert!(matches!(&outcome, [Ok("a"), Err(StoreError::Unknown(_)), Ok("c")]), "{outcome:?}");
        assert_eq!(store.stats().restarts, 2, "once with the others and once alone");
        let store = reopened(store, &config).await;
        assert_eq!(store.read(Traces).await, Ok(vec!["a".into(), "c".into()]));
        assert!(store.read(PanickingRead).await.is_err());
        assert_eq!(store.read(Traces).await.map(|traces| traces.len()), Ok(2), "the reader reads on");
    });
}

#[cfg(feature = "faults")]
#[test]
fn a_commit_that_fails_is_done_again_one_by_one() {
    with_store(|store, _| async move {
        crate::fault::plan("store.commit=fail@1");
        assert_eq!(three(&store, Then::Go).await, [Ok("a"), Ok("b"), Ok("c")]);
        if server().is_some() {
            // The outcome is looked up: nothing was stored, so the transaction is repeated, for one as for many.
            crate::fault::plan("store.commit=fail@1");
            assert_eq!(store.write(Leave("d", Then::Go)).await, Ok("d"));
            assert_eq!(store.read(Traces).await.map(|traces| traces.join("")), Ok("abcd".into()));
            return;
        }
        crate::fault::plan("store.commit=fail@1,store.one.commit=fail@1");
        let (d, e) = (store.write(Leave("d", Then::Go)), store.write(Leave("e", Then::Go)));
        assert!(matches!(d.await, Err(StoreError::Unknown(_))));
        assert_eq!(e.await, Ok("e"));
        assert_eq!(store.read(Traces).await.map(|traces| traces.join("")), Ok("abce".into()));
    });
}

#[cfg(feature = "faults")]
#[test]
fn a_panic_beside_the_statements_loses_and_doubles_nothing() {
    with_store(|store, _| async move {
        crate::fault::plan("store.batch=panic@1");
        assert_eq!(three(&store, Then::Go).await, [Ok("a"), Ok("b"), Ok("c")]);
        crate::fault::plan("store.committed=panic@1");
        assert_eq!(store.write(Leave("d", Then::Go)).await, Ok("d"), "it was committed, so it is not done again");
        assert_eq!(store.write(Leave("e", Then::Go)).await, Ok("e"));
        assert_eq!(store.stats().restarts, 2);
    });
}

#[test]
fn a_full_queue_says_so() {
    with_store(|store, config| async move {
        store.close().await;
        let store = Store::open(&StoreConfig { write_queue: 2, ..config }).expect("opened");
        let first: Vec<_> = ["a", "b"].map(|key| store.write(Leave(key, Then::Go))).into();
        assert_eq!(store.stats().depth, 2);
        assert_eq!(store.write(Leave("c", Then::Go)).await, Err(StoreError::Busy));
        for written in first {
            assert!(written.await.is_ok());
        }
        assert_eq!(store.stats().depth, 0);
        assert_eq!(store.write(Leave("c", Then::Go)).await, Ok("c"));
    });
}

#[test]
fn what_nobody_waits_for_is_written_all_the_same() {
    with_store(|store, config| async move {
        drop(store.write(Leave("a", Then::Go)));
        let other = store.clone();
        let store = reopened(store, &config).await;
        assert_eq!(store.read(Traces).await, Ok(vec!["a".into()]));
        assert_eq!(other.write(Leave("b", Then::Go)).await, Err(StoreError::Closed));
    });
}

#[test]
fn one_broker_at_a_time() {
    with_store(|store, config| async move {
        let refused = Store::open(&config).err();
        assert!(matches!(&refused, Some(StoreError::Failed(why)) if why.contains("another broker")), "{refused:?}");
        store.write(Barrier).await.expect("the first one is unharmed");
        store.close().await;
        assert!(Store::open(&config).is_ok());
    });
}

#[test]
fn the_log_of_a_small_database_stays_small() {
    with_file(|store, config| async move {
        // Some 30 MB of changes to the same few pages.
        for _ in 0..600 {
            store.write(op::Probe).await.expect("stored");
        }
        let length = |suffix| beside(path_of(&config), suffix).metadata().expect("a file").len();
        assert!(length("") < 2 << 20, "the database has {} bytes", length(""));
        assert!(length("-wal") < 18 << 20, "and its log {}", length("-wal"));
    });
}

/// The next leader writes as soon as this one has released its lease, also while a backup reads.
#[test]
fn the_end_does_not_wait_for_readers_with_the_lock_for_writing() {
    with_file(|store, config| async move {
        let mut reader = dialect::reader(&config.database).expect("a connection");
        reader.batch_execute("BEGIN; SELECT COUNT(*) FROM meta;").expect("it sees this state until it ends");
        store.write(op::Probe).await.expect("stored");
        let begin = std::time::Instant::now();
        store.close().await;
        assert!(begin.elapsed() < std::time::Duration::from_secs(3), "it waited {:?}", begin.elapsed());
    });
}

#[cfg(feature = "faults")]
#[test]
fn a_full_disk_has_a_name() {
    with_store(|store, _| async move {
        store.write(Barrier).await.expect("opened");
        crate::fault::plan("store.full=fail@1");
        let error = store.check_disk().await.expect_err("full");
        assert_eq!(error.disk_trouble(), Some("the disk is full"));
        let is_well = async {
            while store.check_disk().await.is_err() {
                tokio::time::sleep(std::time::Duration::from_millis(20)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), is_well).await.expect("there is room again");
    });
}
