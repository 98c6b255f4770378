//! The workers and requests of a [`WorkerPool`](super::WorkerPool), and whether one suits the other.

use crate::domain::ids::{Identity, JobId, WorkerId};
use crate::domain::run::Run;
use crate::domain::task::{Strategy, TaskSettings};
use crate::domain::worker::NotEligible;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// An instance of a run.
pub type Asker = (Identity, u32);

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
#[derive(Debug, Clone)]
pub struct Ask {
    /// The requesting instance.
    pub asker: Asker,
    /// The required handler name.
    pub handler: Arc<str>,
    /// Its job.
    pub job_id: JobId,
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

impl Ask {
    /// Of a run of a block job, or the common part of the instances of a task.
    #[must_use]
    pub fn of_run(run: &Run, handler: Arc<str>, settings: Arc<TaskSettings>) -> Self {
        let key = match settings.strategy {
            Strategy::Hash | Strategy::Sticky => key_of(run, &settings),
            _ => 0,
        };
        Self {
            asker: (run.identity, 0),
            handler,
            job_id: run.job_id,
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
    pub asker: Asker,
    /// The worker.
    pub worker: WorkerId,
    /// The incarnation of the worker in the worker pool: a slot of an earlier incarnation is no longer valid.
    pub life: u64,
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
pub struct Refusal {
    /// The worker.
    pub worker: WorkerId,
    /// Its name.
    pub name: String,
    /// The reason.
    pub why: Obstacle,
}

/// The result of an [`Ask`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Asked {
    /// A slot.
    Granted(Grant),
    /// It waits for a slot at a connected worker.
    Waits,
    /// It waits, and no connected worker is eligible.
    NoWorker(NotEligible),
}

#[derive(Debug)]
pub(super) struct Member {
    pub(super) hand: WorkerCapacity,
    /// It is reachable.
    pub(super) open: bool,
    /// An operator blocks new work for it; the text says so for people.
    pub(super) barred: Option<String>,
    pub(super) taken: u32,
    pub(super) life: u64,
    /// The turn in which it last got work.
    pub(super) used: u64,
}

/// The first requirement that a worker does not meet.
enum Lack<'a> {
    Handler,
    Barred(&'a str),
    Group(&'a str),
    Version(&'a str),
    Tag(&'a str),
    Slots,
}

impl Member {
    /// Whether it may get work of this kind now.
    pub(super) fn has_place(&self, needs_slot: bool) -> bool {
        self.barred.is_none() && (!needs_slot || self.open && self.taken < self.hand.slots)
    }

    pub(super) fn watches(&self, handler: &str) -> bool {
        self.hand.handlers.iter().any(|name| name == handler)
    }

    fn lacks<'a>(&'a self, handler: &str, wanted: &'a TaskSettings, needs_slot: bool) -> Option<Lack<'a>> {
        let hand = &self.hand;
        let is_other = |has: &Option<String>, wants: &str| has.as_deref().is_none_or(|has| !has.eq_ignore_ascii_case(wants));
        if !self.watches(handler) {
            return Some(Lack::Handler);
        }
        if let Some(why) = &self.barred {
            return Some(Lack::Barred(why));
        }
        if let Some(group) = wanted.group.as_deref().filter(|group| is_other(&hand.group, group)) {
            return Some(Lack::Group(group));
        }
        if let Some(version) = wanted.version.as_deref().filter(|version| is_other(&hand.version, version)) {
            return Some(Lack::Version(version));
        }
        if let Some(tag) = wanted.tags.iter().find(|tag| !hand.tags.iter().any(|has| has.eq_ignore_ascii_case(tag))) {
            return Some(Lack::Tag(tag));
        }
        (needs_slot && hand.slots == 0).then_some(Lack::Slots)
    }

    /// Whether it may get such work at all.
    pub(super) fn suits(&self, handler: &str, wanted: &TaskSettings, needs_slot: bool) -> bool {
        self.lacks(handler, wanted, needs_slot).is_none()
    }

    /// Why it does not get a waiting task, or a run of a block job that waits.
    pub(super) fn refuses(&self, id: WorkerId, ask: &Ask) -> Obstacle {
        let hand = &self.hand;
        let other = |what: &str, has: &Option<String>, wants: &str| {
            Obstacle::Unsuitable(format!("its {what} is {}, and {wants} is required", has.as_deref().unwrap_or("not set")))
        };
        match self.lacks(&ask.handler, &ask.settings, ask.needs_slot) {
            Some(Lack::Handler) => Obstacle::Unsuitable(format!("it does not watch {}", ask.handler)),
            Some(Lack::Barred(why)) => Obstacle::Disabled(why.to_owned()),
            Some(Lack::Group(wants)) => other("group", &hand.group, wants),
            Some(Lack::Version(wants)) => other("version", &hand.version, wants),
            Some(Lack::Tag(tag)) => Obstacle::Unsuitable(format!("it has no tag {tag}")),
            Some(Lack::Slots) => Obstacle::Unsuitable("it takes no new tasks".to_owned()),
            None if ask.only.is_some_and(|only| only != id) => Obstacle::Unsuitable("the task is for another worker".to_owned()),
            None if !ask.needs_slot => Obstacle::Busy("it is eligible, and the run is about to get it or another worker".to_owned()),
            None if !self.open => Obstacle::Busy("it cannot be reached at the moment".to_owned()),
            None if self.taken >= hand.slots => Obstacle::Busy(format!("it is full: {} of {} slots are used", self.taken, hand.slots)),
            None if ask.excluded.contains(&id) => {
                Obstacle::Busy("it had the task and did not complete it, so another worker comes first".to_owned())
            }
            None => Obstacle::Busy("it has a free slot, and the strategy chose another worker, or the task is about to get it".to_owned()),
        }
    }
}
