//! `/api/v1/audit`

use super::limit;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::Page;
use crate::protocol::audit::AuditOutput;
use crate::protocol::problem::Problem;
use crate::service::AuditFilter;
use actix_web::{HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![resource("/api/v1/audit").get(list, |op| {
        op.named("listAudit")
            .live()
            .description(
                "Lists the calls that change something, newest first: who made them, from where, on which object, and their results. Calls \
                that nodes and workers make for their work are not listed.",
            )
            .needs(Need::Admin)
            .query::<Query>()
            .answers::<Page<AuditOutput>>(200, "A page of calls.")
            .may_fail(&[422])
    })]
}

/// The query of a list of calls.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only those of the token with this name, or of unnamed tokens of this role.
    caller: Option<String>,
    /// Only those on objects of this kind: `job`.
    kind: Option<String>,
    /// Only those on this object, as the call named it, or with an id that begins or ends with these digits (at least 4).
    object: Option<String>,
    /// Only this operation: `updateJob`.
    operation: Option<String>,
    /// Only those made at this time or later.
    from: Option<Timestamp>,
    /// Only those made at this time or earlier.
    to: Option<Timestamp>,
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9a-f]{32}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/audit`
pub async fn list(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { caller, kind, object, operation, from, to, cursor, limit: asked } = query.into_inner();
    if cursor.as_ref().is_some_and(|cursor| cursor.len() != 32 || !cursor.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)))
    {
        return Err(Problem::invalid("cursor", "must be `nextCursor` of a page of this list").into());
    }
    let filter = AuditFilter { caller, kind, object, operation, from, to, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(edge.service.audit(filter).await?))
}
