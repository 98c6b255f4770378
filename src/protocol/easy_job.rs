//! The dialect of seed 003: its bodies, its answers, and what its works and tasks are here.
//!
//! Names of members are read as its Java classes spell them and as its tables do (`beanName`, `bean_name`); flags are 0 and
//! 1; ids are numbers of 64 bits, read as numbers or texts and written as texts.

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

/// The port of a work that names none.
const PORT: u16 = 9_090;
/// Attempts after the first of a task that is to be repeated: the seed says only that it is.
const RETRIES: u32 = 3;

/// 0 or 1.
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

/// A group that is to be made.
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
    /// Who made it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was made.
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

/// A work that registers: the machine's program that carries tasks out.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobWorkInput")]
pub struct WorkBody {
    /// The id that it has already; else its address says which one it is.
    #[serde(alias = "work_id", alias = "workerId", alias = "worker_id")]
    pub work_id: Option<Named<WorkerId>>,
    /// Where it is. The broker never calls it there.
    pub ip: Option<String>,
    /// 9090 unless said.
    pub port: Option<u16>,
    /// For people.
    pub name: Option<String>,
    /// The group whose tasks it gets, besides those of no group.
    #[serde(alias = "group_id")]
    pub group_id: Option<Named<GroupId>>,
    /// 1: it gets nothing until it is enabled. Absent: what was said of it before stays.
    pub disable: Option<Flag>,
    /// The beans that it has: it is there from now on, and fetches its tasks as `/api/v1/workers/{id}/messages`. Absent: it
    /// is only known, and says later what it has.
    #[serde(alias = "bean_names")]
    pub bean_names: Vec<String>,
}

impl WorkBody {
    /// What it says of itself, and the id that its address stands for: the same address again is the same work.
    ///
    /// # Errors
    /// Something is missing or not allowed.
    pub fn facts(&self, group: Option<String>) -> Result<(WorkerFacts, WorkerId), Problem> {
        let text = |field: &str, text: &Option<String>, most: usize| {
            let text = text.as_deref().map(str::trim).filter(|text| !text.is_empty() && text.chars().count() <= most);
            text.map(str::to_owned).ok_or_else(|| Problem::invalid(field, format!("1 to {most} characters are expected")))
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
    /// Where it said it is.
    pub ip: Option<String>,
    /// …
    pub port: Option<u16>,
    /// For people.
    pub name: Option<String>,
    /// The group that it belongs to.
    pub group_id: Option<Number>,
    /// 1: it gets nothing new.
    pub disable: Flag,
    /// The beans that it said it has.
    pub bean_names: Vec<String>,
    /// Who registered it first.
    pub create_by: Option<String>,
    /// Who disabled or enabled it last.
    pub update_by: Option<String>,
    /// When it was registered first.
    pub create_at: Timestamp,
    /// When it was disabled or enabled last.
    pub update_at: Timestamp,
}

impl Work {
    /// A worker as a work of this group.
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

/// A task that is to be made.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobTaskInput")]
pub struct TaskBody {
    /// The bean that carries it out.
    #[serde(alias = "bean_name")]
    pub bean_name: Option<String>,
    /// Its name, unique here.
    pub name: Option<String>,
    /// The group whose works it is for; absent: all.
    #[serde(alias = "group_id")]
    pub group_id: Option<Named<GroupId>>,
    /// 1: it runs only when it is enabled.
    pub disable: Option<Flag>,
    /// Milliseconds between two runs; 0 or absent: it runs once, now, and is disabled after that.
    pub interval: Option<u64>,
    /// 1: it is tried again if it fails.
    pub retry: Option<Flag>,
}

impl TaskBody {
    /// The job that it is here.
    ///
    /// # Errors
    /// Something is missing.
    pub fn input(self, group: Option<String>) -> Result<JobInput, Problem> {
        let missing = |field: &str| Problem::invalid(field, "it is required");
        let task = TaskSettings {
            handler: Some(self.bean_name.filter(|name| !name.is_empty()).ok_or_else(|| missing("beanName"))?),
            group: group.clone(),
            // As the seed chooses; and it has given a task to a work before that is there.
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
    /// The bean that carries it out.
    pub bean_name: String,
    /// Its name.
    pub name: String,
    /// Its group.
    pub group_id: Option<Number>,
    /// 1: it does not run.
    pub disable: Flag,
    /// Milliseconds between two runs; 0: once. Absent: it has another plan, or none.
    pub interval: Option<u64>,
    /// 1: it is tried again if it fails.
    pub retry: Flag,
    /// 0: no run of it is open; 1: one waits; 2: one is carried out.
    pub status: u8,
    /// The work that has its run, or had the last one.
    pub work_id: Option<Number>,
    /// Who made it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was made.
    pub create_at: Timestamp,
    /// When it was last changed.
    pub update_at: Timestamp,
}

impl Task {
    /// A job as a task of this group.
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
    /// Where it is.
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

/// Which work is meant: in the address or in the body.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobWorkId")]
pub struct WorkRef {
    /// Its number or its id.
    #[serde(alias = "work_id", alias = "workerId", alias = "worker_id", alias = "id")]
    pub work_id: Option<Named<WorkerId>>,
}

/// Which task is meant: in the address or in the body.
#[derive(Debug, Clone, Default, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
#[schemars(rename = "EasyJobTaskId")]
pub struct TaskRef {
    /// Its number or its id.
    #[serde(alias = "task_id", alias = "id")]
    pub task_id: Option<Named<JobId>>,
}
