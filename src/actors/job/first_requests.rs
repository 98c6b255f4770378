//! A run that begins with failed requests of another one, which is over.
//!
//! The transaction that stores the new run marks these failures with its id. So no failure is in two runs, and after a crash
//! the actor of the new run finds them by the marks.

use super::message::FirstRequests;
use crate::domain::run::Run;
use crate::protocol::failed;
use crate::protocol::problem::Problem;
use crate::store::Marks;

/// Sets the first requests of a new run, whose failures are to be marked.
pub(super) fn fill_in(run: &mut Run, first: &FirstRequests) -> Result<Marks, Problem> {
    let mut blocks = Vec::with_capacity(first.blocks.len());
    for (seq, entries, chosen) in &first.blocks {
        let (marked, count) = failed::marked(entries, chosen, run.identity).map_err(|why| {
            log::error!("failed to read stored failures of a run: {why}");
            Problem::internal()
        })?;
        if count < chosen.len() {
            // Another call was faster, after this one had chosen and before it read the failures again.
            return Err(Problem::conflict("conflict", Marks::CHANGED));
        }
        blocks.push((*seq, entries.clone(), marked.into()));
    }
    run.rules.requeues = blocks.first().zip(blocks.last()).map(|(first, last)| (first.0, last.0));
    // The origins of the failed requests are not those at which the crawl began.
    if run.download.start_origins.is_some() {
        run.download.start_origins.clone_from(&first.start_origins);
    }
    Ok(Marks { no: first.no, blocks })
}
