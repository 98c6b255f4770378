//! Nodes, and the load that they reported.

use super::columns::{Hex, id};
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
        let facts = FactsRow::of(&self.facts);
        let key = Hex::of(self.facts.node_id.0);
        diesel::insert_into(node::table)
            .values((
                &facts,
                node::node_id.eq(key.text()),
                node::is_enabled.eq(true),
                node::creation_time.eq(self.now.0),
                node::create_by.eq(self.by.as_deref()),
                node::update_time.eq(self.now.0),
                node::last_online_time.eq(self.now.0),
            ))
            .with_conflict_rule(FactsRow::CHANGE)
            .execute(tx.conn)?;
        connections::open(tx.conn, key.text(), &self.facts.ip_address, self.now)?;
        node::table.find(key.text()).select(NodeRow::as_select()).get_result(tx.conn)?.try_into()
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

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let key = Hex::of(self.node.0);
        let known = diesel::update(node::table.find(key.text())).set(node::last_online_time.eq(self.now.0)).execute(tx.conn)?;
        if known == 0 {
            return Err(StoreError::NotFound);
        }
        diesel::insert_into(node_status::table)
            .values((
                node_status::node_id.eq(key.text()),
                node_status::process_count.eq(i64::from(self.load.process_count)),
                node_status::cpu.eq(i64::from(self.load.cpu)),
                node_status::free_memory.eq(self.load.free_memory as i64),
                node_status::creation_time.eq(self.now.0),
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
        let key = Hex::of(self.node.0);
        let node = node::table.find(key.text());
        let said = (node::reason.eq(self.reason.as_deref()), node::update_by.eq(self.by.as_deref()), node::update_time.eq(self.now.0));
        let (draining, leaving) =
            (node::is_draining.eq(self.work == NodeWork::Draining), node::is_leaving.eq(self.work == NodeWork::Leaving));
        match self.work {
            NodeWork::Enabled | NodeWork::Disabled => {
                let enabled = node::is_enabled.eq(self.work == NodeWork::Enabled);
                diesel::update(node).set((enabled, draining, leaving, said)).execute(tx.conn)?
            }
            NodeWork::Draining | NodeWork::Leaving => diesel::update(node).set((draining, leaving, said)).execute(tx.conn)?,
        };
        node.select(NodeRow::as_select()).get_result(tx.conn).optional()?.ok_or(StoreError::NotFound)?.try_into()
    }
}

/// Deletes a node and its reported load.
#[derive(Debug, Clone, Copy)]
pub struct DeleteNode(pub NodeId);

impl WriteOp for DeleteNode {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let key = Hex::of(self.0.0).text().to_owned();
        if diesel::delete(node::table.find(&key)).execute(tx.conn)? == 0 {
            return Err(StoreError::NotFound);
        }
        diesel::delete(node_status::table.filter(node_status::node_id.eq(&key))).execute(tx.conn)?;
        connections::forget(tx.conn, &key)?;
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
        let old = node_status::table.filter(node_status::id.le(last)).filter(node_status::creation_time.lt(self.before.0));
        Ok(diesel::delete(old).execute(tx.conn)?)
    }
}

/// All nodes that were ever seen.
#[derive(Debug, Clone, Copy)]
pub struct ListNodes;

impl ReadOp for ListNodes {
    type Output = Vec<NodeRecord>;

    fn read(&self, from: &mut Source<'_>) -> Result<Vec<NodeRecord>, StoreError> {
        let rows = node::table.select(NodeRow::as_select()).order((node::creation_time, node::node_id)).load(from.conn)?;
        rows.into_iter().map(TryInto::try_into).collect()
    }
}

/// The names of all nodes; `None` for nodes without a name.
#[derive(Debug, Clone, Copy)]
pub struct NodeNames;

