//! The standby broker: it watches the leader in a separate thread, serves reads, and takes over.

use super::clock::Steady;
use super::lead::{context, edge, store_config};
use super::meter::Meter;
use super::owner::{self, Owner};
use super::{BootError, http};
use crate::actors::brokers::{Brokers, Role};
use crate::actors::counters::Counters;
use crate::config::broker::BrokerConfig;
use crate::domain::leader::{Reason, Tenure, Watch};
use crate::edge::Edge;
use crate::service::Service;
use crate::store::{Leadership, Look, Member, Seat, Store, StoreError, StoredLease, Tables};
use crate::telemetry::Telemetry;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Interval between two checks of the leader. A check reads one row and tries one lock, about ten microseconds.
const LOOK: Duration = Duration::from_millis(50);

/// The same for a server: two statements over the network. A leader that ends wakes this broker up.
const LOOK_AT_SERVER: Duration = Duration::from_millis(200);

/// How long connections of the standby's server may make one more call, after which they are closed.
const LINGER: Duration = Duration::from_secs(5);

/// Interval between two reads of the named tokens, which the leader may have changed.
const TOKENS: Duration = Duration::from_secs(1);

/// The result of the standby role.
pub(super) type Won = Result<(Leadership, Reason), StoreError>;

/// See the module documentation.
pub(super) struct Standby {
    server: http::Serving,
    edge: Edge,
    brokers: Arc<Brokers>,
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    won: oneshot::Receiver<Won>,
    /// Reads the named tokens, which the leader changes, again and again.
    tokens: tokio::task::JoinHandle<()>,
    /// Executes runs for the leader.
    runs: Option<Runs>,
}

/// What executes runs for the leader, and sends their metrics.
struct Runs {
    owner: owner::Handle,
    meter: Box<Meter>,
}

/// A broker that may take over, with the state of its checks.
pub(super) struct Candidate {
    seat: Seat,
    watch: Watch,
    clock: Steady,
    ttl_ms: u64,
}

impl Candidate {
    pub(super) fn new(config: &BrokerConfig, me: Member) -> Result<Self, StoreError> {
        let seat = Seat::at(&store_config(config), me, config.lease.ttl_ms)?;
        Ok(Self { seat, watch: Watch::default(), clock: Steady::start(), ttl_ms: config.lease.ttl_ms })
    }

    /// Checks the leader once.
    pub(super) fn look(&mut self) -> Result<Look, StoreError> {
        self.seat.look(&mut self.watch, self.clock.now_ms())
    }
}

impl Standby {
    pub(super) fn start(
        config: &BrokerConfig,
        door: &http::Listener,
        me: Member,
        candidate: Candidate,
        telemetry: Telemetry,
        counters: Counters,
    ) -> Result<Self, BootError> {
        let store = Store::stand_by(&store_config(config)).map_err(|e| BootError::Store(config.database.to_string(), e))?;
        let role = Role::Standby { leader: None, term: 0, can_read: false };
        let reader = store.clone();
        let context = context(config, store, Brokers::new(me, role)).with_counters(counters.clone());
        let brokers = Arc::clone(&context.brokers);
        let is_stopped = Arc::new(AtomicBool::new(false));
        let (tell, won) = oneshot::channel();
        let vigil = Vigil {
            candidate,
            brokers: Arc::clone(&brokers),
            is_stopped: Arc::clone(&is_stopped),
            last: None,
            blocked_since: None,
            told: None,
            beats_at_one_address: 0,
            every: if config.database.file().is_some() { LOOK } else { LOOK_AT_SERVER },
        };
        let thread = std::thread::Builder::new().name("standby".to_owned()).spawn(move || vigil.watch(tell));
        let thread = thread.map_err(|e| BootError::Store(config.database.to_string(), e.into()))?;
        let edge = edge(config, door, Service::new(context));
        // Sockets stay in this server when this broker leads.
        let server = http::serve_standby(config.threads, door, edge.clone()).map_err(|e| BootError::Listen(config.listen, e))?;
        let tokens = actix::spawn(follow_tokens(edge.clone()));
        // Brokers that share a file share a machine: there the leader does all.
        let runs = reader.is_remote().then(|| Runs {
            meter: Box::new(Meter::start(edge.clone(), telemetry.clone())),
            owner: Owner::start(config, Arc::clone(&brokers), reader, telemetry, edge.clone(), counters),
        });
        Ok(Self { server, edge, brokers, is_stopped, thread, won, tokens, runs })
    }

    /// Completes when this broker becomes the leader, or never can.
    pub(super) async fn won(&mut self) -> Won {
        (&mut self.won).await.unwrap_or_else(|_| Err(StoreError::Failed("the thread that watches the leader panicked".into())))
    }

    /// Executes no runs for another leader any more.
    pub(super) async fn end_runs(&mut self) {
        if let Some(Runs { owner, meter }) = self.runs.take() {
            meter.abort();
            owner.end().await;
        }
    }

    /// This broker now leads on the same listener. Calls in progress are answered here; rejected calls are redirected. Sockets that were passed on
    /// until now stay in this server, with sessions of the leader.
    pub(super) fn make_way(self, leading: Edge) -> http::Serving {
        self.tokens.abort();
        self.edge.successor.set(leading);
        let (Role::Leader { term } | Role::Standby { term, .. }) = self.brokers.role();
        self.brokers.set(Role::Standby { leader: Some(self.brokers.me.url.clone()), term, can_read: true });
        let server = self.server.clone();
        actix::spawn(async move {
            // A stopped server drops accepted connections that it has not read yet; a paused server serves them.
            server.pause().await;
            tokio::time::sleep(LINGER).await;
            server.end_with_its_connections().await;
        });
        self.server
    }

