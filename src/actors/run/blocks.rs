//! Dispatches blocks to nodes and stores their results.

use super::cache::{Finished, Payload};
use super::parts::{Meaning, meaning};
use super::redirects::find_targets;
use super::turns::Sink;
use super::{AnswerPull, Grant, NodeHolds, Report, RunActor};
use crate::actors::node::{Holds, NodeHandle};
use crate::actors::reply::Reply;
use crate::domain::block::{Lease, Phase, ReportVerdict};
use crate::domain::frontier::SiteNo;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::node::SlotKind;
use crate::domain::redirect::Redirects;
use crate::domain::sites::Pace;
use crate::domain::time::Timestamp;
use crate::domain::trace::{BlockLeft, block_span, block_traceparent};
use crate::protocol::node::{Block, Reported};
use crate::protocol::pack::Index;
use crate::protocol::problem::Problem;
use crate::store::{Barrier, ReadPayloads, StoreResult};
use actix::{Context, Handler};
use bytes::Bytes;
use futures_util::future::Either;
use std::collections::HashSet;
use std::sync::Arc;

/// Maximum number of blocks that are read ahead when the next one is not cached.
const READ_AHEAD: usize = 16;
/// Maximum number of blocks of a run that have a span: a crawl has millions of them.
const MOST_TRACED: u32 = 1_000;
/// A block that a node does not list is sent again after this many milliseconds.
const RESEND_MS: i64 = 2_000;

impl RunActor {
    pub(super) fn block(&self, seq: Seq, lease: &Lease) -> Block {
        let mut settings = self.run.download.clone();
        if self.run.queue.redirects == Redirects::Request {
            settings.max_redirects = 0;
        }
        Block {
            block_id: self.block_id(seq),
            identity: self.identity(),
            epoch: self.epoch,
            attempt: lease.attempt,
            lost: Some(self.kind.frontier.losses(seq, lease.attempt - 1)),
            parts: true,
            elsewhere: self.may_move(seq),
            holds: true,
            pace: None,
            traceparent: self.is_traced(seq).then(|| block_traceparent(&self.run, seq, lease.attempt)),
            settings,
            requests: None,
        }
    }

    /// Continues with the requests of a block, from memory or from the store.
    pub(super) fn with_payload(
        &mut self,
        seq: Seq,
        ctx: &mut Context<Self>,
        then: impl FnOnce(&mut Self, Payload, &mut Context<Self>) + 'static,
    ) {
        if let Some(payload) = self.kind.cache.take_ready(seq).or_else(|| self.kind.cache.leased(seq).cloned()) {
            return then(self, payload, ctx);
        }
        let mut seqs = vec![seq];
        seqs.extend(self.kind.frontier.upcoming(READ_AHEAD).filter(|next| !self.kind.cache.has_ready(*next)));
        let read = self.context.store.read(ReadPayloads { no: self.run.no, seqs });
        Self::then(ctx, read, move |this, payloads, ctx| {
            let mut wanted = None;
            for found in payloads {
                let payload = Payload { requests: found.payload, raw_length: found.raw_length, prints: found.prints };
                if found.seq == seq {
                    wanted = Some(payload);
                } else if matches!(this.kind.frontier.phase(found.seq), Some(Phase::Ready | Phase::Retry)) {
                    // A block that was dispatched in the meantime would stay in the cache forever.
                    this.kind.cache.put_ready(found.seq, payload);
                }
            }
            // Some of its requests may have received results in the meantime.
            match this.kind.cache.leased(seq).cloned().or(wanted) {
                Some(payload) => then(this, payload, ctx),
                None => this.die(&format!("the requests of block {} are not stored", this.block_id(seq)), ctx),
            }
        });
    }

    /// Dispatches a block without a site, or of a site without a pace.
    fn begin_block(&mut self, sink: Sink, ctx: &mut Context<Self>) {
        let Some((seq, _)) = self.lease(sink.node()) else { return sink.nothing() };
        self.with_payload(seq, ctx, move |this, payload, ctx| this.send_unheld(seq, payload, sink, ctx));
    }

    /// A node has a block that is waiting here. The node may keep it, unless another holder may use its site now.
    fn adopt(&mut self, seq: Seq, node: NodeId, attempt: u32, now: Timestamp) -> bool {
        let site = self.kind.frontier.site_of(seq).filter(|site| !self.kind.frontier.is_free(*site));
        let (waits, is_paced) = (self.is_waiting(seq), site.is_some_and(|site| self.pace(site) != Pace::FREE));
        if waits && self.is_held(seq) {
            // Its node will receive the order to drop it.
            return false;
        }
        if let Some(site) = site.filter(|_| waits && is_paced)
            && !self.adopt_turn(site, seq, now)
        {
            return false;
        }
        let is_adopted = self.kind.frontier.adopt(seq, node, attempt, now);
        if is_adopted {
            self.kind.involved.add_node(node);
            if !is_paced {
                self.kind.frontier.let_others_pass(seq);
            }
        }
        is_adopted
    }

