//! The workers and requests of a [`WorkerPool`](super::WorkerPool), and whether one suits the other.

use crate::domain::ids::{Identity, WorkerId};
use crate::domain::run::Run;
use crate::domain::task::{Strategy, TaskSettings};
use crate::domain::worker::NotEligible;
use serde::{Deserialize, Serialize};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An instance of a run.
pub type Requester = (Identity, u32);

/// The properties of a worker that matter for the choice.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct WorkerCapacity {
    /// Its name, for the order of `failover`.
    pub name: String,
    /// The handler names that it watches.
    pub handlers: Vec<String>,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// The version of its program.
    pub version: Option<String>,
    /// Its capabilities or resources.
    pub tags: Vec<String>,
    /// Maximum number of concurrent tasks.
    pub slots: u32,
}

/// A task, or a run of a block job, that requests a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRequest {
    /// The requesting instance.
    pub requester: Requester,
    /// The required handler name.
    pub handler: Arc<str>,
    /// The settings of its job. For a run of a block job: strategy, key, group, version and tags.
    pub settings: Arc<TaskSettings>,
    /// It uses a slot of the worker. A run of a block job does not.
    pub needs_slot: bool,
    /// Hash of the key, for `hash` and `sticky`.
    pub key: u64,
    /// A higher value goes first.
    pub priority: i32,
    /// Workers that did not complete it; used only if there is no other.
    pub excluded: Vec<WorkerId>,
    /// Only this worker.
    pub only: Option<WorkerId>,
    /// A random number, for `random`.
    pub chance: u64,
}

impl WorkerRequest {
    /// Of a run of a block job, or the common part of the instances of a task.
    #[must_use]
    pub fn of_run(run: &Run, handler: Arc<str>, settings: Arc<TaskSettings>) -> Self {
        let key = match settings.strategy {
            Strategy::Hash | Strategy::Sticky => key_of(run, &settings),
            _ => 0,
        };
        Self {
            requester: (run.identity, 0),
            handler,
            settings,
            key,
            priority: run.priority,
            excluded: Vec::new(),
            only: None,
            needs_slot: false,
            chance: run.identity.0.as_u128() as u64,
        }
    }
}

/// The hash of the value that the job chooses as the key.
fn key_of(run: &Run, settings: &TaskSettings) -> u64 {
    let mut hasher = std::hash::DefaultHasher::new();
    let arguments = run.arguments.as_deref();
    match (&settings.key, settings.strategy) {
        (Some(pointer), _) => {
            let value: Option<serde_json::Value> = arguments.and_then(|text| serde_json::from_str(text).ok());
            value.as_ref().and_then(|value| value.pointer(pointer)).map(ToString::to_string).hash(&mut hasher);
        }
        (None, Strategy::Sticky) => run.job_id.0.hash(&mut hasher),
        (None, _) => arguments.hash(&mut hasher),
    }
    hasher.finish()
}

/// A granted slot at a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The instance that gets it.
    pub requester: Requester,
    /// The worker.
    pub worker: WorkerId,
    /// The incarnation of the worker in the worker pool: a slot of an earlier incarnation is no longer valid.
    pub incarnation: u64,
}

/// Why a worker does not get a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Obstacle {
    /// It is not suitable.
    Unsuitable(String),
    /// An operator disabled or drains it.
    Disabled(String),
    /// It is suitable, but not available now.
    Busy(String),
}

/// A worker that does not get a task, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorkerObstacle {
    /// The worker.
    pub worker: WorkerId,
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: Obstacle,
}

/// The result of a [`WorkerRequest`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestOutcome {
    /// A slot.
    Granted {
        /// The slot of this request.
        grant: Grant,
        /// Slots of tasks that waited for the worker that had the same key of the strategy `sticky` before.
        moved: Vec<Grant>,
    },
    /// It waits for a slot at a connected worker.
    Waits,
    /// It waits, and no connected worker is eligible.
    NoWorker(NotEligible),
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) capacity: WorkerCapacity,
    /// It is reachable.
    pub(super) is_reachable: bool,
    /// An operator disabled new work for it: the reason, for people.
    pub(super) disabled: Option<String>,
    pub(super) used_slots: u32,
    pub(super) incarnation: u64,
    /// The sequence number of the choice by which it last got work.
    pub(super) last_used: u64,
}

