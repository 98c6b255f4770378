//! Runs: one execution of a job each.

#[cfg(feature = "broker")]
use super::ids::{BrokerId, Identity, JobId, Seq, WorkerId};
#[cfg(feature = "broker")]
use super::job::JobKind;
#[cfg(feature = "broker")]
use super::schedule::SMALL_STEP_MS;
#[cfg(feature = "broker")]
use super::settings::{DownloadSettings, QueueSettings};
#[cfg(feature = "broker")]
use super::time::Timestamp;
use serde::{Deserialize, Serialize};
#[cfg(feature = "broker")]
use std::sync::Arc;

/// The name that stands for the broker where otherwise a person or token is named.
#[cfg(feature = "broker")]
pub const BROKER: &str = "broker";

/// State of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Created; no worker was ordered to start it.
    Pending,
    /// A worker was ordered to start it.
    Scheduled,
    /// It works.
    Running,
    /// It failed; `reason` has the cause.
    Failed,
    /// It ended successfully.
    Success,
    /// A person or the broker stopped it.
    Stopped,
}

/// What a run that has not begun waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum WaitsFor {
    /// The other runs of its job must be over.
    Queue,
    /// Its scheduled time.
    Schedule,
    /// The time of its next attempt, after a failed one.
    Retry,
    /// A worker.
    Worker,
    /// A node.
    Node,
}

impl RunState {
    const ALL: [Self; 6] = [Self::Pending, Self::Scheduled, Self::Running, Self::Failed, Self::Success, Self::Stopped];

    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Scheduled => "scheduled",
            Self::Running => "running",
            Self::Failed => "failed",
            Self::Success => "success",
            Self::Stopped => "stopped",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it is over.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Success | Self::Stopped)
    }
}

/// Requests of a run by result. `left = total - success - error` always holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Not yet downloaded.
    pub left: u64,
    /// Downloaded completely with a status below 400.
    pub success: u64,
    /// Answered with a status of 400 or above, or not answered.
    pub error: u64,
    /// Accepted by the run.
    pub total: u64,
}

/// Settings that a run copies from its job at creation, so that changes to the job do not affect it; and later decisions of
/// an operator about this run alone.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRules {
    /// Time limit of an attempt in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// How it is retried.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<super::schedule::Retry>,
    /// Milliseconds after its scheduled time after which there is an alert if it has not begun.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_after: Option<u64>,
    /// The request of a callback.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub callback: Option<super::callback::Callback>,
    /// Who triggered it by hand.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The task of a task job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task: Option<Arc<super::task::TaskSettings>>,
    /// The program of an application job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<Arc<super::application::ApplicationSettings>>,
    /// Data that the last run of the job stored for this one: JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Arc<str>>,
    /// The run whose end started this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Identity>,
    /// The span of the caller (W3C Trace Context) that triggered it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parent_span: Option<super::trace::SpanId>,
    /// Since when an operator has paused the dispatch of blocks (block runs only).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
    /// Its first requests are failed requests of the run that it repeats: the first and the last of their blocks in that run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub requeues: Option<(Seq, Seq)>,
}

#[cfg(feature = "broker")]
impl RunRules {
    /// Milliseconds before the next attempt, if there is one after this; `chance` is between 0 and 1.
    #[must_use]
    pub fn next_attempt(&self, attempt: u32, chance: f64) -> Option<i64> {
        let retry = self.retry.as_ref().filter(|retry| attempt <= retry.limit)?;
        Some(retry.delay_before(attempt + 1, chance))
    }
}

/// The longest pause after a lost attempt, in milliseconds.
pub const LONGEST_LOST_PAUSE_MS: i64 = 32_000;

/// How long a run waits that is not queued behind others.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Nothing.
    None,
    /// This many milliseconds.
    For(u64),
    /// Longer than any allowed pause: the clock was set back after the decision. The time may already have passed before that.
    FromLater,
}

/// A run as it is stored.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub identity: Identity,
    /// A small number that represents the run in the keys of its blocks.
    pub no: i64,
    /// Its job.
    pub job_id: JobId,
    /// The job's name when the run began.
    pub job_name: String,
    /// The class whose worker runs it.
    pub class_name: String,
    /// Arguments for the worker.
    pub arguments: Option<String>,
    /// Its state.
    pub state: RunState,
    /// The reason for the state, if there is one.
    pub reason: Option<String>,
    /// A higher value runs first.
    pub priority: i32,
    /// Settings for the nodes.
    pub download: DownloadSettings,
    /// Settings of its queue.
    pub queue: QueueSettings,
    /// The worker has pushed its first requests and reported that.
    pub start_returned: bool,
    /// Dispatched blocks; with fewer of them the run is served earlier among runs of its priority.
    pub block_times: i64,
    /// Counters at its end; while it runs its actor has the current ones.
    pub counters: Counters,
    /// What kind of work it is.
    pub kind: JobKind,
    /// Settings copied from its job.
    pub rules: RunRules,
    /// The number of its attempt, from 1.
    pub attempt: u32,
    /// Earliest start of the next attempt.
    pub not_before: Option<Timestamp>,
    /// It waits until the other runs of its job are over.
    pub queued: bool,
    /// Its result as JSON.
    pub result: Option<String>,
    /// The effect of its end on its job is not yet applied.
    pub follow: bool,
    /// The run that it retries.
    pub retry_of: Option<Identity>,
    /// W3C trace id: 32 hexadecimal digits.
    pub trace_id: Option<String>,
    /// Its scheduled time.
    pub planned_at: Option<Timestamp>,
    /// When its first attempt began.
    pub start_time: Option<Timestamp>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
    /// Who stopped it: the role of a token, or [`BROKER`].
    pub update_by: Option<String>,
    /// The worker that runs it or ran its last attempt; `None` for programs, callbacks and runs on several workers.
    pub worker_id: Option<WorkerId>,
    /// The broker that executes it; `None`: the leader. A new run keeps it only if that broker has the right to write runs.
    pub owner: Option<BrokerId>,
}

