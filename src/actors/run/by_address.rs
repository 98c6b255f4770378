//! Sites that are counted by address: the frontier has a queue for each host, and the turn belongs to the address.
//!
//! The broker looks the address up before a host gets its first turn. A host without an address is a site of its own.

use super::RunActor;
use crate::domain::frontier::SiteNo;
use crate::domain::sites::SiteBy;
use crate::domain::time::Timestamp;
use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use std::net::IpAddr;
use std::sync::Arc;

/// A lookup without a result after this many milliseconds is not waited for.
const PATIENCE_MS: i64 = 60_000;

/// What the next turn of a host belongs to: its present address. If a pause was requested at
/// the address `before`, it still applies to a host that has another address now.
fn name_of_turn(before: Option<&Arc<str>>, present: Arc<str>, is_held: impl Fn(&str) -> bool) -> Arc<str> {
    before.filter(|before| **before != present && is_held(before)).cloned().unwrap_or(present)
}

impl RunActor {
    /// The name of a site on the board: what its turn belongs to.
    pub(super) fn turn_name(&self, site: SiteNo) -> Arc<str> {
        self.kind.turns.turn_names.get(&site).cloned().unwrap_or_else(|| self.kind.frontier.site_name(site))
    }

    /// Whether the turn of a site would belong to an address that is not known yet.
    pub(super) fn lacks_address(&mut self, site: SiteNo) -> bool {
        let host = self.kind.frontier.site_name(site);
        if !self.counts_by_address(&host) || self.kind.turns.turn_names.contains_key(&site) {
            return false;
        }
        let Some(known) = self.known_address(&host) else { return true };
        self.kind.turns.turn_names.insert(site, known);
        false
    }

    /// What the turn of a host belongs to, as far as known.
    fn known_address(&self, host: &Arc<str>) -> Option<Arc<str>> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Some(address.to_canonical().to_string().into());
        }
        let known = self.context.sites.address(host, Timestamp::steady())?;
        Some(known.map_or_else(|| Arc::clone(host), |address| address.to_string().into()))
    }

    /// Whether another host of this run has the turn. The board does not distinguish two hosts of one run.
    pub(super) fn is_taken_by_another_host(&self, site: SiteNo, turn: &str) -> bool {
        let holder = self.kind.turns.holders.get(turn).copied().filter(|holder| *holder != site);
        holder.is_some_and(|holder| self.kind.frontier.is_out(holder) || self.is_probed(holder))
    }

    /// A host has got a turn.
    pub(super) fn note_holder(&mut self, site: SiteNo, turn: Arc<str>) {
        if self.run.queue.sites.by == SiteBy::Ip {
            self.kind.turns.holders.insert(turn, site);
        }
    }

    fn counts_by_address(&self, name: &str) -> bool {
        // Sites without a pace have no turns, and the names of origins.
        self.run.queue.sites.by == SiteBy::Ip && !name.contains("://")
    }

    /// Finds out what the next turn of a site belongs to. Returns false if its address must be looked up first: then the site waits for that.
    pub(super) fn find_turn_name(&mut self, site: SiteNo, now: Timestamp, ctx: &mut Context<Self>) -> bool {
        let host = self.kind.frontier.site_name(site);
        if !self.counts_by_address(&host) {
            return true;
        }
        if let Some(name) = self.known_address(&host) {
            let before = self.kind.turns.turn_names.get(&site);
            let name = name_of_turn(before, name, |before| {
                let board = self.context.sites.board();
                board.held_by_hand(before, now).is_some() || board.own_hold(before, now).is_some_and(|(_, why)| why.is_asked_for())
            });
            self.kind.turns.turn_names.insert(site, name);
            return true;
        }
        self.kind.frontier.site_waits(site, now.plus_ms(PATIENCE_MS));
        let (sites, name) = (Arc::clone(&self.context.sites), Arc::clone(&host));
        let lookup = async move {
            let found = sites.names.lookup(&name).await;
            if let Err(error) = &found {
                log::info!("address of a host not found, the site is counted by its name host={name} error={error}");
            }
            sites.note_addresses(name, &found.unwrap_or_default(), Timestamp::steady());
        };
        ctx.spawn(lookup.into_actor(self).map(move |(), this, ctx| {
            if !this.lifecycle.is_ending() {
                this.kind.frontier.site_waits(site, Timestamp::steady());
                this.announce(ctx);
            }
        }));
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hold_of_an_address_applies_after_a_change_of_the_address() {
        let [old, new]: [Arc<str>; 2] = ["10.0.0.1", "10.0.0.2"].map(Into::into);
        let name = |before: Option<&Arc<str>>, held: &str| name_of_turn(before, Arc::clone(&new), |name| name == held);
        assert_eq!(name(Some(&old), "10.0.0.1"), old);
        assert_eq!([name(Some(&old), ""), name(None, "10.0.0.1"), name(Some(&new), "10.0.0.2")], [(); 3].map(|()| Arc::clone(&new)));
    }
}