    /// Answers a node that has a block: it keeps the block or drops it.
    fn keep_or_drop(&mut self, (seq, attempt): (Seq, u32), node: NodeId, to: &NodeHandle, now: Timestamp, ctx: &mut Context<Self>) {
        let (identity, block_id) = (self.identity(), self.block_id(seq));
        let is_known =
            self.kind.frontier.lease_of(seq).is_some_and(|lease| lease.attempt == attempt) && self.kind.frontier.renew(seq, node, now);
        if is_known {
            self.renew_turn(seq, now);
        }
        if !self.lifecycle.is_ending() && (is_known || self.adopt(seq, node, attempt, now)) {
            let site = self.kind.frontier.site_of(seq).filter(|site| !self.kind.frontier.is_free(*site));
            let is_bound = site.is_some_and(|site| self.pace(site) != Pace::FREE);
            let slot_kind = if is_bound { SlotKind::Site } else { SlotKind::Block };
            to.holds(Holds { identity, block_id, attempt, slot_kind });
        } else {
            // A block whose results are being written is done as well, but its node still waits for the answer.
            to.block_done(block_id, attempt, self.kind.frontier.phase(seq) != Some(Phase::Reporting));
            if let Some(losses) = self.kind.frontier.note_loss(seq, attempt).filter(|_| !self.lifecycle.is_ending()) {
                self.store_loss(seq, losses, node, "its node had to drop it", ctx);
            }
        }
    }

    fn lease(&mut self, node: NodeId) -> Option<(Seq, Lease)> {
        if self.lifecycle.is_ending() || self.dispatches_nothing() {
            return None;
        }
        let leased = self.kind.frontier.lease(node, Timestamp::steady())?;
        self.kind.involved.add_node(node);
        Some(leased)
    }

    /// Leases of a node have ended. If none is left, events of the node no longer concern this run.
    pub(super) fn note_leases_of(&mut self, node: NodeId) {
        if !self.kind.frontier.has_leases(node) && self.probes_at(node).is_empty() {
            self.kind.involved.remove_node(node);
        }
    }

    fn report(&mut self, Report { mut index, pack, opened, reply }: Report, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() {
            return reply.send(Err(self.over()));
        }
        let block_id = index.block_id;
        let Some(seq) = block_id.seq_in(self.identity()) else {
            return reply.send(Err(Problem::not_found(format!("{block_id} is not a block of run {}", self.identity())).at("blockId")));
        };
        if self.kind.turns.probes.contains_key(&seq) {
            return self.robots_came(seq, &index, opened, reply, ctx);
        }
        find_targets(&mut index, opened);
        match self.kind.frontier.check_report(seq, index.node_id, index.attempt) {
            ReportVerdict::Current => {}
            ReportVerdict::Late => {
                let (node, attempt) = (index.node_id, index.attempt);
                let name = self.context.addresses.node_name(node);
                log::info!("late report ignored block_id={block_id} node_id={node} node={name} attempt={attempt:?}");
                let detail = format!("{block_id} is not, or no longer, held by node {} in this attempt", index.node_id);
                return reply.send(Err(Problem::conflict("late-report", detail)));
            }
            ReportVerdict::Finished => return self.refuse_finished(seq, reply, ctx),
            ReportVerdict::Unknown => {
                return reply.send(Err(Problem::not_found(format!("{block_id} is not a block of this run")).at("blockId")));
            }
        }
        if index.part {
            // The node still has the block, even if the lease ended. Cache the remaining requests.
            self.adopt(seq, index.node_id, index.attempt.unwrap_or(1), Timestamp::steady());
        }
        self.with_payload(seq, ctx, move |this, payload, ctx| {
            // Two reports of the same block may both have waited for the requests.
            if this.lifecycle.is_ending() || this.kind.frontier.check_report(seq, index.node_id, index.attempt) != ReportVerdict::Current {
                return this.refuse_finished(seq, reply, ctx);
            }
            let node = index.node_id;
            if !this.context.store.has_room(pack.len()) {
                this.keep(seq, payload);
                return reply.send(Err(Problem::busy("write queue is full; retry later")));
            }
            if index.part && index.results.is_empty() && index.back.is_empty() {
                // It only reports that a site requested a pause.
                this.learn_from(seq, &index, &payload, ctx);
                this.kind.frontier.renew(seq, node, Timestamp::steady());
                return this.part_again(seq, payload, reply, ctx);
            }
            let meaning = meaning(index, pack, &payload);
            if let Ok(Meaning::Whole { index, .. } | Meaning::Part { index, .. } | Meaning::Back { index, .. }) = &meaning {
                this.learn_from(seq, index, &payload, ctx);
            }
            match meaning {
                Ok(Meaning::Whole { index, pack }) => this.store_report(seq, index, pack, payload, Some(reply), ctx),
                Ok(Meaning::Taken) => this.part_again(seq, payload, reply, ctx),
                Ok(Meaning::Part { index, pack, parted, stays }) => this.store_part(seq, (index, pack), (parted, stays), reply, ctx),
                Ok(Meaning::Back { index, pack, done, back }) => this.store_back(seq, (index, pack), (done, back), reply, ctx),
                Err(problem) => {
                    this.keep(seq, payload);
                    this.refused(seq, node, &problem, ctx);
                    reply.send(Err(problem));
                }
            }
        });
    }

