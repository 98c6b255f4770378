//! The wire types: shared by the broker, the agent and the worker SDK. `docs/protocol.md` describes them.

#[cfg(feature = "broker")]
pub mod access_tokens;
#[cfg(feature = "broker")]
pub mod actors;
#[cfg(feature = "broker")]
pub mod alerts;
pub mod api;
pub mod application;
#[cfg(feature = "broker")]
pub mod audit;
#[cfg(feature = "broker")]
pub mod block_runs;
mod borrowed;
#[cfg(feature = "broker")]
pub mod brokers;
pub mod compare;
pub mod crawling;
pub mod delivery;
#[cfg(feature = "broker")]
pub mod easy_job;
#[cfg(feature = "broker")]
pub mod exposition;
#[cfg(feature = "broker")]
pub mod failed;
pub mod frame;
#[cfg(feature = "broker")]
pub mod hooks;
#[cfg(feature = "broker")]
pub mod job_activity;
#[cfg(feature = "broker")]
pub mod live;
pub mod log;
#[cfg(feature = "broker")]
pub mod management;
pub mod node;
pub mod object;
#[cfg(feature = "broker")]
pub mod ownership;
pub mod pack;
#[cfg(feature = "broker")]
pub mod packages;
pub mod parser_errors;
pub mod peer_history;
#[cfg(feature = "broker")]
pub mod pending;
pub mod problem;
pub mod push;
pub mod redirected;
#[cfg(feature = "broker")]
pub mod redrive;
mod run_counts;
#[cfg(feature = "broker")]
pub mod scheduler_net;
#[cfg(feature = "broker")]
pub mod scrapyd;
#[cfg(feature = "broker")]
pub mod series;
#[cfg(feature = "broker")]
pub mod settings;
pub mod sign;
#[cfg(feature = "broker")]
pub mod sites;
pub mod task;
pub mod token;
pub mod unknown;
pub mod worker;
pub mod ws_header;
pub mod zstd_frame;

/// The default port of a broker.
pub const PORT: u16 = 55_626;
/// The media type of the bulk formats of [`pack`] and [`delivery`].
pub const BULK: &str = "application/x-webloom";
/// The header with the state of the run, on responses about its queue.
pub const RUN_STATE_HEADER: &str = "webloom-run-state";
/// The header with the address of the broker that executes the run, on answers about a run that a standby executes. A client may call it directly.
pub const EXECUTOR_HEADER: &str = "webloom-executor";
/// A header of polls: the blocks that the worker has received and not acknowledged, as ids separated by commas.
pub const HOLDS_HEADER: &str = "webloom-holds";
/// A header of reports: the run of the block. A broker that executes this run serves the report itself.
pub const RUN_HEADER: &str = "webloom-run";
/// The longest WebSocket message, in bytes, on both sides.
pub const MAX_FRAME: usize = 32 << 20;
/// The largest body of a push, in bytes, decompressed.
pub const MAX_PUSH: usize = 32 << 20;
/// The largest body of a report of results, in bytes, decompressed.
pub const MAX_REPORT: usize = 512 << 20;
/// The largest body of a report of results in JSON, in bytes, decompressed.
pub const MAX_JSON_REPORT: usize = 128 << 20;
