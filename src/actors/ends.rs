//! The end of a run without blocks, of any job type: the write to the store and the steps after it.

use super::context::BrokerContext;
use crate::domain::run::{Counters, Run, RunState};
use crate::domain::time::Timestamp;
use crate::store::FinishRun;

/// How a run ended, and its result.
#[derive(Debug, Clone)]
pub(super) struct End {
    pub(super) state: RunState,
    pub(super) reason: Option<String>,
    pub(super) result: Option<String>,
    pub(super) now: Timestamp,
}

impl End {
    /// The write to the store.
    pub(super) fn write(&self, run: &Run, epoch: i64) -> FinishRun {
        FinishRun {
            no: run.no,
            epoch,
            state: self.state,
            reason: self.reason.clone(),
            counters: Counters::default(),
            block_times: 0,
            start_time: run.start_time,
            start_returned: false,
            result: self.result.clone(),
            follow: run.follow || self.state == RunState::Failed,
            by: self.by(run),
            now: self.now,
        }
    }

    /// Who requested the stop; `None` if the run ended in another way first.
    fn by(&self, run: &Run) -> Option<String> {
        run.update_by.clone().filter(|_| self.state == RunState::Stopped)
    }

    /// Updates the run and the counters after the end is stored.
    pub(super) fn apply(self, run: &mut Run, context: &BrokerContext) {
        run.update_by = self.by(run);
        (run.state, run.reason, run.result) = (self.state, self.reason, self.result);
        (run.queued, run.not_before, run.finish_time) = (false, None, Some(self.now));
        context.counts.ended(run.state);
        log::info!("run ended run_id={} state={} attempt={}", run.identity, run.state.name(), run.attempt);
    }
}
