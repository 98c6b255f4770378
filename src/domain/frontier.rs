//! The frontier of a run: which requests are new, which blocks are ready, out, answered, delivered, done.
//!
//! It decides and remembers; it never stores, sends or waits. Whatever must be on disk before the world may know goes in
//! two steps: `begin…` when the write is sent, `…stored` when it is committed. A write that failed is not undone here:
//! the frontier is thrown away and restored from what is stored.
//!
//! One byte a block is all that is kept for ever, so that ten million requests in blocks of fifty cost 200 kB; what is
//! larger is bounded by what is out at nodes and workers.

use super::block::{AckVerdict, Admission, Lease, Lost, Phase, ReportVerdict, StoredBlock};
use super::ids::{NodeId, Seq, WorkerId};
use super::request::RequestBatch;
use super::run::Counters;
use super::seen::SeenSet;
use super::settings::QueueSettings;
use super::time::Timestamp;
use std::collections::{HashMap, VecDeque};

/// Blocks that may be delivered and not acknowledged at a time; a worker that only polls gets no more.
pub const MOST_DELIVERED: usize = 1_024;

#[derive(Debug, Clone, Copy)]
struct Delivery {
    worker: Option<WorkerId>,
    until: Timestamp,
}

/// The frontier of one run.
#[derive(Debug)]
pub struct Frontier {
    settings: QueueSettings,
    seen: SeenSet,
    phases: Vec<Phase>,
    /// Below it no block is `Ready`.
    cursor: Seq,
    ready: usize,
    retry: VecDeque<Seq>,
    /// Of blocks that were handed out and are not answered.
    attempts: HashMap<Seq, u32>,
    leases: HashMap<Seq, Lease>,
    answered: VecDeque<Seq>,
    deliveries: HashMap<Seq, Delivery>,
    /// Blocks that are not `Done`.
    open: usize,
    answered_open: usize,
    admitted: u64,
    storing: usize,
    counters: Counters,
    start_returned: bool,
}

impl Frontier {
    /// The frontier of a run that begins.
    #[must_use]
    pub fn new(settings: QueueSettings) -> Self {
        Self {
            settings,
            seen: SeenSet::new(),
            phases: Vec::new(),
            cursor: 0,
            ready: 0,
            retry: VecDeque::new(),
            attempts: HashMap::new(),
            leases: HashMap::new(),
            answered: VecDeque::new(),
            deliveries: HashMap::new(),
            open: 0,
            answered_open: 0,
            admitted: 0,
            storing: 0,
            counters: Counters::default(),
            start_returned: false,
        }
    }

