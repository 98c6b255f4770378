//! Numbers of blocks and sites of a run.

use serde::{Deserialize, Serialize};

/// Blocks by state.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlockCounts {
    /// Waiting for a node.
    pub ready: u64,
    /// At a node; absent where it is unknown, and then they count as ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub using: Option<u64>,
    /// Completed, but not yet acknowledged by a worker.
    pub answered: u64,
    /// Total.
    pub total: u64,
}

/// Sites of a run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct SitesOfRun {
    /// All sites that the run has met.
    pub total: u64,
    /// Sites with a block at a node.
    pub active: u64,
    /// Sites that are held, for any reason. Of more than 2,000 sites, those that are held under their own name.
    pub held: u64,
}
