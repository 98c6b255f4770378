//! The result of a run.

use super::ApplicationActor;
use crate::domain::application::state_machine::Phase;
use crate::domain::run::RunState;
use serde_json::json;

impl ApplicationActor {
    /// The number of requested and reserved nodes, and how their programs ended.
    pub(super) fn result(&self) -> String {
        let ends = self.kind.machine.as_ref().map_or(&[][..], |machine| machine.instances());
        let ended = |state| ends.iter().filter(|instance| instance.phase == Phase::Over(state)).count();
        let mut out = json!({
            "attempt": self.run.attempt,
            "instances": ends.len(),
            "success": ended(RunState::Success),
            "failed": ended(RunState::Failed),
            "stopped": ended(RunState::Stopped),
        });
        if let Some(remark) = self.run.reason.as_ref().filter(|_| self.kind.machine.is_some()) {
            out["partial"] = remark.as_str().into();
        }
        out.to_string()
    }
}
