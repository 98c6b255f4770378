//! Splits a block when only some of its requests have results.

use super::super::block::Phase;
use super::super::ids::Seq;
use super::{Frontier, SiteNo};

impl Frontier {
    /// Some requests of a block have results, which are being written as a block of their own. The others stay in this block.
    pub fn begin_part(&mut self, seq: Seq) -> Seq {
        let part = self.new_block(self.site_of(seq), self.priority_of(seq));
        self.set(part, Phase::Reporting);
        part
    }

    /// Some requests of a block wait again, as a new block that is being written: see [`Self::stored`].
    pub fn begin_rest(&mut self, seq: Seq, site: Option<SiteNo>) -> Seq {
        self.storing += 1;
        self.new_block(site, self.priority_of(seq))
    }

    /// It is on disk that no request of a block has a result: the block waits again, and this attempt does not count as lost.
    pub fn given_back(&mut self, seq: Seq) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        *self.given_back.entry(seq).or_insert(0) += 1;
        self.wait_again(seq);
    }

    /// Lost attempts of a block, given its number of attempts.
    #[must_use]
    pub fn losses(&self, seq: Seq, attempt: u32) -> u32 {
        attempt.saturating_sub(self.given_back.get(&seq).copied().unwrap_or(0))
    }
}
