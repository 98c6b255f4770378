//! Blocks go out to nodes, results come in.

use super::cache::{Finished, Payload};
use super::{Grant, HandOver, NodeHolds, NodeLost, NodeNews, Report, RunActor};
use crate::actors::dispatcher::Room;
use crate::actors::node::{Holds, NodeHandle, SendBlock, with_requests};
use crate::actors::reply::Reply;
use crate::domain::block::{Lease, Lost, Phase, ReportVerdict};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{NodeId, Seq};
use crate::domain::time::Timestamp;
use crate::protocol::node::{Block, FetchError, FetchErrorKind, Reported};
use crate::protocol::pack::{self, Entry, Index};
use crate::protocol::problem::Problem;
use crate::store::{MarkRetry, ReadPayloads, StoreResult};
use actix::{Context, Handler};
use bytes::Bytes;

/// Blocks that are read from the store at once, when the next one is not at hand.
const READ_AHEAD: usize = 16;
/// A block that a node does not list is sent again when the last sending is this long past.
const RESEND_MS: i64 = 2_000;

impl RunActor {
    fn block(&self, seq: Seq, lease: &Lease) -> Block {
        Block {
            block_id: self.block_id(seq),
            identity: self.identity(),
            epoch: self.epoch,
            attempt: lease.attempt,
            settings: self.run.download.clone(),
            requests: None,
        }
    }

    /// Goes on with the requests of a block, from memory or from the store.
    fn with_payload(&mut self, seq: Seq, ctx: &mut Context<Self>, then: impl FnOnce(&mut Self, Payload, &mut Context<Self>) + 'static) {
        if let Some(payload) = self.cache.take_ready(seq).or_else(|| self.cache.leased(seq).cloned()) {
            return then(self, payload, ctx);
        }
        let mut seqs = vec![seq];
        seqs.extend(self.frontier.upcoming(READ_AHEAD).filter(|next| !self.cache.has_ready(*next)));
        let read = self.house.store.read(ReadPayloads { no: self.run.no, seqs });
        Self::then(ctx, read, move |this, payloads, ctx| {
            let mut wanted = None;
            for found in payloads {
                let payload = Payload { requests: found.payload, raw_length: found.raw_length, prints: found.prints };
                if found.seq == seq {
                    wanted = Some(payload);
                } else if matches!(this.frontier.phase(found.seq), Some(Phase::Ready | Phase::Retry)) {
                    // One that has gone out meanwhile would never be asked for, and stay.
                    this.cache.put_ready(found.seq, payload);
                }
            }
            match wanted {
                Some(payload) => then(this, payload, ctx),
                None => this.die(&format!("the requests of block {} are not stored", this.block_id(seq)), ctx),
            }
        });
    }

    fn send_block(&mut self, seq: Seq, to: NodeHandle, room: Option<Room>, ctx: &mut Context<Self>) {
        self.with_payload(seq, ctx, move |this, payload, _| {
            // Between the reading and now the lease may have ended.
            let Some(lease) = this.frontier.lease_of(seq).copied() else { return };
            let (block, requests) = (this.block(seq, &lease), payload.requests.clone());
            to.send_block(SendBlock { block, requests, raw_length: payload.raw_length, room });
            this.cache.put_leased(seq, payload);
        });
    }

    fn lease(&mut self, node: NodeId) -> Option<(Seq, Lease)> {
        if self.ending {
            return None;
        }
        let leased = self.frontier.lease(node, Timestamp::now())?;
        self.announced = self.announced.saturating_sub(1);
        self.run.block_times += 1;
        Some(leased)
    }

