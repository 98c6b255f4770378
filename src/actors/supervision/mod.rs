//! Start and end of actors.
//!
//! actix 0.13's `Supervisor` does not restart an actor that panicked. So each child holds an [`ExitGuard`]. Dropped without
//! [`ExitGuard::finish`], by a panic or an early stop, it notifies the registry, which rebuilds the child from the store.

mod stats;

pub use stats::{ActorStats, Stats, Timed};

use crate::domain::ids::{Identity, JobId, NodeId, WorkerId};
use crate::domain::job::JobKind;
use crate::domain::time::Timestamp;
use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};
use std::any::Any;
use std::cell::RefCell;
use std::sync::{Arc, PoisonError, RwLock};

/// Identifies a child of the registry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ChildKey {
    /// The dispatcher.
    Dispatcher,
    /// The allocator, which assigns tasks to workers.
    Allocator,
    /// The scheduler.
    Scheduler,
    /// The brokers that own runs.
    RunOwners,
    /// The alert sender.
    Alerts,
    /// The janitor.
    Janitor,
    /// The recorder of the time series.
    Recorder,
    /// A job.
    Job(JobId),
    /// A run of a job of this kind.
    Run(JobKind, Identity),
    /// A node.
    Node(NodeId),
    /// A worker.
    Worker(WorkerId),
}

impl ChildKey {
    /// The kind of the child, and its name within the kind.
    #[must_use]
    pub fn names(self) -> (&'static str, String) {
        match self {
            Self::Dispatcher => ("dispatcher", "dispatcher".to_owned()),
            Self::Allocator => ("allocator", "allocator".to_owned()),
            Self::Scheduler => ("scheduler", "scheduler".to_owned()),
            Self::RunOwners => ("run-owners", "run-owners".to_owned()),
            Self::Alerts => ("alerts", "alerts".to_owned()),
            Self::Janitor => ("janitor", "janitor".to_owned()),
            Self::Recorder => ("recorder", "recorder".to_owned()),
            Self::Job(id) => ("job", id.to_string()),
            Self::Run(JobKind::Block, id) => ("run", id.to_string()),
            Self::Run(kind, id) => (kind.name(), id.to_string()),
            Self::Node(id) => ("node", id.to_string()),
            Self::Worker(id) => ("worker", id.to_string()),
        }
    }

    /// The child in log lines: `Task(…)` for a run of a task job.
    #[must_use]
    pub fn label(self) -> String {
        match self {
            Self::Run(JobKind::Block, id) => format!("Run({id:?})"),
            Self::Run(kind, id) => format!("{kind:?}({id:?})"),
            other => format!("{other:?}"),
        }
    }
}

/// Passes a message on to an actor of another broker.
pub type PassOn = dyn Fn(Passed) + Send + Sync;
/// A message of any type.
pub type Passed = Box<dyn Any + Send>;

/// An actor's address, and its message counters.
pub struct Link<A: Actor> {
    to: To<A>,
    stats: Arc<Stats>,
}

enum To<A: Actor> {
    Actor(Addr<A>),
    /// At another broker.
    Elsewhere(Arc<PassOn>),
    #[cfg(test)]
    Recording(Recording),
}

impl<A: Actor> Clone for Link<A> {
    fn clone(&self) -> Self {
        let to = match &self.to {
            To::Actor(addr) => To::Actor(addr.clone()),
            To::Elsewhere(pass_on) => To::Elsewhere(Arc::clone(pass_on)),
            #[cfg(test)]
            To::Recording(recording) => To::Recording(recording.clone()),
        };
        Self { to, stats: Arc::clone(&self.stats) }
    }
}

impl<A: Actor> Link<A> {
    /// A link to a started actor.
    #[must_use]
    pub fn new(addr: Addr<A>, stats: Arc<Stats>) -> Self {
        Self { to: To::Actor(addr), stats }
    }

    /// A link to an actor of another broker.
    #[must_use]
    pub fn elsewhere(key: ChildKey, pass_on: impl Fn(Passed) + Send + Sync + 'static) -> Self {
        let (kind, name) = key.names();
        Self { to: To::Elsewhere(Arc::new(pass_on)), stats: Stats::new(kind, name, None) }
    }

