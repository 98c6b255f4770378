//! Webloom schedules work and carries it out on a fleet of machines.
//!
//! The crate is the program's rooms and, with the feature `sdk` alone, the library that a worker is written on.
//! Imports point one way: `domain` <- `protocol` <- `actors` <- `edge` <- programs, and `store` <- `actors`;
//! `tests/tidy.rs` holds them to it. `docs/architecture.md` is the map.

pub mod config;
pub mod domain;
pub mod fault;
pub mod protocol;

#[cfg(feature = "broker")]
pub mod actors;
#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "cli")]
pub mod crawl;
#[cfg(feature = "broker")]
pub mod edge;
#[cfg(any(feature = "agent", feature = "broker"))]
pub mod package;
#[cfg(any(feature = "agent", feature = "broker"))]
mod private;
#[cfg(feature = "sdk")]
pub mod sdk;
#[cfg(feature = "broker")]
pub mod service;
#[cfg(any(feature = "agent", feature = "sdk"))]
mod sockets;
#[cfg(feature = "broker")]
pub mod store;
#[cfg(feature = "tls")]
pub mod tls;
