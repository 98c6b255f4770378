//! Messages to the nodes.

use super::ApplicationActor;
use crate::domain::application::state_machine::Phase;
use crate::domain::application::{Place, expand};
use crate::domain::ids::NodeId;
use crate::domain::trace::SpanId;
use crate::protocol::application::{Package, ProgramLimits, ProgramOrder, ProgramRef};
use crate::protocol::node::ToNode;
use std::collections::BTreeMap;

impl ApplicationActor {
    /// Sends a message to the node of an instance. Lost messages are repeated.
    pub(super) fn send(&self, nth: usize, message: &ToNode) {
        if let Some(instance) = self.kind.machine.as_ref().and_then(|machine| machine.instances().get(nth)) {
            self.tell_node(instance.node, message);
        }
    }

    pub(super) fn tell_node(&self, node: NodeId, message: &ToNode) {
        if let Some(node) = self.context.addresses.nodes.get(node) {
            node.command(message.clone());
        }
    }

    pub(super) fn start_program(&mut self, nth: usize) {
        if let Some(order) = self.order(nth) {
            crate::fault::point("application.start");
            self.send(nth, &ToNode::Start(Box::new(order)));
        }
    }

    pub(super) fn exit_program(&self, nth: usize, reason: String) {
        let grace = self.kind.settings.as_ref().map_or(0, |settings| settings.grace);
        self.send(nth, &ToNode::Exit { program: self.program(nth), grace, reason });
    }

    /// Sends each node the programs that it should have, so that it reports which of them it has.
    pub(super) fn remind(&self) {
        let Some(machine) = &self.kind.machine else { return };
        let mut expected: BTreeMap<NodeId, Vec<ProgramRef>> = BTreeMap::new();
        for (nth, instance) in machine.instances().iter().enumerate() {
            let programs = expected.entry(instance.node).or_default();
            if !self.lifecycle.is_ending() && !matches!(instance.phase, Phase::Over(_)) {
                programs.push(self.program(nth));
            }
        }
        for (node, programs) in expected {
            if let Some(node) = self.context.addresses.nodes.get(node) {
                node.expect_programs(self.run.identity, programs);
            }
        }
    }

    fn order(&mut self, nth: usize) -> Option<ProgramOrder> {
        let settings = self.kind.settings.clone()?;
        let said = settings.said(self.run.arguments.as_deref());
        if self.kind.words.is_empty() {
            // After a restart. The same arguments were parsed without an error before.
            self.kind.words = settings.words(said).unwrap_or_default();
        }
        let run = &self.run;
        let fire_time = run.planned_at.unwrap_or(run.creation_time);
        let place = Place {
            run: run.identity,
            job: run.job_id,
            job_name: &run.job_name,
            trace_id: run.trace_id.as_deref().unwrap_or_default(),
            index: nth as u32,
            count: self.kind.instances.len() as u32,
            fire_time,
            attempt: run.attempt,
            arguments: said.unwrap_or_default(),
        };
        let package = settings.package.clone().map(|url| Package { url, sha256: settings.sha256.clone() });
        Some(ProgramOrder {
            program: self.program(nth),
            instances: self.kind.instances.len() as u32,
            job_id: run.job_id,
            job_name: run.job_name.clone(),
            package,
            application: settings.application.clone(),
            arguments: self.kind.words.iter().map(|word| expand(word, &place)).collect(),
            environment: settings.environment.clone(),
            files: settings.files.clone(),
            timeout: run.rules.timeout,
            grace: settings.grace,
            limits: ProgramLimits { memory: settings.memory_limit, cpu_seconds: settings.cpu_seconds, open_files: settings.open_files },
            user: settings.user.clone(),
            trace_id: run.trace_id.clone(),
            span_id: self.context.telemetry.is_on().then(|| SpanId::of_attempt(run.identity, nth as u32, run.attempt)),
            fire_time,
        })
    }
}
