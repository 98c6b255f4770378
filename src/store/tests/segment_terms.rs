//! Segments that an owner of runs writes, while brokers of earlier versions lead before or beside it: they count segments in memory.

use super::leader::take_over;
use super::shared_segments::{Pause, ROLL, Row, execute, fill, packs, rows, run_of, segments, with_owner};
use super::*;

/// A broker of an earlier version does not know the table `segment`.
#[test]
fn a_new_leader_counts_all_again() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let (own, other) = (run_of(&leader, &owner, broker).await, run(&leader).await);
        fill(&leader, &other, 0..4).await;
        fill(&owner, &own, 0..2).await;
        assert_eq!(segments(&config), [1, 2, 3, 4, 5, 6]);
        leader.close().await;
        // It has acknowledged the first and dropped its table, has stored another in a table of its own, and left one without packs.
        let key = |seq| crate::store::columns::block_key(other.0.no, seq);
        execute(
            &config,
            &format!(
                "UPDATE block SET acked = TRUE WHERE key IN ({}, {}); DROP TABLE result_1; \
                UPDATE segment SET live = 7, writer = 'another' WHERE number = 2; DELETE FROM segment WHERE number = 3; \
                CREATE TABLE result_70 AS SELECT * FROM result_4; UPDATE block SET segment = 70 WHERE key = {}; CREATE TABLE result_80 ()",
                key(0),
                key(1),
                key(3),
            ),
        );
        let leader = Store::open(&config).expect("it leads");
        let left: Vec<Row> = rows(&config);
        let row = |number, live, writer: Option<BrokerId>| Row { number, live, writer: writer.map(|broker| broker.to_string()) };
        assert_eq!(
            left,
            [
                row(2, 0, None),
                row(3, 1, None),
                row(4, 0, None),
                row(5, 1, None),
                row(6, 1, Some(broker)),
                row(70, 1, None),
                row(80, 0, None)
            ]
        );
        leader.write(Barrier).await.expect("written");
        assert_eq!(segments(&config), [3, 5, 6, 70]);
        fill(&owner, &own, 2..3).await;
        assert_eq!(segments(&config), [3, 5, 6, 70, 81]);
        assert_eq!((packs(&leader, &own, 0..3).await, packs(&leader, &other, 0..4).await), (3, 2));
    });
}

/// As if a broker of an earlier version had taken over.
fn take_over_by_an_earlier_version(config: &StoreConfig) {
    execute(config, "UPDATE leader SET term = term + 1, batch = batch + 1");
}

#[test]
fn beside_a_leader_of_an_earlier_version_an_owner_changes_no_segment() {
    for acknowledges in [false, true] {
        with_owner(100, |leader, owner, broker, config| async move {
            let own = run_of(&leader, &owner, broker).await;
            fill(&owner, &own, 0..2).await;
            owner.write(push(&own, 2..3)).await.expect("pushed");
            take_over_by_an_earlier_version(&config);
            owner.write(push(&own, 3..4)).await.expect("this concerns no segment");
            let refused = if acknowledges { owner.write(ack(&own, &[0])).await } else { owner.write(result(&own, 2, "pack")).await };
            assert_eq!(refused, Err(StoreError::NotLeading));
            assert_eq!(owner.deposed().await, crate::domain::leader::End::TakenOver, "it gives its runs up");
            assert_eq!((segments(&config), rows(&config)[0].live), (vec![1], 2), "nothing was written");
            let answered = ListBlocks { no: own.0.no, from: None, state: Some(BlockState::Success), limit: 9 };
            assert_eq!(owner.read(answered).await.expect("read").len(), 2);
        });
    }
}

/// It may also write before that one has counted.
#[test]
fn an_owner_goes_on_when_another_broker_takes_over() {
    with_owner(ROLL, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        fill(&owner, &own, 0..2).await;
        let next = take_over(&config);
        fill(&owner, &own, 2..3).await;
        let _next = Store::lead(&config, next).expect("it leads");
        owner.write(ack(&own, &[0])).await.expect("acknowledged");
        assert_eq!(segments(&config), [2, 3]);
    });
}

#[test]
fn no_broker_takes_over_while_an_owner_begins_a_segment() {
    with_owner(100, |leader, owner, broker, config| async move {
        let own = run_of(&leader, &owner, broker).await;
        owner.write(push(&own, 0..2)).await.expect("pushed");
        // An earlier version takes over in this way too.
        let take_over = "SET lock_timeout = '50ms'; UPDATE leader SET term = term + 1, batch = batch + 1";
        for (seq, is_possible) in [(0, false), (1, true)] {
            let (pause, has_begun, go_on) = Pause::new();
            let (stored, paused) = (owner.write(result(&own, seq, "pack")), owner.write(pause));
            tokio::task::spawn_blocking(move || has_begun.recv().expect("it began")).await.expect("no panic");
            let taken = dialect::writer(&config.database).expect("a connection").batch_execute(take_over);
            assert_eq!(taken.is_ok(), is_possible, "{taken:?}");
            go_on.send(()).expect("it waits");
            assert_eq!((stored.await.is_ok(), paused.await.is_ok()), (!is_possible, !is_possible));
        }
        assert_eq!((segments(&config), rows(&config)[0].live), (vec![1], 1));
    });
}
