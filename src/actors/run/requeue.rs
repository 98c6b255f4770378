//! Requeues failed requests: as deliberate repetitions, each with its own id.
//!
//! One transaction stores a repetition and the mark that its failure was requeued. The id of a repetition is derived from the id
//! of the original. So neither a crash nor a second call repeats a failure twice.

use super::message::{LocateBlock, SitePlace};
use super::{BlockPlace, Requeue, RunActor};
use crate::actors::reply::Reply;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::guards::Shape;
use crate::domain::ids::Seq;
use crate::domain::origin::Origin;
use crate::domain::request::{NewRequest, RequestBatch, or_default, priority, unpack, without_id};
use crate::domain::time::Timestamp;
use crate::protocol::failed::{self, Requeued};
use crate::protocol::problem::Problem;
use crate::protocol::push::canonical_url;
use crate::store::{FailedBlock, ReadFailures, RequeueFailed};
use actix::{Context, Handler};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

/// Maximum bytes of requests that one call requeues, or that a new run begins with.
pub const MOST_REQUEUED: usize = 64 << 20;

/// The fields of a request that the frontier needs.
#[derive(Deserialize)]
struct Addressed<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(default, deserialize_with = "or_default")]
    depth: u32,
    #[serde(default, deserialize_with = "priority")]
    priority: i8,
}

/// Collects repetitions of requests.
#[derive(Default)]
pub(super) struct Repetitions {
    text: Vec<u8>,
    batch: RequestBatch,
    origins: HashMap<String, u32>,
}

impl Repetitions {
    /// Adds a repetition of a stored request under this id.
    pub(super) fn add(&mut self, id: Fingerprint, request: &str) -> Result<(), String> {
        let bare = without_id(request).ok_or("a request has no id")?;
        let Addressed { url, depth, priority } = serde_json::from_str(&bare).map_err(|error| error.to_string())?;
        let url = canonical_url(&url).map_err(|problem| problem.detail)?;
        let origin = Origin::text_of(&url);
        let next = self.origins.len() as u32;
        let origin = *self.origins.entry(origin.to_owned()).or_insert_with(|| {
            self.batch.all_origins.push(origin.into());
            next
        });
        let start = self.text.len() as u32;
        self.text.extend_from_slice(bare.as_bytes());
        // The guards have already admitted it.
        let shape = Shape::default();
        self.batch.requests.push(NewRequest { id, span: start..self.text.len() as u32, depth, priority, shape, origin });
        Ok(())
    }

    pub(super) fn into_batch(self) -> RequestBatch {
        RequestBatch { text: self.text.into(), ..self.batch }
    }
}

/// The repetitions of the chosen failures that have none yet, and whether they exceeded the size limit.
fn repetitions(blocks: &[FailedBlock], chosen: &BTreeMap<Seq, HashSet<Fingerprint>>) -> Result<(RequestBatch, bool), String> {
    let mut all = Repetitions::default();
    for block in blocks {
        if all.text.len() > MOST_REQUEUED {
            return Ok((all.into_batch(), true));
        }
        let of_block = &chosen[&block.seq];
        let wanted = failed::of_text(&block.entries)?.into_iter();
        let wanted: HashSet<Fingerprint> = wanted
            .filter(|failed| failed.requeued_as.is_none() && of_block.contains(&failed.request_id))
            .map(|failed| failed.request_id)
            .collect();
        let text = super::requests::text_of(&block.payload, block.raw_length).map_err(|problem| problem.detail)?;
        let requests = unpack(&text)?;
        for (print, request) in block.prints.iter().zip(requests).filter(|(print, _)| wanted.contains(print)) {
            all.add(print.repeated(), request.get())?;
        }
    }
    Ok((all.into_batch(), false))
}

impl RunActor {
    fn requeue(&mut self, chosen: BTreeMap<Seq, HashSet<Fingerprint>>, reply: Reply<Requeued>, ctx: &mut Context<Self>) {
        if self.lifecycle.is_ending() {
            return reply.send(Err(self.over()));
        }
        if self.kind.requeues || self.context.store.is_busy() {
            return reply.send(Err(Problem::busy("another requeue of the run is under way, or the write queue is full")));
        }
        self.kind.requeues = true;
        let read = self.context.store.read(ReadFailures { no: self.run.no, seqs: chosen.keys().copied().collect() });
        Self::then(ctx, read, move |this, blocks, ctx| {
            this.kind.requeues = false;
            if this.lifecycle.is_ending() {
                return reply.send(Err(this.over()));
            }
            match repetitions(&blocks, &chosen) {
                Ok((batch, more)) => this.store_repetitions(blocks, &batch, more, reply, ctx),
                Err(why) => {
                    log::error!("failed to read stored requests run_id={}: {why}", this.identity());
                    reply.send(Err(Problem::internal()));
                }
            }
        });
    }

    fn store_repetitions(
        &mut self,
        blocks: Vec<FailedBlock>,
        batch: &RequestBatch,
        more: bool,
        reply: Reply<Requeued>,
        ctx: &mut Context<Self>,
    ) {
        let found = batch.requests.len() as u64;
        let (made, pushed) = match self.admit(batch) {
            Ok(admitted) => admitted,
            Err(problem) => {
                reply.send(Err(problem));
                return self.die("repetitions could not be packed", ctx);
            }
        };
        let mut marked = Vec::with_capacity(blocks.len());
        for block in blocks {
            let Ok(mut of_block) = failed::of_text(&block.entries) else { continue };
            let mut is_changed = false;
            for failed in of_block.iter_mut().filter(|failed| failed.requeued_as.is_none()) {
                let id = failed.request_id.repeated();
                // Requests beyond the limit of the run were not admitted.
                if self.kind.frontier.has_seen(id) {
                    failed.requeued_as = Some(id);
                    is_changed = true;
                }
            }
            if is_changed {
                marked.push((block.seq, failed::to_text(&of_block).into()));
            }
        }
        let done = Requeued { found, queued: pushed.accepted, over_limit: pushed.over_limit, more, identity: None };
        log::info!("failed requests requeued run_id={} found={found} queued={}", self.identity(), done.queued);
        let write = RequeueFailed { no: self.run.no, epoch: self.epoch, blocks: made.clone(), marked, now: Timestamp::now() };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), ctx| {
            this.blocks_stored(made, ctx);
            reply.send(Ok(done));
        });
    }
}

impl Handler<Requeue> for RunActor {
    type Result = ();
    fn handle(&mut self, Requeue { chosen, reply }: Requeue, ctx: &mut Self::Context) {
        let _timed = self.guard.timed("run.requeue");
        self.requeue(chosen, reply, ctx);
    }
}

impl Handler<LocateBlock> for RunActor {
    type Result = ();
    fn handle(&mut self, LocateBlock { seq, reply }: LocateBlock, _: &mut Self::Context) {
        let _timed = self.guard.timed("run.locate_block");
        let place = self.kind.frontier.phase(seq).map(|phase| BlockPlace {
            phase,
            lease: self.kind.frontier.lease_of(seq).copied(),
            site: self.kind.frontier.queue_place(seq).map(|(site, ahead)| SitePlace {
                site: self.kind.frontier.site_name(site),
                turn: self.turn_name(site),
                missed: self.kind.turns.missed.get(&site).cloned(),
                at: self.kind.frontier.site_at(site),
                ahead,
            }),
        });
        reply.send(Ok(place));
    }
}
