//! Jobs: checked here, stored in one transaction each.

use super::Desk;
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::job::{Job, JobKind, Properties, limits};
use crate::domain::time::Timestamp;
use crate::protocol::api::{JobInput, JobTypeInput, Page, RunOutput, TriggerInput};
use crate::protocol::problem::Problem;
use crate::store::{GetJob, InsertJob, ListJobs, StoreError, UpdateJob};

/// Which jobs to list.
#[derive(Debug, Clone, Default)]
pub struct JobFilter {
    /// A part of the name.
    pub name: Option<String>,
    /// Enabled or not.
    pub enabled: Option<bool>,
    /// Where the last page ended.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: usize,
}

fn check_length(field: &str, text: &str, most: usize) -> Result<(), Problem> {
    let length = text.chars().count();
    if length > most {
        return Err(Problem::invalid(field, format!("{length} characters are too many: at most {most} are taken")));
    }
    Ok(())
}

fn check_name(name: &str) -> Result<(), Problem> {
    if name.trim().is_empty() {
        return Err(Problem::invalid("name", "a job needs a name"));
    }
    check_length("name", name, limits::NAME)
}

fn kind_of(input: &JobTypeInput) -> Result<JobKind, Problem> {
    match input {
        JobTypeInput::Number(0) => Ok(JobKind::Block),
        JobTypeInput::Number(1) => Ok(JobKind::Application),
        JobTypeInput::Number(n) => Err(Problem::invalid("jobType", format!("{n} is no kind of job: 0 is block, 1 is application"))),
        JobTypeInput::Name(name) => name.parse().map_err(|detail: String| Problem::invalid("jobType", detail)),
    }
}

/// Puts what was sent into a job, and checks what comes of it.
fn apply(job: &mut Job, input: JobInput) -> Result<(), Problem> {
    if let Some(cron) = input.cron.filter(|cron| !cron.trim().is_empty()) {
        return Err(Problem::invalid(
            "cron",
            format!("this version keeps no schedules, so `{cron}` would never fire: trigger the job instead"),
        ));
    }
    if let Some(name) = input.name {
        job.name = name;
    }
    check_name(&job.name)?;
    if let Some(kind) = &input.job_type {
        job.job_type = kind_of(kind)?;
    }
    if let Some(description) = input.description {
        check_length("description", &description, limits::DESCRIPTION)?;
        job.description = Some(description).filter(|text| !text.is_empty());
    }
    job.is_enabled = input.is_enabled.unwrap_or(job.is_enabled);
    job.priority = input.priority.unwrap_or(job.priority);
    if let Some(properties) = input.properties {
        job.properties = Properties(properties);
    }
    for (key, value) in [("Application", input.application), ("Arguments", input.arguments)] {
        if let Some(value) = value {
            job.properties.0.insert(key.to_owned(), value);
        }
    }
    check_properties(&job.properties)
}

fn check_properties(properties: &Properties) -> Result<(), Problem> {
    if properties.0.len() > limits::PROPERTIES {
        return Err(Problem::invalid("properties", format!("at most {} properties are taken", limits::PROPERTIES)));
    }
    for (key, value) in &properties.0 {
        let field = format!("properties.{key}");
        if key.is_empty() {
            return Err(Problem::invalid("properties", "a property needs a key"));
        }
        check_length(&field, key, limits::KEY)?;
        check_length(&field, value, limits::VALUE)?;
    }
    if let Some(class) = properties.class_name() {
        check_length("properties.FullClassName", class, limits::CLASS)?;
    }
    let wrong = |e: crate::domain::job::InvalidProperty| Problem::invalid(format!("properties.{}", e.key), e.detail);
    properties.download().map_err(wrong)?;
    properties.queue().map_err(wrong)?;
    properties.allows_overlap().map_err(wrong)?;
    properties.stale_after().map_err(wrong)?;
    Ok(())
}

/// What a conflict in the store means here.
fn conflict(error: StoreError, job: &Job) -> Problem {
    match error {
        StoreError::Conflict(what) if what == "name" => {
            Problem::conflict("name-taken", format!("another job is called `{}`", job.name)).at("name")
        }
        StoreError::Conflict(what) if what == "id" => Problem::conflict("id-taken", format!("a job {} exists", job.id)).at("id"),
        StoreError::Conflict(what) if what == "version" => {
            Problem::conflict("version", "the job was changed since that version was read".to_owned()).at("version")
        }
        other => problem_of(&other),
    }
}

