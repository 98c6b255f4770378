//! The brokers that own runs, as the leader sees them: which of them gets the next run, and whose runs are taken back.

use super::ids::BrokerId;
use super::time::Timestamp;
use std::collections::BTreeMap;

/// Between two looks of a leader that was not suspended.
const LONGEST_PAUSE_MS: i64 = 1_000;

/// The state of one owner.
#[derive(Debug, Clone, Copy)]
struct Owner {
    /// The term under which it owns runs; `None`: it was drained, and owns none.
    term: Option<i64>,
    /// Its connection is open.
    is_connected: bool,
    /// It must be heard again before this time, on the monotonic clock.
    until: Timestamp,
    /// It gets no more runs.
    is_draining: bool,
    /// It can execute block runs.
    takes_blocks: bool,
}

/// See the module documentation.
#[derive(Debug, Default)]
pub struct OwnerTable {
    owners: BTreeMap<BrokerId, Owner>,
    /// Who got the last run: owners and leader take turns.
    last: Option<BrokerId>,
    /// When it was last looked for owners that are overdue.
    looked: Option<Timestamp>,
}

impl OwnerTable {
    /// A previous leader gave this broker the right to own runs under this term. It must connect before this time.
    pub fn expect(&mut self, broker: BrokerId, term: i64, until: Timestamp) {
        self.owners.insert(broker, Owner { term: Some(term), is_connected: false, until, is_draining: false, takes_blocks: false });
    }

    /// An owner has connected. `term`: `None` if it may not own runs any more. `takes_blocks`: it can execute block runs.
    pub fn join(&mut self, broker: BrokerId, term: Option<i64>, takes_blocks: bool, until: Timestamp) {
        let is_draining = term.is_none() || self.is_draining(broker);
        self.owners.insert(broker, Owner { term, is_connected: true, until, is_draining, takes_blocks });
    }

    /// An owner has sent something.
    pub fn hear(&mut self, broker: BrokerId, until: Timestamp) {
        if let Some(owner) = self.owners.get_mut(&broker).filter(|owner| owner.is_connected) {
            owner.until = until;
        }
    }

    /// The connection of an owner is lost. It must connect again before this time.
    pub fn lose(&mut self, broker: BrokerId, until: Timestamp) {
        if let Some(owner) = self.owners.get_mut(&broker) {
            (owner.is_connected, owner.until) = (false, owner.until.min(until));
        }
    }

    /// An owner gets no more runs, and those that it has are moved. Returns whether it is known.
    pub fn drain(&mut self, broker: BrokerId) -> bool {
        let owner = self.owners.get_mut(&broker);
        let is_known = owner.is_some();
        owner.into_iter().for_each(|owner| owner.is_draining = true);
        is_known
    }

    /// Whether an owner gets no more runs.
    #[must_use]
    pub fn is_draining(&self, broker: BrokerId) -> bool {
        self.owners.get(&broker).is_some_and(|owner| owner.is_draining)
    }

    /// The term under which a broker owns runs.
    #[must_use]
    pub fn term(&self, broker: BrokerId) -> Option<i64> {
        self.owners.get(&broker).and_then(|owner| owner.term)
    }

    /// A broker owns no runs any more. One that was drained is known until this time, so that it gets none when it connects again.
    pub fn end(&mut self, broker: BrokerId, until: Timestamp) {
        match self.owners.get_mut(&broker).filter(|owner| owner.is_draining && owner.term.is_some()) {
            Some(owner) => (owner.term, owner.is_connected, owner.until) = (None, false, until),
            None => drop(self.owners.remove(&broker)),
        }
    }

    /// The brokers that were not heard in time, and whether they own runs. A leader that did not look for a while has not listened either: what was
    /// sent to it meanwhile is read after this.
    pub fn overdue(&mut self, now: Timestamp) -> Vec<(BrokerId, bool)> {
        let pause = self.looked.replace(now).map_or(0, |looked| now.since_ms(looked));
        if pause > LONGEST_PAUSE_MS {
            self.owners.values_mut().for_each(|owner| owner.until = owner.until.plus_ms(pause));
        }
        self.owners.iter().filter(|(_, owner)| owner.until <= now).map(|(broker, owner)| (*broker, owner.term.is_some())).collect()
    }

