//! Stored results that cannot be read any more: their requests are downloaded again, or delivered as failed.

use super::RunActor;
use crate::domain::block::{Lost, Phase};
use crate::domain::ids::{NodeId, Seq};
use crate::protocol::MAX_REPORT;
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack;
use crate::store::{DiscardResults, ReadBlocks, StoredResult};
use actix::Context;

impl RunActor {
    /// Returns the intact blocks of a read, and discards the others.
    pub(super) fn whole(&mut self, asked: &[Seq], found: ReadBlocks, ctx: &mut Context<Self>) -> Vec<StoredResult> {
        let ReadBlocks { mut results, mut damaged } = found;
        // Packs stored before checksums existed are validated as a whole.
        results.retain(|result| {
            let opened = if result.is_checked { Ok(()) } else { pack::open(&result.pack, MAX_REPORT).map(drop) };
            if let Err(problem) = &opened {
                damaged.push((result.seq, format!("its results are invalid: {}", problem.detail)));
            }
            opened.is_ok()
        });
        for &seq in asked {
            let is_told = results.iter().any(|result| result.seq == seq) || damaged.iter().any(|(other, _)| *other == seq);
            if !is_told && self.kind.frontier.phase(seq) == Some(Phase::Delivered) {
                damaged.push((seq, "its results are not in the store".to_owned()));
            }
        }
        for (seq, why) in damaged {
            self.discard(seq, why, ctx);
        }
        results
    }

    fn discard(&mut self, seq: Seq, why: String, ctx: &mut Context<Self>) {
        // The end, which is being written, gives up all results.
        if self.lifecycle.is_ending() || !self.kind.frontier.begin_discard(seq) {
            return;
        }
        let block_id = self.block_id(seq);
        log::error!("results lost run_id={} block_id={block_id}: {why}", self.identity());
        self.context.counters.counts.results_lost();
        let exception = format!("its results were lost on the disk of the broker: {why}");
        let write = DiscardResults { no: self.run.no, epoch: self.epoch, seq, exception: exception.clone() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, had, ctx| {
            if this.lifecycle.is_ending() {
                return;
            }
            match this.kind.frontier.discarded(seq, had.success, had.error, had.attempt) {
                Lost::Retry(_) => this.announce(ctx),
                Lost::Exhausted(attempts) => {
                    let exception = format!("given up after {attempts} attempts: {exception}");
                    let node = had.node.unwrap_or(NodeId(uuid::Uuid::nil()));
                    this.with_payload(seq, ctx, move |this, payload, ctx| {
                        this.give_up(seq, node, had.attempt, &payload, (FetchErrorKind::Block, exception), ctx);
                    });
                }
            }
        });
    }
}
