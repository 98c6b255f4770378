//! The worker SDK. Implement [`Spider`], name your class, run:
//!
//! ```no_run
//! use webloom::sdk::{Follow, Page, Request, Result, RunContext, Spider, Worker};
//!
//! struct Titles;
//!
//! impl Spider for Titles {
//!     fn class_name(&self) -> &str {
//!         "demo.Titles"
//!     }
//!     async fn start(&self, _run: &RunContext) -> Result<Vec<Request>> {
//!         Ok(vec![Request::get("http://example.com/")])
//!     }
//!     async fn page(&self, page: &Page, follow: &mut Follow<'_>) -> Result {
//!         log::info!("{} has {} bytes", page.url(), page.body.len());
//!         follow.push(Request::get("http://example.com/next"));
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> Result<(), webloom::sdk::Error> {
//!     Worker::new("http://127.0.0.1:55626").watch(Titles).run_blocking()
//! }
//! ```
//!
//! Or write functions, and have them called as tasks, see [`Worker::task`]:
//!
//! ```no_run
//! use webloom::sdk::{TaskContext, TaskResult, Worker};
//!
//! async fn add(task: TaskContext) -> TaskResult<i64> {
//!     let numbers: Vec<i64> = task.arguments()?;
//!     Ok(numbers.iter().sum())
//! }
//!
//! fn main() -> Result<(), webloom::sdk::Error> {
//!     Worker::new("http://127.0.0.1:55626").task("math.add", add).slots(32).run_blocking()
//! }
//! ```
//!
//! What a worker may rely on: every page of a run is delivered to it at least once, including failed ones. A block of pages is
//! acknowledged together with its follow-up requests, in one call that is repeated until the broker accepts it, so a worker that dies
//! loses nothing: the broker delivers the block again. Everything runs on one thread; handlers need not be `Send`, and should not compute
//! for seconds without an `await`, because the heartbeat shares their thread.
//!
//! An attempt of a task is run at most once, and never at the same time as another attempt of it: the worker drops its future when the
//! broker was silent for the task's lease, before the broker gives the task to another worker. A result is sent until the broker has it
//! on disk; if the worker dies before, the task is run again, unless the worker keeps an outbox ([`Worker::outbox`]) and restarts before
//! the task's lease is over.

mod carry;
mod charset;
mod client;
mod error;
mod follow;
mod hands;
mod page;
mod request;
mod run;
mod sent;
mod signal;
mod socket;
mod spider;
mod task;
mod worker;

#[cfg(all(test, feature = "broker"))]
mod tests;

pub use crate::domain::ids::{BlockId, Identity, JobId, WorkerId};
pub use crate::domain::run::RunState;
pub use crate::domain::time::Timestamp;
pub use crate::protocol::node::{FetchError, FetchErrorKind};
pub use crate::protocol::pack::Sent;
pub use crate::protocol::push::Request;
pub use crate::protocol::task::SettledTask;
pub use ::log::Level;
pub use charset::{decode, encoding_of, join};
pub use client::{Answer, Client, Failure};
pub use error::{Abort, BoxError, Error, Result};
pub use follow::{Follow, Mark, Took};
pub use page::{FinishedBlock, Page};
pub use run::RunContext;
pub use signal::stop_signal;
pub use spider::{Failed, Spider};
pub use task::{TaskContext, TaskFailure, TaskHandler, TaskResult};
pub use worker::Worker;
