//! Checks the guarantees of the frontier: examples, then a seeded random walk with a store that loses uncommitted writes.

use super::*;
use crate::domain::block::{AckVerdict, Admission};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::guards::Shape;
use crate::domain::ids::WorkerId;
use crate::domain::request::{NewRequest, RequestBatch};
use bytes::Bytes;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, HashSet};

#[path = "frontier_elsewhere_tests.rs"]
mod elsewhere;

fn batch(keys: &[u64]) -> RequestBatch {
    let requests = keys
        .iter()
        .map(|k| NewRequest {
            id: Fingerprint::of_key(&k.to_string()),
            span: 0..2,
            depth: (*k % 7) as u32,
            // Each seventh key goes first, each eleventh last.
            priority: if *k == 0 { 0 } else { i8::from(k % 7 == 0) - i8::from(k % 11 == 0) },
            shape: Shape::default(),
            origin: 0,
        })
        .collect();
    RequestBatch { text: Bytes::from_static(b"{}"), requests, ..RequestBatch::default() }
}

fn settings(block_size: u32) -> QueueSettings {
    QueueSettings { block_size, block_attempts: 3, lease: 1_000, ack_wait: 1_000, ..QueueSettings::default() }
}

fn node(n: u128) -> NodeId {
    NodeId(uuid::Uuid::from_u128(n))
}

const T: Timestamp = Timestamp(1_000_000);

fn pushed(frontier: &mut Frontier, keys: &[u64]) -> Admission {
    let admission = frontier.begin_push(&batch(keys), |_| None);
    for (seq, requests) in &admission.blocks {
        frontier.stored(*seq, requests.len() as u32);
    }
    admission
}

#[test]
fn duplicates_are_dropped_and_repetitions_are_not() {
    let mut frontier = Frontier::new(settings(2));
    let first = pushed(&mut frontier, &[1, 2, 1, 3]);
    assert_eq!((first.accepted, first.duplicates, first.blocks.len()), (3, 1, 2));
    assert_eq!(pushed(&mut frontier, &[3, 2]).duplicates, 2);
    let mut again = batch(&[3]);
    again.requests[0].id = Fingerprint::unique();
    assert_eq!(frontier.begin_push(&again, |_| None).accepted, 1, "a retry is not taken for a duplicate");
    assert_eq!((frontier.counters().total, frontier.pending()), (3, 4), "what is not on disk is pending only");
    assert!(frontier.is_storing());
}

#[test]
fn a_block_whose_commit_is_told_late_is_handed_out_all_the_same() {
    let mut frontier = Frontier::new(settings(1));
    let admission = frontier.begin_push(&batch(&[1, 2]), |_| None);
    assert_eq!(admission.blocks.len(), 2);
    frontier.stored(1, 1);
    assert_eq!(frontier.lease(node(1), T).map(|(seq, _)| seq), Some(1));
    frontier.stored(0, 1);
    assert_eq!(frontier.lease(node(1), T).map(|(seq, _)| seq), Some(0));
}

#[test]
fn depth_and_number_are_limited() {
    let mut frontier = Frontier::new(QueueSettings { depth_limit: Some(2), max_requests: Some(2), ..settings(10) });
    let admission = pushed(&mut frontier, &[0, 5, 1, 2]);
    assert_eq!((admission.accepted, admission.too_deep, admission.over_limit), (2, 1, 1));
}

#[test]
fn a_site_is_limited_and_a_trap_is_not_taken() {
    let mut frontier = Frontier::new(QueueSettings { max_per_site: Some(2), ..settings(10) });
    let sites = ["a", "b"].map(|name| frontier.site_number(name));
    let mut many = batch(&[0, 1, 2, 3, 4, 5]);
    many.requests[5].shape = Shape::of("http://b/x/x/x/x/x");
    let admission = frontier.begin_push(&many, |i| Some(sites[usize::from(i >= 4)]));
    assert_eq!((admission.accepted, admission.over_limit, admission.trapped), (3, 2, 1));
    let again = frontier.begin_push(&batch(&[0, 6]), |_| Some(sites[0]));
    assert_eq!((again.duplicates, again.over_limit), (1, 1));
}

