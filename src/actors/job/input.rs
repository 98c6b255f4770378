//! Validates the input for a job. Every value is checked before anything is written.

use super::loaded::of_property;
use crate::domain::application::{ApplicationSettings, of_command};
use crate::domain::callback::Callback;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, JobKind, Properties, limits};
use crate::domain::run::Run;
use crate::domain::schedule::{InvalidSchedule, Schedule, Trigger};
use crate::domain::secrets::{MASK, Secrets, Unknown};
use crate::domain::task::limits as task;
use crate::domain::time::Timestamp;
use crate::protocol::api::{JobInput, JobTypeInput, TriggerInput};
use crate::protocol::problem::Problem;
use std::sync::Arc;

/// Maximum length of an idempotency key, in characters.
const MOST_KEY: usize = 200;

fn check_length(field: &str, text: &str, most: usize) -> Result<(), Problem> {
    let length = text.chars().count();
    if length > most {
        return Err(Problem::invalid(field, format!("must have at most {most} characters, not {length}")));
    }
    Ok(())
}

/// Checks a text that names something: in lists and logs it is one line.
fn check_line(field: &str, text: &str, most: usize) -> Result<(), Problem> {
    check_length(field, text, most)?;
    if text.chars().any(char::is_control) {
        return Err(Problem::invalid(field, "must not contain control characters, such as a line break"));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Problem> {
    if name.trim().is_empty() {
        return Err(Problem::invalid("name", "a job needs a name: 1 to 50 characters"));
    }
    check_length("name", name, limits::NAME)
}

fn kind_of(input: &JobTypeInput) -> Result<JobKind, Problem> {
    match input {
        JobTypeInput::Number(0) => Ok(JobKind::Block),
        JobTypeInput::Number(1) => Ok(JobKind::Application),
        JobTypeInput::Number(n) => Err(Problem::invalid("jobType", format!("unknown job type {n}: expected 0 (block) or 1 (application)"))),
        JobTypeInput::Name(name) => name.parse().map_err(|detail: String| Problem::invalid("jobType", detail)),
    }
}

/// Creates a job from the input.
///
/// # Errors
/// A value is invalid.
pub fn job_from(input: JobInput, by: Option<String>, now: Timestamp) -> Result<Job, Problem> {
    let mut job = Job {
        id: input.id.unwrap_or_else(|| JobId::at(now)),
        name: String::new(),
        job_type: JobKind::Block,
        description: None,
        group: None,
        is_enabled: true,
        disabled_reason: None,
        is_deleted: false,
        priority: 0,
        properties: Properties::default(),
        schedule: None,
        policies: None,
        callback: None,
        task: None,
        successors: Vec::new(),
        version: 1,
        create_by: by.clone(),
        update_by: by,
        creation_time: now,
        update_time: now,
    };
    apply(&mut job, input, now)?;
    Ok(job)
}

/// Applies the input to a job and validates the result.
///
/// # Errors
/// A value is invalid.
pub fn apply(job: &mut Job, mut input: JobInput, now: Timestamp) -> Result<(), Problem> {
    unmask(job, &mut input)?;
    if input.id.is_some_and(|other| other != job.id) {
        return Err(Problem::invalid("id", "the id of a job cannot change"));
    }
    if let Some(version) = input.version.filter(|version| *version != job.version) {
        let detail = format!("the job has changed since version {version} was read: the current version is {}", job.version);
        return Err(Problem::conflict("version", detail).at("version"));
    }
    let schedule = schedule_of(job, &input, now)?;
    let is_new = job.name.is_empty();
    match &input.job_type {
        Some(kind) => job.job_type = kind_of(kind)?,
        None if input.command.is_some() && is_new => job.job_type = JobKind::Application,
        None => {}
    }
    check_members(job, &input)?;
    if let Some(name) = input.name {
        if name != job.name {
            check_line("name", &name, limits::NAME)?;
        }
        job.name = name;
    }
    check_name(&job.name)?;
    if let Some(description) = input.description {
        check_length("description", &description, limits::DESCRIPTION)?;
        job.description = Some(description).filter(|text| !text.is_empty());
    }
    if let Some(group) = input.group {
        check_line("group", &group, limits::NAME)?;
        job.group = Some(group.trim().to_owned()).filter(|name| !name.is_empty());
    }
    if let Some(reason) = &input.disabled_reason {
        check_length("disabledReason", reason, limits::DESCRIPTION)?;
    }
    job.is_enabled = input.is_enabled.unwrap_or(job.is_enabled);
    job.disabled_reason = if job.is_enabled { None } else { input.disabled_reason.or(job.disabled_reason.take()) };
    job.priority = input.priority.unwrap_or(job.priority);
    if let Some(properties) = input.properties {
        let properties = Properties(properties);
        properties.check_spelling(&job.properties).map_err(|e| of_property(&e))?;
        properties.check_kind(job.job_type, &job.properties).map_err(|e| of_property(&e))?;
        job.properties = properties;
    }
    for (key, value) in [("Application", input.application), ("Arguments", input.arguments)] {
        if let Some(value) = value {
            job.properties.0.insert(key.to_owned(), value);
        }
    }
    if let Some(command) = &input.command {
        let (program, arguments) = of_command(command).map_err(|detail| Problem::invalid("command", detail))?;
        job.properties.put("Application", Some(program));
        job.properties.put("Arguments", arguments);
        // As cron: a busy processor is no reason to leave the run out, unless the job says so.
        if job.properties.get("MaxCpu").is_none() {
            job.properties.put("MaxCpu", Some("101".to_owned()));
        }
    }
    check_properties(&job.properties)?;
    if let Some(policies) = input.policies {
        policies.check().map_err(|e| Problem::invalid(format!("policies.{}", e.field), e.detail))?;
        job.policies = Some(policies);
    }
    if let Some(callback) = input.callback {
        job.callback = Some(callback_of(callback, job.callback.as_ref())?);
    }
    if let Some(task) = input.task {
        task.check().map_err(|(part, detail)| Problem::invalid(format!("task.{part}"), detail))?;
        job.task = Some(task);
    }
    check_worker(job)?;
    if let Some(successors) = input.successors {
        super::successors::check(&successors)?;
        job.successors = successors;
    }
    if job.job_type == JobKind::Callback && job.callback.is_none() {
        return Err(Problem::invalid("callback", "a callback job needs a request"));
    }
    application_of(job)?;
    if let Some(schedule) = schedule {
        job.schedule = Some(schedule).filter(|schedule| *schedule != Schedule::default());
    }
    Ok(())
}

/// Rejects members that belong to another kind of job, and removes values of an earlier kind.
fn check_members(job: &mut Job, input: &JobInput) -> Result<(), Problem> {
    let kind = job.job_type;
    let given = [
        ("task", JobKind::Task, input.task.is_some()),
        ("callback", JobKind::Callback, input.callback.is_some()),
        ("command", JobKind::Application, input.command.is_some()),
    ];
    if let Some((member, its, _)) = given.into_iter().find(|(_, its, is_given)| *is_given && *its != kind) {
        let detail = format!("a job of type {} has no `{member}`. Set `jobType` to `{}`, or leave `{member}` out", kind.name(), its.name());
        return Err(Problem::invalid(member, detail));
    }
    let is_said = |key: &str| input.properties.as_ref().is_some_and(|given| Properties(given.clone()).get(key).is_some());
    if input.command.is_some()
        && (input.application.is_some() || input.arguments.is_some() || is_said("Application") || is_said("Arguments"))
    {
        return Err(Problem::invalid("command", "`command` has the program and its arguments. Leave out `Application` and `Arguments`"));
    }
    if kind != JobKind::Task {
        job.task = None;
    }
    if kind != JobKind::Callback {
        job.callback = None;
    }
    Ok(())
}

/// Replaces masks with the stored secrets, so that a client may send back a job that it read without secrets.
fn unmask(job: &Job, input: &mut JobInput) -> Result<(), Problem> {
    let has_properties = input.properties.is_some();
    let mut properties = Properties(input.properties.take().unwrap_or_default());
    let (mut old_callback, mut old_properties) = (job.callback.clone(), job.properties.clone());
    let stored = Secrets { callback: old_callback.as_mut(), properties: &mut old_properties };
    let restored = Secrets { callback: input.callback.as_mut(), properties: &mut properties }.restore(stored);
    input.properties = has_properties.then_some(properties.0);
    restored.map_err(|Unknown(path)| {
        Problem::invalid(path, format!("`{MASK}` stands for a stored secret, but no secret is stored here: send the value"))
    })
}

/// Checks that the job has a name for workers if its kind needs one, and not more than one.
fn check_worker(job: &Job) -> Result<(), Problem> {
    let class = job.properties.get("FullClassName").filter(|class| !class.is_empty());
    let refused = |detail: &str| Err(Problem::invalid("properties.FullClassName", detail));
    let handler = job.task.as_ref().and_then(|task| task.handler.as_deref());
    match job.job_type {
        JobKind::Block if job.properties.class_name().is_none() => refused(
            "a block job needs the class that workers watch. For other work set `jobType` to `task`, `application` or `callback`, or use `command`",
        ),
        JobKind::Task if job.handler().is_none() => Err(Problem::invalid("task.handler", "a task job needs a name that workers watch")),
        JobKind::Task if handler.is_some() && class.is_some_and(|class| Some(class) != handler) => {
            refused("a task job uses `task.handler`. Leave out the class, or make it a block job")
        }
        JobKind::Application if class.is_some() => refused("an application job has a program and no class. Leave out one of the two"),
        JobKind::Callback if class.is_some() => refused("a callback job has a request and no class. Leave out one of the two"),
        _ => Ok(()),
    }
}

/// The program of an application job, validated.
pub(super) fn application_of(job: &Job) -> Result<Option<Arc<ApplicationSettings>>, Problem> {
    if job.job_type != JobKind::Application {
        return Ok(None);
    }
    let read = ApplicationSettings::read(&job.properties);
    read.map(|settings| Some(Arc::new(settings))).map_err(|e| Problem::invalid(format!("properties.{}", e.key), e.detail))
}

/// Validates the program arguments of a trigger.
pub(super) fn check_arguments(run: &Run) -> Result<(), Problem> {
    let Some(settings) = &run.rules.application else { return Ok(()) };
    settings.words(settings.said(run.arguments.as_deref())).map(drop).map_err(|detail| Problem::invalid("arguments", detail))
}

/// The schedule of the input, validated; `None` if the input has no schedule.
fn schedule_of(job: &Job, input: &JobInput, now: Timestamp) -> Result<Option<Schedule>, Problem> {
    let mut schedule = match (&input.cron, input.interval, &input.schedule) {
        (None, None, None) => return Ok(None),
        (Some(cron), None, None) if cron.trim().is_empty() => return Ok(Some(Schedule::default())),
        // Keep the rest of the stored schedule, above all its time zone.
        (Some(cron), None, None) => {
            Schedule { triggers: Schedule::of_cron(cron.clone()).triggers, ..job.schedule.clone().unwrap_or_default() }
        }
        (None, Some(every), None) => {
            let trigger = Trigger { every: Some(every), ..Trigger::default() };
            Schedule { triggers: vec![trigger], ..job.schedule.clone().unwrap_or_default() }
        }
        (None, None, Some(schedule)) => schedule.clone(),
        // The client sent a job back as it read it: both fields contain the same expression.
        (Some(cron), None, Some(schedule)) if schedule.first_cron() == Some(cron.as_str()) => schedule.clone(),
        _ => return Err(Problem::invalid("schedule", "give only one of `cron`, `interval` and `schedule`")),
    };
    schedule.anchor(now, job.schedule.as_ref());
    let plan = schedule.compile().map_err(|e| match (&input.cron, input.interval) {
        (Some(_), _) if e.field == "triggers[0].cron" => Problem::invalid("cron", e.detail),
        (_, Some(_)) if e.field == "triggers[0].every" => Problem::invalid("interval", e.detail),
        _ => of_schedule(e),
    })?;
    let is_other = job.schedule.as_ref() != Some(&schedule);
    if is_other && !plan.can_fire_after(now) {
        let field = if input.cron.is_some() { "cron" } else { "schedule" };
        return Err(Problem::invalid(field, "the job would never run: the schedule has no future time"));
    }
    Ok(Some(schedule))
}

/// The request of a callback, validated. An empty secret means the stored one, because responses never contain the secret and a
/// client cannot send it back.
fn callback_of(mut callback: Callback, before: Option<&Callback>) -> Result<Callback, Problem> {
    if callback.secret.as_deref() == Some("") {
        callback.secret = before.and_then(|before| before.secret.clone());
    }
    callback.method = callback.method.map(|method| method.to_ascii_uppercase());
    callback.check().map_err(|(part, detail)| Problem::invalid(format!("callback.{part}"), detail))?;
    Ok(callback)
}

pub(super) fn of_schedule(e: InvalidSchedule) -> Problem {
    Problem::invalid(format!("schedule.{}", e.field), e.detail)
}

fn check_properties(properties: &Properties) -> Result<(), Problem> {
    if properties.0.len() > limits::PROPERTIES {
        return Err(Problem::invalid("properties", format!("must be at most {} properties", limits::PROPERTIES)));
    }
    for (key, value) in &properties.0 {
        let field = format!("properties.{key}");
        if key.is_empty() {
            return Err(Problem::invalid("properties", "keys must not be empty"));
        }
        check_length(&field, key, limits::KEY)?;
        check_length(&field, value, limits::VALUE)?;
    }
    if let Some(class) = properties.class_name() {
        check_length("properties.FullClassName", class, limits::CLASS)?;
    }
    properties.download().map_err(|e| of_property(&e))?;
    properties.queue().map_err(|e| of_property(&e))?;
    properties.allows_overlap().map_err(|e| of_property(&e))?;
    properties.stale_after().map_err(|e| of_property(&e))?;
    properties.worker_job().map_err(|e| of_property(&e))?;
    properties.no_worker().map_err(|e| of_property(&e))?;
    Ok(())
}

/// The stored text of a run's arguments: JSON for a task, plain text for other kinds.
pub(super) fn arguments_text(kind: JobKind, arguments: &serde_json::Value) -> Result<String, Problem> {
    let text = match (kind, arguments) {
        (JobKind::Task, value) => value.to_string(),
        (_, serde_json::Value::String(text)) => text.clone(),
        (_, value) => value.to_string(),
    };
    if kind != JobKind::Task {
        check_length("arguments", &text, limits::VALUE)?;
    } else if text.len() > task::PAYLOAD {
        return Err(Problem::invalid("arguments", format!("{} bytes, must be at most {} bytes", text.len(), task::PAYLOAD)));
    }
    Ok(text)
}

/// Validates a trigger.
///
/// # Errors
/// A text is too long.
pub fn check_trigger(input: &TriggerInput) -> Result<(), Problem> {
    if let Some(key) = &input.idempotency_key {
        check_length("idempotencyKey", key, MOST_KEY)?;
        if key.is_empty() {
            return Err(Problem::invalid("idempotencyKey", "must not be empty"));
        }
    }
    Ok(())
}
