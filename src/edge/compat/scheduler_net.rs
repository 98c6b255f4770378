//! `/api/v1.0/job` and `/api/v1.0/callbackjob`: the routes of Scheduler.NET, for clients that were written for it; and
//! `/api/v1.0/task/{id}`, the callback address of such a scheduler.
//!
//! Every error is HTTP 206 here: these clients treat every other 2xx status as success, and handle no other errors.

use crate::domain::ids::JobId;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need, allow_peer};
use crate::edge::body::{MAX_JSON, read};
use crate::edge::error::Failure;
use crate::edge::http::jobs::trace_of;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::problem::Problem;
use crate::protocol::scheduler_net::{Done, JobBody, Kind, Refused, job_id};
use crate::service::TriggerOrder;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module. In the OpenAPI document no route here requires a role: a rejection is a 206 as well.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1.0/job")
            .post(create, |op| written(op.named("netCreateJob").description("Creates a client job, in the format of Scheduler.NET.")))
            .put(update, |op| written(op.named("netUpdateJob").description("Changes a client job, in the format of Scheduler.NET."))),
        resource("/api/v1.0/job/{id}")
            .text("id", "The id that the client assigned.")
            .get(fire, |op| {
                told(
                    op.named("netFireJob")
                        .recorded_in_its_run()
                        .only_leader()
                        .description("Fires a client job now, by GET as in Scheduler.NET."),
                )
            })
            .delete(delete, |op| told(op.named("netDeleteJob").description("Removes a client job. An unknown id is not an error."))),
        resource("/api/v1.0/callbackjob")
            .post(create, |op| {
                written(op.named("netCreateCallbackJob").description("Creates a callback job, in the format of Scheduler.NET."))
            })
            .put(update, |op| {
                written(op.named("netUpdateCallbackJob").description("Changes a callback job, in the format of Scheduler.NET."))
            }),
        resource("/api/v1.0/callbackjob/{id}")
            .text("id", "The id that the client assigned.")
            .get(fire, |op| {
                told(
                    op.named("netFireCallbackJob")
                        .recorded_in_its_run()
                        .only_leader()
                        .description("Fires a callback job now, by GET as in Scheduler.NET."),
                )
            })
            .delete(delete, |op| {
                told(op.named("netDeleteCallbackJob").description("Removes a callback job. An unknown id is not an error."))
            }),
        resource("/api/v1.0/task/{id}").text("id", "The id of a job.").get(task, |op| {
            told(
                op.named("netRunTask")
                    .recorded_in_its_run()
                    .only_leader()
                    .description("Triggers a job, at the callback address that users of Scheduler.NET configured.")
                    .query::<TaskQuery>(),
            )
            .admits(admit_by_address, |failure| answer(Err(failure)))
        }),
    ]
}

fn written(op: Operation) -> Operation {
    told(op.body::<JobBody>())
}

fn told(op: Operation) -> Operation {
    op.admits(|edge, request| admit(edge, request, None).map(Some), |failure| answer(Err(failure)))
        .answers::<Done>(200, "Success.")
        .answers::<Refused>(206, "Failure, with the reason: clients of Scheduler.NET expect errors in this form.")
}

/// The token header of Scheduler.NET.
const TOKEN: &str = "SchedulerNET";

fn answer(result: Result<Option<String>, Failure>) -> HttpResponse {
    match result {
        Ok(data) => HttpResponse::Ok().json(Done::of(data)),
        Err(Failure(problem)) => HttpResponse::build(StatusCode::PARTIAL_CONTENT).json(Refused::of(&problem)),
    }
}

/// The kind in the path; the route table has both kinds.
fn kind(request: &HttpRequest) -> Kind {
    if request.path().starts_with("/api/v1.0/callbackjob") { Kind::Callback } else { Kind::Client }
}

fn admit(edge: &Edge, request: &HttpRequest, in_address: Option<&str>) -> Result<Caller, Failure> {
    let token = request.headers().get(TOKEN).and_then(|value| value.to_str().ok());
    allow_peer(edge, request, Need::Admin, token.or(in_address), None)
}

/// A scheduler that calls back cannot send a header.
fn admit_by_address(edge: &Edge, request: &HttpRequest) -> Result<Option<Caller>, Failure> {
    let query = web::Query::<TaskQuery>::from_query(request.query_string()).ok();
    admit(edge, request, query.as_ref().and_then(|query| query.token.as_deref())).map(Some)
}

fn path_id(request: &HttpRequest) -> JobId {
    job_id(request.match_info().get("id").unwrap_or_default())
}

/// `POST /api/v1.0/{kind}`
pub async fn create(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_create(&edge, caller, &request, payload).await)
}

