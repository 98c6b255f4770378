//! The spans of an agent: what it does for a block, and a program. Their parents are spans of the broker.

use super::{Side, Span, SpanId, Status, TraceContext, Value};
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::time::Timestamp;

/// How the requests of a block ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// With a status below 400.
    pub success: u64,
    /// With another one, or an error.
    pub failed: u64,
    /// Given back, for another node or for later.
    pub given_back: u64,
    /// Bytes of the bodies.
    pub bytes: u64,
}

/// What an agent did for a block.
#[derive(Debug)]
pub struct BlockWork<'a> {
    /// The block.
    pub block: BlockId,
    /// Its run.
    pub run: Identity,
    /// Its attempt.
    pub attempt: u32,
    /// The node.
    pub node: NodeId,
    /// The site, in a block with a pace.
    pub site: Option<&'a str>,
    /// When it arrived.
    pub since: Timestamp,
    /// When it left its queue.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// Its requests.
    pub counts: Counts,
    /// Whether it succeeded.
    pub status: Status,
}

/// The span of what an agent did for a block. `None`: its broker sends no spans.
#[must_use]
pub fn block_work_span(traceparent: &str, work: BlockWork<'_>) -> Option<Span> {
    let BlockWork { block, run, attempt, node, site, since, began, ended, counts, status } = work;
    let seq = block.seq_in(run)?;
    let count = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    let mut attributes = of_run(run, node, attempt);
    attributes.extend([
        ("webloom.block", Value::Int(seq.into())),
        ("webloom.requests.success", count(counts.success)),
        ("webloom.requests.failed", count(counts.failed)),
        ("webloom.requests.given_back", count(counts.given_back)),
        ("webloom.bytes", count(counts.bytes)),
    ]);
    attributes.extend(site.map(|site| ("webloom.site", Value::Text(site.to_owned()))));
    let context = TraceContext::parse(traceparent)?;
    Some(Span {
        trace: u128::from_str_radix(&context.trace_id, 16).ok()?,
        id: SpanId::of_block_work(run, seq, attempt),
        parent: Some(context.span?),
        name: "block".to_owned(),
        side: Side::Server,
        start: since.min(ended),
        end: ended,
        status,
        attributes,
        events: began.map(|at| (at, "begun")).into_iter().collect(),
    })
}

/// A program that ended.
#[derive(Debug)]
pub struct ProgramWork<'a> {
    /// The trace, and the span of the attempt: 32 and 16 hexadecimal digits.
    pub trace: &'a str,
    /// See `trace`.
    pub parent: SpanId,
    /// Its run.
    pub run: Identity,
    /// Its job, by name.
    pub job_name: &'a str,
    /// Its instance.
    pub instance: u32,
    /// Its attempt.
    pub attempt: u32,
    /// The node.
    pub node: NodeId,
    /// When its order arrived, or, if an earlier agent got it, when the program began.
    pub since: Timestamp,
    /// When the program began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// Numbers about it, by the names of their attributes.
    pub numbers: Vec<(&'static str, i64)>,
    /// Whether it succeeded.
    pub status: Status,
}

/// The span of a program.
#[must_use]
pub fn program_span(work: ProgramWork<'_>) -> Option<Span> {
    let ProgramWork { trace, parent, run, job_name, instance, attempt, node, since, began, ended, numbers, status } = work;
    let mut attributes = of_run(run, node, attempt);
    attributes.push(("webloom.job.name", Value::Text(job_name.to_owned())));
    attributes.push(("webloom.instance", Value::Int(instance.into())));
    attributes.extend(numbers.into_iter().map(|(name, number)| (name, Value::Int(number))));
    Some(Span {
        trace: u128::from_str_radix(trace, 16).ok()?,
        id: SpanId::of_program(run, instance, attempt),
        parent: Some(parent),
        name: "program".to_owned(),
        side: Side::Server,
        start: since.min(ended),
        end: ended,
        status,
        attributes,
        events: began.map(|at| (at, "begun")).into_iter().collect(),
    })
}

fn of_run(run: Identity, node: NodeId, attempt: u32) -> Vec<(&'static str, Value)> {
    vec![
        ("webloom.run.id", Value::Text(run.to_string())),
        ("webloom.node.id", Value::Text(node.to_string())),
        ("webloom.attempt", Value::Int(attempt.into())),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_belongs_to_the_span_of_its_dispatch() {
        let run = Identity::random();
        let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", SpanId(10));
        let work = || BlockWork {
            block: BlockId::new(run, 7),
            run,
            attempt: 2,
            node: NodeId::random(),
            site: Some("example.com"),
            since: Timestamp(1_000),
            began: Some(Timestamp(1_100)),
            ended: Timestamp(2_000),
            counts: Counts { success: 3, failed: 1, given_back: 0, bytes: 500 },
            status: Status::Ok,
        };
        let span = block_work_span(&format!("00-{trace}-{parent}-01"), work()).expect("a span");
        assert_eq!((span.trace, span.parent, span.side), (0x0af7_6519_16cd_43dd_8448_eb21_1c80_319c, Some(parent), Side::Server));
        assert_eq!((span.start, span.end, &span.events[..]), (Timestamp(1_000), Timestamp(2_000), &[(Timestamp(1_100), "begun")][..]));
        assert_ne!(span.id, SpanId::of_block(run, 7, 2), "the broker has a span of its own");
        for expected in [
            ("webloom.block", Value::Int(7)),
            ("webloom.requests.success", Value::Int(3)),
            ("webloom.requests.failed", Value::Int(1)),
            ("webloom.bytes", Value::Int(500)),
            ("webloom.site", Value::Text("example.com".to_owned())),
        ] {
            assert!(span.attributes.contains(&expected), "{expected:?} in {:?}", span.attributes);
        }
        assert_eq!(block_work_span("00-wrong", work()), None);
        assert_eq!(block_work_span(&format!("00-{trace}"), work()), None, "a span without a parent would be a trace of its own");
    }
}
