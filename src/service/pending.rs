//! The requests of a run that have no results yet: listed, and discarded.

use super::Service;
use super::failures::{Cursor, MOST, USUAL, check_site, damaged, is_to_site};
use crate::actors::reply::problem_of;
use crate::actors::run::text_of;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, Seq};
use crate::domain::request::{or_default, unpack};
use crate::domain::robots::has_part;
use crate::protocol::api::Page;
use crate::protocol::pending::{DiscardInput, Discarded, PendingRequest};
use crate::protocol::problem::Problem;
use crate::store::{ListPending, PendingBlock};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::{BTreeMap, HashSet};

/// Blocks that are read at a time.
const AT_ONCE: usize = 64;
/// Blocks that one call looks at once it has found a request.
const MOST_LOOKED_AT: usize = 2_048;

/// Requests that the actor of a run discards at a time.
const CHUNK: usize = 500;

/// The members of a request that are listed.
#[derive(Deserialize)]
struct Listed<'a> {
    #[serde(borrow)]
    url: Cow<'a, str>,
    #[serde(borrow, default)]
    method: Option<Cow<'a, str>>,
    #[serde(default, deserialize_with = "or_default")]
    depth: u32,
    #[serde(default, deserialize_with = "or_default")]
    tries: u32,
}

/// Which pending requests.
#[derive(Debug, Clone, Default)]
pub struct PendingFilter {
    /// Only those to this host or site.
    pub site: Option<String>,
    /// Only those whose URL has this part; `*` and `$` as in robots.txt.
    pub url: Option<String>,
    /// Only those of at least this depth.
    pub min_depth: Option<u32>,
    /// Only those of at most this depth.
    pub max_depth: Option<u32>,
}

impl PendingFilter {
    fn check(&self) -> Result<(), Problem> {
        check_site(self.site.as_deref())?;
        match (self.min_depth, self.max_depth) {
            (Some(least), Some(most)) if most < least => {
                Err(Problem::invalid("maxDepth", format!("must not be less than `minDepth`: {most} is less than {least}")))
            }
            _ => Ok(()),
        }
    }

    fn takes(&self, request: &Listed<'_>, site: Option<&str>) -> bool {
        self.min_depth.is_none_or(|least| request.depth >= least)
            && self.max_depth.is_none_or(|most| request.depth <= most)
            && self.url.as_deref().is_none_or(|part| has_part(part, &request.url))
            && self.site.as_deref().is_none_or(|wanted| is_to_site(wanted, site, &request.url))
    }
}

/// The pending requests of a block that a filter takes, from a place on.
fn taken(block: &PendingBlock, filter: &PendingFilter, from: Cursor, run: Identity) -> Result<Vec<(Cursor, PendingRequest)>, Problem> {
    let seq = block.payload.seq;
    let first = if seq == from.seq { from.place } else { 0 };
    let text = text_of(&block.payload.payload, block.payload.raw_length)?;
    let requests = unpack(&text).map_err(|why| damaged(&why))?;
    let mut found = Vec::new();
    for (place, (print, request)) in block.payload.prints.iter().zip(requests).enumerate().skip(first) {
        let request: Listed<'_> = serde_json::from_str(request.get()).map_err(|why| damaged(&why.to_string()))?;
        if filter.takes(&request, block.site.as_deref()) {
            let pending = PendingRequest {
                request_id: *print,
                url: request.url.into_owned(),
                method: request.method.map(Cow::into_owned).filter(|method| !method.eq_ignore_ascii_case("GET")),
                depth: request.depth,
                priority: block.priority,
                tries: request.tries,
                site: block.site.clone(),
                block_id: BlockId::new(run, seq),
            };
            found.push((Cursor { seq, place }, pending));
        }
    }
    Ok(found)
}

