//! The sites of a run: dispatches blocks in turns, within the pace and the robots.txt of their site.

use super::RunActor;
use super::cache::{Finished, Payload};
use super::held::Addressed;
use super::parts::{failed, final_entry};
use super::robots::TARGET_AGAIN_MS;
use crate::actors::node::{Holds, NodeHandle, SendBlock, with_requests};
use crate::actors::placement::{NodeSlot, Permit};
use crate::actors::reply::Reply;
use crate::actors::sites::{KnownRobots, RobotsKey};
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::node::SlotKind;
use crate::domain::request::unpack;
use crate::domain::robots::Verdict;
use crate::domain::sites::{Granted, Pace};
use crate::domain::time::Timestamp;
use crate::protocol::node::{self, Block, FetchError, FetchErrorKind};
use crate::protocol::pack::{self, Index};
use crate::protocol::problem::Problem;
use actix::{AsyncContext, Context, SpawnHandle};
use bytes::Bytes;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;
use url::Url;

/// Maximum number of sites that count as ready, which limits how many nodes are requested at once.
const MOST_COUNTED: usize = 1_024;
/// Maximum number of sites that are tried for one turn, before the next grant is needed.
const MOST_ASKED: usize = 64;
/// A host whose address is in use by another host of the run requests a turn again after this many milliseconds.
const SAME_ADDRESS_AGAIN_MS: i64 = 250;
/// After this many consecutive failures to fetch a robots.txt, the requests of its origin fail.
pub(super) const MOST_ROBOTS_FAILURES: u32 = 3;

/// The state of a run's sites.
#[derive(Debug, Default)]
pub(super) struct Turns {
    /// The site of each known origin; `None` if it has no site.
    pub(super) origins: HashMap<Box<str>, Option<SiteNo>>,
    pub(super) paces: HashMap<SiteNo, Pace>,
    /// Sites whose delay a robots.txt has set.
    pub(super) slowed_by_robots: HashSet<SiteNo>,
    /// What the turns of sites that count by address belong to.
    pub(super) turn_names: HashMap<SiteNo, Arc<str>>,
    /// The hosts whose turns the run has beside that of a site.
    pub(super) hosts: HashMap<SiteNo, Vec<Arc<str>>>,
    /// What the blocks of a site wait for, beside the site: a host that was not free, or a held domain.
    pub(super) missed: HashMap<SiteNo, Arc<str>>,
    /// The hosts of this run that had the last turns of addresses.
    pub(super) holders: HashMap<Arc<str>, SiteNo>,
    /// robots.txt fetches in progress.
    pub(super) probes: HashMap<Seq, super::robots::Probe>,
    pub(super) probes_made: Seq,
    /// robots.txt files that are at another host.
    pub(super) moved_robots: HashMap<RobotsKey, super::robots::Moved>,
    /// Sites where the fetch of a robots.txt waits for the end of the run's own turn.
    pub(super) awaited: HashSet<SiteNo>,
    /// Sites whose robots.txt is being read from the store.
    pub(super) looked_up: HashSet<SiteNo>,
    /// Number of sites that were announced to the dispatcher.
    pub(super) announced: usize,
    timer: Option<(Timestamp, SpawnHandle)>,
}

/// The receiver of a block.
#[derive(Debug)]
pub(super) enum Sink {
    /// A node with a free slot.
    Node { to: NodeHandle, permit: Permit<NodeSlot> },
    /// A node that requested a block.
    Call { node: NodeId, to: NodeHandle, reply: Reply<Option<Block>> },
}

impl Sink {
    pub fn node(&self) -> NodeId {
        match self {
            Self::Node { permit, .. } => permit.slot().node,
            Self::Call { node, .. } => *node,
        }
    }

    pub fn keeps_pace(&self) -> bool {
        matches!(self, Self::Node { permit, .. } if permit.slot().keeps_pace)
    }

    /// Answers that there is no block.
    pub fn nothing(self) {
        if let Self::Call { reply, .. } = self {
            reply.send(Ok(None));
        }
    }

