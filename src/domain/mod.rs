//! Values and pure decision logic.
//!
//! Nothing here does I/O, reads a clock or depends on an actor: time is passed in as a [`time::Timestamp`], and decisions are
//! returned as values. Property tests and simulations test this code.

#[cfg(feature = "broker")]
pub mod alert;
#[cfg(feature = "broker")]
pub mod application;
#[cfg(feature = "broker")]
pub mod attempts;
#[cfg(feature = "broker")]
pub mod attention;
pub mod backoff;
#[cfg(feature = "broker")]
pub mod backup;
pub mod block;
#[cfg(feature = "broker")]
pub mod callback;
pub mod canonical;
#[cfg(feature = "broker")]
pub mod cron;
#[cfg(feature = "broker")]
pub mod database;
pub mod download_targets;
#[cfg(feature = "broker")]
pub mod explain;
pub mod fingerprint;
pub mod frontier;
pub mod guards;
pub mod ids;
pub mod job;
#[cfg(feature = "broker")]
mod known_properties;
#[cfg(feature = "broker")]
pub mod leader;
#[cfg(feature = "broker")]
pub mod lifecycle;
#[cfg(feature = "broker")]
pub mod live;
pub mod matchmaker;
pub mod name_servers;
pub mod node;
pub mod origin;
pub mod redirect;
pub mod request;
#[cfg(any(feature = "broker", feature = "agent"))]
pub mod robots;
pub mod run;
#[cfg(feature = "broker")]
pub mod run_owners;
#[cfg(feature = "broker")]
pub mod schedule;
#[cfg(feature = "broker")]
pub mod secrets;
pub mod seen;
#[cfg(feature = "broker")]
pub mod series;
pub mod settings;
pub mod sites;
pub mod targets;
pub mod task;
pub mod time;
pub mod trace;
#[cfg(feature = "broker")]
pub mod unread;
#[cfg(feature = "broker")]
pub mod whereabouts;
#[cfg(feature = "broker")]
pub mod work_history;
#[cfg(feature = "broker")]
pub mod worker;
#[cfg(feature = "broker")]
pub mod worker_pool;
mod worker_properties;
#[cfg(feature = "broker")]
pub mod workflow;
#[cfg(feature = "broker")]
pub mod zone;
