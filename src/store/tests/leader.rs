//! Which broker may write.

use super::*;
use crate::domain::leader::{Lease, Reason};

/// Readings of a monotonic clock, less than half a lease apart, over more than one lease.
const TICKS: [u64; 5] = [0, 2_000, 4_000, 6_000, 8_000];

fn member() -> Member {
    Member { id: BrokerId::random(), url: "http://b:1".to_owned(), version: "1".to_owned(), started_at: T }
}

/// Another broker that detects the hanging leader and takes over.
pub(super) fn take_over(config: &StoreConfig) -> Leadership {
    take_over_as(config, BrokerId::random())
}

pub(super) fn take_over_as(config: &StoreConfig, id: BrokerId) -> Leadership {
    let (mut seat, mut watch) = (Seat::at(config, Member { id, ..member() }, 1_000).expect("a seat"), Watch::default());
    let looks = TICKS.map(|now| seat.look(&mut watch, now).expect("a look"));
    let won = looks.into_iter().find_map(|look| match look {
        Look::Leads(leadership, Reason::Silent) => Some(leadership),
        Look::Leads(_, reason) => panic!("{reason:?}"),
        Look::StandsBy(_) => None,
    });
    won.expect("it took over")
}

#[test]
fn who_was_deposed_writes_neither_rows_nor_files() {
    with_store(|store, config| async move {
        let run = run(&store).await;
        store.write(push(&run, 0..3)).await.expect("it leads");
        store.write(result(&run, 0, "a pack")).await.expect("it leads");
        let files = segment_bytes(&config);
        let _leadership = take_over(&config);
        assert!(tokio::time::timeout(std::time::Duration::ZERO, store.deposed()).await.is_err(), "it does not know yet");
        let (pack, row) = tokio::join!(store.write(result(&run, 1, "another")), store.write(push(&run, 3..5)));
        assert_eq!((pack, row), (Err(StoreError::NotLeading), Err(StoreError::NotLeading)));
        assert_eq!(segment_bytes(&config), files, "nothing was appended");
        store.deposed().await;
        assert_eq!(store.write(Barrier).await, Err(StoreError::NotLeading), "whatever it is");
        let blocks = store.read(ListBlocks { no: run.0.no, from: None, limit: 10, state: None }).await.expect("read");
        assert_eq!((blocks.len(), blocks.iter().filter(|block| block.finish_time.is_some()).count()), (3, 1));
    });
}

#[test]
fn who_took_over_writes_and_renews_while_the_other_has_the_lock() {
    with_store(|hanging, config| async move {
        let leadership = take_over(&config);
        assert!(!leadership.holds_lock(), "it is the other's");
        let store = Store::lead(&config, leadership.clone()).expect("it leads");
        let renew = RenewLease { me: member(), ttl_ms: 1_000, is_locked: leadership.holds_lock(), now: T };
        store.write(renew.clone()).await.expect("renewed");
        let lease = store.read(GetLease).await.expect("read").expect("a lease").lease;
        assert_eq!(lease, Lease { term: 2, renewals: 1, ttl_ms: 1_000, is_locked: false, is_released: false });
        // A third broker gets the lock when the hanging one dies, but that is no evidence about the second one.
        assert_eq!(hanging.write(Barrier).await, Err(StoreError::NotLeading));
        hanging.close().await;
        let mut third = Seat::at(&config, member(), 1_000).expect("a seat");
        assert!(matches!(third.look(&mut Watch::default(), 0), Ok(Look::StandsBy(Some(_)))));
        assert!(leadership.holds_lock(), "the third one left it alone");
        store.write(RenewLease { is_locked: true, ..renew }).await.expect("renewed");
        assert!(matches!(third.look(&mut Watch::default(), 0), Ok(Look::StandsBy(Some(_)))));
        store.close().await;
        assert!(matches!(third.look(&mut Watch::default(), 0), Ok(Look::Leads(_, Reason::Dead))), "now it is dead");
    });
}

