//! The health of the broker.

use crate::edge::Edge;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use actix_web::{HttpResponse, web};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/healthz").get(healthz, |op| {
            op.named("readHealth").for_everybody().description("Liveness: the process responds.").answers_as(
                200,
                "text/plain",
                "The process is alive.",
            )
        }),
        resource("/readyz").get(readyz, |op| {
            op.named("readReadiness")
                .for_everybody()
                .description("Readiness: this broker leads, and the store commits.")
                .answers_as(200, "text/plain", "The broker is ready.")
                .may_fail(&[503])
        }),
    ]
}

/// `GET /healthz`: the process responds.
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().content_type("text/plain").body("ok\n")
}

/// `GET /readyz`: the store commits.
pub async fn readyz(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    edge.service.must_lead()?;
    edge.service.check_lease()?;
    edge.service.ready().await?;
    Ok(HttpResponse::Ok().content_type("text/plain").body("ready\n"))
}
