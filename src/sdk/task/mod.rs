//! Tasks: the user's functions that the broker calls.
//!
//! `handler` is what a user implements and `context` its argument; `ledger` decides, without a clock of its own, which tasks are
//! accepted, how long they may be held and what must still be reported; `hands` carries that out. `outbox` stores reports on disk for a
//! worker that asks for it.

mod context;
mod failure;
mod frames;
mod handler;
mod hands;
pub(super) mod ledger;
mod logs;
mod outbox;
#[cfg(feature = "opentelemetry")]
mod trace;

pub use context::TaskContext;
pub use failure::{TaskFailure, TaskResult};
pub use handler::TaskHandler;
pub(super) use handler::{AnyHandler, Function};
pub(super) use hands::{OnSettled, Tasks};
pub(super) use outbox::Outbox;
