//! Nodes and workers: they come in, and operators look at them.

use super::Desk;
use crate::actors::node::NodeHandle;
use crate::actors::outlet::Outlet;
use crate::actors::reply::problem_of;
use crate::actors::worker::WorkerHandle;
use crate::domain::ids::{Identity, NodeId, WorkerId};
use crate::domain::node::{NodeFacts, NodeLoad, NodeRecord, NodeWork};
use crate::domain::time::Timestamp;
use crate::protocol::api::{NodeOutput, WorkerInput};
use crate::protocol::node::{Block, Heartbeat, ToNode};
use crate::protocol::problem::Problem;
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::store::{DeleteNode, GetNode, ListNodes, NodeStatus, SetNodeWork, StoreError};
use std::time::Duration;

/// A node that calls by HTTP.
#[derive(Debug)]
pub struct NodeMeeting {
    /// What it says of itself.
    pub facts: NodeFacts,
    /// How it is.
    pub heartbeat: Heartbeat,
    /// Runs that it wants nothing of.
    pub without: Vec<Identity>,
    /// The role of its token.
    pub by: Option<String>,
}

fn unknown_node(id: NodeId) -> Problem {
    Problem::not_found(format!("there is no node {id}"))
}

impl Desk {
    /// A node has opened a session.
    ///
    /// # Errors
    /// Its record could not be stored.
    pub async fn node_connected(&self, facts: NodeFacts, outlet: Outlet, binary: bool, by: Option<String>) -> Result<NodeHandle, Problem> {
        self.house.registry().node_connected(facts, Some((outlet, binary)), by).wait().await
    }

    /// The actor of a node, if it lives.
    #[must_use]
    pub fn node_handle(&self, id: NodeId) -> Option<NodeHandle> {
        self.house.directory.nodes.get(id)
    }

    /// A node without a session lives, and asks for a block.
    ///
    /// # Errors
    /// Its record could not be stored.
    pub async fn node_calls(&self, call: NodeMeeting) -> Result<Option<Block>, Problem> {
        let node = match self.house.directory.nodes.get(call.facts.node_id) {
            Some(node) => node,
            None => self.house.registry().node_connected(call.facts, None, call.by).wait().await?,
        };
        node.pull(call.heartbeat, call.without).wait().await
    }

    /// A worker has opened a session.
    ///
    /// # Errors
    /// The registry is gone.
    pub async fn worker_connected(&self, id: WorkerId, outlet: Outlet, by: Option<String>) -> Result<WorkerHandle, Problem> {
        self.house.registry().worker_connected(id, Some(outlet), by).wait().await
    }

    /// The actor of a worker, if it lives.
    #[must_use]
    pub fn worker_handle(&self, id: WorkerId) -> Option<WorkerHandle> {
        self.house.directory.workers.get(id)
    }

    /// A worker without a session says which classes it watches.
    ///
    /// # Errors
    /// A name is not allowed, it was put out, or it could not be stored.
    pub async fn register_worker(&self, id: WorkerId, input: WorkerInput, by: Option<String>) -> Result<(), Problem> {
        self.admit_worker(id).await?;
        let WorkerInput { class_names, runs, tasks, worker: facts, .. } = input;
        let worker = self.house.registry().worker_connected(id, None, by).wait().await?;
        worker.said(FromWorker::Watch { class_names, runs, tasks, worker: facts }).wait().await
    }

    /// What the broker has to say to a worker without a session.
    ///
    /// # Errors
    /// The worker is not known (any more).
    pub async fn worker_messages(&self, id: WorkerId, wait: Duration) -> Result<Vec<ToWorker>, Problem> {
        let Some(worker) = self.worker_handle(id) else {
            self.admit_worker(id).await?;
            return Err(Problem::not_found(format!("worker {id} is not registered, or was silent for too long")));
        };
        match worker.fetch(wait).wait().await {
            // It left over the question. One that was put out in that moment is told so, and not to come again.
            Err(problem) if problem.status == 503 => self.admit_worker(id).await.and(Err(problem)),
            fetched => fetched,
        }
    }

    /// All nodes that were ever there.
    ///
    /// # Errors
    /// The store fails.
    pub async fn nodes(&self) -> Result<Vec<NodeOutput>, Problem> {
        let records = self.house.store.read(ListNodes).await.map_err(|e| problem_of(&e))?;
        let mut out = Vec::with_capacity(records.len());
        for record in records {
            out.push(self.node_output(record).await);
        }
        Ok(out)
    }

    /// A node.
    ///
    /// # Errors
    /// There is none.
    pub async fn node(&self, id: NodeId) -> Result<NodeOutput, Problem> {
        let record = self.house.store.read(GetNode(id)).await.map_err(|e| problem_of(&e))?;
        Ok(self.node_output(record.ok_or_else(|| unknown_node(id))?).await)
    }

    async fn node_output(&self, record: NodeRecord) -> NodeOutput {
        let number = record.facts.node_id.number();
        let asked = match self.house.directory.nodes.get(record.facts.node_id) {
            Some(node) => node.describe().wait().await.ok(),
            None => None,
        };
        match asked {
            Some(d) => NodeOutput { number, record, is_online: d.is_online, load: d.load, holding: d.holding, programs: d.programs },
            None => NodeOutput { number, record, is_online: false, load: None, holding: 0, programs: 0 },
        }
    }

    /// The operator's word on a node. It is stored, and told to the node until it has done it.
    ///
    /// # Errors
    /// There is none.
    pub async fn set_node_work(
        &self,
        id: NodeId,
        work: NodeWork,
        reason: Option<String>,
        by: Option<String>,
    ) -> Result<NodeOutput, Problem> {
        let set = SetNodeWork { node: id, work, reason: reason.filter(|text| !text.is_empty()), by, now: Timestamp::now() };
        let record = match self.house.store.write(set).await {
            Err(StoreError::NotFound) => return Err(unknown_node(id)),
            stored => stored.map_err(|e| problem_of(&e))?,
        };
        if let Some(node) = self.house.directory.nodes.get(id) {
            node.set_work(record.clone());
        }
        Ok(self.node_output(record).await)
    }

    /// Forgets a node. One that is there is told to end, if that is meant.
    ///
    /// # Errors
    /// There is none, or it is there and that is not meant.
    pub async fn remove_node(&self, id: NodeId, force: bool) -> Result<(), Problem> {
        let node = self.node(id).await?;
        if node.is_online && !force {
            return Err(Problem::conflict("node-online", format!("node {id} is there: `force` ends and removes it")));
        }
        if let Some(node) = self.house.directory.nodes.get(id) {
            node.command(ToNode::Leave { reason: "an operator removed the node".to_owned() });
            node.hang_up("an operator removed the node");
            self.house.registry().node_gone(id);
        }
        match self.house.store.write(DeleteNode(id)).await {
            Err(StoreError::NotFound) => Err(unknown_node(id)),
            done => done.map_err(|e| problem_of(&e)),
        }
    }

    /// What a node said of itself, newest first.
    ///
    /// # Errors
    /// There is none, or the end is before the beginning.
    pub async fn node_status(
        &self,
        id: NodeId,
        from: Option<Timestamp>,
        to: Option<Timestamp>,
        limit: usize,
    ) -> Result<Vec<(NodeLoad, Timestamp)>, Problem> {
        if let (Some(from), Some(to)) = (from, to)
            && to < from
        {
            return Err(Problem::invalid("to", format!("the end {to} is before the beginning {from}")));
        }
        self.node(id).await?;
        self.house.store.read(NodeStatus { node: id, from, to, limit }).await.map_err(|e| problem_of(&e))
    }
}
