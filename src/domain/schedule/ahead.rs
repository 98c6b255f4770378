//! A fire that is decided a little before its time, so that all that is left to do when the time has come is to send its run.
//!
//! The plan is then decided up to an instant that is still to come, which is what a clock that went back a little leaves
//! too: whatever deals with that deals with this.

use super::decide::{Circumstances, Fate, SMALL_STEP_MS, Step, decide};
use super::plan::{Plan, PlanState};
use super::policies::{Overlap, Policies};
use crate::domain::time::Timestamp;

/// So long before its time a fire may be decided, in milliseconds. It is enough for some ten thousand of them at one instant.
pub const AHEAD_MS: i64 = 900;
/// A run that has not begun keeps others from beginning, where runs may not overlap: not for a large part of the time.
const SHORTEST_GAP_MS: i64 = 60_000;

const _: () = assert!(AHEAD_MS < SMALL_STEP_MS, "a plan that is decided ahead of its time must not look like a clock that went back");

/// The decision on the instant that comes next, as it will be made when its time has come: none if something may still change
/// it, or if it makes anything but one run.
#[must_use]
pub fn decide_ahead(plan: &Plan, policies: &Policies, state: &PlanState, given: &Circumstances<'_>, at: Timestamp) -> Option<Step> {
    let overlap = policies.overlap.unwrap_or(Overlap::Skip);
    let is_settled = match overlap {
        Overlap::Allow => true,
        Overlap::Skip => !given.open.any(),
        // Who is in front of whom, and who is replaced, is seen at the time.
        Overlap::QueueOne | Overlap::QueueAll | Overlap::Replace => false,
    };
    if !is_settled {
        return None;
    }
    let step = decide(plan, policies, state, given, at);
    let is_plain = matches!(step.rows.as_slice(), [row] if row.at == at && row.fate == Fate::Fire { queued: false });
    let is_rare = || plan.next(&step.state, false).is_none_or(|next| next.at.since_ms(at) >= SHORTEST_GAP_MS);
    (is_plain && step.rewind.is_none() && !step.replace && (overlap == Overlap::Allow || is_rare())).then_some(step)
}
