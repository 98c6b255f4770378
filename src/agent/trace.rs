//! The spans of blocks and programs, for an OpenTelemetry collector.

use super::block::Work;
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::domain::trace::{AgentWork, Span, Status, block_work_span, program_span};
use crate::protocol::application::{ProgramOrder, ProgramReport, ProgramState};
use crate::protocol::node::Block;
use std::rc::Rc;

/// Takes the spans of what the agent did.
pub type Sink = Rc<dyn Fn(Span)>;

/// A block that the agent carries out. Its span is sent when this is dropped, because the task of a block may be aborted.
pub struct BlockTrace<'a> {
    sink: Option<&'a Sink>,
    block: &'a Block,
    node: NodeId,
    since: Timestamp,
    began: Option<Timestamp>,
    work: Option<Work>,
}

impl<'a> BlockTrace<'a> {
    /// It has arrived.
    pub fn new(sink: Option<&'a Sink>, block: &'a Block, node: NodeId) -> Self {
        Self { sink, block, node, since: Timestamp::now(), began: None, work: None }
    }

    /// It has left its queue.
    pub fn begin(&mut self) {
        self.began = Some(Timestamp::now());
    }

    /// It has ended.
    pub fn end(&mut self, work: Work) {
        self.work = Some(work);
    }
}

impl Drop for BlockTrace<'_> {
    fn drop(&mut self) {
        let (Some(sink), Some(traceparent)) = (self.sink, &self.block.traceparent) else { return };
        let (counts, status) = match self.work.take() {
            Some(Work { counts, failure: None }) => (Some(counts), Status::Ok),
            Some(Work { counts, failure: Some(why) }) => (Some(counts), Status::Error(why)),
            // The broker does not need its results any more, so they are not counted.
            None => (None, Status::Unset),
        };
        let Block { block_id, identity: run, attempt, pace, .. } = self.block;
        let (run, attempt, site) = (*run, *attempt, pace.as_ref().map(|pace| pace.site.as_str()));
        let Self { node, since, began, .. } = *self;
        let work = AgentWork { run, attempt, node, since, began, ended: Timestamp::now(), status };
        block_work_span(traceparent, *block_id, site, counts, work).into_iter().for_each(|span| sink(span));
    }
}

/// A program has ended: its span is sent.
pub fn program(
    sink: Option<&Sink>,
    order: &ProgramOrder,
    node: NodeId,
    (since, began): (Timestamp, Option<Timestamp>),
    last: &ProgramReport,
) {
    let (Some(sink), Some(trace), Some(parent)) = (sink, &order.trace_id, order.span_id) else { return };
    let exit = last.exit.clone().unwrap_or_default();
    let status = match (last.state, &last.error, exit.code, exit.signal, &exit.ended_by) {
        (_, Some(error), ..) => Status::Error(error.message.clone()),
        // An order ended it.
        (.., Some(by)) if by != "timeout" => Status::Unset,
        (ProgramState::Exited, None, Some(0), ..) => Status::Ok,
        (.., Some(_)) => Status::Error("it took longer than its timeout".to_owned()),
        (_, _, Some(code), ..) => Status::Error(format!("exit code {code}")),
        (_, _, _, Some(signal), _) => Status::Error(format!("signal {signal}")),
        _ => Status::Unset,
    };
    let number = |name, value: Option<u64>| value.map(|value| (name, i64::try_from(value).unwrap_or(i64::MAX)));
    let numbers = [
        exit.code.map(|code| ("webloom.program.exit_code", code.into())),
        exit.signal.map(|signal| ("webloom.program.signal", signal.into())),
        number("webloom.program.peak_memory", exit.peak_memory),
        number("webloom.program.cpu_ms", exit.user_ms.zip(exit.system_ms).map(|(user, system)| user + system)),
        last.exit.is_some().then_some(("webloom.program.lines", i64::try_from(exit.lines).unwrap_or(i64::MAX))),
        number("process.pid", last.pid.map(u64::from)),
    ];
    let (run, attempt) = (order.program.identity, order.program.attempt);
    let work = AgentWork { run, attempt, node, since, began, ended: last.at, status };
    let span = program_span((trace, parent), &order.job_name, order.program.instance, numbers.into_iter().flatten(), work);
    span.into_iter().for_each(|span| sink(span));
}
