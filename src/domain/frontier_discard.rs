//! Results that are lost after they were stored.

use super::super::block::{Lost, Phase};
use super::super::ids::Seq;
use super::Frontier;

impl Frontier {
    /// The results of a delivered block are lost, which is on its way to the disk. False if it is not delivered (any more).
    pub fn begin_discard(&mut self, seq: Seq) -> bool {
        let is_delivered = self.phase(seq) == Some(Phase::Delivered);
        if is_delivered {
            self.deliveries.remove(&seq);
            self.set(seq, Phase::Reporting);
        }
        is_delivered
    }

    /// That the results of a block are lost is on disk, with what they had counted for: it is ready again, unless it was
    /// handed out as often as it may be.
    pub fn discarded(&mut self, seq: Seq, success: u32, error: u32, attempt: u32) -> Lost {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        self.counters.success -= u64::from(success);
        self.counters.error -= u64::from(error);
        if attempt >= self.settings.block_attempts {
            return Lost::Exhausted(attempt);
        }
        self.attempts.insert(seq, attempt);
        self.wait_again(seq);
        Lost::Retry(attempt)
    }
}
