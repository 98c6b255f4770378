//! `/api/v1/runs`

use super::limit;
use crate::actors::desk::RunFilter;
use crate::domain::ids::JobId;
use crate::domain::job::JobKind;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

/// The query of a list of runs.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Only of this state.
    state: Option<RunState>,
    /// Only of this job.
    job_id: Option<JobId>,
    /// Only of this kind.
    kind: Option<JobKind>,
    /// Only of jobs that are in this group now.
    group: Option<String>,
    /// Only those made at this instant and later.
    from: Option<Timestamp>,
    /// Only those made at this instant and earlier.
    to: Option<Timestamp>,
    /// `-creationTime`, the newest first, unless it says `creationTime`.
    sort: Option<String>,
    /// Where the last page ended.
    cursor: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

/// `GET /api/v1/runs`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let Query { state, job_id, kind, group, from, to, sort, cursor, limit: asked } = query.into_inner();
    let filter = RunFilter { state, job_id, kind, group, from, to, sort, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(edge.desk.runs(filter).await?))
}

/// `GET /api/v1/runs/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.run(id(&request, "id")?).await?))
}

/// `POST /api/v1/runs/{id}/stop`
pub async fn stop(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.stop_run(id(&request, "id")?, caller.name.as_deref()).await?))
}

/// `POST /api/v1/runs/{id}/retry`
pub async fn retry(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let run = edge.desk.retry_run(id(&request, "id")?, caller.name).await?;
    Ok(HttpResponse::Accepted().insert_header(("Location", format!("/api/v1/runs/{}", run.identity))).json(run))
}

/// When a job comes next.
#[derive(Debug, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub struct NextFire {
    /// Absent: not, or not until a run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_fire: Option<Timestamp>,
}

/// `POST /api/v1/runs/{id}/next`
pub async fn ask_next(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let next_fire = edge.desk.ask_next(id(&request, "id")?, json(&request, payload).await?).await?;
    Ok(HttpResponse::Ok().json(NextFire { next_fire }))
}

/// `GET /api/v1/runs/{id}/why`
pub async fn why(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.why_run(id(&request, "id")?).await?))
}

/// The query of a list of blocks.
#[derive(Debug, Deserialize)]
pub struct BlockQuery {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// `GET /api/v1/runs/{id}/blocks`
pub async fn blocks(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<BlockQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let page = edge.desk.blocks(id(&request, "id")?, query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `GET /api/v1/runs/{id}/status`
pub async fn status(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.run_status(id(&request, "id")?).await?))
}

/// The body of a `start-returned`.
#[derive(Debug, Default, Deserialize)]
pub struct StartReturned {
    #[serde(default)]
    error: Option<String>,
}

/// `POST /api/v1/runs/{id}/start-returned`
pub async fn start_returned(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let body: StartReturned = json_or_default(&request, payload).await?;
    edge.desk.start_returned(id(&request, "id")?, body.error).await?;
    Ok(HttpResponse::NoContent().finish())
}
