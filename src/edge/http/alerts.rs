//! `/api/v1/alerts`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use serde_json::json as object;

/// `GET /api/v1/alerts`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(object!({ "items": edge.desk.channels().await? })))
}

/// `POST /api/v1/alerts`
pub async fn create(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let channel = edge.desk.create_channel(json(&request, payload).await?, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/alerts/{}", channel.id))).json(channel))
}

/// `GET /api/v1/alerts/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.channel(id(&request, "id")?).await?))
}

/// `PUT /api/v1/alerts/{id}`
pub async fn update(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let caller = allow(&edge, &request, Need::Admin)?;
    let channel = id(&request, "id")?;
    Ok(HttpResponse::Ok().json(edge.desk.update_channel(channel, json(&request, payload).await?, caller.name).await?))
}

/// `DELETE /api/v1/alerts/{id}`
pub async fn delete(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    edge.desk.delete_channel(id(&request, "id")?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/alerts/{id}/test`
pub async fn test(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.test_channel(id(&request, "id")?).await?))
}

/// The query of a list of events.
#[derive(Debug, Deserialize)]
pub struct Query {
    /// Where the last page ended.
    cursor: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

/// `GET /api/v1/alerts/events`
pub async fn events(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.alert_events(query.cursor.as_deref(), limit(query.limit)?).await?))
}
