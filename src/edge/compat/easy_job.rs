//! `/group`, `/work` and `/task`: the addresses of seed 003, for clients that were written for it.

use crate::domain::ids::{GroupId, JobId, Number, NumberOr, PeerId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::worker::WorkerOrder;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::http::jobs::trace_of;
use crate::edge::owners::own;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::easy_job::{Flag, Group, GroupBody, Named, Task, TaskBody, TaskLog, TaskRef, Work, WorkBody, WorkRef};
use crate::protocol::management::{DisableInput, GroupInput, JobOutput, WorkerOutput};
use crate::protocol::problem::Problem;
use crate::service::TriggerOrder;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/group/insert").ignoring_parameters().post(insert_group, |op| {
            op.named("easyInsertGroup")
                .description("Creates a group, in the format of easy-job.")
                .needs(Need::Admin)
                .body::<GroupBody>()
                .answers::<Group>(200, "The group.")
                .may_fail(&[409, 422])
        }),
        resource("/group/query").ignoring_parameters().get(query_groups, |op| {
            op.named("easyQueryGroups")
                .description("Lists all groups by name, in the format of easy-job.")
                .needs(Need::Read)
                .query::<GroupQuery>()
                .answers::<Vec<Group>>(200, "The groups, or only the requested one.")
                .may_fail(&[404, 409])
        }),
        resource("/work/register")
            .ignoring_parameters()
            .also_at("/work/insert")
            .also_at("/worker/register")
            .also_at("/worker/insert")
            .post(register_work, |op| {
                op.named("easyRegisterWork")
                .description(
                    "Registers a work, as easy-job does. The same ip and port again is the same work, and changes it. To disable it here \
                    takes an admin.",
                )
                .needs(Need::Worker)
                .body::<WorkBody>()
                .answers::<Work>(200, "The work.")
                .may_fail(&[404, 409, 422])
            }),
        resource("/work/disable").ignoring_parameters().also_at("/worker/disable").post(disable_work, |op| {
            work_op(op.named("easyDisableWork").description("Stops sending new tasks to a work. It may finish its current tasks."))
        }),
        resource("/work/enable")
            .ignoring_parameters()
            .also_at("/worker/enable")
            .post(enable_work, |op| work_op(op.named("easyEnableWork").description("Sends tasks to a work again."))),
        resource("/task/register").ignoring_parameters().also_at("/task/insert").post(register_task, |op| {
            op.named("easyRegisterTask")
                .description("Creates a task, in the format of easy-job: a task job.")
                .needs(Need::Admin)
                .body::<TaskBody>()
                .answers::<Task>(200, "The task.")
                .may_fail(&[404, 409, 422])
        }),
        resource("/task/disable")
            .ignoring_parameters()
            .post(disable_task, |op| task_op(op.named("easyDisableTask").description("Disables a task. A run in progress continues."))),
        resource("/task/enable")
            .ignoring_parameters()
            .post(enable_task, |op| task_op(op.named("easyEnableTask").description("Enables a task."))),
        resource("/task/retry").ignoring_parameters().post(retry_task, |op| {
            named(
                op.named("easyRetryTask")
                    .recorded_in_its_run()
                    .description("Runs a task now, in addition to its schedule. A disabled task is rejected."),
            )
            .query::<TaskQuery>()
            .body_or_nothing::<TaskRef>()
            .answers::<TaskLog>(200, "The run.")
        }),
    ]
}

fn named(op: Operation) -> Operation {
    op.needs(Need::Admin).may_fail(&[404, 409, 422])
}

fn work_op(op: Operation) -> Operation {
    named(op).query::<WorkQuery>().body_or_nothing::<WorkRef>().answers::<Work>(200, "The work.")
}

fn task_op(op: Operation) -> Operation {
    named(op).query::<TaskQuery>().body_or_nothing::<TaskRef>().answers::<Task>(200, "The task.")
}

/// Selects groups.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct GroupQuery {
    /// Only the group with this number or id.
    #[serde(alias = "group_id")]
    group_id: Option<Named<GroupId>>,
}

/// Selects a work, unless the body does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkQuery {
    /// Its number or its id.
    #[serde(alias = "work_id", alias = "workerId", alias = "worker_id", alias = "id")]
    work_id: Option<Named<WorkerId>>,
}

/// Selects a task, unless the body does.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct TaskQuery {
    /// Its number or its id.
    #[serde(alias = "task_id", alias = "id")]
    task_id: Option<Named<JobId>>,
}

type Answered = Result<HttpResponse, Failure>;

