//! Monitoring data of the actors.

use crate::domain::time::Timestamp;
use crate::protocol::actors::{ActorDetail, ActorFilter, CrashOutput, DepthOutput, KindOutput, MessagesOutput, RecentOutput};
use crate::protocol::api::ActorOutput;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::atomic::{AtomicI64, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Number of crashes that are kept.
const MOST_CRASHES: usize = 20;
/// Number of recent messages that are kept: 24 bytes each, from the first message on.
const MOST_RECENT: usize = 10;
/// Bounds of the counts of waiting messages.
const DEPTHS: [u64; 7] = [1, 3, 10, 30, 100, 300, 1_000];

/// Monitoring data of an actor. It survives restarts of the actor.
#[derive(Debug)]
pub struct Stats {
    kind: &'static str,
    name: String,
    parent: Option<&'static str>,
    since: AtomicI64,
    restarts: AtomicU32,
    told: AtomicU64,
    handled: AtomicU64,
    /// Work that waits, in the unit of the kind: requests of a run.
    waiting: AtomicU64,
    words: Mutex<Words>,
    messages: Mutex<Handled>,
}

#[derive(Debug, Default)]
struct Words {
    state: &'static str,
    last_error: Option<String>,
    label: Option<Arc<str>>,
    crashes: VecDeque<(Timestamp, String)>,
}

/// The messages that an actor has handled.
#[derive(Debug, Clone, Default)]
struct Handled {
    /// By type; an actor has few types of messages.
    types: Vec<Messages>,
    /// The last ones, the newest last: place of the type, begin, and microseconds.
    recent: VecDeque<(u8, u32, Instant)>,
    /// How often this many waited, by the bounds, and how often more.
    depths: [u32; DEPTHS.len() + 1],
}

impl Handled {
    /// The place of a type.
    fn of_type(&mut self, place: &'static str) -> usize {
        self.types.iter().position(|messages| messages.place == place).unwrap_or_else(|| {
            self.types.push(Messages { place, count: 0, timed: 0, nanos: 0 });
            self.types.len() - 1
        })
    }

    fn begin(&mut self, place: &'static str, depth: u64) {
        let i = self.of_type(place);
        self.types[i].count += 1;
        let bound = DEPTHS.partition_point(|bound| *bound < depth);
        self.depths[bound] = self.depths[bound].saturating_add(1);
    }

    fn end(&mut self, place: &'static str, begin: Instant) {
        let took = begin.elapsed();
        let i = self.of_type(place);
        let messages = &mut self.types[i];
        messages.timed += 1;
        messages.nanos = messages.nanos.saturating_add(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if self.recent.len() == MOST_RECENT {
            self.recent.pop_front();
        } else if self.recent.is_empty() {
            self.recent.reserve_exact(MOST_RECENT);
        }
        let micros = u32::try_from(took.as_micros()).unwrap_or(u32::MAX);
        self.recent.push_back((u8::try_from(i).unwrap_or(u8::MAX), micros, begin));
    }

    fn recent(&self, now: Timestamp) -> Vec<RecentOutput> {
        let of = |(i, time, begin): &(u8, u32, Instant)| {
            let ago = i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX);
            let place = self.types.get(usize::from(*i)).map_or("", |messages| messages.place);
            RecentOutput { r#type: place.to_owned(), at: now.plus_ms(-ago), time: *time }
        };
        self.recent.iter().rev().map(of).collect()
    }

    fn depths(&self) -> Vec<DepthOutput> {
        let bounds = DEPTHS.into_iter().map(Some).chain([None]);
        bounds.zip(self.depths).map(|(up_to, count)| DepthOutput { up_to, count: count.into() }).collect()
    }
}

/// Messages of one type.
#[derive(Debug, Clone, Copy)]
struct Messages {
    place: &'static str,
    count: u64,
    /// How many of them were timed, and how long these took together.
    timed: u64,
    nanos: u64,
}

impl Messages {
    /// Microseconds for a message; `None` if none was timed.
    fn micros(timed: u64, nanos: u64) -> Option<f64> {
        (timed > 0).then(|| (nanos as f64 / timed as f64 / 100.0).round() / 10.0)
    }
}

impl Stats {
    /// The kind of the actor.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// Data of an actor that is starting.
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
            waiting: AtomicU64::new(0),
            words: Mutex::new(Words { state: "running", ..Words::default() }),
            messages: Mutex::default(),
        })
    }

    fn words(&self) -> std::sync::MutexGuard<'_, Words> {
        self.words.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn messages(&self) -> std::sync::MutexGuard<'_, Handled> {
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a message that was sent to the actor.
    pub fn told(&self) {
        self.told.fetch_add(1, Relaxed);
    }

    /// Counts a message of this type that the actor begins to handle.
    pub fn handled(&self, place: &'static str) {
        let depth = self.depth();
        self.handled.fetch_add(1, Relaxed);
        self.messages().begin(place, depth);
    }

    /// Sets the amount of work that waits.
    pub fn set_waiting(&self, amount: u64) {
        self.waiting.store(amount, Relaxed);
    }

    /// Sets the state of the actor, in one word.
    pub fn set_state(&self, state: &'static str) {
        self.words().state = state;
    }

    /// Sets the name for people.
    pub fn set_label(&self, label: &str) {
        let mut words = self.words();
        if words.label.as_deref() != Some(label) {
            words.label = Some(label.into());
        }
    }

    /// Stores the last error.
    pub fn set_error(&self, error: impl Into<String>) {
        self.words().last_error = Some(error.into());
    }

    /// Records the end of the actor for this reason.
    pub fn died(&self, now: Timestamp, reason: &str) {
        let mut words = self.words();
        words.last_error = Some(reason.to_owned());
        words.crashes.truncate(MOST_CRASHES - 1);
        words.crashes.push_front((now, reason.to_owned()));
    }

    /// The last error.
    #[must_use]
    pub fn last_error(&self) -> Option<String> {
        self.words().last_error.clone()
    }

    /// Records a restart, which is not over yet. The messages in the mailbox of the crashed actor are lost.
    pub fn restarted(&self) {
        self.restarts.fetch_add(1, Relaxed);
        self.since.store(Timestamp::now().0, Relaxed);
        self.told.store(self.handled.load(Relaxed), Relaxed);
        self.set_state("restarting");
    }

    /// How many messages were timed, and how many nanoseconds they took.
    fn timed(&self) -> (u64, u64) {
        self.messages().types.iter().fold((0, 0), |(timed, nanos), messages| (timed + messages.timed, nanos + messages.nanos))
    }

    fn depth(&self) -> u64 {
        self.told.load(Relaxed).saturating_sub(self.handled.load(Relaxed))
    }

    /// The data in the format of the API.
    #[must_use]
    pub fn output(&self, now: Timestamp) -> ActorOutput {
        let (timed, nanos) = self.timed();
        let words = self.words();
        ActorOutput {
            kind: self.kind.to_owned(),
            name: self.name.clone(),
            broker_id: None,
            label: words.label.as_deref().map(str::to_owned),
            parent: self.parent.map(str::to_owned),
            state: words.state.to_owned(),
            age: now.since_ms(Timestamp(self.since.load(Relaxed))),
            restarts: self.restarts.load(Relaxed),
            queue_depth: self.depth(),
            messages_handled: self.handled.load(Relaxed),
            time_per_message: Messages::micros(timed, nanos),
            last_error: words.last_error.clone(),
        }
    }

    fn detail(&self, now: Timestamp) -> ActorDetail {
        let handled = self.messages().clone();
        let (recent, depths, mut messages) = (handled.recent(now), handled.depths(), handled.types);
        messages.sort_by(|a, b| b.count.cmp(&a.count).then(a.place.cmp(b.place)));
        let messages = messages.into_iter().map(|of| MessagesOutput {
            r#type: of.place.to_owned(),
            count: of.count,
            time: Messages::micros(of.timed, of.nanos),
        });
        let crashes = self.words().crashes.iter().map(|(at, reason)| CrashOutput { at: *at, reason: reason.clone() }).collect();
        ActorDetail { actor: self.output(now), waiting: self.waiting.load(Relaxed), messages: messages.collect(), recent, depths, crashes }
    }

    /// Whether the filter selects this actor. The text is in lower case.
    fn fits(&self, filter: &ActorFilter) -> bool {
        let ActorFilter { kind, text, errors, .. } = filter;
        if kind.as_ref().is_some_and(|kind| kind != self.kind) {
            return false;
        }
        let words = self.words();
        let has_error = words.last_error.is_some() || self.restarts.load(Relaxed) > 0;
        let contains = |text: &str| {
            self.name.to_lowercase().contains(text) || words.label.as_ref().is_some_and(|label| label.to_lowercase().contains(text))
        };
        errors.is_none_or(|wanted| wanted == has_error) && text.as_deref().is_none_or(contains)
    }
}

