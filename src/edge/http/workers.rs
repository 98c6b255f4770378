//! `/api/v1/workers`: the workers, operators' orders to them, and the HTTP transport for workers without a socket.

use super::limit;
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
use crate::protocol::peer_history::WorkerWorkOutput;
use crate::protocol::worker::ToWorker;
use crate::service::WorkerFilter;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/workers")
            .get(list, |op| {
                op.named("listWorkers").leader_first().live()
                    .description("Lists workers by id: connected ones and former ones.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<WorkerOutput>>(200, "The workers.")
                    .may_fail(&[422])
            })
            .post(register, |op| {
                op.named("registerWorker")
                    .description("Registers a worker without a socket, with the classes that it watches.")
                    .needs(Need::Worker)
                    .body::<WorkerInput>()
                    .answers::<WorkerRegistered>(200, "Its id, and how often it must call.")
                    .may_fail(&[403, 404, 409, 422])
            }),
        resource("/api/v1/workers/{id}/work").get(work, |op| {
            op.named("readWorkerWork")
                .only_leader()
                .description("What a worker did in each of the last minutes, six hours at most, since it connected. The lists are empty if it is not connected.")
                .needs(Need::Read)
                .answers::<WorkerWorkOutput>(200, "The steps.")
        }),
        resource("/api/v1/workers/watches").get(watches, |op| {
            op.named("listWatches")
                .description("Lists which worker watched which class from when to when, newest first.")
                .needs(Need::Read)
                .query::<WatchQuery>()
                .answers::<Page<WorkerWatch>>(200, "The watches, now and in the past.")
                .may_fail(&[422])
        }),
        resource("/api/v1/workers/{id}")
            .get(read, |op| op.named("readWorker").leader_first().live().description("A worker.").needs(Need::Read).answers::<WorkerOutput>(200, "The worker."))
            .delete(forget, |op| {
                op.named("forgetWorker")
                    .description("Deletes a worker. A connected worker is not deleted unless `force` is set: then it is evicted, and its work goes to other workers.")
                    .needs(Need::Admin)
                    .query::<DeleteQuery>()
                    .answers_nothing(204, "It is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/workers/{id}/messages").get(messages, |op| {
            op.named("fetchMessages")
                .only_leader()
                .description("Returns the broker's messages to a worker without a socket. The call is also its heartbeat.")
                .needs(Need::Worker)
                .query::<Wait>()
                .answers::<Vec<ToWorker>>(200, "The messages.")
                .answers_nothing(204, "No message came within the wait time.")
                .may_fail(&[403, 422])
        }),
        resource("/api/v1/workers/{id}/enable")
            .post(ordered(WorkerOrder::Enable), |op| order_op(op.named("enableWorker").description("Enables a worker: it gets work again."))),
        resource("/api/v1/workers/{id}/disable").post(ordered(WorkerOrder::Disable), |op| {
            order_op(op.named("disableWorker").description("Stops sending work to a worker. It may finish and report its current work."))
        }),
        resource("/api/v1/workers/{id}/drain").post(ordered(WorkerOrder::Drain), |op| {
            order_op(op.named("drainWorker").description("Stops sending work to a worker, and orders it to leave when its current work is finished."))
        }),
        resource("/api/v1/workers/{id}/kick").post(ordered(WorkerOrder::Kick), |op| {
            order_op(op.named("kickWorker").description("Kicks a worker: its work goes to other workers, and it is rejected until it is allowed again."))
        }),
        resource("/api/v1/workers/{id}/allow").post(ordered(WorkerOrder::Allow), |op| {
            order_op(op.named("allowWorker").description("Admits a kicked worker again. It does not change other workers."))
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
    /// Only connected workers, or only those that are not.
    online: Option<bool>,
    /// Only workers in this administrative state.
    state: Option<WorkerState>,
    /// Only workers that report this group.
    group: Option<String>,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// Maximum number of workers, 50 by default.
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
    /// Only watches of this worker.
    worker: Option<WorkerId>,
    /// Maximum number of watches, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/workers/watches`
pub async fn watches(edge: web::Data<Edge>, query: web::Query<WatchQuery>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Page { items: edge.service.worker_watches(query.worker, limit(query.limit)?).await?, next_cursor: None }))
}

/// `GET /api/v1/workers/{id}/work`
pub async fn work(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.worker_work(id(&edge, &request, "id").await?).await?))
}

/// `GET /api/v1/workers/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.worker(id(&edge, &request, "id").await?).await?))
}

/// The query of a deletion.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DeleteQuery {
    /// Also delete a connected worker.
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

/// `POST /api/v1/workers/{id}/enable` and the other orders.
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
    /// Seconds to wait for a message, 0 by default.
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
    let messages = caller.while_admitted(&edge.tokens, edge.service.worker_messages(worker, wait_of(query.wait)?)).await?;
    Ok(if messages.is_empty() { HttpResponse::NoContent().finish() } else { HttpResponse::Ok().json(messages) })
}