impl Service {
    async fn pending(
        &self,
        (identity, no): (Identity, i64),
        filter: &PendingFilter,
        mut from: Cursor,
        limit: usize,
    ) -> Result<(Vec<(Cursor, PendingRequest)>, Option<Cursor>), Problem> {
        let (mut found, mut looked_at) = (Vec::new(), 0);
        // An empty page is the end of a list.
        while looked_at < MOST_LOOKED_AT || found.is_empty() {
            let blocks = self.context.store.read(ListPending { no, from: from.seq, limit: AT_ONCE }).await.map_err(|e| problem_of(&e))?;
            for block in &blocks {
                for one in taken(block, filter, from, identity)? {
                    if found.len() == limit {
                        return Ok((found, Some(one.0)));
                    }
                    found.push(one);
                }
            }
            match blocks.last().and_then(|last| last.payload.seq.checked_add(1)) {
                Some(next) if blocks.len() == AT_ONCE => from = Cursor { seq: next, place: 0 },
                _ => return Ok((found, None)),
            }
            looked_at += AT_ONCE;
        }
        Ok((found, Some(from)))
    }

    /// The requests of a run that have no results yet, in the order of their blocks. A page may be short though more follow: one
    /// call looks at a bounded number of blocks.
    ///
    /// # Errors
    /// There is no such run, or the cursor is none of this list.
    pub async fn pending_requests(
        &self,
        identity: Identity,
        filter: PendingFilter,
        cursor: Option<&str>,
        limit: usize,
    ) -> Result<Page<PendingRequest>, Problem> {
        filter.check()?;
        let from = cursor.map_or(Ok(Cursor::START), Cursor::read)?;
        let run = self.stored_run(identity).await?;
        let (found, next) = self.pending((identity, run.no), &filter, from, limit).await?;
        Ok(Page { items: found.into_iter().map(|(_, one)| one).collect(), next_cursor: next.map(Cursor::text) })
    }

    /// Discards pending requests of a run: each gets a result of the kind `discarded`. Those at a node are left alone.
    ///
    /// # Errors
    /// There is no such run, it has no queue, or it is over; there is no condition; the limit is out of bounds.
    pub async fn discard(&self, identity: Identity, input: DiscardInput) -> Result<Discarded, Problem> {
        let DiscardInput { site, url, min_depth, max_depth, all, limit, dry_run } = input;
        let limit = limit.unwrap_or(USUAL);
        if !(1..=MOST).contains(&limit) {
            return Err(Problem::invalid("limit", format!("must be 1 to {MOST}, not {limit}")));
        }
        if url.as_ref().is_some_and(|part| part.chars().all(|c| matches!(c, '*' | '$'))) {
            return Err(Problem::invalid("url", "must have a part of a URL beside `*` and `$`; set `all` to discard all pending requests"));
        }
        let has_condition = site.is_some() || url.is_some() || min_depth.is_some_and(|least| least > 0) || max_depth.is_some();
        if all && has_condition {
            return Err(Problem::invalid(
                "all",
                "`all` and conditions (`site`, `url`, `minDepth`, `maxDepth`) exclude each other; send one of them",
            ));
        }
        if !all && !has_condition {
            let detail =
                "name at least one condition (`site`, `url`, `minDepth`, `maxDepth`), or set `all` to discard all pending requests";
            return Err(Problem::invalid("all", detail));
        }
        let run = self.stored_run(identity).await?;
        let actor = self.block_run(identity, "told to discard requests").await?;
        let filter = PendingFilter { site, url, min_depth, max_depth };
        filter.check()?;
        let (mut done, mut from, limit) = (Discarded::default(), Cursor::START, limit as u64);
        loop {
            // Requests at nodes are found again and again, so the search goes on behind them.
            let left = limit - if dry_run { done.found } else { done.discarded };
            let (found, next) = self.pending((identity, run.no), &filter, from, CHUNK.min(left as usize)).await?;
            done.found += found.len() as u64;
            let mut chosen: BTreeMap<Seq, HashSet<Fingerprint>> = BTreeMap::new();
            for (at, one) in found {
                chosen.entry(at.seq).or_default().insert(one.request_id);
            }
            if !dry_run && !chosen.is_empty() {
                done.discarded += self.context.answer_of(identity, actor.discard(chosen)).await?;
            }
            done.more = next.is_some();
            match next {
                Some(next) if limit > if dry_run { done.found } else { done.discarded } => from = next,
                _ => return Ok(done),
            }
        }
    }
}
