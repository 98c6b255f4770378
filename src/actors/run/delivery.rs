//! Delivers finished blocks to workers.

use super::{Delivered, DeliveredBlock, EndPolls, Poll, PollOptions, RunActor, Undelivered, Waiting};
use crate::domain::ids::{BlockId, Seq, WorkerId};
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::store::{Ack, ReadResultsWithin};
use actix::{Context, Handler};

/// When the results in one answer exceed this many bytes, no further block is added. A caller that does not read blocks this
/// amount for others for a while.
const ANSWER_BYTES: usize = 1 << 20;
/// Maximum number of blocks in one answer whose size is unknown before the read.
const MOST_COLD: usize = 16;

impl RunActor {
    /// Answers the waiting polls while there are finished blocks.
    pub(super) fn serve_pollers(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        while !self.lifecycle.is_ending()
            && self.kind.frontier.has_answered()
            && let Some(waiting) = self.kind.pollers.pop_front()
        {
            if !waiting.reply.is_abandoned() && waiting.until >= now {
                self.deliver(waiting, now, ctx);
            } else if !waiting.reply.is_abandoned() {
                waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            }
        }
    }

    fn deliver(&mut self, waiting: Waiting, now: Timestamp, ctx: &mut Context<Self>) {
        if let Some(worker) = waiting.worker {
            self.kind.involved.add_worker(worker);
        }
        let (mut ready, mut cold, mut bytes) = (Vec::new(), Vec::new(), 0);
        while ready.len() + cold.len() < waiting.max
            && bytes < ANSWER_BYTES
            && let Some((seq, no)) = self.kind.frontier.deliver(waiting.worker, now)
        {
            match self.kind.cache.take_finished(seq) {
                Some(f) => {
                    bytes += f.pack.len() + f.requests.len();
                    let block_id = self.block_id(seq);
                    let delivery_no = (!waiting.auto_ack).then_some(no);
                    let block = DeliveredBlock { block_id, requests: f.requests, raw_length: f.raw_length, pack: f.pack, delivery_no };
                    ready.push((seq, no, block));
                }
                None => {
                    bytes += ANSWER_BYTES / MOST_COLD;
                    cold.push((seq, no));
                }
            }
        }
        if cold.is_empty() {
            return self.answer_poll(waiting, ready, ctx);
        }
        let room = ANSWER_BYTES.saturating_sub(ready.iter().map(|(.., block)| block.requests.len() + block.pack.len()).sum());
        let seqs = cold.iter().map(|(seq, _)| *seq).collect();
        let read = self.context.store.read(ReadResultsWithin { no: self.run.no, seqs, most_bytes: room });
        Self::then(ctx, read, move |this, (found, unread), ctx| {
            let (read, left) = cold.split_at(cold.len() - unread.len());
            let seqs: Vec<Seq> = read.iter().map(|(seq, _)| *seq).collect();
            for r in this.whole(&seqs, found, ctx) {
                let Some((seq, no)) = read.iter().find(|(seq, _)| *seq == r.seq).copied() else { continue };
                let (block_id, delivery_no) = (this.block_id(seq), (!waiting.auto_ack).then_some(no));
                let block = DeliveredBlock { block_id, requests: r.payload, raw_length: r.raw_length, pack: r.pack, delivery_no };
                ready.push((seq, no, block));
            }
            this.take_back(left);
            this.answer_poll(waiting, ready, ctx);
            this.serve_pollers(ctx);
        });
    }

