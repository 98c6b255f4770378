//! One run, from start to end: pushes the first requests, then polls blocks, passes them to the spider, acknowledges them.
//!
//! Several blocks are in flight at a time, so that the network works while pages are processed. A block is acknowledged only after its
//! handler has returned, and the acknowledgement is repeated until the broker confirms it.

use super::error::{Abort, BoxError, Error};
use super::follow::Follow;
use super::page::{FinishedBlock, open_all};
use super::run::RunContext;
use super::spider::{AnySpider, tried};
use crate::domain::backoff::Backoff;
use crate::domain::ids::{BlockId, WorkerId};
use crate::domain::run::RunState;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::Duration;
use tokio::sync::watch;

/// Bytes of pages in flight from which no more blocks are polled.
const MOST_IN_HAND: usize = 32 << 20;
/// The pauses after responses that cannot be read, the shortest and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Why work on a run stops. The first reason counts.
pub(crate) type Halt = watch::Receiver<Option<Over>>;

/// How the run ends for this worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Over {
    /// The run ended.
    Ended(RunState),
    /// The worker should stop; the run continues without it.
    Stop,
}

/// Processes a run until it or the worker ends.
pub(crate) async fn carry(
    run: &RunContext,
    spider: &dyn AnySpider,
    worker: WorkerId,
    in_flight: usize,
    mut halt: Halt,
) -> Result<Over, Error> {
    if !run.start_returned.get() {
        let started = tokio::select! {
            over = halted(&mut halt) => return Ok(over),
            started = start(run, spider) => started,
        };
        match started {
            Ok(()) => {}
            Err(Error::RunOver) => return Ok(Over::Ended(RunState::Stopped)),
            Err(error) => return Err(error),
        }
    }
    let mut at_work = FuturesUnordered::new();
    let mut in_hand: HashMap<BlockId, usize> = HashMap::new();
    let mut poll: Option<LocalBoxFuture<'_, _>> = None;
    let mut unreadable = Backoff::new(PAUSES.0, PAUSES.1);
    // Before the next poll.
    let mut pause = None;
    let over = loop {
        let has_room = at_work.is_empty() || in_hand.values().sum::<usize>() < MOST_IN_HAND;
        if poll.is_none() && at_work.len() < in_flight && has_room {
            let (most, holds) = (in_flight - at_work.len(), in_hand.keys().copied().collect::<Vec<_>>());
            let pause = pause.take();
            let next = async move {
                if let Some(pause) = pause {
                    tokio::time::sleep(pause).await;
                }
                run.client.poll(run.identity(), worker, most, &holds).await
            };
            poll = Some(next.boxed_local());
        }
        let polled = async {
            match &mut poll {
                Some(poll) => poll.await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            over = halted(&mut halt) => break over,
            Some((block, done)) = at_work.next(), if !at_work.is_empty() => {
                let done: Result<(), Error> = done;
                done?;
                in_hand.remove(&block);
            }
            answer = polled => {
                poll = None;
                let answer = match answer {
                    Ok(answer) => answer,
                    Err(error) => break over_by(error)?,
                };
                let blocks = if answer.status == 204 { Ok(Vec::new()) } else { open_all(&answer.body, run.encoding.as_deref()) };
                match blocks {
                    // A block may be delivered again while its acknowledgement is in flight.
                    Ok(blocks) => {
                        unreadable.reset();
                        for block in blocks {
                            if let Entry::Vacant(place) = in_hand.entry(block.block_id) {
                                place.insert(block.pages.iter().map(|page| page.body.len()).sum());
                                at_work.push(handle(run, spider, block));
                            }
                        }
                    }
                    Err(error) => {
                        log::warn!("cannot read blocks, polling again run_id={}: {error}", run.identity());
                        pause = Some(unreadable.next_wait());
                    }
                }
                if let Some(state) = answer.state.filter(|state| state.is_final()) {
                    break Over::Ended(state);
                }
            }
        }
    };
    drop(poll);
    // Finish the blocks in progress; the caller limits the time.
    while let Some((_, done)) = at_work.next().await {
        done?;
    }
    Ok(over)
}

async fn halted(halt: &mut Halt) -> Over {
    match halt.wait_for(Option::is_some).await {
        Ok(over) => over.unwrap_or(Over::Stop),
        // The sender is gone, so no reason will come.
        Err(_) => Over::Stop,
    }
}

fn over_by(error: Error) -> Result<Over, Error> {
    match error {
        Error::RunOver => Ok(Over::Ended(RunState::Stopped)),
        Error::Refused(problem) if problem.status == 404 => Ok(Over::Ended(RunState::Stopped)),
        error => Err(error),
    }
}

async fn start(run: &RunContext, spider: &dyn AnySpider) -> Result<(), Error> {
    let pushed = match spider.start_boxed(run).await {
        Ok(requests) => run.push(requests).await.map(drop).map_err(BoxError::from),
        Err(error) => Err(error),
    };
    match pushed {
        Ok(()) => run.client.start_returned(run.identity(), None).await?,
        Err(error) => match error.downcast::<Abort>() {
            Ok(abort) => return Err(Error::Aborted(abort.0)),
            Err(error) if matches!(error.downcast_ref(), Some(Error::RunOver)) => return Err(Error::RunOver),
            Err(error) => {
                log::error!("cannot start run run_id={}: {error}", run.identity());
                run.client.start_returned(run.identity(), Some(&error.to_string())).await?;
            }
        },
    }
    run.start_returned.set(true);
    Ok(())
}

/// Passes a block to the spider and acknowledges it.
async fn handle(run: &RunContext, spider: &dyn AnySpider, block: FinishedBlock) -> (BlockId, Result<(), Error>) {
    (block.block_id, handle_and_acknowledge(run, spider, &block).await)
}

async fn handle_and_acknowledge(run: &RunContext, spider: &dyn AnySpider, block: &FinishedBlock) -> Result<(), Error> {
    let mut follow = Follow::new(run);
    match tried(&mut follow, async |follow| spider.block_boxed(block, follow).await).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => spider.error(&run.failed(None, &error)),
        Err(abort) => return Err(Error::Aborted(abort.to_string())),
    }
    match follow.acknowledge(block.block_id).await {
        // The run ended in the meantime: the follow-up requests are not needed.
        Ok(_) | Err(Error::RunOver) => Ok(()),
        Err(Error::Refused(problem)) if problem.status == 404 => Ok(()),
        // Acknowledge without the follow-up requests rather than repeat the block forever.
        Err(Error::Refused(problem)) if problem.status != 403 => {
            log::error!("broker rejected follow-up requests run_id={} block_id={}: {problem}", run.identity(), block.block_id);
            spider.error(&run.failed(None, &Box::new(problem).into()));
            over_by_or_done(Follow::new(run).acknowledge(block.block_id).await.map(drop))
        }
        Err(error) => Err(error),
    }
}

fn over_by_or_done(done: Result<(), Error>) -> Result<(), Error> {
    done.or_else(|error| over_by(error).map(drop))
}