    /// Sends without waiting. A message to an ended actor is lost; a [`super::reply::Reply`] in it returns an error.
    pub fn tell<M>(&self, message: M)
    where
        M: Message + Send + std::fmt::Debug + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        match &self.to {
            To::Actor(addr) => {
                // A message to an ended actor is in no queue.
                if addr.connected() {
                    self.stats.told();
                }
                addr.do_send(message);
            }
            To::Elsewhere(pass_on) => pass_on(Box::new(message)),
            #[cfg(test)]
            To::Recording(recording) => recording.push(format!("{message:?}")),
        }
    }
}

/// A link to an actor that the broker has once. It stays valid when the registry replaces the actor. Messages before the first start are
/// lost, as are those between a crash and the restart.
pub struct CurrentLink<A: Actor>(Arc<RwLock<Option<Link<A>>>>);

impl<A: Actor> CurrentLink<A> {
    /// From now on messages go to this actor.
    pub fn set(&self, link: Link<A>) {
        let before = self.0.write().unwrap_or_else(PoisonError::into_inner).replace(link);
        // Without the lock: the messages that wait there may end with it.
        drop(before);
    }

    /// See [`Link::tell`].
    pub fn tell<M>(&self, message: M)
    where
        M: Message + Send + std::fmt::Debug + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        if let Some(link) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            link.tell(message);
        }
    }
}

impl<A: Actor> Clone for CurrentLink<A> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<A: Actor> Default for CurrentLink<A> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<A: Actor> std::fmt::Debug for CurrentLink<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The messages that a test sent, in order: links of a test record them instead of sending them to an actor.
#[cfg(test)]
#[derive(Debug, Clone, Default)]
pub struct Recording(Arc<std::sync::Mutex<Vec<String>>>);

#[cfg(test)]
impl Recording {
    /// A link that records.
    pub fn link<A: Actor>(&self, key: ChildKey) -> Link<A> {
        let (kind, name) = key.names();
        Link { to: To::Recording(self.clone()), stats: Stats::new(kind, name, None) }
    }

    /// Adds something.
    pub fn push(&self, text: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(text);
    }

    /// Number of messages since the last call of [`Self::names`].
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// What was recorded since the last call: the names of the messages.
    pub fn names(&self) -> Vec<String> {
        let texts = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        texts.iter().map(|text| text.chars().take_while(|c| c.is_alphanumeric()).collect()).collect()
    }
}

impl<A: Actor> std::fmt::Debug for Link<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.stats)
    }
}

/// The end of a child, as its exit guard reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// The child.
    pub key: ChildKey,
    /// The incarnation of the child. A late report of an earlier incarnation is ignored.
    pub generation: u64,
    /// The error.
    pub error: String,
    /// See [`ExitGuard::set_outage`].
    pub is_outage: bool,
}

/// Held by each child; see the module documentation.
pub struct ExitGuard {
    stats: Arc<Stats>,
    key: ChildKey,
    generation: u64,
    is_outage: bool,
    tell: Option<Box<dyn FnOnce(Death) + Send>>,
}

impl ExitGuard {
    /// An exit guard that calls `tell` if the child ends without `finish`.
    #[must_use]
    pub fn new(stats: Arc<Stats>, key: ChildKey, generation: u64, tell: impl FnOnce(Death) + Send + 'static) -> Self {
        Self { stats, key, generation, is_outage: false, tell: Some(Box::new(tell)) }
    }

    /// Call this first in every handler, or [`Self::timed`]: it counts the message, and tests can make the actor panic here.
    pub fn message(&self, place: &'static str) {
        self.stats.handled(place);
        crate::fault::point(place);
    }

    /// The same, and the message takes until the result is dropped.
    #[must_use = "the message takes until this is dropped"]
    pub fn timed(&self, place: &'static str) -> Timed {
        self.message(place);
        Timed::new(&self.stats, place)
    }

    /// Monitoring data of the child.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The child ends because the store accepts no writes. This does not count as a crash.
    pub fn set_outage(&mut self) {
        self.is_outage = true;
    }

    /// The child has completed its work, so the guard reports nothing.
    pub fn finish(&mut self) {
        self.tell = None;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let Some(tell) = self.tell.take() else { return };
        let error = if std::thread::panicking() { last_panic() } else { self.stats.last_error().unwrap_or_else(|| "stopped".to_owned()) };
        self.stats.set_state("restarting");
        self.stats.died(Timestamp::now(), &error);
        tell(Death { key: self.key, generation: self.generation, error, is_outage: self.is_outage });
    }
}

