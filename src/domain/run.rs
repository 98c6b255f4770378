//! Runs: one execution of a job each.

#[cfg(feature = "broker")]
use super::ids::{Identity, JobId, WorkerId};
#[cfg(feature = "broker")]
use super::job::JobKind;
#[cfg(feature = "broker")]
use super::schedule::AHEAD_MS;
#[cfg(feature = "broker")]
use super::settings::{DownloadSettings, QueueSettings};
#[cfg(feature = "broker")]
use super::time::Timestamp;
use serde::{Deserialize, Serialize};
#[cfg(feature = "broker")]
use std::sync::Arc;

/// The name under which the broker itself stands where somebody else's would.
#[cfg(feature = "broker")]
pub const BROKER: &str = "broker";

/// Where a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum RunState {
    /// Made, and nothing of it begun: no worker has been told.
    Pending,
    /// A worker has been told to start it.
    Scheduled,
    /// It works.
    Running,
    /// It ended, and not well; the reason is said.
    Failed,
    /// It ended.
    Success,
    /// Somebody ended it.
    Stopped,
}

impl RunState {
    const ALL: [Self; 6] = [Self::Pending, Self::Scheduled, Self::Running, Self::Failed, Self::Success, Self::Stopped];

    /// The name, as it is stored and sent.
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

    /// The state of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// It is over.
    #[must_use]
    pub fn is_final(self) -> bool {
        matches!(self, Self::Failed | Self::Success | Self::Stopped)
    }
}

/// Requests of a run, by what became of them. `left = total - success - error` at every moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Counters {
    /// Not yet downloaded.
    pub left: u64,
    /// Answered by their site with a status below 400, body and all.
    pub success: u64,
    /// Answered with a status of 400 and above, or not at all.
    pub error: u64,
    /// Taken into the run.
    pub total: u64,
}

/// What a run takes along from its job when it is made: a job that changes does not change its runs. And what a person has
/// decided since of this run alone.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct RunRules {
    /// Milliseconds that an attempt may take.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<u64>,
    /// How it is tried again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry: Option<super::schedule::Retry>,
    /// Milliseconds after its planned instant at which it is worth an alert that it has not begun.
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
    /// What the last run of the job left for this one: JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Arc<str>>,
    /// The run whose end began this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<Identity>,
    /// Since when a block run hands out no blocks, by order of a person.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused_at: Option<Timestamp>,
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

/// The longest pause after an attempt that was lost, in milliseconds.
pub const LONGEST_LOST_PAUSE_MS: i64 = 32_000;

/// What a run waits for that does not wait for its turn.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pause {
    /// Nothing.
    None,
    /// So many milliseconds.
    For(u64),
    /// Longer than any pause is: the clock went back since it was decided. Its time may have come before that.
    FromLater,
}

/// A run as it is stored.
#[cfg(feature = "broker")]
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// Its id.
    pub identity: Identity,
    /// A small number that stands for it in the keys of its blocks.
    pub no: i64,
    /// Its job.
    pub job_id: JobId,
    /// The job's name when the run began.
    pub job_name: String,
    /// The class whose worker carries it out.
    pub class_name: String,
    /// For the worker.
    pub arguments: Option<String>,
    /// Where it is.
    pub state: RunState,
    /// Why it is there, if there is more to say than the state does.
    pub reason: Option<String>,
    /// Higher goes first.
    pub priority: i32,
    /// For the nodes.
    pub download: DownloadSettings,
    /// For its queue.
    pub queue: QueueSettings,
    /// The worker has pushed its first requests and said so.
    pub start_returned: bool,
    /// Blocks handed out; the fewer, the sooner it is next among runs of its priority.
    pub block_times: i64,
    /// At its end; while it works its actor knows.
    pub counters: Counters,
    /// What kind of work it is.
    pub kind: JobKind,
    /// What it took along from its job.
    pub rules: RunRules,
    /// Counts its attempts from 1.
    pub attempt: u32,
    /// A run that waits for its next attempt: until then. [`Run::QUEUED`]: behind another run of its job.
    pub not_before: Option<Timestamp>,
    /// What it brought, as JSON.
    pub result: Option<String>,
    /// What its end means to its job has still to be dealt with.
    pub follow: bool,
    /// The run that it repeats.
    pub retry_of: Option<Identity>,
    /// W3C trace id: 32 hexadecimal digits.
    pub trace_id: Option<String>,
    /// The instant that it was planned for.
    pub planned_at: Option<Timestamp>,
    /// When its first attempt began.
    pub start_time: Option<Timestamp>,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When it ended.
    pub finish_time: Option<Timestamp>,
    /// Who stopped it: the role of a token, or [`BROKER`].
    pub update_by: Option<String>,
    /// The worker that carries it out, or carried out its last attempt; none for programs, callbacks and runs on several workers.
    pub worker_id: Option<WorkerId>,
}