    /// Refuses a report of a block that has its results: its node forgets its own. If the results are not on disk yet, it must keep them until then.
    fn refuse_finished(&mut self, seq: Seq, reply: Reply<Reported>, ctx: &mut Context<Self>) {
        let problem = Problem::conflict("block-finished", format!("{} already has its results", self.block_id(seq)));
        if self.kind.frontier.phase(seq) != Some(Phase::Reporting) {
            return reply.send(Err(problem));
        }
        Self::then(ctx, self.context.store.write_unbounded(Barrier), move |_, (), _| reply.send(Err(problem)));
    }

    /// The last report of a block has arrived and is being written. `attempt`: that of the report.
    pub(super) fn leaves_node(&mut self, seq: Seq, attempt: Option<u32>, ctx: &mut Context<Self>) {
        // The node of a block that is given up may continue, so the site stays closed for that time.
        let is_given_up = self.kind.frontier.phase(seq) == Some(Phase::Reporting);
        let lease = self.kind.frontier.begin_report(seq);
        self.kind.announced = self.kind.announced.min(self.kind.frontier.ready());
        if let Some(site) = self.kind.frontier.site_of(seq).filter(|site| !self.kind.frontier.is_out(*site) && !self.is_probed(*site))
            && !is_given_up
            && (lease.is_some() || self.is_end_of_turn(seq, site, attempt))
        {
            self.turn_over(site, 0, ctx);
        }
        if let Some(lease) = lease {
            self.trace_block(seq, &lease, None);
            self.note_leases_of(lease.node);
            if let Some(node) = self.context.addresses.nodes.get(lease.node) {
                // Free the node's slot now, so that its next block does not wait for this commit.
                node.block_done(self.block_id(seq), lease.attempt, false);
            }
        }
        self.kind.cache.take_leased(seq);
    }

    /// Whether the report of a block without a lease ends the turn at its site: an earlier actor of the run began the turn, or the node
    /// counted as lost. After a later attempt, or if another host has the turn of the address, another node may send requests now.
    fn is_end_of_turn(&self, seq: Seq, site: SiteNo, attempt: Option<u32>) -> bool {
        self.kind.frontier.is_last_attempt(seq, attempt) && !self.is_taken_by_another_host(site, &self.turn_name(site))
    }

    /// Whether a block gets a span: it is among the first.
    fn is_traced(&self, seq: Seq) -> bool {
        self.context.telemetry.is_on() && seq < MOST_TRACED
    }

    /// A block has left its node: its span is sent.
    pub(super) fn trace_block(&mut self, seq: Seq, lease: &Lease, lost: Option<&str>) {
        if !self.is_traced(seq) {
            return;
        }
        let node = (lease.node, self.context.addresses.node_name(lease.node));
        let left = BlockLeft { block: seq, attempt: lease.attempt, node, since: lease.since.on_the_wall(), now: Timestamp::now(), lost };
        self.context.telemetry.spans(|| [block_span(&self.run, left)]);
    }

    /// The name of the site of a block's requests.
    pub(super) fn site_name_of(&self, seq: Seq) -> Option<Arc<str>> {
        self.kind.frontier.site_of(seq).map(|site| self.kind.frontier.site_name(site))
    }

    pub(super) fn store_report(
        &mut self,
        seq: Seq,
        mut index: Index,
        pack: Bytes,
        payload: Payload,
        reply: Option<Reply<Reported>>,
        ctx: &mut Context<Self>,
    ) {
        self.leaves_node(seq, index.attempt, ctx);
        let (pack, targets) = match self.with_targets(&mut index, pack, &payload) {
            Ok(done) => done,
            Err(problem) => {
                reply.into_iter().for_each(|reply| reply.send(Err(problem.clone())));
                return self.die("the targets of redirects could not be packed", ctx);
            }
        };
        let write = StoreResult { targets: targets.clone(), ..self.result_of(seq, &index, pack.clone()) };
        let (success, error, bytes) = (write.success, write.error, write.bytes);
        // No caller could repeat a report of the broker itself.
        let store = &self.context.store;
        let write = if reply.is_some() { Either::Left(store.write(write)) } else { Either::Right(store.write_unbounded(write)) };
        Self::then(ctx, write, move |this, (), ctx| {
            this.kind.frontier.reported(seq, success, error);
            this.kind.frontier.count_bytes(bytes);
            this.kind.cache.put_finished(seq, Finished { requests: payload.requests, raw_length: payload.raw_length, pack });
            if let Some(reply) = reply {
                reply.send(Ok(Reported { success, error }));
            }
            this.targets_stored(targets, ctx);
            this.discard_over_bytes(ctx);
            this.serve_pollers(ctx);
        });
    }
}

