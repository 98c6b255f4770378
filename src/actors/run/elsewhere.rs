//! Requests that failed at a node for a reason that another node may not have are tried at another one, if there is one.

use super::RunActor;
use crate::actors::placement::dispatcher::GrantElsewhere;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::node::SlotKind;
use crate::domain::time::Timestamp;
use crate::protocol::pack::Index;

/// Number of blocks, and of sites, for which another node is requested in a second.
const MOST_ASKED: usize = 100;

impl RunActor {
    /// Whether several nodes may take blocks of this run.
    pub(super) fn has_other_nodes(&self) -> bool {
        let queue = &self.run.queue;
        self.context.fleet.has_several(queue.node_group.as_deref(), queue.os.as_deref())
    }

    /// Whether a block's node should give back what it finds no way to: there are other nodes, and the block does not come from one.
    pub(super) fn may_move(&self, seq: Seq) -> bool {
        !self.kind.frontier.is_moved(seq) && self.has_other_nodes()
    }

    /// Whether a report gives back a request that its node found no way to, while there are other nodes.
    pub(super) fn is_for_another(&self, index: &Index) -> bool {
        let of_node = index.back.iter().filter_map(|back| back.error.as_ref()).any(|error| error.kind.is_of_node());
        of_node && self.has_other_nodes()
    }

    /// A waiting block failed at this node.
    pub(super) fn prefer_another(&mut self, seq: Seq, node: NodeId) {
        log::debug!("requests that failed at a node wait for another one block_id={} node_id={node}", self.block_id(seq));
        self.kind.frontier.prefer_another(seq, node, Timestamp::steady());
    }

    /// Requests other nodes for the blocks that failed at one.
    pub(super) fn request_elsewhere(&mut self) {
        let (blocks, sites) = self.kind.frontier.avoided(Timestamp::steady());
        if self.lifecycle.is_ending() || self.dispatches_nothing() {
            return;
        }
        let identity = self.identity();
        for (slot_kind, nodes) in [(SlotKind::Block, blocks), (SlotKind::Site, sites)] {
            for not in nodes.into_iter().take(MOST_ASKED) {
                self.context.dispatcher.grant_elsewhere(GrantElsewhere { identity, not, slot_kind });
            }
        }
    }
}
