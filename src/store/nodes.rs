//! Nodes, and the load that they reported.

use super::columns::{Hex, stored};
use super::connections;
use super::dialect::OnConflict;
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::owners::release_id;
use super::schema::{node, node_status, worker_record};
use crate::domain::ids::{NodeId, PeerId};
use crate::domain::node::{NodeFacts, NodeLoad, NodeRecord, NodeWork};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use diesel::sql_types::{BigInt, Text};
use std::collections::HashMap;
use uuid::Uuid;

/// A node connected: inserts or updates its row with the reported facts. The operator's setting whether it is enabled does not change.
#[derive(Debug, Clone)]
pub struct UpsertNode {
    /// The facts that the node reported.
    pub facts: NodeFacts,
    /// The role of its token: stored only the first time.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for UpsertNode {
    type Output = NodeRecord;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<NodeRecord, StoreError> {
        let facts = &self.facts;
        let said = (
            node::name.eq(&facts.name),
            node::node_type.eq(&facts.node_type),
            node::ip_address.eq(&facts.ip_address),
            node::processor_count.eq(i64::from(facts.processor_count)),
            node::group.eq(&facts.group),
            node::operating_system.eq(&facts.operating_system),
            node::memory.eq(facts.memory as i64),
            node::max_process_count.eq(i64::from(facts.max_process_count)),
        );
        diesel::insert_into(node::table)
            .values((
                said,
                node::node_id.eq(facts.node_id),
                node::is_enabled.eq(true),
                node::creation_time.eq(self.now),
                node::create_by.eq(&self.by),
                node::update_time.eq(self.now),
                node::last_online_time.eq(self.now),
            ))
            // A node that sends no name, as HTTP allows, keeps its name.
            .with_conflict_rule(
                "(node_id) DO UPDATE SET name = COALESCE(excluded.name, node.name), node_type = excluded.node_type, \
                ip_address = excluded.ip_address, processor_count = excluded.processor_count, \"group\" = excluded.\"group\", \
                operating_system = excluded.operating_system, memory = excluded.memory, \
                max_process_count = excluded.max_process_count, last_online_time = excluded.last_online_time",
            )
            .execute(tx.conn)?;
        connections::open(tx.conn, facts.node_id, &facts.ip_address, self.now)?;
        Ok(node::table.find(facts.node_id).select(NodeRecord::as_select()).get_result(tx.conn)?)
    }
}

/// A node reported its load.
#[derive(Debug, Clone, Copy)]
pub struct AddNodeStatus {
    /// The node.
    pub node: NodeId,
    /// Its load.
    pub load: NodeLoad,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for AddNodeStatus {
    type Output = ();

    fn can_wait(&self) -> bool {
        true
    }

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let known = diesel::update(node::table.find(self.node)).set(node::last_online_time.eq(self.now)).execute(tx.conn)?;
        if known == 0 {
            return Err(StoreError::NotFound);
        }
        diesel::insert_into(node_status::table)
            .values((
                node_status::node_id.eq(self.node),
                node_status::process_count.eq(i64::from(self.load.process_count)),
                node_status::cpu.eq(i64::from(self.load.cpu)),
                node_status::free_memory.eq(self.load.free_memory as i64),
                node_status::creation_time.eq(self.now),
            ))
            .execute(tx.conn)?;
        Ok(())
    }
}

/// An operator's order for a node; other settings do not change.
#[derive(Debug, Clone)]
pub struct SetNodeWork {
    /// The node.
    pub node: NodeId,
    /// The new setting.
    pub work: NodeWork,
    /// The reason.
    pub reason: Option<String>,
    /// Who gave the order.
    pub by: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for SetNodeWork {
    type Output = NodeRecord;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<NodeRecord, StoreError> {
        let node = node::table.find(self.node);
        let said = (node::reason.eq(&self.reason), node::update_by.eq(&self.by), node::update_time.eq(self.now));
        let (draining, leaving) =
            (node::is_draining.eq(self.work == NodeWork::Draining), node::is_leaving.eq(self.work == NodeWork::Leaving));
        match self.work {
            NodeWork::Enabled | NodeWork::Disabled => {
                let enabled = node::is_enabled.eq(self.work == NodeWork::Enabled);
                diesel::update(node).set((enabled, draining, leaving, said)).execute(tx.conn)?
            }
            NodeWork::Draining | NodeWork::Leaving => diesel::update(node).set((draining, leaving, said)).execute(tx.conn)?,
        };
        Ok(node.select(NodeRecord::as_select()).get_result(tx.conn)?)
    }
}

/// Deletes a node and its reported load.
#[derive(Debug, Clone, Copy)]
pub struct DeleteNode(pub NodeId);

impl WriteOp for DeleteNode {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if diesel::delete(node::table.find(self.0)).execute(tx.conn)? == 0 {
            return Err(StoreError::NotFound);
        }
        diesel::delete(node_status::table.filter(node_status::node_id.eq(self.0))).execute(tx.conn)?;
        connections::forget(tx.conn, self.0)?;
        release_id(tx.conn, PeerId::Node(self.0))?;
        Ok(())
    }
}

