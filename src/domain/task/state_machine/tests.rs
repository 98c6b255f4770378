//! Which attempts count as lost.

use super::*;
use crate::domain::schedule::Retry;

fn machine(instance: Instance) -> StateMachine {
    StateMachine::new(Arc::new(TaskSettings::default()), RunRules::default(), vec![instance], false)
}

fn is_over(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Finish(RunState::Failed, _)))
}

/// A task continues even if brokers die repeatedly under it; a task that is lost with its workers does not.
#[test]
fn the_death_of_a_broker_is_no_lost_attempt() {
    for attempt in 1..20 {
        let mut machine = machine(Instance::taken_over(Phase::Unclear(Timestamp(10)), attempt, 0));
        let effects = machine.tick(at(10));
        assert!(!is_over(&effects) && machine.instances[0].attempt == attempt + 1, "attempt {attempt}: {effects:?}");
    }
    // Its worker returned, but had dropped the task because the broker was away for longer than the lease.
    let worker = WorkerId::random();
    let mut claimed = machine(Instance::taken_over(Phase::Unclear(Timestamp(10)), 4, 0));
    assert!(claimed.claimed(0, worker, 4));
    assert!(!is_over(&claimed.report(0, worker, 4, AttemptReport::Cancelled(None), at(5)).expect("it is its")));
    // From then on lost attempts count.
    let mut lost = 0;
    while !claimed.is_finished() && lost < 10 {
        claimed.tick(at(100_000));
        assert_eq!(claimed.granted(0, worker).len(), 1);
        let attempt = claimed.instances[0].attempt;
        claimed.lease_over(0, worker, attempt, Timestamp(0), "its worker is gone", at(0));
        lost += 1;
    }
    assert_eq!(lost, TaskSettings::LOST_ATTEMPTS + 1);
}

fn at(ms: i64) -> Moment {
    Moment { now: Timestamp(ms), chance: 0.5 }
}

fn sent(rules: RunRules) -> (StateMachine, WorkerId) {
    let worker = WorkerId::random();
    let mut machine = StateMachine::new(Arc::new(TaskSettings::default()), rules, vec![Instance::new()], false);
    assert_eq!(machine.granted(0, worker), [Effect::Send(0, worker)]);
    machine.sent(0, Timestamp(1_000));
    (machine, worker)
}

#[test]
fn an_attempt_ends_at_its_timeout_and_not_before() {
    let (mut machine, worker) = sent(RunRules { timeout: Some(500), ..RunRules::default() });
    assert_eq!(machine.wake(), Some(Timestamp(1_500)));
    machine.sent(0, Timestamp(1_400));
    assert_eq!(machine.wake(), Some(Timestamp(1_500)), "the same order again does not move the limit");
    assert_eq!(machine.tick(at(1_499)), []);
    assert_eq!(machine.still_running(0, 1, i64::MAX), [], "earlier runs are not asked");
    assert_eq!(machine.tick(at(1_500)), [Effect::Cancel(0, worker, 1, "it took longer than 500 ms".into())]);
    assert_eq!(machine.tick(at(1_600)), [], "it has its grace period");
    // The next attempt has a limit of its own.
    let (mut machine, worker) = sent(RunRules { timeout: Some(500), ..RunRules::default() });
    machine.report(0, worker, 1, AttemptReport::Refused("full".into()), at(1_100)).expect("it is its");
    assert_eq!(machine.tick(at(1_100)), [Effect::RequestSlot(0)]);
    assert_eq!(machine.granted(0, worker), [Effect::Send(0, worker)]);
    machine.sent(0, Timestamp(1_400));
    assert_eq!(machine.wake(), Some(Timestamp(1_900)));
}

#[test]
fn a_worker_that_gives_an_attempt_up_can_say_why() {
    for (why, reason) in [(None, "its worker gave it up"), (Some("no licence is free"), "its worker gave it up: no licence is free")] {
        let (mut machine, worker) = sent(RunRules::default());
        let effects = machine.report(0, worker, 1, AttemptReport::Cancelled(why.map(str::to_owned)), at(1_100)).expect("it is its");
        assert!(effects.contains(&Effect::Retry(0, Timestamp(1_100), format!("attempt 1 failed: {reason}"))), "{effects:?}");
    }
}

#[test]
fn an_attempt_without_a_timeout_is_compared_with_earlier_runs() {
    let minutes = |n: i64| n * 60_000;
    let limit_from = |average| {
        let (mut machine, worker) = sent(RunRules::default());
        assert_eq!((machine.wake(), machine.still_running(0, 1, minutes(5) - 1)), (None, Vec::new()));
        assert_eq!(machine.still_running(0, 2, minutes(5)), [], "another attempt");
        assert_eq!(machine.still_running(0, 1, minutes(5)), [Effect::ReadAverage(0, 1, minutes(5))]);
        assert_eq!(machine.still_running(0, 1, minutes(6)), [], "it was asked");
        machine.average(0, 1, minutes(5), average, Timestamp(0));
        let until = machine.wake().expect("a limit");
        assert_eq!(machine.tick(at(until.0 - 1)), []);
        assert!(
            matches!(machine.tick(at(until.0)).as_slice(), [Effect::Cancel(0, id, 1, why)] if *id == worker && why.contains("earlier runs"))
        );
        until.0 + minutes(5)
    };
    assert_eq!(limit_from(Some(minutes(4) as u64)), minutes(12));
    assert_eq!(limit_from(Some(10)), minutes(5), "never less");
    assert_eq!(limit_from(None), minutes(120));
}

#[test]
fn the_workers_of_a_broadcast_are_counted_at_its_time() {
    let settings = Arc::new(TaskSettings { strategy: Strategy::Broadcast, ..TaskSettings::default() });
    let machine = |phase| StateMachine::new(Arc::clone(&settings), RunRules::default(), vec![Instance::taken_over(phase, 1, 0)], false);
    let mut later = machine(Phase::Pausing(Timestamp(500)));
    assert_eq!((later.begin(), later.tick(at(499)), later.tick(at(500))), (vec![], vec![], vec![Effect::DecideInstances]));
    assert_eq!(later.placed(2), [Effect::RequestSlot(0), Effect::RequestSlot(1)]);
    assert_eq!(machine(Phase::Unclear(Timestamp(500))).begin(), [Effect::DecideInstances], "nothing was sent before it was stored");
    assert_eq!(machine(Phase::Queued).begin(), [Effect::DecideInstances], "it begins when it is not queued any more");
}

#[test]
fn an_attempt_that_finds_no_worker_is_repeated_as_its_rules_say() {
    let rules = RunRules { retry: Some(Retry { limit: 1, delay: 200, jitter: 0.0, ..Retry::default() }), ..RunRules::default() };
    let new = || StateMachine::new(Arc::new(TaskSettings::default()), rules.clone(), vec![Instance::new()], false);
    let mut machine = new();
    let retry = Effect::Retry(0, Timestamp(1_200), "attempt 1 failed: no worker watches h".to_owned());
    assert_eq!(machine.no_worker(0, "no worker watches h".to_owned(), false, at(1_000)), [Effect::WithdrawRequest(0), retry]);
    assert_eq!(machine.tick(at(1_200)), [Effect::RequestSlot(0)]);
    assert!(is_over(&machine.no_worker(0, "no worker watches h".to_owned(), false, at(1_300))), "its last attempt");
    assert!(is_over(&new().no_worker(0, "its worker has left".to_owned(), true, at(1_000))), "no other attempt can find one");
}
