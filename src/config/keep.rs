//! How much of the past is kept.

/// Checked settings of the cleaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepConfig {
    /// Ended runs of a job, the newest.
    pub runs: u32,
    /// Milliseconds after which ended runs, the ledger, changes of jobs and alerts go.
    pub age_ms: u64,
    /// Milliseconds after which what nodes said of themselves goes.
    pub node_status_ms: u64,
    /// Bytes of the logs of runs.
    pub log_bytes: u64,
    /// Milliseconds between two cleanings.
    pub every_ms: u64,
}

impl KeepConfig {
    /// A day.
    pub const DAY_MS: u64 = 86_400_000;
}

impl Default for KeepConfig {
    fn default() -> Self {
        Self { runs: 1_000, age_ms: 30 * Self::DAY_MS, node_status_ms: 7 * Self::DAY_MS, log_bytes: 1_024 << 20, every_ms: 60_000 }
    }
}
