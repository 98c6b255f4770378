//! The actors, one module each: a pure core that decides (in `domain`), and a shell that sends and stores.
//!
//! Other modules hold handles, never addresses; an actor's `message.rs` defines the messages that it accepts, and how to send
//! them. An actor waits only for actors below it (service; job; run, task, application, callback; registry, placement,
//! scheduler, run_owners, node, worker, alerts, janitor, recorder; store). Sideways and up it sends messages, also for the answer. `tests/tidy/asks.rs` checks that.

pub mod address_map;
pub mod alerts;
pub mod application;
pub mod at_leader;
pub mod before;
pub mod brokers;
pub mod budget;
mod by_type;
pub mod callback;
pub mod context;
pub mod counters;
pub mod counts;
pub mod deadline_timer;
pub mod downloads;
pub mod followers;
pub mod involved;
pub mod janitor;
pub mod job;
pub mod lateness;
pub mod leader_link;
pub mod liveness;
pub mod node;
pub mod packages;
pub mod placement;
pub mod recorder;
pub mod registry;
pub mod reply;
pub mod run;
pub mod run_logs;
pub mod run_owners;
pub mod run_shell;
pub mod scheduler;
pub mod session_sender;
pub mod sites;
pub mod supervision;
pub mod task;
pub mod task_counts;
pub mod worker;

/// A random number between 0 and 1.
fn chance() -> f64 {
    f64::from(uuid::Uuid::new_v4().as_u128() as u32) / f64::from(u32::MAX)
}
