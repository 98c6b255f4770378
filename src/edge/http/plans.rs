//! `/api/v1/jobs/…` as far as it speaks of time: previews, the ledger, reasons, changes.

use super::limit;
use crate::actors::desk::FireFilter;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

/// The query of a job's next fires.
#[derive(Debug, Deserialize)]
pub struct NextQuery {
    /// At most so many, 1 to 1,000; 5 if absent.
    count: Option<usize>,
    /// Fires after this instant.
    after: Option<Timestamp>,
}

/// `GET /api/v1/jobs/{id}/next`
pub async fn next(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<NextQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.next_fires(id(&request, "id")?, query.count, query.after).await?))
}

/// `POST /api/v1/jobs/preview`: it changes nothing, so whoever may look may ask.
pub async fn preview(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.preview(json(&request, payload).await?)?))
}

/// The query of a ledger.
#[derive(Debug, Deserialize)]
pub struct FiresQuery {
    /// Only those of this instant and later.
    from: Option<Timestamp>,
    /// Only those of this instant and earlier.
    to: Option<Timestamp>,
    /// Only fired, skipped, missed or merged ones.
    verdict: Option<String>,
    /// Where the last page ended.
    cursor: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

/// `GET /api/v1/jobs/{id}/fires`
pub async fn fires(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<FiresQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let FiresQuery { from, to, verdict, cursor, limit: asked } = query.into_inner();
    let filter = FireFilter { from, to, verdict, cursor, limit: limit(asked)? };
    Ok(HttpResponse::Ok().json(edge.desk.fires(id(&request, "id")?, filter).await?))
}

/// The query of a reason.
#[derive(Debug, Deserialize)]
pub struct WhyQuery {
    /// The instant that is asked about.
    at: Timestamp,
}

/// `GET /api/v1/jobs/{id}/why`
pub async fn why(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<WhyQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.why(id(&request, "id")?, query.at).await?))
}

/// The query of a list of changes.
#[derive(Debug, Deserialize)]
pub struct PageQuery {
    /// Where the last page ended.
    cursor: Option<String>,
    /// At most so many.
    limit: Option<usize>,
}

/// `GET /api/v1/jobs/{id}/history`
pub async fn history(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<PageQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let page = edge.desk.changes(Some(id(&request, "id")?), query.cursor.as_deref(), limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `GET /api/v1/changes`
pub async fn changes(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<PageQuery>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.changes(None, query.cursor.as_deref(), limit(query.limit)?).await?))
}
