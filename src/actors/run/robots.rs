//! Fetches the robots.txt of an origin once for all runs, as a block of one request that is in no queue.

use super::RunActor;
use super::cache::Payload;
use super::turns::Sink;
use crate::actors::reply::Reply;
use crate::actors::sites::{KnownRobots, RobotsKey};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::robots::{Fetched, Robots, cache_ms, judge, product_token, robots_url};
use crate::domain::sites::{Granted, Pace};
use crate::domain::time::Timestamp;
use crate::protocol::node::{Block, FetchErrorKind, Reported};
use crate::protocol::pack::{self, Index};
use crate::protocol::problem::Problem;
use crate::store::{KeepRobots, RobotsOf};
use actix::Context;
use std::sync::Arc;
use url::Url;

/// Blocks with numbers from here on are robots.txt fetches, which are not stored.
const FIRST_PROBE: Seq = 0xF000_0000;
/// Maximum bytes of a robots.txt that a node reads; the parser reads less.
const MOST_BODY: u64 = 4 << 20;
/// The user agent of a run without its own.
const DEFAULT_AGENT: &str = "webloom";
/// A fetch that its node does not list after this many milliseconds did not arrive.
const RESEND_MS: i64 = 2_000;
/// A fetch without any message for this many milliseconds is given up.
const PATIENCE_MS: i64 = 180_000;

/// A robots.txt fetch in progress.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    site: SiteNo,
    key: RobotsKey,
    print: Fingerprint,
    node: NodeId,
    since: Timestamp,
}

impl RunActor {
    /// The cache key of the robots.txt for a URL.
    pub(super) fn robots_key(&self, url: &Url) -> RobotsKey {
        let agent = self.run.download.site.user_agent.as_deref().unwrap_or(DEFAULT_AGENT);
        (url.origin().ascii_serialization().into(), product_token(agent).into())
    }

    /// Gets the robots.txt for a URL: from the store, or from the site.
    pub(super) fn ask_robots(&mut self, url: Url, (site, granted): (SiteNo, Granted), sink: Sink, ctx: &mut Context<Self>) {
        let key = self.robots_key(&url);
        self.turns.looked_up.insert(site);
        // The site's blocks wait for the result.
        self.frontier.site_waits(site, Timestamp::steady().plus_ms(PATIENCE_MS));
        let known = self.context.sites.robots(&key);
        let read = self.context.store.read(RobotsOf { origin: Arc::clone(&key.0), agent: Arc::clone(&key.1) });
        Self::then(ctx, read, move |this, stored, ctx| {
            this.turns.looked_up.remove(&site);
            let stored = stored.filter(|(_, until)| *until > Timestamp::now());
            let stored =
                stored.and_then(|(text, until)| Some(KnownRobots { robots: Arc::new(Robots::of_text(&text)?), until, failures: 0 }));
            match stored.filter(|_| known.is_none()) {
                Some(stored) => {
                    sink.nothing();
                    this.slow_down(site, stored.robots.crawl_delay_ms().unwrap_or(0));
                    this.turn_over(site, 0, ctx);
                    this.robots_known(site, key, stored, ctx);
                }
                None => this.probe(&url, key, (site, granted), sink, ctx),
            }
        });
    }

    fn probe(&mut self, url: &Url, key: RobotsKey, (site, granted): (SiteNo, Granted), sink: Sink, ctx: &mut Context<Self>) {
        let Some(url) = robots_url(url).filter(|_| !self.ending && !self.is_paused()) else {
            self.turn_over(site, 0, ctx);
            return sink.nothing();
        };
        let print = Fingerprint::of("GET", url.as_str(), b"");
        let request = serde_json::json!([{ "requestId": print, "url": url.as_str() }]);
        let payload = match Payload::pack(request.to_string().as_bytes(), Arc::new([print])) {
            Ok(payload) => payload,
            Err(problem) => return self.die(&problem.detail, ctx),
        };
        let seq = FIRST_PROBE + self.turns.probes_made % (Seq::MAX - FIRST_PROBE);
        self.turns.probes_made += 1;
        let node = sink.node();
        let probe = Probe { site, key, print, node, since: Timestamp::steady() };
        self.turns.probes.insert(seq, probe);
        self.involved.add_node(node);
        let mut settings = self.run.download.clone();
        (settings.max_body, settings.thread_num, settings.max_redirects) = (MOST_BODY, 1, 5);
        settings.change_ip_pattern = None;
        // The fetch uses the turn that was granted for the site, even if the site has no pace.
        let pace = Some(self.pace_of(site, granted));
        let (block_id, identity) = (self.block_id(seq), self.identity());
        let block =
            Block { block_id, identity, epoch: self.epoch, attempt: 1, lost: Some(0), parts: false, pace, settings, requests: None };
        sink.send(block, &payload);
    }

    /// Whether a block is a robots.txt fetch in progress at this node.
    pub(super) fn is_probe(&self, seq: Seq, node: NodeId) -> bool {
        self.turns.probes.get(&seq).is_some_and(|probe| probe.node == node)
    }

