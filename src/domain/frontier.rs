//! The frontier of a run: which requests are new, and which blocks are ready, dispatched, downloaded, delivered or done.
//!
//! It decides and remembers; it never stores, sends or waits. A change that must be on disk before it becomes visible takes two
//! steps: `begin…` when the write is sent, `…stored` when it is committed. A failed write is not undone here: the frontier is
//! discarded and restored from the store.
//!
//! Only one byte per block is kept for the whole run, so ten million requests in blocks of fifty cost 200 kB. Everything larger
//! is bounded by the blocks that nodes and workers hold.

#[path = "frontier_delivery.rs"]
mod delivery;
#[path = "frontier_discard.rs"]
mod discard;
#[path = "frontier_elsewhere.rs"]
mod elsewhere;
#[path = "frontier_max_bytes.rs"]
mod max_bytes;
#[path = "frontier_push.rs"]
mod push;
#[path = "frontier_ranks.rs"]
mod ranks;
#[path = "frontier_renewal.rs"]
mod renewal;
#[path = "frontier_sites.rs"]
mod sites;
#[path = "frontier_split.rs"]
mod split;

pub use delivery::MOST_DELIVERED;
pub use sites::{SiteCounts, SiteNo};

use super::block::{Lease, Lost, Phase, ReportVerdict, StoredBlock};
use super::fingerprint::Fingerprint;
use super::ids::{NodeId, Seq};
use super::run::Counters;
use super::seen::SeenSet;
use super::settings::QueueSettings;
use super::time::Timestamp;
use std::collections::{BTreeSet, HashMap, VecDeque};

/// The frontier of one run.
#[derive(Debug)]
pub struct Frontier {
    settings: QueueSettings,
    seen: SeenSet,
    phases: Vec<Phase>,
    /// No block below it is `Ready`.
    cursor: Seq,
    ready: usize,
    /// Blocks in the phase `Retry`.
    ranks: ranks::Ranks,
    /// Priorities of blocks that are not `Done`; a block without an entry has 0.
    priorities: HashMap<Seq, i8>,
    /// Attempts of blocks that were dispatched and have no results yet.
    attempts: HashMap<Seq, u32>,
    /// How many of these attempts ended with the node giving the block back.
    given_back: HashMap<Seq, u32>,
    leases: HashMap<Seq, Lease>,
    leased_by_node: HashMap<NodeId, BTreeSet<Seq>>,
    answered: VecDeque<Seq>,
    deliveries: HashMap<Seq, delivery::Delivery>,
    /// The number of the last delivery.
    last_delivery: u64,
    sites: sites::Sites,
    elsewhere: elsewhere::Elsewhere,
    /// Blocks that are not `Done`.
    open: usize,
    answered_open: usize,
    admitted: u64,
    storing: usize,
    counters: Counters,
    /// Bytes of the bodies in stored results.
    bytes: u64,
    start_returned: bool,
}

