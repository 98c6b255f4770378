//! `/api/v1/runs/{id}/logs`

use super::limit;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::body::{MAX_JSON, id, read as read_body};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::log::LogInput;
use crate::protocol::management::{LogAccepted, LogPage};
use crate::protocol::problem::Problem;
use crate::protocol::push::read_json;
use crate::service::LogFilter;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;
use std::time::Duration;

/// Seconds that a call may wait for a line.
const MOST_WAIT: f64 = 30.0;
/// The largest body: a thousand lines of full length, with the overhead of JSON.
const MOST_BODY: usize = 10 * MAX_JSON;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/runs/{id}/logs")
            .get(read, |op| {
                op.named("readLogs")
                    .description("The log of a run, in the order of arrival. The call can wait for new lines.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<LogPage>(200, "The lines, and the position to continue at.")
                    .may_fail(&[422])
            })
            .post(append, |op| {
                op.named("appendLogs")
                    .description("A worker appends lines to the log of a run.")
                    .needs(Need::Worker)
                    .body::<Vec<LogInput>>()
                    .answers::<LogAccepted>(200, "The number of stored lines.")
                    .may_fail(&[409, 422])
            }),
    ]
}

/// The query of a log.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only lines after the one with this id.
    after: Option<i64>,
    /// Only this level and worse: trace, debug, info, warning, error, critical, or 0 to 5.
    #[schemars(regex(pattern = "^([0-5]|trace|debug|info|warning|error|critical)$"))]
    level: Option<String>,
    /// Only lines that contain this text, ignoring case.
    text: Option<String>,
    /// Only lines at this time or later.
    since: Option<Timestamp>,
    /// Only lines at this time or earlier.
    until: Option<Timestamp>,
    /// Seconds to wait for a line if there is none and the run has not ended, at most 30.
    #[schemars(range(min = 0.0, max = MOST_WAIT))]
    wait: Option<f64>,
    /// Maximum number of lines, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs/{id}/logs`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { after, level, text, since, until, wait, limit: asked } = query.into_inner();
    let wait = match wait {
        None => Duration::ZERO,
        Some(seconds) if (0.0..=MOST_WAIT).contains(&seconds) => Duration::from_secs_f64(seconds),
        Some(_) => return Err(Problem::invalid("wait", format!("must be 0 to {MOST_WAIT} seconds")).into()),
    };
    let filter = LogFilter { after, level, text, since, until, limit: limit(asked)?, wait };
    Ok(HttpResponse::Ok().json(edge.service.logs(id(&edge, &request, "id").await?, filter).await?))
}

/// `POST /api/v1/runs/{id}/logs`: an array of lines.
pub async fn append(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let run = id(&edge, &request, "id").await?;
    let lines: Vec<LogInput> = read_json(&read_body(&request, payload, MOST_BODY).await?)?;
    Ok(HttpResponse::Ok().json(edge.service.append_logs(run, lines).await?))
}