#[test]
fn a_late_report_changes_nothing() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1]);
    let (seq, first) = frontier.lease(node(1), T).expect("ready");
    assert_eq!(frontier.check_report(seq, node(2), None), ReportVerdict::Late, "another's");
    assert_eq!(frontier.lost(seq, node(1), first.attempt), Some(Lost::Retry(1)));
    assert_eq!(frontier.check_report(seq, node(1), Some(1)), ReportVerdict::Current, "nobody else works on it");
    let (_, second) = frontier.lease(node(2), T).expect("ready again");
    assert_eq!(second.attempt, 2);
    assert_eq!(frontier.check_report(seq, node(1), Some(1)), ReportVerdict::Late);
    assert_eq!(frontier.lost(seq, node(1), 1), None, "nor does a late loss");
    assert_eq!(frontier.check_report(seq, node(2), Some(2)), ReportVerdict::Current);
    frontier.begin_report(seq);
    assert_eq!(frontier.check_report(seq, node(2), Some(2)), ReportVerdict::Finished);
}

#[test]
fn a_block_that_no_node_survives_is_given_up() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1]);
    for attempt in 1..=3 {
        let (seq, lease) = frontier.lease(node(1), T).expect("ready");
        let lost = frontier.lost(seq, node(1), lease.attempt);
        assert_eq!(lost, Some(if attempt < 3 { Lost::Retry(attempt) } else { Lost::Exhausted(3) }));
    }
    assert_eq!(frontier.phase(0), Some(Phase::Reporting));
}

#[test]
fn what_is_not_acknowledged_comes_again() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1]);
    frontier.set_start_returned();
    let worker = WorkerId::random();
    let (seq, _) = frontier.lease(node(1), T).expect("ready");
    frontier.begin_report(seq);
    frontier.reported(seq, 1, 0);
    for _ in 0..2 {
        assert_eq!(delivered(&mut frontier, Some(worker), T), Some(seq));
        assert_eq!(delivered(&mut frontier, None, T), None);
        assert!(frontier.worker_gone(worker));
    }
    assert_eq!(delivered(&mut frontier, None, T), Some(seq));
    assert!(!frontier.expire_deliveries(T.plus_ms(999)));
    assert!(frontier.expire_deliveries(T.plus_ms(1_000)));
    assert_eq!(frontier.check_ack(seq), AckVerdict::Current, "a late acknowledgement still counts");
    frontier.begin_ack(seq);
    assert!(!frontier.is_drained());
    frontier.acked(seq);
    assert_eq!(frontier.check_ack(seq), AckVerdict::Already);
    assert!(frontier.is_drained());
    assert_eq!(delivered(&mut frontier, None, T), None, "its stale place in the queue is skipped");
}

fn delivered(frontier: &mut Frontier, worker: Option<WorkerId>, now: Timestamp) -> Option<Seq> {
    frontier.deliver(worker, now).map(|(seq, _)| seq)
}

#[test]
fn an_earlier_delivery_does_not_take_a_later_one_back() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1]);
    let (worker, (seq, _)) = (WorkerId::random(), frontier.lease(node(1), T).expect("ready"));
    frontier.begin_report(seq);
    frontier.reported(seq, 1, 0);
    let (_, first) = frontier.deliver(Some(worker), T).expect("a block");
    // Its results are still being read when the worker polls again, in the same millisecond.
    assert_eq!(frontier.keep_only(worker, &[]), 1);
    let (_, second) = frontier.deliver(Some(worker), T).expect("it comes again");
    assert!(!frontier.is_delivery(seq, first), "the first poll must not hand it out, too");
    frontier.take_back_of(seq, first);
    assert_eq!(frontier.deliver(None, T), None, "it is with the worker");
    frontier.take_back_of(seq, second);
    assert!(frontier.deliver(None, T).is_some());
}

