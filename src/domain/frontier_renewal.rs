//! Renewal of leases.

use super::super::ids::{NodeId, Seq};
use super::super::time::Timestamp;
use super::Frontier;

impl Frontier {
    /// A node reported that it holds a block: renews its lease. Returns false if the node does not hold it (any more).
    pub fn renew(&mut self, seq: Seq, node: NodeId, now: Timestamp) -> bool {
        let is_held = self.prolong(seq, node, now);
        if let Some(lease) = self.leases.get_mut(&seq).filter(|_| is_held) {
            lease.confirmed = true;
        }
        is_held
    }

    /// A block is still on its way to a node that is connected: renews its lease. Returns false if the block is not leased to it.
    pub fn prolong(&mut self, seq: Seq, node: NodeId, now: Timestamp) -> bool {
        match self.leases.get_mut(&seq) {
            Some(lease) if lease.node == node => {
                lease.until = now.plus_ms(self.settings.lease as i64);
                true
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::block::{Phase, StoredBlock};
    use super::super::super::seen::SeenSet;
    use super::super::super::settings::QueueSettings;
    use super::*;

    #[test]
    fn a_block_on_its_way_stays_leased_and_is_not_confirmed() {
        let block =
            StoredBlock { seq: 0, site: None, priority: 0, phase: Phase::Ready, attempts: 0, requests: 1, success: 0, error: 0, bytes: 0 };
        let settings = QueueSettings { lease: 1_000, ..QueueSettings::default() };
        let mut frontier = Frontier::restore(settings, false, &[block], SeenSet::new());
        let [node, other] = [1, 2].map(|n| NodeId(uuid::Uuid::from_u128(n)));
        let (seq, _) = frontier.lease(node, Timestamp(0)).expect("a block");
        assert!(frontier.prolong(seq, node, Timestamp(900)) && !frontier.prolong(seq, other, Timestamp(900)));
        let lease = |frontier: &Frontier| frontier.lease_of(seq).map(|lease| (lease.until, lease.confirmed));
        assert_eq!(lease(&frontier), Some((Timestamp(1_900), false)));
        assert!(frontier.renew(seq, node, Timestamp(1_000)));
        assert_eq!(lease(&frontier), Some((Timestamp(2_000), true)));
        assert!(frontier.expired_leases(Timestamp(1_999)).is_empty());
    }
}