impl Desk {
    /// Creates a job.
    ///
    /// # Errors
    /// A value is not allowed, or the name or the id is taken.
    pub async fn create_job(&self, input: JobInput, by: Option<String>) -> Result<Job, Problem> {
        let now = Timestamp::now();
        let mut job = Job {
            id: input.id.unwrap_or_else(JobId::random),
            name: String::new(),
            job_type: JobKind::Block,
            description: None,
            is_enabled: true,
            is_deleted: false,
            priority: 0,
            properties: Properties::default(),
            version: 1,
            creation_time: now,
            update_time: now,
        };
        apply(&mut job, input)?;
        let write = self.house.store.write(InsertJob { job: job.clone(), by });
        write.await.map_err(|error| conflict(error, &job))?;
        Ok(job)
    }

    /// A job that is not deleted.
    ///
    /// # Errors
    /// There is none.
    pub async fn job(&self, id: JobId) -> Result<Job, Problem> {
        let job = self.house.store.read(GetJob(id)).await.map_err(|e| problem_of(&e))?;
        job.filter(|job| !job.is_deleted).ok_or_else(|| Problem::not_found(format!("there is no job {id}")))
    }

    /// Lists jobs, oldest first.
    ///
    /// # Errors
    /// The cursor is none of ours.
    pub async fn jobs(&self, filter: JobFilter) -> Result<Page<Job>, Problem> {
        let after = filter.cursor.as_deref().map(read_cursor).transpose()?;
        let limit = filter.limit;
        let query = ListJobs { name: filter.name, enabled: filter.enabled, after, limit: limit + 1 };
        let mut items = self.house.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = items.len() > limit;
        items.truncate(limit);
        let next_cursor = items.last().filter(|_| more).map(|job| format!("{}-{}", job.creation_time.0, job.id));
        Ok(Page { items, next_cursor })
    }

    /// Changes a job.
    ///
    /// # Errors
    /// There is none, a value is not allowed, the name is taken, or it was changed meanwhile.
    pub async fn update_job(&self, id: JobId, input: JobInput, by: Option<String>) -> Result<Job, Problem> {
        if input.id.is_some_and(|other| other != id) {
            return Err(Problem::invalid("id", "a job keeps its id"));
        }
        let mut job = self.job(id).await?;
        if let Some(version) = input.version.filter(|version| *version != job.version) {
            return Err(conflict(StoreError::Conflict("version".to_owned()), &Job { version, ..job }));
        }
        apply(&mut job, input)?;
        self.save(job, by).await
    }

    /// Enables or disables a job.
    ///
    /// # Errors
    /// There is none.
    pub async fn enable_job(&self, id: JobId, enabled: bool, by: Option<String>) -> Result<Job, Problem> {
        let job = self.job(id).await?;
        self.save(Job { is_enabled: enabled, ..job }, by).await
    }

    /// Deletes a job: it can no longer be triggered; its runs stay.
    ///
    /// # Errors
    /// There is none.
    pub async fn delete_job(&self, id: JobId, by: Option<String>) -> Result<(), Problem> {
        let job = self.job(id).await?;
        self.save(Job { is_deleted: true, ..job }, by).await.map(drop)
    }

    async fn save(&self, mut job: Job, by: Option<String>) -> Result<Job, Problem> {
        job.update_time = Timestamp::now();
        let write = self.house.store.write(UpdateJob { job: job.clone(), by });
        write.await.map_err(|error| conflict(error, &job))
    }

    /// Triggers a job.
    ///
    /// # Errors
    /// There is none, it is disabled, or it cannot be run as it stands.
    pub async fn trigger(&self, id: JobId, input: TriggerInput) -> Result<RunOutput, Problem> {
        if let Some(arguments) = &input.arguments {
            check_length("arguments", arguments, limits::VALUE)?;
        }
        let job = self.house.registry().open_job(id).wait().await?;
        let identity = job.trigger(input).wait().await?;
        self.run(identity).await
    }
}

fn read_cursor(text: &str) -> Result<(Timestamp, JobId), Problem> {
    let parts = text.split_once('-').and_then(|(ms, id)| Some((Timestamp(ms.parse().ok()?), id.parse().ok()?)));
    parts.ok_or_else(|| Problem::invalid("cursor", "not a cursor of this list"))
}
