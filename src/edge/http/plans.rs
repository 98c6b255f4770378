//! `/api/v1/jobs/…` about schedules: previews, the fire history, explanations, changes.

use super::limit;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::Page;
use crate::protocol::management::{FireOutput, JobChange, PreviewInput, PreviewOutput, WhyOutput};
use crate::protocol::problem::Problem;
use crate::service::FireFilter;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/preview").post(preview, |op| {
            op.named("previewSchedule")
                .limits_itself()
                .description("Previews the fires of a schedule without storing it.")
                .needs(Need::Read)
                .body::<PreviewInput>()
                .answers::<PreviewOutput>(200, "The fires that the schedule would make.")
                .may_fail(&[422])
        }),
        resource("/api/v1/jobs/{id}/next").get(next, |op| {
            op.named("listNextFires")
                .live()
                .description("Lists the next fires of a job, as its schedule stands now.")
                .needs(Need::Read)
                .query::<NextQuery>()
                .answers::<PreviewOutput>(200, "The next fires.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/fires").get(fires, |op| {
            op.named("listFires")
                .description("The ledger of a job: the outcome of each scheduled time, newest first.")
                .needs(Need::Read)
                .query::<FiresQuery>()
                .answers::<Page<FireOutput>>(200, "A page of rows.")
                .may_fail(&[422])
        }),
        resource("/api/v1/jobs/{id}/why").get(why, |op| {
            op.named("explainFire")
                .description("Explains why a time made a run of a job, or none.")
                .needs(Need::Read)
                .query::<WhyQuery>()
                .answers::<WhyOutput>(200, "The reason.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/history").get(history, |op| {
            op.named("listChangesOfJob")
                .description("The changes of a job, newest first: who, when, and the new values.")
                .needs(Need::Read)
                .query::<PageQuery>()
                .answers::<Page<JobChange>>(200, "A page of changes.")
                .may_fail(&[422])
        }),
        resource("/api/v1/changes").get(changes, |op| {
            op.named("listChanges")
                .description("The changes of all jobs, newest first.")
                .needs(Need::Read)
                .query::<PageQuery>()
                .answers::<Page<JobChange>>(200, "A page of changes.")
                .may_fail(&[422])
        }),
    ]
}

/// The query of a job's next fires.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextQuery {
    /// Maximum number of fires, 1 to 1,000; 5 if absent.
    #[schemars(range(min = 1, max = 1_000))]
    count: Option<usize>,
    /// Only fires after this time.
    after: Option<Timestamp>,
}

/// `GET /api/v1/jobs/{id}/next`
pub async fn next(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<NextQuery>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.next_fires(id(&edge, &request, "id").await?, query.count, query.after).await?))
}

/// `POST /api/v1/jobs/preview`: it changes nothing, so read permission is enough.
pub async fn preview(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.preview(json(&request, payload).await?)?))
}

/// The query of a ledger.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FiresQuery {
    /// Only entries at this time or later.
    from: Option<Timestamp>,
    /// Only entries at this time or earlier.
    to: Option<Timestamp>,
    /// Only entries with this verdict: fired, skipped, missed or merged.
    verdict: Option<String>,
    /// `nextCursor` of the previous page: milliseconds since 1970.
    #[schemars(regex(pattern = "^-?[0-9]{1,15}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs/{id}/fires`
pub async fn fires(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<FiresQuery>) -> Result<HttpResponse, Failure> {
    let FiresQuery { from, to, verdict, cursor, limit: asked } = query.into_inner();
    let filter = FireFilter { from, to, verdict, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(edge.service.fires(id(&edge, &request, "id").await?, filter).await?))
}

/// The query of an explanation.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyQuery {
    /// The time to explain; required.
    at: Option<Timestamp>,
}

/// `GET /api/v1/jobs/{id}/why`
pub async fn why(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<WhyQuery>) -> Result<HttpResponse, Failure> {
    let at = query.at.ok_or_else(|| Problem::invalid("at", "it is required: the time to explain"))?;
    Ok(HttpResponse::Ok().json(edge.service.why(id(&edge, &request, "id").await?, at).await?))
}

/// The query of a list of changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs/{id}/history`
pub async fn history(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<PageQuery>,
) -> Result<HttpResponse, Failure> {
    let page = edge.service.changes(Some(id(&edge, &request, "id").await?), query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(Page { items: shown(&caller, page.items), next_cursor: page.next_cursor }))
}

/// `GET /api/v1/changes`
pub async fn changes(edge: web::Data<Edge>, caller: Caller, query: web::Query<PageQuery>) -> Result<HttpResponse, Failure> {
    let page = edge.service.changes(None, query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(Page { items: shown(&caller, page.items), next_cursor: page.next_cursor }))
}
