//! Requests that wait for a node are discarded: they get a result of the kind `discarded`, which goes to the worker as any other.
//!
//! The blocks leave their queues first. So while their requests are read and the results are stored, no node gets them. A crash
//! before the commit puts them back, because the queues are in memory only. The discarded requests keep the number of their block
//! and the others get a new one: a node that still has the old block is notified that the block is finished.

use super::cache::{Finished, Payload};
use super::parts::{failed, final_entry};
use super::{Discard, RunActor};
use crate::actors::reply::Reply;
use crate::domain::block::Phase;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{NodeId, Seq};
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack::{self, Index};
use crate::protocol::problem::Problem;
use crate::store::{self, Barrier, ReadPayloads, StoreError};
use actix::{Context, Handler};
use bytes::Bytes;
use futures_util::future::{LocalBoxFuture, try_join_all};
use std::collections::{BTreeMap, HashMap, HashSet};

/// Number of blocks that are discarded at a time when the run has downloaded as many bytes as it may.
const AT_ONCE: usize = 200;

/// What to discard, and why.
struct Order {
    /// Which requests of the blocks; `None`: all.
    chosen: Option<BTreeMap<Seq, HashSet<Fingerprint>>>,
    why: String,
    /// The caller. Without one, the run itself gave the order.
    reply: Option<Reply<u64>>,
}

impl Order {
    fn takes(&self, seq: Seq, print: &Fingerprint) -> bool {
        self.chosen.as_ref().is_none_or(|chosen| chosen[&seq].contains(print))
    }

    fn refuse(self, problem: Problem) {
        self.reply.into_iter().for_each(|reply| reply.send(Err(problem.clone())));
    }
}

/// A block with discarded requests.
struct Cut {
    seq: Seq,
    discarded: Payload,
    pack: Bytes,
    /// The new block of its other requests.
    rest: Option<(Seq, Payload)>,
}

impl RunActor {
    fn discard_pending(&mut self, chosen: BTreeMap<Seq, HashSet<Fingerprint>>, reply: Reply<u64>, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() {
            return reply.send(Err(self.over()));
        }
        if self.context.store.is_busy() {
            return reply.send(Err(Problem::busy("the write queue is full; retry later")));
        }
        let waits = |seq: &Seq| matches!(self.kind.frontier.phase(*seq), Some(Phase::Ready | Phase::Retry | Phase::Queued));
        let seqs: Vec<Seq> = chosen.keys().copied().filter(waits).collect();
        let order = Order { chosen: Some(chosen), why: "discarded by an operator".to_owned(), reply: Some(reply) };
        self.take_and_discard(seqs, order, ctx);
    }

    /// Discards what waits for a node, if the run has downloaded as many bytes as it may.
    pub(super) fn discard_over_bytes(&mut self, ctx: &mut Context<Self>) {
        let Some((most, bytes)) = self.kind.frontier.over_bytes().filter(|_| !self.lifecycle.is_ending() && !self.kind.discards) else {
            return;
        };
        let seqs = self.kind.frontier.waiting(AT_ONCE);
        if !seqs.is_empty() {
            self.kind.discards = true;
            let why = super::end::over_bytes_text(most, bytes);
            self.take_and_discard(seqs, Order { chosen: None, why, reply: None }, ctx);
        }
    }

    fn take_and_discard(&mut self, seqs: Vec<Seq>, order: Order, ctx: &mut Context<Self>) {
        for seq in &seqs {
            self.kind.frontier.begin_report(*seq);
            self.kind.cache.take_ready(*seq);
        }
        // A split of a block may still be in the write queue, and a reader sees only what is committed.
        Self::then(ctx, self.context.store.write_unbounded(Barrier), move |this, (), ctx| this.cut_and_store(seqs, order, ctx));
    }

