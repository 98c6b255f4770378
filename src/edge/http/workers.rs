//! `/api/v1/workers`: who watches what, and the road for workers without a socket.

use super::limit;
use crate::domain::ids::WorkerId;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::http::queue::wait_of;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{Page, WorkerInput, WorkerOutput, WorkerRegistered};
use crate::protocol::worker::ToWorker;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/workers")
            .get(list, |op| {
                op.named("listWorkers")
                    .says("Lists the watches of workers, newest first.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<WorkerOutput>>(200, "The watches, now and in the past.")
                    .may_fail(&[422])
            })
            .post(register, |op| {
                op.named("registerWorker")
                    .says("A worker without a socket says which classes it watches.")
                    .needs(Need::Worker)
                    .body::<WorkerInput>()
                    .answers::<WorkerRegistered>(200, "Its id, and how often it has to call.")
                    .may_fail(&[422])
            }),
        resource("/api/v1/workers/{id}/messages").get(messages, |op| {
            op.named("fetchMessages")
                .says("What the broker has to say to a worker without a socket. The call is its heartbeat.")
                .needs(Need::Worker)
                .query::<Wait>()
                .answers::<Vec<ToWorker>>(200, "The messages.")
                .answers_nothing(204, "None came in the time.")
                .may_fail(&[422])
        }),
    ]
}

/// The query of a list of workers.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Query {
    /// How many; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/workers`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(Page { items: edge.desk.workers(limit(query.limit)?).await?, next_cursor: None }))
}

/// `POST /api/v1/workers`
pub async fn register(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let input: WorkerInput = json(&request, payload).await?;
    let worker_id = input.worker_id.unwrap_or_else(WorkerId::random);
    edge.desk.register_worker(worker_id, input).await?;
    let times = edge.desk.times();
    Ok(HttpResponse::Ok().json(WorkerRegistered { worker_id, heartbeat: times.worker_heartbeat, offline: times.worker_offline }))
}

/// The query of a fetch of messages.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Wait {
    /// Seconds to wait for one; 0 unless said.
    #[schemars(range(min = 0.0, max = super::queue::MOST_WAIT))]
    wait: Option<f64>,
}

/// `GET /api/v1/workers/{id}/messages`
pub async fn messages(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Wait>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Worker)?;
    let messages = edge.desk.worker_messages(id(&request, "id")?, wait_of(query.wait)?).await?;
    Ok(if messages.is_empty() { HttpResponse::NoContent().finish() } else { HttpResponse::Ok().json(messages) })
}
