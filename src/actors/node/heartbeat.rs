//! Heartbeats: the state that a node reports.

use super::{Held, ListBlocks, NodeActor, NodeHeartbeat, PullWithHeartbeat};
use crate::actors::placement::dispatcher::PullBlock;
use crate::actors::run::NodeHolds;
use crate::domain::ids::{BlockId, Identity};
use crate::domain::node::{NodeLoad, SlotKind};
use crate::domain::time::Timestamp;
use crate::protocol::node::{Heartbeat, Holding};
use crate::store::AddNodeStatus;
use actix::{Context, Handler};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// A block that a node lists.
fn held(block: &Holding) -> Held {
    Held { identity: block.identity, attempt: block.attempt, slot_kind: SlotKind::Block, waits: block.waits, sent_as: 0 }
}

impl NodeActor {
    fn heartbeat_received(&mut self, heartbeat: &Heartbeat, ctx: &mut Context<Self>) {
        let (now, steady) = (Timestamp::now(), Timestamp::steady());
        (self.last_message, self.last_seen) = (steady, now);
        // Without a socket, the node calls over HTTP now.
        self.closed_at = None;
        let load = NodeLoad { process_count: heartbeat.process_count, cpu: heartbeat.cpu, free_memory: heartbeat.free_memory };
        self.load = Some(load);
        if self.stored.is_none_or(|(stored, at)| load.is_news(&stored, steady.since_ms(at))) {
            self.stored = Some((load, steady));
            // Only for later inspection. Nothing waits for this write, and losing it in a crash is acceptable.
            drop(self.context.store.write(AddNodeStatus { node: self.id(), load, now }));
        }
        if let Some(holding) = &heartbeat.holding {
            self.compare(holding, heartbeat.received);
        }
        self.compare_programs(heartbeat.programs.as_deref());
        self.send_requested_work();
        self.publish();
        if !self.has_listed_blocks {
            self.has_listed_blocks = true;
            self.announce(ctx);
        }
    }

    /// Sends each run its blocks on this node. The run renews the leases and resends blocks that did not arrive.
    /// `received`: how many of the blocks that were sent in this session the node had got.
    fn compare(&mut self, holding: &[Holding], received: Option<u64>) {
        let listed: HashSet<BlockId> = holding.iter().map(|block| block.block_id).collect();
        let nothing = NodeHolds { node: self.id(), blocks: Vec::new(), unlisted: Vec::new(), coming: Vec::new() };
        // Also those whose blocks this actor does not have: their message may have gone to an earlier one.
        let involved = self.context.addresses.runs_by_node.of(self.id());
        let mut by_run: HashMap<Identity, NodeHolds> = involved.into_iter().map(|identity| (identity, nothing.clone())).collect();
        for (block_id, held) in &self.held {
            let run = by_run.entry(held.identity).or_insert_with(|| nothing.clone());
            match block_id.seq_in(held.identity).filter(|_| !listed.contains(block_id)) {
                Some(seq) if received.is_some_and(|received| held.sent_as > received) => run.coming.push(seq),
                Some(seq) => run.unlisted.push((seq, held.attempt)),
                None => {}
            }
        }
        for block in holding {
            if block.waits {
                self.leaves_slot(block.block_id, block.attempt);
            }
            if let Some(seq) = block.block_id.seq_in(block.identity) {
                by_run.entry(block.identity).or_insert_with(|| nothing.clone()).blocks.push((seq, block.attempt));
                if !self.has_listed_blocks {
                    // Blocks that the node already has use slots at once, before their run answers; it rejects those that are not valid.
                    self.held.entry(block.block_id).or_insert(held(block));
                }
            }
        }
        for (identity, holds) in by_run {
            match self.context.addresses.block_run(identity) {
                Some(run) => run.node_holds(holds),
                // The run's actor is being built and may still need these blocks, so the node keeps them.
                None if self.context.addresses.building.get(identity).is_some() => {}
                None => self.forget(identity, holding),
            }
        }
    }

    /// Drops all blocks of a run that has ended.
    fn forget(&mut self, identity: Identity, holding: &[Holding]) {
        for block in holding.iter().filter(|block| block.identity == identity) {
            self.send(&crate::protocol::node::ToNode::Drop { block_id: block.block_id, attempt: block.attempt });
        }
        let gone: Vec<_> = self.held.iter().filter(|(_, held): &(_, &Held)| held.identity == identity).map(|(id, _)| *id).collect();
        for block_id in gone {
            self.release(block_id);
        }
    }
}

impl Handler<NodeHeartbeat> for NodeActor {
    type Result = ();
    fn handle(&mut self, NodeHeartbeat(heartbeat): NodeHeartbeat, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.heartbeat");
        self.heartbeat_received(&heartbeat, ctx);
    }
}

impl Handler<ListBlocks> for NodeActor {
    type Result = ();
    fn handle(&mut self, ListBlocks(identity): ListBlocks, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.list_blocks");
        let of_run = self.held.iter().filter(|(_, held)| held.identity == identity);
        let blocks: Vec<_> = of_run.filter_map(|(block, held)| Some((block.seq_in(identity)?, held.attempt))).collect();
        if let Some(run) = self.context.addresses.block_run(identity).filter(|_| !blocks.is_empty()) {
            run.node_holds(NodeHolds { node: self.id(), blocks, unlisted: Vec::new(), coming: Vec::new() });
        }
    }
}

impl Handler<PullWithHeartbeat> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: PullWithHeartbeat, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.pull");
        self.heartbeat_received(&m.heartbeat, ctx);
        if let Some(block) = self.undelivered.take().filter(|block| self.held.contains_key(&block.block_id)) {
            return m.reply.send(Ok(Some(block)));
        }
        let full = self.free(SlotKind::Block) == 0 || self.free(SlotKind::Site) == 0;
        if full || !self.enabled {
            return m.reply.send(Ok(None));
        }
        let (facts, node) = (Arc::clone(&self.facts), self.link(ctx));
        self.context.dispatcher.pull(PullBlock { facts, node, without: m.without, reply: m.reply });
    }
}
