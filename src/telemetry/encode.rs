//! From what the program knows to the messages of OTLP.

use super::logs::Line;
use super::wire::{self, Any, AnyValue, Data, KeyValue, Resource, Scope};
use crate::domain::time::Timestamp;
use crate::domain::trace::{Side, Span, Status, Value};
use crate::protocol::exposition::Metric;
use prost::Message as _;

/// What sends: the same resource for all that it sends.
#[derive(Debug, Clone)]
pub(super) struct Sender {
    /// The name of the service.
    pub(super) service: &'static str,
    /// The id of this process among those of the service.
    pub(super) instance: String,
    /// Since when it counts.
    pub(super) since: Timestamp,
}

impl Sender {
    fn resource(&self) -> Option<Resource> {
        let attributes = [
            ("service.name", self.service),
            ("service.instance.id", self.instance.as_str()),
            ("service.version", env!("CARGO_PKG_VERSION")),
        ];
        Some(Resource { attributes: attributes.into_iter().map(|(key, value)| text(key, value)).collect() })
    }

    /// A request with these spans.
    pub(super) fn traces(&self, spans: Vec<Span>) -> Vec<u8> {
        let spans = spans.into_iter().map(span).collect();
        let scope_spans = vec![wire::ScopeSpans { scope: scope(), spans }];
        wire::TracesRequest { resource_spans: vec![wire::ResourceSpans { resource: self.resource(), scope_spans }] }.encode_to_vec()
    }

    /// A request with these log lines.
    pub(super) fn logs(&self, lines: Vec<Line>) -> Vec<u8> {
        let log_records = lines.into_iter().map(record).collect();
        let scope_logs = vec![wire::ScopeLogs { scope: scope(), log_records }];
        wire::LogsRequest { resource_logs: vec![wire::ResourceLogs { resource: self.resource(), scope_logs }] }.encode_to_vec()
    }

    /// A request with these metrics, read at `now`.
    pub(super) fn metrics(&self, metrics: Vec<Metric>, now: Timestamp) -> Vec<u8> {
        let metrics = metrics.into_iter().map(|metric| self.metric(metric, nanos(now))).collect();
        let scope_metrics = vec![wire::ScopeMetrics { scope: scope(), metrics }];
        wire::MetricsRequest { resource_metrics: vec![wire::ResourceMetrics { resource: self.resource(), scope_metrics }] }.encode_to_vec()
    }

    fn metric(&self, Metric { name, kind, help, samples, histogram }: Metric, now: u64) -> wire::Metric {
        let since = nanos(self.since);
        let points = |start_time_unix_nano| {
            let point = |(labels, value): (Vec<(String, String)>, f64)| wire::NumberPoint {
                attributes: labels.into_iter().map(|(label, value)| text(&label, &value)).collect(),
                start_time_unix_nano,
                time_unix_nano: now,
                as_double: Some(value),
            };
            samples.into_iter().map(point).collect()
        };
        let data = match (histogram, kind.as_str()) {
            (Some(counts), _) => {
                let mut below = 0;
                let mut bucket = |upto: u64| upto - std::mem::replace(&mut below, upto);
                let mut bucket_counts: Vec<u64> = counts.upto.iter().map(|(_, upto)| bucket(*upto)).collect();
                bucket_counts.push(bucket(counts.count));
                let point = wire::HistogramPoint {
                    start_time_unix_nano: since,
                    time_unix_nano: now,
                    count: counts.count,
                    sum: Some(counts.sum),
                    bucket_counts,
                    explicit_bounds: counts.upto.iter().map(|(bound, _)| *bound).collect(),
                };
                Data::Histogram(wire::Histogram { data_points: vec![point], aggregation_temporality: wire::CUMULATIVE })
            }
            (None, "counter") => {
                Data::Sum(wire::Sum { data_points: points(since), aggregation_temporality: wire::CUMULATIVE, is_monotonic: true })
            }
            (None, _) => Data::Gauge(wire::Gauge { data_points: points(0) }),
        };
        wire::Metric { unit: unit(&name).to_owned(), name, description: help, data: Some(data) }
    }
}

/// The unit in the name, by the codes of UCUM.
fn unit(name: &str) -> &'static str {
    let name = name.strip_suffix("_total").unwrap_or(name);
    match name.rsplit('_').next() {
        Some("seconds") => "s",
        Some("bytes") => "By",
        _ => "",
    }
}

fn span(span: Span) -> wire::Span {
    let (code, message) = match span.status {
        Status::Unset => (0, String::new()),
        Status::Ok => (wire::OK, String::new()),
        Status::Error(why) => (wire::ERROR, why),
    };
    let event = |(at, name): (Timestamp, &str)| wire::SpanEvent { time_unix_nano: nanos(at), name: name.to_owned() };
    wire::Span {
        trace_id: span.trace.to_be_bytes().to_vec(),
        span_id: span.id.0.to_be_bytes().to_vec(),
        parent_span_id: span.parent.map_or_else(Vec::new, |parent| parent.0.to_be_bytes().to_vec()),
        flags: wire::SAMPLED,
        name: span.name,
        kind: match span.side {
            Side::Internal => wire::INTERNAL,
            Side::Client => wire::CLIENT,
            Side::Server => wire::SERVER,
        },
        start_time_unix_nano: nanos(span.start),
        end_time_unix_nano: nanos(span.end),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        events: span.events.into_iter().map(event).collect(),
        status: Some(wire::SpanStatus { message, code }),
    }
}

fn record(line: Line) -> wire::LogRecord {
    let (severity_number, name) = match line.level {
        log::Level::Error => (17, "ERROR"),
        log::Level::Warn => (13, "WARN"),
        log::Level::Info => (9, "INFO"),
        log::Level::Debug => (5, "DEBUG"),
        log::Level::Trace => (1, "TRACE"),
    };
    wire::LogRecord {
        time_unix_nano: nanos(line.at),
        observed_time_unix_nano: nanos(line.at),
        severity_number,
        severity_text: name.to_owned(),
        body: any(Any::Text(line.text)),
        attributes: vec![text("code.namespace", &line.target)],
    }
}

fn scope() -> Option<Scope> {
    Some(Scope { name: "webloom".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() })
}

fn attribute(key: &str, value: Value) -> KeyValue {
    let value = match value {
        Value::Text(text) => Any::Text(text),
        Value::Int(number) => Any::Int(number),
    };
    KeyValue { key: key.to_owned(), value: any(value) }
}

fn text(key: &str, value: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: any(Any::Text(value.to_owned())) }
}

fn any(value: Any) -> Option<AnyValue> {
    Some(AnyValue { value: Some(value) })
}

/// Nanoseconds since 1970.
fn nanos(at: Timestamp) -> u64 {
    u64::try_from(at.0).unwrap_or(0).saturating_mul(1_000_000)
}

#[cfg(test)]
#[path = "encode_tests.rs"]
mod tests;
