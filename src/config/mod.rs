//! Settings: one struct per concern, validated before anything starts.

#[cfg(feature = "agent")]
pub mod agent;
#[cfg(feature = "broker")]
pub mod broker;
#[cfg(feature = "broker")]
pub mod tokens;
