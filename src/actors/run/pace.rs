//! The pace at each site of a run: which site an origin belongs to, and how fast it may be requested.

use super::RunActor;
use crate::domain::frontier::SiteNo;
use crate::domain::sites::{Ended, Granted, Outcome, Pace, SiteBy, url_at};
use crate::domain::time::Timestamp;
use crate::protocol::node;
use url::Url;

/// Maximum number of origins whose site is cached.
const MOST_ORIGINS: usize = 100_000;

impl RunActor {
    /// The sites of the origins of a batch.
    pub(super) fn sites_of(&mut self, origins: &[Box<str>]) -> Vec<Option<SiteNo>> {
        origins.iter().map(|origin| self.site_at(origin)).collect()
    }

    fn site_at(&mut self, origin: &str) -> Option<SiteNo> {
        if let Some(known) = self.kind.turns.origins.get(origin) {
            return *known;
        }
        let url = Url::parse(origin).ok();
        let named = url.as_ref().and_then(|url| self.run.queue.sites.site(url, &self.context.sites.rules));
        let mut site = named.map(|named| {
            let no = self.kind.frontier.site_number(&named.name);
            // The hosts of a domain may have different rules: the slowest counts.
            let pace = self.kind.turns.paces.entry(no).or_insert(named.pace);
            pace.delay_ms = pace.delay_ms.max(named.pace.delay_ms);
            pace.connections = pace.connections.min(named.pace.connections);
            no
        });
        if site.is_none() && self.kind.frontier.settings().max_per_site.is_some() {
            // Its requests are counted, but need no turn. Without a user and a password, the name is that of its holds.
            let name = url.map_or_else(|| origin.to_owned(), |url| url.origin().ascii_serialization());
            let no = self.kind.frontier.site_number(&name);
            self.kind.turns.paces.insert(no, Pace::FREE);
            self.kind.frontier.set_free(no);
            site = Some(no);
        }
        if self.kind.turns.origins.len() >= MOST_ORIGINS {
            self.kind.turns.origins.clear();
        }
        self.kind.turns.origins.insert(origin.into(), site);
        site
    }

    /// The pace of a site.
    pub(super) fn pace(&mut self, site: SiteNo) -> Pace {
        if let Some(pace) = self.kind.turns.paces.get(&site) {
            return *pace;
        }
        let pace = url_at(&self.kind.frontier.site_name(site)).map(|url| self.run.queue.sites.pace(&url, &self.context.sites.rules));
        *self.kind.turns.paces.entry(site).or_insert(pace.unwrap_or_default())
    }

    /// Applies a delay that a site requires. Returns true if it is longer than that of the other rules and applies from now on.
    pub(super) fn slow_down(&mut self, site: SiteNo, delay_ms: u32) -> bool {
        let pace = self.pace(site);
        if delay_ms <= pace.delay_ms {
            return false;
        }
        let pace = Pace { delay_ms, ..if pace == Pace::FREE { Pace { connections: 1, delay_ms: 0 } } else { pace } };
        self.kind.turns.paces.insert(site, pace);
        self.kind.turns.slowed_by_robots.insert(site);
        // The last request may have begun just now.
        let (names, now) = (self.names_of_turn(site), Timestamp::steady());
        let nothing = Outcome { ended: Ended::Unknown, elapsed_ms: 0, retry_after_ms: None };
        let mut board = self.context.sites.board();
        for name in names {
            board.learn(&name, pace, &[nothing], now, now);
        }
        true
    }

    /// Applies the longest delay that the robots.txt files of the hosts of a domain require, including files that only other runs have read.
    pub(super) fn slow_down_with_domain(&mut self, site: SiteNo) {
        let policy = &self.run.queue.sites;
        if policy.by == SiteBy::Domain && policy.robots != Some(false) {
            let delay_ms = self.context.sites.delay_of(&self.kind.frontier.site_name(site), Timestamp::now());
            self.slow_down(site, delay_ms);
        }
    }

    /// How long a site is closed after its node was lost: the right of the node, and the delay after its last request.
    pub(super) fn wait_after_loss(&mut self, site: SiteNo) -> u64 {
        self.context.sites.right_ms + u64::from(self.granted(site).delay_ms)
    }

    /// The pace in the message to a node with a turn.
    pub(super) fn pace_of(&self, site: SiteNo, granted: Granted) -> node::Pace {
        node::Pace {
            site: self.turn_name(site).to_string(),
            delay: granted.delay_ms.into(),
            jitter: granted.jitter_ms.into(),
            connections: granted.connections.into(),
            not_before: 0,
            right: self.context.sites.right_ms,
        }
    }
}
