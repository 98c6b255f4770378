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

/// A block or a program that an agent carried out.
#[derive(Debug)]
pub struct AgentWork {
    /// Its run.
    pub run: Identity,
    /// Its attempt.
    pub attempt: u32,
    /// The node.
    pub node: NodeId,
    /// When it arrived; for a program that an earlier agent got, when it began.
    pub since: Timestamp,
    /// When the work on it began.
    pub began: Option<Timestamp>,
    /// When it ended.
    pub ended: Timestamp,
    /// Whether it succeeded.
    pub status: Status,
}

/// The span of what an agent did for a block, and the site of a block with a pace. `None`: its broker sends no spans.
#[must_use]
pub fn block_work_span(traceparent: &str, block: BlockId, site: Option<&str>, counts: Option<Counts>, work: AgentWork) -> Option<Span> {
    let seq = block.seq_in(work.run)?;
    let context = TraceContext::parse(traceparent)?;
    let id = SpanId::of_block_work(work.run, seq, work.attempt);
    let mut span = work.span((&context.trace_id, context.span?), id, "block")?;
    let count = |count: u64| Value::Int(i64::try_from(count).unwrap_or(i64::MAX));
    span.attributes.push(("webloom.block", Value::Int(seq.into())));
    span.attributes.extend(counts.into_iter().flat_map(|counts| {
        [
            ("webloom.requests.success", count(counts.success)),
            ("webloom.requests.failed", count(counts.failed)),
            ("webloom.requests.given_back", count(counts.given_back)),
            ("webloom.bytes", count(counts.bytes)),
        ]
    }));
    span.attributes.extend(site.map(|site| ("webloom.site", Value::Text(site.to_owned()))));
    Some(span)
}

/// The span of an instance of a program, below the span of its attempt: the trace and that span, both as its order has them. `numbers` are
/// more attributes.
#[must_use]
pub fn program_span(
    parent: (&str, SpanId),
    job_name: &str,
    instance: u32,
    numbers: impl IntoIterator<Item = (&'static str, i64)>,
    work: AgentWork,
) -> Option<Span> {
    let id = SpanId::of_program(work.run, instance, work.attempt);
    let mut span = work.span(parent, id, "program")?;
    span.attributes.push(("webloom.job.name", Value::Text(job_name.to_owned())));
    span.attributes.push(("webloom.instance", Value::Int(instance.into())));
    span.attributes.extend(numbers.into_iter().map(|(name, number)| (name, Value::Int(number))));
    Some(span)
}

impl AgentWork {
    fn span(self, (trace, parent): (&str, SpanId), id: SpanId, name: &str) -> Option<Span> {
        let Self { run, attempt, node, since, began, ended, status } = self;
        Some(Span {
            trace: u128::from_str_radix(trace, 16).ok()?,
            id,
            parent: Some(parent),
            name: name.to_owned(),
            side: Side::Server,
            start: since.min(ended),
            end: ended,
            status,
            attributes: vec![
                ("webloom.run.id", Value::Text(run.to_string())),
                ("webloom.node.id", Value::Text(node.to_string())),
                ("webloom.attempt", Value::Int(attempt.into())),
            ],
            events: began.map(|at| (at, "begun")).into_iter().collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_belongs_to_the_span_of_its_dispatch() {
        let run = Identity::random();
        let (trace, parent) = ("0af7651916cd43dd8448eb211c80319c", SpanId(10));
        let work = || AgentWork {
            run,
            attempt: 2,
            node: NodeId::random(),
            since: Timestamp(1_000),
            began: Some(Timestamp(1_100)),
            ended: Timestamp(2_000),
            status: Status::Ok,
        };
        let counts = Counts { success: 3, failed: 1, given_back: 0, bytes: 500 };
        let span_of = |traceparent: &str| block_work_span(traceparent, BlockId::new(run, 7), Some("example.com"), Some(counts), work());
        let span = span_of(&format!("00-{trace}-{parent}-01")).expect("a span");
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
        assert_eq!(span_of("00-wrong"), None);
        assert_eq!(span_of(&format!("00-{trace}")), None, "a span without a parent would be a trace of its own");
    }
}
