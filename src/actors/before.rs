//! Peers that were connected when the previous broker ended and that will probably reconnect soon.

use super::context::BrokerContext;
use crate::domain::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// See the module documentation.
#[derive(Debug, Default)]
pub struct Before {
    /// The names of classes and tasks that workers watched.
    pub names: HashSet<String>,
    /// Number of known nodes.
    pub nodes: usize,
}

impl BrokerContext {
    /// Sets what was connected to the previous broker.
    #[must_use]
    pub fn with_before(mut self, before: Before) -> Self {
        self.before = Arc::new(before);
        self
    }

    /// Whether workers that watch this name may still reconnect after the broker restart. If the run is older than this broker
    /// (`is_older`), any name counts.
    #[must_use]
    pub fn workers_may_come_back(&self, name: &str, is_older: bool) -> bool {
        Timestamp::steady() < self.workers_return_until() && (is_older || self.before.names.contains(name))
    }

    /// Until when workers may still reconnect after a change of the leader.
    #[must_use]
    pub fn workers_return_until(&self) -> Timestamp {
        let connected_at = Timestamp(self.connected_at.load(Relaxed));
        self.predecessor_until.max(connected_at).plus_ms(self.times.worker_offline as i64)
    }
}
