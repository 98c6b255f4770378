//! The brokers of one database, as the REST API shows them.

use crate::domain::ids::BrokerId;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The present role of a broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BrokerRole {
    /// It schedules, and does all work that it does not give to others.
    Leader,
    /// It takes over when the leader is gone. With PostgreSQL it executes runs of block jobs and callback jobs.
    Standby,
    /// It has ended or hangs.
    Gone,
}

/// A broker process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BrokerOutput {
    /// Its id, a new one at each start.
    pub id: BrokerId,
    /// The URL for clients.
    pub url: String,
    /// The program's version.
    pub version: String,
    /// Its present role.
    pub role: BrokerRole,
    /// Whether it sent this response.
    pub is_this: bool,
    /// The leader's term: increases with each change of the leader.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub term: Option<i64>,
    /// Since when it leads, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leads_since: Option<Timestamp>,
    /// Number of open runs that it executes, or will when they begin.
    #[serde(default)]
    pub runs: u64,
    /// Whether it may execute runs: the leader may, and with PostgreSQL each standby whose runs were not taken back, until it is drained.
    #[serde(default)]
    pub executes: bool,
    /// When it started, by its own clock.
    pub started_at: Timestamp,
    /// When it was seen last, by its own clock.
    pub last_seen: Timestamp,
}
