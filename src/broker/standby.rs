//! The broker that stands by: it watches the leader from a thread of its own, serves what can be read, and takes over.

use super::clock::Steady;
use super::lead::{context, edge, store_config};
use super::{BootError, http};
use crate::actors::brokers::{Brokers, Role};
use crate::actors::service::Service;
use crate::config::broker::BrokerConfig;
use crate::domain::leader::{Reason, Tenure, Watch};
use crate::store::{Leadership, Look, Member, Seat, Store, StoreError, StoredLease, Tables};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Between two looks at the leader. A look reads one row and tries one lock: some ten microseconds.
const LOOK: Duration = Duration::from_millis(50);

/// The time that connections of the standby's server get for one more call, with whose answer they are closed.
const LINGER: Duration = Duration::from_secs(5);

/// What comes of standing by.
pub(super) type Won = Result<(Leadership, Reason), StoreError>;

/// See the module's text.
pub(super) struct Standby {
    server: http::Serving,
    brokers: Arc<Brokers>,
    is_stopped: Arc<AtomicBool>,
    thread: JoinHandle<()>,
    won: oneshot::Receiver<Won>,
}

/// A broker that may take over, and what it remembers of its looks.
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

    /// Looks once.
    pub(super) fn look(&mut self) -> Result<Look, StoreError> {
        self.seat.look(&mut self.watch, self.clock.now_ms())
    }
}

impl Standby {
    pub(super) fn start(config: &BrokerConfig, door: &http::Listener, me: Member, candidate: Candidate) -> Result<Self, BootError> {
        let store = Store::stand_by(&store_config(config)).map_err(|e| BootError::Store(config.database.clone(), e))?;
        let role = Role::Standby { leader: None, term: 0, can_read: false };
        let context = context(config, store, Brokers::new(me, role));
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
        };
        let thread = std::thread::Builder::new().name("standby".to_owned()).spawn(move || vigil.watch(tell));
        let thread = thread.map_err(|e| BootError::Store(config.database.clone(), e.into()))?;
        let server = http::serve_standby(door, edge(config, Service::new(context))).map_err(|e| BootError::Listen(config.listen, e))?;
        Ok(Self { server, brokers, is_stopped, thread, won })
    }

    /// Ready when this broker leads, or can never.
    pub(super) async fn won(&mut self) -> Won {
        (&mut self.won).await.unwrap_or_else(|_| Err(StoreError::Failed("whoever watches the leader panicked".into())))
    }

    /// The broker leads now and serves on the same listener: what is under way here is answered, and refusals lead there.
    pub(super) fn make_way(self) {
        let Role::Standby { term, .. } = self.brokers.role() else { return };
        self.brokers.set(Role::Standby { leader: Some(self.brokers.me.url.clone()), term, can_read: true });
        let server = self.server;
        actix::spawn(async move {
            // A server that is stopped drops what it has accepted and not yet looked at; one that is paused serves it.
            server.pause().await;
            tokio::time::sleep(LINGER).await;
            server.end().await;
        });
    }

    /// Stops.
    pub(super) async fn stop(self) {
        self.is_stopped.store(true, Relaxed);
        self.thread.thread().unpark();
        self.server.end().await;
        if self.thread.join().is_err() {
            log::error!("whoever watches the leader panicked");
        }
    }
}

/// The thread that watches.
struct Vigil {
    candidate: Candidate,
    brokers: Arc<Brokers>,
    is_stopped: Arc<AtomicBool>,
    last: Option<StoredLease>,
    /// Since when it may take over and cannot, since another process holds the database for writing.
    blocked_since: Option<u64>,
    /// The last trouble that was told, so that it is told once.
    told: Option<StoreError>,
}

impl Vigil {
    fn watch(mut self, tell: oneshot::Sender<Won>) {
        let every_ms = Tenure::new(self.candidate.ttl_ms, 0).every_ms();
        let mut beat_at = 0;
        while !self.is_stopped.load(Relaxed) {
            match self.candidate.look() {
                Ok(Look::Leads(leadership, reason)) => {
                    // Whoever waits for it may have been told to end: then the lock goes with this process.
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
                            Ok(tables) => self.show(tables == Tables::Fit),
                            Err(error) => self.trouble(error),
                        }
                    }
                }
                Err(StoreError::Busy) => self.blocked(),
                Err(error) => self.trouble(error),
            }
            std::thread::park_timeout(LOOK);
        }
        if let Err(error) = self.candidate.seat.leave() {
            log::debug!("the other brokers were not told of the end error={error}");
        }
    }

    fn beat(&mut self) -> Result<Tables, StoreError> {
        self.candidate.seat.beat()?;
        self.candidate.seat.tables()
    }

    fn show(&mut self, can_read: bool) {
        self.told = None;
        let leader = self.last.as_ref().map(|lease| lease.url.clone());
        let term = self.last.as_ref().map_or(0, |lease| lease.lease.term);
        if self.brokers.set(Role::Standby { leader: leader.clone(), term, can_read }) {
            log::info!("standing by leader={} term={term} can_read={can_read}", leader.as_deref().unwrap_or("none yet"));
        }
    }

    fn trouble(&mut self, error: StoreError) {
        if self.told.as_ref() != Some(&error) {
            log::warn!("the leader cannot be watched, trying on error={error}");
            self.told = Some(error);
        }
    }

    /// The leader is gone, but a process holds the database for writing. If that is the leader itself, it was stopped in the
    /// middle of a write, and nothing but its end opens the way.
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
    StoreError::Failed("it was brought up to date by a later version of this program: this one cannot take over any more".into())
}

#[cfg(unix)]
fn kill(pid: u32) {
    use nix::sys::signal::{Signal, kill};
    let Ok(pid) = i32::try_from(pid) else { return };
    if let Err(error) = kill(nix::unistd::Pid::from_raw(pid), Signal::SIGKILL) {
        log::error!("it could not be killed: end it by hand error={error}");
    }
}

#[cfg(not(unix))]
fn kill(_: u32) {}
