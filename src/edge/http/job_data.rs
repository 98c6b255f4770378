//! `/api/v1/jobs/{id}/data`: data that the last run of a job stored for the next one.

use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::management::{JobDataInput, JobDataOutput};
use actix_web::{HttpRequest, HttpResponse, web};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/{id}/data")
            .get(read, |op| {
                op.named("readJobData")
                    .description("The data that the last run of a job stored for the next one. 404 if there is none.")
                    .needs(Need::Read)
                    .answers::<JobDataOutput>(200, "The data, and the run that stored it.")
            })
            .put(put, |op| {
                op.named("putJobData")
                    .description("Replaces the data for the next run. Runs in progress keep the data that they have.")
                    .needs(Need::Edit)
                    .body::<JobDataInput>()
                    .answers_nothing(204, "It is stored.")
                    .may_fail(&[422])
            })
            .delete(clear, |op| {
                op.named("clearJobData")
                    .description("Deletes the data for the next run.")
                    .needs(Need::Edit)
                    .answers_nothing(204, "The data is deleted.")
            }),
    ]
}

/// `GET /api/v1/jobs/{id}/data`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.job_data(id(&edge, &request, "id").await?).await?))
}

/// `PUT /api/v1/jobs/{id}/data`
pub async fn put(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    let JobDataInput { data } = json(&request, payload).await?;
    edge.service.put_job_data(job, Some(data), caller.name).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /api/v1/jobs/{id}/data`
pub async fn clear(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.put_job_data(id(&edge, &request, "id").await?, None, caller.name).await?;
    Ok(HttpResponse::NoContent().finish())
}
