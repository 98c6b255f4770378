//! The worker's library against stand-ins of a broker.

mod broker;
mod carry;
mod ledger;
mod task_delivery;
mod task_ends;
mod task_talk;
