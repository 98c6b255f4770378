//! Lives and deaths of actors.
//!
//! actix 0.13's `Supervisor` does not restart an actor that panicked. So each child holds a [`ExitGuard`]; dropped without
//! [`ExitGuard::finish`], by a panic or an early stop, it tells the registry, which builds a new child from what is stored.

use crate::domain::ids::{Identity, JobId, NodeId, WorkerId};
use crate::domain::time::Timestamp;
use crate::protocol::api::ActorOutput;
use actix::dev::ToEnvelope;
use actix::{Actor, Addr, Handler, Message};
use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

/// Which child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ChildKey {
    /// The dispatcher.
    Dispatcher,
    /// Who gives tasks to workers.
    Allocator,
    /// The scheduler.
    Scheduler,
    /// Who sends alerts.
    Alerts,
    /// Who cleans up.
    Janitor,
    /// A job.
    Job(JobId),
    /// A run of a block job.
    Run(Identity),
    /// A run of a callback job.
    Callback(Identity),
    /// A run of a task job.
    Task(Identity),
    /// A run of an application job.
    Application(Identity),
    /// A node.
    Node(NodeId),
    /// A worker.
    Worker(WorkerId),
}

impl ChildKey {
    /// Its kind, and its name among its kind.
    #[must_use]
    pub fn names(self) -> (&'static str, String) {
        match self {
            Self::Dispatcher => ("dispatcher", "dispatcher".to_owned()),
            Self::Allocator => ("allocator", "allocator".to_owned()),
            Self::Scheduler => ("scheduler", "scheduler".to_owned()),
            Self::Alerts => ("alerts", "alerts".to_owned()),
            Self::Janitor => ("janitor", "janitor".to_owned()),
            Self::Job(id) => ("job", id.to_string()),
            Self::Run(id) => ("run", id.to_string()),
            Self::Callback(id) => ("callback", id.to_string()),
            Self::Task(id) => ("task", id.to_string()),
            Self::Application(id) => ("application", id.to_string()),
            Self::Node(id) => ("node", id.to_string()),
            Self::Worker(id) => ("worker", id.to_string()),
        }
    }
}

/// What can be seen of an actor from outside. It outlives the actor's deaths.
#[derive(Debug)]
pub struct Stats {
    kind: &'static str,
    name: String,
    parent: Option<&'static str>,
    since: AtomicI64,
    restarts: AtomicU32,
    told: AtomicU64,
    handled: AtomicU64,
    words: Mutex<Words>,
}

#[derive(Debug, Default)]
struct Words {
    state: &'static str,
    last_error: Option<String>,
}

impl Stats {
    /// Of an actor that is being started.
    #[must_use]
    pub fn new(kind: &'static str, name: String, parent: Option<&'static str>) -> Arc<Self> {
        Arc::new(Self {
            kind,
            name,
            parent,
            since: AtomicI64::new(Timestamp::now().0),
            restarts: AtomicU32::new(0),
            told: AtomicU64::new(0),
            handled: AtomicU64::new(0),
            words: Mutex::new(Words { state: "running", last_error: None }),
        })
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A message was sent to it.
    pub fn told(&self) {
        self.told.fetch_add(1, Relaxed);
    }

    /// It begins to handle a message.
    pub fn handled(&self) {
        self.handled.fetch_add(1, Relaxed);
    }

    /// Says in a word what it does.
    pub fn set_state(&self, state: &'static str) {
        self.words().state = state;
    }

    /// Remembers what went wrong.
    pub fn set_error(&self, error: impl Into<String>) {
        self.words().last_error = Some(error.into());
    }

    /// What went wrong last.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.words().last_error.clone()
    }

    /// It lives again. What waited in the dead one's mailbox is gone with it.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Relaxed);
        self.since.store(Timestamp::now().0, Relaxed);
        self.told.store(self.handled.load(Relaxed), Relaxed);
        self.set_state("running");
    }

    /// As the API shows it.
    #[must_use]
    pub fn output(&self, now: Timestamp) -> ActorOutput {
        let handled = self.handled.load(Relaxed);
        let words = self.words();
        ActorOutput {
            kind: self.kind.to_owned(),
            name: self.name.clone(),
            label: None,
            parent: self.parent.map(str::to_owned),
            state: words.state.to_owned(),
            age: now.since_ms(Timestamp(self.since.load(Relaxed))),
            restarts: self.restarts.load(Relaxed),
            queue_depth: self.told.load(Relaxed).saturating_sub(handled),
            messages_handled: handled,
            last_error: words.last_error.clone(),
        }
    }
}

/// The actors that live, for those who look on; by where their figures stand, which is theirs alone while they are here.
#[derive(Debug, Default)]
pub struct ActorStats(Mutex<HashMap<usize, Arc<Stats>>>);

