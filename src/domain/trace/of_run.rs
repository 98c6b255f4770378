//! The spans of a run, from its record.

use super::{Side, Span, SpanId, Status, TraceContext, Value};
use crate::domain::ids::{NodeId, Seq, WorkerId};
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use std::sync::Arc;

/// Maximum number of characters of a text in a span.
const MOST_TEXT: usize = 1_000;

/// Where an attempt ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Peer {
    /// At a worker.
    Worker(WorkerId),
    /// At a node with this name.
    Node(NodeId, Arc<str>),
}

/// An attempt that ended.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The number of the instance, if the run has several.
    pub instance: Option<u32>,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    /// Where it ran, if that is known.
    pub peer: Option<Peer>,
    /// How it ended.
    pub state: RunState,
    /// Why.
    pub reason: Option<String>,
    /// When it began; `None`: not known.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
}

impl TraceContext {
    /// What a run begins belongs to it.
    #[must_use]
    pub fn of_run(run: &Run) -> Option<Self> {
        Some(Self { trace_id: run.trace_id.clone()?, span: Some(SpanId::of_run(run.identity)) })
    }
}

/// The trace of a run. Its id is used for a run without one, or with one that cannot be read.
fn trace_of(run: &Run) -> u128 {
    let stored = run.trace_id.as_deref().and_then(|text| u128::from_str_radix(text, 16).ok()).filter(|trace| *trace != 0);
    stored.unwrap_or(run.identity.0.as_u128())
}

/// The spans of a run that is over: the run itself, and the time until its first order.
#[must_use]
pub fn run_spans(run: &Run) -> Vec<Span> {
    let start = run.creation_time;
    let end = run.finish_time.unwrap_or(start).max(start);
    let mut attributes = about(run);
    attributes.push(("webloom.job.kind", text(run.kind.name())));
    attributes.push(("webloom.run.state", text(run.state.name())));
    attributes.push(("webloom.run.attempts", Value::Int(run.attempt.into())));
    for (name, value) in [
        ("webloom.run.reason", run.reason.as_deref()),
        ("webloom.run.created_by", run.create_by()),
        ("webloom.run.handler", Some(run.class_name.as_str()).filter(|name| !name.is_empty())),
    ] {
        attributes.extend(value.map(|value| (name, text(value))));
    }
    for (name, value) in [
        ("webloom.run.scheduled_time", run.planned_at.map(|at| at.to_string())),
        ("webloom.run.retry_of", run.retry_of.map(|run| run.to_string())),
        ("webloom.run.after", run.rules.after.map(|run| run.to_string())),
    ] {
        attributes.extend(value.map(|value| (name, Value::Text(value))));
    }
    if run.counters.total > 0 {
        attributes.push(("webloom.requests.success", Value::Int(run.counters.success as i64)));
        attributes.push(("webloom.requests.failed", Value::Int(run.counters.error as i64)));
    }
    let times = [(Some(start), "created"), (run.planned_at.filter(|at| *at >= start), "scheduled"), (run.start_time, "ordered")];
    let root = Span {
        trace: trace_of(run),
        id: SpanId::of_run(run.identity),
        parent: run.rules.parent_span,
        name: format!("run {}", run.job_name),
        side: Side::Internal,
        start,
        end,
        status: status(run.state, run.reason.as_deref()),
        attributes,
        events: times.into_iter().filter_map(|(at, name)| Some((at?, name))).collect(),
    };
    let dispatch = run.start_time.map(|ordered| Span {
        trace: root.trace,
        id: SpanId::of_dispatch(run.identity),
        parent: Some(root.id),
        name: "dispatch".to_owned(),
        side: Side::Internal,
        start: run.wanted_at(),
        end: ordered.max(run.wanted_at()),
        status: Status::Unset,
        attributes: about(run),
        events: Vec::new(),
    });
    std::iter::once(root).chain(dispatch).collect()
}

/// The span of an attempt.
#[must_use]
pub fn attempt_span(run: &Run, attempt: Attempt) -> Span {
    let Attempt { instance, attempt, peer, state, reason, began, ended } = attempt;
    let start = began.or(run.start_time.filter(|_| attempt == 1)).unwrap_or(ended).min(ended);
    let mut attributes = about(run);
    attributes.push(("webloom.attempt", Value::Int(attempt.into())));
    attributes.push(("webloom.attempt.state", text(state.name())));
    attributes.extend(instance.map(|instance| ("webloom.instance", Value::Int(instance.into()))));
    attributes.extend(peer.into_iter().flat_map(at));
    Span {
        trace: trace_of(run),
        id: SpanId::of_attempt(run.identity, instance.unwrap_or(0), attempt),
        parent: Some(SpanId::of_run(run.identity)),
        name: "attempt".to_owned(),
        side: Side::Client,
        start,
        end: ended,
        status: status(state, reason.as_deref()),
        attributes,
        events: Vec::new(),
    }
}

/// A block that has left its node.
#[derive(Debug)]
pub struct BlockLeft<'a> {
    /// The block.
    pub block: Seq,
    /// Its attempt.
    pub attempt: u32,
    /// The node, with its name.
    pub node: (NodeId, Arc<str>),
    /// When it was sent there.
    pub since: Timestamp,
    /// When it left.
    pub now: Timestamp,
    /// Why its results are missing, if they are.
    pub lost: Option<&'a str>,
}

