//! Applies the reports of nodes to sites: to the pace of sites that have one, and to the hold-off of all sites.
//!
//! A site without a pace needs no turn, but it is held off too: if it requests a pause, and if it repeatedly does not answer. Its state is kept
//! under the name of its origin. Blocks are checked for held origins before they are dispatched (`held`).

use super::RunActor;
use super::cache::Payload;
use super::held::Addressed;
use super::hosts::Hosts;
use super::outcomes::{has_begun, last_error, outcomes, outcomes_of, unpaced_outcomes};
use crate::actors::sites::Trouble;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::Seq;
use crate::domain::request::unpack;
use crate::domain::sites::{Ended, Outcome, Pace, SiteState};
use crate::domain::time::Timestamp;
use crate::protocol::pack::Index;
use crate::store::KeepSite;
use actix::Context;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use url::Url;

impl RunActor {
    /// Applies the outcomes in a report of a block. `payload`: all its requests.
    pub(super) fn learn_from(&mut self, seq: Seq, index: &Index, payload: &Payload, ctx: &mut Context<Self>) {
        match self.kind.frontier.site_of(seq) {
            Some(site) => self.learn(site, index, &self.hosts_of(site, payload), ctx),
            None => self.learn_by_origin(index, payload, ctx),
        }
    }

    /// Applies the outcomes in a report to the site of its block, and to the hosts of its requests.
    pub(super) fn learn(&mut self, site: SiteNo, index: &Index, hosts: &Hosts, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        let outcomes = outcomes(index);
        self.context.sites.count(&outcomes);
        self.note_trouble(site, &outcomes, index);
        let (name, pace) = (self.turn_name(site), self.pace(site));
        if pace == Pace::FREE {
            let unpaced = unpaced_outcomes(index).into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>();
            return self.learn_unpaced(name, &unpaced, ctx);
        }
        let last_began = index.site.as_ref().and_then(|news| news.last_began).unwrap_or(0);
        let began = now.plus_ms(-i64::try_from(last_began).unwrap_or(0));
        let of_hosts: BTreeSet<&Arc<str>> = hosts.values().filter(|host| **host != name).collect();
        let of_hosts = of_hosts.into_iter().map(|host| (Arc::clone(host), outcomes_of(index, |print| hosts.get(&print) == Some(host))));
        let all: Vec<_> = [(Arc::clone(&name), outcomes)].into_iter().chain(of_hosts).collect();
        for (name, mut outcomes) in all {
            if outcomes.is_empty() && has_begun(index) {
                outcomes.push(Outcome { ended: Ended::Unknown, elapsed_ms: 0, retry_after_ms: None });
            }
            if outcomes.is_empty() {
                continue;
            }
            let mut board = self.context.sites.board();
            if let Some(state) = board.learn(&name, pace, &outcomes, began, now) {
                let held_by = board.held_by(&name, now);
                drop(board);
                self.keep_site(name, state, held_by, ctx);
            }
        }
    }

    /// Applies the outcomes in a report of a block whose requests may go to several origins.
    fn learn_by_origin(&mut self, index: &Index, payload: &Payload, ctx: &mut Context<Self>) {
        let mut outcomes = unpaced_outcomes(index);
        if !self.context.sites.board().has_unpaced() {
            outcomes.retain(|(_, outcome)| !outcome.ended.is_well());
        }
        if outcomes.is_empty() {
            return;
        }
        let Some(origins) = origins(payload) else { return };
        let mut by_origin: BTreeMap<&str, Vec<Outcome>> = BTreeMap::new();
        for (print, outcome) in outcomes {
            if let Some(origin) = origins.get(&print) {
                by_origin.entry(origin).or_default().push(outcome);
            }
        }
        for (origin, outcomes) in by_origin {
            self.learn_unpaced(origin.into(), &outcomes, ctx);
        }
    }

    fn learn_unpaced(&mut self, name: Arc<str>, outcomes: &[Outcome], ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        let mut board = self.context.sites.board();
        let Some(state) = board.learn_unpaced(&name, outcomes, now) else { return };
        let (held, held_by) = (board.own_hold(&name, now), board.held_by(&name, now));
        drop(board);
        if let Some((until, why)) = held {
            log::info!("site held name={name} until={} why={}", until.on_the_wall(), why.name());
        }
        self.keep_site(name, state, held_by, ctx);
    }

    /// Queues the write of a site before that of the report, so that a crash cannot lose it, and before other runs change the site.
    fn keep_site(&mut self, name: Arc<str>, state: Option<SiteState>, held_by: Option<Arc<str>>, ctx: &mut Context<Self>) {
        if self.context.leader.is_some() {
            return; // the leader stores holds and sites that its board gets from this one
        }
        let write = self.context.store.write_unbounded(KeepSite { name, state, held_by, now: Timestamp::now() });
        Self::then(ctx, write, |_, (), _| {});
    }

    /// Keeps the last error of a site, or forgets it when the site has answered.
    fn note_trouble(&self, site: SiteNo, outcomes: &[Outcome], index: &Index) {
        if let Some((error, tries)) = last_error(index) {
            let trouble = Trouble { error: Arc::new(error.clone()), tries, is_robots: false, at: Timestamp::now() };
            self.context.sites.note_trouble(self.kind.frontier.site_name(site), trouble);
        } else if outcomes.iter().any(|outcome| matches!(outcome.ended, Ended::Answered(_))) {
            self.context.sites.forget_trouble(&self.kind.frontier.site_name(site));
        }
    }
}

/// The origin of each request of a block; `None` if the block cannot be read, which its next dispatch reports.
fn origins(payload: &Payload) -> Option<HashMap<Fingerprint, String>> {
    let text = payload.text().ok()?;
    let requests = unpack(&text).ok()?;
    let origin = |json: &str| {
        let url = Url::parse(&serde_json::from_str::<Addressed<'_>>(json).ok()?.url).ok()?;
        Some(url.origin().ascii_serialization())
    };
    let found = payload.prints.iter().zip(&requests).filter_map(|(print, request)| Some((*print, origin(request.get())?)));
    Some(found.collect())
}
