//! The messages that a run of any kind accepts, and the handles to runs.

use super::{Kind, RunShell};
use crate::actors::application::ApplicationHandle;
use crate::actors::callback::CallbackHandle;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::run::RunHandle;
use crate::actors::run_owners::RunOwnersHandle;
use crate::actors::supervision::{ChildKey, Link};
use crate::actors::task::TaskHandle;
use crate::domain::ids::{BrokerId, Identity};
use crate::domain::job::JobKind;
use crate::protocol::api::RunOutput;
use actix::Message;

/// To a run of any kind.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub enum Control {
    /// From the service or the run's job: stop the run.
    Stop {
        /// The reason.
        reason: String,
        /// The caller, if known.
        by: Option<String>,
        /// Answered when the end is stored.
        reply: Reply<RunOutput>,
    },
    /// From its job: withdraw the run if it was created ahead of its time and has not begun.
    Withdraw(Reply<bool>),
    /// From the registry: a queued run should check whether it may begin.
    CheckQueue,
    /// From the registry of a broker that gives its runs up: end this actor. Another broker continues the run.
    GiveUp {
        /// Also if an attempt has begun: it will be repeated. Otherwise the attempt is finished first.
        at_once: bool,
    },
    /// From the service: the current state of the run.
    Describe {
        /// With its arguments, which may be long.
        with_arguments: bool,
        /// The answer.
        reply: Reply<RunOutput>,
    },
}

impl Control {
    /// Its name as a place of planned faults.
    pub(in crate::actors) fn place(&self) -> &'static str {
        match self {
            Self::Stop { .. } => "run.stop",
            Self::Withdraw(_) => "run.withdraw",
            Self::CheckQueue => "run.check_queue",
            Self::GiveUp { .. } => "run.give_up",
            Self::Describe { .. } => "run.describe",
        }
    }
}

/// A message that only runs of one kind accept.
#[derive(Debug)]
pub struct Event<K: Kind>(pub K::Event);

impl<K: Kind> Message for Event<K> {
    type Result = ();
}

/// Handle to a run of one kind for other modules.
pub struct RunLink<K: Kind>(pub(in crate::actors) Link<RunShell<K>>);

impl<K: Kind> Clone for RunLink<K> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<K: Kind> std::fmt::Debug for RunLink<K> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl<K: Kind> RunLink<K> {
    /// Sends a message of its kind.
    pub fn tell(&self, event: K::Event) {
        self.0.tell(Event(event));
    }
}

/// The actor of an active run, by job type.
#[derive(Debug, Clone)]
pub enum AtWork {
    /// A run of a block job.
    Run(RunHandle),
    /// A run that sends an HTTP request.
    Callback(CallbackHandle),
    /// A run that starts programs on nodes.
    Application(ApplicationHandle),
    /// A run of a task on a worker.
    Task(TaskHandle),
    /// A run that another broker executes.
    Elsewhere(Elsewhere),
}

/// A run that another broker executes.
#[derive(Debug, Clone)]
pub struct Elsewhere {
    /// The run.
    pub identity: Identity,
    /// The kind of its job.
    pub kind: JobKind,
    /// The broker.
    pub owner: BrokerId,
    /// Passes messages on to it.
    pub owners: RunOwnersHandle,
}

impl AtWork {
    /// The key of the actor in the registry.
    #[must_use]
    pub fn key(&self, identity: Identity) -> ChildKey {
        let kind = match self {
            Self::Run(_) => JobKind::Block,
            Self::Callback(_) => JobKind::Callback,
            Self::Application(_) => JobKind::Application,
            Self::Task(_) => JobKind::Task,
            Self::Elsewhere(run) => run.kind,
        };
        ChildKey::Run(kind, identity)
    }

    fn tell(&self, control: Control) {
        match self {
            Self::Run(run) => run.0.tell(control),
            Self::Callback(callback) => callback.0.tell(control),
            Self::Application(application) => application.0.tell(control),
            Self::Task(task) => task.0.tell(control),
            Self::Elsewhere(run) => run.owners.control_elsewhere(run.owner, run.identity, control),
        }
    }

    /// Stops the run and stores the caller. See [`Control::Stop`].
    #[must_use]
    pub fn stop(&self, reason: String, by: Option<String>) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.tell(Control::Stop { reason, by, reply });
        answer
    }

    /// See [`Control::Withdraw`]. The answer is whether it was withdrawn.
    #[must_use]
    pub fn withdraw(&self) -> Answer<bool> {
        let (reply, answer) = reply();
        self.tell(Control::Withdraw(reply));
        answer
    }

    /// See [`Control::CheckQueue`].
    pub fn check_queue(&self) {
        self.tell(Control::CheckQueue);
    }

    /// See [`Control::GiveUp`].
    pub fn give_up(&self, at_once: bool) {
        self.tell(Control::GiveUp { at_once });
    }

    /// See [`Control::Describe`].
    #[must_use]
    pub fn describe(&self, with_arguments: bool) -> Answer<RunOutput> {
        let (reply, answer) = reply();
        self.tell(Control::Describe { with_arguments, reply });
        answer
    }
}
