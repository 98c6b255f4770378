//! The span of a task, made by the tracer that the program has set up (OpenTelemetry): without one nothing is made.

use super::context::TaskContext;
use super::handler::Outcome;
use crate::domain::trace;
use opentelemetry::trace::{
    FutureExt as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags, TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue, global};

/// Runs a task in a span below that of its attempt. What it calls with an instrumented client belongs to this span.
pub(super) async fn in_span(task: TaskContext, run: impl Future<Output = Outcome>) -> Outcome {
    let Some(parent) = parent(&task) else { return run.await };
    let tracer = global::tracer("webloom");
    let attributes = [
        KeyValue::new("webloom.run.id", task.identity().to_string()),
        KeyValue::new("webloom.job.id", task.job_id().to_string()),
        KeyValue::new("webloom.attempt", i64::from(task.attempt())),
        KeyValue::new("webloom.instance", i64::from(task.instance())),
    ];
    let builder = tracer.span_builder(task.handler().to_owned()).with_kind(SpanKind::Server).with_attributes(attributes);
    let context = parent.with_span(builder.start_with_context(&tracer, &parent));
    let outcome = run.with_context(context.clone()).await;
    match &outcome {
        // An error after the request to end is not a failure of the function.
        Err(failure) if !task.is_cancelled() => context.span().set_status(Status::error(failure.message().to_owned())),
        _ => {}
    }
    context.span().end();
    outcome
}

fn parent(task: &TaskContext) -> Option<Context> {
    let trace::TraceContext { trace_id, span } = trace::TraceContext::parse(&task.traceparent()?)?;
    let (trace, span) = (TraceId::from_hex(&trace_id).ok()?, SpanId::from_bytes(span?.0.to_be_bytes()));
    Some(Context::new().with_remote_span_context(SpanContext::new(trace, span, TraceFlags::SAMPLED, true, TraceState::default())))
}
