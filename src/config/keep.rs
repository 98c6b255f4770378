//! How much history is kept.

/// Checked settings of retention.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeepConfig {
    /// Ended runs to keep per job, the newest ones.
    pub runs: u32,
    /// Milliseconds after which ended runs, ledger rows, job changes and alerts are deleted.
    pub age_ms: u64,
    /// Milliseconds after which the reported load of nodes is deleted.
    pub node_status_ms: u64,
    /// Maximum bytes of the logs of runs.
    pub log_bytes: u64,
    /// Milliseconds between two cleanups.
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
