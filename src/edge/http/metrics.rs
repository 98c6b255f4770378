//! `/metrics`, and how late the fires of a job are.

use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::id;
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};

/// `GET /metrics`
pub async fn metrics(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(edge.desk.metrics().await?))
}

/// `GET /api/v1/jobs/{id}/lateness`
pub async fn lateness(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.lateness(id(&request, "id")?).await?))
}
