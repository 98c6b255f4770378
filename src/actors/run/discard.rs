//! Requests that wait for a node are discarded: they get a result of the kind `discarded`, which goes to the worker as any other.
//!
//! The blocks leave their queues first. So while their requests are read and the results are stored, no node gets them. A crash
//! before the commit puts them back, because the queues are in memory only. The discarded requests keep the number of their block
//! and the others get a new one: a node that still has the old block is told that it is finished.

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
        if self.ending {
            return reply.send(Err(self.over()));
        }
        if self.context.store.is_busy() {
            return reply.send(Err(Problem::busy("the write queue is full; retry later")));
        }
        let waits = |seq: &Seq| matches!(self.frontier.phase(*seq), Some(Phase::Ready | Phase::Retry | Phase::Queued));
        let seqs: Vec<Seq> = chosen.keys().copied().filter(waits).collect();
        for seq in &seqs {
            self.frontier.begin_report(*seq);
            self.cache.take_ready(*seq);
        }
        // A split of a block may still be in the write queue, and a reader sees only what is committed.
        Self::then(ctx, self.context.store.write_unbounded(Barrier), move |this, (), ctx| this.cut_and_store(seqs, chosen, reply, ctx));
    }

    fn cut_and_store(&mut self, seqs: Vec<Seq>, chosen: BTreeMap<Seq, HashSet<Fingerprint>>, reply: Reply<u64>, ctx: &mut Context<Self>) {
        let read = self.context.store.read(ReadPayloads { no: self.run.no, seqs: seqs.clone() });
        Self::then(ctx, read, move |this, payloads, ctx| {
            if this.ending {
                return reply.send(Err(this.over()));
            }
            if payloads.len() != seqs.len() {
                reply.send(Err(Problem::internal()));
                return this.die("the requests of a block are not there", ctx);
            }
            match this.cut_all(payloads, &chosen) {
                Ok((cuts, writes)) => this.store_discarded(cuts, writes, reply, ctx),
                Err(problem) => {
                    reply.send(Err(Problem::internal()));
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
        chosen: &BTreeMap<Seq, HashSet<Fingerprint>>,
    ) -> Result<(Vec<Cut>, Vec<LocalBoxFuture<'static, Result<(), StoreError>>>), Problem> {
        let (mut cuts, mut writes): (Vec<_>, Vec<LocalBoxFuture<'static, _>>) = (Vec::new(), Vec::new());
        for store::Payload { seq, raw_length, payload, prints } in payloads {
            let payload = Payload { requests: payload, raw_length, prints };
            let (out, others): (Vec<usize>, Vec<usize>) =
                (0..payload.prints.len()).partition(|place| chosen[&seq].contains(&payload.prints[*place]));
            if out.is_empty() {
                self.frontier.wait_again(seq);
                continue;
            }
            let (discarded, rest) = if others.is_empty() {
                (payload, None)
            } else {
                let [discarded, rest] = payload.cut([&out, &others], &HashMap::new())?;
                (discarded, Some((self.frontier.begin_rest(seq, self.frontier.site_of(seq)), rest)))
            };
            let entry = |print: &Fingerprint| final_entry(failed(*print, FetchErrorKind::Discarded, "discarded by an operator"));
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
        reply: Reply<u64>,
        ctx: &mut Context<Self>,
    ) {
        Self::then(ctx, try_join_all(writes), move |this, _, ctx| {
            let mut count = 0;
            for Cut { seq, discarded, pack, rest } in cuts {
                count += discarded.prints.len() as u64;
                this.frontier.reported(seq, 0, discarded.prints.len() as u32);
                this.cache.put_finished(seq, Finished { requests: discarded.requests, raw_length: discarded.raw_length, pack });
                if let Some((rest, payload)) = rest {
                    this.frontier.stored(rest, 0);
                    this.cache.put_ready(rest, payload);
                }
            }
            log::info!("pending requests discarded run_id={} requests={count}", this.identity());
            reply.send(Ok(count));
            this.announce(ctx);
            this.serve_pollers(ctx);
        });
    }
}

impl Handler<Discard> for RunActor {
    type Result = ();
    fn handle(&mut self, Discard { chosen, reply }: Discard, ctx: &mut Self::Context) {
        self.guard.message("run.discard");
        self.discard_pending(chosen, reply, ctx);
    }
}