/// Deletes load reports before a time: at most a few hundred rows, so that other writes do not wait long. Returns the number.
#[derive(Debug, Clone, Copy)]
pub struct PruneNodeStatus {
    /// Older reports are deleted.
    pub before: Timestamp,
}

/// Maximum rows per [`PruneNodeStatus`].
const PRUNE_AT_ONCE: i64 = 200;

impl WriteOp for PruneNodeStatus {
    type Output = usize;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<usize, StoreError> {
        // Rows are inserted in the order of time, so the oldest are found without an index on it.
        let oldest = node_status::table.order(node_status::id).limit(PRUNE_AT_ONCE).select(node_status::id);
        let oldest: Vec<i64> = oldest.load(tx.conn)?;
        let Some(last) = oldest.last() else { return Ok(0) };
        let old = node_status::table.filter(node_status::id.le(last)).filter(node_status::creation_time.lt(self.before));
        Ok(diesel::delete(old).execute(tx.conn)?)
    }
}

/// All nodes that were ever seen.
#[derive(Debug, Clone, Copy)]
pub struct ListNodes;

impl ReadOp for ListNodes {
    type Output = Vec<NodeRecord>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<NodeRecord>, StoreError> {
        Ok(node::table.select(NodeRecord::as_select()).order((node::creation_time, node::node_id)).load(from.conn)?)
    }
}

/// The names of all nodes; `None` for nodes without a name.
#[derive(Debug, Clone, Copy)]
pub struct NodeNames;

impl ReadOp for NodeNames {
    type Output = Vec<(NodeId, Option<String>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(node::table.select((node::node_id, node::name)).order(node::node_id).load(from.conn)?)
    }
}

/// The names of nodes and workers, by their ids; those without a name are left out.
#[derive(Debug, Clone)]
pub struct PeerNames(pub Vec<Uuid>);

impl ReadOp for PeerNames {
    type Output = HashMap<Uuid, String>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut names = HashMap::new();
        // Fewer than the maximum number of variables in a statement.
        for some in self.0.chunks(500) {
            let keys: Vec<Hex> = some.iter().copied().map(Hex::of).collect();
            let nodes: Vec<(Uuid, Option<String>)> =
                node::table.filter(node::node_id.eq_any(&keys)).select((node::node_id, node::name)).load(from.conn)?;
            let workers: Vec<(Uuid, Option<String>)> = worker_record::table
                .filter(worker_record::id.eq_any(&keys))
                .select((worker_record::id, worker_record::name))
                .load(from.conn)?;
            names.extend(workers.into_iter().chain(nodes).filter_map(|(id, name)| Some((id, name?))));
        }
        Ok(names)
    }
}

/// Number of nodes that were ever seen and not removed.
#[derive(Debug, Clone, Copy)]
pub struct CountNodes;

impl ReadOp for CountNodes {
    type Output = usize;

    fn read(&self, from: &mut Source<'_>) -> Result<usize, StoreError> {
        Ok(usize::try_from(node::table.count().get_result::<i64>(from.conn)?).unwrap_or(0))
    }
}

/// A node.
#[derive(Debug, Clone, Copy)]
pub struct GetNode(pub NodeId);

impl ReadOp for GetNode {
    type Output = Option<NodeRecord>;

    fn read(&self, from: &mut Source<'_>) -> Result<Option<NodeRecord>, StoreError> {
        Ok(node::table.find(self.0).select(NodeRecord::as_select()).get_result(from.conn).optional()?)
    }
}

