//! What all requests of callbacks share: where they may go, and how many are under way at a time.

use crate::domain::targets::Targets;
use std::sync::Arc;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests under way at a time: each is an open file, and a broker has more to open than these. A run that finds no slot
/// is *pending* until there is one.
const SLOTS: usize = 512;

/// See the module's text.
#[derive(Debug)]
pub struct Outbound {
    /// Where requests may go.
    pub targets: Targets,
    slots: Arc<Semaphore>,
}

/// A place among the requests that are under way.
#[derive(Debug)]
pub(super) struct Slot(#[expect(dead_code, reason = "dropping it is what matters")] Option<OwnedSemaphorePermit>);

impl Default for Outbound {
    fn default() -> Self {
        Self::new(Targets::default())
    }
}

impl Outbound {
    /// To these targets.
    #[must_use]
    pub fn new(targets: Targets) -> Self {
        Self { targets, slots: Arc::new(Semaphore::new(SLOTS)) }
    }

    /// Waits for a slot; first come, first served.
    pub(super) async fn slot(&self) -> Slot {
        // It is never closed, so there is no error that could mean anything.
        Slot(Arc::clone(&self.slots).acquire_owned().await.ok())
    }
}