async fn try_create(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Option<String>, Failure> {
    let mut body = JobBody::read(&read(request, payload, MAX_JSON).await?)?;
    if body.is_ignored(&edge.scheduler_net.ignored) {
        return Ok(None);
    }
    let text = body.id.get_or_insert_with(|| JobId::at(Timestamp::now()).to_string()).clone();
    let id = job_id(&text);
    let mut taken = None;
    for name in body.names(id, None) {
        let input = body.input(kind(request), id, name, &edge.scheduler_net.zone, None)?;
        match edge.service.create_job(input, caller.name.clone()).await {
            Ok(_) => return Ok(Some(text)),
            Err(problem) if problem.kind == "/problems/name-taken" => taken = Some(problem),
            // Scheduler.NET has no deleted jobs: a client that deleted one may create it again.
            Err(problem) if problem.kind == "/problems/id-taken" => {
                return match edge.service.restore_job(id, caller.name.clone()).await {
                    Ok(_) => change(edge, request, &body, id, caller, true).await.map(|()| Some(text)),
                    Err(_) => Err(problem.into()),
                };
            }
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(taken.unwrap_or_else(Problem::internal).into())
}

async fn change(edge: &Edge, request: &HttpRequest, body: &JobBody, id: JobId, caller: Caller, restored: bool) -> Result<(), Failure> {
    let stored = edge.service.job(id).await?.job;
    let mut taken = None;
    for name in body.names(id, Some(&stored)) {
        let mut input = body.input(kind(request), id, name, &edge.scheduler_net.zone, Some(&stored))?;
        // A job that an operator disabled stays disabled.
        input.is_enabled = restored.then_some(true);
        match edge.service.update_job(id, input, caller.name.clone()).await {
            Ok(_) => return Ok(()),
            Err(problem) if problem.kind == "/problems/name-taken" => taken = Some(problem),
            Err(problem) => return Err(problem.into()),
        }
    }
    Err(taken.unwrap_or_else(Problem::internal).into())
}

async fn remove(edge: &Edge, id: JobId, caller: Caller) -> Result<(), Failure> {
    match edge.service.delete_job(id, None, caller.name).await {
        Err(problem) if problem.status != 404 => Err(problem.into()),
        // In Scheduler.NET an unknown id is not an error.
        _ => Ok(()),
    }
}

/// `PUT /api/v1.0/{kind}`
pub async fn update(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_update(&edge, caller, &request, payload).await)
}

async fn try_update(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Option<String>, Failure> {
    let body = JobBody::read(&read(request, payload, MAX_JSON).await?)?;
    let text = body.id.clone().ok_or_else(|| Problem::invalid("Id", "it is required"))?;
    let id = job_id(&text);
    if body.is_ignored(&edge.scheduler_net.ignored) {
        remove(edge, id, caller).await?;
        return Ok(Some(text));
    }
    // A cron expression can delete a job there, and another one restores it.
    let is_gone = matches!(edge.service.job(id).await, Err(problem) if problem.status == 404);
    if is_gone {
        // Report errors in the input before anything is restored.
        let name = body.names(id, None).swap_remove(0);
        let input = body.input(kind(request), id, name, &edge.scheduler_net.zone, None)?;
        match edge.service.check_job(input, caller.name.clone()).await {
            Err(problem) if problem.kind != "/problems/name-taken" => return Err(problem.into()),
            _ => {}
        }
        edge.service.restore_job(id, caller.name.clone()).await.map_err(|_| Problem::not_found(format!("there is no job {text}")))?;
    }
    change(edge, request, &body, id, caller, is_gone).await?;
    Ok(Some(text))
}

/// `DELETE /api/v1.0/{kind}/{id}`
pub async fn delete(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> HttpResponse {
    answer(remove(&edge, path_id(&request), caller).await.map(|()| None))
}

/// `GET /api/v1.0/{kind}/{id}`: fires the job now, as these clients expect of a GET.
pub async fn fire(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> HttpResponse {
    answer(trigger(&edge, &request, caller).await.map(Some))
}

async fn trigger(edge: &Edge, request: &HttpRequest, caller: Caller) -> Result<String, Failure> {
    let order = TriggerOrder { trace: trace_of(request), by: caller.name, ..TriggerOrder::default() };
    Ok(edge.service.trigger(path_id(request), order).await?.identity.to_string())
}

/// The query of a task.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TaskQuery {
    /// `run`; no other action is supported.
    action: String,
    /// The token: a scheduler that calls back cannot send a header.
    token: Option<String>,
}

/// `GET /api/v1.0/task/{id}?action=run`: the callback address that DotnetSpider's hub registered with Scheduler.NET.
pub async fn task(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, query: web::Query<TaskQuery>) -> HttpResponse {
    let run = match query.action.eq_ignore_ascii_case("run") {
        true => trigger(&edge, &request, caller).await,
        false => Err(Problem::invalid("action", format!("unknown action `{}`: expected `run`", query.action)).into()),
    };
    answer(run.map(Some))
}
