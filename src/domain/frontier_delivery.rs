//! Delivery of results to workers, until they are acknowledged.

use super::super::block::{AckVerdict, Phase};
use super::super::ids::{Seq, WorkerId};
use super::super::time::Timestamp;
use super::Frontier;

/// Maximum number of blocks that are delivered and not yet acknowledged; a worker that only polls gets no more.
pub const MOST_DELIVERED: usize = 1_024;

#[derive(Debug, Clone, Copy)]
pub(super) struct Delivery {
    no: u64,
    worker: Option<WorkerId>,
    until: Timestamp,
}

impl Frontier {
    /// Whether a poll would return a block.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.answered_open > 0 && self.deliveries.len() < MOST_DELIVERED
    }

    /// Delivers results to a worker: the block, and the number of this delivery, which no other delivery has. `None` if there are none, or
    /// too many are unacknowledged.
    pub fn deliver(&mut self, worker: Option<WorkerId>, now: Timestamp) -> Option<(Seq, u64)> {
        if self.deliveries.len() >= MOST_DELIVERED {
            return None;
        }
        // An entry is stale if its block was acknowledged meanwhile.
        let seq = loop {
            let seq = self.answered.pop_front()?;
            if self.phase(seq) == Some(Phase::Answered) {
                break seq;
            }
        };
        self.answered_open -= 1;
        self.set(seq, Phase::Delivered);
        self.last_delivery += 1;
        self.deliveries.insert(seq, Delivery { no: self.last_delivery, worker, until: now.plus_ms(self.settings.ack_wait as i64) });
        Some((seq, self.last_delivery))
    }

    /// Whether this is the present delivery of the block: it is not acknowledged, and was not taken back.
    #[must_use]
    pub fn is_delivery(&self, seq: Seq, no: u64) -> bool {
        self.deliveries.get(&seq).is_some_and(|delivery| delivery.no == no)
    }

    /// Returns undelivered results to the front of the queue.
    fn take_back(&mut self, seq: Seq) {
        if self.phase(seq) == Some(Phase::Delivered) {
            self.deliveries.remove(&seq);
            self.set(seq, Phase::Answered);
            self.answered.push_front(seq);
            self.answered_open += 1;
        }
    }

    /// A delivery did not reach its receiver: the results return to the front of the queue. A later delivery of the same block stays.
    pub fn take_back_of(&mut self, seq: Seq, no: u64) {
        if self.is_delivery(seq, no) {
            self.take_back(seq);
        }
    }

    /// A worker is gone: its unacknowledged blocks become available to other workers. Returns true if there were any.
    pub fn worker_gone(&mut self, worker: WorkerId) -> bool {
        self.take_back_where(|_, delivery| delivery.worker == Some(worker)) > 0
    }

    /// A worker lists the blocks that it has received. Its other deliveries were in answers that it did not receive: they become available again.
    /// Returns their number.
    pub fn keep_only(&mut self, worker: WorkerId, held: &[Seq]) -> usize {
        self.take_back_where(|seq, delivery| delivery.worker == Some(worker) && !held.contains(&seq))
    }

    /// Makes blocks that were not acknowledged in time available again. Returns true if there were any.
    pub fn expire_deliveries(&mut self, now: Timestamp) -> bool {
        self.take_back_where(|_, delivery| delivery.until <= now) > 0
    }

    /// Makes deliveries older than `since` available again if their worker is not connected: the loss of a worker that polls
    /// and never connects is not detected otherwise. Returns true if there were any.
    pub fn forget_strangers(&mut self, since: Timestamp, is_there: impl Fn(WorkerId) -> bool) -> bool {
        let latest = since.plus_ms(self.settings.ack_wait as i64);
        self.take_back_where(|_, delivery| delivery.until <= latest && delivery.worker.is_some_and(|worker| !is_there(worker))) > 0
    }

    fn take_back_where(&mut self, which: impl Fn(Seq, &Delivery) -> bool) -> usize {
        let mut back: Vec<Seq> = self.deliveries.iter().filter(|(seq, delivery)| which(**seq, delivery)).map(|(seq, _)| *seq).collect();
        back.sort_unstable_by(|a, b| b.cmp(a));
        for seq in &back {
            self.take_back(*seq);
        }
        back.len()
    }

    /// Whether an acknowledgement is accepted.
    #[must_use]
    pub fn check_ack(&self, seq: Seq) -> AckVerdict {
        match self.phase(seq) {
            None | Some(Phase::Storing) => AckVerdict::Unknown,
            Some(Phase::Answered | Phase::Delivered) => AckVerdict::Current,
            Some(Phase::Acking | Phase::Done) => AckVerdict::Already,
            Some(_) => AckVerdict::NotAnswered,
        }
    }

    /// Whether the acknowledgement of a block is being written.
    #[must_use]
    pub fn is_acking(&self, seq: Seq) -> bool {
        self.phase(seq) == Some(Phase::Acking)
    }

    /// The acknowledgement of a block is being written.
    pub fn begin_ack(&mut self, seq: Seq) {
        if self.phase(seq) == Some(Phase::Answered) {
            self.answered_open -= 1;
        }
        self.deliveries.remove(&seq);
        self.set(seq, Phase::Acking);
    }

    /// The acknowledgement of a block is on disk.
    pub fn acked(&mut self, seq: Seq) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Acking));
        self.set(seq, Phase::Done);
        self.priorities.remove(&seq);
        self.open -= 1;
    }
}
