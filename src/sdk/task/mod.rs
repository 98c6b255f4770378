//! Tasks: functions of the user's that the broker calls.
//!
//! `handler` is what a user writes and `context` what it is given; `ledger` decides, without a clock of its own, what is
//! taken, how long it may be held and what is still to be reported; `hands` carries that out. `outbox` keeps reports on disk for a worker that asks for it.

mod context;
mod failure;
mod frames;
mod handler;
mod hands;
pub(super) mod ledger;
mod logs;
mod outbox;

pub use context::TaskContext;
pub use failure::{TaskFailure, TaskResult};
pub use handler::TaskHandler;
pub(super) use handler::{AnyHandler, Function};
pub(super) use hands::{OnSettled, Tasks};
pub(super) use outbox::Outbox;