    /// A block is no longer at a node, and its results are not here.
    pub(super) fn block_lost(&mut self, seq: Seq, node: NodeId, attempt: u32, why: &str, ctx: &mut Context<Self>) {
        if self.ending {
            return; // nothing is written behind the end
        }
        match self.frontier.lost(seq, node, attempt) {
            None => {}
            Some(Lost::Retry(attempt)) => {
                if let Some(payload) = self.cache.take_leased(seq) {
                    self.cache.put_ready(seq, payload);
                }
                let write =
                    MarkRetry { no: self.run.no, epoch: self.epoch, seq, attempt, node: Some(node), exception: Some(why.to_owned()) };
                Self::then(ctx, self.house.store.write(write), |_, _, _| {});
                self.announce(ctx);
            }
            Some(Lost::Exhausted(attempts)) => {
                let exception = format!("given up after {attempts} hand-outs: {why}");
                log::error!("a block is given up block={}: {exception}", self.block_id(seq));
                self.with_payload(seq, ctx, move |this, payload, ctx| this.give_up(seq, node, attempt, &payload, exception, ctx));
            }
        }
    }

    /// The broker itself reports a block: no node could.
    fn give_up(&mut self, seq: Seq, node: NodeId, attempt: u32, payload: &Payload, exception: String, ctx: &mut Context<Self>) {
        if self.ending {
            return; // it has ended while the requests were read
        }
        let index = Index {
            block_id: self.block_id(seq),
            identity: self.identity(),
            node_id: node,
            epoch: Some(self.epoch),
            attempt: Some(attempt),
            exception: Some(exception.clone()),
            results: payload.prints.iter().map(|print| failed(*print, FetchErrorKind::NodeLost, &exception)).collect(),
        };
        let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
        self.store_report(seq, &index, pack, payload.clone(), None, ctx);
    }

    fn report(&mut self, index: Index, pack: Bytes, reply: Reply<Reported>, ctx: &mut Context<Self>) {
        if self.ending {
            return reply.send(Err(self.over()));
        }
        let block_id = index.block_id;
        let Some(seq) = block_id.seq_in(self.identity()) else {
            return reply.send(Err(Problem::not_found(format!("{block_id} is no block of run {}", self.identity())).at("blockId")));
        };
        match self.frontier.check_report(seq, index.node_id, index.attempt) {
            ReportVerdict::Current => {}
            ReportVerdict::Late => {
                log::info!("a late report changes nothing block={block_id} node={} attempt={:?}", index.node_id, index.attempt);
                let detail = format!("{block_id} is not, or no longer, in the hands of node {} in this attempt", index.node_id);
                return reply.send(Err(Problem::conflict("late-report", detail)));
            }
            ReportVerdict::Finished => {
                return reply.send(Err(Problem::conflict("block-finished", format!("{block_id} has its results already"))));
            }
            ReportVerdict::Unknown => {
                return reply.send(Err(Problem::not_found(format!("{block_id} is no block of this run")).at("blockId")));
            }
        }
        self.with_payload(seq, ctx, move |this, payload, ctx| {
            // Two reports of one block may both have waited for the requests.
            if this.ending || this.frontier.check_report(seq, index.node_id, index.attempt) != ReportVerdict::Current {
                return reply.send(Err(Problem::conflict("block-finished", format!("{block_id} has its results already"))));
            }
            let node = index.node_id;
            match complete(index, pack, &payload.prints) {
                Ok((_, pack)) if !this.house.store.has_room(pack.len()) => {
                    this.cache.put_leased(seq, payload);
                    reply.send(Err(Problem::busy("more is waiting to be written than is good")));
                }
                Ok((index, pack)) => this.store_report(seq, &index, pack, payload, Some(reply), ctx),
                Err(problem) => {
                    this.cache.put_leased(seq, payload);
                    this.refused(seq, node, &problem, ctx);
                    reply.send(Err(problem));
                }
            }
        });
    }

    /// A node forgets a block whose report is refused for good. Sent to it again, the same would come back for ever; as
    /// a lost hand-out it is counted, and somebody else may do better.
    fn refused(&mut self, seq: Seq, node: NodeId, problem: &Problem, ctx: &mut Context<Self>) {
        let Some(lease) = self.frontier.lease_of(seq).copied().filter(|lease| lease.node == node) else { return };
        if let Some(to) = self.house.directory.nodes.get(node) {
            to.block_done(self.block_id(seq), lease.attempt, false);
        }
        self.block_lost(seq, node, lease.attempt, &format!("its report was refused: {}", problem.detail), ctx);
    }

