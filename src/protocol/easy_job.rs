//! The dialect of seed 003: its requests and responses, and the mapping of its works and tasks.
//!
//! Member names are accepted in the spelling of its Java classes and of its tables (`beanName`, `bean_name`); flags are 0 and 1; ids are
//! 64-bit numbers, read as numbers or strings and written as strings.

use super::api::{JobInput, JobTypeInput, RunOutput};
use super::management::{GroupOutput, JobOutput, JobStatus, WorkerOutput};
use super::problem::Problem;
use super::worker::WorkerFacts;
pub use crate::domain::ids::Named;
use crate::domain::ids::{GroupId, JobId, Number, WorkerId};
use crate::domain::run::RunState;
use crate::domain::schedule::{Policies, Retry};
use crate::domain::task::{NoWorker, Strategy, TaskSettings};
use crate::domain::time::Timestamp;
use crate::domain::worker::{ADDRESS, MOST_ADDRESS, WorkerState};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use uuid::Uuid;

/// The default port of a work.
const PORT: u16 = 9_090;
/// Retries of a task with the retry flag; the seed gives no number.
const RETRIES: u32 = 3;

/// A flag: 0 or 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "FlagInput", into = "u8")]
pub struct Flag(pub bool);

#[derive(Deserialize)]
#[serde(untagged)]
enum FlagInput {
    Number(i64),
    Word(bool),
}

impl TryFrom<FlagInput> for Flag {
    type Error = &'static str;

    fn try_from(input: FlagInput) -> Result<Self, &'static str> {
        match input {
            FlagInput::Number(0) | FlagInput::Word(false) => Ok(Self(false)),
            FlagInput::Number(1) | FlagInput::Word(true) => Ok(Self(true)),
            FlagInput::Number(_) => Err("0 or 1 is expected"),
        }
    }
}

impl From<Flag> for u8 {
    fn from(flag: Flag) -> Self {
        Self::from(flag.0)
    }
}

impl JsonSchema for Flag {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EasyJobFlag".into()
    }

    fn json_schema(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let all = if schemas.contract().is_serialize() { serde_json::json!([0, 1]) } else { serde_json::json!([0, 1, false, true]) };
        schemars::json_schema!({ "enum": all })
    }
}

/// A group to create.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobGroupInput")]
pub struct GroupBody {
    /// Its name, unique here.
    #[serde(alias = "group_name", alias = "name")]
    pub group_name: Option<String>,
}

/// A group.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EasyJobGroup")]
pub struct Group {
    /// Its number.
    pub group_id: Number,
    /// Its name.
    pub group_name: String,
    /// Who created it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was created.
    pub create_at: Timestamp,
    /// When it was last changed.
    pub update_at: Timestamp,
}

impl From<GroupOutput> for Group {
    fn from(group: GroupOutput) -> Self {
        Self {
            group_id: group.number,
            group_name: group.name,
            create_by: group.create_by,
            update_by: group.update_by,
            create_at: group.creation_time,
            update_at: group.update_time,
        }
    }
}

/// A work that registers: the program on a machine that runs tasks.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobWorkInput")]
pub struct WorkBody {
    /// The id that it already has; otherwise its address identifies it.
    #[serde(alias = "work_id", alias = "workerId", alias = "worker_id")]
    pub work_id: Option<Named<WorkerId>>,
    /// Its IP address. The broker never calls it.
    pub ip: Option<String>,
    /// Its port, 9090 by default.
    pub port: Option<u16>,
    /// A name for people.
    pub name: Option<String>,
    /// The group whose tasks it gets, in addition to those without a group.
    #[serde(alias = "group_id")]
    pub group_id: Option<Named<GroupId>>,
    /// 1: it gets no tasks until it is enabled. Absent: the present setting stays.
    pub disable: Option<Flag>,
    /// Its beans: it counts as connected from now on, and fetches its tasks from `/api/v1/workers/{id}/messages`. Absent: it is only
    /// registered, and sends its beans later.
    #[serde(alias = "bean_names")]
    pub bean_names: Vec<String>,
}

