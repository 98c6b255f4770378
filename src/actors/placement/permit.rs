//! A reserved slot, as a value.

use crate::domain::ids::{NodeId, WorkerId};
use crate::domain::node::SlotKind;
use std::fmt;

/// A reserved slot. It is free again when the permit is dropped, also if the message with the permit is lost or its receiver ends.
pub struct Permit<Slot> {
    slot: Slot,
    /// See [`Permit::of_leader`].
    number: Option<u64>,
    release: Option<Box<dyn FnOnce() + Send>>,
}

/// A slot at a node, for one block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeSlot {
    /// The node.
    pub node: NodeId,
    /// The kind of slot.
    pub kind: SlotKind,
    /// The node accepts many requests to one site, and limits their pace by itself.
    pub keeps_pace: bool,
}

/// A slot at a worker, for one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerSlot {
    /// The worker.
    pub worker: WorkerId,
}

impl<Slot: Copy> Permit<Slot> {
    /// A permit for a slot that was reserved. `release` makes the slot free again; it is called once at most. It notifies the actor that
    /// reserved the slot: one that replaced this actor has not counted the slot.
    #[must_use]
    pub fn new(slot: Slot, release: impl FnOnce() + Send + 'static) -> Self {
        Self { slot, number: None, release: Some(Box::new(release)) }
    }

    /// The slot.
    #[must_use]
    pub fn slot(&self) -> Slot {
        self.slot
    }
}

impl Permit<NodeSlot> {
    /// A permit that the leader has under this number. `release` notifies the leader.
    #[must_use]
    pub fn of_leader(slot: NodeSlot, number: u64, release: impl FnOnce() + Send + 'static) -> Self {
        let mut permit = Self::new(slot, release);
        permit.number = Some(number);
        permit
    }

    /// The number that the leader knows it by; 0 if it is not a permit of the leader.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.number.unwrap_or_default()
    }

    /// The number that the leader knows it by. The slot stays reserved: the leader has the permit.
    #[must_use]
    pub fn into_number(mut self) -> Option<u64> {
        self.release = None;
        self.number
    }

    /// The slot stays reserved: a block is at the node. From now on the node reports when the slot is free.
    pub fn keep(mut self) {
        self.release = None;
    }
}

impl<Slot> Drop for Permit<Slot> {
    fn drop(&mut self) {
        if let Some(release) = self.release.take() {
            release();
        }
    }
}

impl<Slot: fmt::Debug> fmt::Debug for Permit<Slot> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.slot).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

    #[test]
    fn a_slot_is_released_once_unless_its_user_keeps_it() {
        let released = Arc::new(AtomicU32::new(0));
        let permit = || {
            let released = Arc::clone(&released);
            let slot = NodeSlot { node: NodeId::random(), kind: SlotKind::Block, keeps_pace: false };
            Permit::new(slot, move || {
                released.fetch_add(1, Relaxed);
            })
        };
        drop(permit());
        assert_eq!(released.load(Relaxed), 1);
        permit().keep();
        assert_eq!(released.load(Relaxed), 1);
    }
}
