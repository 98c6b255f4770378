//! Nodes and workers: connections, and the views for operators.

use super::Service;
use crate::actors::node::NodeHandle;
use crate::actors::reply::problem_of;
use crate::actors::session_sender::SessionSender;
use crate::actors::worker::WorkerHandle;
use crate::domain::ids::{IdPart, Identity, NodeId, NumberOr, WorkerId};
use crate::domain::node::{Instance, NodeFacts, NodeLoad, NodeRecord, NodeWork};
use crate::domain::time::Timestamp;
use crate::protocol::api::{NodeOutput, WorkerInput};
use crate::protocol::node::{Block, Heartbeat, ToNode};
use crate::protocol::peer_history::{NodeConnectionOutput, NodeRunOutput};
use crate::protocol::problem::Problem;
use crate::protocol::worker::{FromWorker, ToWorker};
use crate::store::{
    ConnectionRow, DeleteNode, GetNode, GetRun, ListConnections, ListNodes, NodeLoadSteps, NodeNames, NodeStatus, PeerNames, SetNodeWork,
    StoreError,
};
use std::collections::HashMap;
use std::time::Duration;
use uuid::Uuid;

/// A call of a node in polling mode.
#[derive(Debug)]
pub struct NodeMeeting {
    /// The facts that the node reported.
    pub facts: NodeFacts,
    /// The state of the node.
    pub heartbeat: Heartbeat,
    /// Runs whose blocks the node does not accept.
    pub without: Vec<Identity>,
    /// The role of its token.
    pub by: Option<String>,
}

fn unknown_node(id: NodeId) -> Problem {
    Problem::not_found(format!("there is no node {id}"))
}

/// Maximum number of steps in the answer to a question for the load of a node.
const MOST_STEPS: i64 = 2_000;
/// Maximum number of candidates in the error if a text matches several nodes.
const MOST_CANDIDATES: usize = 10;

/// The nodes that match a text: those with this name, ignoring case; otherwise those whose id begins or ends with the text.
fn meant_by(text: &str, nodes: &[(NodeId, Option<String>)]) -> Vec<NodeId> {
    type Known = (NodeId, Option<String>);
    let of = |is: &dyn Fn(&Known) -> bool| nodes.iter().filter(|node| is(node)).map(|node| node.0).collect::<Vec<_>>();
    let named = of(&|(_, name)| name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(text)));
    match text.parse::<IdPart>() {
        Ok(part) if named.is_empty() => of(&|(id, _)| part.is_of(&id.to_string())),
        _ => named,
    }
}

impl Service {
    /// Handles a node that has opened a session.
    ///
    /// # Errors
    /// Its record could not be stored.
    pub async fn node_connected(
        &self,
        facts: NodeFacts,
        instance: Option<Instance>,
        sender: SessionSender,
        binary: bool,
        by: Option<String>,
    ) -> Result<NodeHandle, Problem> {
        let owners = &self.context.addresses.node_owners;
        owners.claim(facts.node_id, instance, sender.number, &facts.ip_address).map_err(|address| {
            // This is the reason of a close frame, which has at most 123 bytes.
            let why = format!("another agent, at {address}, uses this node id: give each agent its own --data-dir");
            Problem::conflict("node-in-use", why)
        })?;
        self.context.registry().node_connected(facts, Some((sender, binary)), by).wait().await
    }

    /// Handles the end of the session of a node.
    pub fn node_disconnected(&self, id: NodeId, session: u64) {
        self.context.addresses.node_owners.release(id, session);
        if let Some(node) = self.context.addresses.nodes.get(id) {
            node.session_closed(session);
        }
    }

    /// The actor of a node, if it is running.
    #[must_use]
    pub fn node_handle(&self, id: NodeId) -> Option<NodeHandle> {
        self.context.addresses.nodes.get(id)
    }

    /// Handles a call of a node in polling mode that requests a block.
    ///
    /// # Errors
    /// Its record could not be stored.
    pub async fn node_calls(&self, call: NodeMeeting) -> Result<Option<Block>, Problem> {
        let node = match self.context.addresses.nodes.get(call.facts.node_id) {
            Some(node) => node,
            None => self.context.registry().node_connected(call.facts, None, call.by).wait().await?,
        };
        node.pull(call.heartbeat, call.without).wait().await
    }

    /// Handles a worker that has opened a session.
    ///
    /// # Errors
    /// The registry has stopped.
    pub async fn worker_connected(&self, id: WorkerId, sender: SessionSender, by: Option<String>) -> Result<WorkerHandle, Problem> {
        self.context.registry().worker_connected(id, Some(sender), by).wait().await
    }

    /// The actor of a worker, if it is running.
    #[must_use]
    pub fn worker_handle(&self, id: WorkerId) -> Option<WorkerHandle> {
        self.context.addresses.workers.get(id)
    }

