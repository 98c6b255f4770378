//! Settings: one struct for each concern, checked before anything starts. A missing setting is distinguished from a wrong one.

pub mod addresses;
#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "broker")]
pub mod alerts;
#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "broker")]
pub mod connections;
#[cfg(feature = "broker")]
pub mod keep;
#[cfg(feature = "broker")]
pub mod lease;
#[cfg(feature = "broker")]
pub mod named_tokens;
#[cfg(feature = "agent")]
pub mod programs;
#[cfg(feature = "broker")]
pub mod tokens;
