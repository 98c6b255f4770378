//! Builds the API's job from flags.

use super::task_flags::TaskFlags;
use crate::cli::failure::Failure;
use crate::cli::package::address_of;
use crate::cli::remote::Shell;
use crate::cli::value::{When, document, duration_ms, header, property, text_or_file, zone};
use crate::cli::words::words;
use crate::domain::cron::Dialect;
use crate::domain::job::{JobKind, same_key};
use crate::domain::schedule::{MisfirePolicy, Overlap};
use crate::domain::zone::{FoldRule, GapRule};
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Flags that set the schedule of a job.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "When it runs")]
pub struct ScheduleFlags {
    /// A cron expression of 5 fields, 6 (seconds first) or 7 (years last), or @daily and similar; may be repeated
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    cron: Vec<String>,
    /// An interval: 500ms, 30s, 5m, 2h, 1d; 0: once, then the job is disabled. May be repeated
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    every: Vec<u64>,
    /// Count the intervals from the end of the last run, not from the time of creation
    #[arg(long, requires = "every")]
    after_end: bool,
    /// One time: RFC 3339, a date (its midnight in --zone), or +2h from now; may be repeated
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    at: Vec<When>,
    /// The time zone of cron, by its IANA name [default: UTC]
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    zone: Option<String>,
    /// How weekdays are numbered
    #[arg(long, value_parser = words::<Dialect>())]
    dialect: Option<String>,
    /// The rule for a local time that does not exist in the zone
    #[arg(long, value_parser = words::<GapRule>())]
    gap: Option<String>,
    /// The rule for a local time that occurs twice
    #[arg(long, value_parser = words::<FoldRule>())]
    fold: Option<String>,
    /// No fires before this time
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    start_at: Option<When>,
    /// No fires after this time
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    end_at: Option<When>,
    /// Maximum number of scheduled runs
    #[arg(long, value_name = "N")]
    max_fires: Option<u64>,
    /// Run at the latest this long after the last run, whatever a run requested
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    longest_silence: Option<u64>,
}

impl ScheduleFlags {
    /// Applies the flags to a schedule. Triggers replace all existing triggers.
    pub fn apply(&self, schedule: &mut Map<String, Value>) {
        let mut triggers: Vec<Value> = self.cron.iter().map(|cron| json!({ "cron": cron })).collect();
        let every = |ms: &u64| if self.after_end { json!({ "every": ms, "afterEnd": true }) } else { json!({ "every": ms }) };
        triggers.extend(self.every.iter().map(every));
        put(schedule, "zone", self.zone.as_ref());
        let zone = schedule.get("zone").and_then(Value::as_str).map(str::to_owned);
        // A date was checked before, and midnight is in the valid range for all dates with four-digit years.
        let at = |when: &When| when.at(zone.as_deref()).map_or_else(|_| Value::Null, |at| json!(at));
        triggers.extend(self.at.iter().map(|when| json!({ "at": at(when) })));
        if !triggers.is_empty() {
            schedule.insert("triggers".to_owned(), triggers.into());
        }
        put(schedule, "dialect", self.dialect.as_ref());
        put(schedule, "gap", self.gap.as_ref());
        put(schedule, "fold", self.fold.as_ref());
        put(schedule, "startAt", self.start_at.as_ref().map(at).as_ref());
        put(schedule, "endAt", self.end_at.as_ref().map(at).as_ref());
        put(schedule, "maxFires", self.max_fires.as_ref());
        put(schedule, "longestSilence", self.longest_silence.as_ref());
    }
}

/// Flags that set what an application job runs, and where.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The program of an application job")]
pub struct ProgramFlags {
    /// A program of the nodes with its arguments, as one line; it is not passed to a shell. Makes it an application job without a package
    #[arg(long, value_name = "LINE", conflicts_with_all = ["application", "package", "arguments", "class", "handler", "url"])]
    command: Option<String>,
    /// The source of the program: http://…, https://…, what `webloom package push` prints, or a local zip or tar.gz, which is uploaded to
    /// the broker
    #[arg(long, value_name = "URL|FILE")]
    package: Option<String>,
    /// The program: a path in the package, or the name of a program on the nodes; makes it an application job
    #[arg(long, value_name = "PROGRAM", conflicts_with_all = ["class", "handler", "url"])]
    application: Option<String>,
    /// How many nodes run it [default: 1]
    #[arg(long, value_name = "N")]
    node_count: Option<u32>,
    /// Only nodes of this group
    #[arg(long, value_name = "GROUP")]
    node_group: Option<String>,
    /// Only nodes whose operating system contains this
    #[arg(long)]
    os: Option<String>,
}