    /// Registers a worker in polling mode with the classes that it watches.
    ///
    /// # Errors
    /// A name is invalid, the worker was kicked, or the store failed.
    pub async fn register_worker(&self, id: WorkerId, input: WorkerInput, by: Option<String>) -> Result<(), Problem> {
        self.admit_worker(id).await?;
        let WorkerInput { class_names, runs, tasks, worker: facts, .. } = input;
        let worker = self.context.registry().worker_connected(id, None, by).wait().await?;
        worker.message(FromWorker::Watch { class_names, runs, tasks, worker: facts }).wait().await
    }

    /// The messages for a worker in polling mode.
    ///
    /// # Errors
    /// The worker is not registered, or no longer.
    pub async fn worker_messages(&self, id: WorkerId, wait: Duration) -> Result<Vec<ToWorker>, Problem> {
        let Some(worker) = self.worker_handle(id) else {
            self.admit_worker(id).await?;
            return Err(Problem::not_found(format!("worker {id} is not registered, or was silent for too long")));
        };
        match worker.fetch(wait).wait().await {
            // The actor ended during the call. If the worker was kicked just now, it gets that error and does not retry.
            Err(problem) if problem.status == 503 => self.admit_worker(id).await.and(Err(problem)),
            fetched => fetched,
        }
    }

    /// All nodes that have ever connected.
    ///
    /// # Errors
    /// The store fails.
    pub async fn nodes(&self) -> Result<Vec<NodeOutput>, Problem> {
        let records = self.context.store.read(ListNodes).await.map_err(|e| problem_of(&e))?;
        let mut out = Vec::with_capacity(records.len());
        for record in records {
            out.push(self.node_output(record).await);
        }
        Ok(out)
    }

    /// A node.
    ///
    /// # Errors
    /// The node does not exist.
    pub async fn node(&self, id: NodeId) -> Result<NodeOutput, Problem> {
        let record = self.context.store.read(GetNode(id)).await.map_err(|e| problem_of(&e))?;
        let mut output = self.node_output(record.ok_or_else(|| unknown_node(id))?).await;
        output.runs = Some(self.node_runs(id).await?);
        Ok(output)
    }

    /// What a node has of each run.
    async fn node_runs(&self, id: NodeId) -> Result<Vec<NodeRunOutput>, Problem> {
        let mut blocks = match self.context.addresses.nodes.get(id) {
            Some(node) => node.describe().wait().await.map_or_else(|_| HashMap::new(), |description| description.runs),
            None => HashMap::new(),
        };
        let programs = self.context.fleet.programs_by_run(id);
        for identity in programs.keys() {
            blocks.entry(*identity).or_default();
        }
        let mut runs: Vec<_> = blocks.into_iter().collect();
        runs.sort_unstable();
        let mut out = Vec::with_capacity(runs.len());
        for (identity, blocks) in runs {
            let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
            let (job_name, programs) = (run.map(|run| run.job_name), programs.get(&identity).copied().unwrap_or_default());
            out.push(NodeRunOutput { identity, job_name, blocks, programs });
        }
        Ok(out)
    }

    /// The connections of a node, the newest first.
    ///
    /// # Errors
    /// The node does not exist.
    pub async fn node_connections(&self, id: NodeId, limit: usize) -> Result<Vec<NodeConnectionOutput>, Problem> {
        self.node(id).await?;
        let rows = self.context.store.read(ListConnections { node: id, limit }).await.map_err(|e| problem_of(&e))?;
        let output = |row: ConnectionRow| NodeConnectionOutput {
            connect_time: row.connect_time,
            disconnect_time: row.disconnect_time,
            ip_address: row.ip_address,
            reason: row.reason,
        };
        Ok(rows.into_iter().map(output).collect())
    }

    /// The load of a node in steps, the oldest first.
    ///
    /// # Errors
    /// The node does not exist, or the step is too short.
    pub async fn node_load_steps(&self, id: NodeId, from: Timestamp, step: u64) -> Result<Vec<(NodeLoad, Timestamp)>, Problem> {
        let ms = i64::try_from(step).unwrap_or(i64::MAX);
        if Timestamp::now().since_ms(from) / ms.max(1) >= MOST_STEPS || !(1_000..=86_400_000).contains(&ms) {
            return Err(Problem::invalid(
                "step",
                format!("must be 1000 to 86400000 ms, and long enough for at most {MOST_STEPS} steps since `from`"),
            ));
        }
        self.node(id).await?;
        self.context.store.read(NodeLoadSteps { node: id, from, step: ms }).await.map_err(|e| problem_of(&e))
    }

