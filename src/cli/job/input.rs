//! From flags to a job as the API takes it.

use super::task_flags::TaskFlags;
use crate::cli::failure::Failure;
use crate::cli::package::address_of;
use crate::cli::remote::Shell;
use crate::cli::value::{When, document, duration_ms, header, property, text_or_file, zone};
use crate::cli::words::words;
use crate::domain::cron::Dialect;
use crate::domain::job::JobKind;
use crate::domain::schedule::{MisfirePolicy, Overlap};
use crate::domain::zone::{FoldRule, GapRule};
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};
use std::path::PathBuf;

/// Flags that say when a job runs.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "When it runs")]
pub struct ScheduleFlags {
    /// A cron expression of 5 fields, 6 (seconds first) or 7 (years last), or @daily and its like; may be repeated
    #[arg(long, value_name = "EXPRESSION", allow_hyphen_values = true)]
    cron: Vec<String>,
    /// An interval: 500ms, 30s, 5m, 2h, 1d; 0: once, then the job is disabled. May be repeated
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    every: Vec<u64>,
    /// The intervals count from the end of the last run, not from the time of creation
    #[arg(long, requires = "every")]
    after_end: bool,
    /// One instant: RFC 3339, a date (its midnight in --zone), or +2h from now; may be repeated
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    at: Vec<When>,
    /// The IANA name of the time zone that cron is meant in [default: UTC]
    #[arg(long, value_name = "ZONE", value_parser = zone)]
    zone: Option<String>,
    /// How weekdays are counted
    #[arg(long, value_parser = words::<Dialect>())]
    dialect: Option<String>,
    /// What becomes of a local time that the zone leaves out
    #[arg(long, value_parser = words::<GapRule>())]
    gap: Option<String>,
    /// What becomes of a local time that comes twice
    #[arg(long, value_parser = words::<FoldRule>())]
    fold: Option<String>,
    /// Nothing before this instant
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    start_at: Option<When>,
    /// Nothing after this instant
    #[arg(long, value_name = "INSTANT", allow_hyphen_values = true)]
    end_at: Option<When>,
    /// No more runs than this by plan
    #[arg(long, value_name = "N")]
    max_fires: Option<u64>,
    /// It runs at the latest so long after its last run, whatever a run asked for
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    longest_silence: Option<u64>,
}

