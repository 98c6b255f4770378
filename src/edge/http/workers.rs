//! `/api/v1/workers`: who watches what, and the road for workers without a socket.

use super::limit;
use crate::domain::ids::WorkerId;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::http::queue::wait_of;
use crate::protocol::api::WorkerInput;
use actix_web::{HttpRequest, HttpResponse, web};
use serde::Deserialize;

/// The query of a list of workers.
#[derive(Debug, Deserialize)]
pub struct Query {
    limit: Option<usize>,
}

/// `GET /api/v1/workers`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(serde_json::json!({ "items": edge.desk.workers(limit(query.limit)?).await? })))
}

/// `POST /api/v1/workers`
pub async fn register(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let input: WorkerInput = json(&request, payload).await?;
    let worker_id = input.worker_id.unwrap_or_else(WorkerId::random);
    edge.desk.register_worker(worker_id, input.class_names, input.runs).await?;
    let times = edge.desk.times();
    let answer = serde_json::json!({ "workerId": worker_id, "heartbeat": times.worker_heartbeat, "offline": times.worker_offline });
    Ok(HttpResponse::Ok().json(answer))
}

/// The query of a fetch of messages.
#[derive(Debug, Deserialize)]
pub struct Wait {
    wait: Option<f64>,
}

/// `GET /api/v1/workers/{id}/messages`
pub async fn messages(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Wait>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let messages = edge.desk.worker_messages(id(&request, "id")?, wait_of(query.wait)?).await?;
    Ok(if messages.is_empty() { HttpResponse::NoContent().finish() } else { HttpResponse::Ok().json(messages) })
}
