//! A monotonic clock.

use std::time::Instant;

/// Milliseconds since its creation.
#[derive(Debug, Clone, Copy)]
pub(super) struct Steady(Instant);

impl Steady {
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn now_ms(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}