impl ActorStats {
    /// Adds one.
    pub fn enter(&self, stats: &Arc<Stats>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::as_ptr(stats).addr(), Arc::clone(stats));
    }

    /// Takes one out.
    pub fn leave(&self, stats: &Stats) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(&std::ptr::from_ref(stats).addr());
    }

    /// All of them, by kind and name.
    #[must_use]
    pub fn list(&self, now: Timestamp) -> Vec<ActorOutput> {
        let mut all: Vec<_> = self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect();
        all.sort_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        all.iter().map(|stats| stats.output(now)).collect()
    }
}

/// An actor's address, and the gauge of its mailbox.
pub struct Link<A: Actor> {
    addr: Addr<A>,
    stats: Arc<Stats>,
}

impl<A: Actor> Clone for Link<A> {
    fn clone(&self) -> Self {
        Self { addr: self.addr.clone(), stats: Arc::clone(&self.stats) }
    }
}

impl<A: Actor> Link<A> {
    /// Of a started actor.
    #[must_use]
    pub fn new(addr: Addr<A>, stats: Arc<Stats>) -> Self {
        Self { addr, stats }
    }

    /// Sends and goes on. A message to an actor that is dead is lost; a [`super::reply::Reply`] in it then says so.
    pub fn tell<M>(&self, message: M)
    where
        M: Message + Send + 'static,
        M::Result: Send,
        A: Handler<M>,
        A::Context: ToEnvelope<A, M>,
    {
        self.stats.told();
        self.addr.do_send(message);
    }

    /// What can be seen of it.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }
}

impl<A: Actor> std::fmt::Debug for Link<A> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.stats.kind, self.stats.name)
    }
}

/// A child's death, as its exit guard reports it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Death {
    /// Who died.
    pub key: ChildKey,
    /// In which life: a late report of an earlier one changes nothing.
    pub generation: u64,
    /// Of what.
    pub error: String,
}

/// Held by each child; see the module's text.
pub struct ExitGuard {
    stats: Arc<Stats>,
    key: ChildKey,
    generation: u64,
    tell: Option<Box<dyn FnOnce(Death) + Send>>,
}

impl ExitGuard {
    /// An exit guard that is handed to `tell` if the child dies.
    #[must_use]
    pub fn new(stats: Arc<Stats>, key: ChildKey, generation: u64, tell: impl FnOnce(Death) + Send + 'static) -> Self {
        Self { stats, key, generation, tell: Some(Box::new(tell)) }
    }

    /// To be called first in every handler: counts the message, and is where a test may make the actor panic.
    pub fn message(&self, place: &str) {
        self.stats.handled();
        crate::fault::point(place);
    }

    /// What can be seen of the child.
    #[must_use]
    pub fn stats(&self) -> &Arc<Stats> {
        &self.stats
    }

    /// The child ends because it is done: nobody is to be told.
    pub fn finish(&mut self) {
        self.tell = None;
    }
}

impl Drop for ExitGuard {
    fn drop(&mut self) {
        let Some(tell) = self.tell.take() else { return };
        let error = if std::thread::panicking() { last_panic() } else { self.stats.last_error().unwrap_or_else(|| "stopped".to_owned()) };
        self.stats.set_state("restarting");
        self.stats.set_error(error.clone());
        tell(Death { key: self.key, generation: self.generation, error });
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

/// Makes panics go to the log, and keeps the text for the exit guard of the actor that died of it.
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

/// How often a child may die before it is given up, and how long to wait before it is built again.
#[derive(Debug, Default, Clone)]
pub struct Budget {
    deaths: Vec<Timestamp>,
}

impl Budget {
    const MOST: usize = 10;
    const WINDOW_MS: i64 = 60_000;

    /// A death at `now`: milliseconds to wait, or `None` if it was one too many.
    pub fn spend(&mut self, now: Timestamp) -> Option<u64> {
        self.deaths.retain(|death| now.since_ms(*death) < Self::WINDOW_MS);
        self.deaths.push(now);
        let n = self.deaths.len();
        (n <= Self::MOST).then(|| (20_u64 << n.min(8)).min(5_000))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_may_die_ten_times_a_minute() {
        let mut budget = Budget::default();
        let waits: Vec<_> = (0..11).map(|i| budget.spend(Timestamp(i))).collect();
        assert_eq!(waits[0], Some(40));
        assert!(waits[..10].windows(2).all(|w| w[0] <= w[1]));
        assert_eq!(waits[10], None);
        assert_eq!(budget.spend(Timestamp(200_000)), Some(40), "a minute later all is forgiven");
    }
}