    /// The node that a text identifies: by its id, its number, its name, or the first or last digits of its id.
    ///
    /// # Errors
    /// No node matches, or several do.
    pub async fn node_meant(&self, text: &str) -> Result<NodeId, Problem> {
        let named: Option<NumberOr<NodeId>> = text.parse().ok();
        match named {
            Some(NumberOr::Id(id)) => return Ok(id),
            // A name may also consist of digits.
            Some(NumberOr::Number(number)) => match self.numbered(number).await {
                Err(problem) if problem.status == 404 => {}
                found => return found,
            },
            None => {}
        }
        let nodes = self.context.store.read(NodeNames).await.map_err(|e| problem_of(&e))?;
        match meant_by(text, &nodes)[..] {
            [] => Err(Problem::not_found(format!("there is no node `{text}`; give the name, the id or the number of a node"))),
            [id] => Ok(id),
            ref several => {
                let ids: Vec<String> = several.iter().take(MOST_CANDIDATES).map(ToString::to_string).collect();
                let more = if several.len() > MOST_CANDIDATES { ", …" } else { "" };
                let detail = format!("{} nodes match `{text}`. Use one of the ids {}{more}", several.len(), ids.join(", "));
                Err(Problem::conflict("ambiguous", detail))
            }
        }
    }

    /// The names of the nodes and workers that have one.
    pub(super) async fn peer_names(&self, mut peers: Vec<Uuid>) -> Result<HashMap<Uuid, String>, Problem> {
        peers.sort_unstable();
        peers.dedup();
        if peers.is_empty() {
            return Ok(HashMap::new());
        }
        self.context.store.read(PeerNames(peers)).await.map_err(|e| problem_of(&e))
    }

    async fn node_output(&self, record: NodeRecord) -> NodeOutput {
        let (name, number) = (record.facts.shown_name(), record.facts.node_id.number());
        let asked = match self.context.addresses.nodes.get(record.facts.node_id) {
            Some(node) => node.describe().wait().await.ok(),
            None => None,
        };
        match asked {
            Some(d) => NodeOutput {
                name,
                number,
                // The stored time is up to half a minute older.
                record: NodeRecord { last_online_time: d.last_seen, ..record },
                is_online: d.is_online,
                load: d.load,
                holding: d.holding,
                programs: d.programs,
                runs: None,
            },
            None => NodeOutput { name, number, record, is_online: false, load: None, holding: 0, programs: 0, runs: None },
        }
    }

    /// Sets the operator's request for a node. It is stored, and sent to the node until the node has done it.
    ///
    /// # Errors
    /// The node does not exist.
    pub async fn set_node_work(
        &self,
        id: NodeId,
        work: NodeWork,
        reason: Option<String>,
        by: Option<String>,
    ) -> Result<NodeOutput, Problem> {
        let set = SetNodeWork { node: id, work, reason: reason.filter(|text| !text.is_empty()), by, now: Timestamp::now() };
        let record = match self.context.store.write(set).await {
            Err(StoreError::NotFound) => return Err(unknown_node(id)),
            stored => stored.map_err(|e| problem_of(&e))?,
        };
        if let Some(node) = self.context.addresses.nodes.get(id) {
            node.set_work(record.clone());
        }
        Ok(self.node_output(record).await)
    }

    /// Deletes a node. With `force`, a connected node receives the order to end.
    ///
    /// # Errors
    /// The node does not exist, or is connected and `force` is not set.
    pub async fn remove_node(&self, id: NodeId, force: bool) -> Result<(), Problem> {
        let node = self.node(id).await?;
        if node.is_online && !force {
            return Err(Problem::conflict("node-online", format!("node {id} is connected: use `force` to end and remove it")));
        }
        if let Some(node) = self.context.addresses.nodes.get(id) {
            node.command(ToNode::Leave { reason: "an operator removed the node".to_owned() });
            node.disconnect("an operator removed the node");
            self.context.registry().node_removed(id);
        }
        self.context.addresses.node_names.remove(id);
        match self.context.store.write(DeleteNode(id)).await {
            Err(StoreError::NotFound) => Err(unknown_node(id)),
            done => done.map_err(|e| problem_of(&e)),
        }
    }

    /// The states that a node reported, newest first.
    ///
    /// # Errors
    /// The node does not exist, or the end is before the beginning.
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
            return Err(Problem::invalid("to", format!("must not be before `from`: {to} is earlier than {from}")));
        }
        self.node(id).await?;
        self.context.store.read(NodeStatus { node: id, from, to, limit }).await.map_err(|e| problem_of(&e))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_is_found_by_its_name_and_by_the_first_digits_of_its_id() {
        let id = |text: &str| text.parse::<NodeId>().expect("an id");
        let (a, b, c) =
            (id("abcd0000000000000000000000000001"), id("abcd1000000000000000000000000002"), id("0000abcd000000000000000000000003"));
        let nodes = [(a, Some("ABCD1".to_owned())), (b, Some("Web".to_owned())), (c, Some("web".to_owned()))];
        assert_eq!(meant_by("abcd1", &nodes), [a], "a name comes before digits");
        assert_eq!(meant_by("WEB", &nodes), [b, c]);
        assert_eq!(meant_by("ABCD", &nodes), [a, b]);
        assert_eq!(meant_by("00000003", &nodes), [c]);
        assert_eq!(meant_by("abcd10", &nodes), [b]);
        assert!(meant_by("abc", &nodes).is_empty() && meant_by("we", &nodes).is_empty() && meant_by("", &nodes).is_empty());
    }
}