/// Two candidates that both saw a released lease: one leads.
#[test]
fn of_two_candidates_at_one_moment_one_leads() {
    with_store(|store, config| async move {
        store.write(ReleaseLease(member())).await.expect("released");
        store.close().await;
        let start = Arc::new(std::sync::Barrier::new(4));
        let looks: Vec<_> = (0..4)
            .map(|_| {
                let (config, start) = (config.clone(), Arc::clone(&start));
                std::thread::spawn(move || {
                    let mut seat = Seat::at(&config, member(), 1_000).expect("a seat");
                    seat.tables().expect("a connection");
                    start.wait();
                    // One that is refused because another writes would try again.
                    seat.look(&mut Watch::default(), 0).ok().and_then(|look| match look {
                        Look::Leads(leadership, _) => Some(leadership),
                        Look::StandsBy(_) => None,
                    })
                })
            })
            .collect();
        // Who leads keeps its lock until all have looked.
        let leaderships: Vec<Leadership> = looks.into_iter().filter_map(|look| look.join().expect("it looked")).collect();
        assert_eq!(leaderships.iter().map(|leadership| leadership.term).collect::<Vec<_>>(), [2]);
    });
}

#[test]
fn brokers_are_seen_and_forgotten() {
    with_store(|store, config| async move {
        let (me, other) = (member(), Member { url: "http://c:1".to_owned(), ..member() });
        let mut seat = Seat::at(&config, other.clone(), 1_000).expect("a seat");
        assert!(matches!(seat.look(&mut Watch::default(), 0), Ok(Look::StandsBy(_))));
        assert_eq!(seat.tables(), Ok(Tables::Fit));
        seat.beat().expect("it is said");
        let now = Timestamp::now();
        let renew = RenewLease { me: me.clone(), ttl_ms: 1_000, is_locked: true, now };
        assert_eq!(store.write(renew.clone()).await, Ok(true), "there are others");
        let urls = |brokers: Vec<StoredBroker>| brokers.into_iter().map(|broker| broker.member.url).collect::<Vec<_>>();
        let seen = store.read(ListBrokers).await.expect("read");
        assert!(seen.iter().any(|broker| broker.member == other && !broker.is_leader));
        let later = RenewLease { now: now.plus_ms(7_200_000), ..renew.clone() };
        assert_eq!(store.write(later.clone()).await, Ok(true), "its clock may be behind");
        assert_eq!(store.write(later).await, Ok(false), "it is alone");
        assert_eq!(urls(store.read(ListBrokers).await.expect("read")), ["http://b:1"], "an hour is long");
        seat.beat().expect("it is said");
        seat.leave().expect("it is said");
        assert_eq!(urls(store.read(ListBrokers).await.expect("read")), ["http://b:1"]);
        store.write(ReleaseLease(me)).await.expect("released");
        assert_eq!(store.read(ListBrokers).await.map(urls), Ok(Vec::new()));
        let mut seat = Seat::at(&config, other, 1_000).expect("a seat");
        assert!(matches!(seat.look(&mut Watch::default(), 0), Ok(Look::Leads(_, Reason::Released))));
    });
}

/// If a command dies before it has the lock, brokers must not wait for days.
#[test]
fn a_command_has_a_long_lease_only_with_the_lock() {
    const WEEK_MS: u64 = 7 * 86_400_000;
    with_store(|store, config| async move {
        store.write(ReleaseLease(member())).await.expect("released");
        // The broker that ends still has the lock.
        let mut seat = Seat::at(&config, member(), WEEK_MS).expect("a seat");
        assert!(matches!(seat.look(&mut Watch::default(), 0), Ok(Look::Leads(_, Reason::Released))));
        let lease = store.read(GetLease).await.expect("read").expect("a lease").lease;
        assert_eq!((lease.is_locked, lease.ttl_ms), (false, 600_000));
        store.close().await;
        drop(seat);

        let mut conn = dialect::writer(&config.database).expect("a connection");
        conn.batch_execute("UPDATE leader SET is_released = TRUE").expect("written");
        let custody = custody::Custody::take(&config.database).expect("it leads");
        let lease = leader::stored_lease(&mut conn).expect("read").expect("a lease").lease;
        assert_eq!((lease.is_locked, lease.ttl_ms), (true, WEEK_MS));
        custody.release(&mut conn, 0).expect("released");
    });
}

