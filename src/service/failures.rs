//! The failed requests of a run: lists them and requeues them.

use super::Service;
use crate::actors::job::{FirstRequests, TriggerOrder};
use crate::actors::reply::problem_of;
use crate::actors::run::{MOST_REQUEUED, text_of};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, NodeId, Seq};
use crate::domain::job::JobKind;
use crate::domain::node::shown_name;
use crate::domain::request::unpack;
use crate::domain::run::Run;
use crate::domain::sites::site_name;
use crate::domain::task::NoWorker;
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::protocol::api::{Page, TriggerInput};
use crate::protocol::failed::{Failed, FailedRequest, FailureCount, FailureCounts, RequeueInput, Requeued, of_text};
use crate::protocol::node::FetchErrorKind;
use crate::protocol::problem::Problem;
use crate::store::{BlockFailures, ListFailures, Marks, Payload, ReadFailures, ReadPayloads, WatchedClasses};
use serde::Deserialize;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use url::Url;

/// Number of blocks per read.
const AT_ONCE: usize = 64;
/// Maximum number of blocks with failures that one call examines after the first match.
const MOST_LOOKED_AT: usize = 2_048;
/// Maximum number of blocks with failures that one call counts.
const MOST_COUNTED: usize = 16_384;
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

/// Checks the name of a site by which requests are chosen.
pub(super) fn check_site(site: Option<&str>) -> Result<(), Problem> {
    site.map_or(Ok(()), |site| site_name(site).map(drop).map_err(|why| Problem::invalid("site", why)))
}

