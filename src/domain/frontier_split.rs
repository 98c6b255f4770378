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

    /// Some requests of a block wait again, as a new block that is being written: see [`Self::stored`]. `lost`: the attempts in which a
    /// node may have sent them.
    pub fn begin_rest(&mut self, seq: Seq, site: Option<SiteNo>, lost: u32) -> Seq {
        self.storing += 1;
        let rest = self.new_block(site, self.priority_of(seq));
        if lost > 0 {
            self.attempts.insert(rest, lost);
        }
        rest
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

    /// The attempts of a block that are known.
    #[must_use]
    pub fn attempts_of(&self, seq: Seq) -> u32 {
        self.attempts.get(&seq).copied().unwrap_or(0)
    }

    /// Lost attempts of a block, except this one, which was not lost.
    #[must_use]
    pub fn other_losses(&self, seq: Seq, attempt: Option<u32>) -> u32 {
        let known = self.attempts_of(seq);
        // After a restart only lost attempts are known.
        let is_known = attempt.is_none_or(|attempt| attempt <= known);
        self.losses(seq, known.saturating_sub(u32::from(is_known)))
    }

    /// Whether no later attempt of a block than this one is known.
    #[must_use]
    pub fn is_last_attempt(&self, seq: Seq, attempt: Option<u32>) -> bool {
        attempt.is_none_or(|attempt| attempt >= self.attempts_of(seq))
    }

    /// A node has a block in this attempt, perhaps since before a restart. Only lost attempts are stored: the others before it were given back.
    pub(super) fn note_attempt(&mut self, seq: Seq, attempt: u32) {
        let known = self.attempts_of(seq);
        if attempt > known {
            let given_back = (attempt - 1).saturating_sub(self.losses(seq, known));
            self.attempts.insert(seq, attempt);
            if given_back > 0 {
                self.given_back.insert(seq, given_back);
            }
        }
    }

    /// A node had a waiting block in this attempt, perhaps since before a restart, and is lost or has to drop it: the attempt counts as lost,
    /// because the node may have sent some of its requests. Returns the lost attempts of the block, unless this one was known.
    pub fn note_loss(&mut self, seq: Seq, attempt: u32) -> Option<u32> {
        let waits = matches!(self.phase(seq), Some(Phase::Ready | Phase::Retry | Phase::Queued));
        if !waits || attempt <= self.attempts_of(seq) {
            return None;
        }
        self.note_attempt(seq, attempt);
        Some(self.losses(seq, attempt))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::block::{Lost, StoredBlock};
    use super::super::super::ids::NodeId;
    use super::super::super::seen::SeenSet;
    use super::super::super::settings::QueueSettings;
    use super::super::super::time::Timestamp;
    use super::*;

    const T: Timestamp = Timestamp(1_000);

    fn node(n: u128) -> NodeId {
        NodeId(uuid::Uuid::from_u128(n))
    }

    /// A run with one block, which was lost so often before a restart.
    fn restored(attempts: u32) -> Frontier {
        let phase = if attempts > 0 { Phase::Retry } else { Phase::Ready };
        let block = StoredBlock { seq: 0, site: None, priority: 0, phase, attempts, requests: 3, success: 0, error: 0, bytes: 0 };
        Frontier::restore(QueueSettings { block_attempts: 3, ..QueueSettings::default() }, true, &[block], SeenSet::new())
    }

    #[test]
    fn requests_that_a_lost_node_may_have_sent_keep_the_loss_in_a_block_of_their_own() {
        let mut frontier = restored(0);
        frontier.lease(node(1), T).expect("a block");
        frontier.lost(0, node(1), 1).expect("it was there");
        let (_, lease) = frontier.lease(node(2), T).expect("a block");
        assert_eq!((lease.attempt, frontier.other_losses(0, Some(2)), frontier.losses(0, 2)), (2, 1, 2));
        frontier.begin_report(0);
        let rest = frontier.begin_rest(0, None, frontier.other_losses(0, Some(2)));
        frontier.stored(rest, 0);
        frontier.reported(0, 1, 0);
        let (seq, lease) = frontier.lease(node(3), T).expect("the rest");
        assert_eq!((seq, lease.attempt, frontier.losses(rest, lease.attempt - 1)), (rest, 2, 1));
        // A report from before a restart: its attempt is not among those that are known.
        assert_eq!((restored(1).other_losses(0, Some(2)), restored(1).other_losses(0, Some(1))), (1, 0));
    }

    #[test]
    fn attempts_that_were_given_back_before_a_restart_do_not_count_as_lost() {
        let mut frontier = restored(1);
        assert!(frontier.adopt(0, node(1), 9, T));
        assert_eq!((frontier.losses(0, 8), frontier.losses(0, 9)), (1, 2));
        assert_eq!(frontier.lost(0, node(1), 9), Some(Lost::Retry(9)));
        let (_, lease) = frontier.lease(node(2), T).expect("it waits again");
        assert_eq!((lease.attempt, frontier.lost(0, node(2), 10)), (10, Some(Lost::Exhausted(10))), "the third loss");
    }

    #[test]
    fn a_node_that_had_a_waiting_block_may_have_sent_its_requests() {
        let mut frontier = restored(1);
        assert_eq!((frontier.note_loss(0, 1), frontier.note_loss(0, 4), frontier.note_loss(0, 4)), (None, Some(2), None));
        let (_, lease) = frontier.lease(node(2), T).expect("it waits");
        assert_eq!((lease.attempt, frontier.losses(0, 4), frontier.note_loss(0, 9)), (5, 2, None));
        assert!(frontier.is_last_attempt(0, Some(5)) && frontier.is_last_attempt(0, None) && !frontier.is_last_attempt(0, Some(4)));
    }
}
