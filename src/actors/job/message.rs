//! What a job's actor is told, and its handle.

use super::JobActor;
use super::loaded::Loaded;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::supervision::Link;
use crate::domain::ids::Identity;
use crate::domain::job::Job;
use crate::domain::time::Timestamp;
use crate::protocol::api::{JobInput, RunOutput, TriggerInput};
use crate::protocol::management::{BackfillInput, BackfillOutput, RedriveJobInput, RedriveOutput};
use crate::protocol::problem::Problem;
use crate::store::NextAsked;
use actix::Message;

/// From the service: run the job now. Answered when the run is stored and has its actor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Trigger {
    /// How.
    pub order: TriggerOrder,
    /// The run.
    pub reply: Reply<Triggered>,
}

/// The run that a trigger made, or had made before.
#[derive(Debug)]
pub struct Triggered {
    /// Which.
    pub identity: Identity,
    /// As it was stored, if nobody knows more of it yet.
    pub run: Option<Box<RunOutput>>,
}

/// From the service: run the job so many times. Each trigger has its own answer.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TriggerBatch {
    /// How.
    pub orders: Vec<TriggerOrder>,
    /// The runs.
    pub reply: Reply<Vec<Result<Identity, Problem>>>,
}

/// How to trigger a job, and for whom.
#[derive(Debug, Clone, Default)]
pub struct TriggerOrder {
    /// As the caller said it.
    pub input: TriggerInput,
    /// The run that is repeated.
    pub retry_of: Option<Identity>,
    /// The W3C trace that the caller is in.
    pub trace_id: Option<String>,
    /// Who.
    pub by: Option<String>,
    /// Where the policy would turn it away since another run is not over, it waits for its turn.
    pub waits: bool,
    /// It is turned away where another run is not over, whatever the policy says.
    pub alone: bool,
    /// The run whose end begins this one.
    pub after: Option<Identity>,
}

/// From the scheduler, through the registry: an instant of the plan is due.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Due;

/// From the registry: a run of the job is over, and that is stored; none: look which run's turn it is.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunOver {
    /// Which.
    pub identity: Option<Identity>,
    /// It is stored as one whose end has to be dealt with; else it is only gone.
    pub follow: bool,
}

/// From the registry: a run of the job is over, and its end means nothing to the job but that it is not there any more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunLeft(pub Identity);

/// From the service: the job is to be otherwise. Answered when it is stored.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Change {
    /// How.
    pub change: JobChange,
    /// Who.
    pub by: Option<String>,
    /// The job as it is then.
    pub reply: Reply<Job>,
}

/// How a job is to be otherwise.
#[derive(Debug)]
pub enum JobChange {
    /// Other values.
    Values(Box<JobInput>),
    /// It starts when it is due or triggered.
    Enable,
    /// It does not.
    Disable {
        /// Why.
        reason: Option<String>,
        /// Its runs are stopped.
        stop: bool,
    },
    /// The broker disables it by itself, and those who want to hear of such a thing are told.
    GiveUp {
        /// Why.
        reason: String,
    },
    /// It is gone; its past stays.
    Delete {
        /// The version that the caller has seen.
        version: Option<i64>,
    },
    /// It is back, disabled.
    Restore,
}

/// From the service: a run wants its job to be run next at this time.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AskNext {
    /// The run.
    pub identity: Identity,
    /// When; one that is past means now.
    pub next: NextAsked,
    /// When it comes next.
    pub reply: Reply<Option<Timestamp>>,
}

/// From the service: make runs for a past range of the plan.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Backfill {
    /// Which.
    pub input: BackfillInput,
    /// Who.
    pub by: Option<String>,
    /// The runs.
    pub reply: Reply<BackfillOutput>,
}

/// From the service: run the dead runs again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Redrive {
    /// How.
    pub input: RedriveJobInput,
    /// Who.
    pub by: Option<String>,
    /// The new runs.
    pub reply: Reply<RedriveOutput>,
}

/// From the registry: what the scheduler has read for it ahead of time.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Prepare(pub Box<Loaded>);

/// From the service: the stored job was changed without its actor, by a change of its group.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Invalidate;

/// From the registry: it was idle and is in the address book no more.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Passivate;

/// A job, for other rooms.
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
    /// See [`Redrive`].
    #[must_use]
    pub fn redrive(&self, input: RedriveJobInput, by: Option<String>) -> Answer<RedriveOutput> {
        let (reply, answer) = reply();
        self.0.tell(Redrive { input, by, reply });
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