    /// Sends a block with its requests.
    pub fn send(self, block: Block, payload: &Payload) {
        let slot_kind = if block.pace.is_some() { SlotKind::Site } else { SlotKind::Block };
        match self {
            Self::Node { to, permit } => {
                to.send_block(SendBlock {
                    block,
                    requests: payload.requests.clone(),
                    raw_length: payload.raw_length,
                    permit: Some(permit),
                });
            }
            Self::Call { to, reply, .. } => {
                to.holds(Holds { identity: block.identity, block_id: block.block_id, attempt: block.attempt, slot_kind });
                reply.send(with_requests(block, &payload.requests, payload.raw_length).map(Some).map_err(|error| {
                    log::error!("failed to read the stored requests of a block: {error}");
                    Problem::internal()
                }));
            }
        }
    }
}

/// The place of a request in its block, and why it fails without being sent.
pub(super) type Denied = (usize, FetchErrorKind, String);

/// The verdict of robots.txt on the requests of a block.
pub(super) enum Judged {
    All,
    Some {
        allowed: Vec<usize>,
        denied: Vec<Denied>,
    },
    /// The robots.txt of this URL must be fetched first.
    Unknown(Url),
    /// No request is allowed before this time.
    Later(Timestamp),
}

/// Why requests fail whose robots.txt could not be fetched: the kind of the last error, and a message.
fn without_robots(known: &KnownRobots) -> (FetchErrorKind, String) {
    let Some(cause) = &known.cause else {
        return (FetchErrorKind::Robots, "robots.txt could not be fetched, which forbids all".to_owned());
    };
    let FetchError { kind, message, .. } = &**cause;
    let message = match (kind, known.failures) {
        (FetchErrorKind::Refused, _) => format!("robots.txt could not be fetched: {message}"),
        (_, failures) => format!("robots.txt could not be fetched {failures} times in a row, which forbids all: {message}"),
    };
    // A status is no failure of the way to the site.
    let kind = if *kind == FetchErrorKind::Other { FetchErrorKind::Robots } else { *kind };
    (kind, message)
}

impl RunActor {
    /// The number of sites with a free turn. Sets a timer for the next one.
    pub(super) fn ready_sites(&mut self, ctx: &mut Context<Self>) -> usize {
        let now = Timestamp::steady();
        let ready = self.kind.frontier.sites_ready(now, MOST_COUNTED);
        if let Some(at) = self.kind.frontier.next_site_at().filter(|_| ready == 0) {
            let wake = at.max(now.plus_ms(1));
            let is_set = self.kind.turns.timer.as_ref().is_some_and(|(set, _)| *set <= wake && *set > now);
            if !is_set {
                if let Some((_, handle)) = self.kind.turns.timer.take() {
                    ctx.cancel_future(handle);
                }
                let pause = Duration::from_millis(wake.since_ms(now) as u64);
                let handle = ctx.run_later(pause, |this, ctx| {
                    this.kind.turns.timer = None;
                    this.announce(ctx);
                });
                self.kind.turns.timer = Some((wake, handle));
            }
        }
        ready
    }

    /// When a turn ends that is not renewed: after the lease, its node may continue for as long as its right lasts.
    pub(super) fn turn_until(&self, now: Timestamp) -> Timestamp {
        now.plus_ms(self.kind.frontier.settings().lease as i64).plus_ms(self.context.sites.right_ms as i64)
    }

    /// Takes a turn at the first free site.
    fn take_turn(&mut self, node: NodeId, now: Timestamp, ctx: &mut Context<Self>) -> Option<(SiteNo, Granted)> {
        let until = self.turn_until(now);
        for _ in 0..MOST_ASKED {
            let site = self.kind.frontier.next_site(node, now)?;
            if !self.find_turn_name(site, now, ctx) {
                continue;
            }
            self.slow_down_with_domain(site);
            let (name, pace, identity) = (self.turn_name(site), self.pace(site), self.identity());
            if self.is_taken_by_another_host(site, &name) {
                self.kind.frontier.site_waits(site, now.plus_ms(SAME_ADDRESS_AGAIN_MS));
                continue;
            }
            let mut board = self.context.sites.board();
            // A host may be held and its address not: by an operator, or since a time when its address was not known.
            let host = self.kind.frontier.site_name(site);
            let held = if host == name { None } else { board.held(&host, now) };
            let taken = held.map_or_else(|| board.take(&name, pace, identity, until, now), Err);
            drop(board);
            match taken {
                Ok(granted) => {
                    self.note_holder(site, name);
                    return Some((site, granted));
                }
                Err(later) => self.kind.frontier.site_waits(site, later.max(now.plus_ms(1))),
            }
        }
        None
    }

