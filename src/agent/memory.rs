//! Memory for large bodies, shared by all blocks of the agent.
//!
//! It owns a budget of bytes. A download whose body grows beyond [`FREE`] waits here before each further step, and its result keeps the
//! reserved bytes until the broker has accepted or rejected it. So the agent holds at most the budget, one extra body, and the unreserved
//! small bodies.
//!
//! No deadlock: many downloads may each hold a part of what they need and wait for the rest. One of them at a time has the *spare lane*:
//! it gets what it needs beyond the budget. It ends, at the latest by a timeout, its result is reported, and the next download gets the
//! lane. A block that is reported as a whole takes the lane as a whole, because its results are only sent together.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

/// A body up to this many bytes needs no reservation.
pub const FREE: usize = 256 << 10;
/// The unit of the budget, in bytes.
const UNIT: usize = 1 << 10;

/// The budget.
#[derive(Debug)]
pub struct Memory {
    units: Arc<Semaphore>,
    lane: Arc<Semaphore>,
    /// Bytes of small results that did not fit into the budget.
    over: Cell<usize>,
    waiting: Cell<usize>,
    /// Signals that the budget is used up: finished results should be reported at once.
    pub pressed: Notify,
    /// Signals that memory was released.
    pub eased: Notify,
}

impl Memory {
    /// A budget of this many bytes.
    #[must_use]
    pub fn new(bytes: usize) -> Rc<Self> {
        Rc::new(Self {
            units: Arc::new(Semaphore::new(bytes / UNIT)),
            lane: Arc::new(Semaphore::new(1)),
            over: Cell::new(0),
            waiting: Cell::new(0),
            pressed: Notify::new(),
            eased: Notify::new(),
        })
    }

    /// Whether a download waits for the budget or the budget is used up: then nothing new should begin.
    #[must_use]
    pub fn is_tight(&self) -> bool {
        self.waiting.get() > 0 || self.over.get() > 0 || self.units.available_permits() == 0
    }

    /// Opens an account: its shares use the spare lane together.
    #[must_use]
    pub fn account(self: &Rc<Self>) -> Rc<Account> {
        Rc::new(Account { memory: Rc::clone(self), lane: RefCell::default(), got_lane: Notify::new() })
    }

    /// Bytes that are left.
    #[cfg(test)]
    pub fn left(&self) -> usize {
        self.units.available_permits() * UNIT
    }
}

/// Shares that use the spare lane together.
#[derive(Debug)]
pub struct Account {
    memory: Rc<Memory>,
    lane: RefCell<Option<OwnedSemaphorePermit>>,
    got_lane: Notify,
}

impl Account {
    /// An empty share.
    #[must_use]
    pub fn share(self: &Rc<Self>) -> Share {
        Share { account: Rc::clone(self), permit: None, bytes: 0, over: 0 }
    }

    fn has_lane(&self) -> bool {
        self.lane.borrow().is_some()
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        drop(self.lane.take());
        self.memory.eased.notify_waiters();
    }
}

/// Bytes that are reserved until this is dropped.
#[derive(Debug)]
pub struct Share {
    account: Rc<Account>,
    permit: Option<OwnedSemaphorePermit>,
    bytes: usize,
    over: usize,
}

impl Share {
    /// Waits until the share has `bytes` in total. Cancelling it has no effect.
    pub async fn grow(&mut self, bytes: usize) {
        let Some(units) = units(bytes).checked_sub(units(self.bytes)).filter(|units| *units > 0) else { return };
        if !self.take(units) && !self.account.has_lane() {
            let memory = Rc::clone(&self.account.memory);
            let _waiting = Waiting::begin(&memory);
            let shared = self.account.got_lane.notified();
            tokio::select! {
                biased;
                permit = Arc::clone(&memory.units).acquire_many_owned(units) => self.merge(permit.ok()),
                lane = Arc::clone(&memory.lane).acquire_owned() => {
                    *self.account.lane.borrow_mut() = lane.ok();
                    self.account.got_lane.notify_waiters();
                }
                () = shared => {}
            }
        }
        self.bytes = bytes;
    }

    /// Releases everything above `bytes`.
    pub fn shrink(&mut self, bytes: usize) {
        let (more, less) = (units(self.bytes), units(bytes));
        if less < more {
            drop(self.permit.as_mut().and_then(|permit| permit.split(((more - less) as usize).min(permit.num_permits()))));
            self.bytes = bytes;
            self.account.memory.eased.notify_waiters();
        }
    }