/// The span of a block at a node.
#[must_use]
pub fn block_span(run: &Run, left: BlockLeft<'_>) -> Span {
    let BlockLeft { block, attempt, node: (node, name), since, now, lost } = left;
    let mut attributes = about(run);
    attributes.push(("webloom.block", Value::Int(block.into())));
    attributes.push(("webloom.attempt", Value::Int(attempt.into())));
    attributes.extend(at(Peer::Node(node, name)));
    Span {
        trace: trace_of(run),
        id: SpanId::of_block(run.identity, block, attempt),
        parent: Some(SpanId::of_attempt(run.identity, 0, run.attempt)),
        name: "block".to_owned(),
        side: Side::Client,
        start: since.min(now),
        end: now,
        status: lost.map_or(Status::Ok, |why| Status::Error(short(why))),
        attributes,
        events: Vec::new(),
    }
}

/// The trace and the span of a block, for its node: the value of a `traceparent` header.
#[must_use]
pub fn block_traceparent(run: &Run, block: Seq, attempt: u32) -> String {
    format!("00-{:032x}-{}-01", trace_of(run), SpanId::of_block(run.identity, block, attempt))
}

/// The attributes of each span.
fn about(run: &Run) -> Vec<(&'static str, Value)> {
    vec![
        ("webloom.run.id", Value::Text(run.identity.to_string())),
        ("webloom.job.id", Value::Text(run.job_id.to_string())),
        ("webloom.job.name", text(&run.job_name)),
    ]
}

fn at(peer: Peer) -> Vec<(&'static str, Value)> {
    match peer {
        Peer::Worker(id) => vec![("webloom.worker.id", Value::Text(id.to_string()))],
        Peer::Node(id, name) => vec![("webloom.node.id", Value::Text(id.to_string())), ("webloom.node.name", text(&name))],
    }
}

fn status(state: RunState, reason: Option<&str>) -> Status {
    match state {
        RunState::Success => Status::Ok,
        RunState::Failed => Status::Error(short(reason.unwrap_or_default())),
        _ => Status::Unset,
    }
}

fn text(text: &str) -> Value {
    Value::Text(short(text))
}

fn short(text: &str) -> String {
    text.chars().take(MOST_TEXT).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::job::JobKind;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn run() -> Run {
        let mut run = Run::sample(JobKind::Task, NOW);
        run.trace_id = Some("0af7651916cd43dd8448eb211c80319c".to_owned());
        run.rules.parent_span = Some(SpanId(0xb7ad_6b71_6920_3331));
        (run.state, run.attempt) = (RunState::Success, 2);
        (run.planned_at, run.start_time, run.finish_time) = (Some(NOW.plus_ms(900)), Some(NOW.plus_ms(905)), Some(NOW.plus_ms(2_000)));
        run
    }

    fn attempt(attempt: u32, state: RunState) -> Attempt {
        let reason = (state == RunState::Failed).then(|| "e".repeat(2_000));
        let (began, ended) = (Some(NOW.plus_ms(905)), NOW.plus_ms(1_000));
        Attempt { instance: None, attempt, peer: Some(Peer::Worker(WorkerId::random())), state, reason, began, ended }
    }

    #[test]
    fn a_run_is_one_trace() {
        let run = run();
        let spans = run_spans(&run);
        let [root, dispatch] = spans.as_slice() else { panic!("{spans:?}") };
        assert_eq!((root.trace, root.parent), (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, Some(SpanId(0xb7ad_6b71_6920_3331))));
        assert_eq!((root.start, root.end, &root.status), (NOW, NOW.plus_ms(2_000), &Status::Ok));
        assert_eq!(root.events, [(NOW, "created"), (NOW.plus_ms(900), "scheduled"), (NOW.plus_ms(905), "ordered")]);
        assert_eq!((dispatch.start, dispatch.end), (NOW.plus_ms(900), NOW.plus_ms(905)));
        let first = attempt_span(&run, attempt(1, RunState::Failed));
        let second = attempt_span(&run, attempt(2, RunState::Success));
        for span in [dispatch, &first, &second] {
            assert_eq!((span.trace, span.parent), (root.trace, Some(root.id)), "{}", span.name);
        }
        assert_ne!(first.id, second.id);
        assert!(matches!(&first.status, Status::Error(why) if why.len() == MOST_TEXT) && second.status == Status::Ok);
        let node = (NodeId::random(), Arc::from("n"));
        let left = BlockLeft { block: 7, attempt: 1, node, since: NOW, now: NOW.plus_ms(5), lost: None };
        assert_eq!(block_span(&run, left).parent, Some(second.id), "blocks belong to the attempt of the run");
    }

    #[test]
    fn a_run_that_follows_another_is_below_it() {
        let mut run = run();
        let context = TraceContext::of_run(&run).expect("it has a trace");
        assert_eq!((context.trace_id, context.span), (run.trace_id.clone().expect("a trace"), Some(run_spans(&run)[0].id)));
        (run.rules.parent_span, run.trace_id, run.start_time) = (None, None, None);
        let spans = run_spans(&run);
        assert_eq!((spans.len(), spans[0].parent, spans[0].trace), (1, None, run.identity.0.as_u128()));
    }

    #[test]
    fn times_that_are_not_known_or_were_set_back_make_no_negative_span() {
        let mut run = run();
        run.finish_time = Some(NOW.plus_ms(-5));
        assert_eq!(run_spans(&run)[0].end, NOW);
        let lost = attempt_span(&run, Attempt { began: None, ..attempt(2, RunState::Failed) });
        assert_eq!((lost.start, lost.end), (NOW.plus_ms(1_000), NOW.plus_ms(1_000)));
        let first = attempt_span(&run, Attempt { began: None, ..attempt(1, RunState::Failed) });
        assert_eq!(first.start, NOW.plus_ms(905), "the run knows when its first attempt began");
    }
}