    /// Dispatches a block of a site to a node, if a site is free.
    pub(super) fn begin_turn(&mut self, sink: Sink, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        let taken = if self.lifecycle.is_ending() || self.dispatches_nothing() { None } else { self.take_turn(sink.node(), now, ctx) };
        let Some((site, granted)) = taken else { return sink.nothing() };
        let Some((seq, lease)) = self.kind.frontier.lease_at(site, sink.node(), now) else {
            self.turn_over(site, 0, ctx);
            return sink.nothing();
        };
        self.kind.involved.add_node(lease.node);
        self.with_payload(seq, ctx, move |this, payload, ctx| this.judge_block(seq, payload, Some((site, granted)), sink, ctx));
    }

    /// Sends a leased block, as far as robots.txt permits.
    pub(super) fn judge_block(&mut self, seq: Seq, payload: Payload, turn: Option<(SiteNo, Granted)>, sink: Sink, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() || self.kind.frontier.lease_of(seq).is_none_or(|lease| lease.node != sink.node()) {
            return sink.nothing();
        }
        // Keep the payload cached, in case the block is not sent.
        self.kind.cache.put_leased(seq, payload.clone());
        let turn = match turn
            .map(|(site, granted)| (site, self.take_hosts(site, self.hosts_to_take(site, &payload), granted, Timestamp::steady())))
        {
            Some((site, Err(later))) => {
                self.put_back(seq);
                self.turn_over(site, 0, ctx);
                self.kind.frontier.site_waits(site, later);
                self.announce(ctx);
                return sink.nothing();
            }
            Some((site, Ok(granted))) => Some((site, granted)),
            None => None,
        };
        let (judged, delay_ms) = match self.judge(&payload, turn.is_none()) {
            Ok((judged, delay_ms)) => (Ok(judged), delay_ms),
            Err(problem) => (Err(problem), 0),
        };
        if let Some((site, _)) = turn.filter(|(site, _)| self.slow_down(*site, delay_ms)) {
            // Another run has learned the delay of the site.
            self.put_back(seq);
            self.turn_over(site, 0, ctx);
            return sink.nothing();
        }
        if let (Ok(Judged::All | Judged::Some { .. }), Some((site, _))) = (&judged, turn)
            && self.pace(site) == Pace::FREE
        {
            // Another run has learned the robots.txt rules. The node reserved a slot of the wrong kind for this block.
            self.kind.frontier.set_free(site);
            self.put_back(seq);
            self.announce(ctx);
            return sink.nothing();
        }
        match judged {
            Ok(Judged::All) => self.send_turn(seq, payload, turn, sink, ctx),
            Ok(Judged::Some { allowed, denied }) => self.deny(seq, payload, (allowed, denied), turn, sink, ctx),
            Ok(judged @ (Judged::Unknown(_) | Judged::Later(_))) => {
                if let (None, Some(site)) = (turn, self.kind.frontier.site_of(seq)) {
                    // The rules were known and have expired.
                    self.kind.frontier.set_waiting(site);
                }
                self.put_back(seq);
                match (judged, turn) {
                    (Judged::Unknown(url), Some(turn)) => self.ask_robots(url, turn, sink, ctx),
                    (Judged::Later(until), Some((site, _))) => {
                        self.turn_over(site, 0, ctx);
                        let pause = until.since_ms(Timestamp::now()).max(1);
                        self.kind.frontier.site_waits(site, Timestamp::steady().plus_ms(pause));
                        sink.nothing();
                    }
                    _ => {
                        self.announce(ctx);
                        sink.nothing();
                    }
                }
            }
            Err(problem) => {
                sink.nothing();
                self.die(&format!("failed to read the requests of block {}: {}", self.block_id(seq), problem.detail), ctx);
            }
        }
    }