    /// Counts bytes that are already in memory, without waiting.
    pub fn charge(&mut self, bytes: usize) {
        let memory = Rc::clone(&self.account.memory);
        if self.take(units(bytes)) {
            self.bytes += bytes;
        } else {
            self.over += bytes;
            memory.over.set(memory.over.get() + bytes);
        }
        if memory.is_tight() {
            memory.pressed.notify_waiters();
        }
    }

    /// The reserved bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn take(&mut self, units: u32) -> bool {
        let permit = Arc::clone(&self.account.memory.units).try_acquire_many_owned(units).ok();
        let is_taken = permit.is_some();
        self.merge(permit);
        is_taken
    }

    fn merge(&mut self, permit: Option<OwnedSemaphorePermit>) {
        match (&mut self.permit, permit) {
            (Some(own), Some(more)) => own.merge(more),
            (own, more) => *own = own.take().or(more),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let memory = &self.account.memory;
        memory.over.set(memory.over.get() - self.over);
        if self.permit.take().is_some() || self.over > 0 {
            memory.eased.notify_waiters();
        }
    }
}

/// Counts one waiting download.
struct Waiting<'a>(&'a Memory);

impl<'a> Waiting<'a> {
    fn begin(memory: &'a Memory) -> Self {
        memory.waiting.set(memory.waiting.get() + 1);
        memory.pressed.notify_waiters();
        Self(memory)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.set(self.0.waiting.get() - 1);
        self.0.eased.notify_waiters();
    }
}

fn units(bytes: usize) -> u32 {
    u32::try_from(bytes.div_ceil(UNIT)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use futures_util::future::join_all;

    #[actix_rt::test]
    async fn many_large_ones_come_through_a_small_budget() {
        const BUDGET: usize = 1 << 20;
        let memory = Memory::new(BUDGET);
        let (now, most) = (Cell::new(0_usize), Cell::new(0_usize));
        let one = |size: usize| {
            let (memory, now, most) = (&memory, &now, &most);
            async move {
                let mut share = memory.account().share();
                let mut have = 0;
                while have < size {
                    let step = (have + (200 << 10)).min(size);
                    share.grow(step).await;
                    now.set(now.get() + step - have);
                    most.set(most.get().max(now.get()));
                    have = step;
                    tokio::task::yield_now().await;
                }
                now.set(now.get() - have);
            }
        };
        // One of them is larger than the budget.
        join_all((0..60).map(|n| one(if n == 7 { 3 << 20 } else { 900 << 10 }))).await;
        assert!(most.get() <= BUDGET + (3 << 20), "{}", most.get());
        assert!(most.get() > BUDGET / 2, "the budget is used");
        assert_eq!((memory.left(), memory.is_tight()), (BUDGET, false));
    }

    #[actix_rt::test]
    async fn a_block_that_is_reported_as_a_whole_has_the_lane_as_a_whole() {
        let memory = Memory::new(100 << 10);
        let (block, other) = (memory.account(), memory.account());
        let mut shares: Vec<Share> = (0..3).map(|_| block.share()).collect();
        let mut stranger = other.share();
        join_all(shares.iter_mut().map(|share| share.grow(90 << 10))).await;
        assert!(stranger.grow(90 << 10).now_or_never().is_none(), "it waits");
        assert!(!memory.is_tight(), "and waits no more");
        drop((shares, block));
        stranger.grow(90 << 10).await;
    }

    #[actix_rt::test]
    async fn what_waits_no_more_leaves_nothing_behind() {
        let memory = Memory::new(100 << 10);
        let [mut first, mut lane, mut late] = [0, 1, 2].map(|_| memory.account().share());
        first.grow(60 << 10).await;
        lane.grow(60 << 10).await;
        assert!(late.grow(60 << 10).now_or_never().is_none());
        drop(lane);
        first.shrink(10 << 10);
        assert_eq!(memory.left(), 90 << 10);
        late.grow(60 << 10).await;
        drop((first, late));
        assert_eq!(memory.left(), 100 << 10);
    }

    #[actix_rt::test]
    async fn small_results_are_counted_and_press() {
        let memory = Memory::new(10 << 10);
        let mut share = memory.account().share();
        share.charge(8 << 10);
        assert!(!memory.is_tight());
        let pressed = memory.pressed.notified();
        share.charge(8 << 10);
        assert!(memory.is_tight());
        pressed.now_or_never().expect("pressed");
        let eased = memory.eased.notified();
        drop(share);
        eased.now_or_never().expect("eased");
        assert_eq!((memory.left(), memory.is_tight()), (10 << 10, false));
    }
}