/// Whether a request goes to this host or site.
pub(super) fn is_to_site(wanted: &str, site: Option<&str>, url: &str) -> bool {
    // As it is stored: in lower case, without a dot at the end, in Punycode, an IPv6 address without brackets.
    let wanted = site_name(wanted).unwrap_or_else(|_| wanted.into());
    let is_it = |name: &str| name.eq_ignore_ascii_case(&wanted);
    let is_host = |host: &str| is_it(host.trim_start_matches('[').trim_end_matches(']'));
    let is_of = |url: &Url| url.host_str().is_some_and(is_host) || is_it(&url.origin().ascii_serialization());
    site.is_some_and(is_it) || Url::parse(url).is_ok_and(|url| is_of(&url))
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
    /// The length of the request as JSON.
    bytes: usize,
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

/// Failed requests, and how many of them were queued again, by kind and status.
pub(super) type Counts = HashMap<(Option<FetchErrorKind>, Option<u16>), (u64, u64)>;

pub(super) fn count(counts: &mut Counts, failed: &Failed) {
    let status = failed.error.is_none().then_some(failed.status);
    let count = counts.entry((failed.kind(), status)).or_default();
    count.0 += 1;
    count.1 += u64::from(failed.requeued_as.is_some());
}

/// The counts, the largest number first.
pub(super) fn sorted(counts: Counts) -> Vec<FailureCount> {
    let mut items: Vec<FailureCount> =
        counts.into_iter().map(|((kind, status), (failed, requeued))| FailureCount { kind, status, failed, requeued }).collect();
    items.sort_by_key(|item| (Reverse(item.failed), item.kind.map(FetchErrorKind::name), item.status));
    items
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
        let Some(bytes) = request.map(|request| request.get().len()) else { continue };
        let Some(request) = request.and_then(|request| serde_json::from_str::<Addressed<'_>>(request.get()).ok()) else { continue };
        if filter.takes_site(block.site.as_deref(), &request.url) {
            found.push(Found {
                at: Cursor { seq: block.seq, place },
                failed,
                url: request.url.into_owned(),
                method: request.method.map(Cow::into_owned).filter(|method| !method.eq_ignore_ascii_case("GET")),
                node: block.node.filter(|node| !node.0.is_nil()),
                finish_time: block.finish_time,
                bytes,
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
            let list = ListFailures { no, from: from.seq, limit: AT_ONCE, sites: Vec::new() };
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
        check_site(filter.site.as_deref())?;
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
            requeued_in: one.failed.requeued_in,
        });
        Ok(Page { items: items.collect(), next_cursor: next.map(Cursor::text) })
    }

    /// The failed requests of a run, counted by kind and status.
    ///
    /// # Errors
    /// The run does not exist.
    pub async fn failure_counts(&self, identity: Identity) -> Result<FailureCounts, Problem> {
        let no = self.stored_run(identity).await?.no;
        let mut counts = Counts::new();
        let more = self.count_failures(no, Vec::new(), |_, failed| count(&mut counts, failed)).await?;
        let items = sorted(counts);
        Ok(FailureCounts { items, more })
    }

    /// Calls `take` for each failed request of a run, with the site of its block; with `sites` only for those of these sites. Returns whether
    /// there are more than one call counts.
    pub(super) async fn count_failures(
        &self,
        no: i64,
        sites: Vec<String>,
        mut take: impl FnMut(Option<&str>, &Failed),
    ) -> Result<bool, Problem> {
        let mut from = 0;
        for _ in 0..MOST_COUNTED / AT_ONCE {
            let list = ListFailures { no, from, limit: AT_ONCE, sites: sites.clone() };
            let blocks = self.context.store.read(list).await.map_err(|e| problem_of(&e))?;
            for block in &blocks {
                of_text(&block.entries).map_err(|why| damaged(&why))?.iter().for_each(|failed| take(block.site.as_deref(), failed));
            }
            match blocks.last().and_then(|last| last.seq.checked_add(1)) {
                Some(next) if blocks.len() == AT_ONCE => from = next,
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Requeues failed requests of a run, each at most once. If the run is over, a new run of its job begins with them.
    ///
    /// # Errors
    /// The run does not exist or has no queue; the limit is out of range; or the run is over and its job cannot be triggered.
    pub async fn requeue(&self, identity: Identity, input: RequeueInput, by: Option<String>) -> Result<Requeued, Problem> {
        let RequeueInput { site, kind, status, limit, dry_run } = input;
        let limit = limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::invalid("limit", format!("must be 1 to {MOST}, not {limit}")));
        }
        check_site(site.as_deref())?;
        let run = self.stored_run(identity).await?;
        let filter = FailureFilter { site, kind, status, only_new: true };
        if run.state.is_final() && run.kind == JobKind::Block {
            return self.requeue_in_new_run(run, &filter, limit, dry_run, by).await;
        }
        let actor = self.block_run(identity, "told to queue requests again").await?;
        let (found, next) = self.failures(run.no, &filter, Cursor::START, limit).await?;
        if dry_run || found.is_empty() {
            return Ok(Requeued { found: found.len() as u64, more: next.is_some(), ..Requeued::default() });
        }
        let done = self.context.answer_of(identity, actor.requeue(by_block(&found))).await?;
        Ok(Requeued { more: next.is_some() || done.more, ..done })
    }

    /// A new run of the job, triggered as by hand, that begins with failed requests of this one.
    async fn requeue_in_new_run(
        &self,
        run: Run,
        filter: &FailureFilter,
        limit: usize,
        dry_run: bool,
        by: Option<String>,
    ) -> Result<Requeued, Problem> {
        let (mut found, next) = self.failures(run.no, filter, Cursor::START, limit).await?;
        let mut bytes = 0;
        let fitting = found.iter().take_while(|one| {
            bytes += one.bytes;
            bytes <= MOST_REQUEUED
        });
        let fitting = fitting.count();
        let more = next.is_some() || fitting < found.len();
        found.truncate(fitting);
        let count = found.len() as u64;
        if dry_run || found.is_empty() {
            return Ok(Requeued { found: count, more, ..Requeued::default() });
        }
        self.check_worker_for(&run).await?;
        let mut chosen = by_block(&found);
        let stored = self.context.store.read(ReadFailures { no: run.no, seqs: chosen.keys().copied().collect() });
        let stored = stored.await.map_err(|e| problem_of(&e))?.into_iter();
        let blocks = stored.map(|block| (block.seq, block.entries, chosen.remove(&block.seq).unwrap_or_default())).collect();
        let order = TriggerOrder {
            input: TriggerInput { arguments: run.arguments_value(), priority: Some(run.priority), ..TriggerInput::default() },
            retry_of: Some(run.identity),
            trace: TraceContext::of_run(&run),
            by,
            first: Some(Arc::new(FirstRequests { no: run.no, blocks, start_origins: run.download.start_origins })),
            ..TriggerOrder::default()
        };
        let made = self.trigger(run.job_id, order).await.map_err(|problem| match problem.detail.as_str() {
            Marks::CHANGED => Problem::busy("another call queued some of these requests again; retry"),
            _ => problem,
        })?;
        log::info!("failed requests requeued in a new run run_id={} new_run_id={} found={count}", run.identity, made.identity);
        Ok(Requeued { found: count, queued: count, more, identity: Some(made.identity), ..Requeued::default() })
    }

    /// Checks that a new run of the job would have a worker, or wait for one. Otherwise it would fail at once, and the failed requests with it:
    /// each is queued again only once.
    async fn check_worker_for(&self, run: &Run) -> Result<(), Problem> {
        let watched = self.context.store.read(WatchedClasses).await.map_err(|e| problem_of(&e))?;
        let (job, _) = self.stored_job(run.job_id, false).await?;
        let properties = &job.properties;
        let class = properties.class_name().unwrap_or(&run.class_name);
        // Errors in these properties were reported when the job was created.
        let waits = properties.no_worker() == Ok(NoWorker::Wait) || properties.worker_job().is_ok_and(|job| job.is_some());
        if waits || watched.iter().any(|watched| watched == class) {
            return Ok(());
        }
        let detail = format!(
            "no worker watches the class {class}, so a new run would fail at once: start a worker, or set the property `NoWorker` of the job to `wait`"
        );
        Err(Problem::conflict("no-worker", detail))
    }
}

/// The ids of the requests, by block.
fn by_block(found: &[Found]) -> BTreeMap<Seq, HashSet<Fingerprint>> {
    let mut chosen: BTreeMap<Seq, HashSet<Fingerprint>> = BTreeMap::new();
    for one in found {
        chosen.entry(one.at.seq).or_default().insert(one.failed.request_id);
    }
    chosen
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