impl WorkBody {
    /// Its facts, and the id that its address stands for: the same address again is the same work.
    ///
    /// # Errors
    /// A member is missing or not allowed.
    pub fn facts(&self, group: Option<String>) -> Result<(WorkerFacts, WorkerId), Problem> {
        let text = |field: &str, text: &Option<String>, most: usize| {
            let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty() && text.chars().count() <= most);
            text.map(str::to_owned).ok_or_else(|| Problem::invalid(field, format!("must be 1 to {most} characters")))
        };
        let address = format!("{}:{}", text("ip", &self.ip, MOST_ADDRESS)?.to_lowercase(), self.port.unwrap_or(PORT));
        let name = text("name", &self.name, crate::domain::job::limits::NAME)?;
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&Sha256::digest(format!("easy-job\n{address}"))[..16]);
        let facts = WorkerFacts { name: Some(name), group, tags: vec![format!("{ADDRESS}{address}")], ..WorkerFacts::default() };
        Ok((facts, WorkerId(Uuid::from_bytes(bytes))))
    }
}

/// A work.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EasyJobWork")]
pub struct Work {
    /// Its number.
    pub work_id: Number,
    /// The IP address that it reported.
    pub ip: Option<String>,
    /// The port that it reported.
    pub port: Option<u16>,
    /// A name for people.
    pub name: Option<String>,
    /// Its group.
    pub group_id: Option<Number>,
    /// 1: it gets no new tasks.
    pub disable: Flag,
    /// The beans that it reported.
    pub bean_names: Vec<String>,
    /// Who first registered it.
    pub create_by: Option<String>,
    /// Who last disabled or enabled it.
    pub update_by: Option<String>,
    /// When it was first registered.
    pub create_at: Timestamp,
    /// When it was last disabled or enabled.
    pub update_at: Timestamp,
}

impl Work {
    /// Converts a worker to a work of this group.
    #[must_use]
    pub fn of(worker: WorkerOutput, group_id: Option<Number>) -> Self {
        let record = worker.record;
        let address = record.tags.iter().find_map(|tag| tag.strip_prefix(ADDRESS)?.rsplit_once(':'));
        Self {
            work_id: worker.number,
            ip: address.map(|(ip, _)| ip.to_owned()),
            port: address.and_then(|(_, port)| port.parse().ok()),
            name: record.name,
            group_id,
            disable: Flag(record.state != WorkerState::Enabled),
            bean_names: record.class_names,
            create_by: record.create_by,
            update_by: record.by,
            create_at: record.creation_time,
            update_at: record.update_time,
        }
    }
}

/// A task to create.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobTaskInput")]
pub struct TaskBody {
    /// The bean that runs it.
    #[serde(alias = "bean_name")]
    pub bean_name: Option<String>,
    /// Its name, unique here.
    pub name: Option<String>,
    /// The group whose works may run it; absent: all.
    #[serde(alias = "group_id")]
    pub group_id: Option<Named<GroupId>>,
    /// 1: it does not run until it is enabled.
    pub disable: Option<Flag>,
    /// Milliseconds between two runs; 0 or absent: it runs once, now, and is disabled afterwards.
    pub interval: Option<u64>,
    /// 1: it is retried if it fails.
    pub retry: Option<Flag>,
}

impl TaskBody {
    /// Converts it to a job.
    ///
    /// # Errors
    /// A member is missing.
    pub fn input(self, group: Option<String>) -> Result<JobInput, Problem> {
        let missing = |field: &str| Problem::invalid(field, "it is required");
        let task = TaskSettings {
            handler: Some(self.bean_name.filter(|name| !name.is_empty()).ok_or_else(|| missing("beanName"))?),
            group: group.clone(),
            // The seed chooses at random, and assigns a task even before a work is connected.
            strategy: Strategy::Random,
            no_worker: NoWorker::Wait,
            ..TaskSettings::default()
        };
        let limit = if self.retry == Some(Flag(true)) { RETRIES } else { 0 };
        Ok(JobInput {
            name: Some(self.name.filter(|name| !name.trim().is_empty()).ok_or_else(|| missing("name"))?),
            job_type: Some(JobTypeInput::Name("task".to_owned())),
            interval: Some(self.interval.unwrap_or(0)),
            policies: Some(Policies { retry: Retry { limit, ..Retry::default() }, ..Policies::default() }),
            task: Some(task),
            group,
            is_enabled: self.disable.map(|disable| !disable.0),
            ..JobInput::default()
        })
    }
}