    /// The frontier of a run that goes on. What was out at a node is ready again, what was with a worker is answered
    /// again: neither is written when it happens. `blocks` come in the order of their numbers.
    #[must_use]
    pub fn restore(settings: QueueSettings, start_returned: bool, blocks: &[StoredBlock], seen: SeenSet) -> Self {
        let mut this = Self::new(settings);
        this.start_returned = start_returned;
        this.seen = seen;
        for block in blocks {
            // A gap is a block whose write failed while a later one's did not; it was never answered.
            this.phases.resize(this.phases.len().max(block.seq as usize), Phase::Done);
            this.phases.push(block.phase);
            if block.attempts > 0 {
                this.attempts.insert(block.seq, block.attempts);
            }
            match block.phase {
                Phase::Ready => this.ready += 1,
                Phase::Retry => this.retry.push_back(block.seq),
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
        }
        this.admitted = this.counters.total;
        this
    }

    // --- requests come in

    /// Decides what of a batch is new and packs it into blocks. They count as seen from now on, and are ready once
    /// [`Self::stored`] is told.
    pub fn begin_push(&mut self, batch: &RequestBatch) -> Admission {
        let mut out = Admission::default();
        let mut block = Vec::new();
        for (i, request) in batch.requests.iter().enumerate() {
            if self.settings.depth_limit.is_some_and(|limit| request.depth > limit) {
                out.too_deep += 1;
            } else if self.settings.max_requests.is_some_and(|most| self.admitted >= most) {
                *(if self.seen.contains(request.id) { &mut out.duplicates } else { &mut out.over_limit }) += 1;
            } else if !self.seen.insert(request.id) {
                // A deliberate repetition has an id of its own, and so is never here.
                out.duplicates += 1;
            } else {
                self.admitted += 1;
                out.accepted += 1;
                block.push(i);
                if block.len() == self.settings.block_size as usize {
                    self.open_block(&mut out, std::mem::take(&mut block));
                }
            }
        }
        if !block.is_empty() {
            self.open_block(&mut out, block);
        }
        self.storing += out.blocks.len();
        out
    }

    fn open_block(&mut self, out: &mut Admission, requests: Vec<usize>) {
        let seq = Seq::try_from(self.phases.len()).expect("four thousand million blocks in one run");
        self.phases.push(Phase::Storing);
        self.open += 1;
        out.blocks.push((seq, requests));
    }

    /// A block is on disk.
    pub fn stored(&mut self, seq: Seq, requests: u32) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Storing));
        self.set(seq, Phase::Ready);
        // Commits may be told out of order: a later block may have gone out before this one was ready.
        self.cursor = self.cursor.min(seq);
        self.ready += 1;
        self.storing -= 1;
        self.counters.total += u64::from(requests);
    }

    /// Whether a block waits for its commit: then even an answer that changes nothing must wait, since it may speak of
    /// a request that is not on disk yet.
    #[must_use]
    pub fn is_storing(&self) -> bool {
        self.storing > 0
    }

    // --- blocks go out to nodes

    /// Blocks that a node could have now.
    #[must_use]
    pub fn ready(&self) -> usize {
        self.ready + self.retry.len()
    }

    /// The blocks that will be handed out next, first ones first: what is worth reading ahead.
    pub fn upcoming(&self, most: usize) -> impl Iterator<Item = Seq> + '_ {
        let fresh = (self.cursor..self.phases.len() as Seq).filter(|seq| self.phases[*seq as usize] == Phase::Ready);
        self.retry.iter().copied().chain(fresh).take(most)
    }

    /// Hands a block to a node.
    pub fn lease(&mut self, node: NodeId, now: Timestamp) -> Option<(Seq, Lease)> {
        let seq = match self.retry.pop_front() {
            Some(seq) => seq,
            None if self.ready > 0 => {
                while self.phase(self.cursor) != Some(Phase::Ready) {
                    self.cursor += 1;
                }
                self.ready -= 1;
                self.cursor
            }
            None => return None,
        };
        let attempts = self.attempts.entry(seq).or_insert(0);
        *attempts += 1;
        let until = now.plus_ms(self.settings.lease as i64);
        let lease = Lease { node, attempt: *attempts, since: now, until, confirmed: false };
        self.set(seq, Phase::Using);
        self.leases.insert(seq, lease);
        Some((seq, lease))
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

    /// A node said that it holds a block: its lease begins anew. False if it is not its holder (any more).
    pub fn renew(&mut self, seq: Seq, node: NodeId, now: Timestamp) -> bool {
        match self.leases.get_mut(&seq) {
            Some(lease) if lease.node == node => {
                lease.until = now.plus_ms(self.settings.lease as i64);
                lease.confirmed = true;
                true
            }
            _ => false,
        }
    }

    /// A node says that it holds a block which is ready here, from an earlier hand-out: it may keep it. So a restart of
    /// the broker costs no download twice. False if the block is not ready.
    pub fn adopt(&mut self, seq: Seq, node: NodeId, attempt: u32, now: Timestamp) -> bool {
        match self.phase(seq) {
            Some(Phase::Ready) => self.ready -= 1,
            Some(Phase::Retry) => self.retry.retain(|s| *s != seq),
            _ => return false,
        }
        let attempts = self.attempts.entry(seq).or_insert(0);
        *attempts = (*attempts).max(attempt);
        let until = now.plus_ms(self.settings.lease as i64);
        self.set(seq, Phase::Using);
        self.leases.insert(seq, Lease { node, attempt, since: now, until, confirmed: true });
        true
    }

    /// The block was sent to its node once more: the same hand-out, since the node never got the first.
    pub fn sent_again(&mut self, seq: Seq, now: Timestamp) {
        if let Some(lease) = self.leases.get_mut(&seq) {
            lease.since = now;
        }
    }

    /// A node lost a block. `None` if the block is not in that node's hands in this attempt.
    pub fn lost(&mut self, seq: Seq, node: NodeId, attempt: u32) -> Option<Lost> {
        self.leases.get(&seq).filter(|lease| lease.node == node && lease.attempt == attempt)?;
        self.leases.remove(&seq);
        if attempt >= self.settings.block_attempts {
            self.set(seq, Phase::Reporting);
            return Some(Lost::Exhausted(attempt));
        }
        self.set(seq, Phase::Retry);
        self.retry.push_back(seq);
        Some(Lost::Retry(attempt))
    }

    /// The leases that have run out.
    #[must_use]
    pub fn expired_leases(&self, now: Timestamp) -> Vec<(Seq, Lease)> {
        self.leases().filter(|(_, lease)| lease.until <= now).map(|(seq, lease)| (seq, *lease)).collect()
    }

    // --- results come in

    /// Whether a report counts. A report that names no attempt is taken for its node's current one. A block that is
    /// ready takes the results of an earlier hand-out: they are as good, and nobody else works on it.
    #[must_use]
    pub fn check_report(&self, seq: Seq, node: NodeId, attempt: Option<u32>) -> ReportVerdict {
        match self.phase(seq) {
            None | Some(Phase::Storing) => ReportVerdict::Unknown,
            Some(Phase::Ready | Phase::Retry) if self.attempts.contains_key(&seq) || attempt.is_some() => ReportVerdict::Current,
            Some(Phase::Ready | Phase::Retry) => ReportVerdict::Late,
            Some(Phase::Using) => {
                let current = self.leases.get(&seq).is_some_and(|l| l.node == node && attempt.is_none_or(|a| a == l.attempt));
                if current { ReportVerdict::Current } else { ReportVerdict::Late }
            }
            Some(_) => ReportVerdict::Finished,
        }
    }

    /// The results of a block are on their way to the disk. Gives back the lease, if a node held it.
    pub fn begin_report(&mut self, seq: Seq) -> Option<Lease> {
        match self.phase(seq) {
            Some(Phase::Ready) => self.ready -= 1,
            Some(Phase::Retry) => self.retry.retain(|s| *s != seq),
            _ => {}
        }
        self.set(seq, Phase::Reporting);
        self.leases.remove(&seq)
    }

    /// The results of a block are on disk.
    pub fn reported(&mut self, seq: Seq, success: u32, error: u32) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Reporting));
        self.attempts.remove(&seq);
        self.set(seq, Phase::Answered);
        self.answered.push_back(seq);
        self.answered_open += 1;
        self.counters.success += u64::from(success);
        self.counters.error += u64::from(error);
    }

    // --- results go out to workers

    /// Whether a poll would find something.
    #[must_use]
    pub fn has_answered(&self) -> bool {
        self.answered_open > 0 && self.deliveries.len() < MOST_DELIVERED
    }

    /// Hands results to a worker; `None` if there are none, or too many out.
    pub fn deliver(&mut self, worker: Option<WorkerId>, now: Timestamp) -> Option<Seq> {
        if self.deliveries.len() >= MOST_DELIVERED {
            return None;
        }
        // An entry whose block was acknowledged meanwhile is stale.
        let seq = loop {
            let seq = self.answered.pop_front()?;
            if self.phase(seq) == Some(Phase::Answered) {
                break seq;
            }
        };
        self.answered_open -= 1;
        self.set(seq, Phase::Delivered);
        self.deliveries.insert(seq, Delivery { worker, until: now.plus_ms(self.settings.ack_wait as i64) });
        Some(seq)
    }

    /// Results that a worker did not get after all, go to the front again.
    pub fn take_back(&mut self, seq: Seq) {
        if self.phase(seq) == Some(Phase::Delivered) {
            self.deliveries.remove(&seq);
            self.set(seq, Phase::Answered);
            self.answered.push_front(seq);
            self.answered_open += 1;
        }
    }

    /// A worker is gone: what it had and did not acknowledge is there for others. True if there was any.
    pub fn worker_gone(&mut self, worker: WorkerId) -> bool {
        self.take_back_where(|delivery| delivery.worker == Some(worker))
    }

    /// Deliveries that were not acknowledged in time are there for others. True if there was any.
    pub fn expire_deliveries(&mut self, now: Timestamp) -> bool {
        self.take_back_where(|delivery| delivery.until <= now)
    }

    /// Deliveries of before `since` to workers that are not (or no longer) there are there for others: a worker that
    /// polls and never connects is one that nobody misses. True if there was any.
    pub fn forget_strangers(&mut self, since: Timestamp, is_there: impl Fn(WorkerId) -> bool) -> bool {
        let latest = since.plus_ms(self.settings.ack_wait as i64);
        self.take_back_where(|delivery| delivery.until <= latest && delivery.worker.is_some_and(|worker| !is_there(worker)))
    }

    fn take_back_where(&mut self, which: impl Fn(&Delivery) -> bool) -> bool {
        let mut back: Vec<Seq> = self.deliveries.iter().filter(|(_, d)| which(d)).map(|(seq, _)| *seq).collect();
        back.sort_unstable_by(|a, b| b.cmp(a));
        for seq in &back {
            self.take_back(*seq);
        }
        !back.is_empty()
    }

    /// Whether an acknowledgement counts.
    #[must_use]
    pub fn check_ack(&self, seq: Seq) -> AckVerdict {
        match self.phase(seq) {
            None | Some(Phase::Storing) => AckVerdict::Unknown,
            Some(Phase::Answered | Phase::Delivered) => AckVerdict::Current,
            Some(Phase::Acking | Phase::Done) => AckVerdict::Already,
            Some(_) => AckVerdict::NotAnswered,
        }
    }

    /// Whether it is on its way to the disk that a block is done.
    #[must_use]
    pub fn is_acking(&self, seq: Seq) -> bool {
        self.phase(seq) == Some(Phase::Acking)
    }

    /// That a block is done is on its way to the disk.
    pub fn begin_ack(&mut self, seq: Seq) {
        if self.phase(seq) == Some(Phase::Answered) {
            self.answered_open -= 1;
        }
        self.deliveries.remove(&seq);
        self.set(seq, Phase::Acking);
    }

    /// That a block is done is on disk.
    pub fn acked(&mut self, seq: Seq) {
        debug_assert_eq!(self.phase(seq), Some(Phase::Acking));
        self.set(seq, Phase::Done);
        self.open -= 1;
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

    /// Nothing is ready, out, unanswered, undelivered or unacknowledged, and nothing more can come: the run is over.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.start_returned && self.open == 0
    }

    // --- what it knows

    /// Where a block is.
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

    /// Blocks by where they are: ready, using, answered and not acknowledged, all.
    #[must_use]
    pub fn block_counts(&self) -> (usize, usize, usize, usize) {
        (self.ready(), self.leases.len(), self.answered_open + self.deliveries.len(), self.phases.len())
    }

    /// URLs seen, and the memory that this takes.
    #[must_use]
    pub fn seen_size(&self) -> (usize, usize) {
        (self.seen.len(), self.seen.bytes())
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
