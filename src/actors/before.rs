//! What was there when the last broker ended, and comes back before long.

use super::context::BrokerContext;
use crate::domain::time::Timestamp;
use std::collections::HashSet;
use std::sync::Arc;

/// See the module's text.
#[derive(Debug, Default)]
pub struct Before {
    /// The names of classes and tasks that workers watched.
    pub names: HashSet<String>,
    /// Nodes that are known.
    pub nodes: usize,
}

impl BrokerContext {
    /// With what was there before this broker.
    #[must_use]
    pub fn with_before(mut self, before: Before) -> Self {
        self.before = Arc::new(before);
        self
    }

    /// Workers that watch this name may be on their way back from the last broker. `is_older`: so may those of any name, for a run
    /// that is older than this broker.
    #[must_use]
    pub fn workers_may_come_back(&self, name: &str, is_older: bool) -> bool {
        let age = Timestamp::steady().since_ms(self.began);
        age < self.times.worker_offline as i64 && (is_older || self.before.names.contains(name))
    }
}
