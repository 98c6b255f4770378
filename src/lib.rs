//! Webloom schedules work and carries it out on a fleet of machines.
//!
//! The crate is the program's modules and, with the feature `sdk` alone, the library that a worker is written on.
//! Imports point one way: `domain` <- `protocol` <- `actors` <- `service` <- `edge` <- programs, and `store` <- `actors`;
//! `tests/tidy.rs` checks that. Modules that no program outside needs are private, so that the compiler finds what is not used. `docs/architecture.md` is the map.

mod config;
mod domain;
mod fault;
mod protocol;

#[cfg(feature = "broker")]
mod actors;
#[cfg(feature = "agent")]
mod agent;
#[cfg(feature = "broker")]
mod broker;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
mod crawl;
#[cfg(feature = "broker")]
mod edge;
#[cfg(any(feature = "agent", feature = "sdk"))]
mod executors;
#[cfg(any(feature = "agent", feature = "broker"))]
mod names;
#[cfg(any(feature = "agent", feature = "broker"))]
mod open_files;
#[cfg(any(feature = "agent", feature = "broker"))]
mod package;
#[cfg(any(feature = "agent", feature = "broker"))]
mod private;
#[cfg(feature = "sdk")]
pub mod sdk;
#[cfg(feature = "broker")]
mod service;
#[cfg(any(feature = "agent", feature = "sdk"))]
mod sockets;
#[cfg(feature = "broker")]
mod store;
#[cfg(feature = "broker")]
mod telemetry;
#[cfg(feature = "tls")]
pub mod tls;

/// What the tests, benches and examples of this repository use besides the SDK. It is not part of the crate's interface.
#[cfg(feature = "broker")]
#[doc(hidden)]
pub mod for_tests {
    pub use crate::domain::{database, fingerprint, frontier::MOST_DELIVERED, ids, job, schedule, settings, time};
    pub use crate::protocol::{BULK, MAX_FRAME, MAX_PUSH, MAX_REPORT, api, delivery, frame, node, pack, problem, push, sign, worker};
    pub use crate::store::{InsertJob, Store, StoreConfig};
}
