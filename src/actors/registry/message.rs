//! Messages to the registry, and its handle.

use super::Registry;
use crate::actors::job::{JobHandle, Loaded};
use crate::actors::node::NodeHandle;
use crate::actors::reply::{Answer, Reply, reply};
use crate::actors::run_shell::AtWork;
use crate::actors::session_sender::SessionSender;
use crate::actors::supervision::{Death, Link};
use crate::actors::worker::WorkerHandle;
use crate::domain::ids::{BrokerId, Identity, JobId, NodeId, WorkerId};
use crate::domain::node::NodeFacts;
use crate::domain::run::{Run, RunState};
use crate::domain::time::Timestamp;
use actix::Message;
use std::collections::BTreeMap;
use std::sync::Arc;

/// From a session or the HTTP transport: a node has connected. Store its record, and start its actor if necessary.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeConnected {
    /// The facts that the node reported.
    pub facts: NodeFacts,
    /// Its session and whether it accepts binary frames; `None` for a node in polling mode.
    pub session: Option<(SessionSender, bool)>,
    /// The role of its token.
    pub by: Option<String>,
    /// Its actor.
    pub reply: Reply<NodeHandle>,
}

/// From a session or the HTTP transport: a worker has connected.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerConnected {
    /// The worker.
    pub id: WorkerId,
    /// Its session; `None` for a worker in polling mode.
    pub sender: Option<SessionSender>,
    /// The role of its token.
    pub by: Option<String>,
    /// Its actor.
    pub reply: Reply<WorkerHandle>,
}

/// From a node's actor: the node is lost or has left. From the service: it is removed.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct NodeLeft {
    /// The node.
    pub id: NodeId,
    /// Its actor still sends it an order, and closes its connection.
    pub is_removed: bool,
}

/// From a worker's actor: the worker is lost or has left.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerLeft {
    /// The worker.
    pub id: WorkerId,
    /// When its silence began, moved forward by the time in which the broker was in doubt.
    pub silent_since: Timestamp,
}

/// From a worker's actor: it has sent what it watches, so the allocator has it.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct WorkerWatches(pub WorkerId);

/// From the service: the actor of this job.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct OpenJob {
    /// The job.
    pub id: JobId,
    /// Its actor.
    pub reply: Reply<JobHandle>,
}

/// From a job's actor: it is idle.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct JobIdle(pub JobId);

/// From the scheduler: the scheduled time of this job has come.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct JobDue(pub JobId);

/// From the scheduler: the scheduled time of these jobs is near; this is their stored state.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct PrepareJobs(pub Vec<Loaded>);

/// From a job: a run was stored just now and has no actor yet.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartNewRun {
    /// The run.
    pub run: Box<Run>,
    /// The properties of its job.
    pub properties: Arc<BTreeMap<String, String>>,
}

/// From a run's actor: the next attempt waits; a new actor must start from the stored state.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunBeginsAnew(pub Identity);

/// From a job: a run is stored; start its actor.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct StartRunActor {
    /// The run.
    pub identity: Identity,
    /// Its actor.
    pub reply: Reply<AtWork>,
}

/// From a run's actor: the run has ended, and the end is stored. From the startup code: a job has unprocessed ends.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunEnded {
    /// The run; `None` if only the job is concerned.
    pub identity: Option<Identity>,
    /// Its job.
    pub job_id: JobId,
    /// The job must process the end, even if its actor is not loaded.
    pub follow: bool,
    /// How the run ended, if a run has just ended.
    pub state: Option<RunState>,
}

/// From the link to the leader: the runs of this broker move to others. Attempts that have begun are finished first.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct GiveRunsUp {
    /// Only those of block jobs: the leader is of an earlier version. Runs that are stored later may be executed.
    pub only_blocks: bool,
}

/// From a run's actor: it has ended without an end of the run.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunGivenUp(pub Identity);

/// From the link to the leader: a run was withdrawn, so its actor has ended.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct RunWithdrawn(pub Identity);

/// From the link to the leader: this broker owns no runs any more. All actors of runs end at once, and so does the registry.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct AbandonRuns(pub Reply<()>);

/// From the owners: these runs belong to the leader again.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct TakeRunsBack {
    /// All runs of this broker, of which only these are open.
    pub all_of: Option<BrokerId>,
    /// The runs.
    pub runs: Vec<Identity>,
}

/// From the exit guard of a child.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct ChildDied(pub Death);

/// From the startup code: the broker shuts down; notify all peers.
#[derive(Debug, Message)]
#[rtype(result = "()")]
pub struct Shutdown(pub Reply<()>);

/// Handle to the registry for other modules.
#[derive(Debug, Clone)]
pub struct RegistryHandle(pub(in crate::actors) Link<Registry>);

