//! The hosts of a turn.
//!
//! A run that counts sites by domain or by address also takes the turns of the hosts to which it sends requests. So only one run at a time
//! sends requests to a host, and all runs obey its holds and its delay, however they count sites.

use super::RunActor;
use super::cache::Payload;
use super::held::Addressed;
use crate::domain::block::Phase;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::Seq;
use crate::domain::request::unpack;
use crate::domain::sites::{Granted, Pace, SiteBy, host_of};
use crate::domain::time::Timestamp;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use url::Url;

/// The host of each request; empty if the sites of the run are hosts.
pub(super) type Hosts = HashMap<Fingerprint, Arc<str>>;

/// The host of each request of a block; empty if the block cannot be read, which its next dispatch reports.
fn hosts_in(payload: &Payload) -> Hosts {
    let Ok(text) = payload.text() else { return Hosts::new() };
    let mut hosts: BTreeSet<Arc<str>> = BTreeSet::new();
    let mut host = |json: &str| {
        let host = host_of(&Url::parse(&serde_json::from_str::<Addressed<'_>>(json).ok()?.url).ok()?);
        if let Some(known) = hosts.get(host.as_str()) {
            return Some(Arc::clone(known));
        }
        let host = Arc::from(host);
        hosts.insert(Arc::clone(&host));
        Some(host)
    };
    let requests = unpack(&text).unwrap_or_default();
    payload.prints.iter().zip(&requests).filter_map(|(print, request)| Some((*print, host(request.get())?))).collect()
}

impl RunActor {
    /// The host of each request of a block of a site.
    pub(super) fn hosts_of(&self, site: SiteNo, payload: &Payload) -> Hosts {
        match self.run.queue.sites.by {
            SiteBy::Domain => hosts_in(payload),
            SiteBy::Ip => {
                let host = self.kind.frontier.site_name(site);
                payload.prints.iter().map(|print| (*print, Arc::clone(&host))).collect()
            }
            SiteBy::Host => Hosts::new(),
        }
    }

    /// The hosts whose turns a block of a site needs.
    pub(super) fn hosts_to_take(&self, site: SiteNo, payload: &Payload) -> BTreeSet<Arc<str>> {
        self.hosts_of(site, payload).into_values().collect()
    }

    /// A node has a block that waits here: the hosts whose turns the block needs. `None`: they are not known.
    fn hosts_to_adopt(&self, site: SiteNo, seq: Seq) -> Option<BTreeSet<Arc<str>>> {
        match self.run.queue.sites.by {
            SiteBy::Host => Some(BTreeSet::new()),
            SiteBy::Ip => Some([self.kind.frontier.site_name(site)].into()),
            SiteBy::Domain => Some(self.hosts_to_take(site, self.kind.cache.peek(seq)?)),
        }
    }

    /// Whether a block waits for a node.
    pub(super) fn is_waiting(&self, seq: Seq) -> bool {
        matches!(self.kind.frontier.phase(seq), Some(Phase::Ready | Phase::Retry | Phase::Queued))
    }

    /// Whether a block waits here, and the hosts whose turns it needs are not known until its requests are read.
    pub(super) fn lacks_hosts(&self, seq: Seq) -> bool {
        let site = self.kind.frontier.site_of(seq).filter(|site| self.is_waiting(seq) && !self.kind.frontier.is_free(*site));
        site.is_some_and(|site| self.hosts_to_adopt(site, seq).is_none())
    }

    /// A node has a block that waits here: the run takes the turns that it needs. Returns false if it cannot.
    pub(super) fn adopt_turn(&mut self, site: SiteNo, seq: Seq, now: Timestamp) -> bool {
        // After a restart the address is not known: the node drops the block.
        if self.lacks_address(site) || self.kind.frontier.is_out(site) || self.is_probed(site) {
            return false;
        }
        let Some(mut hosts) = self.hosts_to_adopt(site, seq) else { return false };
        let name = self.turn_name(site);
        if self.is_taken_by_another_host(site, &name) {
            return false; // the board does not distinguish two hosts of one run
        }
        hosts.remove(&name);
        let names: Vec<_> = [Arc::clone(&name)].into_iter().chain(hosts.iter().cloned()).collect();
        let until = self.turn_until(now);
        let mut board = self.context.sites.board();
        if names.iter().any(|name| board.held_by_hand(name, now).is_some()) || !board.renew(&names, self.identity(), until, now) {
            return false;
        }
        drop(board);
        self.kind.turns.hosts.insert(site, hosts.into_iter().collect());
        self.note_holder(site, name);
        true
    }

    /// The host of a URL, if its turn is to be taken beside that of its site.
    pub(super) fn host_to_take(&self, url: &Url) -> BTreeSet<Arc<str>> {
        let is_host = self.run.queue.sites.by == SiteBy::Host;
        (!is_host).then(|| host_of(url).into()).into_iter().collect()
    }

    /// All names whose turns the run has, if it has the turn of a site.
    pub(super) fn names_of_turn(&self, site: SiteNo) -> Vec<Arc<str>> {
        let hosts = self.kind.turns.hosts.get(&site).map(Vec::as_slice).unwrap_or_default();
        [self.turn_name(site)].into_iter().chain(hosts.iter().cloned()).collect()
    }

    /// Gives up the turn of a site. Its node may continue for `wait_ms`. Returns when the site may be used again.
    pub(super) fn release_turn(&mut self, site: SiteNo, wait_ms: u64, now: Timestamp) -> Timestamp {
        let (names, identity) = (self.names_of_turn(site), self.identity());
        self.kind.turns.hosts.remove(&site);
        let mut board = self.context.sites.board();
        let next = names.iter().map(|name| board.release(name, identity, wait_ms as i64, now));
        next.max().unwrap_or(now)
    }

    /// What a turn at a site grants now.
    pub(super) fn granted(&mut self, site: SiteNo) -> Granted {
        let (pace, names) = (self.pace(site), self.names_of_turn(site));
        let board = self.context.sites.board();
        let all = names.iter().map(|name| board.granted(name, pace));
        all.reduce(Granted::and).expect("a turn has a name")
    }

    /// The run has the turn of a site, and takes those of hosts.
    ///
    /// # Errors
    /// The time when it may try again: not all turns are free, and the run has none of them, nor that of the site.
    pub(super) fn take_hosts(
        &mut self,
        site: SiteNo,
        hosts: BTreeSet<Arc<str>>,
        granted: Granted,
        now: Timestamp,
    ) -> Result<Granted, Timestamp> {
        let pace = self.pace(site);
        if hosts.is_empty() || pace == Pace::FREE {
            return Ok(granted);
        }
        let (identity, until) = (self.identity(), self.turn_until(now));
        let has = self.names_of_turn(site);
        let more: Vec<_> = hosts.into_iter().filter(|host| !has.contains(host)).collect();
        let taken = self.context.sites.board().take_more(&has, &more, pace, (identity, until), now);
        if let Err((later, host)) = taken {
            self.kind.turns.missed.insert(site, host);
            return Err(later);
        }
        self.kind.turns.missed.remove(&site);
        self.kind.turns.hosts.entry(site).or_default().extend(more);
        Ok(self.granted(site))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_of_a_block_are_those_of_its_requests() {
        let urls = ["http://www.a.test/1", "https://WWW.a.test:8443/2", "http://img.a.test/3"];
        let prints = urls.map(|url| Fingerprint::of("GET", url, b""));
        let requests: Vec<_> = prints.iter().zip(urls).map(|(id, url)| serde_json::json!({ "requestId": id, "url": url })).collect();
        let payload = Payload::pack(serde_json::json!(requests).to_string().as_bytes(), Arc::new(prints)).expect("a payload");
        let hosts = hosts_in(&payload);
        assert_eq!(prints.map(|print| hosts[&print].to_string()), ["www.a.test", "www.a.test", "img.a.test"]);
    }
}
