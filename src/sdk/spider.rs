//! The trait that a user implements to crawl.

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

/// Number of tries of a page whose handler fails.
const TRIES: u32 = 3;
/// The pause before the second try; it doubles with each further one.
const PAUSE: Duration = Duration::from_millis(100);

/// The code behind a class name: the first requests, and the processing of pages. Write its methods as `async fn`.
///
/// A page may be delivered twice: after a crash, or when a block was not acknowledged in time. Handlers should tolerate that.
pub trait Spider: 'static {
    /// The name that jobs give as their `FullClassName`.
    fn class_name(&self) -> &str;

    /// A run begins: returns the first requests. If they are too many to return, call [`RunContext::push`] repeatedly.
    ///
    /// After a crash it may be called again for the same run; requests that are pushed twice are stored once.
    ///
    /// An error makes the run fail, with the error's text as the reason.
    fn start(&self, run: &RunContext) -> impl Future<Output = Result<Vec<Request>>>;

    /// Processes a page, downloaded or failed: check [`Page::error`] and [`Page::status`]. Redirects are pages, too, unless the job says
    /// `Redirects: follow`: [`Page::is_redirect`]. Add its follow-up requests to `follow`.
    ///
    /// After an error the page is tried again, twice, after a pause of some tenths of a second, without the requests that it had added to
    /// `follow`. Then [`Spider::on_error`] is called, the error is counted, and the rest of the block continues: a page that cannot be
    /// processed does not stop the run. A panic counts as an error. An [`Abort`] ends the worker instead.
    fn page(&self, page: &Page, follow: &mut Follow<'_>) -> impl Future<Output = Result> {
        let _ = (page, follow);
        async { Ok(()) }
    }

    /// Processes a block of pages. The block is acknowledged when this returns. Override it to work on whole blocks, for example to write
    /// them in one transaction; an error is then treated like that of a page, for the whole block, and the depth must be set with
    /// [`Follow::from_depth`].
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

    /// A page or a block could not be processed; it is not tried again. The default logs it.
    fn on_error(&self, failed: &Failed<'_>) {
        let page = failed.page.map_or("a whole block", Page::url);
        log::error!("cannot process page run_id={} page={page}: {}", failed.run.identity(), failed.error);
    }

    /// The run has ended or was stopped.
    fn ended(&self, run: &RunContext, state: RunState) {
        log::info!("run ended run_id={} state={}", run.identity(), state.name());
    }
}

/// A page or block that could not be processed.
#[derive(Debug)]
pub struct Failed<'a> {
    /// The run.
    pub run: &'a RunContext,
    /// The page; `None` if a whole block was processed at once.
    pub page: Option<&'a Page>,
    /// The error.
    pub error: &'a (dyn std::error::Error + 'static),
}

/// Calls a handler with retries. The outer error is an [`Abort`], the inner one the handler's last.
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
                format!("the handler panicked: {}", text.unwrap_or("no message")).into()
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

/// A spider as a trait object.
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
