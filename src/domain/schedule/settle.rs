//! Applies the end of a run, or a change of the job, to its plan.

use super::decide::Open;
use super::plan::PlanState;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;

/// The effects of the end of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunEndEffects {
    /// The new state of the plan.
    pub state: PlanState,
    /// The job had failed and succeeded again: the number of failures before.
    pub recovered_after: Option<u32>,
    /// The run failed.
    pub failed: bool,
    /// The queued run may begin.
    pub releases: bool,
}

/// Applies the end of a run. `open` are the unfinished runs without it; `ended` is its final state and time, or `None` to only
/// release a queued run.
#[must_use]
pub fn settle(state: &PlanState, ended: Option<(RunState, Timestamp)>, open: Open) -> RunEndEffects {
    let mut out = RunEndEffects { state: *state, recovered_after: None, failed: false, releases: open.at_work == 0 && open.queued > 0 };
    let Some((how, finish)) = ended else { return out };
    match how {
        RunState::Failed => {
            out.failed = true;
            out.state.failures = state.failures.saturating_add(1);
        }
        RunState::Success => {
            out.recovered_after = Some(state.failures).filter(|failures| *failures > 0);
            out.state.failures = 0;
        }
        _ => {}
    }
    if !open.any() {
        out.state.rest_from = state.rest_from.max(finish);
    }
    out
}

/// The plan state of a job that is changed now, after everything due was decided. `begins`: it was disabled and is enabled;
/// `is_other`: its schedule changed.
#[must_use]
pub fn changed(state: &PlanState, now: Timestamp, begins: bool, is_other: bool) -> PlanState {
    let mut state = *state;
    state.decided_until = state.decided_until.max(now);
    if begins || is_other {
        (state.rest_from, state.asked_at, state.asked_from) = (now, None, None);
    }
    if begins {
        state.failures = 0;
    }
    state
}