/// The first requirement that a worker does not meet.
enum Mismatch<'a> {
    Handler,
    Disabled(&'a str),
    Group(&'a str),
    Version(&'a str),
    Tag(&'a str),
    Slots,
}

impl Member {
    /// Whether it may get work of this kind now.
    pub(super) fn has_slot(&self, needs_slot: bool) -> bool {
        self.disabled.is_none() && (!needs_slot || self.is_reachable && self.used_slots < self.capacity.slots)
    }

    pub(super) fn watches(&self, handler: &str) -> bool {
        self.capacity.handlers.iter().any(|name| name == handler)
    }

    fn mismatch<'a>(&'a self, handler: &str, wanted: &'a TaskSettings, needs_slot: bool) -> Option<Mismatch<'a>> {
        let capacity = &self.capacity;
        let is_other = |has: &Option<String>, wants: &str| has.as_deref().is_none_or(|has| !has.eq_ignore_ascii_case(wants));
        if !self.watches(handler) {
            return Some(Mismatch::Handler);
        }
        if let Some(why) = &self.disabled {
            return Some(Mismatch::Disabled(why));
        }
        if let Some(group) = wanted.group.as_deref().filter(|group| is_other(&capacity.group, group)) {
            return Some(Mismatch::Group(group));
        }
        if let Some(version) = wanted.version.as_deref().filter(|version| is_other(&capacity.version, version)) {
            return Some(Mismatch::Version(version));
        }
        if let Some(tag) = wanted.tags.iter().find(|tag| !capacity.tags.iter().any(|has| has.eq_ignore_ascii_case(tag))) {
            return Some(Mismatch::Tag(tag));
        }
        (needs_slot && capacity.slots == 0).then_some(Mismatch::Slots)
    }

    /// Whether it may get such work at all.
    pub(super) fn suits(&self, handler: &str, wanted: &TaskSettings, needs_slot: bool) -> bool {
        self.mismatch(handler, wanted, needs_slot).is_none()
    }

    /// Why it does not get a waiting task, or a run of a block job that waits.
    pub(super) fn obstacle(&self, id: WorkerId, request: &WorkerRequest) -> Obstacle {
        let capacity = &self.capacity;
        let other = |what: &str, has: &Option<String>, wants: &str| {
            Obstacle::Unsuitable(format!("its {what} is {}, and {wants} is required", has.as_deref().unwrap_or("not set")))
        };
        match self.mismatch(&request.handler, &request.settings, request.needs_slot) {
            Some(Mismatch::Handler) => Obstacle::Unsuitable(format!("it does not watch {}", request.handler)),
            Some(Mismatch::Disabled(why)) => Obstacle::Disabled(why.to_owned()),
            Some(Mismatch::Group(wants)) => other("group", &capacity.group, wants),
            Some(Mismatch::Version(wants)) => other("version", &capacity.version, wants),
            Some(Mismatch::Tag(tag)) => Obstacle::Unsuitable(format!("it has no tag {tag}")),
            Some(Mismatch::Slots) => Obstacle::Unsuitable("it takes no new tasks".to_owned()),
            None if request.only.is_some_and(|only| only != id) => Obstacle::Unsuitable("the task is for another worker".to_owned()),
            None if !request.needs_slot => Obstacle::Busy("it is eligible, and the run is about to get it or another worker".to_owned()),
            None if !self.is_reachable => Obstacle::Busy("it cannot be reached at the moment".to_owned()),
            None if self.used_slots >= capacity.slots => {
                Obstacle::Busy(format!("it is full: {} of {} slots are used", self.used_slots, capacity.slots))
            }
            None if request.excluded.contains(&id) => {
                Obstacle::Busy("it had the task and did not complete it, so another worker comes first".to_owned())
            }
            None => Obstacle::Busy("it has a free slot, and the strategy chose another worker, or the task is about to get it".to_owned()),
        }
    }
}
