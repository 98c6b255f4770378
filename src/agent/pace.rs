//! The pace of a block: its [`Turn`] with a clock, for the tasks that wait in it.

use super::turn::{Begin, Claim, End, Limits, Millis, NextStep, Turn};
use crate::domain::backoff::random_fraction;
use crate::protocol::node::{Pace, SiteNews};
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

/// The earliest time at which the last message of the broker may have been sent: it may have lain in a buffer while this process or its
/// machine was suspended.
pub struct Hearing {
    last: Cell<Instant>,
    /// Signals another message.
    pub again: Notify,
}

impl Hearing {
    /// Starts with the present time.
    #[must_use]
    pub fn new() -> Rc<Self> {
        Rc::new(Self { last: Cell::new(Instant::now()), again: Notify::new() })
    }

    /// Records a message that arrived after `since`.
    pub fn hear(&self, since: Instant) {
        self.last.set(self.last.get().max(since));
        self.again.notify_waiters();
    }
}

/// The site data of a report. The times are computed when it is posted.
#[derive(Debug, Default)]
pub struct SiteClock {
    /// When the last request began or ended.
    last: Cell<Option<Instant>>,
    held_until: Cell<Option<Instant>>,
}

impl SiteClock {
    /// The data as of now.
    #[must_use]
    pub fn news(&self) -> SiteNews {
        let now = Instant::now();
        SiteNews {
            retry_after: self.held_until.get().map(|until| millis(until.saturating_duration_since(now))),
            last_began: self.last.get().map(|last| millis(now.saturating_duration_since(last))),
            paused: Vec::new(),
        }
    }
}

fn millis(time: Duration) -> Millis {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Decides when requests begin.
pub struct Gate {
    turn: RefCell<Turn>,
    /// The turn's time 0: when the last message before the block arrived.
    epoch: Instant,
    hearing: Rc<Hearing>,
    /// The site data for reports.
    pub clock: Rc<SiteClock>,
    /// Signals that a request began or ended.
    pub changed: Notify,
}

impl Gate {
    /// A gate for `count` requests of a block, each with this many tries and a pause after the first.
    #[must_use]
    pub fn new(pace: &Pace, count: usize, tries: u32, first_wait: Duration, hearing: Rc<Hearing>) -> Self {
        let epoch = hearing.last.get();
        // Round up to whole milliseconds.
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
        Self { turn: RefCell::new(Turn::new(limits, count)), epoch, hearing, clock: Rc::default(), changed: Notify::new() }
    }

    /// What may be done now.
    pub fn outlook(&self) -> Claim {
        self.turn.borrow().outlook(self.now(), self.heard())
    }

    /// Same as `outlook`, and takes the request.
    pub fn claim(&self) -> Claim {
        self.turn.borrow_mut().claim(self.now(), self.heard())
    }

    /// Converts a time of the turn to this machine's clock.
    #[must_use]
    pub fn instant(&self, at: Millis) -> Instant {
        // A time out of range counts as far away.
        self.epoch.checked_add(Duration::from_millis(at)).unwrap_or_else(|| Instant::now() + Duration::from_secs(86_400))
    }

    /// Waits until a claimed request, or its next hop, may begin; returns false if it may no longer begin.
    pub async fn begin(&self, place: usize) -> bool {
        loop {
            let (changed, heard) = (self.changed.notified(), self.hearing.again.notified());
            let verdict = self.turn.borrow_mut().begin(place, self.now(), self.heard(), random_fraction());
            match verdict {
                Begin::Go => {
                    self.clock.last.set(Some(Instant::now()));
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

    /// Records a redirect that is followed. A request arrives at the site at some time before its answer, so the delay counts from
    /// the answer: then the distance holds at the site, too.
    pub fn answered(&self) {
        self.turn.borrow_mut().answered(self.now());
        self.clock.last.set(Some(Instant::now()));
    }

    /// Records the end of a request, after this many tries.
    pub fn end(&self, place: usize, end: End, tries: u32) -> NextStep {
        let mut turn = self.turn.borrow_mut();
        if !turn.is_claimed(place) {
            self.clock.last.set(Some(Instant::now()));
        }
        let next = turn.end(place, end, tries, self.now());
        if let Some(Some(until)) = turn.hold() {
            self.clock.held_until.set(Some(self.instant(until)));
        }
        self.changed.notify_waiters();
        next
    }

    /// The requests that are left when the turn has ended.
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
