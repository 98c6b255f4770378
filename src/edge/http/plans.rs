//! `/api/v1/jobs/…` as far as it speaks of time: previews, the ledger, reasons, changes.

use super::limit;
use crate::actors::service::FireFilter;
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
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/preview").post(preview, |op| {
            op.named("previewSchedule")
                .says("What a schedule that is not stored would do.")
                .needs(Need::Read)
                .body::<PreviewInput>()
                .answers::<PreviewOutput>(200, "The fires that would come.")
                .may_fail(&[422])
        }),
        resource("/api/v1/jobs/{id}/next").get(next, |op| {
            op.named("listNextFires")
                .says("What the plan of a job will do, as things stand.")
                .needs(Need::Read)
                .query::<NextQuery>()
                .answers::<PreviewOutput>(200, "The fires that come.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/fires").get(fires, |op| {
            op.named("listFires")
                .says("The ledger of a job: what became of each planned instant, the newest first.")
                .needs(Need::Read)
                .query::<FiresQuery>()
                .answers::<Page<FireOutput>>(200, "A page of rows.")
                .may_fail(&[422])
        }),
        resource("/api/v1/jobs/{id}/why").get(why, |op| {
            op.named("explainFire")
                .says("Why an instant made a run of a job, or none.")
                .needs(Need::Read)
                .query::<WhyQuery>()
                .answers::<WhyOutput>(200, "The reason.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/jobs/{id}/history").get(history, |op| {
            op.named("listChangesOfJob")
                .says("The changes of a job, the newest first: who, when, what to.")
                .needs(Need::Read)
                .query::<PageQuery>()
                .answers::<Page<JobChange>>(200, "A page of changes.")
                .may_fail(&[422])
        }),
        resource("/api/v1/changes").get(changes, |op| {
            op.named("listChanges")
                .says("The changes of all jobs, the newest first.")
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
    /// At most so many, 1 to 1,000; 5 if absent.
    #[schemars(range(min = 1, max = 1_000))]
    count: Option<usize>,
    /// Fires after this instant.
    after: Option<Timestamp>,
}

/// `GET /api/v1/jobs/{id}/next`
pub async fn next(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<NextQuery>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.next_fires(id(&edge, &request, "id").await?, query.count, query.after).await?))
}

/// `POST /api/v1/jobs/preview`: it changes nothing, so whoever may look may ask.
pub async fn preview(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.preview(json(&request, payload).await?)?))
}

/// The query of a ledger.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FiresQuery {
    /// Only those of this instant and later.
    from: Option<Timestamp>,
    /// Only those of this instant and earlier.
    to: Option<Timestamp>,
    /// Only fired, skipped, missed or merged ones.
    verdict: Option<String>,
    /// The `nextCursor` of the page before: milliseconds since 1970.
    #[schemars(regex(pattern = "^-?[0-9]{1,15}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/jobs/{id}/fires`
pub async fn fires(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<FiresQuery>) -> Result<HttpResponse, Failure> {
    let FiresQuery { from, to, verdict, cursor, limit: asked } = query.into_inner();
    let filter = FireFilter { from, to, verdict, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(edge.service.fires(id(&edge, &request, "id").await?, filter).await?))
}

/// The query of a reason.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WhyQuery {
    /// The instant that is asked about; it has to be there.
    at: Option<Timestamp>,
}

/// `GET /api/v1/jobs/{id}/why`
pub async fn why(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<WhyQuery>) -> Result<HttpResponse, Failure> {
    let at = query.at.ok_or_else(|| Problem::invalid("at", "which instant is meant?"))?;
    Ok(HttpResponse::Ok().json(edge.service.why(id(&edge, &request, "id").await?, at).await?))
}

/// The query of a list of changes.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PageQuery {
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,9}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
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
