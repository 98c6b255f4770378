//! Blocks that wait for their site: one queue per site, and the earliest time of the next check of each site.
//!
//! All requests of such a block go to one site, and only one block of a site is dispatched at a time: a *turn*. So the holder of
//! the block can keep the pace of the site alone. The frontier does not know whether a site is free for this run: the caller asks
//! the owner of the site, and records the answer with [`Frontier::site_waits`].

use super::super::block::{Lease, Phase};
use super::super::ids::{NodeId, Seq};
use super::super::sites::Holds;
use super::super::time::Timestamp;
use super::Frontier;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

/// The number of a site within its run.
pub type SiteNo = u32;

/// The block belongs to no site.
const NONE: SiteNo = SiteNo::MAX;

/// One site of a run. With its name, its entries in the index and the waiting list, and one pending request it takes some 350 bytes.
#[derive(Debug)]
struct Site {
    name: Arc<str>,
    /// Waiting blocks in order.
    queue: VecDeque<Seq>,
    /// The site is not free before this time, as far as this run knows.
    not_before: Timestamp,
    /// A node holds a block of it.
    is_out: bool,
    /// Its blocks no longer wait for it: it has no pace.
    is_free: bool,
    /// Another node is preferred, so not every node may take its blocks.
    is_shunned: bool,
    /// Requests to it that the run has accepted, and those that have results.
    taken: u32,
    success: u32,
    error: u32,
}

/// A site of a run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteCounts {
    /// Its number.
    pub no: SiteNo,
    /// Its name.
    pub name: Arc<str>,
    /// Blocks that wait for it.
    pub queued: usize,
    /// It is not free before this time, as far as the run knows.
    pub not_before: Timestamp,
    /// Requests to it without a result.
    pub left: u32,
    /// Requests that succeeded.
    pub success: u32,
    /// Requests that failed.
    pub error: u32,
}

/// The sites of a run.
#[derive(Debug, Default)]
pub(super) struct Sites {
    all: Vec<Site>,
    numbers: HashMap<Arc<str>, SiteNo>,
    /// The site of each block; empty in a run without sites.
    of_block: Vec<SiteNo>,
    /// Sites with a waiting block and no dispatched one, by the time at which the caller may ask for them.
    waiting: BTreeSet<(Timestamp, SiteNo)>,
    /// Number of blocks in all queues.
    queued: usize,
}

impl Sites {
    fn of(&self, seq: Seq) -> Option<SiteNo> {
        self.of_block.get(seq as usize).copied().filter(|site| *site != NONE)
    }

    /// Updates the waiting list for a site.
    fn list(&mut self, no: SiteNo) {
        let site = &self.all[no as usize];
        let entry = (site.not_before, no);
        if site.queue.is_empty() || site.is_out || site.is_shunned {
            self.waiting.remove(&entry);
        } else {
            self.waiting.insert(entry);
        }
    }

    fn change(&mut self, no: SiteNo, change: impl FnOnce(&mut Site)) {
        let site = &mut self.all[no as usize];
        self.waiting.remove(&(site.not_before, no));
        self.queued -= site.queue.len();
        change(site);
        self.queued += site.queue.len();
        self.list(no);
    }
}

impl Frontier {
    /// The number of a site; assigns one to a new site.
    pub fn site_number(&mut self, name: &str) -> SiteNo {
        if let Some(no) = self.sites.numbers.get(name) {
            return *no;
        }
        let no = SiteNo::try_from(self.sites.all.len()).expect("four thousand million sites in one run");
        let name: Arc<str> = name.into();
        self.sites.all.push(Site {
            name: Arc::clone(&name),
            queue: VecDeque::new(),
            not_before: Timestamp::default(),
            is_out: false,
            is_free: false,
            is_shunned: false,
            taken: 0,
            success: 0,
            error: 0,
        });
        self.sites.numbers.insert(name, no);
        no
    }

    /// The name of a site.
    #[must_use]
    pub fn site_name(&self, no: SiteNo) -> Arc<str> {
        Arc::clone(&self.sites.all[no as usize].name)
    }

