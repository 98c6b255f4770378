//! Peers that were connected when the previous broker ended and that will probably reconnect soon.

use super::context::BrokerContext;
use crate::domain::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

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
        let age = Timestamp::steady().since_ms(self.predecessor_until);
        age < self.times.worker_offline as i64 && (is_older || self.before.names.contains(name))
    }
}