    fn store_report(
        &mut self,
        seq: Seq,
        index: &Index,
        pack: Bytes,
        payload: Payload,
        reply: Option<Reply<Reported>>,
        ctx: &mut Context<Self>,
    ) {
        if let Some(lease) = self.frontier.begin_report(seq) {
            self.announced = self.announced.min(self.frontier.ready());
            if let Some(node) = self.house.directory.nodes.get(lease.node) {
                // Off the node's hands already: its next block need not wait for this one's commit.
                node.block_done(self.block_id(seq), lease.attempt, false);
            }
        }
        self.cache.take_leased(seq);
        let success = index.results.iter().filter(|entry| entry.is_success()).count() as u32;
        let error = index.results.len() as u32 - success;
        let write = StoreResult {
            no: self.run.no,
            epoch: self.epoch,
            seq,
            node: Some(index.node_id),
            attempt: index.attempt.unwrap_or(1),
            success,
            error,
            exception: index.exception.clone(),
            failed: index.exception.is_some(),
            pack: pack.clone(),
            now: Timestamp::now(),
        };
        Self::then(ctx, self.house.store.write(write), move |this, (), ctx| {
            this.frontier.reported(seq, success, error);
            this.cache.put_finished(seq, Finished { requests: payload.requests, raw_length: payload.raw_length, pack });
            if let Some(reply) = reply {
                reply.send(Ok(Reported { success, error }));
            }
            this.serve_pollers(ctx);
        });
    }
}

fn failed(request_id: Fingerprint, kind: FetchErrorKind, message: &str) -> Entry {
    let error = FetchError { kind, message: message.to_owned(), retryable: true };
    Entry { request_id, status: 0, tries: 0, time: 0, error: Some(error), head: 0, body: 0 }
}

/// Holds a report against its block: every request of the block is in it once, and nothing else. What a node did not
/// mention is put in as failed, so that no request ever vanishes.
fn complete(mut index: Index, pack: Bytes, prints: &[Fingerprint]) -> Result<(Index, Bytes), Problem> {
    let same = index.results.len() == prints.len() && index.results.iter().zip(prints).all(|(entry, print)| entry.request_id == *print);
    if same {
        return Ok((index, pack));
    }
    let mut open: std::collections::HashSet<Fingerprint> = prints.iter().copied().collect();
    for (i, entry) in index.results.iter().enumerate() {
        if !open.remove(&entry.request_id) {
            let detail = format!("{} is not a request of this block, or stands here twice", entry.request_id);
            return Err(Problem::invalid(format!("results[{i}].requestId"), detail));
        }
    }
    if open.is_empty() {
        return Ok((index, pack));
    }
    let missing = prints.iter().filter(|print| open.contains(print));
    index.results.extend(missing.map(|print| failed(*print, FetchErrorKind::NotReported, "the node did not mention it")));
    let pack = pack::with_index(&pack, &index)?;
    Ok((index, Bytes::from(pack)))
}

impl Handler<Grant> for RunActor {
    type Result = ();
    fn handle(&mut self, Grant { to, room }: Grant, ctx: &mut Self::Context) {
        self.notice.message("run.grant");
        if let Some((seq, _)) = self.lease(room.node()) {
            self.send_block(seq, to, Some(room), ctx);
        }
        // What the dispatcher counts, it counted down with its grant: tell it only what it cannot know.
        if self.announced != self.frontier.ready() {
            self.announce(ctx);
        }
    }
}

