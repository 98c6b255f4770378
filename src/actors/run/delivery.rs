//! Finished blocks go out to workers.

use super::{Delivered, DeliveredBlock, Poll, RunActor, Waiting};
use crate::domain::block::AckVerdict;
use crate::domain::ids::Seq;
use crate::domain::time::Timestamp;
use crate::store::{Ack, ReadResults};
use actix::{AsyncContext, Context, Handler};
use std::time::Duration;

/// Bytes of results in one answer, after which no further block is put in.
const ANSWER_BYTES: usize = 16 << 20;

impl RunActor {
    /// Answers whoever waits, as far as there is something to answer with.
    pub(super) fn serve_pollers(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        while !self.ending
            && self.frontier.has_answered()
            && let Some(waiting) = self.pollers.pop_front()
        {
            if !waiting.reply.is_abandoned() && waiting.until >= now {
                self.deliver(waiting, now, ctx);
            } else if !waiting.reply.is_abandoned() {
                waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            }
        }
    }

    fn deliver(&mut self, waiting: Waiting, now: Timestamp, ctx: &mut Context<Self>) {
        let (mut ready, mut cold, mut bytes) = (Vec::new(), Vec::new(), 0);
        while ready.len() + cold.len() < waiting.max
            && bytes < ANSWER_BYTES
            && let Some(seq) = self.frontier.deliver(waiting.worker, now)
        {
            match self.cache.take_finished(seq) {
                Some(f) => {
                    bytes += f.pack.len() + f.requests.len();
                    let block_id = self.block_id(seq);
                    ready.push((seq, DeliveredBlock { block_id, requests: f.requests, raw_length: f.raw_length, pack: f.pack }));
                }
                None => {
                    bytes += ANSWER_BYTES / 16; // its size is not known before it is read
                    cold.push(seq);
                }
            }
        }
        if cold.is_empty() {
            return self.hand_out(waiting, ready, ctx);
        }
        let read = self.house.store.read(ReadResults { no: self.run.no, seqs: cold });
        Self::then(ctx, read, move |this, results, ctx| {
            for r in results {
                let block_id = this.block_id(r.seq);
                ready.push((r.seq, DeliveredBlock { block_id, requests: r.payload, raw_length: r.raw_length, pack: r.pack }));
            }
            this.hand_out(waiting, ready, ctx);
        });
    }

    fn hand_out(&mut self, waiting: Waiting, mut blocks: Vec<(Seq, DeliveredBlock)>, ctx: &mut Context<Self>) {
        // While they were read, others may have acknowledged them.
        blocks.retain(|(seq, _)| self.frontier.check_ack(*seq) == AckVerdict::Current);
        let (seqs, blocks): (Vec<Seq>, Vec<DeliveredBlock>) = blocks.into_iter().unzip();
        if self.ending || waiting.reply.is_abandoned() {
            // The end, which is on its way to the disk, gives up what is not acknowledged: an acknowledgement behind it
            // would count the same packs off their segment once more.
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            return self.not_taken(&seqs, ctx);
        }
        let delivered = Delivered { state: self.run.state, blocks };
        if !waiting.auto_ack || seqs.is_empty() {
            if waiting.reply.give(Ok(delivered)).is_err() {
                self.not_taken(&seqs, ctx);
            }
            return;
        }
        for seq in &seqs {
            self.frontier.begin_ack(*seq);
        }
        let write = Ack { no: self.run.no, epoch: self.epoch, seqs: seqs.clone(), push: Vec::new(), now: Timestamp::now() };
        Self::then(ctx, self.house.store.write(write), move |this, (), ctx| {
            for seq in seqs {
                this.frontier.acked(seq);
            }
            // Who asks for it so takes the risk: what is lost on the way now is lost.
            waiting.reply.send(Ok(delivered));
            this.end_if_drained(ctx);
        });
    }

    fn not_taken(&mut self, seqs: &[Seq], ctx: &mut Context<Self>) {
        for seq in seqs.iter().rev() {
            self.frontier.take_back(*seq);
        }
        self.serve_pollers(ctx);
    }

    /// Sends away those whose time is over, and sets the clock for the next one.
    fn expire_pollers(&mut self, ctx: &mut Context<Self>) {
        let now = Timestamp::now();
        for waiting in std::mem::take(&mut self.pollers) {
            if waiting.until > now {
                self.pollers.push_back(waiting);
            } else {
                waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
            }
        }
        self.poll_timer = None;
        if let Some(next) = self.pollers.iter().map(|waiting| waiting.until).min() {
            self.wake_pollers_at(next, ctx);
        }
    }

    /// One clock for all that wait, not one for each: an actor's context looks at all its clocks whenever it wakes.
    fn wake_pollers_at(&mut self, until: Timestamp, ctx: &mut Context<Self>) {
        if let Some((armed, handle)) = self.poll_timer {
            if armed <= until {
                return;
            }
            ctx.cancel_future(handle);
        }
        let wait = u64::try_from(until.since_ms(Timestamp::now())).unwrap_or(0);
        let handle = ctx.run_later(Duration::from_millis(wait + 1), |this, ctx| this.expire_pollers(ctx));
        self.poll_timer = Some((until, handle));
    }
}

impl Handler<Poll> for RunActor {
    type Result = ();
    fn handle(&mut self, m: Poll, ctx: &mut Self::Context) {
        self.notice.message("run.poll");
        let now = Timestamp::now();
        let until = now.plus_ms(m.wait.as_millis() as i64);
        let waiting = Waiting { worker: m.worker, max: m.max, until, auto_ack: m.auto_ack, reply: m.reply };
        if self.frontier.has_answered() && !self.ending {
            self.deliver(waiting, now, ctx);
        } else if m.wait.is_zero() || self.ending {
            waiting.reply.send(Ok(Delivered { state: self.run.state, blocks: Vec::new() }));
        } else {
            self.pollers.push_back(waiting);
            self.wake_pollers_at(until, ctx);
        }
    }
}