#[test]
fn what_a_worker_does_not_hold_is_delivered_again() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1, 2, 3]);
    while let Some((seq, _)) = frontier.lease(node(1), T) {
        frontier.begin_report(seq);
        frontier.reported(seq, 1, 0);
    }
    let (worker, other) = (WorkerId::random(), WorkerId::random());
    let [held, lost, of_another] = [worker, worker, other].map(|worker| delivered(&mut frontier, Some(worker), T).expect("a block"));
    assert_eq!(frontier.keep_only(worker, &[held, lost]), 0);
    assert_eq!(frontier.keep_only(worker, &[held, of_another]), 1);
    assert_eq!(delivered(&mut frontier, Some(worker), T), Some(lost));
    frontier.begin_ack(held);
    assert_eq!(frontier.keep_only(worker, &[lost]), 0, "an acknowledged block is not delivered again");
    assert_eq!(frontier.check_ack(of_another), AckVerdict::Current);
    assert_eq!(delivered(&mut frontier, None, T), None);
}

#[test]
fn what_went_to_a_worker_that_never_came_goes_to_others() {
    let mut frontier = Frontier::new(settings(1));
    pushed(&mut frontier, &[1]);
    let (seq, _) = frontier.lease(node(1), T).expect("ready");
    frontier.begin_report(seq);
    frontier.reported(seq, 1, 0);
    let worker = WorkerId::random();
    assert_eq!(delivered(&mut frontier, Some(worker), T.plus_ms(5)), Some(seq));
    assert!(!frontier.forget_strangers(T, |_| false), "it may still come");
    assert!(!frontier.forget_strangers(T.plus_ms(5), |w| w == worker), "it is there");
    assert!(frontier.forget_strangers(T.plus_ms(5), |_| false));
    assert_eq!(delivered(&mut frontier, None, T), Some(seq));
}

fn prioritized(keys: &[(u64, i8)]) -> RequestBatch {
    let mut all = batch(&keys.iter().map(|(key, _)| *key).collect::<Vec<_>>());
    for (request, (_, priority)) in all.requests.iter_mut().zip(keys) {
        request.priority = *priority;
    }
    all
}

#[test]
fn a_higher_priority_goes_first_also_after_a_restart() {
    let keys = [(1, 0), (2, -5), (3, 7), (4, 0), (5, 7), (6, 100)];
    let order = [6, 3, 5, 1, 4, 2];
    for with_sites in [false, true] {
        let mut frontier = Frontier::new(settings(1));
        let site = with_sites.then(|| frontier.site_number("http://h.test"));
        let sent = prioritized(&keys);
        let mut disk = Disk::default();
        for (seq, requests) in frontier.begin_push(&sent, |_| site).blocks {
            disk.insert(&frontier, seq, Phase::Ready, requests.iter().map(|i| sent.requests[*i].id).collect());
            frontier.stored(seq, 1);
        }
        let rows: Vec<StoredBlock> = disk.blocks.values().map(|(block, _)| block.clone()).collect();
        let mut again = Frontier::restore(settings(1), false, &rows, SeenSet::new());
        for frontier in [&mut frontier, &mut again] {
            let upcoming: Vec<Seq> = frontier.upcoming(9).collect();
            let mut taken = Vec::new();
            while let Some((seq, lease)) = lease_any(frontier, node(1), T) {
                if taken.is_empty() && lease.attempt == 1 {
                    // It waits again, still before those of a lower priority.
                    frontier.put_back(seq);
                    assert_eq!(lease_any(frontier, node(1), T).map(|(seq, _)| seq), Some(seq));
                }
                taken.push(seq);
                frontier.let_others_pass(seq);
            }
            let keys_taken: Vec<u64> = taken.iter().map(|seq| keys[*seq as usize].0).collect();
            assert_eq!(keys_taken, order, "with sites: {with_sites}");
            assert!(with_sites || upcoming == taken, "what is read ahead is what goes next: {upcoming:?}");
        }
    }
}

#[test]
fn requests_of_one_priority_share_a_block() {
    let mut frontier = Frontier::new(settings(2));
    let admission = frontier.begin_push(&prioritized(&[(1, 0), (2, 3), (3, 0), (4, 3), (5, 3)]), |_| None);
    let blocks: Vec<Vec<usize>> = admission.blocks.iter().map(|(_, requests)| requests.clone()).collect();
    assert_eq!(blocks, [vec![0, 2], vec![1, 3], vec![4]]);
}

/// The contents of a store: blocks by number.
#[derive(Default)]
struct Disk {
    blocks: BTreeMap<Seq, (StoredBlock, Vec<Fingerprint>)>,
    answered_pushes: BTreeSet<u64>,
}

