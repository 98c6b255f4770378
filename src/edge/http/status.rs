//! The actors, and whether the broker lives.

use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};

/// `GET /api/v1/actors`
pub async fn actors(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.actors()))
}

/// `GET /healthz`: the process answers.
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok\n")
}

/// `GET /readyz`: the store commits.
pub async fn readyz(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    edge.desk.ready().await?;
    Ok(HttpResponse::Ok().content_type("text/plain").body("ready\n"))
}
