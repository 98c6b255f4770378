//! `/api/v1/jobs/export` and `/api/v1/jobs/import`: jobs as a file, in YAML or JSON.

use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{parse, read};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::JobInput;
use crate::protocol::management::{ExportedJob, ImportedJob};
use crate::protocol::parser_errors::unread;
use crate::protocol::problem::Problem;
use crate::protocol::push::read_json;
use crate::protocol::unknown::refusal;
use actix_web::http::header::{ACCEPT, CONTENT_TYPE, HeaderName};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

/// The media type of YAML (RFC 9512).
const YAML: &str = "application/yaml";
/// The largest file of jobs: some 20,000 of them.
const MOST_BODY: usize = 8 << 20;
/// The memory that is reserved for a parsed file, as a multiple of its size: a number of one digit and its comma become 32 bytes of a list that may
/// have grown to twice its length. Jobs take less. A file made of tiny objects takes up to three times as much.
const PARSED: usize = 32;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/export").get(export, |op| {
            op.named("exportJobs")
                .description("Exports jobs as a file, sorted by name. YAML, unless `Accept` asks for JSON. The secret of a callback is empty; other secrets are masked for all but an admin.")
                .needs(Need::Read)
                .query::<ExportQuery>()
                .answers::<Vec<ExportedJob>>(200, "The jobs.")
                .or_as(YAML)
        }),
        resource("/api/v1/jobs/import").post(import, |op| {
            op.named("importJobs")
                .description("Creates or changes jobs from a JSON or YAML file, by name. All are checked before any is written.")
                .needs(Need::Edit)
                .query::<ImportQuery>()
                .body::<ImportBody>()
                .answers::<Vec<ImportedJob>>(200, "The result for each job.")
                .may_fail(&[404, 409, 422])
        }),
    ]
}

/// The query of an export.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExportQuery {
    /// Only the jobs of this group.
    group: Option<String>,
    /// Only those whose name contains this, ignoring case.
    name: Option<String>,
}

fn header(request: &HttpRequest, name: HeaderName) -> &str {
    request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// `GET /api/v1/jobs/export`
pub async fn export(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<ExportQuery>,
) -> Result<HttpResponse, Failure> {
    let ExportQuery { group, name } = query.into_inner();
    let jobs = shown(&caller, edge.service.export_jobs(group, name).await?);
    let accept = header(&request, ACCEPT).to_ascii_lowercase();
    if accept.contains("json") && !accept.contains("yaml") {
        return Ok(HttpResponse::Ok().json(jobs));
    }
    Ok(HttpResponse::Ok().content_type(YAML).body(write_yaml(&jobs)?))
}

/// The query of an import.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ImportQuery {
    /// Only check the file and return what the import would do.
    #[serde(default)]
    dry_run: bool,
}

/// The body of an import. It is first read as a plain value, so that an error can name its position.
#[derive(JsonSchema)]
#[schemars(untagged)]
#[expect(dead_code, reason = "for the document")]
enum ImportBody {
    /// Jobs.
    List(Vec<JobInput>),
    /// Jobs, and definitions that several of them share.
    File(ImportFile),
}

#[derive(JsonSchema)]
#[schemars(extend("additionalProperties" = false, "patternProperties" = { "^x-": {} }))]
#[expect(dead_code, reason = "for the document")]
struct ImportFile {
    /// Jobs.
    jobs: Vec<JobInput>,
}

/// `POST /api/v1/jobs/import`
pub async fn import(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<ImportQuery>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let body = read(&request, payload, MOST_BODY).await?;
    let kind = header(&request, CONTENT_TYPE).to_owned();
    let inputs = parse(&request, body, PARSED, move |body| jobs_of(read_file(&body, &kind)?)).await?;
    Ok(HttpResponse::Ok().json(edge.service.import_jobs(inputs, query.dry_run, caller.name).await?))
}

