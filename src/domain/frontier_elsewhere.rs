//! Blocks that failed at a node for a reason that another node may not have: DNS, no connection, TLS, the settings of its owner.
//!
//! Another node is preferred for them. If none takes them in time, any node may. This is only in memory: after a restart, any node may.

use super::super::ids::{NodeId, Seq};
use super::super::time::Timestamp;
use super::{Frontier, SiteNo};
use std::collections::{BTreeMap, HashSet};

/// How long another node is preferred, in milliseconds.
const PREFERENCE_MS: i64 = 10_000;

/// Not this node, until this time.
#[derive(Debug, Clone, Copy)]
struct Shun {
    node: NodeId,
    until: Timestamp,
}

/// See the module's text.
#[derive(Debug, Default)]
pub(super) struct Elsewhere {
    /// Blocks that came from another node, and have no results.
    moved: HashSet<Seq>,
    /// Waiting blocks that belong to no site.
    blocks: BTreeMap<Seq, Shun>,
    /// Sites whose blocks prefer another node.
    sites: BTreeMap<SiteNo, Shun>,
}

impl Elsewhere {
    pub(super) fn has(&self, site: SiteNo) -> bool {
        self.sites.contains_key(&site)
    }

    pub(super) fn waiting(&self) -> usize {
        self.blocks.len()
    }
}

impl Frontier {
    /// A waiting block failed at this node: another node is preferred for it, and for its site.
    pub fn prefer_another(&mut self, seq: Seq, node: NodeId, now: Timestamp) {
        self.elsewhere.moved.insert(seq);
        match self.queue_of(seq) {
            Some(site) => self.prefer_another_at(site, node, now),
            None => {
                self.take_from_queue(seq);
                self.elsewhere.blocks.insert(seq, Shun { node, until: now.plus_ms(PREFERENCE_MS) });
            }
        }
    }

    /// Something of a site failed at this node: another node is preferred for its blocks.
    pub fn prefer_another_at(&mut self, site: SiteNo, node: NodeId, now: Timestamp) {
        let until = self.site_at(site).max(now).plus_ms(PREFERENCE_MS);
        self.elsewhere.sites.insert(site, Shun { node, until });
        self.list_site(site);
    }

    /// Whether requests of a block failed at another node.
    #[must_use]
    pub fn is_moved(&self, seq: Seq) -> bool {
        self.elsewhere.moved.contains(&seq)
    }

    /// The results of a block are stored.
    pub(super) fn forget_moved(&mut self, seq: Seq) {
        self.elsewhere.moved.remove(&seq);
    }

    /// A block no longer waits.
    pub(super) fn leave_elsewhere(&mut self, seq: Seq) {
        self.elsewhere.blocks.remove(&seq);
    }

    /// The first block that failed at another node than this one.
    pub(super) fn pop_elsewhere(&mut self, node: NodeId) -> Option<Seq> {
        let seq = self.elsewhere.blocks.iter().find(|(_, shun)| shun.node != node).map(|(seq, _)| *seq)?;
        self.elsewhere.blocks.remove(&seq);
        Some(seq)
    }

    /// A due site where another node than this one failed.
    pub(super) fn site_elsewhere(&self, node: NodeId, now: Timestamp) -> Option<SiteNo> {
        let due = |site: SiteNo| self.has_turn(site) && self.site_at(site) <= now;
        self.elsewhere.sites.iter().find(|(site, shun)| shun.node != node && due(**site)).map(|(site, _)| *site)
    }

    /// A node has a turn at a site: while this node succeeds, it stays preferred.
    pub(super) fn took_elsewhere(&mut self, site: SiteNo, node: NodeId, now: Timestamp) {
        if let Some(shun) = self.elsewhere.sites.get_mut(&site).filter(|shun| shun.node != node) {
            // The turn itself counts only when it is over.
            shun.until = now.plus_ms(self.settings.lease as i64);
        }
    }

    /// A turn at a site is over; the next one is at this time.
    pub(super) fn left_elsewhere(&mut self, site: SiteNo, next: Timestamp) {
        if let Some(shun) = self.elsewhere.sites.get_mut(&site) {
            shun.until = next.plus_ms(PREFERENCE_MS);
        }
    }

    /// The nodes that waiting blocks, and blocks of due sites, avoid; blocks first. What has waited for too long is open to all nodes.
    pub fn avoided(&mut self, now: Timestamp) -> (Vec<NodeId>, Vec<NodeId>) {
        let late: Vec<Seq> = self.elsewhere.blocks.iter().filter(|(_, shun)| shun.until <= now).map(|(seq, _)| *seq).collect();
        for seq in late {
            self.elsewhere.blocks.remove(&seq);
            self.wait(seq);
        }
        let late: Vec<SiteNo> = self.elsewhere.sites.iter().filter(|(_, shun)| shun.until <= now).map(|(site, _)| *site).collect();
        for site in late {
            self.elsewhere.sites.remove(&site);
            self.list_site(site);
        }
        let due = |site: SiteNo| self.has_turn(site) && self.site_at(site) <= now;
        let sites = self.elsewhere.sites.iter().filter(|(site, _)| due(**site)).map(|(_, shun)| shun.node).collect();
        (self.elsewhere.blocks.values().map(|shun| shun.node).collect(), sites)
    }
}