#[cfg(feature = "broker")]
impl Run {
    /// The epoch of a new run; each adoption increments it.
    pub const FIRST_EPOCH: i64 = 1;

    /// Its arguments as a trigger gives them: JSON for a task, text for other kinds.
    #[must_use]
    pub fn arguments_value(&self) -> Option<serde_json::Value> {
        let text = self.arguments.as_deref()?;
        match self.kind {
            JobKind::Task => serde_json::from_str(text).ok(),
            _ => Some(text.into()),
        }
    }

    /// A run that is created now and may begin at once, with default settings. It has no number before it is stored.
    #[must_use]
    pub fn new(job_id: JobId, kind: JobKind, now: Timestamp) -> Self {
        let identity = Identity::at(now);
        Self {
            identity,
            no: 0,
            job_id,
            job_name: String::new(),
            class_name: String::new(),
            arguments: None,
            state: RunState::Pending,
            reason: None,
            priority: 0,
            download: DownloadSettings::default(),
            queue: QueueSettings::default(),
            start_returned: false,
            block_times: 0,
            counters: Counters::default(),
            kind,
            rules: RunRules::default(),
            attempt: 1,
            not_before: None,
            queued: false,
            result: None,
            follow: false,
            retry_of: None,
            // Its own trace: both ids have 128 bits and are never 0.
            trace_id: Some(identity.to_string()),
            planned_at: None,
            start_time: None,
            creation_time: now,
            finish_time: None,
            update_by: None,
            worker_id: None,
            owner: None,
        }
    }

    /// It has a scheduled time and a limit for a late start, so it can cause a `late` alert.
    #[must_use]
    pub fn may_be_late(&self) -> bool {
        self.planned_at.is_some() && self.rules.late_after.is_some()
    }

    /// Who created it: the role of the token that triggered it by hand, `workflow` if the end of another run did, `scheduler` if its plan
    /// or an external scheduler did; `None`: a caller without a token.
    #[must_use]
    pub fn create_by(&self) -> Option<&str> {
        match (&self.rules.by, self.rules.after, self.planned_at) {
            (Some(by), ..) => Some(by),
            (None, Some(_), _) => Some("workflow"),
            (None, None, Some(_)) => Some("scheduler"),
            (None, None, None) => None,
        }
    }

    /// When its row last changed, according to its timestamps.
    #[must_use]
    pub fn last_change(&self) -> Timestamp {
        let times = [self.start_time, self.finish_time];
        times.into_iter().flatten().fold(self.creation_time, Timestamp::max)
    }

    /// Since when an operator has paused the dispatch of blocks.
    #[must_use]
    pub fn paused_at(&self) -> Option<Timestamp> {
        self.rules.paused_at.filter(|_| !self.state.is_final())
    }

    /// What it waits for; `None` if it has begun, or begins at once.
    #[must_use]
    pub fn waits_for(&self, now: Timestamp) -> Option<WaitsFor> {
        if self.state != RunState::Pending {
            return None;
        }
        Some(match (self.queued, self.not_before.filter(|at| *at > now), self.kind) {
            (true, ..) => WaitsFor::Queue,
            (_, Some(_), _) if self.is_ahead() => WaitsFor::Schedule,
            (_, Some(_), _) => WaitsFor::Retry,
            (_, None, JobKind::Block | JobKind::Task) => WaitsFor::Worker,
            (_, None, JobKind::Application) => WaitsFor::Node,
            (_, None, JobKind::Callback) => return None,
        })
    }

    /// It was created ahead of its scheduled time.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        Self::waits_for_plan(self.attempt, self.planned_at, self.not_before)
    }

    /// Whether a run in this attempt waits for its scheduled time.
    #[must_use]
    pub fn waits_for_plan(attempt: u32, planned_at: Option<Timestamp>, not_before: Option<Timestamp>) -> bool {
        attempt == 1 && planned_at.is_some() && not_before == planned_at
    }

    /// How long it still waits, for its scheduled time or for its next attempt.
    #[must_use]
    pub fn pause(&self, now: Timestamp) -> Pause {
        let ms = self.not_before.map_or(0, |at| at.since_ms(now));
        let retries = self.rules.retry.as_ref().map_or(0, |retry| retry.max_delay.saturating_mul(2));
        let most = if self.is_ahead() { SMALL_STEP_MS } else { (retries as i64).max(LONGEST_LOST_PAUSE_MS) };
        match u64::try_from(ms) {
            Ok(0) | Err(_) => Pause::None,
            Ok(_) if ms > most => Pause::FromLater,
            Ok(ms) => Pause::For(ms),
        }
    }

    /// When it should have begun: its scheduled time, or its creation time if that is later.
    #[must_use]
    pub fn wanted_at(&self) -> Timestamp {
        self.planned_at.map_or(self.creation_time, |planned| planned.max(self.creation_time))
    }
}

#[cfg(all(test, feature = "broker"))]
impl Run {
    /// A run of this kind that was created now, for tests.
    pub(crate) fn sample(kind: JobKind, now: Timestamp) -> Self {
        Self { no: 1, job_name: "a job".to_owned(), ..Self::new(JobId::random(), kind, now) }
    }
}