    fn cut_and_store(&mut self, seqs: Vec<Seq>, order: Order, ctx: &mut Context<Self>) {
        let read = self.context.store.read(ReadPayloads { no: self.run.no, seqs: seqs.clone() });
        Self::then(ctx, read, move |this, payloads, ctx| {
            if this.lifecycle.is_ending() {
                return order.refuse(this.over());
            }
            if payloads.len() != seqs.len() {
                order.refuse(Problem::internal());
                return this.die("the requests of a block are not there", ctx);
            }
            match this.cut_all(payloads, &order) {
                Ok((cuts, writes)) => this.store_discarded(cuts, writes, order, ctx),
                Err(problem) => {
                    order.refuse(Problem::internal());
                    this.die(&problem.detail, ctx);
                }
            }
        });
    }

    /// Cuts the chosen requests out of their blocks; what is to be stored for each.
    #[expect(clippy::type_complexity, reason = "two lists that are made together")]
    fn cut_all(
        &mut self,
        payloads: Vec<store::Payload>,
        order: &Order,
    ) -> Result<(Vec<Cut>, Vec<LocalBoxFuture<'static, Result<(), StoreError>>>), Problem> {
        let (mut cuts, mut writes): (Vec<_>, Vec<LocalBoxFuture<'static, _>>) = (Vec::new(), Vec::new());
        for store::Payload { seq, raw_length, payload, prints } in payloads {
            let payload = Payload { requests: payload, raw_length, prints };
            let (out, others): (Vec<usize>, Vec<usize>) =
                (0..payload.prints.len()).partition(|place| order.takes(seq, &payload.prints[*place]));
            if out.is_empty() {
                self.kind.frontier.wait_again(seq);
                continue;
            }
            let (discarded, rest) = if others.is_empty() {
                (payload, None)
            } else {
                let [discarded, rest] = payload.cut([&out, &others], &HashMap::new())?;
                let frontier = &mut self.kind.frontier;
                let lost = frontier.losses(seq, frontier.attempts_of(seq));
                (discarded, Some((frontier.begin_rest(seq, frontier.site_of(seq), lost), rest)))
            };
            let entry = |print: &Fingerprint| final_entry(failed(*print, FetchErrorKind::Discarded, &order.why));
            let results = discarded.prints.iter().map(entry).collect();
            let index =
                Index { epoch: Some(self.epoch), results, ..Index::new(self.block_id(seq), self.identity(), NodeId(uuid::Uuid::nil())) };
            let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
            let result = self.result_of(seq, &index, pack.clone());
            writes.push(match &rest {
                Some((rest, others)) => {
                    let write = self.split((seq, &discarded), Some((*rest, others)), Some(result));
                    Box::pin(self.context.store.write_unbounded(write))
                }
                None => Box::pin(self.context.store.write_unbounded(result)),
            });
            cuts.push(Cut { seq, discarded, pack, rest });
        }
        Ok((cuts, writes))
    }

    fn store_discarded(
        &mut self,
        cuts: Vec<Cut>,
        writes: Vec<LocalBoxFuture<'static, Result<(), StoreError>>>,
        order: Order,
        ctx: &mut Context<Self>,
    ) {
        Self::then(ctx, try_join_all(writes), move |this, _, ctx| {
            let mut count = 0;
            for Cut { seq, discarded, pack, rest } in cuts {
                count += discarded.prints.len() as u64;
                this.kind.frontier.reported(seq, 0, discarded.prints.len() as u32);
                this.kind.cache.put_finished(seq, Finished { requests: discarded.requests, raw_length: discarded.raw_length, pack });
                if let Some((rest, payload)) = rest {
                    this.kind.frontier.stored(rest, 0);
                    this.kind.cache.put_ready(rest, payload);
                }
            }
            log::info!("pending requests discarded run_id={} requests={count}: {}", this.identity(), order.why);
            match order.reply {
                Some(reply) => reply.send(Ok(count)),
                None => this.kind.discards = false,
            }
            this.announce(ctx);
            this.discard_over_bytes(ctx);
            this.serve_pollers(ctx);
        });
    }
}

impl Handler<Discard> for RunActor {
    type Result = ();
    fn handle(&mut self, Discard { chosen, reply }: Discard, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.discard");
        self.discard_pending(chosen, reply, ctx);
    }
}
