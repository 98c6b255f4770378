//! Strategies by example, and guarantees under random use.

use super::*;
use crate::domain::ids::Identity;
use proptest::prelude::Just;
use proptest::prelude::{any, prop};
use proptest::strategy::Strategy as Gives;
use proptest::{prop_assert, prop_assert_eq, prop_oneof, proptest};
use std::collections::HashSet;
use uuid::Uuid;

fn worker(n: u128) -> WorkerId {
    WorkerId(Uuid::from_u128(n))
}

fn capacity(handlers: &[&str], slots: u32) -> WorkerCapacity {
    WorkerCapacity { handlers: handlers.iter().map(|h| (*h).to_owned()).collect(), slots, ..WorkerCapacity::default() }
}

fn request(n: u128, strategy: Strategy) -> WorkerRequest {
    WorkerRequest {
        requester: (Identity(Uuid::from_u128(n)), 0),
        handler: "h".into(),
        settings: Arc::new(TaskSettings { strategy, ..TaskSettings::default() }),
        key: n as u64 % 7,
        priority: 0,
        excluded: Vec::new(),
        only: None,
        needs_slot: true,
        chance: n as u64,
    }
}

fn three(slots: u32) -> WorkerPool {
    let mut worker_pool = WorkerPool::default();
    for n in 1..=3 {
        assert!(worker_pool.join(worker(n), WorkerCapacity { name: format!("w{n}"), ..capacity(&["h"], slots) }, true, None).is_empty());
    }
    worker_pool
}

fn granted(outcome: RequestOutcome) -> WorkerId {
    match outcome {
        RequestOutcome::Granted { grant, .. } => grant.worker,
        other => panic!("{other:?}"),
    }
}

#[test]
fn round_robin_takes_the_workers_in_turn() {
    let mut worker_pool = three(10);
    let got: Vec<_> = (0..6).map(|n| granted(worker_pool.request(request(n, Strategy::RoundRobin)))).collect();
    assert_eq!(got, [1, 2, 3, 1, 2, 3].map(worker));
}

#[test]
fn the_least_loaded_has_the_smallest_part_taken() {
    let mut worker_pool = WorkerPool::default();
    worker_pool.join(worker(1), capacity(&["h"], 2), true, None);
    worker_pool.join(worker(2), capacity(&["h"], 6), true, None);
    let got: Vec<_> = (0..8).map(|n| granted(worker_pool.request(request(n, Strategy::LeastLoaded)))).collect();
    assert_eq!(got.iter().filter(|id| **id == worker(1)).count(), 2);
    assert_eq!(got.iter().take(4).filter(|id| **id == worker(1)).count(), 1, "{got:?}");
    assert_eq!(worker_pool.request(request(9, Strategy::LeastLoaded)), RequestOutcome::Waits);
}

#[test]
fn the_same_key_gets_the_same_worker_and_waits_for_it() {
    let mut worker_pool = three(1);
    let first = granted(worker_pool.request(request(3, Strategy::Hash)));
    assert_eq!(worker_pool.request(request(10, Strategy::Hash)), RequestOutcome::Waits, "the same key, and its worker is full");
    let incarnation = worker_pool.members[&first].incarnation;
    let next = worker_pool.release(first, incarnation);
    assert_eq!(next.iter().map(|g| (g.requester.0.0.as_u128(), g.worker)).collect::<Vec<_>>(), [(10, first)]);
    // After it leaves, another worker gets its keys, and the tasks that waited for it are served there.
    assert_eq!(worker_pool.request(request(17, Strategy::Hash)), RequestOutcome::Waits);
    let (moved, _) = worker_pool.leave(first);
    assert!(moved.iter().all(|g| g.worker != first) && moved.len() == 1, "{moved:?}");
}

