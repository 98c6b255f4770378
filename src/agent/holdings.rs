//! The blocks that the agent holds: in progress, or done and not yet accepted by the broker.

use crate::domain::ids::BlockId;
use crate::protocol::node::Holding;
use std::cell::RefCell;
use std::collections::HashMap;
use tokio::sync::Notify;
use tokio::task::AbortHandle;

/// Held blocks, each with the task that processes it.
#[derive(Default)]
pub struct Holdings {
    tasks_by_block: RefCell<HashMap<BlockId, Held>>,
    changed: Notify,
    /// Signals that a block has left its place.
    pub left: Notify,
}

struct Held {
    holding: Holding,
    is_paced: bool,
    /// It only waits for slow answers, and takes no place.
    waits: bool,
    task: AbortHandle,
}

impl Holdings {
    /// Whether an offered block is new: it is not held, or only with an older attempt.
    #[must_use]
    pub fn is_news(&self, offered: &Holding) -> bool {
        self.tasks_by_block.borrow().get(&offered.block_id).is_none_or(|held| age(&held.holding) < age(offered))
    }

    /// Adds a block. An older attempt of it is aborted.
    pub fn hold(&self, holding: Holding, is_paced: bool, task: AbortHandle) {
        if let Some(old) = self.tasks_by_block.borrow_mut().insert(holding.block_id, Held { holding, is_paced, waits: false, task }) {
            log::info!("newer attempt replaces an older one block_id={} attempt={}", old.holding.block_id, old.holding.attempt);
            old.task.abort();
        }
    }

    /// Removes a block whose task has ended.
    pub fn release(&self, done: &Holding) {
        let mut tasks = self.tasks_by_block.borrow_mut();
        if tasks.get(&done.block_id).is_some_and(|held| held.holding == *done) {
            tasks.remove(&done.block_id);
        }
        self.changed.notify_waiters();
    }

    /// Aborts a block whose result is no longer needed, unless a later attempt than `attempt` is held.
    pub fn drop_block(&self, block_id: BlockId, attempt: u32) {
        let mut tasks = self.tasks_by_block.borrow_mut();
        if tasks.get(&block_id).is_some_and(|held| held.holding.attempt <= attempt)
            && let Some(held) = tasks.remove(&block_id)
        {
            held.task.abort();
        }
        self.changed.notify_waiters();
    }

    /// Aborts all blocks.
    pub fn drop_all(&self) {
        for (_, held) in self.tasks_by_block.borrow_mut().drain() {
            held.task.abort();
        }
    }

    /// Lists all held blocks.
    #[must_use]
    pub fn list(&self) -> Vec<Holding> {
        let tasks = self.tasks_by_block.borrow();
        tasks.values().map(|held| Holding { waits: held.waits, ..held.holding.clone() }).collect()
    }

    /// Number of held blocks.
    #[must_use]
    pub fn len(&self) -> usize {
        self.tasks_by_block.borrow().len()
    }

    /// A block only waits for slow answers from now on, and takes no place.
    pub fn leave(&self, waiting: &Holding) {
        let mut tasks = self.tasks_by_block.borrow_mut();
        if let Some(held) = tasks.get_mut(&waiting.block_id).filter(|held| held.holding == *waiting) {
            held.waits = true;
            self.left.notify_one();
        }
    }

    /// Number of held blocks with a pace, or without one, that take a place.
    #[must_use]
    pub fn count(&self, is_paced: bool) -> usize {
        self.tasks_by_block.borrow().values().filter(|held| held.is_paced == is_paced && !held.waits).count()
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
