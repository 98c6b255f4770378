//! Messages to the actor of a job, and its handle.

use super::JobActor;
use super::loaded::Loaded;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Identity, Seq};
use crate::domain::job::Job;
use crate::domain::origin::Origin;
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::protocol::api::{JobInput, RunOutput, TriggerInput};
use crate::protocol::management::{BackfillInput, BackfillOutput};
use crate::protocol::problem::Problem;
use crate::store::NextAsked;
use actix::Message;
use bytes::Bytes;
use std::collections::HashSet;
use std::sync::Arc;

/// From the service: run the job now. The answer comes when the run is stored and has its actor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Trigger {
    /// The trigger.
    pub order: TriggerOrder,
    /// The run.
    pub reply: Reply<Triggered>,
}

/// The run that a trigger created now or earlier.
#[derive(Debug)]
pub struct Triggered {
    /// The id of the run.
    pub identity: Identity,
    /// The stored state, if no newer state exists.
    pub run: Option<Box<RunOutput>>,
}

/// From the service: trigger the job several times. Each trigger has its own answer.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TriggerBatch {
    /// The triggers.
    pub orders: Vec<TriggerOrder>,
    /// The runs, in the order of the triggers.
    pub reply: Reply<Vec<Result<Identity, Problem>>>,
}

/// How to trigger a job, and for which caller.
#[derive(Debug, Clone, Default)]
pub struct TriggerOrder {
    /// The input of the caller.
    pub input: TriggerInput,
    /// The run that this one repeats.
    pub retry_of: Option<Identity>,
    /// The W3C trace of the caller.
    pub trace: Option<TraceContext>,
    /// The caller.
    pub by: Option<String>,
    /// If the policy would reject the trigger because of an active run, queue it instead.
    pub waits: bool,
    /// Reject the trigger if another run is active, whatever the policy is.
    pub alone: bool,
    /// The run whose end starts this one.
    pub after: Option<Identity>,
    /// The first requests of the run; its worker pushes none.
    pub first: Option<Arc<FirstRequests>>,
}

/// Failed requests of a run that is over.
#[derive(Debug)]
pub struct FirstRequests {
    /// The number of that run.
    pub no: i64,
    /// The failures of its blocks as they are stored, and which of them. In the order of the blocks.
    pub blocks: Vec<(Seq, Bytes, HashSet<Fingerprint>)>,
    /// The origins of that run's first requests.
    pub start_origins: Option<Arc<[Origin]>>,
}

/// From the scheduler, through the registry: a scheduled time is due.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Due;

/// From the registry: a run of the job has ended, and the end is stored. `None`: check which queued run may begin.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunOver {
    /// The run.
    pub identity: Option<Identity>,
    /// The stored end still has to be processed; otherwise the run is only removed.
    pub follow: bool,
}

/// From the registry: a run of the job has ended. The job only removes it from its active runs.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunLeft(pub Identity);

/// From the service: change the job. The answer comes when the change is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Change {
    /// The change.
    pub change: JobChange,
    /// The caller.
    pub by: Option<String>,
    /// The changed job.
    pub reply: Reply<Job>,
}

/// A change to a job.
#[derive(Debug)]
pub enum JobChange {
    /// Set values.
    Values(Box<JobInput>),
    /// Enable the job: it starts when it is due or triggered.
    Enable,
    /// Disable the job.
    Disable {
        /// The reason.
        reason: Option<String>,
        /// Stop its runs as well.
        stop: bool,
    },
    /// The broker disables the job by itself and creates an event for alerts.
    GiveUp {
        /// The reason.
        reason: String,
    },
    /// Delete the job; its history stays.
    Delete {
        /// The version that the caller has read.
        version: Option<i64>,
    },
    /// Restore a deleted job, in disabled state.
    Restore,
}

/// From the service: a run requests this time for the next run of its job.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskNext {
    /// The run.
    pub identity: Identity,
    /// The requested time; a past time means in 100 ms.
    pub next: NextAsked,
    /// The next scheduled time.
    pub reply: Reply<Option<Timestamp>>,
}

/// From the service: create runs for a past range of the plan.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Backfill {
    /// The range.
    pub input: BackfillInput,
    /// The caller.
    pub by: Option<String>,
    /// The runs.
    pub reply: Reply<BackfillOutput>,
}

/// From the registry: the state that the scheduler read in advance for this job.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Prepare(pub Box<Loaded>);

/// From the service: a change of the group changed the stored job without this actor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Invalidate;

/// From the registry: the actor was idle and is no longer in the address book.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Passivate;

/// Handle to a job for other modules.
#[derive(Debug, Clone)]
pub struct JobHandle(pub(in crate::actors) Link<JobActor>);

impl JobHandle {
    /// See [`Trigger`].
    #[must_use]
    pub fn trigger(&self, order: TriggerOrder) -> Answer<Triggered> {
        let (reply, answer) = reply();
        self.0.tell(Trigger { order, reply });
        answer
    }
    /// See [`TriggerBatch`].
    #[must_use]
    pub fn trigger_batch(&self, orders: Vec<TriggerOrder>) -> Answer<Vec<Result<Identity, Problem>>> {
        let (reply, answer) = reply();
        self.0.tell(TriggerBatch { orders, reply });
        answer
    }
    /// See [`RunLeft`].
    pub fn run_left(&self, identity: Identity) {
        self.0.tell(RunLeft(identity));
    }
    /// See [`Due`].
    pub fn due(&self) {
        self.0.tell(Due);
    }
    /// See [`RunOver`].
    pub fn run_over(&self, identity: Option<Identity>, follow: bool) {
        self.0.tell(RunOver { identity, follow });
    }
    /// See [`Change`].
    #[must_use]
    pub fn change(&self, change: JobChange, by: Option<String>) -> Answer<Job> {
        let (reply, answer) = reply();
        self.0.tell(Change { change, by, reply });
        answer
    }
    /// See [`AskNext`].
    #[must_use]
    pub fn ask_next(&self, identity: Identity, next: NextAsked) -> Answer<Option<Timestamp>> {
        let (reply, answer) = reply();
        self.0.tell(AskNext { identity, next, reply });
        answer
    }
    /// See [`Backfill`].
    #[must_use]
    pub fn backfill(&self, input: BackfillInput, by: Option<String>) -> Answer<BackfillOutput> {
        let (reply, answer) = reply();
        self.0.tell(Backfill { input, by, reply });
        answer
    }
    /// See [`Prepare`].
    pub fn prepare(&self, loaded: Box<Loaded>) {
        self.0.tell(Prepare(loaded));
    }
    /// See [`Invalidate`].
    pub fn forget(&self) {
        self.0.tell(Invalidate);
    }
    /// See [`Passivate`].
    pub fn rest(&self) {
        self.0.tell(Passivate);
    }
}