#[test]
fn sticky_stays_while_it_can() {
    let mut worker_pool = three(2);
    let first = granted(worker_pool.request(request(3, Strategy::Sticky)));
    assert_eq!(granted(worker_pool.request(request(10, Strategy::Sticky))), first);
    assert_eq!(worker_pool.request(request(17, Strategy::Sticky)), RequestOutcome::Waits);
    assert_eq!(worker_pool.leave(first).0.len(), 1, "it goes to another one when that one is gone");
}

#[test]
fn tasks_that_wait_with_a_key_follow_it_to_another_worker() {
    let mut worker_pool = three(2);
    let first = granted(worker_pool.request(request(3, Strategy::Sticky)));
    assert_eq!(granted(worker_pool.request(request(10, Strategy::Sticky))), first);
    assert_eq!(worker_pool.request(request(17, Strategy::Sticky)), RequestOutcome::Waits);
    // The first worker did not complete this one, so another worker gets it, and with it the key.
    let again = WorkerRequest { excluded: vec![first], ..request(24, Strategy::Sticky) };
    let RequestOutcome::Granted { grant, moved } = worker_pool.request(again) else { panic!("no grant") };
    assert_ne!(grant.worker, first);
    assert_eq!(moved.iter().map(|g| (g.requester.0.0.as_u128(), g.worker)).collect::<Vec<_>>(), [(17, grant.worker)]);
}

#[test]
fn a_task_that_cannot_follow_its_key_gets_the_free_slot_of_another_worker() {
    let mut worker_pool = three(1);
    assert_eq!(granted(worker_pool.request(request(3, Strategy::Sticky))), worker(1));
    let without = |n, id| WorkerRequest { excluded: vec![worker(id)], ..request(n, Strategy::Sticky) };
    assert_eq!(worker_pool.request(without(10, 2)), RequestOutcome::Waits);
    let RequestOutcome::Granted { grant, moved } = worker_pool.request(without(17, 1)) else { panic!("no grant") };
    assert_eq!(grant.worker, worker(2));
    assert_eq!(moved.iter().map(|g| (g.requester.0.0.as_u128(), g.worker)).collect::<Vec<_>>(), [(10, worker(3))]);
}

#[test]
fn failover_is_in_the_order_of_names() {
    let mut worker_pool = three(1);
    assert_eq!(granted(worker_pool.request(request(1, Strategy::Failover))), worker(1));
    assert_eq!(worker_pool.request(request(2, Strategy::Failover)), RequestOutcome::Waits);
    assert!(worker_pool.set_reachable(worker(1), false).is_empty(), "it may be back in a moment");
    let moved = worker_pool.set_disabled(worker(1), Some("maintenance".to_owned()));
    assert_eq!(moved.iter().map(|g| g.worker).collect::<Vec<_>>(), [worker(2)]);
}

#[test]
fn a_worker_must_meet_all_requirements() {
    let mut worker_pool = WorkerPool::default();
    let gpu =
        WorkerCapacity { group: Some("A".into()), version: Some("2".into()), tags: vec!["gpu".into(), "x".into()], ..capacity(&["h"], 1) };
    worker_pool.join(worker(1), gpu, true, None);
    let with = |settings: TaskSettings| WorkerRequest { settings: Arc::new(settings), ..request(1, Strategy::RoundRobin) };
    let some = |text: &str| Some(text.to_owned());
    assert_eq!(
        worker_pool.request(with(TaskSettings { group: some("b"), ..TaskSettings::default() })),
        RequestOutcome::NoWorker(NotEligible::Unsuitable)
    );
    assert_eq!(
        worker_pool.request(with(TaskSettings { version: some("1"), ..TaskSettings::default() })),
        RequestOutcome::NoWorker(NotEligible::Unsuitable)
    );
    assert_eq!(
        worker_pool.request(with(TaskSettings { tags: vec!["GPU".into(), "y".into()], ..TaskSettings::default() })),
        RequestOutcome::NoWorker(NotEligible::Unsuitable)
    );
    let right = TaskSettings { group: some("a"), version: some("2"), tags: vec!["GPU".into()], ..TaskSettings::default() };
    assert_eq!(granted(worker_pool.request(with(right))), worker(1));
    assert_eq!(
        worker_pool.request(WorkerRequest { handler: "other".into(), ..request(2, Strategy::RoundRobin) }),
        RequestOutcome::NoWorker(NotEligible::Unwatched)
    );
}