impl Handler<HandOver> for RunActor {
    type Result = ();
    fn handle(&mut self, HandOver { node, to, reply }: HandOver, ctx: &mut Self::Context) {
        self.notice.message("run.hand_over");
        let Some((seq, lease)) = self.lease(node) else { return reply.send(Ok(None)) };
        self.with_payload(seq, ctx, move |this, payload, _| {
            to.holds(Holds { identity: this.identity(), block_id: this.block_id(seq), attempt: lease.attempt });
            let block = with_requests(this.block(seq, &lease), &payload.requests, payload.raw_length);
            this.cache.put_leased(seq, payload);
            reply.send(block.map(Some).map_err(|error| {
                log::error!("the stored requests of a block cannot be read: {error}");
                Problem::internal()
            }));
        });
    }
}

impl Handler<Report> for RunActor {
    type Result = ();
    fn handle(&mut self, Report { index, pack, reply }: Report, ctx: &mut Self::Context) {
        self.notice.message("run.report");
        self.report(index, pack, reply, ctx);
    }
}

impl Handler<NodeHolds> for RunActor {
    type Result = ();
    fn handle(&mut self, NodeHolds { node, blocks, unlisted }: NodeHolds, ctx: &mut Self::Context) {
        self.notice.message("run.node_holds");
        let now = Timestamp::now();
        let Some(to) = self.house.directory.nodes.get(node) else { return };
        for (seq, attempt) in &blocks {
            let known = self.frontier.lease_of(*seq).is_some_and(|lease| lease.attempt == *attempt) && self.frontier.renew(*seq, node, now);
            let adopted = known || self.frontier.adopt(*seq, node, *attempt, now);
            let (identity, block_id) = (self.identity(), self.block_id(*seq));
            if adopted && !self.ending {
                to.holds(Holds { identity, block_id, attempt: *attempt });
            } else {
                // One whose results are on their way to the disk is done as well, but its node still waits for the answer.
                to.block_done(block_id, *attempt, self.frontier.phase(*seq) != Some(Phase::Reporting));
            }
        }
        for (seq, attempt) in unlisted {
            // Handed out by an earlier actor of this run, and not there: nobody else frees its place.
            if self.frontier.lease_of(seq).is_none_or(|lease| lease.node != node || lease.attempt != attempt) {
                to.block_done(self.block_id(seq), attempt, false);
            }
        }
        let missing: Vec<Seq> = self
            .frontier
            .leases()
            .filter(|(seq, lease)| {
                let listed = blocks.iter().any(|(s, attempt)| s == seq && *attempt == lease.attempt);
                lease.node == node && !listed && now.since_ms(lease.since) >= RESEND_MS
            })
            .map(|(seq, _)| seq)
            .collect();
        for seq in missing {
            log::info!("a block did not arrive and is sent again block={} node={node}", self.block_id(seq));
            self.frontier.sent_again(seq, now);
            self.send_block(seq, to.clone(), None, ctx);
        }
        self.announced = self.announced.min(self.frontier.ready());
    }
}

impl Handler<NodeLost> for RunActor {
    type Result = ();
    fn handle(&mut self, m: NodeLost, ctx: &mut Self::Context) {
        self.notice.message("run.node_lost");
        if let Some(seq) = m.block_id.seq_in(self.identity()) {
            self.block_lost(seq, m.node, m.attempt, "its node was lost", ctx);
        }
    }
}

impl Handler<NodeNews> for RunActor {
    type Result = ();
    fn handle(&mut self, news: NodeNews, ctx: &mut Self::Context) {
        self.notice.message("run.node_news");
        let (node, vanished) = match news {
            NodeNews::Restarted(node) => (node, false),
            NodeNews::Vanished(node) => (node, true),
        };
        let leases: Vec<(Seq, u32)> = self.frontier.leases().filter(|(_, l)| l.node == node).map(|(seq, l)| (seq, l.attempt)).collect();
        let to = self.house.directory.nodes.get(node);
        for (seq, attempt) in leases {
            match &to {
                Some(to) if !vanished => self.send_block(seq, to.clone(), None, ctx),
                _ => self.block_lost(seq, node, attempt, "its node was lost", ctx),
            }
        }
    }
}
