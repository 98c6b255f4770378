//! `/api/v1/jobs`

use super::limit;
use crate::domain::ids::{IdPart, JobId};
use crate::domain::job::JobKind;
use crate::domain::trace::TraceContext;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::route::{Operation, Resource, resource};
use crate::edge::scope::{check_changed_job, check_new_job};
use crate::protocol::api::{JobInput, Page, RunOutput, TriggerInput};
use crate::protocol::management::{BackfillInput, BackfillOutput, DisableInput, JobOutput, RedriveJobInput, RedriveOutput};
use crate::protocol::problem::Problem;
use crate::service::{JobFilter, TriggerOrder};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    let mut all = stored();
    all.extend(acts());
    all
}

/// Routes for stored jobs.
fn stored() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs")
            .get(list, |op| {
                op.named("listJobs")
                    .live()
                    .limits_itself()
                    .description("Lists jobs, by default oldest first.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<JobOutput>>(200, "A page of jobs.")
                    .may_fail(&[422])
            })
            .post(create, |op| {
                op.named("createJob")
                    .limits_itself()
                    .description("Creates a job, or only checks it.")
                    .needs(Need::Edit)
                    .query::<CreateQuery>()
                    .body::<JobInput>()
                    .answers::<JobOutput>(201, "The job.")
                    .with_header("Location", "The address of the job.")
                    .answers::<JobOutput>(200, "The job as it would be created; nothing was written.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/jobs/{id}")
            .get(read, |op| op.named("readJob").live().description("A job.").needs(Need::Read).answers::<JobOutput>(200, "The job."))
            .put(update, |op| {
                op.named("updateJob")
                    .description("Changes a job. What is left out stays as it is; `If-Match` or `version` names the version that was read.")
                    .needs(Need::Edit)
                    .body::<JobInput>()
                    .answers::<JobOutput>(200, "The job as it is now.")
                    .may_fail(&[409, 422])
            })
            .delete(delete, |op| {
                op.named("deleteJob")
                    .description("Deletes a job: it is marked as deleted, and no longer triggered or scheduled. Its history stays.")
                    .needs(Need::Edit)
                    .answers_nothing(204, "It is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/jobs/{id}/restore").post(restore, |op| {
            op.named("restoreJob")
                .description("Restores a deleted job. It is disabled afterwards.")
                .needs(Need::Edit)
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/purge").post(purge, |op| {
            op.named("purgeJob")
                .description("Removes a deleted job from the store for good. All its runs must have ended.")
                .needs(Need::Admin)
                .answers_nothing(204, "The job is removed.")
                .may_fail(&[409])
        }),
    ]
}

/// Routes for actions on a job.
fn acts() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/{id}/enable").post(enable, |op| {
            op.named("enableJob")
                .description("Enables a job: its schedule and triggers start runs.")
                .needs(Need::Operate)
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/disable").post(disable, |op| {
            op.named("disableJob")
                .description("Disables a job: its schedule and triggers start no runs.")
                .needs(Need::Operate)
                .body_or_nothing::<DisableInput>()
                .answers::<JobOutput>(200, "The job.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/trigger")
            .get(trigger, |op| {
                makes_a_run(
                    op.named("triggerJobByGet").only_leader().description("Triggers a job, for schedulers that call back with a GET."),
                )
            })
            .post(trigger, |op| {
                makes_a_run(
                    op.named("triggerJob").description("Triggers a job. Calls with the same `fireTime` or `Idempotency-Key` make one run."),
                )
            }),
        resource("/api/v1/jobs/{id}/backfill").post(backfill, |op| {
            op.named("backfillJob")
                .description("Creates the missing runs for the scheduled times of a past range.")
                .needs(Need::Operate)
                .body::<BackfillInput>()
                .answers::<BackfillOutput>(200, "The scheduled times and their runs.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/redrive").post(redrive, |op| {
            op.named("redriveJob")
                .description("Repeats the dead runs of a job: those that failed for good and that were not repeated yet.")
                .needs(Need::Operate)
                .body_or_nothing::<RedriveJobInput>()
                .answers::<RedriveOutput>(200, "The new runs.")
                .may_fail(&[409, 422])
        }),
    ]
}

fn makes_a_run(op: Operation) -> Operation {
    op.needs(Need::Operate)
        .recorded_in_its_run()
        .body_or_nothing::<TriggerInput>()
        .answers::<RunOutput>(202, "The run. It has already failed if no worker watches its class.")
        .with_header("Location", "The address of the run.")
        .may_fail(&[409, 422])
}

/// The query of a list of jobs.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Query {
    /// Only those whose id begins or ends with these 4 to 32 digits.
    id: Option<IdPart>,
    /// Only those whose name contains this, ignoring case.
    name: Option<String>,
    /// Only those that are enabled, or those that are not.
    enabled: Option<bool>,
    /// Only those of this kind.
    kind: Option<JobKind>,
    /// Only those of this group.
    group: Option<String>,
    /// Only deleted jobs.
    #[serde(default)]
    deleted: bool,
    /// `creationTime`, `updateTime`, `name` or `nextFire`; a leading `-` reverses the order.
    sort: Option<String>,
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9a-f]{32}-.+$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs`
pub async fn list(edge: web::Data<Edge>, caller: Caller, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { id, name, enabled, kind, group, deleted, sort, cursor, limit: asked } = query.into_inner();
    let filter = JobFilter { id, name, enabled, kind, group, among: caller.among(), deleted, sort, cursor, limit: limit(asked)? };
    let Page { items, next_cursor } = edge.service.jobs(filter).await?;
    Ok(HttpResponse::Ok().json(Page { items: shown(&caller, items), next_cursor }))
}

/// The query of a creation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateQuery {
    /// Only check the job and return it as it would be created.
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
    let input: JobInput = json(&request, payload).await?;
    check_new_job(&edge, &caller, &input).await?;
    if query.dry_run {
        let job = edge.service.check_job(input, caller.name.clone()).await?;
        return Ok(HttpResponse::Ok().json(shown(&caller, job)));
    }
    let job = edge.service.create_job(input, caller.name.clone()).await?;
    let at = ("Location", format!("/api/v1/jobs/{}", job.job.id));
    Ok(HttpResponse::Created().insert_header(at).json(shown(&caller, job)))
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
        _ => Err(Problem::malformed("`If-Match` must be the version of the job, a whole number").at("If-Match").into()),
    }
}

/// `PUT /api/v1/jobs/{id}`
pub async fn update(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job: JobId = id(&edge, &request, "id").await?;
    let seen = if_match(&request)?;
    let mut input: JobInput = json(&request, payload).await?;
    input.version = input.version.or(seen);
    check_changed_job(&edge, &caller, job, &input).await?;
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.update_job(job, input, caller.name.clone()).await?)))
}

/// `DELETE /api/v1/jobs/{id}`
pub async fn delete(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.delete_job(id(&edge, &request, "id").await?, if_match(&request)?, caller.name).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/jobs/{id}/restore`
pub async fn restore(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.restore_job(id(&edge, &request, "id").await?, caller.name.clone()).await?)))
}