#[test]
fn a_worker_that_did_not_complete_a_task_gets_it_again_only_if_there_is_no_other() {
    let mut worker_pool = three(1);
    let again = |n| WorkerRequest { excluded: vec![worker(1), worker(2)], ..request(n, Strategy::RoundRobin) };
    assert_eq!(granted(worker_pool.request(again(1))), worker(3));
    assert_eq!(worker_pool.request(again(2)), RequestOutcome::Waits, "the third is full, and waited for");
    let (moved, _) = worker_pool.leave(worker(3));
    assert_eq!(moved.len(), 1);
}

#[test]
fn a_higher_priority_comes_first() {
    let mut worker_pool = WorkerPool::default();
    assert_eq!(worker_pool.request(request(1, Strategy::RoundRobin)), RequestOutcome::NoWorker(NotEligible::Unwatched));
    assert_eq!(
        worker_pool.request(WorkerRequest { priority: 5, ..request(2, Strategy::RoundRobin) }),
        RequestOutcome::NoWorker(NotEligible::Unwatched)
    );
    let grants = worker_pool.join(worker(1), capacity(&["h"], 1), true, None);
    assert_eq!(grants[0].requester.0.0.as_u128(), 2);
    let grants = worker_pool.release(worker(1), grants[0].incarnation);
    assert_eq!(grants[0].requester.0.0.as_u128(), 1);
}

#[test]
fn requests_for_a_worker_that_left_are_returned() {
    let mut worker_pool = three(1);
    granted(worker_pool.request(request(1, Strategy::Failover)));
    let waits = WorkerRequest { only: Some(worker(1)), ..request(2, Strategy::Broadcast) };
    assert_eq!(worker_pool.request(waits.clone()), RequestOutcome::Waits);
    assert_eq!(worker_pool.leave(worker(1)), (Vec::new(), vec![waits.requester]));
}

#[test]
fn a_slot_of_an_earlier_incarnation_is_not_released() {
    let mut worker_pool = three(1);
    let RequestOutcome::Granted { grant, .. } = worker_pool.request(request(1, Strategy::RoundRobin)) else { panic!("no grant") };
    worker_pool.leave(grant.worker);
    worker_pool.join(grant.worker, capacity(&["h"], 1), true, None);
    worker_pool.occupy(grant.worker);
    assert!(worker_pool.release(grant.worker, grant.incarnation).is_empty());
    assert_eq!(worker_pool.members[&grant.worker].used_slots, 1);
}

#[derive(Debug, Clone)]
enum Step {
    Join(u128, u8, u32),
    Reachable(u128, bool),
    Disabled(u128, bool),
    Leave(u128),
    /// With a group, and workers that did not complete it.
    Request(u128, Strategy, bool, Vec<WorkerId>),
    Release(usize),
    Withdraw(u128),
}

fn step() -> impl Gives<Value = Step> {
    let strategy = prop_oneof![
        1 => Just(Strategy::RoundRobin),
        1 => Just(Strategy::Random),
        1 => Just(Strategy::LeastLoaded),
        1 => Just(Strategy::Hash),
        6 => Just(Strategy::Sticky),
        1 => Just(Strategy::Failover)
    ];
    prop_oneof![
        2 => (1..5u128, 1..4u8, 0..4u32).prop_map(|(w, h, s)| Step::Join(w, h, s)),
        1 => (1..5u128, any::<bool>()).prop_map(|(w, o)| Step::Reachable(w, o)),
        1 => (1..5u128, any::<bool>()).prop_map(|(w, b)| Step::Disabled(w, b)),
        1 => (1..5u128).prop_map(Step::Leave),
        6 => (0..40u128, strategy, any::<bool>(), prop::collection::vec((1..5u128).prop_map(worker), 0..3))
            .prop_map(|(a, s, g, e)| Step::Request(a, s, g, e)),
        4 => (0..100usize).prop_map(Step::Release),
        1 => (0..40u128).prop_map(Step::Withdraw),
    ]
}

