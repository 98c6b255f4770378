//! Requests that robots.txt forbids, as far as its rules are known when they are pushed: they cost their site nothing, so they do not wait for it.
//!
//! They make blocks of their own, which the run reports as soon as they are stored. If it dies before, they are forbidden when they are dispatched,
//! like requests whose rules are not known yet.

use super::RunActor;
use super::cache::Payload;
use super::held::Addressed;
use super::parts::{failed, final_entry};
use super::turns::{Denied, Judged};
use crate::domain::ids::{NodeId, Seq};
use crate::domain::request::RequestBatch;
use crate::domain::robots::{Robots, Verdict};
use crate::domain::time::Timestamp;
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pack::{self, Index};
use actix::Context;
use bytes::Bytes;
use std::sync::Arc;
use url::Url;

/// Blocks of a push that are reported at once, at most.
const MOST_REPORTS: usize = 64;

/// The known rules of each origin of a batch; empty if no rules count.
pub(super) type Rules = Vec<Option<Arc<Robots>>>;

/// Whether a line of robots.txt forbids a request of a batch.
pub(super) fn is_forbidden(rules: &Rules, batch: &RequestBatch, i: usize) -> bool {
    let request = &batch.requests[i];
    let Some(Some(robots)) = rules.get(request.origin as usize) else { return false };
    let json = batch.text.get(request.span.start as usize..request.span.end as usize);
    let url = json.and_then(|json| serde_json::from_slice::<Addressed<'_>>(json).ok()).and_then(|request| Url::parse(&request.url).ok());
    url.is_some_and(|url| matches!(robots.allowed(url.as_str()), Verdict::Disallowed { line } if line > 0))
}

impl RunActor {
    /// The rules of robots.txt for the origins of a batch, as far as they are known.
    pub(super) fn known_rules(&self, origins: &[Box<str>]) -> Rules {
        let (policy, now) = (&self.run.queue.sites, Timestamp::now());
        if policy.robots == Some(false) {
            return Rules::new();
        }
        let known = |origin: &str| {
            let url = Url::parse(origin).ok().filter(|url| policy.obeys_robots(url))?;
            let known = self.context.sites.robots(&self.robots_key(&url)).filter(|known| known.until > now)?;
            Some(known.robots).filter(|robots| !robots.is_unreachable())
        };
        origins.iter().map(|origin| known(origin)).collect()
    }

    /// Reports the blocks of requests that robots.txt forbids. They have just been stored. Each report is a write: if there are many, the
    /// others are dispatched like all blocks.
    pub(super) fn report_forbidden(&mut self, blocks: Vec<(Seq, Payload)>, ctx: &mut Context<Self>) {
        for (nth, (seq, payload)) in blocks.into_iter().enumerate() {
            if nth >= MOST_REPORTS || self.life.is_ending() || self.context.store.is_busy() {
                self.kind.cache.put_ready(seq, payload);
                continue;
            }
            match self.judge(&payload, false) {
                Ok((Judged::Some { allowed, denied }, _)) if allowed.is_empty() => {
                    // No node has it, and the turn of its site is not this block's.
                    self.kind.frontier.begin_report(seq);
                    self.kind.announced = self.kind.announced.min(self.kind.frontier.ready());
                    let (index, pack) = self.all_denied(seq, &payload, &denied);
                    self.store_left(seq, index, pack, payload, None, ctx);
                }
                _ => self.kind.cache.put_ready(seq, payload),
            }
        }
    }

    /// Fails all requests of a block that was to be dispatched: robots.txt forbids them.
    pub(super) fn report_denied(&mut self, seq: Seq, payload: Payload, denied: &[Denied], ctx: &mut Context<Self>) {
        let (index, pack) = self.all_denied(seq, &payload, denied);
        self.store_report(seq, index, pack, payload, None, ctx);
    }

    /// The report of a block whose requests robots.txt forbids.
    fn all_denied(&self, seq: Seq, payload: &Payload, denied: &[Denied]) -> (Index, Bytes) {
        self.count_denied(denied);
        let results = denied.iter().map(|(place, kind, why)| final_entry(failed(payload.prints[*place], *kind, why))).collect();
        let index =
            Index { epoch: Some(self.epoch), results, ..Index::new(self.block_id(seq), self.identity(), NodeId(uuid::Uuid::nil())) };
        let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
        (index, pack)
    }

    pub(super) fn count_denied(&self, denied: &[Denied]) {
        self.context.sites.count_forbidden(denied.iter().filter(|(_, kind, _)| *kind == FetchErrorKind::Robots).count());
    }
}
