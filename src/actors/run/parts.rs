//! The effect of a report on its block. Most reports end the block. Some contain a part of the results, or give requests back.

use super::RunActor;
use super::cache::{Finished, Payload};
use crate::actors::reply::Reply;
use crate::domain::block::Phase;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Seq};
use crate::domain::time::Timestamp;
use crate::protocol::failed::failures;
use crate::protocol::node::{FetchError, FetchErrorKind, Reported};
use crate::protocol::pack::{self, Entry, Index};
use crate::protocol::problem::Problem;
use crate::store::{Barrier, StoreResult};
use actix::Context;
use bytes::Bytes;
use std::collections::HashMap;

/// The effect of a report on its block.
pub(super) enum Meaning {
    /// All its requests have results.
    Whole { index: Index, pack: Bytes },
    /// A part that was already stored.
    Taken,
    /// Some requests have results; the others stay with the node.
    Part { index: Index, pack: Bytes, parted: Payload, stays: Payload },
    /// Some requests have results, perhaps none; the others wait again.
    Back { index: Index, pack: Bytes, done: Payload, back: Payload },
}

pub(super) fn failed(request_id: Fingerprint, kind: FetchErrorKind, message: &str) -> Entry {
    let error = FetchError { kind, message: message.to_owned(), retryable: true };
    Entry { request_id, status: 0, tries: 0, time: 0, error: Some(error), location: None, head: 0, body: 0 }
}

/// The failure comes again if the request is tried again.
pub(super) fn final_entry(mut entry: Entry) -> Entry {
    if let Some(error) = &mut entry.error {
        error.retryable = false;
    }
    entry
}

/// Compares a report with its block: it must contain every request of the block exactly once, and nothing else. Requests missing
/// in the last report of a block are added as failed, so that no request is ever lost.
///
/// # Errors
/// A request occurs twice, or does not belong to the block.
pub(super) fn meaning(mut index: Index, pack: Bytes, payload: &Payload) -> Result<Meaning, Problem> {
    let prints = &payload.prints;
    let same = index.results.len() == prints.len() && index.results.iter().zip(prints.iter()).all(|(e, print)| e.request_id == *print);
    if same && index.back.is_empty() && !index.part {
        return Ok(Meaning::Whole { index, pack });
    }
    // Each request may occur at most once.
    let mut open: HashMap<Fingerprint, usize> = prints.iter().enumerate().map(|(place, print)| (*print, place)).collect();
    let (mut done, mut first_unknown) = (Vec::with_capacity(prints.len()), None);
    for (i, entry) in index.results.iter().enumerate() {
        match open.remove(&entry.request_id) {
            Some(place) => done.push(place),
            None => first_unknown = first_unknown.or(Some(i)),
        }
    }
    if index.part && done.is_empty() && !index.results.is_empty() {
        return Ok(Meaning::Taken);
    }
    let unknown = |member: &str, i: usize, print: Fingerprint| {
        Problem::invalid(format!("{member}[{i}].requestId"), format!("{print} is not a request of this block, or occurs twice"))
    };
    if let Some(i) = first_unknown {
        return Err(unknown("results", i, index.results[i].request_id));
    }
    let (mut back, mut tries) = (Vec::new(), HashMap::new());
    for (i, given_back) in index.back.iter().enumerate() {
        back.push(open.remove(&given_back.request_id).ok_or_else(|| unknown("back", i, given_back.request_id))?);
        if given_back.tries > 0 {
            tries.insert(given_back.request_id, given_back.tries);
        }
    }
    let mut rest: Vec<usize> = open.into_values().collect();
    rest.sort_unstable();
    if index.part {
        if !index.back.is_empty() {
            return Err(Problem::invalid("back", "a part must not give requests back; only the last report of a block may"));
        }
        if rest.is_empty() {
            let block_id = index.block_id;
            let pack = renamed(&mut index, &pack, block_id)?;
            return Ok(Meaning::Whole { index, pack });
        }
        let [parted, stays] = payload.cut([&done, &rest], &tries)?;
        return Ok(Meaning::Part { index, pack, parted, stays });
    }
    let is_changed = !rest.is_empty() || !back.is_empty();
    for place in rest {
        index.results.push(failed(prints[place], FetchErrorKind::NotReported, "the node did not report it"));
        done.push(place);
    }
    let given_back = index.back.clone();
    let block_id = index.block_id;
    let pack = if is_changed { renamed(&mut index, &pack, block_id)? } else { pack };
    if given_back.is_empty() {
        return Ok(Meaning::Whole { index, pack });
    }
    // Requests that were given back describe the state of the site and of the node. They are not stored.
    index.back = given_back;
    let [done, back] = payload.cut([&done, &back], &tries)?;
    Ok(Meaning::Back { index, pack, done, back })
}

