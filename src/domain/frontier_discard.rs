//! Loss of results that were already stored.

use super::super::block::{Lost, Phase};
use super::super::ids::Seq;
use super::Frontier;

impl Frontier {
    /// The results of a delivered block are lost; this is being written. Returns false if the block is not delivered (any more).
    pub fn begin_discard(&mut self, seq: Seq) -> bool {
        let is_delivered = self.phase(seq) == Some(Phase::Delivered);
        if is_delivered {
            self.deliveries.remove(&seq);
            self.set(seq, Phase::Reporting);
        }
        is_delivered
    }

    /// The loss of a block's results is on disk, and the counters exclude them: the block is ready again, unless it has no attempts left.
    pub fn discarded(&mut self, seq: Seq, success: u32, error: u32, attempt: u32) -> Lost {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        self.counters.success -= u64::from(success);
        self.counters.error -= u64::from(error);
        self.uncount_results(seq, success, error);
        if attempt >= self.settings.block_attempts {
            return Lost::Exhausted(attempt);
        }
        self.attempts.insert(seq, attempt);
        self.wait_again(seq);
        Lost::Retry(attempt)
    }
}