    /// The site that a block's requests go to.
    #[must_use]
    pub fn site_of(&self, seq: Seq) -> Option<SiteNo> {
        self.sites.of(seq)
    }

    pub(super) fn set_site(&mut self, seq: Seq, site: Option<SiteNo>) {
        let Some(site) = site else { return };
        let sites = &mut self.sites.of_block;
        sites.resize(sites.len().max(seq as usize + 1), NONE);
        sites[seq as usize] = site;
    }

    /// Counts accepted requests of a site.
    pub(super) fn count_at(&mut self, site: Option<SiteNo>, requests: u32) {
        if let Some(site) = site.and_then(|no| self.sites.all.get_mut(no as usize)) {
            site.taken = site.taken.saturating_add(requests);
        }
    }

    /// Requests of a block that belonged to no site are now in a block of a site.
    pub fn count_moved(&mut self, seq: Seq, site: SiteNo, requests: u32) {
        if self.site_of(seq) != Some(site) {
            self.count_at(Some(site), requests);
        }
    }

    /// Counts the results of a block at its site.
    pub(super) fn count_results(&mut self, seq: Seq, success: u32, error: u32) {
        let site = self.sites.of(seq);
        if let Some(site) = site.and_then(|no| self.sites.all.get_mut(no as usize)) {
            site.success = site.success.saturating_add(success);
            site.error = site.error.saturating_add(error);
        }
    }

    /// The results of a block are lost.
    pub(super) fn uncount_results(&mut self, seq: Seq, success: u32, error: u32) {
        let site = self.sites.of(seq);
        if let Some(site) = site.and_then(|no| self.sites.all.get_mut(no as usize)) {
            site.success = site.success.saturating_sub(success);
            site.error = site.error.saturating_sub(error);
        }
    }

    /// Whether the run accepts no more requests of a site, or none at all.
    pub(super) fn is_full(&self, site: Option<SiteNo>) -> bool {
        if self.over_bytes().is_some() {
            return true;
        }
        let taken = site.and_then(|no| self.sites.all.get(no as usize)).map_or(0, |site| u64::from(site.taken));
        self.settings.max_per_site.is_some_and(|most| taken >= most)
    }

    /// Adds a block to the queue of its site, as the last one of its priority; `first`: as the first one.
    pub(super) fn enqueue(&mut self, seq: Seq, site: SiteNo, first: bool) {
        self.set(seq, Phase::Queued);
        let (priority, priorities) = (self.priority_of(seq), &self.priorities);
        self.sites.change(site, |site| {
            let goes_after = |other: &Seq| {
                let other = priorities.get(other).copied().unwrap_or(0);
                other > priority || other == priority && !first
            };
            let at = site.queue.partition_point(goes_after);
            site.queue.insert(at, seq);
        });
    }

    /// Blocks of this site no longer wait for it, neither the queued nor the future ones.
    pub fn set_free(&mut self, no: SiteNo) {
        let mut blocks = VecDeque::new();
        self.sites.change(no, |site| {
            site.is_free = true;
            blocks = std::mem::take(&mut site.queue);
        });
        for seq in blocks {
            self.wait(seq);
        }
    }

    /// Whether a block of a site is dispatched, so that its other blocks wait.
    #[must_use]
    pub fn is_out(&self, no: SiteNo) -> bool {
        self.sites.all[no as usize].is_out
    }

    /// A dispatched block no longer blocks the others of its site.
    pub fn let_others_pass(&mut self, seq: Seq) {
        self.set_out(seq, false);
    }

    /// A leased block was not sent: it now waits for this site, as all further blocks of the site do. The attempt does not count.
    pub fn wait_for_site(&mut self, seq: Seq, no: SiteNo) -> Option<Lease> {
        let lease = self.unlease(seq)?;
        self.set_site(seq, Some(no));
        self.set_waiting(no);
        self.enqueue(seq, no, false);
        Some(lease)
    }

    /// Blocks of this site wait for it, including future ones.
    pub fn set_waiting(&mut self, no: SiteNo) {
        self.sites.change(no, |site| site.is_free = false);
    }

