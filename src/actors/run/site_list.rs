//! The list of the sites of a run.

use super::RunActor;
use super::message::DescribeSites;
use crate::domain::frontier::{SiteCounts, SiteNo};
use crate::domain::sites::{DelayBy, url_at};
use crate::domain::time::Timestamp;
use crate::protocol::api::{Page, SitesOfRun};
use crate::protocol::sites::{HeldOutput, RunSiteOutput};
use actix::Handler;
use std::collections::{HashMap, HashSet};

/// Up to this number of sites, each site is checked for holds. With more sites, only holds under the site's own name are counted.
const MOST_LOOKED_UP: usize = 2_000;

impl RunActor {
    /// The numbers of its sites; `None` if it has none.
    pub(super) fn site_counts(&self) -> Option<SitesOfRun> {
        let (frontier, now) = (&self.kind.frontier, Timestamp::steady());
        let total = frontier.site_count();
        if total == 0 {
            return None;
        }
        let active: HashSet<SiteNo> = frontier.leases().filter_map(|(seq, _)| frontier.site_of(seq)).collect();
        let mut board = self.context.sites.board();
        let held = if total > MOST_LOOKED_UP {
            board.all_held(now).filter(|name| frontier.has_site(name)).count()
        } else {
            let is_held = |no: &SiteNo| {
                let (name, turn) = (frontier.site_name(*no), self.turn_name(*no));
                board.held(&name, now).is_some() || turn != name && board.held(&turn, now).is_some()
            };
            (0..total as SiteNo).filter(is_held).count()
        };
        Some(SitesOfRun { total: total as u64, active: active.len() as u64, held: held as u64 })
    }

    fn site_output(&mut self, site: &SiteCounts, at_nodes: usize) -> RunSiteOutput {
        let (now, pace) = (Timestamp::steady(), self.pace(site.no));
        let turn = self.turn_name(site.no);
        let missed = self.kind.turns.missed.get(&site.no);
        let (view, delay) = {
            let board = self.context.sites.board();
            // A host that is held, and whose turn belongs to its address or domain.
            let of_hosts = [Some(&site.name), missed].into_iter().flatten().filter_map(|name| board.view(name, now));
            let held = of_hosts.filter(|view| view.held.is_some()).max_by_key(|view| view.held.map(|(until, _)| until));
            (held.or_else(|| board.view(&turn, now)), board.granted(&turn, pace).delay_ms)
        };
        let mut next_at = site.not_before;
        let (mut held, mut held_by) = (None, None);
        if let Some(view) = view {
            next_at = next_at.max(view.next_at);
            (held, held_by) = (view.held, view.held_by);
        }
        let is_of_robots = self.kind.turns.slowed_by_robots.contains(&site.no);
        let by_rules = || Some(self.run.queue.sites.delay_by(pace.delay_ms, &url_at(&site.name)?, is_of_robots, &self.context.sites.rules));
        RunSiteOutput {
            name: site.name.to_string(),
            left: site.left.into(),
            success: site.success.into(),
            error: site.error.into(),
            errors: Vec::new(),
            pending: site.queued as u64,
            at_nodes: at_nodes as u64,
            next_at: Some(next_at).filter(|at| *at > now).map(Timestamp::on_the_wall),
            delay: Some(delay.into()),
            delay_by: match delay {
                0 => None,
                _ if delay > pace.delay_ms => Some(DelayBy::SlowAnswers),
                _ => by_rules(),
            },
            connections: Some(pace.connections),
            held: HeldOutput::of(held, held_by.as_deref()),
            last_error: self.context.sites.trouble(&site.name).map(Into::into),
        }
    }
}

impl Handler<DescribeSites> for RunActor {
    type Result = ();
    fn handle(&mut self, DescribeSites { from, limit, reply }: DescribeSites, _: &mut Self::Context) {
        let _timed = self.guard.timed("run.describe_sites");
        let mut rows: Vec<_> = self.kind.frontier.sites(from).take(limit + 1).collect();
        let next_cursor = (rows.len() > limit).then(|| rows.pop().map(|row| row.no.to_string())).flatten();
        let mut at_nodes: HashMap<SiteNo, usize> = HashMap::new();
        for site in self.kind.frontier.leases().filter_map(|(seq, _)| self.kind.frontier.site_of(seq)) {
            *at_nodes.entry(site).or_default() += 1;
        }
        let items = rows.iter().map(|row| self.site_output(row, at_nodes.get(&row.no).copied().unwrap_or(0)));
        let items = items.collect();
        reply.send(Ok(Page { items, next_cursor }));
    }
}
