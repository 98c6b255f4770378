//! A block that parts: some of its requests have results and others do not.

use super::super::block::Phase;
use super::super::ids::Seq;
use super::{Frontier, SiteNo};

impl Frontier {
    /// Some requests of a block have results, which are on their way to the disk as a block of their own. The others stay
    /// where they are.
    pub fn begin_part(&mut self, seq: Seq) -> Seq {
        let part = self.new_block(self.site_of(seq), self.priority_of(seq));
        self.set(part, Phase::Reporting);
        part
    }

    /// Some requests of a block wait again, as a block of their own that is on its way to the disk: see [`Self::stored`].
    pub fn begin_rest(&mut self, seq: Seq, site: Option<SiteNo>) -> Seq {
        self.storing += 1;
        self.new_block(site, self.priority_of(seq))
    }

    /// No request of a block has a result, which is on disk: it waits again, and this hand-out does not count as lost.
    pub fn given_back(&mut self, seq: Seq) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        *self.given_back.entry(seq).or_insert(0) += 1;
        self.wait_again(seq);
    }

    /// Hand-outs of a block that were lost, of so many.
    #[must_use]
    pub fn losses(&self, seq: Seq, attempt: u32) -> u32 {
        attempt.saturating_sub(self.given_back.get(&seq).copied().unwrap_or(0))
    }
}