impl Disk {
    fn insert(&mut self, frontier: &Frontier, seq: Seq, phase: Phase, prints: Vec<Fingerprint>) {
        let site = frontier.site_of(seq).map(|no| Box::from(&*frontier.site_name(no)));
        let (requests, priority) = (prints.len() as u32, frontier.priority_of(seq));
        let success = if phase == Phase::Answered { requests } else { 0 };
        self.blocks.insert(seq, (StoredBlock { seq, site, priority, phase, attempts: 0, requests, success, error: 0, bytes: 0 }, prints));
    }

    /// Moves the requests from this index on out of the block.
    fn cut(&mut self, seq: Seq, at: usize) -> Vec<Fingerprint> {
        let (block, prints) = self.blocks.get_mut(&seq).expect("stored");
        let cut = prints.split_off(at);
        block.requests = prints.len() as u32;
        cut
    }
}

/// A node gets a block of any kind.
fn lease_any(frontier: &mut Frontier, node: NodeId, now: Timestamp) -> Option<(Seq, Lease)> {
    match frontier.next_site(node, now) {
        Some(site) => frontier.lease_at(site, node, now),
        None => frontier.lease(node, now),
    }
}

#[test]
fn a_site_that_is_freed_may_be_asked_at_once_under_all_its_names() {
    let mut frontier = Frontier::new(settings(1));
    let names = ["a.org", "http://a.org:8080", "http://b.org"];
    let numbers = names.map(|name| frontier.site_number(name));
    for (seq, requests) in frontier.begin_push(&batch(&[0, 1, 2]), |i| Some(numbers[i])).blocks {
        frontier.stored(seq, requests.len() as u32);
    }
    let later = T.plus_ms(600_000);
    let freed = |frontier: &mut Frontier, name: &str| {
        numbers.iter().for_each(|no| frontier.site_waits(*no, later));
        frontier.sites_freed(&crate::domain::sites::Holds::from_iter([&name.into()]), T);
        frontier.sites(0).filter(|site| site.not_before == T).map(|site| names[site.no as usize]).collect::<Vec<_>>()
    };
    assert_eq!(freed(&mut frontier, "a.org"), ["a.org", "http://a.org:8080"]);
    assert_eq!(freed(&mut frontier, "http://a.org:8080"), ["a.org", "http://a.org:8080"], "a host may be one site");
    assert_eq!(freed(&mut frontier, "b.org"), ["http://b.org"]);
    assert_eq!(
        frontier.sites(2).map(|site| (site.no, site.name.to_string(), site.queued)).collect::<Vec<_>>(),
        [(2, "http://b.org".into(), 1)]
    );
}

#[derive(Debug, Clone)]
enum Step {
    Push(Vec<u64>),
    Lease(u8),
    Report(u8),
    /// Some of its requests have results.
    Part(u8, u8),
    /// Some of its requests have results, the others return to the queue.
    Back(u8, u8),
    Lose(u8),
    /// A hold of its site: a sent block is recalled; a block without a site waits for one.
    Hold(u8),
    Poll,
    Ack(u8, Vec<u64>),
    Expire,
    Crash,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let keys = || proptest::collection::vec(0_u64..60, 0..9);
    proptest::collection::vec(
        prop_oneof![
            3 => keys().prop_map(Step::Push),
            4 => any::<u8>().prop_map(Step::Lease),
            4 => any::<u8>().prop_map(Step::Report),
            2 => (any::<u8>(), any::<u8>()).prop_map(|(n, cut)| Step::Part(n, cut)),
            2 => (any::<u8>(), any::<u8>()).prop_map(|(n, cut)| Step::Back(n, cut)),
            1 => any::<u8>().prop_map(Step::Lose),
            2 => any::<u8>().prop_map(Step::Hold),
            4 => Just(Step::Poll),
            4 => (any::<u8>(), keys()).prop_map(|(n, keys)| Step::Ack(n, keys)),
            1 => Just(Step::Expire),
            1 => Just(Step::Crash),
        ],
        1..200,
    )
}

