//! `/api/v1/jobs`

use super::limit;
use crate::actors::service::{JobFilter, TriggerOrder};
use crate::domain::ids::IdPart;
use crate::domain::job::JobKind;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::api::{JobInput, Page, RunOutput, TriggerInput};
use crate::protocol::management::{BackfillInput, BackfillOutput, DisableInput, JobOutput, RedriveJobInput, RedriveOutput};
use crate::protocol::problem::Problem;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    let mut all = stored();
    all.extend(acts());
    all
}

/// Jobs as they are stored.
fn stored() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs")
            .get(list, |op| {
                op.named("listJobs")
                    .says("Lists jobs, oldest first unless told otherwise.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<JobOutput>>(200, "A page of jobs.")
                    .may_fail(&[422])
            })
            .post(create, |op| {
                op.named("createJob")
                    .says("Creates a job, or only checks it.")
                    .needs(Need::Admin)
                    .query::<CreateQuery>()
                    .body::<JobInput>()
                    .answers::<JobOutput>(201, "The job.")
                    .with_header("Location", "The address of the job.")
                    .answers::<JobOutput>(200, "The job as it would be: nothing was written.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/jobs/{id}")
            .get(read, |op| op.named("readJob").says("A job.").needs(Need::Read).answers::<JobOutput>(200, "The job."))
            .put(update, |op| {
                op.named("updateJob")
                    .says("Changes a job. What is left out stays as it is; `If-Match` or `version` names the version that was read.")
                    .needs(Need::Admin)
                    .body::<JobInput>()
                    .answers::<JobOutput>(200, "The job as it is now.")
                    .may_fail(&[409, 422])
            })
            .delete(delete, |op| {
                op.named("deleteJob")
                    .says("Deletes a job: it is marked, and neither triggered nor planned any more. Its past stays.")
                    .needs(Need::Admin)
                    .answers_nothing(204, "It is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/jobs/{id}/restore").post(restore, |op| {
            op.named("restoreJob")
                .says("Takes a deletion back. The job is disabled then.")
                .needs(Need::Admin)
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/purge").post(purge, |op| {
            op.named("purgeJob")
                .says("Takes a deleted job out of the store for good, when all its runs are over.")
                .needs(Need::Admin)
                .answers_nothing(204, "It is gone.")
                .may_fail(&[409])
        }),
    ]
}

/// What can be done with a job.
fn acts() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/{id}/enable").post(enable, |op| {
            op.named("enableJob")
                .says("Lets plan and triggers start a job.")
                .needs(Need::Admin)
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/disable").post(disable, |op| {
            op.named("disableJob")
                .says("Keeps plan and triggers from starting a job.")
                .needs(Need::Admin)
                .body_or_nothing::<DisableInput>()
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/trigger")
            .get(trigger, |op| {
                makes_a_run(op.named("triggerJobByGet").only_leader().says("Triggers a job, for schedulers whose callback is a GET."))
            })
            .post(trigger, |op| {
                makes_a_run(
                    op.named("triggerJob")
                        .says("Triggers a job. One `fireTime` or `Idempotency-Key` makes one run, told as often as it may be."),
                )
            }),
        resource("/api/v1/jobs/{id}/backfill").post(backfill, |op| {
            op.named("backfillJob")
                .says("Makes runs for the instants of a past range of the plan that made none.")
                .needs(Need::Admin)
                .body::<BackfillInput>()
                .answers::<BackfillOutput>(200, "The instants and their runs.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/redrive").post(redrive, |op| {
            op.named("redriveJob")
                .says("Runs the dead runs of a job again: those that failed for good and that nobody has run again.")
                .needs(Need::Admin)
                .body_or_nothing::<RedriveJobInput>()
                .answers::<RedriveOutput>(200, "The new runs.")
                .may_fail(&[409, 422])
        }),
    ]
}

fn makes_a_run(op: Operation) -> Operation {
    op.needs(Need::Admin)
        .body_or_nothing::<TriggerInput>()
        .answers::<RunOutput>(202, "The run, which has failed already if nobody watches its class.")
        .with_header("Location", "The address of the run.")
        .may_fail(&[409, 422])
}

/// The query of a list of jobs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Query {
    /// Only those whose id begins or ends with these 4 to 32 digits.
    id: Option<IdPart>,
    /// Only those whose name contains this, without case.
    name: Option<String>,
    /// Only those that are enabled, or those that are not.
    enabled: Option<bool>,
    /// Only those of this kind.
    kind: Option<JobKind>,
    /// Only those of this group.
    group: Option<String>,
    /// Those that were deleted instead.
    #[serde(default)]
    deleted: bool,
    /// `creationTime`, `updateTime`, `name` or `nextFire`; `-` in front: the other way round.
    sort: Option<String>,
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9a-f]{32}-.+$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs`
pub async fn list(edge: web::Data<Edge>, caller: Caller, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { id, name, enabled, kind, group, deleted, sort, cursor, limit: asked } = query.into_inner();
    let filter = JobFilter { id, name, enabled, kind, group, deleted, sort, cursor, limit: limit(asked)? };
    let Page { items, next_cursor } = edge.service.jobs(filter).await?;
    Ok(HttpResponse::Ok().json(Page { items: shown(&caller, items), next_cursor }))
}

/// The query of a creation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateQuery {
    /// Only check it, and say what it would be.
    #[serde(default)]
    dry_run: bool,
}

/// `POST /api/v1/jobs`
pub async fn create(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<CreateQuery>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let input = json(&request, payload).await?;
    if query.dry_run {
        return Ok(HttpResponse::Ok().json(edge.service.check_job(input, caller.name).await?));
    }
    let job = edge.service.create_job(input, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/jobs/{}", job.job.id))).json(job))
}

/// `GET /api/v1/jobs/{id}`
pub async fn read(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.job(id(&edge, &request, "id").await?).await?)))
}

/// The version in `If-Match`, if the caller sent one.
fn if_match(request: &HttpRequest) -> Result<Option<i64>, Failure> {
    let Some(value) = request.headers().get("If-Match") else { return Ok(None) };
    let version = value.to_str().ok().map(|text| text.trim().trim_start_matches("W/").trim_matches('"'));
    match version.map(|text| (text, text.parse())) {
        Some(("*", _)) => Ok(None),
        Some((_, Ok(version))) => Ok(Some(version)),
        _ => Err(Problem::malformed("`If-Match` holds no version").at("If-Match").into()),
    }
}

/// `PUT /api/v1/jobs/{id}`
pub async fn update(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    let seen = if_match(&request)?;
    let mut input: JobInput = json(&request, payload).await?;
    input.version = input.version.or(seen);
    Ok(HttpResponse::Ok().json(edge.service.update_job(job, input, caller.name).await?))
}

/// `DELETE /api/v1/jobs/{id}`
pub async fn delete(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.delete_job(id(&edge, &request, "id").await?, if_match(&request)?, caller.name).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/jobs/{id}/restore`
pub async fn restore(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.restore_job(id(&edge, &request, "id").await?, caller.name).await?))
}