    /// Puts a block back that was not sent.
    fn put_back(&mut self, seq: Seq) {
        if let Some(lease) = self.kind.frontier.put_back(seq) {
            self.note_leases_of(lease.node);
        }
        self.kind.cache.put_back(seq);
    }

    /// The verdict of robots.txt on the requests of a block, and the longest delay that it requires.
    pub(super) fn judge(&self, payload: &Payload, is_free: bool) -> Result<(Judged, u32), Problem> {
        let (policy, mut delay_ms) = (&self.run.queue.sites, 0);
        if policy.robots == Some(false) {
            return Ok((Judged::All, 0));
        }
        let text = payload.text()?;
        let requests = unpack(&text).map_err(|why| {
            log::error!("{why}");
            Problem::internal()
        })?;
        let (mut allowed, mut denied) = (Vec::new(), Vec::new());
        for (place, request) in requests.iter().enumerate() {
            let address = serde_json::from_str::<Addressed<'_>>(request.get()).ok();
            let Some(url) = address.and_then(|request| Url::parse(&request.url).ok()).filter(|url| policy.obeys_robots(url)) else {
                allowed.push(place);
                continue;
            };
            let Some(known) = self.context.sites.robots(&self.robots_key(&url)) else {
                return Ok((Judged::Unknown(url), delay_ms));
            };
            let is_old = known.until <= Timestamp::now();
            if known.robots.is_unreachable() && known.failures < MOST_ROBOTS_FAILURES {
                return Ok((if is_old { Judged::Unknown(url) } else { Judged::Later(known.until) }, delay_ms));
            }
            if is_old && !is_free && !known.forbids_all(Timestamp::now()) {
                return Ok((Judged::Unknown(url), delay_ms));
            }
            delay_ms = delay_ms.max(known.robots.crawl_delay_ms().unwrap_or(0));
            match known.robots.allowed(url.as_str()) {
                Verdict::Allowed => allowed.push(place),
                Verdict::Disallowed { line: 0 } => {
                    let (kind, message) = without_robots(&known);
                    denied.push((place, kind, message));
                }
                Verdict::Disallowed { line } => {
                    denied.push((place, FetchErrorKind::Robots, format!("line {line} of robots.txt forbids it")));
                }
            }
        }
        Ok((if denied.is_empty() { Judged::All } else { Judged::Some { allowed, denied } }, delay_ms))
    }

