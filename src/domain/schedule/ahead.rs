//! Decides a fire shortly before its time, so that at its time only the run has to be dispatched.
//!
//! The plan is then decided up to a time in the future. A clock that went back a little has the same effect, and the same code
//! handles both.

use super::decide::{Circumstances, FireOutcome, SMALL_STEP_MS, Step, decide};
use super::plan::{Plan, PlanState};
use super::policies::{MisfirePolicy, Overlap, Policies};
use crate::domain::time::Timestamp;

/// How long before its time a fire may be decided, in milliseconds. This is enough for some ten thousand fires at one time if broker and
/// PostgreSQL share two processors, and for more with SQLite.
pub const AHEAD_MS: i64 = 1_900;
/// The minimum gap to the next fire: a job must not have more than one run that has not begun, and a job with short intervals must
/// not have fires that are decided already and would have to be made up for.
const SHORTEST_GAP_MS: i64 = 2_500;
/// The same if runs may not overlap: a run that has not begun blocks others, so this must not be a large part of the time.
const SHORTEST_GAP_ALONE_MS: i64 = 60_000;

const _: () =
    assert!(AHEAD_MS < SHORTEST_GAP_MS, "of two fires that are decided ahead, the first must have begun before the second is decided");
const _: () = assert!(AHEAD_MS < SMALL_STEP_MS, "a plan that is decided ahead of its time must not look like a clock that went back");

/// Whether these policies allow fires to be decided ahead of their time.
#[must_use]
pub fn may_be_ahead(policies: &Policies) -> bool {
    // The other policies depend on the runs that are queued or replaced at the time of the fire.
    let is_simple = matches!(policies.overlap.unwrap_or(Overlap::Skip), Overlap::Skip | Overlap::Allow);
    // This policy prefers no run to a late one: if the broker dies before the time, there must be no run.
    is_simple && policies.misfire.policy != MisfirePolicy::Skip
}

/// The decision for the next fire as it will be made at its time: `None` if something may still change it, or if its result is not
/// exactly one run.
#[must_use]
pub fn decide_ahead(plan: &Plan, policies: &Policies, state: &PlanState, given: &Circumstances<'_>, at: Timestamp) -> Option<Step> {
    let may_overlap = policies.overlap == Some(Overlap::Allow);
    if !may_be_ahead(policies) || !may_overlap && given.open.any() {
        return None;
    }
    if plan.longest_silence.is_some() {
        // If the fire is withdrawn, the ledger may not contain the last fire, which this rule counts from.
        return None;
    }
    let gap = if may_overlap { SHORTEST_GAP_MS } else { SHORTEST_GAP_ALONE_MS };
    let step = decide(plan, policies, state, given, at);
    let is_plain = matches!(step.rows.as_slice(), [row] if row.at == at && row.fate == FireOutcome::Fire { queued: false });
    let is_rare = || plan.next(&step.state, false).is_none_or(|next| next.at.since_ms(at) >= gap);
    (is_plain && step.rewind.is_none() && !step.replace && is_rare()).then_some(step)
}

/// The fire that was decided ahead of its time, as recorded in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// Its time, which is in the future.
    pub at: Timestamp,
    /// A run had requested it.
    pub was_asked: bool,
    /// The scheduled time of the fire before it that made a run.
    pub previous: Option<Timestamp>,
    /// The time up to which the plan was certainly decided before it: the row before it, and the last change of the job.
    pub decided_until: Timestamp,
}

/// The plan state without the fire that was decided ahead: `at` is undecided again.
#[must_use]
pub fn withdrawn(state: &PlanState, ahead: &Ahead, now: Timestamp) -> PlanState {
    PlanState {
        // The clock may have gone back a little since then.
        decided_until: now.max(ahead.decided_until).min(ahead.at.plus_ms(-1)),
        asked_at: state.asked_at.or(ahead.was_asked.then_some(ahead.at)),
        last_fire: ahead.previous,
        fires: state.fires.saturating_sub(1),
        ..*state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::{Misfire, Open, Schedule, Trigger};

    const MINUTE: i64 = 60_000;

    fn ahead(every: i64, policies: &Policies, open: usize) -> Option<Step> {
        let begin = Timestamp(MINUTE);
        let trigger = Trigger { every: Some(every as u64), anchor: Some(begin), ..Trigger::default() };
        let plan = Schedule { triggers: vec![trigger], ..Schedule::default() }.compile().expect("a schedule");
        let given = Circumstances { open: Open { at_work: open, queued: 0 }, ..Circumstances::default() };
        decide_ahead(&plan, policies, &PlanState::new(begin), &given, begin.plus_ms(every))
    }

    fn overlap(overlap: Overlap) -> Policies {
        Policies { overlap: Some(overlap), ..Policies::default() }
    }

    #[test]
    fn a_plain_fire_is_decided_as_at_its_time() {
        let step = ahead(MINUTE, &Policies::default(), 0).expect("it is plain");
        assert_eq!((step.rows.len(), step.state.decided_until, step.state.fires), (1, Timestamp(2 * MINUTE), 1));
        assert_eq!((step.rows[0].at, step.rows[0].rule), (Timestamp(2 * MINUTE), "due"));
    }

    #[test]
    fn what_may_still_change_is_decided_at_its_time() {
        assert_eq!(ahead(MINUTE, &Policies::default(), 1), None, "the other run may be over by then");
        assert!(ahead(MINUTE, &overlap(Overlap::Allow), 1).is_some());
        for policy in [Overlap::QueueOne, Overlap::QueueAll, Overlap::Replace] {
            assert_eq!(ahead(MINUTE, &overlap(policy), 0), None, "{policy:?}");
        }
        let skip = Policies { misfire: Misfire { policy: MisfirePolicy::Skip, ..Misfire::default() }, ..Policies::default() };
        assert_eq!(ahead(MINUTE, &skip, 0), None, "a late run would be worse than none");
    }

    #[test]
    fn what_is_taken_back_is_decided_again() {
        let trigger = Trigger { every: Some(MINUTE as u64), anchor: Some(Timestamp(0)), ..Trigger::default() };
        let plan = Schedule { triggers: vec![trigger], ..Schedule::default() }.compile().expect("a schedule");
        let before = PlanState { last_fire: Some(Timestamp(0)), fires: 1, ..PlanState::new(Timestamp(0)) };
        let (policies, given, at) = (Policies::default(), Circumstances::default(), Timestamp(MINUTE));
        let decided = decide_ahead(&plan, &policies, &before, &given, at).expect("it is plain").state;
        let now = Timestamp(MINUTE - 500);
        let ahead = Ahead { at, was_asked: false, previous: before.last_fire, decided_until: Timestamp(0) };
        let state = withdrawn(&decided, &ahead, now);
        assert_eq!(state, PlanState { decided_until: now, ..before });
        assert_eq!(plan.next(&state, false).map(|next| next.at), Some(at));
        assert_eq!(withdrawn(&decided, &Ahead { decided_until: now, ..ahead }, Timestamp(9)), state, "the clock went back");
        let asked = Ahead { was_asked: true, ..ahead };
        assert_eq!(withdrawn(&decided, &asked, now).asked_at, Some(at));
    }

    #[test]
    fn few_are_ahead_at_once() {
        assert_eq!(ahead(MINUTE - 1, &Policies::default(), 0), None);
        assert_eq!(ahead(SHORTEST_GAP_MS - 1, &overlap(Overlap::Allow), 0), None);
        assert!(ahead(SHORTEST_GAP_MS, &overlap(Overlap::Allow), 0).is_some());
    }
}
