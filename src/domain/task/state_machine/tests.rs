//! Which attempts count as lost.

use super::*;

fn machine(instance: Instance) -> StateMachine {
    StateMachine::new(Arc::new(TaskSettings::default()), RunRules::default(), vec![instance], false)
}

fn is_over(effects: &[Effect]) -> bool {
    effects.iter().any(|effect| matches!(effect, Effect::Finish(RunState::Failed, _)))
}

/// A task continues even if brokers die repeatedly under it; a task that is lost with its workers does not.
#[test]
fn the_death_of_a_broker_is_no_lost_attempt() {
    let at = |ms| Moment { now: Timestamp(ms), chance: 0.5 };
    for attempt in 1..20 {
        let mut machine = machine(Instance::taken_over(Phase::Unclear(Timestamp(10)), attempt, 0));
        let effects = machine.tick(at(10));
        assert!(!is_over(&effects) && machine.instances[0].attempt == attempt + 1, "attempt {attempt}: {effects:?}");
    }
    // Its worker returned, but had dropped the task because the broker was away for longer than the lease.
    let worker = WorkerId::random();
    let mut claimed = machine(Instance::taken_over(Phase::Unclear(Timestamp(10)), 4, 0));
    assert!(claimed.claimed(0, worker, 4));
    assert!(!is_over(&claimed.report(0, worker, 4, AttemptReport::Cancelled, at(5)).expect("it is its")));
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
