//! The limit of the bytes that a run downloads. It is a bound, not exact: what nodes have when it is reached is finished.

use super::super::block::Phase;
use super::super::ids::Seq;
use super::Frontier;

impl Frontier {
    /// Counts the bodies of results that are on disk.
    pub fn count_bytes(&mut self, bytes: u64) {
        self.bytes = self.bytes.saturating_add(bytes);
    }

    /// Bytes of the bodies in stored results, decompressed.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The limit and what was downloaded, if that is as much or more: then nothing is accepted or dispatched any more.
    #[must_use]
    pub fn over_bytes(&self) -> Option<(u64, u64)> {
        self.settings.max_bytes.filter(|most| self.bytes >= *most).map(|most| (most, self.bytes))
    }

    /// The first blocks that wait for a node, whatever for.
    #[must_use]
    pub fn waiting(&self, most: usize) -> Vec<Seq> {
        if self.ready() + self.queued() + self.elsewhere.waiting() == 0 {
            return Vec::new();
        }
        let phases = self.phases.iter().enumerate();
        phases
            .filter(|(_, phase)| matches!(phase, Phase::Ready | Phase::Retry | Phase::Queued))
            .map(|(seq, _)| seq as Seq)
            .take(most)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::block::StoredBlock;
    use super::super::super::ids::NodeId;
    use super::super::super::seen::SeenSet;
    use super::super::super::settings::QueueSettings;
    use super::super::super::time::Timestamp;
    use super::*;

    #[test]
    fn what_is_stored_counts_and_what_waits_is_listed() {
        let block =
            |seq, phase, bytes| StoredBlock { seq, site: None, priority: 0, phase, attempts: 0, requests: 1, success: 0, error: 0, bytes };
        let blocks = [
            block(0, Phase::Done, 60),
            block(1, Phase::Ready, 0),
            block(2, Phase::Answered, 39),
            block(3, Phase::Retry, 0),
            block(4, Phase::Ready, 0),
        ];
        let settings = QueueSettings { max_bytes: Some(100), ..QueueSettings::default() };
        let mut frontier = Frontier::restore(settings.clone(), true, &blocks, SeenSet::new());
        assert_eq!((frontier.bytes(), frontier.over_bytes()), (99, None));
        frontier.count_bytes(1);
        assert_eq!(frontier.over_bytes(), Some((100, 100)));
        let (seq, _) = frontier.lease(NodeId::random(), Timestamp(0)).expect("a block");
        let waiting: Vec<Seq> = [1, 3, 4].into_iter().filter(|other| *other != seq).collect();
        assert_eq!((frontier.waiting(9), frontier.waiting(1)), (waiting.clone(), waiting[..1].to_vec()));
        assert_eq!(Frontier::new(QueueSettings::default()).over_bytes(), None);
    }
}
