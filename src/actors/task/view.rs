//! Describes where the instances of a task are, for the explanation API.

use super::{TaskActor, TaskDescription};
use crate::domain::explain::{Instance, InstanceState};
use crate::domain::task::state_machine::Phase;

impl TaskActor {
    pub(super) fn description(&self) -> TaskDescription {
        let instances = self.kind.machine.instances.iter().zip(&self.kind.parts).map(|(instance, part)| Instance {
            attempt: instance.attempt,
            state: match &instance.phase {
                Phase::Pausing(at) => InstanceState::Pausing(at.on_the_wall()),
                // The explanation of the run says that it is queued.
                Phase::Requesting | Phase::Queued => InstanceState::Requesting,
                Phase::AtWorker(worker) => InstanceState::At(format!("worker {worker}"), part.began),
                Phase::Unclear(until) => InstanceState::Unclear(until.on_the_wall()),
                Phase::Ending(worker, ..) => InstanceState::Ending(format!("worker {worker}")),
                Phase::Over(state) => InstanceState::Over(*state),
            },
            progress: part.progress,
            text: part.text.clone(),
            reason: instance.reason.clone(),
        });
        let request =
            self.kind.machine.instances.iter().position(|instance| instance.phase == Phase::Requesting).map(|i| Box::new(self.request(i)));
        TaskDescription { output: self.output(), instances: instances.collect(), request }
    }
}