/// `POST /group/insert`
pub async fn insert_group(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Answered {
    let body: GroupBody = json(&request, payload).await?;
    let made = edge.service.create_group(GroupInput { name: body.group_name, ..GroupInput::default() }, caller.name).await;
    // The member has a different name in this dialect.
    let group = made.map_err(|problem| if problem.field.is_some() { problem.at("groupName") } else { problem })?;
    Ok(HttpResponse::Ok().json(Group::from(group)))
}

/// `GET /group/query`
pub async fn query_groups(edge: web::Data<Edge>, query: web::Query<GroupQuery>) -> Answered {
    if let Some(Named(group)) = query.group_id {
        let id = edge.service.meant(group).await?;
        return Ok(HttpResponse::Ok().json([Group::from(edge.service.group(&id.to_string()).await?)]));
    }
    let (mut groups, mut after) = (Vec::new(), None);
    loop {
        let page = edge.service.groups(None, after, crate::edge::http::MOST).await?;
        groups.extend(page.items.into_iter().map(Group::from));
        after = page.next_cursor;
        if after.is_none() {
            return Ok(HttpResponse::Ok().json(groups));
        }
    }
}

/// The name of the group that a body names.
async fn group_named(edge: &Edge, group: Option<Named<GroupId>>) -> Result<Option<String>, Failure> {
    let Some(Named(group)) = group else { return Ok(None) };
    let at = |problem: Problem| problem.at("groupId");
    let id = edge.service.meant(group).await.map_err(at)?;
    Ok(Some(edge.service.group(&id.to_string()).await.map_err(at)?.name))
}

/// The number of the group of this name, if it exists: a worker may report a group that was never created.
async fn number_of(edge: &Edge, group: Option<&str>) -> Result<Option<Number>, Failure> {
    let Some(name) = group else { return Ok(None) };
    match edge.service.group(name).await {
        Ok(group) => Ok(Some(group.number)),
        Err(problem) if problem.status == 404 => Ok(None),
        Err(problem) => Err(problem.into()),
    }
}

async fn work(edge: &Edge, worker: WorkerOutput) -> Answered {
    let group = number_of(edge, worker.record.group.as_deref()).await?;
    Ok(HttpResponse::Ok().json(Work::of(worker, group)))
}

async fn task(edge: &Edge, job: JobOutput) -> Answered {
    // Read again with the counters of its runs.
    let job = edge.service.job(job.job.id).await?;
    let group = number_of(edge, job.job.group.as_deref()).await?;
    Ok(HttpResponse::Ok().json(Task::of(job, group)))
}

/// `POST /work/register`
pub async fn register_work(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Answered {
    let body: WorkBody = json(&request, payload).await?;
    // Only an operator may set this. Clients that always send their flag do not mean "enable" by 0.
    let switch = match body.disable {
        Some(Flag(false)) if caller.may(Need::Admin) => Some(WorkerOrder::Enable),
        None | Some(Flag(false)) => None,
        Some(Flag(true)) => {
            caller.must(Need::Admin)?;
            Some(WorkerOrder::Disable)
        }
    };
    let (facts, of_address) = body.facts(group_named(&edge, body.group_id).await?)?;
    let id = match body.work_id {
        Some(Named(named)) => edge.service.meant(named).await.map_err(|problem| problem.at("workId"))?,
        None => of_address,
    };
    own(&edge, &caller, PeerId::Worker(id)).await?;
    work(&edge, edge.service.register_work(id, facts, body.bean_names, switch, caller.name).await?).await
}

/// The id from the query, or else from the body.
async fn meant<T: Copy, B: serde::de::DeserializeOwned + Default>(
    request: &HttpRequest,
    payload: web::Payload,
    of_query: Option<Named<T>>,
    of_body: fn(B) -> Option<Named<T>>,
    field: &str,
) -> Result<NumberOr<T>, Failure> {
    let body: B = json_or_default(request, payload).await?;
    let named = of_query.or_else(|| of_body(body)).ok_or_else(|| Problem::invalid(field, "it is required, in the query or in the body"))?;
    Ok(named.0)
}

async fn order_work(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<WorkQuery>,
    payload: web::Payload,
    order: WorkerOrder,
) -> Answered {
    let named = meant(&request, payload, query.work_id, |body: WorkRef| body.work_id, "workId").await?;
    let id = edge.service.meant(named).await?;
    work(&edge, edge.service.order_worker(id, order, None, caller.name).await?).await
}

/// `POST /work/disable`
pub async fn disable_work(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<WorkQuery>,
    payload: web::Payload,
) -> Answered {
    order_work(edge, caller, request, query, payload, WorkerOrder::Disable).await
}

/// `POST /work/enable`
pub async fn enable_work(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<WorkQuery>,
    payload: web::Payload,
) -> Answered {
    order_work(edge, caller, request, query, payload, WorkerOrder::Enable).await
}

/// `POST /task/register`
pub async fn register_task(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Answered {
    let body: TaskBody = json(&request, payload).await?;
    let group = group_named(&edge, body.group_id).await?;
    task(&edge, edge.service.create_job(body.input(group)?, caller.name).await?).await
}

/// The requested task. A job of another kind does not count as a task.
async fn the_task(edge: &Edge, request: &HttpRequest, of_query: &TaskQuery, payload: web::Payload) -> Result<JobId, Failure> {
    let named = meant(request, payload, of_query.task_id, |body: TaskRef| body.task_id, "taskId").await?;
    let id: JobId = edge.service.meant(named).await?;
    let job = edge.service.job(id).await?.job;
    if job.job_type == JobKind::Task { Ok(id) } else { Err(Problem::not_found(format!("job {id} is not a task job")).into()) }
}

/// `POST /task/disable`
pub async fn disable_task(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<TaskQuery>,
    payload: web::Payload,
) -> Answered {
    let id = the_task(&edge, &request, &query, payload).await?;
    task(&edge, edge.service.disable_job(id, DisableInput::default(), caller.name).await?).await
}

/// `POST /task/enable`
pub async fn enable_task(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<TaskQuery>,
    payload: web::Payload,
) -> Answered {
    let id = the_task(&edge, &request, &query, payload).await?;
    task(&edge, edge.service.enable_job(id, caller.name).await?).await
}

/// `POST /task/retry`
pub async fn retry_task(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<TaskQuery>,
    payload: web::Payload,
) -> Answered {
    let id = the_task(&edge, &request, &query, payload).await?;
    let order = TriggerOrder { trace: trace_of(&request), by: caller.name, ..TriggerOrder::default() };
    Ok(HttpResponse::Ok().json(TaskLog::from(edge.service.trigger(id, order).await?)))
}