impl ProgramFlags {
    fn apply(&self, properties: &mut Map<String, Value>) {
        put(properties, "Package", self.package.as_ref());
        put(properties, "Application", self.application.as_ref());
        put(properties, "NodeCount", self.node_count.map(|count| count.to_string()).as_ref());
        put(properties, "NodeGroup", self.node_group.as_ref());
        put(properties, "Os", self.os.as_ref());
    }
}

/// Flags that set the properties of a job, for `job create` and `job update`.
#[derive(Debug, Default, ClapArgs)]
pub struct JobFlags {
    /// A file with the job as YAML or JSON, in the API's format; `-`: standard input. Flags take precedence
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// The name: at most 50 characters, unique
    #[arg(long)]
    name: Option<String>,
    /// The kind of work; for a new job it follows from the flags, and is block by default
    #[arg(long, value_parser = words::<JobKind>())]
    kind: Option<String>,
    /// The class of a block job, which its workers watch
    #[arg(long)]
    class: Option<String>,
    /// Arguments for its worker
    #[arg(long, allow_hyphen_values = true)]
    arguments: Option<String>,
    /// A text for people
    #[arg(long)]
    description: Option<String>,
    /// The group of the job; it is created if it does not exist
    #[arg(long)]
    group: Option<String>,
    /// Jobs with a higher priority go first
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Any other property: ThreadNum=4. May be repeated; an empty value removes a property
    #[arg(long = "property", short, value_name = "KEY=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// Do not run the job until it is enabled
    #[arg(long)]
    disabled: bool,

    #[command(flatten)]
    schedule: ScheduleFlags,

    #[command(flatten)]
    task: TaskFlags,

    /// The rule for a fire while another run of the job is open
    #[arg(long, value_parser = words::<Overlap>(), help_heading = "What becomes of it")]
    overlap: Option<String>,
    /// The rule for scheduled times that passed while no broker ran
    #[arg(long, value_parser = words::<MisfirePolicy>(), help_heading = "What becomes of it")]
    misfire: Option<String>,
    /// Older fires are missed, whatever --misfire is
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    misfire_window: Option<u64>,
    /// Retries after the first attempt
    #[arg(long, value_name = "N", help_heading = "What becomes of it")]
    retry: Option<u32>,
    /// The delay before the second attempt; it doubles with each
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    retry_delay: Option<u64>,
    /// A longer attempt is ended as failed
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    timeout: Option<u64>,
    /// Disable the job after this many consecutive failures
    #[arg(long, value_name = "N", help_heading = "What becomes of it")]
    max_failures: Option<u32>,
    /// Send an alert for a run that begins later than this
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    late_after: Option<u64>,
    /// Send an alert after this long without a successful run
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    silent_after: Option<u64>,

    #[command(flatten)]
    program: ProgramFlags,

    /// The URL to call; makes it a callback job
    #[arg(long, help_heading = "The request of a callback job")]
    url: Option<String>,
    /// The HTTP method [default: POST if there is a body, else GET]
    #[arg(long, help_heading = "The request of a callback job")]
    method: Option<String>,
    /// A header, as `Name: value`; may be repeated
    #[arg(long = "header", short = 'H', value_name = "HEADER", value_parser = header, help_heading = "The request of a callback job")]
    headers: Vec<(String, String)>,
    /// The body; @FILE reads it from a file
    #[arg(long, help_heading = "The request of a callback job")]
    body: Option<String>,
    /// A status that counts as success [default: 200 to 299]; may be repeated
    #[arg(long, value_name = "STATUS", help_heading = "The request of a callback job")]
    expect: Vec<u16>,
    /// The key that signs each request; @FILE reads it from a file
    #[arg(long, help_heading = "The request of a callback job")]
    secret: Option<String>,
}