#[cfg(feature = "broker")]
impl Run {
    /// The epoch of a run that was just made; each adoption counts it up.
    pub const FIRST_EPOCH: i64 = 1;
    /// The `not_before` of a run that waits until the other runs of its job are over.
    pub const QUEUED: Timestamp = Timestamp(i64::MAX);

    /// It has an instant that it may begin too late after, for whoever wants to hear of that.
    #[must_use]
    pub fn may_be_late(&self) -> bool {
        self.planned_at.is_some() && self.rules.late_after.is_some()
    }

    /// Who made it: the role of the token that triggered it by hand, `workflow` if the end of another run did, `scheduler`
    /// if its plan did or another scheduler that told an instant of it; none: somebody without a token.
    #[must_use]
    pub fn create_by(&self) -> Option<&str> {
        match (&self.rules.by, self.rules.after, self.planned_at) {
            (Some(by), ..) => Some(by),
            (None, Some(_), _) => Some("workflow"),
            (None, None, Some(_)) => Some("scheduler"),
            (None, None, None) => None,
        }
    }

    /// When its row last said something new, as far as its times tell.
    #[must_use]
    pub fn last_change(&self) -> Timestamp {
        let times = [self.start_time, self.finish_time];
        times.into_iter().flatten().fold(self.creation_time, Timestamp::max)
    }

    /// Since when it hands out no blocks, by order of a person.
    #[must_use]
    pub fn paused_at(&self) -> Option<Timestamp> {
        self.rules.paused_at.filter(|_| !self.state.is_final())
    }

    /// It waits until the other runs of its job are over.
    #[must_use]
    pub fn is_queued(&self) -> bool {
        self.not_before == Some(Self::QUEUED)
    }

    /// It was made ahead of the instant that it is planned for.
    #[must_use]
    pub fn is_ahead(&self) -> bool {
        Self::waits_for_plan(self.attempt, self.planned_at, self.not_before)
    }

    /// What a run of this attempt waits for is the instant that it is planned for.
    #[must_use]
    pub fn waits_for_plan(attempt: u32, planned_at: Option<Timestamp>, not_before: Option<Timestamp>) -> bool {
        attempt == 1 && planned_at.is_some() && not_before == planned_at
    }

    /// How long it waits from now on, for the instant that it is planned for or for its next attempt.
    #[must_use]
    pub fn pause(&self, now: Timestamp) -> Pause {
        let ms = self.not_before.filter(|_| !self.is_queued()).map_or(0, |at| at.since_ms(now));
        let retries = self.rules.retry.as_ref().map_or(0, |retry| retry.max_delay.saturating_mul(2));
        let most = if self.is_ahead() { AHEAD_MS } else { (retries as i64).max(LONGEST_LOST_PAUSE_MS) };
        match u64::try_from(ms) {
            Ok(0) | Err(_) => Pause::None,
            Ok(_) if ms > most => Pause::FromLater,
            Ok(ms) => Pause::For(ms),
        }
    }

    /// From when on it was to begin: its planned instant, or when it was made.
    #[must_use]
    pub fn wanted_at(&self) -> Timestamp {
        self.planned_at.map_or(self.creation_time, |planned| planned.max(self.creation_time))
    }
}