    /// Fails the requests that robots.txt forbids; the others continue.
    fn deny(
        &mut self,
        seq: Seq,
        payload: Payload,
        (allowed, denied): (Vec<usize>, Vec<Denied>),
        turn: Option<(SiteNo, Granted)>,
        sink: Sink,
        ctx: &mut Context<Self>,
    ) {
        self.context.sites.count_forbidden(denied.iter().filter(|(_, kind, _)| *kind == FetchErrorKind::Robots).count());
        let entries = denied.iter().map(|(place, kind, why)| final_entry(failed(payload.prints[*place], *kind, why))).collect();
        let node = NodeId(uuid::Uuid::nil());
        let index = |block_id, results| Index { epoch: Some(self.epoch), results, ..Index::new(block_id, self.identity(), node) };
        if allowed.is_empty() {
            let index = index(self.block_id(seq), entries);
            let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
            self.store_report(seq, index, pack, payload, None, ctx);
            return sink.nothing();
        }
        let places: Vec<usize> = denied.iter().map(|(place, ..)| *place).collect();
        let [stays, parted] = match payload.cut([&allowed, &places], &HashMap::new()) {
            Ok(cut) => cut,
            Err(problem) => return self.die(&problem.detail, ctx),
        };
        let part = self.kind.frontier.begin_part(seq);
        let index = Index { epoch: Some(self.epoch), results: entries, ..Index::new(self.block_id(part), self.identity(), node) };
        let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
        let result = self.result_of(part, &index, pack.clone());
        let error = result.error;
        self.kind.cache.put_leased(seq, stays.clone());
        let write = self.split((seq, &stays), Some((part, &parted)), Some(result));
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.kind.frontier.reported(part, 0, error);
            this.kind.cache.put_finished(part, Finished { requests: parted.requests, raw_length: parted.raw_length, pack });
            this.serve_pollers(ctx);
            if this.lifecycle.is_ending() || this.kind.frontier.lease_of(seq).is_none_or(|lease| lease.node != sink.node()) {
                return sink.nothing();
            }
            this.send_turn(seq, stays, turn, sink, ctx);
        });
    }

    /// Sends a block. A node without support for a pace receives one request of a site.
    fn send_turn(&mut self, seq: Seq, payload: Payload, turn: Option<(SiteNo, Granted)>, sink: Sink, ctx: &mut Context<Self>) {
        let Some((site, granted)) = turn else { return self.send_leased(seq, &payload, None, sink, ctx) };
        if sink.keeps_pace() || payload.prints.len() == 1 {
            return self.send_leased(seq, &payload, Some(self.pace_of(site, granted)), sink, ctx);
        }
        let others: Vec<usize> = (1..payload.prints.len()).collect();
        let [first, others] = match payload.cut([&[0], &others], &HashMap::new()) {
            Ok(cut) => cut,
            Err(problem) => return self.die(&problem.detail, ctx),
        };
        // The present attempt has sent nothing.
        let rest = self.kind.frontier.begin_rest(seq, Some(site), self.kind.frontier.other_losses(seq, None));
        self.kind.cache.put_leased(seq, first.clone());
        let write = self.split((seq, &first), Some((rest, &others)), None);
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.kind.frontier.stored(rest, 0);
            this.kind.cache.put_ready(rest, others);
            this.announce(ctx);
            if this.lifecycle.is_ending() || this.kind.frontier.lease_of(seq).is_none_or(|lease| lease.node != sink.node()) {
                return sink.nothing();
            }
            let pace = this.pace_of(site, granted);
            this.send_leased(seq, &first, Some(pace), sink, ctx);
        });
    }

    pub(super) fn send_leased(&mut self, seq: Seq, payload: &Payload, pace: Option<node::Pace>, sink: Sink, ctx: &mut Context<Self>) {
        let Some(lease) = self.kind.frontier.lease_of(seq).copied() else { return sink.nothing() };
        if self.dispatches_nothing() {
            // Paused after the lease. The caller of the pause relies on no more blocks being dispatched.
            self.put_back(seq);
            if let Some(site) = self.kind.frontier.site_of(seq) {
                self.turn_over(site, 0, ctx);
            }
            return sink.nothing();
        }
        self.run.block_times += 1;
        let block = Block { pace, ..self.block(seq, &lease) };
        self.kind.frontier.sent(seq, Timestamp::steady());
        sink.send(block, payload);
    }

    /// The lease of a block was renewed, so its turn is, too.
    pub(super) fn renew_turn(&mut self, seq: Seq, now: Timestamp) {
        if let Some(site) = self.kind.frontier.site_of(seq).filter(|site| !self.kind.frontier.is_free(*site)) {
            let (names, until) = (self.names_of_turn(site), self.turn_until(now));
            self.context.sites.board().renew(&names, self.identity(), until, now);
        }
    }

    /// Ends the turn at a site. Its node may continue for `wait_ms` without knowing it.
    pub(super) fn turn_over(&mut self, site: SiteNo, wait_ms: u64, ctx: &mut Context<Self>) {
        if self.kind.frontier.is_free(site) {
            return; // its blocks need no turns
        }
        let next = self.release_turn(site, wait_ms, Timestamp::steady());
        let is_awaited = self.kind.turns.awaited.remove(&site);
        self.kind.frontier.site_waits(site, if is_awaited { next.plus_ms(2 * TARGET_AGAIN_MS) } else { next });
        self.announce(ctx);
    }
}
