//! The failed requests of a run: lists them and requeues them.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run::text_of;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, NodeId, Seq};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::request::unpack;
use crate::domain::time::Timestamp;
use crate::protocol::api::Page;
use crate::protocol::failed::{Failed, FailedRequest, RequeueInput, Requeued, of_text};
use crate::protocol::node::FetchErrorKind;
use crate::protocol::problem::Problem;
use crate::store::{BlockFailures, ListFailures, Payload, ReadPayloads};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};
use url::Url;

/// Number of blocks per read.
const AT_ONCE: usize = 64;
/// Maximum number of blocks with failures that one call examines after the first match.
const MOST_LOOKED_AT: usize = 2_048;
/// Maximum number of requests that one call requeues or discards: the default and the upper limit.
pub(super) const USUAL: usize = 1_000;
pub(super) const MOST: usize = 10_000;

/// Selects failed requests.
#[derive(Debug, Clone, Default)]
pub struct FailureFilter {
    /// Only requests to this host or site.
    pub site: Option<String>,
    /// Only requests that failed for this reason.
    pub kind: Option<FetchErrorKind>,
    /// Only requests with this status.
    pub status: Option<u16>,
    /// Leave out requests that were requeued before.
    pub only_new: bool,
}

impl FailureFilter {
    fn takes(&self, failed: &Failed) -> bool {
        self.kind.is_none_or(|kind| failed.kind() == Some(kind))
            && self.status.is_none_or(|status| failed.status == status)
            && !(self.only_new && failed.requeued_as.is_some())
    }

    fn takes_site(&self, site: Option<&str>, url: &str) -> bool {
        self.site.as_deref().is_none_or(|wanted| is_to_site(wanted, site, url))
    }
}

/// Whether a request goes to this host or site.
pub(super) fn is_to_site(wanted: &str, site: Option<&str>, url: &str) -> bool {
    let is_it = |name: &str| name.eq_ignore_ascii_case(wanted);
    site.is_some_and(is_it) || Url::parse(url).is_ok_and(|url| url.host_str().is_some_and(is_it))
}

/// A place in a list of requests: a block, and a place in the block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Cursor {
    pub(super) seq: Seq,
    pub(super) place: usize,
}

impl Cursor {
    pub(super) const START: Self = Self { seq: 0, place: 0 };

    pub(super) fn read(text: &str) -> Result<Self, Problem> {
        let parts = text.split_once('-').and_then(|(seq, place)| Some(Self { seq: seq.parse().ok()?, place: place.parse().ok()? }));
        parts.ok_or_else(|| Problem::invalid("cursor", "not a cursor of this list: send the `nextCursor` of the page before"))
    }

    pub(super) fn text(self) -> String {
        format!("{}-{}", self.seq, self.place)
    }
}

/// A matching failure.
struct Found {
    at: Cursor,
    failed: Failed,
    url: String,
    method: Option<String>,
    node: Option<NodeId>,
    finish_time: Option<Timestamp>,
}

#[derive(Deserialize)]
struct Addressed<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
}

pub(super) fn damaged(why: &str) -> Problem {
    log::error!("failed to read stored requests of a run: {why}");
    Problem::internal()
}

/// The stored failures of a block that match a filter, each with its index.
fn taken(block: &BlockFailures, filter: &FailureFilter, from: Cursor) -> Result<Vec<(usize, Failed)>, Problem> {
    let first = if block.seq == from.seq { from.place } else { 0 };
    let all = of_text(&block.entries).map_err(|why| damaged(&why))?;
    Ok(all.into_iter().enumerate().skip(first).filter(|(_, failed)| filter.takes(failed)).collect())
}

