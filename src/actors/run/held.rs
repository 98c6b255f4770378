//! Holds of sites by operators.
//!
//! For a site with a pace, a hold prevents new turns. Requests to other sites need no turn, so each of their blocks is checked
//! before it is dispatched: requests to a held host leave the block and wait for their origin, as if it had a pace.

use super::RunActor;
use super::cache::Payload;
use super::message::{SiteHeld, SiteLent, SitesFreed};
use super::turns::Sink;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::Seq;
use crate::domain::request::unpack;
use crate::domain::sites::{Holds, is_hold_of, site_key};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use actix::{Context, Handler};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::Arc;
use url::Url;

/// The URL of a request.
#[derive(Deserialize)]
pub(super) struct Addressed<'a> {
    #[serde(borrow)]
    pub url: Cow<'a, str>,
}

/// The name under which a site is held, and the end of the hold.
type Hold = (Arc<str>, Timestamp);

/// The requests of a block that go to a held site, and the others, by index.
struct HeldPart {
    site: SiteNo,
    hold: Hold,
    held: Vec<usize>,
    others: Vec<usize>,
}

impl RunActor {
    /// Whether an operator holds the site of a block.
    pub(super) fn is_held(&self, seq: Seq) -> bool {
        let names = [self.site_name_of(seq), self.kind.frontier.site_of(seq).map(|site| self.turn_name(site))];
        let board = self.context.sites.board();
        names.iter().flatten().any(|name| board.held_by_hand(name, Timestamp::steady()).is_some())
    }

    /// Dispatches a block that needs no turn, without its requests to held sites.
    pub(super) fn send_unheld(&mut self, seq: Seq, payload: Payload, sink: Sink, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() || self.kind.frontier.lease_of(seq).is_none_or(|lease| lease.node != sink.node()) {
            return sink.nothing();
        }
        let HeldPart { site, hold: (name, until), held, others } = match self.first_held(seq, &payload) {
            Ok(Some(found)) => found,
            Ok(None) => return self.send_block(seq, payload, sink, ctx),
            Err(problem) => {
                sink.nothing();
                return self.die(&format!("failed to read the requests of block {}: {}", self.block_id(seq), problem.detail), ctx);
            }
        };
        self.kind.frontier.count_moved(seq, site, held.len() as u32);
        // A hold of the domain does not have the name of the site.
        self.kind.turns.missed.insert(site, name);
        self.kind.frontier.site_waits(site, until);
        if others.is_empty() {
            if let Some(lease) = self.kind.frontier.wait_for_site(seq, site) {
                self.note_leases_of(lease.node);
            }
            self.kind.cache.put_ready(seq, payload);
            sink.nothing();
            return self.announce(ctx);
        }
        let [stays, held] = match payload.cut([&others, &held], &HashMap::new()) {
            Ok(cut) => cut,
            Err(problem) => return self.die(&problem.detail, ctx),
        };
        self.kind.frontier.set_waiting(site);
        // The present attempt has sent nothing.
        let rest = self.kind.frontier.begin_rest(seq, Some(site), self.kind.frontier.other_losses(seq, None));
        self.kind.cache.put_leased(seq, stays.clone());
        let write = self.split((seq, &stays), Some((rest, &held)), None);
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.kind.frontier.stored(rest, 0);
            this.kind.cache.put_ready(rest, held);
            this.send_unheld(seq, stays, sink, ctx);
        });
    }

    fn send_block(&mut self, seq: Seq, payload: Payload, sink: Sink, ctx: &mut Context<Self>) {
        if self.kind.frontier.site_of(seq).is_some() {
            return self.judge_block(seq, payload, None, sink, ctx);
        }
        // The lease may have ended since the read began.
        if self.kind.frontier.lease_of(seq).is_some() {
            self.kind.cache.put_leased(seq, payload.clone());
        }
        self.send_leased(seq, &payload, None, sink, ctx);
    }

    /// The requests of a block to the first of its sites that an operator holds.
    fn first_held(&mut self, seq: Seq, payload: &Payload) -> Result<Option<HeldPart>, Problem> {
        let now = Timestamp::steady();
        if !self.context.sites.board().has_holds(now) {
            return Ok(None);
        }
        let text = payload.text()?;
        let requests = unpack(&text).map_err(|why| {
            log::error!("{why}");
            Problem::internal()
        })?;
        let (mut first, mut held, mut others): (Option<(String, _)>, _, _) = (None, Vec::new(), Vec::new());
        // The origin of the last request, and its hold: mostly the next request has the same.
        let mut last: Option<(String, Option<Hold>)> = None;
        for (place, request) in requests.iter().enumerate() {
            let Ok(Addressed { url }) = serde_json::from_str(request.get()) else {
                others.push(place);
                continue;
            };
            if last.as_ref().is_none_or(|(origin, _)| !url.strip_prefix(origin.as_str()).is_some_and(|rest| rest.starts_with('/'))) {
                last = Url::parse(&url).ok().map(|url| {
                    let (origin, key) = (url.origin().ascii_serialization(), site_key(&url, self.run.queue.sites.by, None));
                    let board = self.context.sites.board();
                    let of_origin = board.hold_of(&origin, now).map(|(name, until, _)| (name, until));
                    let longest = of_origin.into_iter().chain(board.held_by_hand(&key, now)).max_by_key(|(_, until)| *until);
                    drop(board);
                    (origin, longest)
                });
            }
            match &last {
                Some((origin, Some(hold))) if first.as_ref().is_none_or(|(first, _)| first == origin) => {
                    first.get_or_insert_with(|| (origin.clone(), hold.clone()));
                    held.push(place);
                }
                _ => others.push(place),
            }
        }
        let Some((origin, hold)) = first else { return Ok(None) };
        let site = self.kind.frontier.site_of(seq).unwrap_or_else(|| self.kind.frontier.site_number(&origin));
        Ok(Some(HeldPart { site, hold, held, others }))
    }
}