impl std::fmt::Display for Stats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// Measures how long a message takes, until it is dropped.
#[derive(Debug)]
pub struct Timed {
    stats: Arc<Stats>,
    place: &'static str,
    begin: Instant,
}

impl Timed {
    /// Begins now.
    #[must_use]
    pub fn new(stats: &Arc<Stats>, place: &'static str) -> Self {
        Self { stats: Arc::clone(stats), place, begin: Instant::now() }
    }
}

impl Drop for Timed {
    fn drop(&mut self) {
        self.stats.messages().end(self.place, self.begin);
    }
}

/// The live actors, for monitoring. The key is the address of their `Stats`, which is unique while they are listed.
#[derive(Debug, Default)]
pub struct ActorStats {
    alive: Mutex<HashMap<usize, Arc<Stats>>>,
    /// Messages that ended actors had handled, by kind.
    of_ended: Mutex<HashMap<&'static str, u64>>,
}

impl ActorStats {
    fn all(&self) -> std::sync::MutexGuard<'_, HashMap<usize, Arc<Stats>>> {
        self.alive.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn of_ended(&self) -> std::sync::MutexGuard<'_, HashMap<&'static str, u64>> {
        self.of_ended.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an actor.
    pub fn enter(&self, stats: &Arc<Stats>) {
        self.all().insert(Arc::as_ptr(stats).addr(), Arc::clone(stats));
    }

    /// Removes an actor.
    pub fn leave(&self, stats: &Stats) {
        if self.all().remove(&std::ptr::from_ref(stats).addr()).is_some() {
            *self.of_ended().entry(stats.kind).or_default() += stats.handled.load(Relaxed);
        }
    }

    /// The work that waits at all actors of a kind.
    #[must_use]
    pub fn waiting(&self, kind: &str) -> u64 {
        self.all().values().filter(|stats| stats.kind == kind).map(|stats| stats.waiting.load(Relaxed)).sum()
    }

    /// The actors that a filter selects, ordered by kind and name.
    #[must_use]
    pub fn list(&self, filter: &ActorFilter, now: Timestamp) -> Vec<ActorOutput> {
        let mut all: Vec<_> = self.all().values().cloned().collect();
        let after = filter.after.as_ref().map(|(kind, name)| (kind.as_str(), name.as_str()));
        all.retain(|stats| after.is_none_or(|after| (stats.kind, stats.name.as_str()) > after) && stats.fits(filter));
        all.sort_unstable_by(|a, b| (a.kind, &a.name).cmp(&(b.kind, &b.name)));
        all.iter().take(filter.limit.unwrap_or(usize::MAX)).map(|stats| stats.output(now)).collect()
    }

    /// An actor.
    #[must_use]
    pub fn find(&self, kind: &str, name: &str, now: Timestamp) -> Option<ActorDetail> {
        let found = self.all().values().find(|stats| stats.kind == kind && stats.name == name).cloned();
        found.map(|stats| stats.detail(now))
    }

    /// The sums of each kind, by kind.
    #[must_use]
    pub fn kinds(&self) -> Vec<KindOutput> {
        let all: Vec<_> = self.all().values().cloned().collect();
        let mut kinds: BTreeMap<&str, (KindOutput, u64, u64)> = BTreeMap::new();
        for stats in all {
            let (kind, timed, nanos) = kinds.entry(stats.kind).or_insert_with(|| {
                let parent = stats.parent.map(str::to_owned);
                (KindOutput { kind: stats.kind.to_owned(), parent, ..KindOutput::default() }, 0, 0)
            });
            let of_this = stats.timed();
            (*timed, *nanos) = (*timed + of_this.0, *nanos + of_this.1);
            kind.count += 1;
            kind.restarts += u64::from(stats.restarts.load(Relaxed));
            kind.queue_depth += stats.depth();
            kind.messages_handled += stats.handled.load(Relaxed);
            let words = stats.words();
            kind.restarting += u64::from(words.state == "restarting");
            kind.with_errors += u64::from(words.last_error.is_some());
        }
        for (kind, handled) in self.of_ended().iter() {
            if let Some((kind, ..)) = kinds.get_mut(kind) {
                kind.messages_handled += handled;
            }
        }
        let of = |(kind, timed, nanos)| KindOutput { time_per_message: Messages::micros(timed, nanos), ..kind };
        kinds.into_values().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(actors: &[ActorOutput]) -> Vec<&str> {
        actors.iter().map(|actor| actor.name.as_str()).collect()
    }

    #[test]
    fn actors_are_found_by_kind_text_and_errors_page_by_page() {
        let all = ActorStats::default();
        let made: Vec<_> = [("job", "j2"), ("job", "j1"), ("run", "r1"), ("registry", "registry")]
            .into_iter()
            .map(|(kind, name)| Stats::new(kind, name.to_owned(), (kind != "registry").then_some("registry")))
            .collect();
        made.iter().for_each(|stats| all.enter(stats));
        made[0].set_label("Nightly Sum");
        made[2].died(Timestamp(5), "boom");
        let list = |filter: ActorFilter| all.list(&filter, Timestamp(0));
        assert_eq!(names(&list(ActorFilter::default())), ["j1", "j2", "registry", "r1"]);
        let text = |text: &str| ActorFilter { text: Some(text.to_owned()), ..ActorFilter::default() };
        assert_eq!((names(&list(text("night"))), names(&list(text("j")))), (vec!["j2"], vec!["j1", "j2"]));
        assert_eq!(names(&list(ActorFilter { errors: Some(true), ..ActorFilter::default() })), ["r1"]);
        let page = |after: Option<(&str, &str)>| ActorFilter {
            after: after.map(|(kind, name)| (kind.to_owned(), name.to_owned())),
            limit: Some(2),
            ..ActorFilter::default()
        };
        assert_eq!(names(&list(page(None))), ["j1", "j2"]);
        assert_eq!(names(&list(page(Some(("job", "j2"))))), ["registry", "r1"]);
        assert_eq!(names(&list(page(Some(("run", "r1"))))), [""; 0]);
        let kinds = all.kinds();
        let sums: Vec<_> = kinds.iter().map(|kind| (kind.kind.as_str(), kind.count, kind.with_errors)).collect();
        assert_eq!(sums, [("job", 2, 0), ("registry", 1, 0), ("run", 1, 1)]);
        all.leave(&made[0]);
        assert_eq!(all.kinds()[0].count, 1);
    }

    #[test]
    fn messages_are_counted_by_type_and_deaths_are_kept() {
        let all = ActorStats::default();
        let stats = Stats::new("run", "r".to_owned(), Some("registry"));
        all.enter(&stats);
        stats.told();
        stats.told();
        stats.handled("run.poll");
        stats.handled("run.push");
        stats.handled("run.push");
        assert_eq!(stats.output(Timestamp(0)).time_per_message, None, "none was timed");
        drop(Timed::new(&stats, "run.push"));
        for i in 0..MOST_CRASHES as i64 + 5 {
            stats.died(Timestamp(i), &format!("crash {i}"));
        }
        let found = all.find("run", "r", Timestamp(0)).expect("it is listed");
        let counts: Vec<_> = found.messages.iter().map(|of| (of.r#type.as_str(), of.count, of.time.is_some())).collect();
        assert_eq!(counts, [("run.push", 2, true), ("run.poll", 1, false)]);
        assert_eq!((found.actor.messages_handled, found.actor.queue_depth), (3, 0));
        let recent: Vec<_> = found.recent.iter().map(|message| message.r#type.as_str()).collect();
        assert_eq!(recent, ["run.push"]);
        assert_eq!((found.crashes.len(), found.crashes[0].reason.as_str()), (MOST_CRASHES, "crash 24"));
        assert!(all.find("task", "r", Timestamp(0)).is_none());
    }

    #[test]
    fn the_last_messages_and_how_many_waited_are_kept_in_little_memory() {
        let stats = Stats::new("run", "r".to_owned(), None);
        for _ in 0..5 {
            stats.told();
        }
        for place in ["run.a", "run.b", "run.b", "run.b", "run.b"] {
            stats.handled(place);
            drop(Timed::new(&stats, place));
        }
        for _ in 0..MOST_RECENT {
            drop(Timed::new(&stats, "run.c"));
        }
        let found = stats.detail(Timestamp(5_000));
        assert_eq!(found.recent.len(), MOST_RECENT);
        assert!(found.recent.iter().all(|message| message.r#type == "run.c" && message.at <= Timestamp(5_000)), "{found:?}");
        // 5, 4, 3, 2 and 1 waited.
        let counts: Vec<_> = found.depths.iter().map(|depth| (depth.up_to, depth.count)).take(3).collect();
        assert_eq!(counts, [(Some(1), 1), (Some(3), 2), (Some(10), 2)]);
        assert_eq!((found.depths.len(), found.depths[7].up_to), (8, None));
        let handled = stats.messages();
        let bytes = size_of::<Handled>() + handled.recent.capacity() * size_of::<(u8, u32, Instant)>();
        assert!(bytes < 400, "{bytes} bytes besides the types");
    }
}