impl RegistryHandle {
    /// See [`NodeConnected`].
    #[must_use]
    pub fn node_connected(&self, facts: NodeFacts, session: Option<(SessionSender, bool)>, by: Option<String>) -> Answer<NodeHandle> {
        let (reply, answer) = reply();
        self.0.tell(NodeConnected { facts, session, by, reply });
        answer
    }
    /// See [`WorkerConnected`].
    #[must_use]
    pub fn worker_connected(&self, id: WorkerId, sender: Option<SessionSender>, by: Option<String>) -> Answer<WorkerHandle> {
        let (reply, answer) = reply();
        self.0.tell(WorkerConnected { id, sender, by, reply });
        answer
    }
    /// See [`NodeLeft`].
    pub fn node_left(&self, id: NodeId) {
        self.0.tell(NodeLeft { id, is_removed: false });
    }
    /// See [`NodeLeft`].
    pub fn node_removed(&self, id: NodeId) {
        self.0.tell(NodeLeft { id, is_removed: true });
    }
    /// See [`WorkerLeft`].
    pub fn worker_left(&self, id: WorkerId, silent_since: Timestamp) {
        self.0.tell(WorkerLeft { id, silent_since });
    }
    /// See [`WorkerWatches`].
    pub fn worker_watches(&self, id: WorkerId) {
        self.0.tell(WorkerWatches(id));
    }
    /// See [`OpenJob`].
    #[must_use]
    pub fn open_job(&self, id: JobId) -> Answer<JobHandle> {
        let (reply, answer) = reply();
        self.0.tell(OpenJob { id, reply });
        answer
    }
    /// See [`JobIdle`].
    pub fn job_idle(&self, id: JobId) {
        self.0.tell(JobIdle(id));
    }
    /// See [`StartRunActor`].
    #[must_use]
    pub fn start_run(&self, identity: Identity) -> Answer<AtWork> {
        let (reply, answer) = reply();
        self.0.tell(StartRunActor { identity, reply });
        answer
    }
    /// See [`JobDue`].
    pub fn job_due(&self, id: JobId) {
        self.0.tell(JobDue(id));
    }
    /// See [`PrepareJobs`].
    pub fn prepare_jobs(&self, jobs: Vec<Loaded>) {
        self.0.tell(PrepareJobs(jobs));
    }
    /// See [`StartNewRun`].
    pub fn start_new_run(&self, run: Run, properties: Arc<BTreeMap<String, String>>) {
        self.0.tell(StartNewRun { run: Box::new(run), properties });
    }
    /// See [`RunBeginsAnew`].
    pub fn run_begins_anew(&self, identity: Identity) {
        self.0.tell(RunBeginsAnew(identity));
    }
    /// See [`RunEnded`].
    pub fn run_ended(&self, identity: Identity, job_id: JobId, state: RunState, follow: bool) {
        self.0.tell(RunEnded { identity: Some(identity), job_id, follow, state: Some(state) });
    }
    /// See [`RunEnded`].
    pub fn job_unsettled(&self, job_id: JobId, identity: Option<Identity>) {
        self.0.tell(RunEnded { identity, job_id, follow: true, state: None });
    }
    /// See [`GiveRunsUp`].
    pub fn give_runs_up(&self) {
        self.0.tell(GiveRunsUp { only_blocks: false });
    }
    /// See [`GiveRunsUp`].
    pub fn give_block_runs_up(&self) {
        self.0.tell(GiveRunsUp { only_blocks: true });
    }
    /// See [`RunGivenUp`].
    pub fn run_given_up(&self, identity: Identity) {
        self.0.tell(RunGivenUp(identity));
    }
    /// See [`RunWithdrawn`].
    pub fn run_withdrawn(&self, identity: Identity) {
        self.0.tell(RunWithdrawn(identity));
    }
    /// See [`AbandonRuns`].
    #[must_use]
    pub fn abandon_runs(&self) -> Answer<()> {
        let (reply, answer) = reply();
        self.0.tell(AbandonRuns(reply));
        answer
    }
    /// See [`TakeRunsBack`].
    pub fn take_runs_back(&self, runs: Vec<Identity>) {
        self.0.tell(TakeRunsBack { all_of: None, runs });
    }
    /// See [`TakeRunsBack`].
    pub fn take_all_runs_back(&self, owner: BrokerId, runs: Vec<Identity>) {
        self.0.tell(TakeRunsBack { all_of: Some(owner), runs });
    }
    /// See [`ChildDied`].
    pub fn child_died(&self, death: Death) {
        self.0.tell(ChildDied(death));
    }
    /// See [`Shutdown`].
    #[must_use]
    pub fn shutdown(&self) -> Answer<()> {
        let (reply, answer) = reply();
        self.0.tell(Shutdown(reply));
        answer
    }
}