impl RunActor {
    /// The sites to which these holds apply or applied request a turn at once.
    fn look_again(&mut self, holds: &Holds, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        self.kind.frontier.sites_freed(holds, now);
        // The hosts whose turns belong to an address, and the sites that wait for another name.
        let others = self.kind.turns.turn_names.iter().chain(&self.kind.turns.missed);
        let sites: Vec<_> = others.filter(|(_, name)| holds.is_any_of(name)).map(|(site, _)| *site).collect();
        sites.into_iter().for_each(|site| self.kind.frontier.site_waits(site, now));
        self.announce(ctx);
    }
}

impl Handler<SiteHeld> for RunActor {
    type Result = ();
    fn handle(&mut self, SiteHeld(name): SiteHeld, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.site_held");
        if self.lifecycle.is_ending() {
            return;
        }
        // A hold of an address applies to the hosts whose turns belong to it.
        let is_of = |no: SiteNo| {
            is_hold_of(&name, &self.kind.frontier.site_name(no)) || self.names_of_turn(no).iter().any(|of| is_hold_of(&name, of))
        };
        let of_site = |seq| self.kind.frontier.site_of(seq).filter(|no| is_of(*no));
        let leases: Vec<_> = self.kind.frontier.leases().filter_map(|(seq, lease)| Some((seq, *lease, of_site(seq)?))).collect();
        for (seq, lease, site) in leases {
            // Results that the node has reported stay; the other requests are downloaded after the hold.
            if lease.is_sent {
                self.kind.frontier.recall(seq);
                self.store_loss(seq, self.kind.frontier.losses(seq, lease.attempt), lease.node, "its site is held", ctx);
            } else {
                self.kind.frontier.put_back(seq);
            }
            self.kind.cache.put_back(seq);
            self.note_leases_of(lease.node);
            if let Some(node) = self.context.addresses.nodes.get(lease.node) {
                node.block_done(self.block_id(seq), lease.attempt, true);
            }
            let wait_ms = self.wait_after_loss(site);
            self.turn_over(site, wait_ms, ctx);
        }
        // It may replace a longer hold, whose end its sites wait for.
        self.look_again(&[&name].into_iter().collect(), ctx);
    }
}

impl Handler<SiteLent> for RunActor {
    type Result = ();
    fn handle(&mut self, SiteLent(name): SiteLent, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.site_lent");
        let now = Timestamp::steady();
        let turns = &self.kind.turns;
        // The hosts whose turns belong to an address, and the sites that wait for another name.
        let others = turns.turn_names.iter().chain(&turns.missed).filter(|(_, of)| **of == name).map(|(site, _)| *site);
        let sites: Vec<SiteNo> = self.kind.frontier.known_site(&name).into_iter().chain(others).collect();
        sites.into_iter().for_each(|site| self.kind.frontier.site_waits(site, now));
        self.announce(ctx);
    }
}

impl Handler<SitesFreed> for RunActor {
    type Result = ();
    fn handle(&mut self, SitesFreed(released): SitesFreed, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.sites_freed");
        self.look_again(&released, ctx);
    }
}
