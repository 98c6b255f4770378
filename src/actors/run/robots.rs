//! Fetches the robots.txt of an origin once for all runs, as a block of one request that is in no queue.

use super::RunActor;
use super::cache::Payload;
use super::outcomes::last_error;
use super::turns::{MOST_ROBOTS_FAILURES, Sink};
use crate::actors::reply::Reply;
use crate::actors::sites::{KnownRobots, RobotsKey, Trouble};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::origin::Origin;
use crate::domain::redirect::{is_redirect, target};
use crate::domain::robots::{Fetched, MOST_REDIRECTS, Robots, cache_ms, judge, product_token, robots_url};
use crate::domain::sites::{Granted, Pace, SiteBy, site_key};
use crate::domain::time::Timestamp;
use crate::protocol::node::{Block, FetchError, FetchErrorKind, Reported};
use crate::protocol::ownership::ToLeader;
use crate::protocol::pack::{Index, Opened};
use crate::protocol::problem::Problem;
use crate::store::{KeepRobots, RobotsOf};
use actix::Context;
use std::sync::Arc;
use url::Url;

/// Blocks with numbers from here on are robots.txt fetches, which are not stored.
pub(super) const FIRST_PROBE: Seq = 0xF000_0000;
/// Maximum bytes of a robots.txt that a node reads; the parser reads less.
const MOST_BODY: u64 = 4 << 20;
/// Maximum bytes that are unpacked of the report of a fetch.
pub(super) const MOST_OPENED: usize = 2 * MOST_BODY as usize;
/// The user agent of a run without its own.
const DEFAULT_AGENT: &str = "webloom";
/// A fetch that its node does not list after this many milliseconds did not arrive.
const RESEND_MS: i64 = 2_000;
/// A redirect leads to a site that this run uses: it is tried again after this many milliseconds.
pub(super) const TARGET_AGAIN_MS: i64 = 500;
/// A redirect leads to a site that must not be requested yet: it is tried again after this many milliseconds at most, because an operator
/// may release the site.
const MOST_TARGET_WAIT_MS: i64 = 30_000;
/// A fetch without any message for this many milliseconds is given up.
const PATIENCE_MS: i64 = 180_000;

/// A robots.txt fetch in progress.
#[derive(Debug, Clone)]
pub(super) struct Probe {
    site: SiteNo,
    /// The site of another host that redirects led to, if its turn was taken as well.
    target: Option<SiteNo>,
    /// What is fetched.
    url: Url,
    key: RobotsKey,
    print: Fingerprint,
    node: NodeId,
    since: Timestamp,
}

/// Where the robots.txt of an origin is, after redirects to other hosts.
#[derive(Debug, Clone)]
pub(super) struct Moved {
    url: Url,
    redirects: u32,
}

/// Whether a block number is that of a robots.txt fetch.
pub(super) fn is_of_robots(seq: Seq) -> bool {
    seq >= FIRST_PROBE
}

/// The error of a fetch that ended with this status, or without a result.
fn without_file(status: u16) -> FetchError {
    let message = if status == 0 { "the node reported no result".to_owned() } else { format!("the site responded with status {status}") };
    FetchError { kind: FetchErrorKind::Robots, message, retryable: true }
}

/// What redirects of a robots.txt mean.
enum Redirected {
    /// It is at this URL.
    To(Url),
    TooOften,
    No,
}