    /// Handles the report of a robots.txt fetch.
    pub(super) fn robots_came(&mut self, seq: Seq, index: &Index, pack: &[u8], reply: Reply<Reported>, ctx: &mut Context<Self>) {
        // An earlier actor of the run may have used this number for another fetch.
        let is_it = self.is_probe(seq, index.node_id) && index.epoch.is_none_or(|epoch| epoch == self.epoch);
        let Some(probe) = is_it.then(|| self.turns.probes.remove(&seq)).flatten() else {
            let detail = format!("{} is not, or no longer, held by node {}", index.block_id, index.node_id);
            return reply.send(Err(Problem::conflict("late-report", detail)));
        };
        if let Some(node) = self.context.addresses.nodes.get(probe.node) {
            node.block_done(self.block_id(seq), 1, false);
        }
        self.note_leases_of(probe.node);
        self.learn(probe.site, index, ctx);
        let failures = self.context.sites.robots(&probe.key).map_or(0, |known| known.failures);
        let results = pack::open(pack, 2 * MOST_BODY as usize).map(|(_, results)| results).unwrap_or_default();
        let result = results.into_iter().find(|result| result.entry.request_id == probe.print);
        let header = |name: &str| {
            let headers = result.as_ref().map(|result| result.head.headers.as_slice()).unwrap_or_default();
            headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        let now = Timestamp::now();
        let cache_ms = cache_ms(header("cache-control").as_deref(), header("expires").as_deref(), header("age").as_deref(), now);
        let fetched = match &result {
            Some(result) if result.entry.error.is_none() && result.entry.status > 0 => {
                Fetched::Answer { status: result.entry.status, body: &result.body, cache_ms }
            }
            Some(result) if result.entry.error.as_ref().is_some_and(|error| error.kind == FetchErrorKind::Redirect) => {
                Fetched::TooManyRedirects
            }
            _ => Fetched::Unreachable,
        };
        let judgement = judge(fetched, &probe.key.1, now, failures);
        let status = result.as_ref().map_or(0, |result| result.entry.status);
        let (origin, until) = (Arc::clone(&probe.key.0), judgement.until);
        log::info!("robots.txt fetched run_id={} origin={origin} status={status} until={until}", self.identity());
        let known = KnownRobots { robots: Arc::new(judgement.robots), until, failures: judgement.failures };
        if !known.robots.is_unreachable() {
            let keep = KeepRobots { origin, agent: Arc::clone(&probe.key.1), rules: known.robots.to_text(), until };
            drop(self.context.store.write(keep));
        }
        let is_success = u32::from(status > 0);
        reply.send(Ok(Reported { success: is_success, error: 1 - is_success }));
        self.slow_down(probe.site, known.robots.crawl_delay_ms().unwrap_or(0));
        self.turn_over(probe.site, 0, ctx);
        self.robots_known(probe.site, probe.key, known, ctx);
    }

    fn robots_known(&mut self, site: SiteNo, key: RobotsKey, known: KnownRobots, ctx: &mut Context<Self>) {
        let is_free = self.pace(site) == Pace::FREE && !known.robots.is_unreachable();
        self.context.sites.keep_robots(key, known);
        if is_free {
            // The site has no pace, so any node may take its blocks.
            self.frontier.set_free(site);
            self.announce(ctx);
        }
    }

    /// Handles a robots.txt fetch that its node lost or does not list.
    pub(super) fn probe_lost(&mut self, seq: Seq, ctx: &mut Context<Self>) {
        if let Some(probe) = self.turns.probes.remove(&seq) {
            if let Some(node) = self.context.addresses.nodes.get(probe.node) {
                node.block_done(self.block_id(seq), 1, true);
            }
            self.note_leases_of(probe.node);
            let wait_ms = self.wait_after_loss(probe.site);
            self.turn_over(probe.site, wait_ms, ctx);
        }
    }

    /// Whether a robots.txt fetch did not arrive at its node, which does not list it.
    pub(super) fn has_probe_missed(&self, seq: Seq, now: Timestamp) -> bool {
        self.turns.probes.get(&seq).is_some_and(|probe| now.since_ms(probe.since) >= RESEND_MS)
    }

    /// Gives up robots.txt fetches without any message.
    pub(super) fn expire_probes(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let nodes = &self.context.addresses.nodes;
        let is_over = |probe: &Probe| now.since_ms(probe.since) > PATIENCE_MS || nodes.get(probe.node).is_none();
        let over: Vec<Seq> = self.turns.probes.iter().filter(|(_, probe)| is_over(probe)).map(|(seq, _)| *seq).collect();
        for seq in over {
            self.probe_lost(seq, ctx);
        }
    }

    /// The robots.txt fetches in progress, each with its node.
    pub(super) fn probes(&self) -> Vec<(Seq, NodeId)> {
        self.turns.probes.iter().map(|(seq, probe)| (*seq, probe.node)).collect()
    }

    /// Whether the robots.txt of a site is being fetched, so that the turn is used for that.
    pub(super) fn is_probed(&self, site: SiteNo) -> bool {
        self.turns.looked_up.contains(&site) || self.turns.probes.values().any(|probe| probe.site == site)
    }

    /// The sites whose robots.txt is being fetched.
    pub(super) fn probed_sites(&self) -> Vec<SiteNo> {
        self.turns.probes.values().map(|probe| probe.site).chain(self.turns.looked_up.iter().copied()).collect()
    }

    /// robots.txt fetches at a node.
    pub(super) fn probes_at(&self, node: NodeId) -> Vec<Seq> {
        self.turns.probes.iter().filter(|(_, probe)| probe.node == node).map(|(seq, _)| *seq).collect()
    }
}