    /// Who gets the next run; `None`: the leader. Each gets one in turn.
    pub fn choose(&mut self, is_block_run: bool) -> Option<BrokerId> {
        let is_usable = |owner: &Owner| owner.is_connected && !owner.is_draining && (owner.takes_blocks || !is_block_run);
        let mut usable = self.owners.iter().filter(|(_, owner)| is_usable(owner)).map(|(broker, _)| *broker);
        let next = match self.last {
            None => usable.next(),
            Some(last) => usable.find(|broker| *broker > last),
        };
        self.last = next;
        next
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn brokers() -> [BrokerId; 3] {
        [1, 2, 3].map(|n| BrokerId(uuid::Uuid::from_u128(n)))
    }

    #[test]
    fn the_leader_and_connected_owners_get_runs_in_turn() {
        let [a, b, c] = brokers();
        let mut table = OwnerTable::default();
        assert_eq!(table.choose(false), None, "the leader is alone");
        let far = Timestamp(1_000);
        table.expect(a, 1, far);
        table.join(b, Some(2), true, far);
        table.join(c, Some(3), true, far);
        let chosen: Vec<_> = (0..6).map(|_| table.choose(false)).collect();
        assert_eq!(chosen, [Some(b), Some(c), None, Some(b), Some(c), None], "one that is not connected gets none");
        assert!(table.drain(b) && !table.drain(BrokerId(uuid::Uuid::from_u128(9))));
        table.join(b, Some(2), true, far);
        assert_eq!([table.choose(false), table.choose(false)], [Some(c), None], "a new connection does not end the draining");
        table.lose(c, far);
        table.join(a, None, true, far);
        assert_eq!([table.choose(false), table.choose(false)], [None, None]);
        assert!(table.is_draining(a) && table.term(a).is_none());
    }

    #[test]
    fn an_owner_of_an_earlier_version_gets_no_block_runs() {
        let [a, b, _] = brokers();
        let mut table = OwnerTable::default();
        table.join(a, Some(1), false, Timestamp(1_000));
        assert_eq!([table.choose(true), table.choose(false), table.choose(false)], [None, Some(a), None]);
        table.join(b, Some(2), true, Timestamp(1_000));
        assert_eq!([table.choose(true), table.choose(true), table.choose(true)], [Some(b), None, Some(b)]);
    }

    #[test]
    fn an_owner_that_is_not_heard_in_time_is_overdue() {
        let [a, b, c] = brokers();
        let mut table = OwnerTable::default();
        table.expect(a, 1, Timestamp(500));
        table.join(b, Some(2), true, Timestamp(300));
        table.join(c, Some(3), true, Timestamp(300));
        table.hear(b, Timestamp(600));
        table.hear(a, Timestamp(900));
        assert_eq!(table.overdue(Timestamp(300)), [(c, true)]);
        assert_eq!(table.overdue(Timestamp(500)), [(a, true), (c, true)], "what comes from another connection does not count");
        table.end(c, Timestamp(900));
        table.lose(b, Timestamp(400));
        assert_eq!((table.overdue(Timestamp(450)), table.term(c)), (vec![(b, true)], None));
        table.lose(a, Timestamp(700));
        assert_eq!(table.overdue(Timestamp(600)), [(a, true), (b, true)], "a later loss gives no more time");
        table.join(b, Some(2), true, Timestamp(800));
        assert_eq!((table.overdue(Timestamp(600)), table.term(b)), (vec![(a, true)], Some(2)));
        table.end(a, Timestamp(900));
        table.drain(b);
        table.end(b, Timestamp(900));
        assert_eq!((table.is_draining(b), table.term(b), table.overdue(Timestamp(900))), (true, None, vec![(b, false)]));
        table.end(b, Timestamp(950));
        assert_eq!(table.overdue(Timestamp(950)), [], "it did not come back");
    }

    #[test]
    fn a_leader_that_was_suspended_waits_for_what_was_sent_meanwhile() {
        let [a, ..] = brokers();
        let mut table = OwnerTable::default();
        table.join(a, Some(1), true, Timestamp(5_000));
        assert_eq!(table.overdue(Timestamp(100)), []);
        assert_eq!(table.overdue(Timestamp(60_100)), [], "it was suspended for a minute");
        assert!((60_200..64_999).step_by(500).all(|now| table.overdue(Timestamp(now)).is_empty()));
        assert_eq!(table.overdue(Timestamp(65_000)), [(a, true)]);
    }
}
