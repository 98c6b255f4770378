//! `/api/v1/runs`

use super::limit;
use crate::actors::desk::RunFilter;
use crate::domain::ids::JobId;
use crate::domain::run::RunState;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json_or_default};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{BlockOutput, JobStatusOutput, Page, RunOutput};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/runs").get(list, |op| {
            op.named("listRuns")
                .says("Lists runs, newest first.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<RunOutput>>(200, "A page of runs.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}")
            .get(read, |op| op.named("readRun").says("A run.").needs(Need::Read).answers::<RunOutput>(200, "The run.")),
        resource("/api/v1/runs/{id}/stop").post(stop, |op| {
            op.named("stopRun").says("Ends a run.").needs(Need::Admin).answers::<RunOutput>(200, "The run.").may_fail(&[409])
        }),
        resource("/api/v1/runs/{id}/blocks").get(blocks, |op| {
            op.named("listBlocks")
                .says("Lists the blocks of a run, in the order of their numbers.")
                .needs(Need::Read)
                .query::<BlockQuery>()
                .answers::<Page<BlockOutput>>(200, "A page of blocks.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/status").get(status, |op| {
            op.named("readRunStatus")
                .says("What each node did for a run. The sum comes first, without a node.")
                .needs(Need::Read)
                .answers::<Vec<JobStatusOutput>>(200, "The sum, then a row for each node.")
        }),
        resource("/api/v1/runs/{id}/start-returned").post(start_returned, |op| {
            op.named("startReturned")
                .says("A worker has pushed the first requests of a run, or could not.")
                .needs(Need::Worker)
                .body_or_nothing::<StartReturned>()
                .answers_nothing(204, "It is stored.")
                .may_fail(&[409])
        }),
    ]
}

/// The query of a list of runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Query {
    /// Only of this state.
    state: Option<RunState>,
    /// Only of this job.
    job_id: Option<JobId>,
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let Query { state, job_id, cursor, limit: asked } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.desk.runs(RunFilter { state, job_id, cursor, limit: limit(asked)? }).await?))
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

/// The query of a list of blocks.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct BlockQuery {
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
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
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub struct StartReturned {
    /// Why there are none. The run fails.
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