/// `POST /api/v1/jobs/{id}/purge`
pub async fn purge(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.purge_job(id(&edge, &request, "id").await?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/jobs/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.enable_job(id(&edge, &request, "id").await?, caller.name).await?))
}

/// `POST /api/v1/jobs/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.disable_job(id(&edge, &request, "id").await?, input, caller.name).await?))
}

/// The trace that a caller is in: the second part of a W3C `traceparent`.
pub(super) fn trace_of(request: &HttpRequest) -> Option<String> {
    let text = request.headers().get("traceparent")?.to_str().ok()?;
    let trace = text.split('-').nth(1)?;
    let is_trace = trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit()) && trace.bytes().any(|b| b != b'0');
    is_trace.then(|| trace.to_ascii_lowercase())
}

/// `POST` or `GET /api/v1/jobs/{id}/trigger`: an outside scheduler's callback may be either.
pub async fn trigger(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    let mut input: TriggerInput = json_or_default(&request, payload).await?;
    let key = request.headers().get("Idempotency-Key").and_then(|value| value.to_str().ok()).map(str::to_owned);
    input.idempotency_key = input.idempotency_key.or(key);
    let order =
        TriggerOrder { input, retry_of: None, trace_id: trace_of(&request), by: caller.name, waits: false, after: None, alone: false };
    let run = edge.service.trigger(job, order).await?;
    Ok(HttpResponse::Accepted().insert_header(("Location", format!("/api/v1/runs/{}", run.identity))).json(run))
}

/// `POST /api/v1/jobs/{id}/backfill`
pub async fn backfill(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    Ok(HttpResponse::Ok().json(edge.service.backfill(job, json(&request, payload).await?, caller.name).await?))
}

/// `POST /api/v1/jobs/{id}/redrive`
pub async fn redrive(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: RedriveJobInput = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.redrive(id(&edge, &request, "id").await?, input, caller.name).await?))
}
