//! A run that begins with failed requests of another run, which is over.
//!
//! The marks at these failures name this run; see `actors/job/first_requests`. The actor reads them before it orders a worker to
//! start. One transaction stores the requests, and that the start has returned: the worker pushes no first requests of its own,
//! and after a crash nothing is read twice.

use super::RunActor;
use super::requests::text_of;
use super::requeue::Repetitions;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{Identity, Seq};
use crate::domain::request::{RequestBatch, unpack};
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::failed;
use crate::store::{GetRun, ListFailures, PushFirst, ReadFailures, Store, StoreError};
use actix::Context;
use std::collections::HashSet;

/// Number of blocks per read.
const AT_ONCE: usize = 64;

/// The failed requests of another run that are queued again in this one; or why they cannot be read.
async fn first_requests(
    store: Store,
    identity: Identity,
    old: Identity,
    (first, last): (Seq, Seq),
) -> Result<Result<RequestBatch, String>, StoreError> {
    let mut all = Repetitions::default();
    let Some(no) = store.read(GetRun(old)).await?.map(|run| run.no) else { return Ok(Ok(all.into_batch())) };
    let mut from = first;
    loop {
        let listed = store.read(ListFailures { no, from, limit: AT_ONCE, sites: Vec::new() }).await?;
        let seqs: Vec<Seq> = listed.iter().map(|block| block.seq).filter(|seq| *seq <= last).collect();
        for block in store.read(ReadFailures { no, seqs }).await? {
            if let Err(why) = add(&mut all, identity, &block.entries, &block.prints, (&block.payload, block.raw_length)) {
                return Ok(Err(why));
            }
        }
        match listed.last().and_then(|block| block.seq.checked_add(1)).filter(|next| *next <= last) {
            Some(next) if listed.len() == AT_ONCE => from = next,
            _ => return Ok(Ok(all.into_batch())),
        }
    }
}

fn add(
    all: &mut Repetitions,
    identity: Identity,
    entries: &[u8],
    prints: &[Fingerprint],
    (payload, raw_length): (&bytes::Bytes, u32),
) -> Result<(), String> {
    let failed = failed::of_text(entries)?.into_iter().filter(|failed| failed.requeued_in == Some(identity));
    let wanted: HashSet<Fingerprint> = failed.map(|failed| failed.request_id).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let text = text_of(payload, raw_length).map_err(|problem| problem.detail)?;
    let requests = unpack(&text)?;
    for (print, request) in prints.iter().zip(requests).filter(|(print, _)| wanted.contains(print)) {
        all.add(*print, request.get())?;
    }
    Ok(())
}

impl RunActor {
    /// Whether the run begins with failed requests of another run, which are not in its queue yet.
    pub(super) fn wants_first_requests(&self) -> bool {
        self.run.rules.requeues.is_some() && !self.kind.frontier.start_returned()
    }

    /// Queues the first requests, then begins.
    pub(super) fn fetch_first_requests(&mut self, ctx: &mut Context<Self>) {
        let (Some(old), Some(blocks)) = (self.run.retry_of, self.run.rules.requeues) else { return };
        let read = first_requests(self.context.store.clone(), self.identity(), old, blocks);
        Self::then(ctx, read, move |this, batch, ctx| {
            if this.lifecycle.is_ending() {
                return;
            }
            match batch {
                Ok(batch) if batch.requests.is_empty() => {
                    let reason = format!("its first requests are failed requests of run {old}, which are no longer stored");
                    this.end(RunState::Failed, Some(reason), ctx);
                }
                Ok(batch) => this.store_first_requests(&batch, ctx),
                Err(why) => this.die(&format!("the requests of run {old} are not readable: {why}"), ctx),
            }
        });
    }

    fn store_first_requests(&mut self, batch: &RequestBatch, ctx: &mut Context<Self>) {
        let (blocks, pushed) = match self.admit(batch) {
            Ok(admitted) => admitted,
            Err(problem) => return self.die(&format!("first requests could not be packed: {}", problem.detail), ctx),
        };
        log::info!("run begins with failed requests of another run run_id={} requests={}", self.identity(), pushed.accepted);
        let write = PushFirst { no: self.run.no, epoch: self.epoch, blocks: blocks.clone(), now: Timestamp::now() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.kind.frontier.set_start_returned();
            this.run.start_returned = true;
            for block in blocks {
                this.kind.frontier.stored(block.seq, block.requests);
                this.kind.cache.put_ready(block.seq, block.into());
            }
            this.begin(ctx);
        });
    }
}
