//! `/api/v1/runs/{id}/logs/stream`: follows the log of a run, as server-sent events.

use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::id;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::management::LogLine;
use crate::protocol::problem::Problem;
use crate::service::{LogEvent, LogFilter};
use actix_web::http::header::CACHE_CONTROL;
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::unfold;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::time::Duration;

/// The media type of server-sent events.
const EVENTS: &str = "text/event-stream";
/// The longest `wait` of a client, in seconds.
const MOST_WAIT: f64 = 86_400.0;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![resource("/api/v1/runs/{id}/logs/stream").get(follow, |op| {
        op.named("followLogs")
            .only_leader()
            .description(
                "Follows the log of a run, as server-sent events: `line`, `state`, `end`. `Last-Event-ID` continues after that line.",
            )
            .needs(Need::Read)
            .query::<Query>()
            .answers_as(200, EVENTS, "The events, until the run is over.")
            .may_fail(&[422])
    })]
}

/// The query of a followed log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only lines after the one with this id; the header `Last-Event-ID` means the same and takes precedence.
    after: Option<i64>,
    /// Only this level and worse: trace, debug, info, warning, error, critical, or 0 to 5.
    #[schemars(regex(pattern = "^([0-5]|trace|debug|info|warning|error|critical)$"))]
    level: Option<String>,
    /// Only lines that contain this text, ignoring case.
    text: Option<String>,
    /// Seconds until the response ends even if the run has not; 0: it ends after the lines that exist now.
    #[schemars(range(min = 0.0, max = MOST_WAIT))]
    wait: Option<f64>,
}

/// `GET /api/v1/runs/{id}/logs/stream`
pub async fn follow(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<Query>,
) -> Result<HttpResponse, Failure> {
    let Query { after, level, text, wait } = query.into_inner();
    let most = match wait {
        None => None,
        Some(seconds) if (0.0..=MOST_WAIT).contains(&seconds) => Some(Duration::from_secs_f64(seconds)),
        Some(_) => return Err(Problem::invalid("wait", format!("must be 0 to {MOST_WAIT} seconds")).into()),
    };
    // Not a number: the id comes from another server, so the log is sent from its beginning.
    let last = request.headers().get("last-event-id").and_then(|value| value.to_str().ok()?.trim().parse().ok());
    let filter = LogFilter { after: last.or(after), level, text, ..LogFilter::default() };
    let run_id = id(&edge, &request, "id").await?;
    let events = edge.service.follow_logs(run_id, filter, most).await?;
    let withdrawn = caller.withdrawn(&edge.tokens).boxed_local();
    let body = unfold(Some((events, withdrawn)), move |open| async move {
        let (mut events, mut withdrawn) = open?;
        let (event, open) = tokio::select! {
            biased;
            problem = &mut withdrawn => {
                log::warn!("log stream closed because its token was withdrawn run_id={run_id} reason={}", problem.detail);
                (LogEvent::Failed(problem), None)
            }
            event = events.recv() => (event?, Some((events, withdrawn))),
        };
        Some((Ok::<_, Infallible>(written(&event)), open))
    });
    Ok(HttpResponse::Ok()
        .content_type(EVENTS)
        .insert_header((CACHE_CONTROL, "no-store"))
        // A buffering proxy would hold the lines back.
        .insert_header(("X-Accel-Buffering", "no"))
        .streaming(body))
}

fn written(event: &LogEvent) -> Bytes {
    let mut out = String::new();
    match event {
        LogEvent::Lines(lines) => lines.iter().for_each(|line| write_line(&mut out, line)),
        LogEvent::State(state) => write_event(&mut out, "state", &json!({ "state": state })),
        LogEvent::End(state, reason) => write_event(&mut out, "end", &json!({ "state": state, "reason": reason })),
        LogEvent::Alive => out.push_str(": alive\n\n"),
        LogEvent::Failed(problem) => write_event(&mut out, "problem", problem),
    }
    Bytes::from(out)
}

fn write_line(out: &mut String, line: &LogLine) {
    // Writing to a string cannot fail.
    let _ = writeln!(out, "id: {}", line.id);
    write_event(out, "line", line);
}

fn write_event(out: &mut String, name: &str, data: &impl Serialize) {
    // Compact JSON has no line breaks.
    let data = serde_json::to_string(data).unwrap_or_default();
    let _ = write!(out, "event: {name}\ndata: {data}\n\n");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::RunState;
    use crate::domain::time::Timestamp;

    #[test]
    fn events_are_written_line_by_line() {
        let line = LogLine { id: 7, at: Timestamp(0), level: "info".into(), source: "worker".into(), text: "a\n\nb".into() };
        let text = written(&LogEvent::Lines(vec![line.clone(), line]));
        let one = "id: 7\nevent: line\ndata: {\"id\":7,\"at\":\"1970-01-01T00:00:00.000Z\",\"level\":\"info\",\"source\":\"worker\",\"text\":\"a\\n\\nb\"}\n\n";
        assert_eq!(text, one.repeat(2));
        assert_eq!(written(&LogEvent::State(RunState::Running)), "event: state\ndata: {\"state\":\"running\"}\n\n");
        assert_eq!(written(&LogEvent::Alive), ": alive\n\n");
    }
}