    /// Takes a block back from its node and puts it first in its queue. Some of its requests may have been sent, so this attempt
    /// counts as lost.
    pub fn recall(&mut self, seq: Seq) -> Option<Lease> {
        let lease = self.remove_lease(seq)?;
        self.wait_again(seq);
        Some(lease)
    }

    fn unlease(&mut self, seq: Seq) -> Option<Lease> {
        let lease = self.remove_lease(seq)?;
        if let Some(attempts) = self.attempts.get_mut(&seq) {
            *attempts = attempts.saturating_sub(1);
        }
        Some(lease)
    }

    /// The site that a block waits for.
    pub(super) fn queue_of(&self, seq: Seq) -> Option<SiteNo> {
        self.sites.of(seq).filter(|no| !self.sites.all[*no as usize].is_free)
    }

    /// Whether the blocks of a site do not wait for it.
    #[must_use]
    pub fn is_free(&self, no: SiteNo) -> bool {
        self.sites.all[no as usize].is_free
    }

    /// A leased block was not sent: it is first in its queue again, and the attempt does not count.
    pub fn put_back(&mut self, seq: Seq) -> Option<Lease> {
        let lease = self.unlease(seq)?;
        self.wait_again(seq);
        Some(lease)
    }

    /// Removes a block from the queue of its site.
    pub(super) fn dequeue(&mut self, seq: Seq) {
        if let Some(site) = self.sites.of(seq) {
            self.sites.change(site, |site| site.queue.retain(|other| *other != seq));
        }
    }

    /// Sets whether a block of a site is dispatched.
    pub(super) fn set_out(&mut self, seq: Seq, is_out: bool) {
        if let Some(site) = self.sites.of(seq) {
            self.sites.change(site, |site| site.is_out = is_out);
        }
    }

    /// Dispatches the next block of a site to a node.
    pub fn lease_at(&mut self, site: SiteNo, node: NodeId, now: Timestamp) -> Option<(Seq, Lease)> {
        let seq = *self.sites.all.get(site as usize)?.queue.front()?;
        self.dequeue(seq);
        self.took_elsewhere(site, node, now);
        Some((seq, self.new_lease(seq, node, now)))
    }

    /// The site that a block waits for, and the number of blocks before it.
    #[must_use]
    pub fn queue_place(&self, seq: Seq) -> Option<(SiteNo, usize)> {
        let site = self.sites.of(seq).filter(|_| self.phase(seq) == Some(Phase::Queued))?;
        let ahead = self.sites.all[site as usize].queue.iter().position(|other| *other == seq)?;
        Some((site, ahead))
    }

    /// When the caller may ask for a site, as far as this run knows.
    #[must_use]
    pub fn site_at(&self, no: SiteNo) -> Timestamp {
        self.sites.all[no as usize].not_before
    }

    /// Do not ask for a site before this time.
    pub fn site_waits(&mut self, no: SiteNo, until: Timestamp) {
        self.left_elsewhere(no, until);
        self.sites.change(no, |site| site.not_before = until);
    }

    /// Whether a block of a site waits, and none is dispatched.
    pub(super) fn has_turn(&self, no: SiteNo) -> bool {
        let site = &self.sites.all[no as usize];
        !site.queue.is_empty() && !site.is_out
    }

    /// Updates whether any node may take the blocks of a site.
    pub(super) fn list_site(&mut self, no: SiteNo) {
        let is_shunned = self.elsewhere.has(no);
        self.sites.change(no, |site| site.is_shunned = is_shunned);
    }

    /// The site that has been due longest, as far as this run knows; first one where another node than this one failed.
    #[must_use]
    pub fn next_site(&self, node: NodeId, now: Timestamp) -> Option<SiteNo> {
        self.site_elsewhere(node, now).or_else(|| self.first_site(now))
    }

    fn first_site(&self, now: Timestamp) -> Option<SiteNo> {
        self.sites.waiting.first().filter(|(at, _)| *at <= now).map(|(_, no)| *no)
    }

    /// When the first waiting site is due.
    #[must_use]
    pub fn next_site_at(&self) -> Option<Timestamp> {
        self.sites.waiting.first().map(|(at, _)| *at)
    }

