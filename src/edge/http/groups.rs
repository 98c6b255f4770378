//! `/api/v1/groups`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{json, json_or_default};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

/// The query of a list of groups.
#[derive(Debug, Deserialize)]
pub struct Query {
    /// Where the last page ended.
    cursor: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

/// `GET /api/v1/groups`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let Query { cursor, limit: asked } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.desk.groups(cursor, limit(asked)?).await?))
}

/// `POST /api/v1/groups`
pub async fn create(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let group = edge.desk.create_group(json(&request, payload).await?, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/groups/{}", group.id))).json(group))
}

/// `GET /api/v1/groups/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.group(&path).await?))
}

/// `PUT /api/v1/groups/{id}`
pub async fn update(
    edge: web::Data<Edge>,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.update_group(&path, json(&request, payload).await?, caller.name).await?))
}

/// `DELETE /api/v1/groups/{id}`
pub async fn delete(edge: web::Data<Edge>, request: HttpRequest, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    edge.desk.delete_group(&path).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/groups/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, request: HttpRequest, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.switch_group(&path, None, caller.name).await?))
}

/// `POST /api/v1/groups/{id}/disable`
pub async fn disable(
    edge: web::Data<Edge>,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let input = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.desk.switch_group(&path, Some(input), caller.name).await?))
}