proptest! {
    #[test]
    fn no_request_waits_while_a_slot_for_it_is_free(steps in prop::collection::vec(step(), 1..120)) {
        let mut worker_pool = WorkerPool::default();
        let mut held: Vec<Grant> = Vec::new();
        let mut waits: HashSet<u128> = HashSet::new();
        for step in steps {
            let grants = match step {
                Step::Join(w, handlers, slots) => {
                    let names: Vec<&str> = ["h", "g"].into_iter().enumerate().filter(|(i, _)| handlers >> i & 1 == 1).map(|(_, n)| n).collect();
                    let group = (w % 2 == 1).then(|| "odd".to_owned());
                    worker_pool.join(worker(w), WorkerCapacity { group, ..capacity(&names, slots) }, true, None)
                }
                Step::Reachable(w, is_reachable) => worker_pool.set_reachable(worker(w), is_reachable),
                Step::Disabled(w, disabled) => worker_pool.set_disabled(worker(w), disabled.then(|| "maintenance".to_owned())),
                Step::Leave(w) => {
                    held.retain(|grant| grant.worker != worker(w));
                    worker_pool.leave(worker(w)).0
                }
                Step::Request(n, strategy, has_group, excluded) => {
                    if held.iter().any(|g| g.requester.0.0.as_u128() == n) {
                        continue;
                    }
                    let handler = if n % 3 == 0 { "g" } else { "h" };
                    let settings = TaskSettings { strategy, group: has_group.then(|| "odd".to_owned()), ..TaskSettings::default() };
                    let (settings, key) = (Arc::new(settings), n as u64 % 4);
                    match worker_pool.request(WorkerRequest { handler: handler.into(), settings, excluded, key, ..request(n, strategy) }) {
                        RequestOutcome::Granted { grant, moved } => { waits.remove(&n); held.push(grant); moved }
                        RequestOutcome::Waits | RequestOutcome::NoWorker(_) => { waits.insert(n); Vec::new() }
                    }
                }
                Step::Release(i) if !held.is_empty() => {
                    let grant = held.swap_remove(i % held.len());
                    worker_pool.release(grant.worker, grant.incarnation)
                }
                Step::Release(_) => Vec::new(),
                Step::Withdraw(n) => {
                    waits.remove(&n);
                    worker_pool.withdraw((Identity(Uuid::from_u128(n)), 0));
                    Vec::new()
                }
            };
            for grant in grants {
                prop_assert!(waits.remove(&grant.requester.0.0.as_u128()), "granted to a request that does not wait");
                held.push(grant);
            }
            prop_assert_eq!(worker_pool.waiting.len(), waits.len());
            prop_assert_eq!(worker_pool.queues.values().map(BTreeMap::len).sum::<usize>(), waits.len());
            let by_key: HashSet<Requester> = worker_pool.waiting_by_key.values().flatten().copied().collect();
            let sticky = worker_pool.queues.values().flat_map(BTreeMap::values).filter(|r| r.settings.strategy == Strategy::Sticky);
            prop_assert_eq!(by_key, sticky.map(|r| r.requester).collect());
            for (id, member) in &worker_pool.members {
                prop_assert_eq!(held.iter().filter(|g| g.worker == *id).count(), member.used_slots as usize);
            }
            for queue in worker_pool.queues.values() {
                for request in queue.values() {
                    let target = worker_pool.target(request).or(request.only);
                    prop_assert_eq!(target, worker_pool.waiting[&request.requester].0.target);
                    prop_assert_eq!(worker_pool.choose(request, target, |_, member| member.used_slots), None, "{:?} waits although a slot is free", request);
                }
            }
        }
    }
}

