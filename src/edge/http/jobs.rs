//! `/api/v1/jobs`

use super::limit;
use crate::actors::desk::JobFilter;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

/// The query of a list of jobs.
#[derive(Debug, Deserialize)]
pub struct Query {
    name: Option<String>,
    enabled: Option<bool>,
    cursor: Option<String>,
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
