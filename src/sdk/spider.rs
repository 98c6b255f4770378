//! What a user writes.

use super::error::{Abort, BoxError, Result};
use super::follow::Follow;
use super::page::{FinishedBlock, Page};
use super::run::RunContext;
use crate::domain::run::RunState;
use crate::protocol::push::Request;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

/// How often a page is tried, when its handler fails, before it is given up.
const TRIES: u32 = 3;
/// The pause before the second try; then it doubles.
const PAUSE: Duration = Duration::from_millis(100);

/// The code behind a class name: what to ask for first, and what to do with the pages. Write its methods as `async fn`.
///
/// A page may come twice: after a crash, or when a block was not acknowledged in time. Handlers should not mind.
pub trait Spider: 'static {
    /// The name that jobs give as their `FullClassName`.
    fn class_name(&self) -> &str;

    /// A run begins: the first requests. Too many to return? [`RunContext::push`] them, again and again.
    ///
    /// After a crash it may be called again for the same run; what is pushed twice is stored once.
    ///
    /// An error makes the run fail, with the error's text as the reason.
    fn start(&self, run: &RunContext) -> impl Future<Output = Result<Vec<Request>>>;

    /// A page has come, or has failed: look at [`Page::error`] and [`Page::status`]. What follows from it goes into
    /// `follow`.
    ///
    /// After an error the page is tried again, twice, after a pause of some tenths of a second, without what it had put
    /// into `follow`. Then it is told to [`Spider::on_error`] and counted, and the rest of the block goes on: a page that
    /// cannot be handled does not hold up the run. A panic counts as an error. An [`Abort`] ends the worker instead.
    fn page(&self, page: &Page, follow: &mut Follow<'_>) -> impl Future<Output = Result> {
        let _ = (page, follow);
        async { Ok(()) }
    }

    /// A block of pages has come. It is acknowledged when this returns. Replace it to work on whole blocks, for instance
    /// to write them in one transaction; an error is then treated as that of a page, for the block as a whole, and the
    /// depth is to be said with [`Follow::from_depth`].
    fn block(&self, block: &FinishedBlock, follow: &mut Follow<'_>) -> impl Future<Output = Result> {
        async move {
            for page in &block.pages {
                follow.from_depth(page.depth());
                if let Err(error) = tried(follow, async |follow| self.page(page, follow).await).await? {
                    self.on_error(&follow.run().failed(Some(page), &error));
                }
                // The heartbeat shares this thread.
                tokio::task::yield_now().await;
            }
            Ok(())
        }
    }

    /// A page, or a block, could not be handled; it is not tried again. By default it is logged.
    fn on_error(&self, failed: &Failed<'_>) {
        let page = failed.page.map_or("a whole block", Page::url);
        log::error!("page cannot be handled run_id={} page={page}: {}", failed.run.identity(), failed.error);
    }

    /// The run is over, or was stopped.
    fn ended(&self, run: &RunContext, state: RunState) {
        log::info!("run ended run_id={} state={}", run.identity(), state.name());
    }
}

/// What could not be handled.
#[derive(Debug)]
pub struct Failed<'a> {
    /// The run.
    pub run: &'a RunContext,
    /// The page; none if a whole block was handled at once.
    pub page: Option<&'a Page>,
    /// Why.
    pub error: &'a (dyn std::error::Error + 'static),
}

/// Tries a handler some times. The outer error is an [`Abort`], the inner one the last of the handler's.
pub(crate) async fn tried<'r>(
    follow: &mut Follow<'r>,
    mut handler: impl AsyncFnMut(&mut Follow<'r>) -> Result,
) -> Result<Result<(), BoxError>, BoxError> {
    let mark = follow.mark();
    let mut pause = PAUSE;
    for tries in 1.. {
        let error = match AssertUnwindSafe(handler(follow)).catch_unwind().await {
            Ok(Ok(())) => break,
            Ok(Err(error)) if error.is::<Abort>() => return Err(error),
            Ok(Err(error)) => error,
            Err(panic) => {
                let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
                format!("the handler panicked: {}", text.unwrap_or("without a text")).into()
            }
        };
        follow.back_to(mark);
        if tries == TRIES {
            return Ok(Err(error));
        }
        tokio::time::sleep(pause).await;
        pause *= 2;
    }
    Ok(Ok(()))
}

/// A spider as an object.
pub(crate) trait AnySpider {
    fn name(&self) -> &str;
    fn start_boxed<'a>(&'a self, run: &'a RunContext) -> LocalBoxFuture<'a, Result<Vec<Request>>>;
    fn block_boxed<'a>(&'a self, block: &'a FinishedBlock, follow: &'a mut Follow<'_>) -> LocalBoxFuture<'a, Result>;
    fn error(&self, failed: &Failed<'_>);
    fn end(&self, run: &RunContext, state: RunState);
}

impl<S: Spider> AnySpider for S {
    fn name(&self) -> &str {
        self.class_name()
    }
    fn start_boxed<'a>(&'a self, run: &'a RunContext) -> LocalBoxFuture<'a, Result<Vec<Request>>> {
        self.start(run).boxed_local()
    }
    fn block_boxed<'a>(&'a self, block: &'a FinishedBlock, follow: &'a mut Follow<'_>) -> LocalBoxFuture<'a, Result> {
        self.block(block, follow).boxed_local()
    }
    fn error(&self, failed: &Failed<'_>) {
        self.on_error(failed);
    }
    fn end(&self, run: &RunContext, state: RunState) {
        self.ended(run, state);
    }
}
