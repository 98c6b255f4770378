//! `/api/v1/runs`

use super::limit;
use crate::domain::ids::{IdPart, Identity, JobId, PeerId, TraceId};
use crate::domain::job::JobKind;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::owners::may_speak_for;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{BlockOutput, JobStatusOutput, Page, RunOutput};
use crate::protocol::management::{AskInput, WhyOutput};
use crate::protocol::packages::{AttemptOutput, InstanceOutput};
use crate::service::RunFilter;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/runs").get(list, |op| {
            op.named("listRuns").leader_first().live().limits_itself()
                .description("Lists runs, by default newest first.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<RunOutput>>(200, "A page of runs.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}")
            .get(read, |op| op.named("readRun").leader_first().live().description("A run.").needs(Need::Read).answers::<RunOutput>(200, "The run.")),
        resource("/api/v1/runs/{id}/stop").post(stop, |op| {
            op.named("stopRun")
                .description(
                    "Stops a run. Programs get a stop request, and are killed after their grace period; until then the response shows the current state.",
                )
                .needs(Need::Operate)
                .answers::<RunOutput>(200, "The run.")
                .may_fail(&[409])
        }),
        resource("/api/v1/runs/{id}/retry").post(retry, |op| {
            op.named("retryRun")
                .description("Repeats a run, as a new run.")
                .needs(Need::Operate)
                .answers::<RunOutput>(202, "The new run.")
                .with_header("Location", "The address of the new run.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/runs/{id}/next").post(ask_next, |op| {
            op.named("askNext")
                .description("A run sets the next fire of its job. This replaces the schedule once.")
                .needs(Need::Worker)
                .body::<AskInput>()
                .answers::<NextFire>(200, "The next fire of the job.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/runs/{id}/why").get(why, |op| {
            op.named("explainRun").live()
                .only_leader()
                .description("Explains the state of a run: what it waits for, which worker or node has it, or how it ended.")
                .needs(Need::Read)
                .answers::<WhyOutput>(200, "The reason.")
        }),
        resource("/api/v1/runs/{id}/blocks").get(blocks, |op| {
            op.named("listBlocks").leader_first().of_run()
                .description("Lists the blocks of a run, in the order of their numbers.")
                .needs(Need::Read)
                .query::<BlockQuery>()
                .answers::<Page<BlockOutput>>(200, "A page of blocks.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/instances").get(instances, |op| {
            op.named("listInstances").live()
                .description("Lists the instances of a run, each with its current or last worker or node. A task that went to one worker has one; block runs and callbacks have none.")
                .needs(Need::Read)
                .query::<BlockQuery>()
                .answers::<Page<InstanceOutput>>(200, "A page of instances.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/attempts").get(attempts, |op| {
            op.named("listAttempts").live()
                .description("Lists the attempts of a run that had more than one, by instance and attempt: of each instance the last 100. The current or last attempt of a program, and of a task on several workers, is in the list of instances only. A run with one attempt has none here: its times are its attempt's.")
                .needs(Need::Read)
                .query::<AttemptQuery>()
                .answers::<Page<AttemptOutput>>(200, "A page of attempts.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/status").get(status, |op| {
            op.named("readRunStatus").leader_first().live()
                .description("The statistics of each node for a run. The first row is the total and has no node.")
                .needs(Need::Read)
                .answers::<Vec<JobStatusOutput>>(200, "The total, then a row for each node.")
        }),
        resource("/api/v1/runs/{id}/start-returned").post(start_returned, |op| {
            op.named("startReturned").of_run()
                .description("A worker reports that it pushed the first requests of a run, or that it failed to.")
                .needs(Need::Worker)
                .body_or_nothing::<StartReturned>()
                .answers_nothing(204, "It is stored.")
                .may_fail(&[409])
        }),
    ]
}

/// The query of a list of runs.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Query {
    /// Only those whose id begins or ends with these 4 to 32 digits.
    id: Option<IdPart>,
    /// Only runs in this state.
    state: Option<RunState>,
    /// Only runs of this job.
    job_id: Option<JobId>,
    /// Only runs of this kind.
    kind: Option<JobKind>,
    /// Only runs of jobs that are in this group now.
    group: Option<String>,
    /// Only runs of this W3C trace: 32 hexadecimal digits.
    trace_id: Option<TraceId>,
    /// Only runs created at this time or later.
    from: Option<Timestamp>,
    /// Only runs created at this time or earlier.
    to: Option<Timestamp>,
    /// `-creationTime` (newest first, the default) or `creationTime`.
    sort: Option<String>,
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs`
pub async fn list(edge: web::Data<Edge>, caller: Caller, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { id, state, job_id, kind, group, trace_id: trace, from, to, sort, cursor, limit: asked } = query.into_inner();
    let filter = RunFilter { id, state, job_id, kind, group, among: caller.among(), trace, from, to, sort, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.runs(filter).await?)))
}

/// `GET /api/v1/runs/{id}`
pub async fn read(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.run(id(&edge, &request, "id").await?).await?)))
}

/// `POST /api/v1/runs/{id}/stop`
pub async fn stop(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let run = edge.service.stop_run(id(&edge, &request, "id").await?, caller.name.as_deref()).await?;
    Ok(HttpResponse::Ok().json(shown(&caller, run)))
}

/// `POST /api/v1/runs/{id}/retry`
pub async fn retry(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let run = edge.service.retry_run(id(&edge, &request, "id").await?, caller.name.clone()).await?;
    Ok(HttpResponse::Accepted().insert_header(("Location", format!("/api/v1/runs/{}", run.identity))).json(shown(&caller, run)))
}

/// The next fire of a job.
#[derive(Debug, serde::Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NextFire {
    /// Absent: there is none, or none until a run has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_fire: Option<Timestamp>,
}

/// `POST /api/v1/runs/{id}/next`
pub async fn ask_next(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let next_fire = edge.service.ask_next(id(&edge, &request, "id").await?, json(&request, payload).await?).await?;
    Ok(HttpResponse::Ok().json(NextFire { next_fire }))
}

/// `GET /api/v1/runs/{id}/why`
pub async fn why(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.why_run(id(&edge, &request, "id").await?).await?))
}

/// The query of a list of blocks or instances.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockQuery {
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs/{id}/blocks`
pub async fn blocks(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<BlockQuery>) -> Result<HttpResponse, Failure> {
    let page = edge.service.blocks(id(&edge, &request, "id").await?, query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `GET /api/v1/runs/{id}/instances`
pub async fn instances(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<BlockQuery>) -> Result<HttpResponse, Failure> {
    let page = edge.service.instances(id(&edge, &request, "id").await?, query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// The query of a list of attempts.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptQuery {
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}-[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/runs/{id}/attempts`
pub async fn attempts(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<AttemptQuery>) -> Result<HttpResponse, Failure> {
    let page = edge.service.attempts(id(&edge, &request, "id").await?, query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `GET /api/v1/runs/{id}/status`
pub async fn status(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.run_status(id(&edge, &request, "id").await?).await?))
}

/// The body of a `start-returned`.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct StartReturned {
    /// Why there are no requests. The run fails.
    #[serde(default)]
    error: Option<String>,
}

/// `POST /api/v1/runs/{id}/start-returned`
pub async fn start_returned(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let body: StartReturned = json_or_default(&request, payload).await?;
    let run: Identity = id(&edge, &request, "id").await?;
    if let Some(worker) = edge.service.run(run).await?.worker_id {
        may_speak_for(&edge, &caller, PeerId::Worker(worker)).await?;
    }
    edge.service.start_returned(run, body.error).await?;
    Ok(HttpResponse::NoContent().finish())
}
