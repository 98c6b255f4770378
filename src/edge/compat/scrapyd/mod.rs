//! The JSON calls of scrapyd, for scrapyd-client and the programs that drive scrapyd.
//!
//! An egg is a package, a version of a project is an application job, and a spider run is a run of it. See [`crate::protocol::scrapyd`].

mod form;
mod versions;

use self::form::form;
use self::versions::{SpiderRun, add, of_project, remove, spider_runs, spiders, the_version, versions as all_versions};
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need, admit_basic};
use crate::edge::error::Failure;
use crate::edge::http::jobs::trace_of;
use crate::edge::route::{Operation, Resource, resource};
use crate::protocol::api::TriggerInput;
use crate::protocol::problem::Problem;
use crate::protocol::scrapyd::{Answer, Fields, SpiderOrder, state_of, time};
use crate::service::TriggerOrder;
use actix_web::http::StatusCode;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

const FORM: &str = "application/x-www-form-urlencoded";
const FORM_IN_PARTS: &str = "multipart/form-data";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        call("/daemonstatus.json").get(daemon_status, |op| {
            reads(op.named("scrapydDaemonStatus").description("Counts the spider runs by state, in the format of scrapyd."))
        }),
        call("/listprojects.json")
            .get(list_projects, |op| reads(op.named("scrapydListProjects").description("Lists the projects, in the format of scrapyd."))),
        call("/listversions.json").get(list_versions, |op| {
            reads(
                op.named("scrapydListVersions")
                    .description("Lists the versions of a project, in the format of scrapyd. The latest is the last."),
            )
            .query::<ProjectQuery>()
        }),
        call("/listspiders.json").get(list_spiders, |op| {
            let description = "Lists the spiders of a version, in the format of scrapyd. If they are not known, a node lists them.";
            reads(op.named("scrapydListSpiders").description(description)).query::<ProjectQuery>().only_leader()
        }),
        call("/listjobs.json").get(list_jobs, |op| {
            let description = "Lists the spider runs, in the format of scrapyd: those that are not over, and the last 100 that are.";
            reads(op.named("scrapydListJobs").description(description)).query::<JobsQuery>().only_leader()
        }),
        call("/status.json").get(status, |op| {
            reads(op.named("scrapydStatus").description("The state of a spider run, in the format of scrapyd."))
                .query::<StatusQuery>()
                .only_leader()
        }),
        call("/addversion.json").post(add_version, |op| {
            let description =
                "Stores an egg as a version of a project, in the format of scrapyd. A node lists its spiders before the answer.";
            edits(op.named("scrapydAddVersion").description(description)).body_as_form::<AddForm>(FORM_IN_PARTS)
        }),
        call("/schedule.json").post(schedule, |op| {
            let description = "Runs a spider, in the format of scrapyd. Other fields become arguments of the spider.";
            operates(op.named("scrapydSchedule").recorded_in_its_run().description(description)).body_as_form::<ScheduleForm>(FORM)
        }),
        call("/cancel.json").post(cancel, |op| {
            operates(op.named("scrapydCancel").description("Stops a spider run, in the format of scrapyd."))
                .body_as_form::<CancelForm>(FORM)
        }),
        call("/delversion.json").post(delete_version, |op| {
            let description = "Deletes a version of a project, in the format of scrapyd. Its runs stay.";
            edits(op.named("scrapydDeleteVersion").description(description)).body_as_form::<VersionForm>(FORM)
        }),
        call("/delproject.json").post(delete_project, |op| {
            let description = "Deletes all versions of a project, in the format of scrapyd. Their runs stay.";
            edits(op.named("scrapydDeleteProject").description(description)).body_as_form::<ProjectForm>(FORM)
        }),
    ]
}

fn call(path: &'static str) -> Resource {
    resource(path).ignoring_parameters()
}

fn reads(op: Operation) -> Operation {
    answered(op.needs(Need::Read).admits(|edge, request| admit_basic(edge, request, Need::Read).map(Some), refused))
}

fn operates(op: Operation) -> Operation {
    answered(op.needs(Need::Operate).admits(|edge, request| admit_basic(edge, request, Need::Operate).map(Some), refused))
}

fn edits(op: Operation) -> Operation {
    answered(op.needs(Need::Edit).admits(|edge, request| admit_basic(edge, request, Need::Edit).map(Some), refused))
}

fn answered(op: Operation) -> Operation {
    let op = op.answers::<Answer>(200, "The answer. Its member `status` is `ok`, or `error` with a `message`.");
    [400, 401, 403, 408, 413, 415, 422, 429, 500, 503].into_iter().fold(op, |op, status| op.answers::<Answer>(status, "An error."))
}

/// An error in scrapyd's form. Errors in the input have the status 200, as in scrapyd.
fn refused(Failure(problem): Failure) -> HttpResponse {
    let status = match problem.status {
        400 | 404 | 409 | 422 => StatusCode::OK,
        status => StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR),
    };
    let mut answer = HttpResponse::build(status);
    if status == StatusCode::UNAUTHORIZED {
        answer.insert_header(("WWW-Authenticate", "Basic realm=\"webloom\""));
    }
    if matches!(problem.status, 429 | 503) {
        answer.insert_header(("Retry-After", "1"));
    }
    answer.json(Answer::error(problem.detail))
}

