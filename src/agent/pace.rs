//! The pace of a block: its [`Turn`] with a clock, for those who wait in it.

use super::backoff::random_fraction;
use super::turn::{Begin, Claim, End, Fate, Limits, Millis, Turn};
use crate::protocol::node::{Pace, SiteNews};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// When the broker was heard the last time, at the earliest that it may have been: what comes may have lain in a buffer
/// while this process, or its machine, stood still.
pub struct Hearing {
    last: Cell<Instant>,
    /// It was heard once more.
    pub again: Notify,
}

impl Hearing {
    /// Just now.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self { last: Cell::new(Instant::now()), again: Notify::new() })
    }

    /// Something came, after `since`.
    pub fn hear(&self, since: Instant) {
        self.last.set(self.last.get().max(since));
        self.again.notify_waiters();
    }
}

/// What is said of a site in a report. The times are counted when it is posted.
#[derive(Debug, Default)]
pub struct SiteClock {
    last_began: Cell<Option<Instant>>,
    held_until: Cell<Option<Instant>>,
}

impl SiteClock {
    /// As it is now.
    #[must_use]
    pub fn news(&self) -> SiteNews {
        let now = Instant::now();
        SiteNews {
            retry_after: self.held_until.get().map(|until| millis(until.saturating_duration_since(now))),
            last_began: self.last_began.get().map(|began| millis(now.saturating_duration_since(began))),
        }
    }
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Lets requests begin.
pub struct Gate {
    turn: RefCell<Turn>,
    /// The turn's time 0: when the broker was heard before the block came.
    epoch: Instant,
    hearing: Rc<Hearing>,
    /// Requests that began: the first ones wait for their connections.
    begun: Cell<u32>,
    connections: u32,
    delay: Millis,
    /// For the reports.
    pub clock: Rc<SiteClock>,
    /// A request began or ended.
    pub changed: Notify,
}

impl Gate {
    /// For `count` requests of a block. A request has so many tries, with a pause after the first.
    #[must_use]
    pub fn new(pace: &Pace, count: usize, tries: u32, first_wait: Duration, hearing: Rc<Hearing>) -> Self {
        let epoch = hearing.last.get();
        // A begun millisecond is a whole one.
        let delay = if pace.delay == 0 { 0 } else { pace.delay.saturating_add(1) };
        let limits = Limits {
            delay,
            jitter: pace.jitter,
            connections: pace.connections,
            not_before: pace.not_before.saturating_add(millis(epoch.elapsed())),
            right: pace.right,
            tries,
            first_wait: millis(first_wait),
        };
        Self {
            turn: RefCell::new(Turn::new(limits, count)),
            epoch,
            hearing,
            begun: Cell::new(0),
            connections: pace.connections,
            delay,
            clock: Rc::default(),
            changed: Notify::new(),
        }
    }

    /// What may be done now.
    pub fn outlook(&self) -> Claim {
        self.turn.borrow().outlook(self.now(), self.heard())
    }

    /// The same, and a request is taken.
    pub fn claim(&self) -> Claim {
        self.turn.borrow_mut().claim(self.now(), self.heard())
    }

    /// A time as the clock of this machine has it.
    #[must_use]
    pub fn instant(&self, at: Millis) -> Instant {
        // A time that cannot be told is far enough away.
        self.epoch.checked_add(Duration::from_millis(at)).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400))
    }

    /// Waits until a claimed request, or its next hop, may begin; false if it may not any more.
    pub async fn begin(&self, place: usize) -> bool {
        loop {
            let (changed, heard) = (self.changed.notified(), self.hearing.again.notified());
            let verdict = self.turn.borrow_mut().begin(place, self.now(), self.heard(), random_fraction());
            match verdict {
                Begin::Go => {
                    self.begun.set(self.begun.get().saturating_add(1));
                    self.clock.last_began.set(Some(Instant::now()));
                    self.changed.notify_waiters();
                    return true;
                }
                Begin::Over => return false,
                Begin::At(at) => tokio::select! {
                    () = sleep_until(self.instant(at)) => {}
                    () = changed => {}
                },
                Begin::Later => tokio::select! {
                    () = heard => {}
                    () = changed => {}
                },
            }
        }
    }

    /// A site has answered. The first requests had to wait for their connections, which the next ones find made: so that
    /// they do not come to the site too soon after them, the delay is counted from here.
    pub fn answered(&self) {
        if self.begun.get() <= self.connections {
            self.turn.borrow_mut().wait_until(self.now().saturating_add(self.delay));
        }
    }

    /// A request has ended, after so many tries.
    pub fn end(&self, place: usize, end: End, tries: u32) -> Fate {
        let mut turn = self.turn.borrow_mut();
        let fate = turn.end(place, end, tries, self.now());
        if let Some(Some(until)) = turn.hold() {
            self.clock.held_until.set(Some(self.instant(until)));
        }
        self.changed.notify_waiters();
        fate
    }

    /// What is left when the turn is over.
    pub fn take_rest(&self) -> Vec<usize> {
        self.turn.borrow_mut().take_rest().collect()
    }

    fn now(&self) -> Millis {
        millis(self.epoch.elapsed())
    }

    fn heard(&self) -> Millis {
        millis(self.hearing.last.get().saturating_duration_since(self.epoch))
    }
}
