//! The worker's library against fake brokers.

mod broker;
mod carry;
mod executors;
mod ledger;
mod task_delivery;
mod task_ends;
mod task_talk;
#[cfg(feature = "opentelemetry")]
mod task_trace;
