//! The tasks of a worker, and the reports that it still must deliver: decisions only; the caller passes the time.
//!
//! It promises: a task is never held beyond its lease, as far as the worker can know it; a last report is repeated until the broker has
//! acknowledged it; an order that comes twice is one task.
//!
//! A lease counts from a time at which the broker was certainly alive: `proved` is when the worker sent the latest message that got a
//! reply. An order was sent after that reply, so its lease at the broker ends no earlier than `proved` plus the lease here. Later, each
//! heartbeat that names the task renews it, once the reply arrives, from the time when the heartbeat was sent. So the worker's end of a
//! lease is never later than the broker's, whatever the network does and whatever the clocks show.

use crate::protocol::task::{SettledTask, TaskRef, TaskReport};
use std::collections::{HashMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// A last report without an acknowledgement is sent again after this time.
pub(crate) const AGAIN: Duration = Duration::from_secs(5);
/// Maximum number of repeated reports at one time, so that a slow broker is not overloaded.
const MOST_AGAIN: usize = 1_000;

/// A task that was ordered and has not ended.
struct Work<T> {
    handle: T,
    lease: Duration,
    until: Instant,
    /// The number of the first heartbeat that names it.
    since: u64,
    has_begun: bool,
    /// The broker asked it to end: its lease is not renewed any more.
    is_ending: bool,
    /// It was warned that its lease runs out.
    is_warned: bool,
}

/// A last report without an acknowledgement.
struct Last {
    report: TaskReport,
    /// When it was first sent on this connection.
    said: Option<Instant>,
    /// When it was last sent.
    said_last: Option<Instant>,
}

/// What to do about an order.
#[derive(Debug, PartialEq)]
pub(crate) enum Ordered<T> {
    /// Run it.
    Begin(T),
    /// Too little of its lease is certain: it begins after the next reply to a heartbeat.
    Await,
    /// It is in progress, or its last report is sent again.
    Known,
    /// Another worker should get it, for this reason.
    Refuse(String),
}

/// What to do about an order to end.
#[derive(Debug, PartialEq)]
pub(crate) enum OnCancel<T> {
    /// It is running.
    End(T),
    /// It had not begun, and will not.
    NeverBegun,
    /// It has ended, or was never here.
    Unknown,
}

/// Tasks whose lease runs out.
#[derive(Debug, PartialEq)]
pub(crate) struct Expired<T> {
    /// They should end by themselves.
    pub(crate) warned: Vec<T>,
    /// They must be dropped.
    pub(crate) over: Vec<T>,
}

/// How long before the end of a lease a task is warned, so that it can end by itself.
fn warning(lease: Duration) -> Duration {
    (lease / 5).min(Duration::from_secs(2))
}

/// How long before the end of a lease the future is dropped: a timer may be late.
fn margin(lease: Duration) -> Duration {
    (lease / 20).min(Duration::from_millis(50))
}

/// When a task whose lease ends at `until` must begin to end.
pub(crate) fn warn_at(until: Instant, lease: Duration) -> Instant {
    until.checked_sub(warning(lease)).unwrap_or(until)
}

/// The tasks of a worker; `T` is the shell's handle of a task.
pub(crate) struct Ledger<T> {
    slots: usize,
    closed: Option<String>,
    heartbeat: Duration,
    proved: Instant,
    next_beat: Instant,
    /// Heartbeats without a reply.
    beats: VecDeque<(u64, Instant)>,
    beat_no: u64,
    at_work: HashMap<TaskRef, Work<T>>,
    outbox: HashMap<TaskRef, Last>,
    /// Last reports that must be sent.
    unsaid: Vec<TaskRef>,
    /// The earliest time at which a lease may need action.
    check_at: Option<Instant>,
}

impl<T: Clone> Ledger<T> {
    pub(crate) fn new(slots: usize, heartbeat: Duration, now: Instant) -> Self {
        let (at_work, outbox) = (HashMap::new(), HashMap::new());
        let (beats, unsaid) = (VecDeque::new(), Vec::new());
        let (closed, check_at) = (None, None);
        Self { slots, closed, heartbeat, proved: now, next_beat: now, beats, beat_no: 0, at_work, outbox, unsaid, check_at }
    }

    /// Accepts no new tasks from now on, for this reason.
    pub(crate) fn close(&mut self, reason: &str) {
        self.closed.get_or_insert_with(|| reason.to_owned());
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.closed.is_some()
    }

    /// A new connection is established; it was begun at `began`.
    pub(crate) fn connected(&mut self, began: Instant, now: Instant) {
        self.proved = self.proved.max(began);
        self.outbox.values_mut().for_each(|last| last.said = None);
        self.begin_again(now);
    }

    /// The broker at the other end knows nothing of what was sent. Everything without an acknowledgement must be sent again. Tasks that
    /// have not begun are forgotten: the broker may have given them to others, and otherwise sends them again.
    pub(crate) fn begin_again(&mut self, now: Instant) {
        self.forget_waiting();
        self.beats.clear();
        // At once, if there is a lease to renew.
        self.next_beat = if self.at_work.is_empty() { now + self.heartbeat } else { now };
        self.unsaid.clear();
        for (task, last) in &mut self.outbox {
            last.said_last = None;
            self.unsaid.push(*task);
        }
    }

    /// Sets the interval of heartbeats that the broker wants.
    pub(crate) fn set_heartbeat(&mut self, every: Duration, now: Instant) {
        self.heartbeat = every;
        self.next_beat = self.next_beat.min(now + every);
    }

    /// When to send the next heartbeat.
    pub(crate) fn next_beat(&self) -> Instant {
        self.next_beat
    }

    /// All tasks that are in progress or not acknowledged.
    pub(crate) fn tasks(&self) -> Vec<TaskRef> {
        self.at_work.keys().chain(self.outbox.keys()).copied().collect()
    }

    /// Records a heartbeat that is sent now: its number, and the tasks that it names.
    pub(crate) fn beat(&mut self, now: Instant) -> (u64, Vec<TaskRef>) {
        self.beat_no += 1;
        self.beats.push_back((self.beat_no, now));
        let shortest = self.at_work.values().map(|work| work.lease / 3).min();
        self.next_beat = now + self.heartbeat.min(shortest.unwrap_or(self.heartbeat));
        let late = self.outbox.iter().filter(|(_, last)| last.said_last.is_some_and(|said| now.duration_since(said) >= AGAIN));
        let late: Vec<TaskRef> = late.map(|(task, _)| *task).take(MOST_AGAIN).collect();
        for task in late {
            self.say_again(task);
        }
        (self.beat_no, self.tasks())
    }

    /// Records the reply to a heartbeat. Returns the tasks that may begin now.
    pub(crate) fn answered(&mut self, beat: u64, now: Instant) -> Vec<T> {
        let Some(at) = self.beats.iter().position(|(number, _)| *number == beat) else { return Vec::new() };
        // A reply to this heartbeat covers all earlier ones.
        let (_, sent) = self.beats.drain(..=at).next_back().expect("it was found there");
        self.proved = self.proved.max(sent);
        let mut begin = Vec::new();
        let mut earliest = None;
        for work in self.at_work.values_mut().filter(|work| work.since <= beat && !work.is_ending) {
            work.until = work.until.max(sent + work.lease);
            if !work.has_begun && now < warn_at(work.until, work.lease) {
                work.has_begun = true;
                begin.push(work.handle.clone());
                earliest = lower(earliest, warn_at(work.until, work.lease));
            }
        }
        if let Some(at) = earliest {
            self.check_at = lower(self.check_at, at);
        }
        begin
    }

    /// The end of a task's lease, if it is in progress.
    pub(crate) fn until(&self, task: TaskRef) -> Option<Instant> {
        self.at_work.get(&task).map(|work| work.until)
    }

    /// Handles the order of a task; `make` is called with the end of its lease if it is accepted.
    pub(crate) fn order(&mut self, task: TaskRef, lease: Duration, now: Instant, make: impl FnOnce(Instant) -> T) -> Ordered<T> {
        if self.at_work.contains_key(&task) {
            return Ordered::Known;
        }
        if self.outbox.contains_key(&task) {
            self.say_again(task);
            return Ordered::Known;
        }
        if let Some(reason) = &self.closed {
            return Ordered::Refuse(reason.clone());
        }
        if self.at_work.len() >= self.slots {
            return Ordered::Refuse(format!("all {} slots are used", self.slots));
        }
        let until = self.proved + lease;
        let handle = make(until);
        // With less time left it might be warned while its first heartbeat is in flight.
        let remaining = until.saturating_duration_since(now);
        let has_begun = remaining >= lease / 2;
        let work = Work { handle: handle.clone(), lease, until, since: self.beat_no + 1, has_begun, is_ending: false, is_warned: false };
        self.at_work.insert(task, work);
        if has_begun {
            self.check_at = lower(self.check_at, warn_at(until, lease));
            self.next_beat = self.next_beat.min(now + (remaining - warning(lease)) / 3);
            Ordered::Begin(handle)
        } else {
            self.next_beat = self.next_beat.min(now);
            Ordered::Await
        }
    }

    /// The broker asks this attempt to end.
    pub(crate) fn cancel(&mut self, task: TaskRef) -> OnCancel<T> {
        match self.at_work.get_mut(&task) {
            Some(work) if work.has_begun => {
                work.is_ending = true;
                OnCancel::End(work.handle.clone())
            }
            Some(_) => {
                self.at_work.remove(&task);
                OnCancel::NeverBegun
            }
            None => OnCancel::Unknown,
        }
    }

    /// A task has ended or was rejected: stores its last report.
    pub(crate) fn finish(&mut self, report: TaskReport) {
        let task = report.task();
        self.at_work.remove(&task);
        if self.outbox.insert(task, Last { report, said: None, said_last: None }).is_none() {
            self.unsaid.push(task);
        }
    }

    fn say_again(&mut self, task: TaskRef) {
        if let Some(last) = self.outbox.get_mut(&task)
            && last.said_last.take().is_some()
        {
            self.unsaid.push(task);
        }
    }

    pub(crate) fn has_unsaid(&self) -> bool {
        !self.unsaid.is_empty()
    }

    /// The last reports to send now; they count as sent from now on.
    pub(crate) fn say(&mut self, now: Instant) -> Vec<&TaskReport> {
        let unsaid = std::mem::take(&mut self.unsaid);
        for task in &unsaid {
            if let Some(last) = self.outbox.get_mut(task) {
                last.said.get_or_insert(now);
                last.said_last = Some(now);
            }
        }
        unsaid.iter().filter_map(|task| self.outbox.get(task)).map(|last| &last.report).collect()
    }

    /// The broker has acknowledged these reports: they are on disk, or rejected.
    pub(crate) fn settle(&mut self, settled: &[SettledTask]) {
        for task in settled.iter().map(SettledTask::task) {
            // It may acknowledge the first time that it was sent.
            if let Some(said) = self.outbox.remove(&task).and_then(|last| last.said) {
                self.proved = self.proved.max(said);
            }
        }
    }

    /// The earliest time at which a lease may need action.
    pub(crate) fn check_at(&self) -> Option<Instant> {
        self.check_at
    }

    /// Checks the leases.
    pub(crate) fn expire(&mut self, now: Instant) -> Expired<T> {
        let mut expired = Expired { warned: Vec::new(), over: Vec::new() };
        self.check_at = None;
        for work in self.at_work.values_mut().filter(|work| work.has_begun) {
            let drop_at = work.until.checked_sub(margin(work.lease)).unwrap_or(work.until);
            let warn_at = warn_at(work.until, work.lease);
            if now >= drop_at {
                expired.over.push(work.handle.clone());
                continue;
            }
            if now >= warn_at && !std::mem::replace(&mut work.is_warned, true) {
                expired.warned.push(work.handle.clone());
            }
            self.check_at = lower(self.check_at, if work.is_warned { drop_at } else { warn_at });
        }
        expired
    }

    /// The running tasks.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = &T> {
        self.at_work.values().filter(|work| work.has_begun).map(|work| &work.handle)
    }

    /// Forgets tasks that have not begun.
    pub(crate) fn forget_waiting(&mut self) {
        self.at_work.retain(|_, work| work.has_begun);
    }

    /// Whether no task is running.
    pub(crate) fn is_idle(&self) -> bool {
        self.at_work.is_empty()
    }

    /// Whether no task is running and all reports are acknowledged.
    pub(crate) fn is_settled(&self) -> bool {
        self.at_work.is_empty() && self.outbox.is_empty()
    }
}

fn lower(a: Option<Instant>, b: Instant) -> Option<Instant> {
    Some(a.map_or(b, |a| a.min(b)))
}