#[test]
fn an_older_broker_keeps_its_tables_for_as_long_as_it_lives() {
    with_file(|store, config| async move {
        store.close().await;
        // As left by the version before leader election: a lock, and no lease.
        let mut conn = dialect::writer(&config.database).expect("a connection");
        let before = "DROP TABLE leader; DROP TABLE broker; DELETE FROM __diesel_schema_migrations WHERE version = '20261121000007'";
        diesel::connection::SimpleConnection::batch_execute(&mut conn, before).expect("written");
        let lock = std::fs::File::open(beside(path_of(&config), ".lock")).expect("the lock");
        lock.try_lock().expect("it is free");
        let (mut seat, mut watch) = (Seat::at(&config, member(), 1_000).expect("a seat"), Watch::default());
        for now in TICKS {
            assert!(matches!(seat.look(&mut watch, now), Ok(Look::StandsBy(None))));
            seat.beat().expect("nothing is said where nothing can be");
        }
        assert_eq!(seat.tables(), Ok(Tables::Older), "they were left alone");
        lock.unlock().expect("it ends");
        assert!(matches!(seat.look(&mut watch, 9_000), Ok(Look::Leads(_, Reason::First))));
        assert_eq!(seat.tables(), Ok(Tables::Fit));
    });
}

#[test]
fn tables_of_a_later_version_are_used_if_it_only_added_to_them() {
    with_store(|store, config| async move {
        store.close().await;
        let mut conn = dialect::writer(&config.database).expect("a connection");
        let mut execute = |text: &str| diesel::connection::SimpleConnection::batch_execute(&mut conn, text).expect("written");
        // What the next version does when it leads: it adds, and says which versions can go on.
        execute("ALTER TABLE job ADD COLUMN later BIGINT; CREATE TABLE later (id BIGINT NOT NULL PRIMARY KEY)");
        execute("INSERT INTO __diesel_schema_migrations (version) VALUES ('99991231000000')");
        let mut seat = Seat::at(&config, member(), 1_000).expect("a seat");
        assert_eq!(seat.tables(), Ok(Tables::Extended), "the migrations of this version noted that it knows what is needed");
        assert!(matches!(seat.look(&mut Watch::default(), 0), Ok(Look::Leads(..))));
        drop(seat);
        let store = Store::open(&config).expect("it opens");
        let new = job("works");
        store.write(InsertJob { job: new.clone(), next_at: None }).await.expect("written");
        assert_eq!(store.read(GetJob(new.id)).await.expect("read").map(|found| found.name), Some("works".to_owned()));
        store.close().await;
        // The next version has taken something away.
        execute("UPDATE meta SET value = '99991231000000' WHERE key = 'compatible_since'");
        let mut seat = Seat::at(&config, member(), 1_000).expect("a seat");
        assert_eq!(seat.tables(), Ok(Tables::Newer));
        assert!(matches!(seat.look(&mut Watch::default(), 0), Err(StoreError::Failed(why)) if why.contains("later version")));
        assert!(Store::open(&config).is_err());
    });
}

fn segment_bytes(config: &StoreConfig) -> Vec<(String, u64)> {
    let files = segment_files(config).into_iter();
    let length = |name: &str| match config.database.file() {
        Some(path) => std::fs::metadata(beside(path, "-results").join(name)).expect("a file").len(),
        None => 0,
    };
    files.map(|name| (name.clone(), length(&name))).collect()
}

#[test]
fn a_leader_that_releases_its_lease_wakes_up_a_standby() {
    if server().is_none() {
        // With a file, a standby looks often enough.
        return;
    }
    with_store(|store, config| async move {
        let mut seat = Seat::at(&config, member(), 600_000).expect("a seat");
        assert!(matches!(seat.look(&mut Watch::default(), 0), Ok(Look::StandsBy(Some(_)))));
        let waits = std::thread::spawn(move || {
            let begin = std::time::Instant::now();
            seat.wait(std::time::Duration::from_secs(60));
            (seat.look(&mut Watch::default(), 0), begin.elapsed())
        });
        store.write(ReleaseLease(member())).await.expect("released");
        let (look, waited) = waits.join().expect("no panic");
        assert!(matches!(look, Ok(Look::Leads(_, Reason::Released))), "{look:?}");
        assert!(waited < std::time::Duration::from_secs(30), "{waited:?}");
    });
}