fn push(frontier: &mut Frontier, disk: &mut Disk, keys: &[u64]) {
    let sent = batch(keys);
    let numbers: Vec<_> = (1..4).map(|n| frontier.site_number(&n.to_string())).collect();
    for (seq, requests) in frontier.begin_push(&sent, |i| numbers.get((keys[i] % 4) as usize).copied()).blocks {
        let prints = requests.iter().map(|i| sent.requests[*i].id).collect();
        let n = requests.len() as u32;
        disk.insert(frontier, seq, Phase::Ready, prints);
        frontier.stored(seq, n);
    }
    disk.answered_pushes.extend(keys);
}

fn pick<T: Copy>(from: &[T], n: u8) -> Option<T> {
    (!from.is_empty()).then(|| from[usize::from(n) % from.len()])
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    /// In every sequence each downloaded key is in exactly one block, the counters equal those of the disk, and
    /// when everything runs to its end every block is acknowledged and the run is over.
    #[test]
    fn nothing_is_lost_and_nothing_doubled(steps in steps(), size in 1_u32..5) {
        let mut frontier = Frontier::new(QueueSettings { block_attempts: 1_000, ..settings(size) });
        let mut disk = Disk::default();
        let mut now = T;
        for step in steps {
            now = now.plus_ms(1);
            let delivered: Vec<Seq> = (0..frontier.phases.len() as Seq).filter(|s| frontier.phase(*s) == Some(Phase::Delivered)).collect();
            let mut leases: Vec<(Seq, Lease)> = frontier.leases().map(|(s, l)| (s, *l)).collect();
            leases.sort_by_key(|(s, _)| *s);
            match step {
                Step::Push(keys) => push(&mut frontier, &mut disk, &keys),
                Step::Lease(n) => { lease_any(&mut frontier, node(u128::from(n % 3)), now); }
                Step::Part(n, cut) => if let Some((seq, lease)) = pick(&leases, n) {
                    let size = disk.blocks[&seq].1.len();
                    if size > 1 {
                        prop_assert_eq!(frontier.check_report(seq, lease.node, Some(lease.attempt)), ReportVerdict::Current);
                        let part = frontier.begin_part(seq);
                        let cut = disk.cut(seq, 1 + usize::from(cut) % (size - 1));
                        let success = cut.len() as u32;
                        disk.insert(&frontier, part, Phase::Answered, cut);
                        frontier.reported(part, success, 0);
                    }
                },
                Step::Back(n, cut) => if let Some((seq, _)) = pick(&leases, n) {
                    let done = usize::from(cut) % disk.blocks[&seq].1.len();
                    frontier.begin_report(seq);
                    if done == 0 {
                        frontier.given_back(seq);
                    } else {
                        let rest = frontier.begin_rest(seq, frontier.site_of(seq), 0);
                        let back = disk.cut(seq, done);
                        disk.insert(&frontier, rest, Phase::Ready, back);
                        let block = &mut disk.blocks.get_mut(&seq).expect("stored").0;
                        (block.phase, block.success) = (Phase::Answered, block.requests);
                        frontier.stored(rest, 0);
                        frontier.reported(seq, done as u32, 0);
                    }
                },
                Step::Report(n) => if let Some((seq, lease)) = pick(&leases, n) {
                    prop_assert_eq!(frontier.check_report(seq, lease.node, Some(lease.attempt)), ReportVerdict::Current);
                    frontier.begin_report(seq);
                    let block = &mut disk.blocks.get_mut(&seq).expect("stored").0;
                    (block.phase, block.success) = (Phase::Answered, block.requests);
                    frontier.reported(seq, block.requests, 0);
                },
                Step::Lose(n) => if let Some((seq, lease)) = pick(&leases, n) {
                    prop_assert!(matches!(frontier.lost(seq, lease.node, lease.attempt), Some(Lost::Retry(_))));
                    let block = &mut disk.blocks.get_mut(&seq).expect("stored").0;
                    (block.phase, block.attempts) = (Phase::Retry, lease.attempt);
                },
                Step::Hold(n) => if let Some((seq, lease)) = pick(&leases, n) {
                    if frontier.site_of(seq).is_some() {
                        frontier.recall(seq);
                        prop_assert_eq!(frontier.check_report(seq, lease.node, Some(lease.attempt)), ReportVerdict::Current);
                    } else {
                        let site = frontier.site_number("4");
                        frontier.wait_for_site(seq, site);
                    }
                    prop_assert_eq!((frontier.phase(seq), frontier.lease_of(seq)), (Some(Phase::Queued), None));
                },
                Step::Poll => { frontier.deliver(None, now); }
                Step::Ack(n, keys) => if let Some(seq) = pick(&delivered, n) {
                    frontier.begin_ack(seq);
                    push(&mut frontier, &mut disk, &keys);
                    disk.blocks.get_mut(&seq).expect("stored").0.phase = Phase::Done;
                    frontier.acked(seq);
                },
                Step::Expire => { frontier.expire_deliveries(now.plus_ms(2_000)); }
                Step::Crash => {
                    let rows: Vec<StoredBlock> = disk.blocks.values().map(|b| b.0.clone()).collect();
                    let mut seen = SeenSet::new();
                    disk.blocks.values().flat_map(|b| b.1.iter()).for_each(|print| assert!(seen.insert(*print)));
                    frontier = Frontier::restore(frontier.settings.clone(), false, &rows, seen);
                }
            }
            let out: Vec<SiteNo> = frontier.leases().filter_map(|(seq, _)| frontier.site_of(seq)).collect();
            prop_assert_eq!(out.len(), out.iter().collect::<HashSet<_>>().len(), "two blocks of one site are out");
            let queued = frontier.sites(0).map(|site| site.queued).sum::<usize>();
            let phases = (0..frontier.phases.len() as Seq).filter(|seq| frontier.phase(*seq) == Some(Phase::Queued)).count();
            prop_assert_eq!((frontier.queued(), queued), (phases, phases));
            let c = frontier.counters();
            prop_assert_eq!(c.total, disk.blocks.values().map(|b| u64::from(b.0.requests)).sum::<u64>());
            prop_assert_eq!(c.success, disk.blocks.values().map(|b| u64::from(b.0.success)).sum::<u64>());
            prop_assert_eq!(c.left, c.total - c.success - c.error);
        }
        frontier.set_start_returned();
        while !frontier.is_drained() {
            frontier.expire_deliveries(now.plus_ms(10_000));
            while let Some((_, lease)) = lease_any(&mut frontier, node(9), now) {
                prop_assert_eq!(lease.node, node(9));
            }
            let out: Vec<Seq> = frontier.leases().map(|(s, _)| s).collect();
            for seq in out {
                frontier.begin_report(seq);
                frontier.reported(seq, disk.blocks[&seq].0.requests, 0);
            }
            while let Some((seq, _)) = frontier.deliver(None, now) {
                frontier.begin_ack(seq);
                frontier.acked(seq);
            }
        }
        let mut seen = HashSet::new();
        for print in disk.blocks.values().flat_map(|b| &b.1) {
            prop_assert!(seen.insert(*print), "a request stands in two blocks");
        }
        for key in &disk.answered_pushes {
            prop_assert!(seen.contains(&Fingerprint::of_key(&key.to_string())), "an answered request is in no block");
        }
        prop_assert_eq!(frontier.counters().left, 0);
    }
}

#[test]
fn a_free_site_can_be_bound_again() {
    let mut frontier = Frontier::new(settings(1));
    let site = frontier.site_number("http://h.test");
    frontier.set_free(site);
    let admission = frontier.begin_push(&batch(&[1, 2]), |_| Some(site));
    for (seq, _) in &admission.blocks {
        frontier.stored(*seq, 1);
    }
    let (seq, _) = frontier.lease(node(1), T).expect("it waits for nothing");
    frontier.set_waiting(site);
    frontier.put_back(seq);
    assert_eq!((frontier.ready(), frontier.sites_ready(T, 9)), (1, 1), "it waits for its site again");
    let (seq, _) = frontier.lease_at(site, node(1), T).expect("its turn has come");
    assert_eq!(frontier.sites_ready(T, 9), 0);
    // Reported by a node after a restart, when no block keeps others waiting.
    assert!(frontier.is_out(site));
    frontier.let_others_pass(seq);
    assert!(!frontier.is_out(site));
}
