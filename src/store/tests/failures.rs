//! Failures are stored as long as their blocks.

use super::super::op::Source;
use super::super::schema::block_failure;
use super::*;
use diesel::prelude::*;

struct CountFailures;

impl ReadOp for CountFailures {
    type Output = i64;

    fn read(&self, from: &mut Source<'_>) -> Result<i64, StoreError> {
        Ok(block_failure::table.count().get_result(from.conn)?)
    }
}

fn failing(owned: &(Run, i64), seq: u32) -> StoreResult {
    StoreResult { failures: Some(text(seq).1), ..result(owned, seq, "pack") }
}

fn text(seq: u32) -> (u32, Bytes) {
    (seq, Bytes::from(format!("failures {seq}")))
}

/// Two runs with two blocks that have failures, and one that has none.
async fn two_runs(store: &Store) -> [(Run, i64); 2] {
    let runs = [run(store).await, run(store).await];
    for of in &runs {
        store.write(push(of, 0..4)).await.expect("pushed");
        store.write(failing(of, 0)).await.expect("stored");
        store.write(failing(of, 3)).await.expect("stored");
        store.write(result(of, 2, "pack")).await.expect("stored");
    }
    runs
}

async fn listed(store: &Store, no: i64, from: u32, limit: usize) -> Vec<(u32, Bytes)> {
    let rows = store.read(ListFailures { no, from, limit, sites: Vec::new() }).await.expect("read");
    rows.into_iter().map(|row| (row.seq, row.entries)).collect()
}

#[test]
fn failures_outlive_their_results_and_are_marked_with_what_repeats_them() {
    with_store(|store, config| async move {
        let [_, owned] = two_runs(&store).await;
        let (no, epoch) = (owned.0.no, owned.1);
        store.write(ack(&owned, &[0])).await.expect("acknowledged");
        let store = reopened(store, &config).await;
        assert_eq!(listed(&store, no, 0, 10).await, [text(0), text(3)]);
        assert_eq!(listed(&store, no, 1, 10).await, [text(3)]);
        assert_eq!(listed(&store, no, 0, 1).await, [text(0)]);
        let read = store.read(ReadFailures { no, seqs: vec![2, 3] }).await.expect("read");
        assert_eq!(read.iter().map(|block| (block.seq, block.payload.clone())).collect::<Vec<_>>(), [(3, Bytes::from("payload 3"))]);

        let marked = vec![(3, Bytes::from("marked")), (2, Bytes::from("it has no failures"))];
        let requeue = |epoch| RequeueFailed { no, epoch, blocks: vec![block(4)], marked: marked.clone(), now: T };
        assert_eq!(store.write(requeue(epoch - 1)).await, Err(StoreError::Stale));
        assert_eq!(store.read(LastBlock { no }).await, Ok(Some(3)), "both or neither");
        store.write(requeue(epoch)).await.expect("queued again");
        assert_eq!(listed(&store, no, 0, 10).await, [text(0), (3, Bytes::from("marked"))]);
        assert_eq!(store.read(LastBlock { no }).await, Ok(Some(4)));
    });
}