/// Adds the URLs to the failures of a block.
fn with_urls(
    block: &BlockFailures,
    failed: Vec<(usize, Failed)>,
    payload: &Payload,
    filter: &FailureFilter,
) -> Result<Vec<Found>, Problem> {
    let text = text_of(&payload.payload, payload.raw_length)?;
    let requests = unpack(&text).map_err(|why| damaged(&why))?;
    let places: HashMap<Fingerprint, usize> = payload.prints.iter().enumerate().map(|(place, print)| (*print, place)).collect();
    let mut found = Vec::with_capacity(failed.len());
    for (place, failed) in failed {
        let request = places.get(&failed.request_id).and_then(|place| requests.get(*place));
        let Some(request) = request.and_then(|request| serde_json::from_str::<Addressed<'_>>(request.get()).ok()) else { continue };
        if filter.takes_site(block.site.as_deref(), &request.url) {
            found.push(Found {
                at: Cursor { seq: block.seq, place },
                failed,
                url: request.url.into_owned(),
                method: request.method.map(Cow::into_owned).filter(|method| !method.eq_ignore_ascii_case("GET")),
                node: block.node.filter(|node| !node.0.is_nil()),
                finish_time: block.finish_time,
            });
        }
    }
    Ok(found)
}

impl Service {
    /// Failures of a run from a position, and the position of the next ones.
    async fn failures(
        &self,
        no: i64,
        filter: &FailureFilter,
        mut from: Cursor,
        limit: usize,
    ) -> Result<(Vec<Found>, Option<Cursor>), Problem> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        // Do not return an empty page before the end, because clients treat it as the end of the list.
        while looked_at < MOST_LOOKED_AT || found.is_empty() {
            let list = ListFailures { no, from: from.seq, limit: AT_ONCE };
            let blocks = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
            let mut some = Vec::new();
            for block in &blocks {
                let failed = taken(block, filter, from)?;
                if !failed.is_empty() {
                    some.push((block, failed));
                }
            }
            let seqs = some.iter().map(|(block, _)| block.seq).collect();
            let payloads = self.context.store.read(ReadPayloads { no, seqs }).await.map_err(|e| problem_of(&e))?;
            let payloads: HashMap<Seq, Payload> = payloads.into_iter().map(|payload| (payload.seq, payload)).collect();
            for (block, failed) in some {
                let Some(payload) = payloads.get(&block.seq) else { continue };
                for one in with_urls(block, failed, payload, filter)? {
                    if found.len() == limit {
                        return Ok((found, Some(one.at)));
                    }
                    found.push(one);
                }
            }
            match blocks.last().and_then(|last| last.seq.checked_add(1)) {
                Some(next) if blocks.len() == AT_ONCE => from = Cursor { seq: next, place: 0 },
                _ => return Ok((found, None)),
            }
            looked_at += AT_ONCE;
        }
        Ok((found, Some(from)))
    }

    /// The failed requests of a run, in the order of their blocks. A page may be short although more follow, because one call
    /// examines a limited number of blocks.
    ///
    /// # Errors
    /// The run does not exist, or the cursor is invalid.
    pub async fn failed_requests(
        &self,
        identity: Identity,
        filter: FailureFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<FailedRequest>, Problem> {
        let from = cursor.map_or(Ok(Cursor::START), Cursor::read)?;
        let run = self.stored_run(identity).await?;
        let (found, next) = self.failures(run.no, &filter, from, limit).await?;
        let names = self.peer_names(found.iter().filter_map(|one| one.node).map(|node| node.0).collect()).await?;
        let items = found.into_iter().map(|one| FailedRequest {
            request_id: one.failed.request_id,
            url: one.url,
            method: one.method,
            kind: one.failed.kind(),
            message: one.failed.error.map(|error| error.message),
            status: one.failed.status,
            tries: one.failed.tries,
            block_id: BlockId::new(identity, one.at.seq),
            node_id: one.node,
            node_name: one.node.map(|node| shown_name(node, names.get(&node.0).map(String::as_str))),
            finish_time: one.finish_time,
            requeued_as: one.failed.requeued_as,
        });
        Ok(Page { items: items.collect(), next_cursor: next.map(Cursor::text) })
    }

    /// Requeues failed requests of a run, each at most once.
    ///
    /// # Errors
    /// The run does not exist, has no queue, or has ended; or the limit is out of range.
    pub async fn requeue(&self, identity: Identity, input: RequeueInput) -> Result<Requeued, Problem> {
        let RequeueInput { site, kind, status, limit, dry_run } = input;
        let limit = limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::invalid("limit", format!("must be 1 to {MOST}, not {limit}")));
        }
        let run = self.stored_run(identity).await?;
        if run.state.is_final() && run.kind == JobKind::Block {
            let detail = format!(
                "run {identity} is over: {}; only a run that is under way queues requests again. Repeat the run (`POST /api/v1/runs/{identity}/retry`), \
                 or push the URLs of its failed requests to another run",
                run.state.name()
            );
            return Err(Problem::conflict("run-over", detail));
        }
        let actor = self.block_run(identity, "told to queue requests again").await?;
        let filter = FailureFilter { site, kind, status, only_new: true };
        let (found, next) = self.failures(run.no, &filter, Cursor::START, limit).await?;
        if dry_run || found.is_empty() {
            return Ok(Requeued { found: found.len() as u64, more: next.is_some(), ..Requeued::default() });
        }
        let mut chosen: BTreeMap<Seq, HashSet<Fingerprint>> = BTreeMap::new();
        for one in found {
            chosen.entry(one.at.seq).or_default().insert(one.failed.request_id);
        }
        let done = actor.requeue(chosen).wait().await?;
        Ok(Requeued { more: next.is_some() || done.more, ..done })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_goes_there_and_back() {
        let cursor = Cursor { seq: 7, place: 12 };
        assert_eq!(Cursor::read(&cursor.text()), Ok(cursor));
        for bad in ["", "7", "7-", "-1-2", "a-b", "99999999999-1"] {
            assert!(Cursor::read(bad).is_err(), "{bad}");
        }
    }
}
