//! Tasks by HTTP: batch triggers, and the HTTP transport for workers without a socket.

use crate::actors::job::TriggerOrder;
use crate::domain::ids::PeerId;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, read};
use crate::edge::error::Failure;
use crate::edge::owners::own;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::TriggerInput;
use crate::protocol::management::TriggeredOutput;
use crate::protocol::object::object;
use crate::protocol::problem::Problem;
use crate::protocol::push::read_json;
use crate::protocol::task::{SettledTask, TaskRef, TaskReport};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// The largest body of a list.
const MOST_BODY: usize = 8 << 20;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/{id}/trigger/batch").post(trigger_batch, |op| {
            op.named("triggerJobBatch").recorded_in_its_run()
                .description("Triggers a job up to 1,000 times, each with its own arguments and result. All accepted triggers are on disk when the response comes.")
                .needs(Need::Operate)
                .body::<Vec<TriggerInput>>()
                .answers::<Vec<TriggeredOutput>>(202, "The result of each, in the same order.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/workers/{id}/reports").post(reports, |op| {
            op.named("reportTasks")
                .description("Task reports of a worker without a socket. The response comes when the final reports are on disk.")
                .needs(Need::Worker)
                .body::<Vec<TaskReport>>()
                .answers::<Vec<SettledTask>>(200, "The final ones, now acknowledged: the worker may forget them.")
                .may_fail(&[422])
        }),
        resource("/api/v1/workers/{id}/heartbeat").post(heartbeat, |op| {
            op.named("workerHeartbeat")
                .description("Heartbeat of a worker without a socket, with its current tasks: their leases are renewed.")
                .needs(Need::Worker)
                .body::<HandsInput>()
                .answers_nothing(204, "The heartbeat is accepted.")
                .may_fail(&[422])
        }),
    ]
}

/// The current tasks of a worker.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct HandsInput {
    /// All of them.
    tasks: Vec<TaskRef>,
}

/// Reads a body that is a list of objects.
async fn list<T: DeserializeOwned>(request: &HttpRequest, payload: web::Payload) -> Result<Vec<T>, Failure> {
    let body = read(request, payload, MOST_BODY).await?;
    let items: Vec<Item<T>> = read_json(&body).map_err(|problem| match problem.field.clone() {
        // The field error comes from a value inside the list: report its detail.
        Some(field) => Problem::invalid(field, problem.detail),
        None => problem,
    })?;
    Ok(items.into_iter().map(|item| item.0).collect())
}

#[derive(Deserialize)]
#[serde(bound = "T: DeserializeOwned")]
struct Item<T>(#[serde(deserialize_with = "object")] T);

/// `POST /api/v1/jobs/{id}/trigger/batch`
pub async fn trigger_batch(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let job = id(&edge, &request, "id").await?;
    let inputs: Vec<TriggerInput> = list(&request, payload).await?;
    let trace = super::jobs::trace_of(&request);
    let order = |input| TriggerOrder { input, trace: trace.clone(), by: caller.name.clone(), ..TriggerOrder::default() };
    let done = edge.service.trigger_batch(job, inputs.into_iter().map(order).collect()).await?;
    let shown = done.into_iter().map(|done| match done {
        Ok(identity) => TriggeredOutput { identity: Some(identity), problem: None },
        Err(problem) => TriggeredOutput { identity: None, problem: Some(problem) },
    });
    Ok(HttpResponse::Accepted().json(shown.collect::<Vec<_>>()))
}

/// `POST /api/v1/workers/{id}/reports`
pub async fn reports(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let worker = id(&edge, &request, "id").await?;
    own(&edge, &caller, PeerId::Worker(worker)).await?;
    let reports: Vec<TaskReport> = list(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.worker_reports(worker, reports).await?))
}

/// `POST /api/v1/workers/{id}/heartbeat`
pub async fn heartbeat(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let worker = id(&edge, &request, "id").await?;
    own(&edge, &caller, PeerId::Worker(worker)).await?;
    let input: HandsInput = json(&request, payload).await?;
    edge.service.worker_beats(worker, input.tasks).await?;
    Ok(HttpResponse::NoContent().finish())
}
