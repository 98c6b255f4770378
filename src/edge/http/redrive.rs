//! `/api/v1/runs/redrive`

use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::json_or_default;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::redrive::{RedriveInput, RedrivenRuns};
use actix_web::{HttpRequest, HttpResponse, web};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![resource("/api/v1/runs/redrive").post(redrive, |op| {
        op.named("redriveRuns")
            .description("Repeats dead runs of one or more jobs: runs that failed for good and that no other run repeats.")
            .needs(Need::Operate)
            .body_or_nothing::<RedriveInput>()
            .answers::<RedrivenRuns>(200, "The result for each run.")
            .may_fail(&[404, 409, 422])
    })]
}

/// `POST /api/v1/runs/redrive`
pub async fn redrive(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: RedriveInput = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.redrive_runs(input, caller.name).await?))
}
