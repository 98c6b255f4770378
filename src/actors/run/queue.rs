//! Adds requests and acknowledges blocks: one message, one transaction, and an answer after its commit.

use super::cache::Payload;
use super::{Push, RunActor};
use crate::actors::reply::Reply;
use crate::domain::block::AckVerdict;
use crate::domain::ids::{BlockId, Seq};
use crate::domain::origin::{MOST_ORIGINS, Origin};
use crate::domain::request::RequestBatch;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::compare::compare_by;
use crate::protocol::problem::Problem;
use crate::protocol::push::Pushed;
use crate::store::{Ack, Barrier, NewBlock, PushBlocks, SetDownload};
use actix::{Context, Handler};
use std::collections::HashSet;

impl RunActor {
    /// The blocks that an acknowledgement closes, and the number of those that were closed before.
    fn check_acks(&self, acks: &[BlockId]) -> Result<(Vec<Seq>, u64), Problem> {
        let (mut current, mut named, mut already) = (Vec::new(), HashSet::new(), 0);
        for (i, block_id) in acks.iter().enumerate() {
            let at = |problem: Problem| problem.at(format!("blocks[{i}]"));
            let seq =
                block_id.seq_in(self.identity()).ok_or_else(|| at(Problem::not_found(format!("{block_id} is not a block of this run"))))?;
            match self.kind.frontier.check_ack(seq) {
                AckVerdict::Current if named.insert(seq) => current.push(seq),
                AckVerdict::Current | AckVerdict::Already => already += 1,
                AckVerdict::NotAnswered => return Err(at(Problem::conflict("not-answered", format!("{block_id} has no results yet")))),
                AckVerdict::Unknown => return Err(at(Problem::not_found(format!("{block_id} is not a block of this run")))),
            }
        }
        Ok((current, already))
    }

    /// Admits requests and packs the blocks to store.
    pub(super) fn admit(&mut self, batch: &RequestBatch) -> Result<(Vec<NewBlock>, Pushed), Problem> {
        let sites = self.sites_of(&batch.all_origins);
        let admission = self.kind.frontier.begin_push(batch, |i| sites.get(batch.requests[i].origin as usize).copied().flatten());
        let mut blocks = Vec::with_capacity(admission.blocks.len());
        for (seq, chosen) in &admission.blocks {
            let prints = chosen.iter().map(|i| batch.requests[*i].id).collect();
            blocks.push(self.new_block(*seq, &Payload::pack(&batch.pack(chosen), prints)?));
        }
        let pushed = Pushed {
            block_ids: admission.blocks.iter().map(|(seq, _)| self.block_id(*seq)).collect(),
            accepted: admission.accepted,
            duplicates: admission.duplicates,
            too_deep: admission.too_deep,
            over_limit: admission.over_limit,
            trapped: admission.trapped,
            already: 0,
        };
        Ok((blocks, pushed))
    }

    /// Records the origins of the first requests as the start of the run. They are stored before the requests.
    fn note_origins(&mut self, origins: &[Box<str>], ctx: &mut Context<Self>) {
        let Some(known) = self.run.download.start_origins.as_deref().filter(|known| known.len() < MOST_ORIGINS) else { return };
        let mut all = known.to_vec();
        for origin in origins.iter().filter_map(|text| Origin::of(&url::Url::parse(text).ok()?)) {
            if !all.contains(&origin) && all.len() < MOST_ORIGINS {
                all.push(origin);
            }
        }
        if all.len() == known.len() {
            return;
        }
        if all.len() == MOST_ORIGINS {
            log::warn!("run has too many start origins, only the first {MOST_ORIGINS} count run_id={}", self.identity());
        }
        self.run.download.start_origins = Some(all.into());
        let write = SetDownload { no: self.run.no, epoch: self.epoch, download: self.run.download.clone() };
        Self::then(ctx, self.context.store.write(write), |_, (), _| {});
    }

    pub(super) fn blocks_stored(&mut self, blocks: Vec<NewBlock>, ctx: &mut Context<Self>) {
        for block in blocks {
            self.kind.frontier.stored(block.seq, block.requests);
            self.kind.cache.put_ready(block.seq, block.into());
        }
        if matches!(self.run.state, RunState::Pending | RunState::Scheduled) {
            self.set_state(RunState::Running, ctx);
        }
        self.announce(ctx);
    }

    fn push(&mut self, acks: &[BlockId], batch: &RequestBatch, reply: Reply<Pushed>, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() {
            return reply.send(Err(self.over()));
        }
        if self.context.store.is_busy() {
            return reply.send(Err(Problem::busy("write queue is full; retry later")));
        }
        let left = self.kind.frontier.pending();
        if !batch.requests.is_empty() && left >= self.run.queue.max_pending {
            let detail = format!("{left} requests wait for their results, and the job's MaxPending is {}", self.run.queue.max_pending);
            return reply.send(Err(Problem::too_many(detail)));
        }
        let (acked, already) = match self.check_acks(acks) {
            Ok(checked) => checked,
            Err(problem) => return reply.send(Err(problem)),
        };
        // A repeated acknowledgement may arrive before the commit of the first one.
        let acking = already > 0 && acks.iter().any(|id| id.seq_in(self.identity()).is_some_and(|seq| self.kind.frontier.is_acking(seq)));
        let (blocks, mut pushed) = match self.admit(batch) {
            Ok(admitted) => admitted,
            Err(problem) => {
                // The frontier's set of seen requests is now wrong; a new actor loads the stored one.
                reply.send(Err(problem));
                return self.die("a push could not be packed", ctx);
            }
        };
        pushed.already = already;
        if acks.is_empty() && !self.kind.frontier.start_returned() {
            self.note_origins(&batch.origins, ctx);
        }
        for seq in &acked {
            self.kind.frontier.begin_ack(*seq);
            self.kind.cache.take_finished(*seq);
        }
        let (no, epoch, now) = (self.run.no, self.epoch, Timestamp::now());
        let store = &self.context.store;
        if !acked.is_empty() {
            let write = store.write(Ack { no, epoch, seqs: acked.clone(), push: blocks.clone(), now });
            Self::then(ctx, write, move |this, (), ctx| {
                for seq in acked {
                    this.kind.frontier.acked(seq);
                }
                this.blocks_stored(blocks, ctx);
                reply.send(Ok(pushed));
                this.serve_pollers(ctx);
                this.end_if_drained(ctx);
            });
        } else if !blocks.is_empty() {
            let write = store.write(PushBlocks { no, epoch, blocks: blocks.clone(), now });
            Self::then(ctx, write, move |this, (), ctx| {
                this.blocks_stored(blocks, ctx);
                reply.send(Ok(pushed));
            });
        } else if acking || (self.kind.frontier.is_storing() && !batch.requests.is_empty()) {
            // A duplicate of something that is not on disk yet: wait until the original is on disk.
            Self::then(ctx, store.write(Barrier), move |_, (), _| reply.send(Ok(pushed)));
        } else {
            reply.send(Ok(pushed));
        }
    }
}

impl Handler<Push> for RunActor {
    type Result = ();
    fn handle(&mut self, Push { acks, mut batch, reply }: Push, ctx: &mut Self::Context) {
        let _timed = self.guard.timed(if acks.is_empty() { "run.push" } else { "run.ack" });
        compare_by(&self.run.queue.canonicalisation, &mut batch);
        self.push(&acks, &batch, reply, ctx);
    }
}
