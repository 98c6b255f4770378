//! The actors, one room each: a pure core that decides (in `domain`), a shell that sends and stores.
//!
//! Other rooms hold handles, never addresses: what may be sent to an actor, and how, is said once, in its `message.rs`.
//! An actor waits only for what is below it (service; job; run, task, application, callback; registry, dispatcher, allocator, node,
//! worker; store); sideways and up it sends a message, and is answered by another one. `tests/tidy/asks.rs` checks that.

pub mod address_map;
pub mod alerts;
pub mod allocator;
pub mod application;
pub mod before;
pub mod brokers;
pub mod budget;
pub mod callback;
pub mod context;
pub mod dispatcher;
mod ends;
pub mod fleet;
pub mod followers;
pub mod involved;
pub mod janitor;
pub mod job;
pub mod lateness;
pub mod node;
pub mod packages;
pub mod registry;
pub mod reply;
pub mod run;
pub mod run_logs;
pub mod scheduler;
pub mod service;
pub mod session_sender;
pub mod sites;
pub mod supervision;
pub mod task;
pub mod worker;

/// Between 0 and 1.
fn chance() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX)
}
