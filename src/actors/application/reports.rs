//! Handles messages from the nodes.

use super::{Application, ApplicationActor};
use crate::actors::run_shell::Ctx;
use crate::domain::application::state_machine::{Event, InstanceReport, Phase};
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::application::{ProgramRef, ProgramReport, ProgramState};
use crate::protocol::node::ToNode;
use serde_json::json;

impl ApplicationActor {
    /// The instance that a node refers to; `None` if the run does not expect that program there.
    pub(super) fn meant(&self, node: NodeId, program: ProgramRef) -> Option<usize> {
        let nth = program.instance as usize;
        let instance = self.kind.machine.as_ref()?.instances().get(nth)?;
        (program == self.program(nth) && instance.node == node).then_some(nth)
    }

    /// Dismisses a program that the run does not expect: it must end, and its node may discard it.
    pub(super) fn dismiss(&self, node: NodeId, program: ProgramRef) {
        let grace = self.kind.settings.as_ref().map_or(0, |settings| settings.grace);
        let reason = "the run no longer counts on it".to_owned();
        self.tell_node(node, &ToNode::Exit { program, grace, reason });
        self.tell_node(node, &ToNode::ProgramsSettled(vec![program]));
    }

    fn is_over(&self, nth: usize) -> bool {
        self.kind.machine.as_ref().is_some_and(|machine| matches!(machine.instances()[nth].phase, Phase::Over(_)))
    }

    pub(super) fn reported(&mut self, node: NodeId, report: &ProgramReport, ctx: &mut Ctx<Application>) {
        let Some(nth) = self.meant(node, report.program) else {
            let is_over = !matches!(report.state, ProgramState::Accepted | ProgramState::Running);
            // The program has already ended, so the node only needs the acknowledgement.
            let settled = ToNode::ProgramsSettled(vec![report.program]);
            return if is_over { self.tell_node(node, &settled) } else { self.dismiss(node, report.program) };
        };
        let state = match report.state {
            ProgramState::Accepted => InstanceReport::Accepted,
            ProgramState::Running => InstanceReport::Running,
            ProgramState::Exited => InstanceReport::Over(failure(report)),
            ProgramState::Refused | ProgramState::Lost => {
                InstanceReport::Over(Some(failure(report).unwrap_or_else(|| "its node rejected it".to_owned())))
            }
        };
        if !self.is_over(nth) {
            let now = Timestamp::now();
            let is_first = self.kind.instances.iter().all(|place| place.start_time.is_none());
            let place = &mut self.kind.instances[nth];
            if state != InstanceReport::Accepted {
                place.result = Some(result(report));
            }
            if matches!(report.state, ProgramState::Running | ProgramState::Exited) && place.start_time.is_none() {
                let wall = report.exit.as_ref().map_or(0, |exit| i64::try_from(exit.wall_ms).unwrap_or(0));
                place.start_time = Some(now.plus_ms(-wall));
                if is_first && self.run.attempt == 1 {
                    self.context.counters.lateness.started(now.since_ms(self.run.wanted_at()) - wall);
                }
            }
        }
        self.happens(Event::Reported(nth, state), ctx);
    }

    pub(super) fn listed(&mut self, node: NodeId, programs: Vec<ProgramRef>, ctx: &mut Ctx<Application>) {
        if self.lifecycle.is_ending() || self.kind.is_placing {
            return;
        }
        let mut listed = Vec::with_capacity(programs.len());
        for program in programs {
            match self.meant(node, program) {
                Some(nth) => listed.push(nth),
                None => self.dismiss(node, program),
            }
        }
        self.happens(Event::Listed(node, listed), ctx);
    }
}

/// Why a program failed; `None` if it succeeded.
fn failure(report: &ProgramReport) -> Option<String> {
    if let Some(error) = &report.error {
        let kind = serde_json::to_value(error.kind).ok()?;
        return Some(format!("{}: {}", kind.as_str().unwrap_or("other"), error.message));
    }
    let Some(exit) = &report.exit else { return Some("its node did not report how it ended".to_owned()) };
    let by = exit.ended_by.as_deref().map(|by| format!(", ended by {by}")).unwrap_or_default();
    match (exit.code, exit.signal) {
        (Some(0), _) => None,
        (Some(code), _) => Some(format!("exit code {code}{by}")),
        (None, Some(signal)) => Some(format!("signal {signal}{by}")),
        (None, None) => Some(format!("its node did not report how it ended{by}")),
    }
}

/// The stored form of a report.
fn result(report: &ProgramReport) -> String {
    let mut out = report.exit.as_ref().map_or_else(|| json!({}), |exit| json!(exit));
    if let Some(pid) = report.pid {
        out["pid"] = pid.into();
    }
    if let Some(error) = &report.error {
        out["error"] = json!(error);
    }
    out.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(report: serde_json::Value) -> Option<String> {
        let mut all = json!({ "program": { "identity": "0".repeat(32), "instance": 0, "attempt": 1 }, "state": "exited", "at": "2026-01-01T00:00:00Z" });
        for (key, value) in report.as_object().expect("an object") {
            all[key] = value.clone();
        }
        failure(&serde_json::from_value(all).expect("a report"))
    }

    #[test]
    fn an_end_is_put_into_words() {
        assert_eq!(of(json!({ "exit": { "code": 0, "wallMs": 1, "lines": 0 } })), None);
        assert_eq!(of(json!({ "exit": { "code": 3, "wallMs": 1, "lines": 0 } })).as_deref(), Some("exit code 3"));
        let killed = json!({ "exit": { "signal": 9, "endedBy": "timeout", "wallMs": 1, "lines": 0 } });
        assert_eq!(of(killed).as_deref(), Some("signal 9, ended by timeout"));
        let missing = json!({ "state": "refused", "error": { "kind": "package-not-found", "message": "404" } });
        assert_eq!(of(missing).as_deref(), Some("package-not-found: 404"));
        assert!(of(json!({})).is_some() && of(json!({ "exit": { "wallMs": 1, "lines": 0 } })).is_some(), "silence is no success");
    }
}
