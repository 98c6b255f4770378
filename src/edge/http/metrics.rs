//! `/metrics`, and the lateness of a job's fires.

use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::body::id;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::management::Lateness;
use actix_web::{HttpRequest, HttpResponse, web};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/metrics").get(metrics, |op| {
            op.named("readMetrics").description("Metrics in the text format of Prometheus.").needs(Need::Read).answers_as(
                200,
                "text/plain",
                "The metrics.",
            )
        }),
        resource("/api/v1/jobs/{id}/lateness").get(lateness, |op| {
            op.named("readLateness")
                .description("The lateness of the most recent scheduled runs of a job.")
                .needs(Need::Read)
                .answers::<Lateness>(200, "In milliseconds.")
        }),
    ]
}

/// `GET /metrics`
pub async fn metrics(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    let page = edge.metrics().await?.done();
    Ok(HttpResponse::Ok().content_type("text/plain; version=0.0.4; charset=utf-8").body(page))
}

/// `GET /api/v1/jobs/{id}/lateness`
pub async fn lateness(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.lateness(id(&edge, &request, "id").await?).await?))
}