impl JobFlags {
    /// Applies the file and the flags to the job; everything else stays unchanged.
    ///
    /// # Errors
    /// A file cannot be read.
    pub fn input(&self, job: &Value) -> Result<Value, Failure> {
        let mut input = match document(self.file.as_ref())? {
            Some(Value::Object(input)) => input,
            _ => Map::new(),
        };
        put(&mut input, "name", self.name.as_ref());
        put(&mut input, "jobType", self.kind.clone().or(self.kind_by_flags()).as_ref());
        put(&mut input, "command", self.program.command.as_ref());
        put(&mut input, "description", self.description.as_ref());
        put(&mut input, "group", self.group.as_ref());
        put(&mut input, "priority", self.priority.as_ref());
        if self.disabled {
            input.insert("isEnabled".to_owned(), false.into());
        }
        let kind = input.get("jobType").or_else(|| job.get("jobType")).and_then(Value::as_str);
        let is_block = kind.unwrap_or(JobKind::Block.name()) == JobKind::Block.name();
        part(&mut input, job, "properties", |properties| {
            put(properties, "FullClassName", self.class.as_ref());
            put(properties, "Arguments", self.arguments.as_ref());
            self.program.apply(properties);
            if is_block {
                self.task.apply_to_block(properties);
            }
            for (key, value) in &self.properties {
                // The job may have it in another spelling.
                properties.retain(|known, _| !same_key(known, key));
                if !value.is_empty() {
                    properties.insert(key.clone(), value.as_str().into());
                }
            }
        });
        part(&mut input, job, "schedule", |schedule| self.schedule.apply(schedule));
        part(&mut input, job, "policies", |policies| self.policies(policies));
        part(&mut input, job, "task", |task| self.task.apply(task, is_block));
        let body = self.body.as_deref().map(text_or_file).transpose()?;
        let secret = self.secret.as_deref().map(text_or_file).transpose()?;
        part(&mut input, job, "callback", |callback| {
            put(callback, "url", self.url.as_ref());
            put(callback, "method", self.method.as_ref());
            put(callback, "body", body.as_ref());
            put(callback, "secret", secret.as_deref().map(str::trim_end).as_ref());
            if !self.headers.is_empty() {
                let headers = callback.entry("headers").or_insert_with(|| json!({}));
                for (name, value) in &self.headers {
                    headers[name] = value.as_str().into();
                }
            }
            if !self.expect.is_empty() {
                callback.insert("expect".to_owned(), json!(self.expect));
            }
        });
        Ok(Value::Object(input))
    }

    /// Uploads a package that is a local file to the broker, and replaces it with its address there.
    ///
    /// # Errors
    /// It is not a package, or the broker rejects it.
    pub async fn settle_package(&mut self, shell: &Shell, is_dry: bool) -> Result<(), Failure> {
        if let Some(package) = &mut self.program.package {
            *package = address_of(shell, package, is_dry).await?;
        }
        Ok(())
    }

    /// The kind that some flags imply.
    fn kind_by_flags(&self) -> Option<String> {
        let program = self.program.application.as_ref().or(self.program.command.as_ref()).map(|_| "application");
        let task = self.task.handler.as_ref().map(|_| "task");
        program.or(task).or(self.url.as_ref().map(|_| "callback")).map(str::to_owned)
    }

    fn policies(&self, policies: &mut Map<String, Value>) {
        put(policies, "overlap", self.overlap.as_ref());
        put(policies, "timeout", self.timeout.as_ref());
        put(policies, "maxFailures", self.max_failures.as_ref());
        put(policies, "lateAfter", self.late_after.as_ref());
        put(policies, "silentAfter", self.silent_after.as_ref());
        inner(policies, "misfire", |misfire| {
            put(misfire, "policy", self.misfire.as_ref());
            put(misfire, "window", self.misfire_window.as_ref());
        });
        inner(policies, "retry", |retry| {
            put(retry, "limit", self.retry.as_ref());
            put(retry, "delay", self.retry_delay.as_ref());
        });
    }
}

fn put<T: serde::Serialize>(map: &mut Map<String, Value>, key: &str, value: Option<&T>) {
    if let Some(value) = value {
        map.insert(key.to_owned(), json!(value));
    }
}

/// A part of the input. It begins with the file's value, or else with the job's; it is omitted if no flag changes it.
fn part(input: &mut Map<String, Value>, job: &Value, key: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let before = input.get(key).or_else(|| job.get(key)).and_then(Value::as_object).cloned().unwrap_or_default();
    let mut after = before.clone();
    change(&mut after);
    if after != before {
        input.insert(key.to_owned(), Value::Object(after));
    }
}

fn inner(map: &mut Map<String, Value>, key: &str, change: impl FnOnce(&mut Map<String, Value>)) {
    let mut value = map.get(key).and_then(Value::as_object).cloned().unwrap_or_default();
    change(&mut value);
    if !value.is_empty() {
        map.insert(key.to_owned(), Value::Object(value));
    }
}

#[cfg(test)]
mod tests;
