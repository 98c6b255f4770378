//! `/api/v1/nodes`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::id;
use crate::edge::error::Failure;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;
use serde_json::json;

/// `GET /api/v1/nodes`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(json!({ "items": edge.desk.nodes().await? })))
}

/// `GET /api/v1/nodes/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.node(id(&request, "id")?).await?))
}

/// `POST /api/v1/nodes/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_node(id(&request, "id")?, true).await?))
}

/// `POST /api/v1/nodes/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_node(id(&request, "id")?, false).await?))
}

/// The query of a list of statuses.
#[derive(Debug, Deserialize)]
pub struct Query {
    limit: Option<usize>,
}

/// `GET /api/v1/nodes/{id}/status`
pub async fn status(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let rows = edge.desk.node_status(id(&request, "id")?, limit(query.limit)?).await?;
    let items: Vec<_> = rows
        .into_iter()
        .map(|(load, time)| json!({ "processCount": load.process_count, "cpu": load.cpu, "freeMemory": load.free_memory, "creationTime": time }))
        .collect();
    Ok(HttpResponse::Ok().json(json!({ "items": items })))
}