/// The stored form of the pack: for this block, and without the index fields that only the broker needs.
pub(super) fn renamed(index: &mut Index, pack: &[u8], block_id: BlockId) -> Result<Bytes, Problem> {
    (index.block_id, index.part, index.back) = (block_id, false, Vec::new());
    let site = index.site.take();
    let pack = pack::with_index(pack, index).map(Bytes::from);
    index.site = site;
    pack
}

impl RunActor {
    /// Stores some results of a block that stays with its node, as a separate block.
    pub(super) fn store_part(
        &mut self,
        seq: Seq,
        (mut index, pack): (Index, Bytes),
        (parted, stays): (Payload, Payload),
        reply: Reply<Reported>,
        ctx: &mut Context<Self>,
    ) {
        let part = self.kind.frontier.begin_part(seq);
        let block_id = self.block_id(part);
        let done = self.with_targets(&mut index, pack, &parted);
        let (pack, targets) = match done.and_then(|(pack, targets)| Ok((renamed(&mut index, &pack, block_id)?, targets))) {
            Ok(done) => done,
            Err(problem) => {
                reply.send(Err(problem));
                return self.die("a pack lost its index", ctx);
            }
        };
        self.kind.frontier.renew(seq, index.node_id, Timestamp::steady());
        self.keep(seq, stays.clone());
        let result = StoreResult { targets: targets.clone(), ..self.result_of(part, &index, pack.clone()) };
        let (success, error, bytes) = (result.success, result.error, result.bytes);
        let write = self.split((seq, &stays), Some((part, &parted)), Some(result));
        Self::then(ctx, self.context.store.write(write), move |this, (), ctx| {
            this.kind.frontier.reported(part, success, error);
            this.kind.frontier.count_bytes(bytes);
            this.kind.cache.put_finished(part, Finished { requests: parted.requests, raw_length: parted.raw_length, pack });
            reply.send(Ok(Reported { success, error }));
            this.targets_stored(targets, ctx);
            this.discard_over_bytes(ctx);
            this.serve_pollers(ctx);
        });
    }

    /// A part that was already received, but is perhaps not on disk yet.
    pub(super) fn part_again(&mut self, seq: Seq, payload: Payload, reply: Reply<Reported>, ctx: &mut Context<Self>) {
        self.keep(seq, payload);
        let none = Reported { success: 0, error: 0 };
        Self::then(ctx, self.context.store.write(Barrier), move |_, (), _| reply.send(Ok(none)));
    }