#[test]
fn marks_that_come_too_late_change_nothing() {
    with_store(|store, _| async move {
        let [_, owned] = two_runs(&store).await;
        let no = owned.0.no;
        let marks = |blocks: &[(u32, Bytes, &'static str)]| {
            let blocks = blocks.iter().map(|(seq, before, after)| (*seq, before.clone(), Bytes::from(*after))).collect();
            InsertRun { marks: Some(Marks { no, blocks }), ..by_hand(new_run(JobId::random())) }
        };
        store.write(marks(&[(3, text(3).1, "first")])).await.expect("inserted");
        let late = marks(&[(0, text(0).1, "second"), (3, text(3).1, "second")]);
        assert_eq!(store.write(late).await.err(), Some(StoreError::Conflict(Marks::CHANGED.to_owned())));
        assert_eq!(listed(&store, no, 0, 10).await, [text(0), (3, Bytes::from("first"))], "all or none");
    });
}

#[test]
fn results_that_are_lost_take_their_failures_along() {
    with_store(|store, _| async move {
        let [other, owned] = two_runs(&store).await;
        let discard = DiscardResults { no: owned.0.no, epoch: owned.1, seq: 3, exception: "x".into() };
        store.write(discard).await.expect("discarded");
        assert_eq!(listed(&store, owned.0.no, 0, 10).await, [text(0)]);
        assert_eq!(listed(&store, other.0.no, 0, 10).await.len(), 2);
    });
}

#[test]
fn failures_go_with_their_blocks() {
    with_store(|store, _| async move {
        let [other, owned] = two_runs(&store).await;
        let finish = FinishRun {
            no: owned.0.no,
            epoch: owned.1,
            state: RunState::Stopped,
            reason: None,
            counters: Counters::default(),
            block_times: 0,
            start_time: None,
            start_returned: true,
            result: None,
            follow: false,
            by: None,
            now: T,
        };
        store.write(finish).await.expect("ended");
        assert_eq!(store.read(CountFailures).await, Ok(4));
        while store.write(DeleteRuns(vec![owned.0.no])).await.expect("deleted").runs == 0 {}
        assert_eq!(store.read(CountFailures).await, Ok(2));
        assert_eq!(listed(&store, other.0.no, 0, 10).await, [text(0), text(3)]);
    });
}

#[test]
fn a_request_is_found_where_it_is() {
    with_store(|store, _| async move {
        let [other, owned] = two_runs(&store).await;
        store.write(push(&owned, 4..5)).await.expect("pushed");
        let find = |of: &(Run, i64), print| store.read(FindRequest { no: of.0.no, print });
        assert_eq!(find(&owned, prints(4)[1]).await, Ok(Some(4)));
        assert_eq!(find(&other, prints(4)[1]).await, Ok(None), "another run's");
        assert_eq!(find(&owned, prints(9)[0]).await, Ok(None));
        // A match across two ids does not count.
        let [first, second] = [prints(4)[0].0, prints(4)[1].0];
        let mut across = first;
        across[..6].copy_from_slice(&first[6..]);
        across[6..].copy_from_slice(&second[..6]);
        assert_eq!(find(&owned, Fingerprint(across)).await, Ok(None));
    });
}

#[test]
fn sites_of_a_run_are_counted_with_their_failures() {
    with_store(|store, _| async move {
        let [owned, other] = [run(&store).await, run(&store).await];
        let at = |seq, site: &str| NewBlock { site: Some(site.into()), ..block(seq) };
        for of in [&owned, &other] {
            let blocks = vec![at(0, "b.test"), at(1, "a.test"), at(2, "a.test"), block(3), at(4, "c.test")];
            store.write(PushBlocks { no: of.0.no, epoch: of.1, blocks, now: T }).await.expect("pushed");
        }
        for seq in [1, 2, 3] {
            store.write(failing(&owned, seq)).await.expect("stored");
        }
        let list = async |after: &str, limit| {
            let sites = store.read(ListRunSites { no: owned.0.no, after: after.to_owned(), limit }).await.expect("read");
            sites.into_iter().map(|site| (site.name, site.requests, site.success, site.error)).collect::<Vec<_>>()
        };
        let [a, b, c] = [("a.test".to_owned(), 6, 4, 2), ("b.test".to_owned(), 3, 0, 0), ("c.test".to_owned(), 3, 0, 0)];
        assert_eq!(list("", 10).await, [a, b.clone(), c]);
        assert_eq!(list("a.test", 1).await, [b]);
        let failures = async |sites: &[&str], from, limit| {
            let sites = sites.iter().map(|site| (*site).to_owned()).collect();
            let blocks = store.read(ListFailures { no: owned.0.no, from, limit, sites }).await.expect("read");
            blocks.into_iter().map(|block| block.seq).collect::<Vec<_>>()
        };
        assert_eq!(failures(&["a.test", "b.test"], 0, 9).await, [1, 2]);
        assert_eq!((failures(&["a.test"], 0, 1).await, failures(&["a.test"], 2, 1).await), (vec![1], vec![2]));
        assert_eq!(failures(&["c.test"], 0, 9).await, [0; 0]);
        assert_eq!(failures(&[], 0, 9).await, [1, 2, 3]);
    });
}
