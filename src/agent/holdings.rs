//! The blocks in the agent's hands: at work, or done and not yet accepted by the broker.

use crate::domain::ids::BlockId;
use crate::protocol::node::Holding;
use std::cell::RefCell;
use std::collections::HashMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Held blocks, each with the task that works on it.
#[derive(Default)]
pub struct Holdings {
    tasks_by_block: RefCell<HashMap<BlockId, Held>>,
    changed: Notify,
}

struct Held {
    holding: Holding,
    is_paced: bool,
    task: AbortHandle,
}

impl Holdings {
    /// Whether a block that has come is news: it is not held, or only an older hand-out of it is.
    #[must_use]
    pub fn is_news(&self, offered: &Holding) -> bool {
        self.tasks_by_block.borrow().get(&offered.block_id).is_none_or(|held| age(&held.holding) < age(offered))
    }

    /// Holds a block. An older hand-out of it is aborted.
    pub fn hold(&self, holding: Holding, is_paced: bool, task: AbortHandle) {
        if let Some(old) = self.tasks_by_block.borrow_mut().insert(holding.block_id, Held { holding, is_paced, task }) {
            log::info!("a newer hand-out replaces an older one block_id={} attempt={}", old.holding.block_id, old.holding.attempt);
            old.task.abort();
        }
    }

    /// Lets go of a block whose task is over.
    pub fn release(&self, done: &Holding) {
        let mut tasks = self.tasks_by_block.borrow_mut();
        if tasks.get(&done.block_id).is_some_and(|held| held.holding == *done) {
            tasks.remove(&done.block_id);
        }
        self.changed.notify_waiters();
    }

    /// Aborts a block that nobody waits for, unless a later hand-out than `attempt` is held.
    pub fn drop_block(&self, block_id: BlockId, attempt: u32) {
        let mut tasks = self.tasks_by_block.borrow_mut();
        if tasks.get(&block_id).is_some_and(|held| held.holding.attempt <= attempt)
            && let Some(held) = tasks.remove(&block_id)
        {
            held.task.abort();
        }
        self.changed.notify_waiters();
    }

    /// Aborts all.
    pub fn drop_all(&self) {
        for (_, held) in self.tasks_by_block.borrow_mut().drain() {
            held.task.abort();
        }
    }

    /// All that is held.
    #[must_use]
    pub fn list(&self) -> Vec<Holding> {
        self.tasks_by_block.borrow().values().map(|held| held.holding.clone()).collect()
    }

    /// How many are held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks_by_block.borrow().len()
    }

    /// How many with a pace are held, or how many without.
    #[must_use]
    pub fn count(&self, is_paced: bool) -> usize {
        self.tasks_by_block.borrow().values().filter(|held| held.is_paced == is_paced).count()
    }

    /// Waits until nothing is held.
    pub async fn emptied(&self) {
        loop {
            let changed = self.changed.notified();
            if self.len() == 0 {
                return;
            }
            changed.await;
        }
    }
}

fn age(holding: &Holding) -> (i64, u32) {
    (holding.epoch, holding.attempt)
}