    /// The last report of a block: requests with results are done, the others wait again.
    pub(super) fn store_back(
        &mut self,
        seq: Seq,
        (mut index, pack): (Index, Bytes),
        (done, back): (Payload, Payload),
        reply: Reply<Reported>,
        ctx: &mut Context<Self>,
    ) {
        self.leaves_node(seq, index.attempt, ctx);
        let avoided = self.is_for_another(&index).then_some(index.node_id);
        if index.results.is_empty() {
            let write = self.split((seq, &back), None, None);
            Self::then(ctx, self.context.store.write(write), move |this, (), ctx| {
                this.kind.frontier.given_back(seq);
                this.kind.cache.put_ready(seq, back);
                reply.send(Ok(Reported { success: 0, error: 0 }));
                avoided.into_iter().for_each(|node| this.prefer_another(seq, node));
                this.announce(ctx);
            });
            return;
        }
        let (pack, targets) = match self.with_targets(&mut index, pack, &done) {
            Ok(done) => done,
            Err(problem) => {
                reply.send(Err(problem));
                return self.die("the targets of redirects could not be packed", ctx);
            }
        };
        let lost = self.kind.frontier.other_losses(seq, index.attempt);
        let rest = self.kind.frontier.begin_rest(seq, self.kind.frontier.site_of(seq), lost);
        let result = StoreResult { targets: targets.clone(), ..self.result_of(seq, &index, pack.clone()) };
        let (success, error, bytes) = (result.success, result.error, result.bytes);
        let write = self.split((seq, &done), Some((rest, &back)), Some(result));
        Self::then(ctx, self.context.store.write(write), move |this, (), ctx| {
            this.kind.frontier.stored(rest, 0);
            this.kind.cache.put_ready(rest, back);
            avoided.into_iter().for_each(|node| this.prefer_another(rest, node));
            this.kind.frontier.reported(seq, success, error);
            this.kind.frontier.count_bytes(bytes);
            this.kind.cache.put_finished(seq, Finished { requests: done.requests, raw_length: done.raw_length, pack });
            reply.send(Ok(Reported { success, error }));
            this.announce(ctx);
            this.targets_stored(targets, ctx);
            this.discard_over_bytes(ctx);
            this.serve_pollers(ctx);
        });
    }

    /// Caches the requests of a block that waits or is at a node.
    pub(super) fn keep(&mut self, seq: Seq, payload: Payload) {
        self.kind.cache.put_leased(seq, payload);
        if self.kind.frontier.phase(seq) != Some(Phase::Using) {
            self.kind.cache.put_back(seq);
        }
    }

    /// The stored form of the results of a block, which are counted here.
    pub(super) fn result_of(&self, seq: Seq, index: &Index, pack: Bytes) -> StoreResult {
        self.context.counters.downloads.count(index);
        let success = index.results.iter().filter(|entry| entry.is_success()).count() as u32;
        StoreResult {
            no: self.run.no,
            epoch: self.epoch,
            seq,
            node: Some(index.node_id),
            attempt: index.attempt.unwrap_or(1),
            success,
            error: index.results.len() as u32 - success,
            bytes: index.results.iter().map(|entry| entry.body as u64).sum(),
            exception: index.exception.clone(),
            failed: index.exception.is_some(),
            failures: if success == index.results.len() as u32 { None } else { failures(index).map(Bytes::from) },
            targets: Vec::new(),
            pack,
            now: Timestamp::now(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Identity, NodeId};
    use crate::protocol::node::GivenBack;
    use std::sync::Arc;

    #[test]
    fn what_is_given_back_keeps_its_failure_for_the_site_and_is_not_stored() {
        let prints = ["http://a.test/1", "http://a.test/2"].map(|url| Fingerprint::of("GET", url, b""));
        let requests =
            serde_json::json!([{ "requestId": prints[0], "url": "http://a.test/1" }, { "requestId": prints[1], "url": "http://a.test/2" }]);
        let payload = Payload::pack(requests.to_string().as_bytes(), Arc::new(prints)).expect("a payload");
        let identity = Identity::random();
        let error = FetchError { kind: FetchErrorKind::Connect, message: "refused".into(), retryable: true };
        let back = GivenBack { error: Some(error), ..GivenBack::new(prints[1], 1) };
        let one = failed(prints[0], FetchErrorKind::Timeout, "late");
        let index = Index { results: vec![one], back: vec![back], ..Index::new(BlockId::new(identity, 1), identity, NodeId::random()) };
        let pack = Bytes::from(pack::Builder::new(index.clone()).finish());
        let Ok(Meaning::Back { index, pack, done, back }) = meaning(index, pack, &payload) else { panic!("another meaning") };
        assert_eq!(
            index.back.iter().filter_map(|back| back.error.as_ref()).map(|error| error.kind).collect::<Vec<_>>(),
            [FetchErrorKind::Connect]
        );
        assert_eq!((&done.prints[..], &back.prints[..]), (&prints[..1], &prints[1..]));
        assert!(pack::read_index(&pack).expect("an index").back.is_empty());
    }
}