    /// Number of due sites with a waiting block; counts to `most`.
    #[must_use]
    pub fn sites_ready(&self, now: Timestamp, most: usize) -> usize {
        self.sites.waiting.range(..=(now, SiteNo::MAX)).take(most).count()
    }

    /// Number of blocks that wait for their site.
    #[must_use]
    pub fn queued(&self) -> usize {
        self.sites.queued
    }

    /// The sites from this number on.
    pub fn sites(&self, from: SiteNo) -> impl Iterator<Item = SiteCounts> {
        let sites = self.sites.all.iter().enumerate().skip(from as usize);
        sites.map(|(no, site)| SiteCounts {
            no: no as SiteNo,
            name: Arc::clone(&site.name),
            queued: site.queue.len(),
            not_before: site.not_before,
            left: site.taken.saturating_sub(site.success.saturating_add(site.error)),
            success: site.success,
            error: site.error,
        })
    }

    /// Whether the run has met a site.
    #[must_use]
    pub fn has_site(&self, name: &str) -> bool {
        self.sites.numbers.contains_key(name)
    }

    /// The number of sites.
    #[must_use]
    pub fn site_count(&self) -> usize {
        self.sites.all.len()
    }

    /// The site with this name, if the run has one.
    #[must_use]
    pub fn known_site(&self, name: &str) -> Option<SiteNo> {
        self.sites.numbers.get(name).copied()
    }

    /// The sites that were held under these names may be asked for again.
    pub fn sites_freed(&mut self, released: &Holds, now: Timestamp) {
        let freed: Vec<SiteNo> = (0..).zip(&self.sites.all).filter(|(_, site)| released.is_any_of(&site.name)).map(|(no, _)| no).collect();
        for no in freed {
            self.site_waits(no, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::block::{Lost, StoredBlock};
    use super::super::super::seen::SeenSet;
    use super::super::super::settings::QueueSettings;
    use super::*;

    #[test]
    fn results_are_counted_at_their_site_also_after_a_restart() {
        let block = |seq, site: Option<&str>, phase, (requests, success, error)| StoredBlock {
            seq,
            site: site.map(Into::into),
            priority: 0,
            phase,
            attempts: 0,
            requests,
            success,
            error,
            bytes: 0,
        };
        let blocks = [
            block(0, Some("a.org"), Phase::Answered, (5, 3, 2)),
            block(1, Some("a.org"), Phase::Ready, (4, 0, 0)),
            block(2, None, Phase::Ready, (7, 0, 0)),
        ];
        let settings = QueueSettings { block_attempts: 9, ..QueueSettings::default() };
        let mut frontier = Frontier::restore(settings, false, &blocks, SeenSet::new());
        let counts = |frontier: &Frontier| frontier.sites(0).map(|site| (site.left, site.success, site.error)).collect::<Vec<_>>();
        assert_eq!(counts(&frontier), [(4, 3, 2)]);
        let now = Timestamp(1);
        let (site, node) = (frontier.site_number("a.org"), NodeId(uuid::Uuid::nil()));
        let (seq, _) = frontier.lease_at(site, node, now).expect("a block");
        frontier.begin_report(seq);
        frontier.reported(seq, 4, 0);
        assert_eq!(counts(&frontier), [(0, 7, 2)]);
        // Its results are lost.
        assert_eq!(frontier.deliver(None, now).map(|(seq, _)| seq), Some(0));
        assert!(frontier.begin_discard(0));
        assert_eq!(frontier.discarded(0, 3, 2, 1), Lost::Retry(1));
        assert_eq!(counts(&frontier), [(5, 4, 0)]);
        // Requests without a site wait for one that is held.
        let (seq, _) = frontier.lease(node, now).expect("a block");
        let held = frontier.site_number("http://127.0.0.1:8000");
        frontier.count_moved(seq, held, 7);
        frontier.wait_for_site(seq, held);
        assert_eq!((counts(&frontier)[1], frontier.site_count()), ((7, 0, 0), 2));
        frontier.count_moved(seq, held, 7);
        assert_eq!(counts(&frontier)[1], (7, 0, 0), "they are there already");
    }
}