    fn answer_poll(&mut self, waiting: Waiting, mut blocks: Vec<(Seq, u64, DeliveredBlock)>, ctx: &mut Context<Self>) {
        // During the read, other calls may have acknowledged them, or taken them back and delivered them again.
        blocks.retain(|(seq, no, _)| self.kind.frontier.is_delivery(*seq, *no));
        let (deliveries, blocks): (Vec<(Seq, u64)>, Vec<DeliveredBlock>) =
            blocks.into_iter().map(|(seq, no, block)| ((seq, no), block)).unzip();
        if self.lifecycle.is_ending() || waiting.reply.is_abandoned() {
            // The end, which is being written, gives up the blocks that are not acknowledged. A later acknowledgement would
            // subtract the same packs from their segment again.
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            return self.not_delivered(&deliveries, ctx);
        }
        if blocks.is_empty() && waiting.until > Timestamp::steady() {
            // All blocks for this poll were damaged, or acknowledged in the meantime: it continues to wait.
            self.kind.poll_timer.set(waiting.until, ctx, Self::expire_pollers);
            self.kind.pollers.push_front(waiting);
            return self.serve_pollers(ctx);
        }
        let delivered = Delivered { state: self.run.state, blocks };
        if !waiting.auto_ack || deliveries.is_empty() {
            if waiting.reply.give(Ok(delivered)).is_err() {
                self.not_delivered(&deliveries, ctx);
            }
            return;
        }
        let seqs: Vec<Seq> = deliveries.into_iter().map(|(seq, _)| seq).collect();
        for seq in &seqs {
            self.kind.frontier.begin_ack(*seq);
        }
        let write = Ack { no: self.run.no, epoch: self.epoch, seqs: seqs.clone(), push: Vec::new(), now: Timestamp::now() };
        // As busy it would end the actor: the blocks are taken out of the queue already.
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            for seq in seqs {
                this.kind.frontier.acked(seq);
            }
            // With automatic acknowledgement, a block that is lost on the way now stays lost; the caller accepts this risk.
            waiting.reply.send(Ok(delivered));
            this.end_if_drained(ctx);
        });
    }

    /// A worker that lists its blocks did not receive the others. It does not wait for the answer to an earlier poll.
    fn deliver_lost(&mut self, worker: WorkerId, holds: &[BlockId]) {
        let identity = self.identity();
        let held: Vec<Seq> = holds.iter().filter_map(|block| block.seq_in(identity)).collect();
        let lost = self.kind.frontier.keep_only(worker, &held);
        if lost > 0 {
            log::info!(
                "a worker did not receive an answer, delivering its blocks again run_id={identity} worker_id={worker} blocks={lost}"
            );
        }
        for waiting in std::mem::take(&mut self.kind.pollers) {
            if waiting.worker == Some(worker) {
                waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            } else {
                self.kind.pollers.push_back(waiting);
            }
        }
    }

    fn not_delivered(&mut self, deliveries: &[(Seq, u64)], ctx: &mut Context<Self>) {
        self.take_back(deliveries);
        self.serve_pollers(ctx);
    }

    /// The last one first: each returns to the front of the queue.
    fn take_back(&mut self, deliveries: &[(Seq, u64)]) {
        for (seq, no) in deliveries.iter().rev() {
            self.kind.frontier.take_back_of(*seq, *no);
        }
    }

    /// Answers the polls whose time is over, and sets the timer for the next one.
    fn expire_pollers(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::steady();
        for waiting in std::mem::take(&mut self.kind.pollers) {
            if waiting.until > now {
                self.kind.pollers.push_back(waiting);
            } else {
                waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            }
        }
        self.kind.poll_timer.fired();
        if let Some(next) = self.kind.pollers.iter().map(|waiting| waiting.until).min() {
            self.kind.poll_timer.set(next, ctx, Self::expire_pollers);
        }
    }
}

impl Handler<Poll> for RunActor {
    type Result = ();
    fn handle(&mut self, m: Poll, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.poll");
        let now = Timestamp::steady();
        let PollOptions { worker, max, wait, auto_ack, holds } = m.options;
        if let (Some(worker), Some(holds)) = (worker, holds) {
            self.deliver_lost(worker, &holds);
        }
        let until = now.plus_ms(wait.as_millis() as i64);
        let waiting = Waiting { worker, max, until, auto_ack, reply: m.reply };
        if self.context.followers.is_closed() {
            waiting.reply.send(Err(Problem::ending()));
        } else if self.kind.frontier.has_answered() && !self.lifecycle.is_ending() {
            self.deliver(waiting, now, ctx);
        } else if wait.is_zero() || self.lifecycle.is_ending() {
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
        } else {
            self.kind.pollers.push_back(waiting);
            self.kind.poll_timer.set(until, ctx, Self::expire_pollers);
        }
    }
}

impl Handler<EndPolls> for RunActor {
    type Result = ();
    fn handle(&mut self, _: EndPolls, _: &mut Self::Context) {
        let _timed = self.guard.timed("run.end_polls");
        for waiting in std::mem::take(&mut self.kind.pollers) {
            waiting.reply.send(Err(Problem::ending()));
        }
    }
}

impl Handler<Undelivered> for RunActor {
    type Result = ();
    fn handle(&mut self, Undelivered(blocks): Undelivered, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.undelivered");
        for (block_id, no) in blocks.into_iter().rev() {
            if let Some(seq) = block_id.seq_in(self.identity()) {
                self.kind.frontier.take_back_of(seq, no);
            }
        }
        self.serve_pollers(ctx);
    }
}
