//! `/api/v1/workers`: who is there, the operator's word on each, and the road for workers without a socket.

use super::limit;
use crate::actors::service::WorkerFilter;
use crate::domain::ids::{Named, PeerId, WorkerId};
use crate::domain::time::Timestamp;
use crate::domain::worker::{WorkerOrder, WorkerState};
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::http::queue::wait_of;
use crate::edge::owners::own;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::api::{Page, WorkerInput, WorkerRegistered, WorkerWatch};
use crate::protocol::management::{ReasonInput, WorkerOutput};
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
                    .says("Lists workers, by their ids: those that are there, and those that were.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<WorkerOutput>>(200, "The workers.")
                    .may_fail(&[422])
            })
            .post(register, |op| {
                op.named("registerWorker")
                    .says("A worker without a socket says which classes it watches.")
                    .needs(Need::Worker)
                    .body::<WorkerInput>()
                    .answers::<WorkerRegistered>(200, "Its id, and how often it has to call.")
                    .may_fail(&[403, 404, 409, 422])
            }),
        resource("/api/v1/workers/watches").get(watches, |op| {
            op.named("listWatches")
                .says("Lists which worker watched which class from when to when, newest first.")
                .needs(Need::Read)
                .query::<WatchQuery>()
                .answers::<Page<WorkerWatch>>(200, "The watches, now and in the past.")
                .may_fail(&[422])
        }),
        resource("/api/v1/workers/{id}")
            .get(read, |op| op.named("readWorker").says("A worker.").needs(Need::Read).answers::<WorkerOutput>(200, "The worker."))
            .delete(forget, |op| {
                op.named("forgetWorker")
                    .says("Deletes a worker. One that is connected is refused, or put out if `force` says so: what it has goes to others.")
                    .needs(Need::Admin)
                    .query::<DeleteQuery>()
                    .answers_nothing(204, "It is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/workers/{id}/messages").get(messages, |op| {
            op.named("fetchMessages")
                .only_leader()
                .says("What the broker has to say to a worker without a socket. The call is its heartbeat.")
                .needs(Need::Worker)
                .query::<Wait>()
                .answers::<Vec<ToWorker>>(200, "The messages.")
                .answers_nothing(204, "None came in the time.")
                .may_fail(&[403, 422])
        }),
        resource("/api/v1/workers/{id}/enable")
            .post(ordered(WorkerOrder::Enable), |op| order_op(op.named("enableWorker").says("Gives a worker work again."))),
        resource("/api/v1/workers/{id}/disable").post(ordered(WorkerOrder::Disable), |op| {
            order_op(op.named("disableWorker").says("Gives a worker nothing new. What it has it may finish and report."))
        }),
        resource("/api/v1/workers/{id}/drain").post(ordered(WorkerOrder::Drain), |op| {
            order_op(op.named("drainWorker").says("Gives a worker nothing new, and tells it to leave when it has finished what it has."))
        }),
        resource("/api/v1/workers/{id}/kick").post(ordered(WorkerOrder::Kick), |op| {
            order_op(op.named("kickWorker").says("Puts a worker out: what it has goes to others, and it is refused until it is allowed."))
        }),
        resource("/api/v1/workers/{id}/allow").post(ordered(WorkerOrder::Allow), |op| {
            order_op(op.named("allowWorker").says("Lets a worker in again that was put out. Of others it changes nothing."))
        }),
    ]
}

fn order_op(op: Operation) -> Operation {
    op.needs(Need::Admin).body_or_nothing::<ReasonInput>().answers::<WorkerOutput>(200, "The worker.").may_fail(&[409, 422])
}

/// The query of a list of workers.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only those that are there, or those that are not.
    online: Option<bool>,
    /// Only those on whom the operator's word is this.
    state: Option<WorkerState>,
    /// Only those that say they are of this group.
    group: Option<String>,
    /// Where the last page ended.
    cursor: Option<String>,
    /// How many; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/workers`
pub async fn list(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { online, state, group, cursor, limit: asked } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.service.workers(WorkerFilter { online, state, group, cursor, limit: limit(asked)? }).await?))
}

/// The query of a list of watches.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchQuery {
    /// How many; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/workers/watches`
pub async fn watches(edge: web::Data<Edge>, query: web::Query<WatchQuery>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Page { items: edge.service.worker_watches(limit(query.limit)?).await?, next_cursor: None }))
}

/// `GET /api/v1/workers/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.worker(id(&edge, &request, "id").await?).await?))
}

/// The query of a deletion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuery {
    /// Also if it is connected.
    #[serde(default)]
    force: bool,
}

/// `DELETE /api/v1/workers/{id}`
pub async fn forget(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<DeleteQuery>,
) -> Result<HttpResponse, Failure> {
    let worker = id(&edge, &request, "id").await?;
    edge.service.forget_worker(worker, query.force, caller.name).await?;
    edge.owners.forget(PeerId::Worker(worker));
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/workers/{id}/enable` and its kin.
fn ordered(word: WorkerOrder) -> impl actix_web::Handler<Call, Output = Result<HttpResponse, Failure>> {
    move |edge, caller, request, payload| order(edge, caller, request, payload, word)
}

type Call = (web::Data<Edge>, Caller, HttpRequest, web::Payload);

async fn order(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
    word: WorkerOrder,
) -> Result<HttpResponse, Failure> {
    let worker = id(&edge, &request, "id").await?;
    let ReasonInput { reason } = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.order_worker(worker, word, reason, caller.name).await?))
}

/// `POST /api/v1/workers`
pub async fn register(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: WorkerInput = json(&request, payload).await?;
    let worker_id = match input.worker_id {
        Some(Named(named)) => edge.service.meant(named).await.map_err(|problem| problem.at("workerId"))?,
        None => WorkerId::at(Timestamp::now()),
    };
    own(&edge, &caller, PeerId::Worker(worker_id)).await?;
    edge.service.register_worker(worker_id, input, caller.name).await?;
    let times = edge.service.times();
    Ok(HttpResponse::Ok().json(WorkerRegistered {
        worker_id,
        number: worker_id.number(),
        heartbeat: times.worker_heartbeat,
        offline: times.worker_offline,
    }))
}

/// The query of a fetch of messages.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Wait {
    /// Seconds to wait for one; 0 unless said.
    #[schemars(range(min = 0.0, max = super::queue::MOST_WAIT))]
    wait: Option<f64>,
}

/// `GET /api/v1/workers/{id}/messages`
pub async fn messages(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<Wait>,
) -> Result<HttpResponse, Failure> {
    let worker = id(&edge, &request, "id").await?;
    own(&edge, &caller, PeerId::Worker(worker)).await?;
    let messages = edge.service.worker_messages(worker, wait_of(query.wait)?).await?;
    Ok(if messages.is_empty() { HttpResponse::NoContent().finish() } else { HttpResponse::Ok().json(messages) })
}
