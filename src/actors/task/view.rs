//! Describes where the instances of a task are, for the explanation API.

use super::{TaskActor, TaskDescription};
use crate::domain::explain::{Part, Place};
use crate::domain::task::state_machine::Phase;

impl TaskActor {
    pub(super) fn description(&self) -> TaskDescription {
        let places = self.kind.machine.instances.iter().zip(&self.kind.parts).map(|(instance, part)| Part {
            attempt: instance.attempt,
            place: match &instance.phase {
                Phase::Pausing(at) => Place::Pausing(at.on_the_wall()),
                // The explanation of the run says that it is queued.
                Phase::Requesting | Phase::Queued => Place::Requesting,
                Phase::AtWorker(worker) => Place::At(format!("worker {worker}"), part.began),
                Phase::Unclear(until) => Place::Unclear(until.on_the_wall()),
                Phase::Ending(worker, ..) => Place::Ending(format!("worker {worker}")),
                Phase::Over(state) => Place::Over(*state),
            },
            progress: part.progress,
            text: part.text.clone(),
            reason: instance.reason.clone(),
        });
        let request =
            self.kind.machine.instances.iter().position(|instance| instance.phase == Phase::Requesting).map(|i| Box::new(self.request(i)));
        TaskDescription { output: self.output(), parts: places.collect(), request }
    }
}
