//! The brokers of one database, as the REST API shows them.

use crate::domain::ids::BrokerId;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// What a broker is at present.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "lowercase")]
pub enum BrokerRole {
    /// It does all the work.
    Leader,
    /// It reads, and waits.
    Standby,
    /// It has ended or hangs.
    Gone,
}

/// A broker's process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BrokerOutput {
    /// Its id, a new one at each start.
    pub id: BrokerId,
    /// Where clients find it.
    pub url: String,
    /// The program's version.
    pub version: String,
    /// What it is at present.
    pub role: BrokerRole,
    /// It is the one that answers.
    pub is_this: bool,
    /// The leader's term: counted up by each that takes over.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub term: Option<i64>,
    /// Since when it leads, by its own clock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub leads_since: Option<Timestamp>,
    /// When it started, by its own clock.
    pub started_at: Timestamp,
    /// When it was seen last, by its own clock.
    pub last_seen: Timestamp,
}