impl ReadOp for NodeNames {
    type Output = Vec<(NodeId, Option<String>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let rows: Vec<(String, Option<String>)> = node::table.select((node::node_id, node::name)).order(node::node_id).load(from.conn)?;
        rows.into_iter().map(|(key, name)| Ok((id(&key)?, name))).collect()
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
            let keys: Vec<String> = some.iter().map(|id| id.simple().to_string()).collect();
            let nodes: Vec<(String, Option<String>)> =
                node::table.filter(node::node_id.eq_any(&keys)).select((node::node_id, node::name)).load(from.conn)?;
            let workers: Vec<(String, Option<String>)> = worker_record::table
                .filter(worker_record::id.eq_any(&keys))
                .select((worker_record::id, worker_record::name))
                .load(from.conn)?;
            for (key, name) in workers.into_iter().chain(nodes) {
                if let Some(name) = name {
                    names.insert(id::<NodeId>(&key)?.0, name);
                }
            }
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
        let key = Hex::of(self.0.0);
        let row = node::table.find(key.text()).select(NodeRow::as_select()).get_result(from.conn).optional()?;
        row.map(TryInto::try_into).transpose()
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
        let key = Hex::of(self.node.0);
        let mut said = node_status::table.filter(node_status::node_id.eq(key.text())).into_boxed();
        if let Some(from) = self.from {
            said = said.filter(node_status::creation_time.ge(from.0));
        }
        if let Some(to) = self.to {
            said = said.filter(node_status::creation_time.le(to.0));
        }
        let rows = said
            .order(node_status::id.desc())
            .limit(self.limit as i64)
            .select((node_status::process_count, node_status::cpu, node_status::free_memory, node_status::creation_time))
            .load::<(i64, i64, i64, i64)>(from.conn)?;
        let load = |(process_count, cpu, free_memory, time)| {
            let load = NodeLoad { process_count: process_count as u32, cpu: cpu as u32, free_memory: free_memory as u64 };
            (load, Timestamp(time))
        };
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
    at: i64,
    #[diesel(sql_type = BigInt)]
    cpu: i64,
    #[diesel(sql_type = BigInt)]
    free_memory: i64,
    #[diesel(sql_type = BigInt)]
    process_count: i64,
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
            .bind::<Text, _>(Hex::of(self.node.0))
            .bind::<BigInt, _>(self.from.0);
        let rows = query.load::<LoadStep>(from.conn)?;
        let load = |row: LoadStep| {
            let load = NodeLoad { process_count: row.process_count as u32, cpu: row.cpu as u32, free_memory: row.free_memory as u64 };
            (load, Timestamp(row.at))
        };
        Ok(rows.into_iter().map(load).collect())
    }
}

/// The columns that the node itself determines.
#[derive(Insertable)]
#[diesel(table_name = node)]
struct FactsRow<'a> {
    /// A node that sends no name, as HTTP allows, keeps its name.
    name: Option<&'a str>,
    node_type: &'a str,
    ip_address: &'a str,
    processor_count: i64,
    group: &'a str,
    operating_system: &'a str,
    memory: i64,
    max_process_count: i64,
}

impl<'a> FactsRow<'a> {
    /// For a node that is known already.
    const CHANGE: &'static str = "(node_id) DO UPDATE SET name = COALESCE(excluded.name, node.name), node_type = excluded.node_type, \
        ip_address = excluded.ip_address, processor_count = excluded.processor_count, \"group\" = excluded.\"group\", \
        operating_system = excluded.operating_system, memory = excluded.memory, max_process_count = excluded.max_process_count, \
        last_online_time = excluded.last_online_time";

    fn of(facts: &'a NodeFacts) -> Self {
        Self {
            name: facts.name.as_deref(),
            node_type: &facts.node_type,
            ip_address: &facts.ip_address,
            processor_count: i64::from(facts.processor_count),
            group: &facts.group,
            operating_system: &facts.operating_system,
            memory: facts.memory as i64,
            max_process_count: i64::from(facts.max_process_count),
        }
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = node)]
struct NodeRow {
    node_id: String,
    node_type: String,
    ip_address: String,
    processor_count: i64,
    group: String,
    operating_system: String,
    memory: i64,
    max_process_count: i64,
    is_enabled: bool,
    creation_time: i64,
    last_online_time: i64,
    is_draining: bool,
    is_leaving: bool,
    reason: Option<String>,
    create_by: Option<String>,
    update_by: Option<String>,
    update_time: i64,
    name: Option<String>,
}

impl TryFrom<NodeRow> for NodeRecord {
    type Error = StoreError;

    fn try_from(row: NodeRow) -> Result<Self, StoreError> {
        let facts = NodeFacts {
            node_id: id(&row.node_id)?,
            name: row.name,
            node_type: row.node_type,
            ip_address: row.ip_address,
            processor_count: row.processor_count as u32,
            group: row.group,
            operating_system: row.operating_system,
            memory: row.memory as u64,
            max_process_count: row.max_process_count as u32,
            max_sites: None,
            max_programs: None,
        };
        Ok(Self {
            facts,
            is_enabled: row.is_enabled,
            is_draining: row.is_draining,
            is_leaving: row.is_leaving,
            reason: row.reason,
            create_by: row.create_by,
            update_by: row.update_by,
            update_time: Timestamp(row.update_time),
            creation_time: Timestamp(row.creation_time),
            last_online_time: Timestamp(row.last_online_time),
        })
    }
}