#[test]
fn a_worker_that_is_disabled_when_it_joins_gets_nothing() {
    let mut worker_pool = WorkerPool::default();
    assert_eq!(worker_pool.request(request(1, Strategy::RoundRobin)), RequestOutcome::NoWorker(NotEligible::Unwatched));
    assert!(worker_pool.join(worker(1), capacity(&["h"], 1), true, Some("maintenance".to_owned())).is_empty());
    let disabled = vec![(worker(1), String::new())];
    assert_eq!(worker_pool.request(request(2, Strategy::RoundRobin)), RequestOutcome::NoWorker(NotEligible::Disabled(disabled)));
    worker_pool.withdraw(request(2, Strategy::RoundRobin).requester);
    let other = WorkerCapacity { slots: 0, ..capacity(&["h"], 1) };
    worker_pool.join(worker(2), other, true, None);
    assert_eq!(
        worker_pool.request(request(3, Strategy::RoundRobin)),
        RequestOutcome::NoWorker(NotEligible::Unsuitable),
        "not all are disabled"
    );
    worker_pool.withdraw(request(3, Strategy::RoundRobin).requester);
    assert_eq!(worker_pool.set_disabled(worker(1), None).len(), 1);
}

/// A run of a block job.
fn block_run(n: u128, settings: TaskSettings) -> WorkerRequest {
    WorkerRequest { needs_slot: false, settings: Arc::new(settings), ..request(n, Strategy::RoundRobin) }
}

#[test]
fn a_block_run_needs_no_slot() {
    let mut worker_pool = three(0);
    let mut found = |settings: TaskSettings| worker_pool.find(&block_run(1, settings), |w| (w != worker(2)).into());
    let of = |strategy| TaskSettings { strategy, ..TaskSettings::default() };
    let got: Vec<_> = (0..4).map(|_| found(TaskSettings::default())).collect();
    assert_eq!(got, [1, 2, 3, 1].map(|n| Ok(worker(n))), "in turn");
    assert_eq!(found(of(Strategy::LeastLoaded)), Ok(worker(2)));
    assert_eq!(found(of(Strategy::LeastRecentlyUsed)), Ok(worker(3)));
    assert_eq!(found(of(Strategy::Failover)), Ok(worker(1)));
    let first = found(of(Strategy::Hash));
    assert!((0..5).all(|_| found(of(Strategy::Hash)) == first));
}

#[test]
fn a_block_run_gets_only_a_worker_that_it_may_have() {
    let mut worker_pool = WorkerPool::default();
    let red = || TaskSettings { group: Some("Red".into()), tags: vec!["gpu".into()], ..TaskSettings::default() };
    let find = |pool: &mut WorkerPool| pool.find(&block_run(1, red()), |_| 0);
    assert_eq!(find(&mut worker_pool), Err(NotEligible::Unwatched));
    let with = |group: &str, tags: &[&str]| WorkerCapacity {
        group: Some(group.to_owned()),
        tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        ..capacity(&["h"], 1)
    };
    worker_pool.join(worker(1), with("blue", &["gpu"]), true, None);
    worker_pool.join(worker(2), with("red", &[]), true, None);
    assert_eq!(find(&mut worker_pool), Err(NotEligible::Unsuitable));
    let why: Vec<_> = worker_pool.explain(&block_run(1, red())).into_iter().map(|obstacle| obstacle.why).collect();
    let unsuitable = |why: &str| Obstacle::Unsuitable(why.to_owned());
    assert_eq!(why, [unsuitable("its group is blue, and Red is required"), unsuitable("it has no tag gpu")]);
    worker_pool.join(worker(3), with("red", &["gpu"]), false, None);
    assert_eq!(find(&mut worker_pool), Ok(worker(3)), "the order waits until it can be reached");
    worker_pool.set_disabled(worker(3), Some("maintenance".to_owned()));
    assert_eq!(find(&mut worker_pool), Err(NotEligible::Unsuitable));
    assert_eq!(worker_pool.explain(&block_run(1, red()))[2].why, Obstacle::Disabled("maintenance".to_owned()));
}