/// `POST /api/v1/jobs/{id}/purge`
pub async fn purge(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.purge_job(id(&edge, &request, "id").await?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/jobs/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.enable_job(id(&edge, &request, "id").await?, caller.name.clone()).await?)))
}

/// `POST /api/v1/jobs/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok()
        .json(shown(&caller, edge.service.disable_job(id(&edge, &request, "id").await?, input, caller.name.clone()).await?)))
}

/// The trace of the caller.
pub(in crate::edge) fn trace_of(request: &HttpRequest) -> Option<TraceContext> {
    TraceContext::parse(request.headers().get("traceparent")?.to_str().ok()?)
}

/// The `Idempotency-Key` of a call that makes a run.
///
/// # Errors
/// It is not text in UTF-8. To ignore it would make a second run of a repeated call.
pub(in crate::edge) fn idempotency_key(request: &HttpRequest) -> Result<Option<String>, Problem> {
    let Some(value) = request.headers().get("Idempotency-Key") else { return Ok(None) };
    let text = std::str::from_utf8(value.as_bytes()).map_err(|_| Problem::invalid("idempotencyKey", "must be text in UTF-8"))?;
    Ok(Some(text.to_owned()))
}

/// `POST` or `GET /api/v1/jobs/{id}/trigger`: callbacks of external schedulers use either.
pub async fn trigger(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    let mut input: TriggerInput = json_or_default(&request, payload).await?;
    let key = idempotency_key(&request)?;
    input.idempotency_key = input.idempotency_key.or(key);
    let order = TriggerOrder { input, trace: trace_of(&request), by: caller.name.clone(), ..TriggerOrder::default() };
    let run = shown(&caller, edge.service.trigger(job, order).await?);
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
    Ok(HttpResponse::Ok().json(edge.service.redrive_job(id(&edge, &request, "id").await?, input.dry_run, caller.name).await?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use actix_web::http::header::HeaderValue;
    use actix_web::test::TestRequest;

    #[test]
    fn an_idempotency_key_is_any_text_and_is_never_passed_over() {
        let key = |bytes: &[u8]| {
            let value = HeaderValue::from_bytes(bytes).expect("a value of a header");
            idempotency_key(&TestRequest::default().insert_header(("Idempotency-Key", value)).to_http_request())
        };
        assert_eq!(key("für heute".as_bytes()), Ok(Some("für heute".to_owned())));
        assert_eq!(key(b"f\xfcr heute").map_err(|problem| problem.status), Err(422));
        assert_eq!(idempotency_key(&TestRequest::default().to_http_request()), Ok(None));
    }
}