fn write_yaml(jobs: &[ExportedJob]) -> Result<String, Problem> {
    if jobs.is_empty() {
        return Ok("[]\n".to_owned());
    }
    serde_saphyr::to_string(&jobs).map_err(|e| {
        log::error!("cannot write jobs as YAML: {e}");
        Problem::internal()
    })
}

/// Parses a file by its media type; without a known one, text that begins like JSON is parsed as JSON.
fn read_file(body: &[u8], kind: &str) -> Result<Value, Problem> {
    let kind = kind.to_ascii_lowercase();
    let looks_json = || matches!(body.iter().find(|byte| !byte.is_ascii_whitespace()), Some(b'[' | b'{'));
    if kind.contains("json") || !kind.contains("yaml") && looks_json() { read_json(body) } else { read_yaml(body) }
}

/// Parses YAML. A few lines of it can expand to gigabytes, so aliases are limited.
fn read_yaml(body: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(body).map_err(|e| Problem::malformed(format!("the YAML is not UTF-8: {e}")))?;
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: 32,
            max_aliases: 1_000,
            max_recorded_anchor_bytes: 8_192,
            max_documents: 1,
            // As many as a file of the largest size has.
            max_nodes: 4_000_000,
            max_events: 8_000_000,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 10_000,
            max_replay_stack_depth: 8,
        },
        // As in YAML 1.2: `on` and `no` are plain texts.
        strict_booleans: true,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options).map_err(|e| {
        // An option of the library, which the author of the file cannot set.
        let why = e.to_string().replace(", set DuplicateKeyPolicy in Options if acceptable", "");
        Problem::malformed(format!("the YAML cannot be read: {why}"))
    })
}

/// Members with this prefix are free for the author of the file: definitions that several jobs share by a YAML alias.
const OWN: &str = "x-";

/// The list of jobs in a file: all of it, or its member `jobs`.
fn list_of(file: Value) -> Result<Vec<Value>, Problem> {
    let (jobs, others) = match file {
        Value::Object(mut members) => (members.remove("jobs"), members),
        list => (Some(list), serde_json::Map::new()),
    };
    let Some(Value::Array(jobs)) = jobs else { return Err(Problem::malformed("a list of jobs is expected").at("jobs")) };
    match others.keys().find(|name| !name.starts_with(OWN)) {
        Some(name) => {
            let detail = format!("{}; names that begin with `{OWN}` are free for your own use", refusal("member", name, &["jobs"]));
            Err(Problem::invalid(name, detail))
        }
        None => Ok(jobs),
    }
}