fn answer(result: Result<Value, Failure>) -> HttpResponse {
    result.map_or_else(refused, |members| HttpResponse::Ok().json(Answer::ok(members)))
}

/// Selects a project.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct ProjectQuery {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
    /// The version; the latest one if it is absent.
    #[serde(rename = "_version", default)]
    _version: Option<String>,
}

/// Selects spider runs.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct JobsQuery {
    /// The project; all projects if it is absent.
    #[serde(rename = "project", default)]
    _project: Option<String>,
}

/// Selects a spider run.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct StatusQuery {
    /// The id that `schedule.json` returned.
    #[serde(rename = "job")]
    _job: String,
    /// Its project.
    #[serde(rename = "project", default)]
    _project: Option<String>,
}

/// An egg.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScrapydAddVersion")]
pub struct AddForm {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
    /// The version.
    #[serde(rename = "version")]
    _version: String,
    /// The egg, as a file.
    #[serde(rename = "egg")]
    _egg: String,
}

/// A spider to run.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScrapydSchedule")]
pub struct ScheduleForm {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
    /// The spider.
    #[serde(rename = "spider")]
    _spider: String,
    /// The version; the latest one if it is absent.
    #[serde(rename = "_version", default)]
    _version: Option<String>,
    /// The id of the run; the broker makes one if it is absent.
    #[serde(rename = "jobid", default)]
    _job: Option<String>,
    /// The priority; a higher one goes first.
    #[serde(rename = "priority", default)]
    _priority: Option<f64>,
    /// A setting of Scrapy, as NAME=VALUE. It may be there several times.
    #[serde(rename = "setting", default)]
    _setting: Option<String>,
}

/// A spider run to stop.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScrapydCancel")]
pub struct CancelForm {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
    /// The id of the run.
    #[serde(rename = "job")]
    _job: String,
}

/// A version to delete.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScrapydVersion")]
pub struct VersionForm {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
    /// The version.
    #[serde(rename = "version")]
    _version: String,
}

/// A project to delete.
#[derive(Debug, Deserialize, JsonSchema)]
#[schemars(rename = "ScrapydProject")]
pub struct ProjectForm {
    /// The project.
    #[serde(rename = "project")]
    _project: String,
}

fn query(request: &HttpRequest) -> Fields {
    Fields(url::form_urlencoded::parse(request.query_string().as_bytes()).into_owned().collect())
}

/// The runs of a project, which must exist.
async fn runs(edge: &Edge, project: Option<&str>) -> Result<Vec<SpiderRun>, Failure> {
    if let Some(project) = project {
        of_project(edge, project).await?;
    }
    Ok(spider_runs(edge, project).await?)
}

/// `GET /daemonstatus.json`
pub async fn daemon_status(edge: web::Data<Edge>) -> HttpResponse {
    answer(try_daemon_status(&edge).await)
}

async fn try_daemon_status(edge: &Edge) -> Result<Value, Failure> {
    let runs = runs(edge, None).await?;
    let count = |state| runs.iter().filter(|run| state_of(run.state) == state).count();
    Ok(json!({ "pending": count("pending"), "running": count("running"), "finished": count("finished") }))
}

/// `GET /listprojects.json`
pub async fn list_projects(edge: web::Data<Edge>) -> HttpResponse {
    answer(try_list_projects(&edge).await)
}

async fn try_list_projects(edge: &Edge) -> Result<Value, Failure> {
    let mut projects: Vec<String> = all_versions(edge, None).await?.into_iter().map(|version| version.project).collect();
    projects.dedup();
    Ok(json!({ "projects": projects }))
}

/// `GET /listversions.json`
pub async fn list_versions(edge: web::Data<Edge>, request: HttpRequest) -> HttpResponse {
    answer(try_list_versions(&edge, &query(&request)).await)
}

async fn try_list_versions(edge: &Edge, fields: &Fields) -> Result<Value, Failure> {
    // Without a version a project does not exist; scrapyd returns an empty list then.
    let versions = all_versions(edge, Some(fields.name("project")?)).await?;
    Ok(json!({ "versions": versions.into_iter().map(|version| version.version).collect::<Vec<_>>() }))
}