impl std::fmt::Debug for ExitGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "guard of {:?}", self.key)
    }
}

thread_local! {
    static LAST_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

fn last_panic() -> String {
    LAST_PANIC.with(|cell| cell.borrow_mut().take()).unwrap_or_else(|| "panicked".to_owned())
}

/// Writes panics to the log, and keeps the text for the exit guard of the actor that panicked.
pub fn log_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|t| (*t).to_owned()).or_else(|| payload.downcast_ref::<String>().cloned());
        let text = text.unwrap_or_else(|| "panicked".to_owned());
        let place = info.location().map(|l| format!(" at {}:{}", l.file(), l.line())).unwrap_or_default();
        log::error!("panic: {text}{place}");
        LAST_PANIC.with(|cell| *cell.borrow_mut() = Some(text));
    }));
}

/// How often a child may crash before the registry gives it up, and the delay before each restart.
#[derive(Debug, Default, Clone)]
pub struct Budget {
    /// When it ended, and whether that was a crash of its own.
    deaths: Vec<(Timestamp, bool)>,
}

impl Budget {
    const MOST: usize = 10;
    const WINDOW_MS: i64 = 60_000;

    /// Records a death at `now`. Returns the milliseconds to wait, or `None` if there were too many crashes. One for which the store is
    /// the cause is no crash.
    pub fn spend(&mut self, now: Timestamp, is_outage: bool) -> Option<u64> {
        self.deaths.retain(|(death, _)| now.since_ms(*death) < Self::WINDOW_MS);
        self.deaths.push((now, !is_outage));
        let crashes = self.deaths.iter().filter(|(_, is_crash)| *is_crash).count();
        (crashes <= Self::MOST).then(|| (20_u64 << self.deaths.len().min(8)).min(5_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_current_link_goes_to_the_last_actor() {
        use crate::actors::placement::dispatcher::{Dispatcher, PauseChanged};
        let (first, second) = (Recording::default(), Recording::default());
        let link = CurrentLink::<Dispatcher>::default();
        let user = link.clone();
        user.tell(PauseChanged);
        link.set(first.link(ChildKey::Dispatcher));
        user.tell(PauseChanged);
        link.set(second.link(ChildKey::Dispatcher));
        user.tell(PauseChanged);
        assert_eq!((first.names(), second.names()), (vec!["PauseChanged".to_owned()], vec!["PauseChanged".to_owned()]));
    }

    #[test]
    fn a_link_to_another_broker_passes_messages_on_as_they_are() {
        use crate::actors::by_type::by_type;
        use crate::actors::placement::dispatcher::{Dispatcher, PauseChanged, RunGone};
        let passed = Arc::new(std::sync::Mutex::new(Vec::new()));
        let seen = Arc::clone(&passed);
        let link = Link::<Dispatcher>::elsewhere(ChildKey::Dispatcher, move |message| {
            seen.lock().expect("locked").push(by_type!(message, RunGone: RunGone(identity) => identity));
        });
        let identity = Identity::random();
        link.clone().tell(RunGone(identity));
        link.tell(PauseChanged);
        assert_eq!(*passed.lock().expect("locked"), [Some(identity), None], "the other one has no form there");
    }

    #[test]
    fn a_child_may_die_ten_times_a_minute() {
        let mut budget = Budget::default();
        let waits: Vec<_> = (0..11).map(|i| budget.spend(Timestamp(i), false)).collect();
        assert_eq!(waits[0], Some(40));
        assert!(waits[..10].windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(waits[10], None);
        assert_eq!(budget.spend(Timestamp(200_000), false), Some(40), "a minute later all is forgiven");
    }

    #[test]
    fn a_child_outlives_every_outage_of_the_store() {
        let mut budget = Budget::default();
        let waits: Vec<_> = (0..40).map(|i| budget.spend(Timestamp(i), true)).collect();
        assert_eq!((waits[0], waits[39]), (Some(40), Some(5_000)));
        let crashes: Vec<_> = (40..51).map(|i| budget.spend(Timestamp(i), false)).collect();
        assert_eq!((crashes[9], crashes[10]), (Some(5_000), None), "its own crashes count as ever");
    }
}
