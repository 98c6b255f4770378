//! `/api/v1/jobs`

use super::limit;
use crate::actors::desk::JobFilter;
use crate::domain::job::Job;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::api::{JobInput, Page, RunOutput, TriggerInput};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs")
            .get(list, |op| {
                op.named("listJobs")
                    .says("Lists jobs, oldest first.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<Job>>(200, "A page of jobs.")
                    .may_fail(&[422])
            })
            .post(create, |op| {
                op.named("createJob")
                    .says("Creates a job.")
                    .needs(Need::Admin)
                    .body::<JobInput>()
                    .answers::<Job>(201, "The job.")
                    .with_header("Location", "The address of the job.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/jobs/{id}")
            .get(read, |op| op.named("readJob").says("A job.").needs(Need::Read).answers::<Job>(200, "The job."))
            .put(update, |op| {
                op.named("updateJob")
                    .says("Changes a job. What is left out stays as it is.")
                    .needs(Need::Admin)
                    .body::<JobInput>()
                    .answers::<Job>(200, "The job as it is now.")
                    .may_fail(&[409, 422])
            })
            .delete(delete, |op| {
                op.named("deleteJob")
                    .says("Deletes a job. Its runs stay.")
                    .needs(Need::Admin)
                    .answers_nothing(204, "It is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/jobs/{id}/enable").post(enable, |op| {
            op.named("enableJob").says("Lets triggers start a job.").needs(Need::Admin).answers::<Job>(200, "The job.").may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/disable").post(disable, |op| {
            op.named("disableJob")
                .says("Keeps triggers from starting a job.")
                .needs(Need::Admin)
                .answers::<Job>(200, "The job.")
                .may_fail(&[409])
        }),
        resource("/api/v1/jobs/{id}/trigger")
            .get(trigger, |op| makes_a_run(op.named("triggerJobByGet").says("Triggers a job, for schedulers whose callback is a GET.")))
            .post(trigger, |op| makes_a_run(op.named("triggerJob").says("Triggers a job: makes a run of it."))),
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
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Query {
    /// A part of the name.
    name: Option<String>,
    /// Only those that are, or that are not.
    enabled: Option<bool>,
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,15}-[0-9a-f]{32}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let Query { name, enabled, cursor, limit: asked } = query.into_inner();
    let page = edge.desk.jobs(JobFilter { name, enabled, cursor, limit: limit(asked)? }).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `POST /api/v1/jobs`
pub async fn create(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let job = edge.desk.create_job(json(&request, payload).await?, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/jobs/{}", job.id))).json(job))
}

/// `GET /api/v1/jobs/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.job(id(&request, "id")?).await?))
}

/// `PUT /api/v1/jobs/{id}`
pub async fn update(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let job = id(&request, "id")?;
    Ok(HttpResponse::Ok().json(edge.desk.update_job(job, json(&request, payload).await?, caller.name).await?))
}

/// `DELETE /api/v1/jobs/{id}`
pub async fn delete(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    edge.desk.delete_job(id(&request, "id")?, caller.name).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/jobs/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_job(id(&request, "id")?, true, caller.name).await?))
}

/// `POST /api/v1/jobs/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_job(id(&request, "id")?, false, caller.name).await?))
}

/// `POST` or `GET /api/v1/jobs/{id}/trigger`: an outside scheduler's callback may be either.
pub async fn trigger(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    let job = id(&request, "id")?;
    let run = edge.desk.trigger(job, json_or_default(&request, payload).await?).await?;
    Ok(HttpResponse::Accepted().insert_header(("Location", format!("/api/v1/runs/{}", run.identity))).json(run))
}
