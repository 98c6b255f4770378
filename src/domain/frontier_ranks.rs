//! Blocks that wait for a node in an explicit order: by priority, and those of one priority in the order in which they came.
//!
//! A block of priority 0 is here only if it waits again, and then goes before those of priority 0 that wait for the first time.

use super::super::ids::Seq;
use super::{Frontier, Phase};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Ranks {
    /// The highest priority first; no queue is empty.
    queues: BTreeMap<Reverse<i8>, VecDeque<Seq>>,
    blocks: usize,
}

impl Ranks {
    pub(super) fn len(&self) -> usize {
        self.blocks
    }

    pub(super) fn push(&mut self, priority: i8, seq: Seq) {
        self.queues.entry(Reverse(priority)).or_default().push_back(seq);
        self.blocks += 1;
    }

    /// The next block, if its priority is at least `least`.
    pub(super) fn pop(&mut self, least: i8) -> Option<Seq> {
        let mut first = self.queues.first_entry().filter(|queue| queue.key().0 >= least)?;
        let seq = first.get_mut().pop_front();
        if first.get().is_empty() {
            first.remove();
        }
        self.blocks -= usize::from(seq.is_some());
        seq
    }

    pub(super) fn remove(&mut self, priority: i8, seq: Seq) {
        let Some(queue) = self.queues.get_mut(&Reverse(priority)) else { return };
        let before = queue.len();
        queue.retain(|other| *other != seq);
        self.blocks -= before - queue.len();
        if queue.is_empty() {
            self.queues.remove(&Reverse(priority));
        }
    }

    /// The blocks of these priorities in their order.
    pub(super) fn iter(&self, of: impl Fn(i8) -> bool) -> impl Iterator<Item = Seq> {
        self.queues.iter().filter(move |(priority, _)| of(priority.0)).flat_map(|(_, queue)| queue.iter().copied())
    }
}

impl Frontier {
    /// Removes a waiting block from its queue. False if it does not wait.
    pub(super) fn take_from_queue(&mut self, seq: Seq) -> bool {
        match self.phase(seq) {
            Some(Phase::Ready) => {
                self.ready -= 1;
                self.set(seq, Phase::Retry);
            }
            Some(Phase::Retry) => {
                self.ranks.remove(self.priority_of(seq), seq);
                self.leave_elsewhere(seq);
            }
            Some(Phase::Queued) => self.dequeue(seq),
            _ => return false,
        }
        true
    }

    /// The priority of the requests of a block.
    #[must_use]
    pub fn priority_of(&self, seq: Seq) -> i8 {
        self.priorities.get(&seq).copied().unwrap_or(0)
    }

    pub(super) fn set_priority(&mut self, seq: Seq, priority: i8) {
        if priority != 0 {
            self.priorities.insert(seq, priority);
        }
    }
}