    /// Stops the standby.
    pub(super) async fn stop(mut self) {
        if let Some(runs) = &self.runs {
            runs.meter.end().await;
        }
        self.end_runs().await;
        self.tokens.abort();
        self.is_stopped.store(true, Relaxed);
        self.thread.thread().unpark();
        self.server.end().await;
        if self.thread.join().is_err() {
            log::error!("the thread that watches the leader panicked");
        }
    }
}

/// Keeps the named tokens of a standby up to date.
async fn follow_tokens(edge: Edge) {
    loop {
        // Before the tables are there, or while the database is away, the tokens stay as they are.
        if edge.service.can_read().is_ok()
            && let Err(problem) = edge.load_tokens().await
        {
            log::debug!("failed to read the named tokens, retrying reason={}", problem.detail);
        }
        tokio::time::sleep(TOKENS).await;
    }
}

/// After so many beats the leader is another broker, and not an earlier process of this one whose lease has not ended yet.
const AT_ONE_ADDRESS: u32 = 10;

/// The thread that watches the leader.
struct Vigil {
    candidate: Candidate,
    brokers: Arc<Brokers>,
    is_stopped: Arc<AtomicBool>,
    last: Option<StoredLease>,
    /// Time since when the takeover is blocked because another process holds the database for writing.
    blocked_since: Option<u64>,
    /// Between two checks.
    every: Duration,
    /// The last logged error, so that it is logged once.
    told: Option<StoreError>,
    /// Beats one after another at which the leader had the address of this broker.
    beats_at_one_address: u32,
}

impl Vigil {
    fn watch(mut self, tell: oneshot::Sender<Won>) {
        let every_ms = Tenure::new(self.candidate.ttl_ms, 0).every_ms();
        let mut beat_at = 0;
        while !self.is_stopped.load(Relaxed) {
            match self.candidate.look() {
                Ok(Look::Leads(leadership, reason)) => {
                    // The receiver may have been stopped; then the lock is released with this process.
                    drop(tell.send(Ok((leadership, reason))));
                    return;
                }
                Ok(Look::StandsBy(lease)) => {
                    self.blocked_since = None;
                    let is_changed = self.last.as_ref().map(|last| last.lease.term) != lease.as_ref().map(|lease| lease.lease.term);
                    self.last = lease;
                    let now = self.candidate.clock.now_ms();
                    if is_changed || now >= beat_at {
                        beat_at = now + every_ms;
                        match self.beat() {
                            Ok(Tables::Newer) => return drop(tell.send(Err(newer()))),
                            Ok(tables) => self.show(tables != Tables::Older),
                            Err(error) => self.trouble(error),
                        }
                    }
                }
                Err(StoreError::Busy) => self.blocked(),
                Err(StoreError::Failed(_)) if self.candidate.seat.tables() == Ok(Tables::Newer) => return drop(tell.send(Err(newer()))),
                Err(error) => self.trouble(error),
            }
            self.candidate.seat.wait(self.every);
        }
        if let Err(error) = self.candidate.seat.leave() {
            log::debug!("failed to announce the end to the other brokers error={error}");
        }
    }

    fn beat(&mut self) -> Result<Tables, StoreError> {
        self.candidate.seat.beat()?;
        self.candidate.seat.tables()
    }

    fn show(&mut self, can_read: bool) {
        self.told = None;
        // A command that leads the store meanwhile has no address.
        let leader = self.last.as_ref().map(|lease| lease.url.clone()).filter(|url| !url.is_empty());
        let term = self.last.as_ref().map_or(0, |lease| lease.lease.term);
        let is_own = leader.as_deref().is_some_and(|url| url == self.brokers.me.url);
        self.beats_at_one_address = if is_own { self.beats_at_one_address.saturating_add(1) } else { 0 };
        if self.beats_at_one_address == AT_ONE_ADDRESS
            && let Some(url) = &leader
        {
            log::warn!(
                "the leader has the address of this broker, so this one cannot pass calls on to it and executes no runs url={url}: start each broker with \
                --advertise and an address of its own"
            );
        }
        if self.brokers.set(Role::Standby { leader: leader.clone(), term, can_read }) {
            log::info!("standing by leader={} term={term} can_read={can_read}", leader.as_deref().unwrap_or("none yet"));
        }
    }

    fn trouble(&mut self, error: StoreError) {
        if self.told.as_ref() != Some(&error) {
            log::warn!("failed to watch the leader, retrying error={error}");
            self.told = Some(error);
        }
    }

    /// The leader is gone, but a process holds the database for writing. If that process is the leader itself, it hangs in the
    /// middle of a write, and only its end makes a takeover possible.
    fn blocked(&mut self) {
        let now = self.candidate.clock.now_ms();
        let since = *self.blocked_since.get_or_insert(now);
        if now.saturating_sub(since) < self.candidate.ttl_ms {
            return;
        }
        self.blocked_since = Some(now);
        let writes = self.candidate.seat.who_writes();
        let leader = self.last.as_ref().map(|lease| lease.pid).filter(|pid| *pid != std::process::id());
        match (writes, leader) {
            (Some(pid), Some(leader)) if pid == leader => {
                log::error!("the leader hangs in the middle of a write, and is killed pid={pid}");
                kill(pid);
            }
            (writes, _) => log::error!("cannot take over: the database is held for writing by another process pid={writes:?}"),
        }
    }
}

fn newer() -> StoreError {
    StoreError::Failed("a later version of this program has migrated it: this version can no longer take over".into())
}

#[cfg(unix)]
fn kill(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    let Ok(pid) = i32::try_from(pid) else { return };
    if let Err(error) = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL) {
        log::error!("failed to kill the leader: end the process manually error={error}");
    }
}

#[cfg(not(unix))]
fn kill(_: u32) {}