/// A task.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EasyJobTask")]
pub struct Task {
    /// Its number.
    pub task_id: Number,
    /// The bean that runs it.
    pub bean_name: String,
    /// Its name.
    pub name: String,
    /// Its group.
    pub group_id: Option<Number>,
    /// 1: it does not run.
    pub disable: Flag,
    /// Milliseconds between two runs; 0: once. Absent: it has another schedule, or none.
    pub interval: Option<u64>,
    /// 1: it is retried if it fails.
    pub retry: Flag,
    /// 0: it has no open run; 1: a run waits; 2: a run is in progress.
    pub status: u8,
    /// The work of its open run, or of its last run.
    pub work_id: Option<Number>,
    /// Who created it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was created.
    pub create_at: Timestamp,
    /// When it was last changed.
    pub update_at: Timestamp,
}

impl Task {
    /// Converts a job to a task of this group.
    #[must_use]
    pub fn of(output: JobOutput, group_id: Option<Number>) -> Self {
        let job = output.job;
        Self {
            task_id: output.number,
            bean_name: job.handler().unwrap_or_default().to_owned(),
            group_id,
            disable: Flag(!job.is_enabled),
            interval: job.schedule.as_ref().and_then(|schedule| schedule.triggers.iter().find_map(|trigger| trigger.every)),
            status: match output.activity.as_ref().map(|activity| activity.status) {
                None | Some(JobStatus::Idle) => 0,
                Some(JobStatus::Waiting) => 1,
                Some(JobStatus::Running) => 2,
            },
            work_id: output.activity.as_ref().and_then(|activity| activity.worker_id).map(WorkerId::number),
            retry: Flag(job.policies.as_ref().is_some_and(|policies| policies.retry.limit > 0)),
            name: job.name,
            create_by: job.create_by,
            update_by: job.update_by,
            create_at: job.creation_time,
            update_at: job.update_time,
        }
    }
}

/// One run of a task.
#[derive(Debug, Clone, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(rename = "EasyJobTaskLog")]
pub struct TaskLog {
    /// The number of the run.
    pub log_id: Number,
    /// The number of its task.
    pub task_id: Number,
    /// When it began.
    pub task_start_time: Option<Timestamp>,
    /// When it ended.
    pub task_end_time: Option<Timestamp>,
    /// Its state.
    pub task_status: RunState,
    /// The work that has it.
    pub task_work_id: Option<Number>,
    /// W3C trace id.
    pub trace_id: Option<String>,
}

impl From<RunOutput> for TaskLog {
    fn from(run: RunOutput) -> Self {
        Self {
            log_id: run.number,
            task_id: run.job_id.number(),
            task_start_time: run.start_time,
            task_end_time: run.finish_time,
            task_status: run.state,
            task_work_id: run.worker_id.map(WorkerId::number),
            trace_id: run.trace_id,
        }
    }
}

/// Selects a work, in the URL or in the body.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobWorkId")]
pub struct WorkRef {
    /// Its number or its id.
    #[serde(alias = "work_id", alias = "workerId", alias = "worker_id", alias = "id")]
    pub work_id: Option<Named<WorkerId>>,
}

/// Selects a task, in the URL or in the body.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobTaskId")]
pub struct TaskRef {
    /// Its number or its id.
    #[serde(alias = "task_id", alias = "id")]
    pub task_id: Option<Named<JobId>>,
}