impl Frontier {
    /// The frontier of a new run.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            seen: SeenSet::new(),
            phases: Vec::new(),
            cursor: 0,
            ready: 0,
            ranks: ranks::Ranks::default(),
            priorities: HashMap::new(),
            attempts: HashMap::new(),
            given_back: HashMap::new(),
            leases: HashMap::new(),
            leased_by_node: HashMap::new(),
            answered: VecDeque::new(),
            deliveries: HashMap::new(),
            last_delivery: 0,
            sites: sites::Sites::default(),
            elsewhere: elsewhere::Elsewhere::default(),
            open: 0,
            answered_open: 0,
            admitted: 0,
            storing: 0,
            counters: Counters::default(),
            bytes: 0,
            start_returned: false,
        }
    }

    /// The frontier of a run after a restart. Blocks that a node held are ready again, blocks that a worker held wait for delivery
    /// again: neither state is stored. `blocks` must be ordered by number.
    #[must_use]
    pub fn restore(settings: QueueSettings, start_returned: bool, blocks: &[StoredBlock], seen: SeenSet) -> Self {
        let mut this = Self::new(settings);
        this.start_returned = start_returned;
        this.seen = seen;
        for block in blocks {
            // A gap is a block whose write failed while a later one succeeded; its push was never acknowledged.
            this.phases.resize(this.phases.len().max(block.seq as usize), Phase::Done);
            this.phases.push(block.phase);
            if block.attempts > 0 {
                this.attempts.insert(block.seq, block.attempts);
            }
            let site = block.site.as_deref().map(|name| this.site_number(name));
            this.set_site(block.seq, site);
            this.count_at(site, block.requests);
            this.count_results(block.seq, block.success, block.error);
            if block.phase != Phase::Done {
                this.set_priority(block.seq, block.priority);
            }
            if matches!(block.phase, Phase::Ready | Phase::Retry)
                && let Some(site) = site
            {
                this.enqueue(block.seq, site, false);
            }
            match this.phases[block.seq as usize] {
                Phase::Queued => {}
                Phase::Ready if block.priority == 0 => this.ready += 1,
                Phase::Ready | Phase::Retry => this.wait(block.seq),
                Phase::Answered => {
                    this.answered.push_back(block.seq);
                    this.answered_open += 1;
                    this.attempts.remove(&block.seq);
                }
                _ => {
                    this.attempts.remove(&block.seq);
                }
            }
            this.open += usize::from(block.phase != Phase::Done);
            this.counters.total += u64::from(block.requests);
            this.counters.success += u64::from(block.success);
            this.counters.error += u64::from(block.error);
            this.bytes += block.bytes;
        }
        this.admitted = this.counters.total;
        this
    }

    // --- accepting requests: see also `push`

    fn new_block(&mut self, site: Option<SiteNo>, priority: i8) -> Seq {
        let seq = Seq::try_from(self.phases.len()).expect("four thousand million blocks in one run");
        self.phases.push(Phase::Storing);
        self.set_site(seq, site);
        self.set_priority(seq, priority);
        self.open += 1;
        seq
    }

    /// A block is on disk.
    pub fn stored(&mut self, seq: Seq, requests: u32) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Storing));
        if let Some(site) = self.queue_of(seq) {
            self.enqueue(seq, site, false);
        } else if self.priority_of(seq) != 0 {
            self.wait(seq);
        } else {
            self.set(seq, Phase::Ready);
            // Commits may be reported out of order: a later block may have been dispatched before this one was ready.
            self.cursor = self.cursor.min(seq);
            self.ready += 1;
        }
        self.storing -= 1;
        self.counters.total += u64::from(requests);
    }

    /// Whether a block waits for its commit. Then even a response that changes nothing must wait, because it may refer to a request
    /// that is not on disk yet.
    #[must_use]
    pub fn is_storing(&self) -> bool {
        self.storing > 0
    }

    // --- dispatching blocks to nodes

    /// Blocks that a node could get now, without those that wait for their site.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready + self.ranks.len()
    }

    /// The next blocks to dispatch, in order: candidates for reading ahead.
    pub fn upcoming(&self, most: usize) -> impl Iterator<Item = Seq> + '_ {
        let fresh = (self.cursor..self.phases.len() as Seq).filter(|seq| self.phases[*seq as usize] == Phase::Ready);
        // If no block is ready, do not scan for one.
        let fresh = fresh.take(self.ready);
        self.ranks.iter(|priority| priority >= 0).chain(fresh).chain(self.ranks.iter(|priority| priority < 0)).take(most)
    }

    /// Dispatches a block that belongs to no site to a node.
    pub fn lease(&mut self, node: NodeId, now: Timestamp) -> Option<(Seq, Lease)> {
        let seq = match self.pop_elsewhere(node).or_else(|| self.ranks.pop(0)) {
            Some(seq) => seq,
            None if self.ready > 0 => {
                while self.phase(self.cursor) != Some(Phase::Ready) {
                    self.cursor += 1;
                }
                self.ready -= 1;
                self.cursor
            }
            None => self.ranks.pop(i8::MIN)?,
        };
        Some((seq, self.new_lease(seq, node, now)))
    }

    fn new_lease(&mut self, seq: Seq, node: NodeId, now: Timestamp) -> Lease {
        let attempts = self.attempts.entry(seq).or_insert(0);
        *attempts += 1;
        let until = now.plus_ms(self.settings.lease as i64);
        let lease = Lease { node, attempt: *attempts, since: now, is_sent: false, until, confirmed: false };
        self.insert_lease(seq, lease);
        lease
    }

    /// The lease of a block.
    #[must_use]
    pub fn lease_of(&self, seq: Seq) -> Option<&Lease> {
        self.leases.get(&seq)
    }

    /// All leases.
    pub fn leases(&self) -> impl Iterator<Item = (Seq, &Lease)> {
        self.leases.iter().map(|(seq, lease)| (*seq, lease))
    }

    /// The leases of one node.
    pub fn leases_of_node(&self, node: NodeId) -> impl Iterator<Item = (Seq, &Lease)> {
        self.leased_by_node.get(&node).into_iter().flatten().filter_map(|seq| Some((*seq, self.leases.get(seq)?)))
    }

    /// Whether a node holds any block.
    #[must_use]
    pub fn has_leases(&self, node: NodeId) -> bool {
        self.leased_by_node.contains_key(&node)
    }

    fn insert_lease(&mut self, seq: Seq, lease: Lease) {
        self.set(seq, Phase::Using);
        self.set_out(seq, true);
        self.leases.insert(seq, lease);
        self.leased_by_node.entry(lease.node).or_default().insert(seq);
    }

    fn remove_lease(&mut self, seq: Seq) -> Option<Lease> {
        let lease = self.leases.remove(&seq)?;
        self.set_out(seq, false);
        if let Some(leased) = self.leased_by_node.get_mut(&lease.node) {
            leased.remove(&seq);
            if leased.is_empty() {
                self.leased_by_node.remove(&lease.node);
            }
        }
        Some(lease)
    }

    /// A node reports that it holds a block, from an earlier attempt, which is ready here: the node keeps it. So a restart of the
    /// broker does not repeat downloads. Returns false if the block is not ready.
    pub fn adopt(&mut self, seq: Seq, node: NodeId, attempt: u32, now: Timestamp) -> bool {
        if !self.take_from_queue(seq) {
            return false;
        }
        self.note_attempt(seq, attempt);
        let until = now.plus_ms(self.settings.lease as i64);
        self.insert_lease(seq, Lease { node, attempt, since: now, is_sent: true, until, confirmed: true });
        true
    }

    /// The block is sent to its node, for the first time or again. It is the same attempt, because the node has not received an earlier
    /// message.
    pub fn sent(&mut self, seq: Seq, now: Timestamp) {
        if let Some(lease) = self.leases.get_mut(&seq) {
            (lease.since, lease.is_sent) = (now, true);
        }
    }

    /// A node lost a block. `None` if the node does not hold the block in this attempt.
    pub fn lost(&mut self, seq: Seq, node: NodeId, attempt: u32) -> Option<Lost> {
        self.leases.get(&seq).filter(|lease| lease.node == node && lease.attempt == attempt)?;
        self.remove_lease(seq);
        if self.losses(seq, attempt) >= self.settings.block_attempts {
            self.set(seq, Phase::Reporting);
            return Some(Lost::Exhausted(attempt));
        }
        self.wait_again(seq);
        Some(Lost::Retry(attempt))
    }

    /// Returns a block to its queue.
    pub fn wait_again(&mut self, seq: Seq) {
        if let Some(site) = self.queue_of(seq) {
            return self.enqueue(seq, site, true);
        }
        self.wait(seq);
    }

    /// A block waits for a node in the queue of its priority.
    fn wait(&mut self, seq: Seq) {
        self.set(seq, Phase::Retry);
        self.ranks.push(self.priority_of(seq), seq);
    }

    /// The expired leases.
    #[must_use]
    pub fn expired_leases(&self, now: Timestamp) -> Vec<(Seq, Lease)> {
        self.leases().filter(|(_, lease)| lease.until <= now).map(|(seq, lease)| (seq, *lease)).collect()
    }

    // --- receiving results

    /// Whether a report is accepted. A report without an attempt counts for the node's current one. A ready block accepts results of an
    /// earlier attempt: they are valid, and no other node works on the block.
    #[must_use]
    pub fn check_report(&self, seq: Seq, node: NodeId, attempt: Option<u32>) -> ReportVerdict {
        match self.phase(seq) {
            None | Some(Phase::Storing) => ReportVerdict::Unknown,
            Some(Phase::Ready | Phase::Retry | Phase::Queued) if self.attempts.contains_key(&seq) || attempt.is_some() => {
                ReportVerdict::Current
            }
            Some(Phase::Ready | Phase::Retry | Phase::Queued) => ReportVerdict::Late,
            Some(Phase::Using) => {
                let current = self.leases.get(&seq).is_some_and(|l| l.node == node && attempt.is_none_or(|a| a == l.attempt));
                if current { ReportVerdict::Current } else { ReportVerdict::Late }
            }
            Some(_) => ReportVerdict::Finished,
        }
    }

    /// The results of a block are being written. Returns the lease, if a node held the block.
    pub fn begin_report(&mut self, seq: Seq) -> Option<Lease> {
        self.take_from_queue(seq);
        self.set(seq, Phase::Reporting);
        self.remove_lease(seq)
    }

    /// The results of a block are on disk.
    pub fn reported(&mut self, seq: Seq, success: u32, error: u32) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        self.attempts.remove(&seq);
        self.given_back.remove(&seq);
        self.forget_moved(seq);
        self.set(seq, Phase::Answered);
        self.answered.push_back(seq);
        self.answered_open += 1;
        self.counters.success += u64::from(success);
        self.counters.error += u64::from(error);
        self.count_results(seq, success, error);
    }

    // --- the end

    /// The worker has pushed its first requests.
    pub fn set_start_returned(&mut self) {
        self.start_returned = true;
    }

    /// Whether the worker has pushed its first requests.
    #[must_use]
    pub fn start_returned(&self) -> bool {
        self.start_returned
    }

    /// No block is ready, dispatched, undelivered or unacknowledged, and none can follow: the run is over.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.start_returned && self.open == 0
    }

    // --- reading its state

    /// The state of a block.
    #[must_use]
    pub fn phase(&self, seq: Seq) -> Option<Phase> {
        self.phases.get(seq as usize).copied()
    }

    fn set(&mut self, seq: Seq, phase: Phase) {
        self.phases[seq as usize] = phase;
    }

    /// The counters of requests.
    #[must_use]
    pub fn counters(&self) -> Counters {
        let Counters { success, error, total, .. } = self.counters;
        Counters { left: total - success - error, success, error, total }
    }

    /// Requests without results, and those that are being stored.
    #[must_use]
    pub fn pending(&self) -> u64 {
        self.admitted.saturating_sub(self.counters.success + self.counters.error)
    }

    /// Block counts: ready, dispatched, downloaded and not acknowledged, all.
    #[must_use]
    pub fn block_counts(&self) -> (usize, usize, usize, usize) {
        (self.ready() + self.elsewhere.waiting(), self.leases.len(), self.answered_open + self.deliveries.len(), self.phases.len())
    }

    /// Number of seen URLs, and the bytes of memory that they use.
    #[must_use]
    pub fn seen_size(&self) -> (usize, usize) {
        (self.seen.len(), self.seen.bytes())
    }

    /// Whether a request was seen.
    #[must_use]
    pub fn has_seen(&self, id: Fingerprint) -> bool {
        self.seen.contains(id)
    }

    /// Its settings.
    #[must_use]
    pub fn settings(&self) -> &QueueSettings {
        &self.settings
    }
}

#[cfg(test)]
#[path = "frontier_tests.rs"]
mod tests;