/// The jobs of a file; a problem names the position.
fn jobs_of(file: Value) -> Result<Vec<JobInput>, Problem> {
    let jobs = list_of(file)?;
    let job = |(i, job): (usize, Value)| {
        serde_path_to_error::deserialize(job).map_err(|e| {
            let path = e.path().to_string();
            let field = if path == "." { format!("jobs[{i}]") } else { format!("jobs[{i}].{path}") };
            unread("member", &field, &e.inner().to_string())
        })
    };
    jobs.into_iter().enumerate().map(job).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::Schedule;

    fn a_job() -> ExportedJob {
        ExportedJob {
            name: "yes: #1".into(),
            job_type: crate::domain::job::JobKind::Block,
            description: Some("two\nlines".into()),
            group: None,
            priority: -1,
            is_enabled: false,
            disabled_reason: Some("no".into()),
            properties: [("ThreadNum".to_owned(), "4".to_owned()), ("A".to_owned(), "null".to_owned()), ("B".into(), " x ".into())].into(),
            schedule: Some(Schedule::of_cron("*/5 * * * *")),
            policies: None,
            callback: None,
            task: None,
            successors: Vec::new(),
        }
    }

    #[test]
    fn what_is_written_is_read_again() {
        let yaml = write_yaml(&[a_job()]).expect("YAML");
        let file = read_file(yaml.as_bytes(), "").expect("a file");
        assert_eq!(file, serde_json::to_value([a_job()]).expect("JSON"), "{yaml}");
        let jobs = jobs_of(file).expect("jobs");
        assert_eq!(jobs[0].properties, Some(a_job().properties));
        assert_eq!(read_file(write_yaml(&[]).expect("YAML").as_bytes(), YAML), Ok(Value::Array(Vec::new())));
    }

    #[test]
    fn what_several_jobs_share_is_written_once() {
        let text = "x-free: &free {name: free, dates: [2026-12-25]}\njobs:\n\
                    - {name: a, schedule: {triggers: [{cron: '0 9 * * *'}], blackouts: [*free]}}\n\
                    - {name: b, schedule: {triggers: [{cron: '0 8 * * *'}], blackouts: [*free]}}\n";
        let jobs = read_file(text.as_bytes(), YAML).and_then(jobs_of).expect("jobs");
        let free: Vec<_> = jobs.iter().map(|job| job.schedule.as_ref().expect("a schedule").blackouts.clone()).collect();
        assert_eq!((free.len(), free[0][0].name.as_deref()), (2, Some("free")));
        assert_eq!(free[0], free[1]);
    }

    #[test]
    fn a_wrong_file_names_the_place() {
        let field = |text: &str| {
            let jobs = read_file(text.as_bytes(), "").and_then(jobs_of);
            jobs.map_err(|problem| (problem.status, problem.field.unwrap_or_default())).err()
        };
        assert_eq!(field("- name: a\n- name: b\n  priority: high\n"), Some((400, "jobs[1].priority".to_owned())));
        assert_eq!(field("[{\"name\": 5}]"), Some((400, "jobs[0].name".to_owned())));
        assert_eq!(field("name: a\n"), Some((400, "jobs".to_owned())));
        assert_eq!(field("- name: [\n"), Some((400, String::new())));
        assert_eq!(field("jobs: []\nx-a: 1\nb: 2\n"), Some((422, "b".to_owned())));
        assert_eq!(field("- name: a\n  shedule: {}\n"), Some((422, "jobs[0].shedule".to_owned())));
        assert_eq!(field("- name: a\n  schedule: {triggers: [{crom: x}]}\n"), Some((422, "jobs[0].schedule.triggers[0].crom".to_owned())));
        assert_eq!(field("jobs: 5\n"), Some((400, "jobs".to_owned())));
        assert_eq!(
            field("- name: a\n  schedule:\n    triggers:\n    - cron: 5\n").map(|(_, field)| field).as_deref(),
            Some("jobs[0].schedule.triggers[0].cron")
        );
    }

    #[test]
    fn a_file_of_the_largest_size_is_read() {
        let line =
            "- { name: j, jobType: block, properties: { FullClassName: a.B, Delay: 1, PerSite: 1, Robots: obey, MaxRedirects: 2 } }\n";
        let file = read_yaml(line.repeat(MOST_BODY / line.len()).as_bytes()).expect("a file");
        assert!(file.as_array().is_some_and(|jobs| jobs.len() > 60_000));
    }

    #[test]
    fn few_lines_do_not_become_gigabytes() {
        let mut bomb = String::from("a0: &a0 [x, x, x, x, x, x, x, x, x]\n");
        for i in 1..12 {
            let aliases = vec![format!("*a{}", i - 1); 9].join(", ");
            bomb.push_str(&format!("a{i}: &a{i} [{aliases}]\n"));
        }
        assert_eq!(read_yaml(bomb.as_bytes()).map_err(|problem| problem.status), Err(400));
        let deep = "[".repeat(10_000);
        assert_eq!(read_file(deep.as_bytes(), YAML).map_err(|problem| problem.status), Err(400));
        let shared = "- &base\n  name: a\n  properties: { FullClassName: a.B }\n- { <<: *base, name: b }\n";
        let file = read_yaml(shared.as_bytes()).expect("aliases are taken");
        assert_eq!((&file[1]["name"], &file[1]["properties"]["FullClassName"]), (&"b".into(), &"a.B".into()));
    }
}