/// `GET /listspiders.json`
pub async fn list_spiders(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> HttpResponse {
    answer(try_list_spiders(&edge, caller, &query(&request)).await)
}

async fn try_list_spiders(edge: &Edge, caller: Caller, fields: &Fields) -> Result<Value, Failure> {
    let version = the_version(edge, fields.name("project")?, fields.get("_version")).await?;
    if version.spiders().is_none() {
        // To list them starts a program.
        caller.must(Need::Operate)?;
    }
    Ok(json!({ "spiders": spiders(edge, &version, caller.name).await? }))
}

/// `GET /listjobs.json`
pub async fn list_jobs(edge: web::Data<Edge>, request: HttpRequest) -> HttpResponse {
    answer(try_list_jobs(&edge, &query(&request)).await)
}

async fn try_list_jobs(edge: &Edge, fields: &Fields) -> Result<Value, Failure> {
    let mut lists = json!({ "pending": [], "running": [], "finished": [] });
    // Oldest first, as in scrapyd.
    for SpiderRun { order, run, state } in runs(edge, fields.get("project")).await?.into_iter().rev() {
        let state = state_of(state);
        let mut item = json!({ "id": order.job, "project": order.project, "spider": order.spider });
        if state == "pending" {
            item["version"] = json!(order.version);
            item["settings"] = json!(order.settings);
            item["args"] = json!(order.arguments);
        } else {
            item["start_time"] = json!(time(run.start_time));
            item["log_url"] = json!(format!("/api/v1/runs/{}/logs", run.identity));
            item["items_url"] = Value::Null;
        }
        if state == "running" {
            item["pid"] = Value::Null;
        }
        if state == "finished" {
            item["end_time"] = json!(time(run.finish_time));
        }
        if let Some(list) = lists[state].as_array_mut() {
            list.push(item);
        }
    }
    Ok(lists)
}

/// `GET /status.json`
pub async fn status(edge: web::Data<Edge>, request: HttpRequest) -> HttpResponse {
    answer(try_status(&edge, &query(&request)).await)
}

async fn try_status(edge: &Edge, fields: &Fields) -> Result<Value, Failure> {
    let job = fields.required("job")?;
    let runs = runs(edge, fields.get("project")).await?;
    let state = runs.iter().find(|run| run.order.job == job).map(|run| state_of(run.state));
    Ok(json!({ "currstate": state }))
}

/// `POST /addversion.json`
pub async fn add_version(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_add_version(&edge, caller, &request, payload).await)
}

async fn try_add_version(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Value, Failure> {
    let form = form(edge, request, payload).await?;
    let (project, version) = (form.fields.name("project")?, form.fields.name("version")?);
    let egg = form.egg.ok_or_else(|| Problem::invalid("egg", "'egg' parameter is required, as a file (with curl: -F egg=@path)"))?;
    let count = add(edge, project, version, egg, caller.name).await?;
    Ok(json!({ "project": project, "version": version, "spiders": count }))
}

/// `POST /schedule.json`
pub async fn schedule(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_schedule(&edge, caller, &request, payload).await)
}

async fn try_schedule(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Value, Failure> {
    let form = form(edge, request, payload).await?;
    let job = Identity::at(Timestamp::now()).to_string().replace('-', "");
    let (order, priority) = SpiderOrder::of(&form.fields, job)?;
    let version = the_version(edge, &order.project, order.version.as_deref()).await?;
    if !spiders(edge, &version, caller.name.clone()).await?.contains(&order.spider) {
        return Err(Problem::not_found(format!("spider '{}' not found", order.spider)).into());
    }
    let arguments = serde_json::to_string(&order).map_err(|_| Problem::internal())?;
    let input = TriggerInput { arguments: Some(arguments.into()), priority, ..TriggerInput::default() };
    let trigger = TriggerOrder { input, trace: trace_of(request), by: caller.name, ..TriggerOrder::default() };
    edge.service.trigger(version.job, trigger).await?;
    Ok(json!({ "jobid": order.job }))
}

/// `POST /cancel.json`
pub async fn cancel(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_cancel(&edge, caller, &request, payload).await)
}

async fn try_cancel(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Value, Failure> {
    let form = form(edge, request, payload).await?;
    let (project, job) = (form.fields.name("project")?, form.fields.required("job")?);
    let mut before = None;
    for found in runs(edge, Some(project)).await? {
        if found.order.job == job && !found.state.is_final() {
            match edge.service.stop_run(found.run.identity, caller.name.as_deref()).await {
                Ok(_) => before = Some(state_of(found.state)),
                // It ended in between.
                Err(problem) if problem.status == 409 => {}
                Err(problem) => return Err(problem.into()),
            }
        }
    }
    Ok(json!({ "prevstate": before }))
}

/// `POST /delversion.json`
pub async fn delete_version(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_delete_version(&edge, caller, &request, payload).await)
}

async fn try_delete_version(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Value, Failure> {
    let form = form(edge, request, payload).await?;
    let version = the_version(edge, form.fields.name("project")?, Some(form.fields.name("version")?)).await?;
    remove(edge, &version, caller.name).await?;
    Ok(json!({}))
}

/// `POST /delproject.json`
pub async fn delete_project(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    answer(try_delete_project(&edge, caller, &request, payload).await)
}

async fn try_delete_project(edge: &Edge, caller: Caller, request: &HttpRequest, payload: web::Payload) -> Result<Value, Failure> {
    let form = form(edge, request, payload).await?;
    for version in of_project(edge, form.fields.name("project")?).await? {
        remove(edge, &version, caller.name.clone()).await?;
    }
    Ok(json!({}))
}
