//! Programs on a node: passes messages between runs and programs. It keeps only the list of programs that runs expect.

use super::{Command, ExpectPrograms, NodeActor, OutputReceived, ProgramsReported};
use crate::actors::application::{ApplicationHandle, ProgramEvent};
use crate::actors::run_shell::AtWork;
use crate::domain::application::choice::Candidate;
use crate::domain::ids::Identity;
use crate::domain::node::{NodeWork, SlotKind};
use crate::protocol::application::{ProgramRef, ProgramState};
use crate::protocol::node::ToNode;
use actix::{AsyncContext, Handler};
use std::collections::HashMap;
use std::sync::Arc;

/// Milliseconds that a program without a run gets to end.
const STRAY_GRACE_MS: u64 = 30_000;

/// The receiver of events of a program.
enum Recipient {
    Application(ApplicationHandle),
    /// The run's actor is being built and will request the state itself.
    Building,
    /// The run has ended or never existed.
    NoRun,
}

impl NodeActor {
    fn recipient(&self, identity: Identity) -> Recipient {
        match self.context.addresses.others.get(identity) {
            Some(AtWork::Application(application)) => Recipient::Application(application),
            _ if self.context.addresses.building.get(identity).is_some() => Recipient::Building,
            _ => Recipient::NoRun,
        }
    }

    /// Publishes the state of this node for runs that look for a node.
    pub(super) fn publish(&self) {
        self.context.fleet.update_node(Candidate {
            facts: Arc::clone(&self.facts),
            is_open: self.enabled,
            is_online: self.sender.is_some(),
            load: self.load,
            at_work: self.used(SlotKind::Block),
        });
    }

    /// Sends the operator's request to the node after each heartbeat, until the node has done it.
    pub(super) fn send_requested_work(&self) {
        match &self.requested_work {
            Some((NodeWork::Leaving, reason)) => self.send(&ToNode::Leave { reason: reason.clone() }),
            Some((_, reason)) => self.send(&ToNode::Drain { reason: Some(reason.clone()) }),
            None => {}
        }
    }

    /// Sends each run the programs that the node listed. Programs without a run must end.
    pub(super) fn compare_programs(&mut self, listed: Option<&[ProgramRef]>) {
        let Some(listed) = listed else { return };
        let mut by_run: HashMap<Identity, Vec<ProgramRef>> = self.expected.keys().map(|identity| (*identity, Vec::new())).collect();
        for program in listed {
            by_run.entry(program.identity).or_default().push(*program);
        }
        for (identity, programs) in by_run {
            match self.recipient(identity) {
                Recipient::Application(application) => application.tell(ProgramEvent::Listed { node: self.id(), programs }),
                Recipient::Building => {}
                Recipient::NoRun => {
                    self.expected.remove(&identity);
                    self.end_programs(&programs);
                }
            }
        }
    }

    fn end_programs(&self, programs: &[ProgramRef]) {
        for program in programs {
            let reason = "its run has ended".to_owned();
            self.send(&ToNode::Exit { program: *program, grace: STRAY_GRACE_MS, reason });
        }
        if !programs.is_empty() {
            self.send(&ToNode::ProgramsSettled(programs.to_vec()));
        }
    }

    /// The node is lost: notifies the runs that expect programs on it.
    pub(super) fn programs_lost(&mut self) {
        self.context.fleet.remove_node(self.id());
        for (identity, _) in std::mem::take(&mut self.expected) {
            if let Recipient::Application(application) = self.recipient(identity) {
                application.tell(ProgramEvent::NodeLost { node: self.id(), silent_since: self.silent_since() });
            }
        }
    }
}

impl Handler<Command> for NodeActor {
    type Result = ();
    fn handle(&mut self, Command(message): Command, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.command");
        self.send(&message);
    }
}

impl Handler<ExpectPrograms> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: ExpectPrograms, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.expect_programs");
        if m.programs.is_empty() {
            self.expected.remove(&m.identity);
        } else {
            self.expected.insert(m.identity, m.programs);
        }
    }
}

impl Handler<ProgramsReported> for NodeActor {
    type Result = ();
    fn handle(&mut self, ProgramsReported(reports): ProgramsReported, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.programs");
        for report in reports {
            match self.recipient(report.program.identity) {
                Recipient::Application(application) => {
                    application.tell(ProgramEvent::Reported { node: self.id(), report: Box::new(report) })
                }
                Recipient::Building => {}
                Recipient::NoRun if matches!(report.state, ProgramState::Accepted | ProgramState::Running) => {
                    self.end_programs(&[report.program]);
                }
                Recipient::NoRun => self.send(&ToNode::ProgramsSettled(vec![report.program])),
            }
        }
    }
}

impl Handler<OutputReceived> for NodeActor {
    type Result = ();
    fn handle(&mut self, OutputReceived(output): OutputReceived, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.output");
        let program = output.program;
        match self.recipient(program.identity) {
            Recipient::Application(application) => application.tell(ProgramEvent::Output { node: self.id(), output }),
            // The node does not send it again, so it waits here until the run's actor is ready.
            Recipient::Building => {
                ctx.notify_later(OutputReceived(output), std::time::Duration::from_millis(100));
            }
            Recipient::NoRun => {
                let next = output.first.saturating_add(output.lines.len() as u64);
                self.send(&ToNode::OutputTaken { program, next });
            }
        }
    }
}