/// The reported load of a node, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct NodeStatus {
    /// The node.
    pub node: NodeId,
    /// Only reports at this time or later.
    pub from: Option<Timestamp>,
    /// Only reports at this time or earlier.
    pub to: Option<Timestamp>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for NodeStatus {
    type Output = Vec<(NodeLoad, Timestamp)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let mut said = node_status::table.filter(node_status::node_id.eq(self.node)).into_boxed();
        if let Some(from) = self.from {
            said = said.filter(node_status::creation_time.ge(from));
        }
        if let Some(to) = self.to {
            said = said.filter(node_status::creation_time.le(to));
        }
        let rows = said
            .order(node_status::id.desc())
            .limit(self.limit as i64)
            .select((node_status::process_count, node_status::cpu, node_status::free_memory, node_status::creation_time))
            .load::<(u32, u32, u64, Timestamp)>(from.conn)?;
        let load = |(process_count, cpu, free_memory, time)| (NodeLoad { process_count, cpu, free_memory }, time);
        Ok(rows.into_iter().map(load).collect())
    }
}

/// The reported load of a node in steps of equal length, the oldest first: the averages of CPU and free memory, the highest number of blocks and
/// programs. Steps without a report are left out. A report counts for the time until the next one, because more reports are stored while the
/// load changes ([`NodeLoad::is_news`]); within its step, and for [`NodeLoad::VALID_MS`] at most.
#[derive(Debug, Clone, Copy)]
pub struct NodeLoadSteps {
    /// The node.
    pub node: NodeId,
    /// From this time on.
    pub from: Timestamp,
    /// The length of a step in milliseconds.
    pub step: i64,
}

#[derive(QueryableByName)]
struct LoadStep {
    #[diesel(sql_type = BigInt)]
    at: Timestamp,
    #[diesel(sql_type = BigInt)]
    cpu: u32,
    #[diesel(sql_type = BigInt)]
    free_memory: u64,
    #[diesel(sql_type = BigInt)]
    process_count: u32,
}

impl ReadOp for NodeLoadSteps {
    type Output = Vec<(NodeLoad, Timestamp)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        // One more millisecond, because two reports may have the same time. SQLite numbers the parameters in the order of the text.
        let text = "WITH report AS (SELECT creation_time, creation_time / $1 * $1 AS at, cpu, free_memory, process_count, \
                LEAD(creation_time, 1, creation_time + $2) OVER (ORDER BY id) AS next FROM node_status WHERE node_id = $3 AND creation_time >= $4), \
            ended AS (SELECT *, CASE WHEN next > at + $1 THEN at + $1 ELSE next END - creation_time AS length FROM report), \
            weighed AS (SELECT *, CASE WHEN length < 0 THEN 1 WHEN length > $2 THEN $2 ELSE length + 1 END AS weight FROM ended) \
            SELECT at, CAST(ROUND(SUM(cpu * weight) * 1.0 / SUM(weight)) AS BIGINT) AS cpu, \
                CAST(ROUND(SUM(free_memory * weight) * 1.0 / SUM(weight)) AS BIGINT) AS free_memory, MAX(process_count) AS process_count \
            FROM weighed GROUP BY at ORDER BY at";
        let query = diesel::sql_query(text)
            .bind::<BigInt, _>(self.step)
            .bind::<BigInt, _>(NodeLoad::VALID_MS)
            .bind::<Text, _>(self.node)
            .bind::<BigInt, _>(self.from);
        let rows = query.load::<LoadStep>(from.conn)?;
        let load = |LoadStep { at, cpu, free_memory, process_count }: LoadStep| (NodeLoad { process_count, cpu, free_memory }, at);
        Ok(rows.into_iter().map(load).collect())
    }
}

stored! {
    NodeRecord from node {
        is_enabled: bool,
        is_draining: bool,
        is_leaving: bool,
        reason: Option<String>,
        create_by: Option<String>,
        update_by: Option<String>,
        update_time: Timestamp,
        creation_time: Timestamp,
        last_online_time: Timestamp,
    } {
        node_id: NodeId,
        name: Option<String>,
        node_type: String,
        ip_address: String,
        processor_count: u32,
        group: String,
        operating_system: String,
        memory: u64,
        max_process_count: u32,
    }
    facts: NodeFacts {
        node_id,
        name,
        node_type,
        ip_address,
        processor_count,
        group,
        operating_system,
        memory,
        max_process_count,
        max_sites: None,
        max_programs: None,
    },
}