impl ScheduleFlags {
    /// Puts what the flags say into a schedule. Triggers replace all triggers that were there.
    pub fn apply(&self, schedule: &mut Map<String, Value>) {
        let mut triggers: Vec<Value> = self.cron.iter().map(|cron| json!({ "cron": cron })).collect();
        let every = |ms: &u64| if self.after_end { json!({ "every": ms, "afterEnd": true }) } else { json!({ "every": ms }) };
        triggers.extend(self.every.iter().map(every));
        put(schedule, "zone", self.zone.as_ref());
        let zone = schedule.get("zone").and_then(Value::as_str).map(str::to_owned);
        // A date is checked before, and midnight is within the range of all dates that are written in four digits.
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

/// Flags that say what an application job runs, and where.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The program of an application job")]
pub struct ProgramFlags {
    /// A program of the nodes with its arguments, as one line; no shell reads it. Makes it an application job without a package
    #[arg(long, value_name = "LINE", conflicts_with_all = ["application", "package", "arguments", "class", "handler", "url"])]
    command: Option<String>,
    /// Where it comes from: http://…, https://…, what `webloom package push` prints, or a zip or tar.gz here: it is handed to the broker
    #[arg(long, value_name = "URL|FILE")]
    package: Option<String>,
    /// The program: a path in the package, or the name of one that is on the nodes; makes it an application job
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

/// Flags that say what a job is, of `job create` and `job update`.
#[derive(Debug, Default, ClapArgs)]
pub struct JobFlags {
    /// A file with the job as YAML or JSON, as the API takes it; `-`: standard input. Flags go before it
    #[arg(long, short, value_name = "FILE")]
    file: Option<PathBuf>,
    /// At most 50 characters, unique
    #[arg(long)]
    name: Option<String>,
    /// What kind of work it is; of a new job it follows from the flags, and is block if none says otherwise
    #[arg(long, value_parser = words::<JobKind>())]
    kind: Option<String>,
    /// The class whose worker carries out a block job
    #[arg(long)]
    class: Option<String>,
    /// What its worker is told
    #[arg(long, allow_hyphen_values = true)]
    arguments: Option<String>,
    /// For people
    #[arg(long)]
    description: Option<String>,
    /// The group that it belongs to; it is made if there is none of that name
    #[arg(long)]
    group: Option<String>,
    /// Higher goes first
    #[arg(long, allow_hyphen_values = true)]
    priority: Option<i32>,
    /// Anything else: ThreadNum=4. May be repeated; an empty value takes a property away
    #[arg(long = "property", short, value_name = "KEY=VALUE", value_parser = property)]
    properties: Vec<(String, String)>,
    /// It does not run until it is enabled
    #[arg(long)]
    disabled: bool,

    #[command(flatten)]
    schedule: ScheduleFlags,

    #[command(flatten)]
    task: TaskFlags,

    /// A fire that finds another run of the job not over
    #[arg(long, value_parser = words::<Overlap>(), help_heading = "What becomes of it")]
    overlap: Option<String>,
    /// Planned instants that passed while nobody looked
    #[arg(long, value_parser = words::<MisfirePolicy>(), help_heading = "What becomes of it")]
    misfire: Option<String>,
    /// What is older is missed, whatever --misfire says
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    misfire_window: Option<u64>,
    /// Attempts after the first
    #[arg(long, value_name = "N", help_heading = "What becomes of it")]
    retry: Option<u32>,
    /// The time before the second attempt; it doubles with each
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    retry_delay: Option<u64>,
    /// An attempt that takes longer is ended as failed
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    timeout: Option<u64>,
    /// After so many failures in a row the job is disabled
    #[arg(long, value_name = "N", help_heading = "What becomes of it")]
    max_failures: Option<u32>,
    /// A run that begins later than this is worth an alert
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    late_after: Option<u64>,
    /// So long without a run that ended well is worth an alert
    #[arg(long, value_name = "DURATION", value_parser = duration_ms, help_heading = "What becomes of it")]
    silent_after: Option<u64>,

    #[command(flatten)]
    program: ProgramFlags,

    /// The address that is called; makes it a callback job
    #[arg(long, help_heading = "The request of a callback job")]
    url: Option<String>,
    /// The method [default: POST if there is a body, else GET]
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
    /// Each request is signed with it; @FILE reads it from a file
    #[arg(long, help_heading = "The request of a callback job")]
    secret: Option<String>,
}

impl JobFlags {
    /// What the file and the flags say, put over the job as it is: what they do not say stays.
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
        part(&mut input, job, "properties", |properties| {
            put(properties, "FullClassName", self.class.as_ref());
            put(properties, "Arguments", self.arguments.as_ref());
            self.program.apply(properties);
            for (key, value) in &self.properties {
                if value.is_empty() {
                    properties.remove(key);
                } else {
                    properties.insert(key.clone(), value.as_str().into());
                }
            }
        });
        part(&mut input, job, "schedule", |schedule| self.schedule.apply(schedule));
        part(&mut input, job, "policies", |policies| self.policies(policies));
        part(&mut input, job, "task", |task| self.task.apply(task));
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

    /// Hands a package that is a file here to the broker, and goes on with its address there.
    ///
    /// # Errors
    /// It is no package, or the broker refuses it.
    pub async fn settle_package(&mut self, shell: &Shell, is_dry: bool) -> Result<(), Failure> {
        if let Some(package) = &mut self.program.package {
            *package = address_of(shell, package, is_dry).await?;
        }
        Ok(())
    }

    /// The kind that some flags mean by themselves.
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

/// A part of the input, which begins as the file has it, or else as the job has it; left out if the flags do not touch it.
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