impl Handler<Grant> for RunActor {
    type Result = ();
    fn handle(&mut self, Grant { to, permit }: Grant, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.grant");
        self.kind.last_permit = permit.number();
        match permit.slot().kind {
            SlotKind::Block => {
                self.kind.announced = self.kind.announced.saturating_sub(1);
                self.begin_block(Sink::Node { to, permit }, ctx);
            }
            SlotKind::Site => {
                self.kind.turns.announced = self.kind.turns.announced.saturating_sub(1);
                self.begin_turn(Sink::Node { to, permit }, ctx);
            }
        }
        // The dispatcher already counted this grant; send only other changes.
        self.announce(ctx);
    }
}

impl Handler<AnswerPull> for RunActor {
    type Result = ();
    fn handle(&mut self, AnswerPull { node, to, slot_kind, reply }: AnswerPull, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.hand_over");
        let sink = Sink::Call { node, to, reply };
        match slot_kind {
            SlotKind::Block => {
                self.kind.announced = self.kind.announced.saturating_sub(1);
                self.begin_block(sink, ctx);
            }
            SlotKind::Site => {
                self.kind.turns.announced = self.kind.turns.announced.saturating_sub(1);
                self.begin_turn(sink, ctx);
            }
        }
        self.announce(ctx);
    }
}

impl Handler<Report> for RunActor {
    type Result = ();
    fn handle(&mut self, report: Report, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.report");
        self.report(report, ctx);
    }
}

impl Handler<NodeHolds> for RunActor {
    type Result = ();
    fn handle(&mut self, NodeHolds { node, blocks, unlisted, coming }: NodeHolds, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.node_holds");
        let now = Timestamp::steady();
        let Some(to) = self.context.addresses.nodes.get(node) else { return };
        for (seq, attempt) in &blocks {
            if self.is_probe(*seq, node) {
                continue;
            }
            if !self.lacks_hosts(*seq) {
                self.keep_or_drop((*seq, *attempt), node, &to, now, ctx);
                continue;
            }
            let (seq, attempt, to) = (*seq, *attempt, to.clone());
            self.with_payload(seq, ctx, move |this, payload, ctx| {
                if this.is_waiting(seq) {
                    this.kind.cache.put_leased(seq, payload);
                }
                this.keep_or_drop((seq, attempt), node, &to, Timestamp::steady(), ctx);
                if this.is_waiting(seq) {
                    this.kind.cache.put_back(seq);
                }
            });
        }
        for seq in self.probes_at(node) {
            let is_there = blocks.iter().any(|(other, _)| *other == seq) || coming.contains(&seq);
            if !is_there && self.has_probe_missed(seq, now) {
                self.probe_lost(seq, ctx);
            }
        }
        for (seq, attempt) in unlisted {
            // Dispatched by an earlier actor of this run and not at the node; only this frees its permit.
            if !self.is_probe(seq, node)
                && self.kind.frontier.lease_of(seq).is_none_or(|lease| lease.node != node || lease.attempt != attempt)
            {
                to.block_done(self.block_id(seq), attempt, false);
            }
        }
        for seq in &coming {
            if self.kind.frontier.prolong(*seq, node, now) {
                self.renew_turn(*seq, now);
            }
        }
        let (listed, coming): (HashSet<(Seq, u32)>, HashSet<Seq>) = (blocks.into_iter().collect(), coming.into_iter().collect());
        let missing: Vec<Seq> = self
            .kind
            .frontier
            .leases_of_node(node)
            .filter(|(seq, lease)| {
                let is_there = listed.contains(&(*seq, lease.attempt)) || coming.contains(seq);
                lease.is_sent && !is_there && now.since_ms(lease.since) >= RESEND_MS
            })
            .map(|(seq, _)| seq)
            .collect();
        for seq in missing {
            let name = self.context.addresses.node_name(node);
            log::info!("block did not arrive and is sent again block_id={} node_id={node} node={name}", self.block_id(seq));
            self.kind.frontier.sent(seq, now);
            self.send_again(seq, to.clone(), ctx);
        }
        self.kind.announced = self.kind.announced.min(self.kind.frontier.ready());
    }
}
