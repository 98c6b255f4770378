//! Sends blocks to a node and releases them.

use super::{BlockDone, Held, Holds, NodeActor, SendBlock};
use crate::actors::session_sender::Frame;
use crate::domain::ids::BlockId;
use crate::domain::node::SlotKind;
use crate::protocol::frame;
use crate::protocol::node::{Block, ToNode};
use crate::protocol::zstd_frame;
use actix::Handler;
use bytes::Bytes;

impl NodeActor {
    /// All that is left of a block waits for slow answers: the node has one more free slot.
    pub(super) fn leaves_slot(&mut self, block_id: BlockId, attempt: u32) {
        if let Some(held) = self.held.get_mut(&block_id).filter(|held| held.attempt == attempt && !held.waits) {
            held.waits = true;
            let slot_kind = held.slot_kind;
            self.credit(slot_kind);
        }
    }

    /// Releases a block: the node has one more free slot.
    pub(super) fn release(&mut self, block_id: BlockId) {
        if let Some(held) = self.held.remove(&block_id).filter(|held| !held.waits) {
            self.credit(held.slot_kind);
        }
    }

    fn credit(&self, slot_kind: SlotKind) {
        // After a reconnect, a node can hold more blocks than its limit; then it gets no credit until it is below the limit.
        if self.free(slot_kind) > 0 && self.sender.is_some() {
            self.context.dispatcher.credit(self.id(), slot_kind);
        }
    }
}

/// Puts the requests into a block, for a peer that expects plain JSON.
///
/// # Errors
/// The stored requests are damaged.
pub fn with_requests(mut block: Block, requests: &[u8], raw_length: u32) -> Result<Block, String> {
    let text = zstd_frame::decompress(requests, raw_length as usize).map_err(|e| e.to_string())?;
    let text = String::from_utf8(text).map_err(|e| e.to_string())?;
    block.requests = Some(serde_json::value::RawValue::from_string(text).map_err(|e| e.to_string())?);
    Ok(block)
}

impl Handler<SendBlock> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: SendBlock, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.send_block");
        // Release the same kind of slot that was reserved.
        let usual = if m.block.pace.is_some() { SlotKind::Site } else { SlotKind::Block };
        let before = self.held.get(&m.block.block_id).map(|held| held.slot_kind);
        let slot_kind = m.permit.as_ref().map(|permit| permit.slot().kind).or(before).unwrap_or(usual);
        let sent_as = if self.sender.is_some() { self.sent + 1 } else { 0 };
        let (block_id, held) =
            (m.block.block_id, Held { identity: m.block.identity, attempt: m.block.attempt, slot_kind, waits: false, sent_as });
        if self.held.insert(block_id, held).is_none()
            && let Some(permit) = m.permit
        {
            permit.keep();
        }
        let Some(sender) = &self.sender else {
            // A node in polling mode gets the block with its next call. A node whose session closed reports in its first
            // heartbeat which blocks are missing.
            if self.closed_at.is_none() {
                self.undelivered = with_requests(m.block, &m.requests, m.raw_length).ok();
            }
            return;
        };
        if self.binary {
            sender.send(Frame::Binary(Bytes::from(frame::binary(&ToNode::Block(Box::new(m.block)), &m.requests))));
        } else {
            match with_requests(m.block, &m.requests, m.raw_length) {
                Ok(block) => sender.send(Frame::Text(frame::text(&ToNode::Block(Box::new(block))))),
                Err(error) => return log::error!("failed to read the stored requests of a block block_id={block_id}: {error}"),
            }
        }
        self.sent = sent_as;
    }
}

impl Handler<Holds> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: Holds, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("node.holds");
        let known = self.held.get(&m.block_id).filter(|held| held.attempt == m.attempt);
        let (waits, sent_as) = known.map_or((false, 0), |held| (held.waits, held.sent_as));
        let held = Held { identity: m.identity, attempt: m.attempt, slot_kind: m.slot_kind, waits, sent_as };
        let before = self.held.insert(m.block_id, held);
        if before.is_none_or(|before| before.slot_kind != m.slot_kind) {
            // The dispatcher reserved no slot for this block, or one of the other kind, which it would never get back.
            self.announce(ctx);
        }
    }
}

impl Handler<BlockDone> for NodeActor {
    type Result = ();
    fn handle(&mut self, m: BlockDone, _: &mut Self::Context) {
        let _timed = self.guard.timed("node.block_done");
        if m.notify_node {
            self.send(&ToNode::Drop { block_id: m.block_id, attempt: m.attempt });
        }
        if self.held.get(&m.block_id).is_some_and(|held| held.attempt <= m.attempt) {
            self.release(m.block_id);
        }
    }
}