/// Whether a result is a redirect to another host, which its node does not follow.
fn redirected(from: &Url, result: Option<&Opened>, redirects: u32) -> Redirected {
    let named = result.filter(|result| result.entry.error.is_none() && is_redirect(result.entry.status)).and_then(|result| {
        let header = result.head.headers.iter().find(|(name, _)| name.eq_ignore_ascii_case("location")).map(|(_, value)| value.as_str());
        let location = result.entry.location.as_deref().or(header).filter(|location| !location.is_empty())?;
        let answered = result.head.target_url.as_deref().and_then(|url| Url::parse(url).ok());
        target(answered.as_ref().unwrap_or(from), location).ok()
    });
    match named {
        None => Redirected::No,
        Some(_) if redirects >= MOST_REDIRECTS => Redirected::TooOften,
        Some(url) => Redirected::To(url),
    }
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
        self.kind.turns.looked_up.insert(site);
        // The site's blocks wait for the result.
        self.kind.frontier.site_waits(site, Timestamp::steady().plus_ms(PATIENCE_MS));
        let known = self.context.sites.robots(&key);
        let read = self.context.store.read(RobotsOf { origin: Arc::clone(&key.0), agent: Arc::clone(&key.1) });
        Self::then(ctx, read, move |this, stored, ctx| {
            this.kind.turns.looked_up.remove(&site);
            match Self::stored_robots(stored).filter(|_| known.is_none()) {
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
        let moved = self.kind.turns.moved_robots.get(&key).map(|moved| moved.url.clone());
        let Some(url) = moved.or_else(|| robots_url(url)).filter(|_| !self.lifecycle.is_ending() && !self.dispatches_nothing()) else {
            self.turn_over(site, 0, ctx);
            return sink.nothing();
        };
        let now = Timestamp::steady();
        if !self.context.sites.begin_fetch(&key, self.identity(), now.plus_ms(PATIENCE_MS), now) {
            // Another run fetches it: without a pace there is no turn that prevents this.
            self.turn_over(site, 0, ctx);
            self.kind.frontier.site_waits(site, now.plus_ms(TARGET_AGAIN_MS));
            self.announce(ctx);
            return sink.nothing();
        }
        let (target, granted) = match self.turn_at_target(&url, site, granted, ctx) {
            Ok(taken) => taken,
            Err(later) => {
                self.context.sites.end_fetch(Some(&key), self.identity());
                self.turn_over(site, 0, ctx);
                self.kind.frontier.site_waits(site, later);
                return sink.nothing();
            }
        };
        let print = Fingerprint::of("GET", url.as_str(), b"");
        let request = serde_json::json!([{ "requestId": print, "url": url.as_str() }]);
        let payload = match Payload::pack(request.to_string().as_bytes(), Arc::new([print])) {
            Ok(payload) => payload,
            Err(problem) => return self.die(&problem.detail, ctx),
        };
        let seq = FIRST_PROBE + self.kind.turns.probes_made % (Seq::MAX - FIRST_PROBE);
        self.kind.turns.probes_made += 1;
        let node = sink.node();
        let probe = Probe { site, target, url, key, print, node, since: Timestamp::steady() };
        self.kind.turns.probes.insert(seq, probe);
        self.kind.involved.add_node(node);
        let mut settings = self.run.download.clone();
        (settings.max_body, settings.thread_num, settings.max_redirects) = (MOST_BODY, 1, MOST_REDIRECTS);
        settings.change_ip_pattern = None;
        // The fetch uses the turn that was granted for the site, even if the site has no pace.
        let pace = Some(self.pace_of(target.unwrap_or(site), granted));
        let (block_id, identity) = (self.block_id(seq), self.identity());
        let block = Block {
            block_id,
            identity,
            epoch: self.epoch,
            attempt: 1,
            lost: Some(0),
            parts: false,
            elsewhere: false,
            holds: false,
            pace,
            traceparent: None,
            settings,
            requests: None,
        };
        sink.send(block, &payload);
    }

    /// Takes the turn at the site of a URL, if that is another site than the one whose turn was granted.
    ///
    /// # Errors
    /// The site is not free until this time.
    fn turn_at_target(
        &mut self,
        url: &Url,
        site: SiteNo,
        granted: Granted,
        ctx: &mut Context<Self>,
    ) -> Result<(Option<SiteNo>, Granted), Timestamp> {
        let now = Timestamp::steady();
        let (origin, key) = (url.origin().ascii_serialization(), site_key(url, self.run.queue.sites.by, None));
        let target = self.sites_of(&[origin.as_str().into()])[0].filter(|target| *target != site);
        let Some(target) = target.filter(|target| !self.kind.frontier.is_free(*target)) else {
            let board = self.context.sites.board();
            // The site's own hold counts in its own turn.
            let is_held = board.held(&origin, now).is_some() || board.held_by_hand(&key, now).is_some();
            drop(board);
            if is_held {
                return Err(now.plus_ms(MOST_TARGET_WAIT_MS));
            }
            return Ok((None, self.take_hosts(site, self.host_to_take(url), granted, now)?));
        };
        if self.kind.frontier.is_out(target) || self.is_probed(target) {
            self.kind.turns.awaited.insert(target);
            return Err(now.plus_ms(TARGET_AGAIN_MS));
        }
        if !self.find_turn_name(target, now, ctx) {
            return Err(now.plus_ms(TARGET_AGAIN_MS));
        }
        if self.context.sites.board().held_by_hand(&self.kind.frontier.site_name(target), now).is_some() {
            return Err(now.plus_ms(MOST_TARGET_WAIT_MS));
        }
        let (name, pace) = (self.turn_name(target), self.pace(target));
        if name == self.turn_name(site) {
            // Both hosts have one address, whose turn this run has.
            return Ok((None, self.take_hosts(site, self.host_to_take(url), granted, now)?));
        }
        if self.is_taken_by_another_host(target, &name) {
            return Err(now.plus_ms(TARGET_AGAIN_MS));
        }
        let until = self.turn_until(now);
        let taken = self.context.sites.board().take(&name, pace, self.identity(), until, now);
        let taken = taken.and_then(|granted| {
            let of_host = self.take_hosts(target, self.host_to_take(url), granted, now);
            if of_host.is_err() {
                self.release_turn(target, 0, now);
            }
            of_host
        });
        match taken {
            Ok(granted) => {
                self.note_holder(target, name);
                // The site's own blocks wait for the end of the fetch.
                self.kind.frontier.site_waits(target, now.plus_ms(PATIENCE_MS));
                Ok((Some(target), granted))
            }
            Err(later) => {
                // Its own blocks come after the fetch, or it would never have a turn.
                self.kind.frontier.site_waits(target, later.plus_ms(TARGET_AGAIN_MS));
                Err(later.clamp(now.plus_ms(1), now.plus_ms(MOST_TARGET_WAIT_MS)))
            }
        }
    }

    /// The turns of a robots.txt fetch are over.
    fn release(&mut self, probe: &Probe, wait_ms: impl Fn(&mut Self, SiteNo) -> u64, ctx: &mut Context<Self>) {
        for site in [Some(probe.site), probe.target].into_iter().flatten() {
            let wait_ms = wait_ms(self, site);
            self.turn_over(site, wait_ms, ctx);
        }
    }

    /// Whether a block is a robots.txt fetch in progress at this node.
    pub(super) fn is_probe(&self, seq: Seq, node: NodeId) -> bool {
        self.kind.turns.probes.get(&seq).is_some_and(|probe| probe.node == node)
    }

    /// Handles the report of a robots.txt fetch.
    pub(super) fn robots_came(&mut self, seq: Seq, index: &Index, results: Vec<Opened>, reply: Reply<Reported>, ctx: &mut Context<Self>) {
        // An earlier actor of the run may have used this number for another fetch.
        let is_it = self.is_probe(seq, index.node_id) && index.epoch.is_none_or(|epoch| epoch == self.epoch);
        let Some(probe) = is_it.then(|| self.kind.turns.probes.remove(&seq)).flatten() else {
            let detail = format!("{} is not, or no longer, held by node {}", index.block_id, index.node_id);
            return reply.send(Err(Problem::conflict("late-report", detail)));
        };
        if let Some(node) = self.context.addresses.nodes.get(probe.node) {
            node.block_done(self.block_id(seq), 1, false);
        }
        self.note_leases_of(probe.node);
        self.context.sites.end_fetch(Some(&probe.key), self.identity());
        let hosts = self.host_to_take(&probe.url).into_iter().map(|host| (probe.print, host)).collect();
        self.learn(probe.target.unwrap_or(probe.site), index, &hosts, ctx);
        let failures = self.context.sites.robots(&probe.key).map_or(0, |known| known.failures);
        let result = results.into_iter().find(|result| result.entry.request_id == probe.print);
        let redirects = self.kind.turns.moved_robots.get(&probe.key).map_or(0, |moved| moved.redirects);
        let redirected = redirected(&probe.url, result.as_ref(), redirects);
        if let Redirected::To(url) = redirected {
            log::debug!("robots.txt is elsewhere run_id={} origin={} at={}", self.identity(), probe.key.0, Origin::text_of(url.as_str()));
            self.kind.turns.moved_robots.insert(probe.key.clone(), Moved { url, redirects: redirects + 1 });
            reply.send(Ok(Reported { success: 1, error: 0 }));
            return self.release(&probe, |_, _| 0, ctx);
        }
        self.kind.turns.moved_robots.remove(&probe.key);
        let header = |name: &str| {
            let headers = result.as_ref().map(|result| result.head.headers.as_slice()).unwrap_or_default();
            headers.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value.clone())
        };
        let now = Timestamp::now();
        let cache_ms = cache_ms(header("cache-control").as_deref(), header("expires").as_deref(), header("age").as_deref(), now);
        let fetched = match &result {
            _ if matches!(redirected, Redirected::TooOften) => Fetched::TooManyRedirects,
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
        log::debug!("robots.txt fetched run_id={} origin={origin} status={status} until={until}", self.identity());
        let mut known = KnownRobots { robots: Arc::new(judgement.robots), until, failures: judgement.failures, cause: None };
        if known.robots.is_unreachable() {
            let of_result = result.as_ref().and_then(|result| result.entry.error.clone());
            let error = of_result.or_else(|| last_error(index).map(|(error, _)| error.clone()));
            let error = error.unwrap_or_else(|| without_file(status));
            self.note_failed_probe(&mut known, error, &probe);
        }
        if !known.robots.is_unreachable() {
            let (agent, rules) = (Arc::clone(&probe.key.1), known.robots.to_text());
            match &self.context.leader {
                // Only the leader may store them.
                Some(leader) => leader.send(ToLeader::KeepRobots { origin, agent, rules, until }),
                None => drop(self.context.store.write(KeepRobots { origin, agent, rules, until })),
            }
        }
        let is_success = u32::from(status > 0);
        reply.send(Ok(Reported { success: is_success, error: 1 - is_success }));
        self.slow_down(probe.site, known.robots.crawl_delay_ms().unwrap_or(0));
        self.release(&probe, |_, _| 0, ctx);
        self.robots_known(probe.site, probe.key, known, ctx);
    }

    /// The node could not reach the site: another node is tried at once. If there is only one node and its settings refuse the URL, it is not
    /// tried again.
    fn note_failed_probe(&mut self, known: &mut KnownRobots, error: FetchError, probe: &Probe) {
        let is_refused = error.kind == FetchErrorKind::Refused;
        let (origin, kind, failures) = (&probe.key.0, error.kind.name(), known.failures);
        log::info!("robots.txt not fetched run_id={} origin={origin} kind={kind} failures={failures}", self.identity());
        let error = Arc::new(error);
        known.cause = Some(Arc::clone(&error));
        // The site may be held for longer than the file is not fetched.
        let view = self.context.sites.board().view(&self.turn_name(probe.site), Timestamp::steady());
        known.until = known.until.max(view.map_or(known.until, |view| view.next_at.on_the_wall()));
        let trouble = Trouble { error: Arc::clone(&error), tries: failures, is_robots: true, at: Timestamp::now() };
        self.context.sites.note_trouble(self.kind.frontier.site_name(probe.site), trouble);
        if self.has_other_nodes() {
            if error.kind.is_of_node() && known.failures == 1 {
                known.until = Timestamp::now();
                self.kind.frontier.prefer_another_at(probe.site, probe.node, Timestamp::steady());
            }
        } else if is_refused {
            known.failures = known.failures.max(MOST_ROBOTS_FAILURES);
        }
    }

    /// The robots.txt of a URL as it is stored, if it has not expired.
    pub(super) fn stored_robots(stored: Option<(String, Timestamp)>) -> Option<KnownRobots> {
        let (text, until) = stored.filter(|(_, until)| *until > Timestamp::now())?;
        Some(KnownRobots { robots: Arc::new(Robots::of_text(&text)?), until, failures: 0, cause: None })
    }

    fn robots_known(&mut self, site: SiteNo, key: RobotsKey, known: KnownRobots, ctx: &mut Context<Self>) {
        let is_free = self.pace(site) == Pace::FREE && !known.robots.is_unreachable();
        if let Some(delay_ms) = known.robots.crawl_delay_ms().filter(|_| self.run.queue.sites.by == SiteBy::Domain) {
            self.context.sites.note_delay(self.kind.frontier.site_name(site), delay_ms, known.until, Timestamp::now());
        }
        self.context.sites.keep_robots(key, known);
        if is_free {
            // The site has no pace, so any node may take its blocks.
            self.kind.frontier.set_free(site);
            self.announce(ctx);
        }
    }

    /// Handles a robots.txt fetch that its node lost or does not list.
    pub(super) fn probe_lost(&mut self, seq: Seq, ctx: &mut Context<Self>) {
        if let Some(probe) = self.kind.turns.probes.remove(&seq) {
            if let Some(node) = self.context.addresses.nodes.get(probe.node) {
                node.block_done(self.block_id(seq), 1, true);
            }
            self.note_leases_of(probe.node);
            self.context.sites.end_fetch(Some(&probe.key), self.identity());
            self.release(&probe, Self::wait_after_loss, ctx);
        }
    }

    /// Whether a robots.txt fetch did not arrive at its node, which does not list it.
    pub(super) fn has_probe_missed(&self, seq: Seq, now: Timestamp) -> bool {
        self.kind.turns.probes.get(&seq).is_some_and(|probe| now.since_ms(probe.since) >= RESEND_MS)
    }

    /// Gives up robots.txt fetches without any message.
    pub(super) fn expire_probes(&mut self, now: Timestamp, ctx: &mut Context<Self>) {
        let nodes = &self.context.addresses.nodes;
        let is_over = |probe: &Probe| now.since_ms(probe.since) > PATIENCE_MS || nodes.get(probe.node).is_none();
        let over: Vec<Seq> = self.kind.turns.probes.iter().filter(|(_, probe)| is_over(probe)).map(|(seq, _)| *seq).collect();
        for seq in over {
            self.probe_lost(seq, ctx);
        }
    }

    /// The robots.txt fetches in progress, each with its node.
    pub(super) fn probes(&self) -> Vec<(Seq, NodeId)> {
        self.kind.turns.probes.iter().map(|(seq, probe)| (*seq, probe.node)).collect()
    }

    /// Whether the robots.txt of a site is being fetched, so that the turn is used for that.
    pub(super) fn is_probed(&self, site: SiteNo) -> bool {
        self.kind.turns.looked_up.contains(&site)
            || self.kind.turns.probes.values().any(|probe| probe.site == site || probe.target == Some(site))
    }

    /// The sites whose robots.txt is being fetched.
    pub(super) fn probed_sites(&self) -> Vec<SiteNo> {
        self.kind
            .turns
            .probes
            .values()
            .flat_map(|probe| [Some(probe.site), probe.target])
            .flatten()
            .chain(self.kind.turns.looked_up.iter().copied())
            .collect()
    }

    /// robots.txt fetches at a node.
    pub(super) fn probes_at(&self, node: NodeId) -> Vec<Seq> {
        self.kind.turns.probes.iter().filter(|(_, probe)| probe.node == node).map(|(seq, _)| *seq).collect()
    }
}
