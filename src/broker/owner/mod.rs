//! A broker that does not lead executes runs for the leader: it connects to the leader, gets the right to own runs, and writes them by itself.
//!
//! The right outlives the connection and the leader. It ends when the leader takes the runs back: then the database refuses the writes of this
//! broker, which ends all actors of its runs, and asks for a new right.

mod work;

use super::lead::{context, store_config};
use crate::actors::brokers::{Brokers, Role};
use crate::actors::counters::Counters;
use crate::actors::leader_link::Outgoing;
use crate::config::broker::BrokerConfig;
use crate::domain::time::Timestamp;
use crate::edge::{Edge, forward};
use crate::protocol::frame;
use crate::protocol::ownership::{ALIVE_IN_PATIENCE, PATH, SECRET_HEADER, ToLeader, ToOwner, URL_HEADER};
use crate::service::Service;
use crate::store::{Barrier, LinkSecret, OwnedRuns, Ownership, Store, StoreError};
use crate::telemetry::Telemetry;
use actix_codec::Framed;
use awc::BoxedSocket;
use awc::error::WsClientError;
use awc::http::StatusCode;
use awc::ws::{Codec, Frame, Message};
use futures_util::{SinkExt as _, StreamExt as _};
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use work::Work;

/// Between two attempts to connect: it doubles, and begins again with each leader.
const PAUSE: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(3);
/// How long the leader may need to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// Between two looks at what the board of sites has for the leader.
const LEND: Duration = Duration::from_millis(50);
/// Between two reports of what was counted.
const COUNT: Duration = Duration::from_secs(2);
/// A leader to which the connection is lost takes the runs back after a second, so before that this broker must not answer for them any more.
const UNCONNECTED_MS: i64 = 800;
/// After a write of several messages, others are gathered for this time, because each write wakes threads of the leader. A run with little work
/// sends one at a time, and does not wait.
const GATHER: Duration = Duration::from_millis(2);
/// Number of messages that are sent together, besides the first.
const MOST_TOGETHER: usize = 256;
/// A leader that is silent for so long is asked by another connection.
const SILENT: Duration = Duration::from_secs(5);
/// How long the end waits for the last writes: a broker that begins to lead must not wait. The database refuses them then.
const LAST_WRITES: Duration = Duration::from_millis(500);
/// How long the end waits for the goodbye to be sent.
const GOODBYE: Duration = Duration::from_millis(500);

/// The part of a standby that executes runs.
pub(super) struct Owner {
    config: BrokerConfig,
    brokers: Arc<Brokers>,
    /// Reads with it, as the standby does.
    reader: Store,
    telemetry: Telemetry,
    client: awc::Client,
    /// Serves calls about its runs.
    edge: Edge,
    work: Option<Work>,
    /// The leader has ordered it to give its runs up: it wants no others until it is started again.
    is_draining: bool,
    /// When it was last connected to a leader.
    connected_at: Instant,
    /// What its runs do; the leader takes the time series from it.
    counters: Counters,
    /// The leader takes counts. One of an earlier version does not.
    takes_counts: bool,
    /// When the counters were read for the leader.
    counted_at: Instant,
    /// The number of waiting requests that the leader knows.
    waiting: Option<u64>,
}

/// A write without any effect.
type Proof = std::pin::Pin<Box<dyn Future<Output = Result<(), StoreError>>>>;

/// Why a connection is over.
enum Over {
    /// Another connection may help.
    Lost(String),
    /// The leader has taken the runs back.
    Revoked,
    /// This broker ends, or leads now.
    Ends,
}

/// Ends the part; resolves when all its actors have ended and its store is closed.
pub(super) struct Handle {
    ends: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl Handle {
    pub(super) async fn end(self) {
        self.ends.send_replace(true);
        if self.task.await.is_err() {
            log::error!("the task that executes runs for the leader panicked");
        }
    }
}

impl Owner {
    /// Starts to execute runs whenever there is a leader.
    pub(super) fn start(
        config: &BrokerConfig,
        brokers: Arc<Brokers>,
        reader: Store,
        telemetry: Telemetry,
        edge: Edge,
        counters: Counters,
    ) -> Handle {
        let (ends, ended) = watch::channel(false);
        let client = forward::client(crate::tls::client());
        let owner = Self {
            config: config.clone(),
            brokers,
            reader,
            telemetry,
            client,
            edge,
            work: None,
            is_draining: false,
            connected_at: Instant::now(),
            counters,
            takes_counts: false,
            counted_at: Instant::now(),
            waiting: None,
        };
        Handle { ends, task: actix::spawn(owner.keep(ended)) }
    }

    async fn keep(mut self, mut ended: watch::Receiver<bool>) {
        let (mut logged, mut pause) = (String::new(), PAUSE);
        loop {
            let role = self.brokers.role();
            let began = Instant::now();
            match self.connected(&mut ended).await {
                Over::Ends => break,
                Over::Revoked => {
                    if self.work.is_some() {
                        log::info!("this broker owns no runs any more draining={}", self.is_draining);
                    }
                    drop(self.end_work().await);
                    logged.clear();
                }
                Over::Lost(why) => {
                    // The leader has taken them back by then, if it lives.
                    if self.work.is_some() && self.connected_at.elapsed() > self.longest_without_leader() {
                        log::warn!("no leader for too long, giving the runs up");
                        drop(self.end_work().await);
                    }
                    if logged != why {
                        log::warn!("not connected to the leader, trying again reason={why}");
                        logged = why;
                    }
                }
            }
            pause = if began.elapsed() > MOST_PAUSE { PAUSE } else { (pause * 2).min(MOST_PAUSE) };
            tokio::select! {
                () = sleep(pause) => {}
                () = self.brokers.becomes(move |now| *now != role) => pause = PAUSE,
                _ = ended.wait_for(|ends| *ends) => break,
            }
        }
        drop(self.end_work().await);
    }

    /// Ends all actors of runs. Attempts that have begun will be repeated by another broker.
    /// Returns the messages that were not sent.
    async fn end_work(&mut self) -> Vec<ToLeader> {
        let Some(work) = self.work.take() else { return Vec::new() };
        self.edge.own_runs.end();
        work.end().await
    }

    /// A leader of an earlier version executes these runs and does not take them back, so this broker must end them by itself.
    fn longest_without_leader(&self) -> Duration {
        Duration::from_millis(self.config.lease.ttl_ms * 4).max(Duration::from_secs(10))
    }

    /// Connects, and executes runs until the connection is over.
    async fn connected(&mut self, ended: &mut watch::Receiver<bool>) -> Over {
        let leader = loop {
            if let Some(leader) = leader_of(&self.brokers.role(), &self.brokers.me.url) {
                break leader;
            }
            // As long as no broker leads, no other one executes these runs.
            let (store, url) = (self.work.as_ref().map(|work| work.context.store.clone()), self.brokers.me.url.clone());
            tokio::select! {
                () = self.brokers.becomes(move |role| leader_of(role, &url).is_some()) => self.connected_at = Instant::now(),
                () = deposed(store) => return Over::Revoked,
                _ = ended.wait_for(|ends| *ends) => return Over::Ends,
            }
        };
        let opened = tokio::select! {
            opened = self.open(&leader) => opened,
            _ = ended.wait_for(|ends| *ends) => return Over::Ends,
        };
        let mut socket = match opened {
            Ok(socket) => socket,
            Err(over) => return over,
        };
        let is_replaced = {
            let leader = leader.clone();
            self.brokers.becomes(move |role| !matches!(role, Role::Standby { leader: Some(now), .. } if *now == leader))
        };
        let over = tokio::select! {
            over = self.talk(&mut socket) => over,
            () = is_replaced => Over::Lost("another broker leads now".to_owned()),
            _ = ended.wait_for(|ends| *ends) => Over::Ends,
        };
        self.connected_at = Instant::now();
        if let Some(work) = &self.work {
            work.context.sites.board().lender_disconnected();
            work.context.brokers.sole_at_most_until(Timestamp::steady().plus_ms(UNCONNECTED_MS));
        }
        if matches!(over, Over::Ends) {
            // Its runs move at once.
            let last = self.end_work().await;
            let counted = self.counts_report();
            let goodbye = async {
                let last = last.into_iter().chain(counted).chain([ToLeader::Leave]);
                let _ = send(&mut socket, last.map(Outgoing::from).collect()).await;
            };
            // If the leader is gone, too, the next one takes the runs back.
            let _ = timeout(GOODBYE, goodbye).await;
        }
        over
    }

    async fn open(&self, leader: &str) -> Result<Framed<BoxedSocket, Codec>, Over> {
        let secret = match self.reader.read(LinkSecret).await {
            Ok(Some(secret)) => secret,
            Ok(None) => return Err(Over::Lost("the leader has not stored its secret yet".to_owned())),
            Err(error) => return Err(Over::Lost(error.to_string())),
        };
        let own = self.brokers.me.url.as_str();
        let request = self.client.ws(format!("{leader}{PATH}")).max_frame_size(crate::protocol::MAX_FRAME);
        let request = request.header(SECRET_HEADER, secret).header(URL_HEADER, own);
        match timeout(CONNECT, request.connect()).await {
            Ok(Ok((_, socket))) => Ok(socket),
            // A leader of an earlier version executes all runs by itself, whoever owned them.
            Ok(Err(WsClientError::InvalidResponseStatus(StatusCode::NOT_FOUND))) => Err(Over::Revoked),
            Ok(Err(WsClientError::InvalidResponseStatus(StatusCode::UNPROCESSABLE_ENTITY))) => {
                let hint = "start this broker with --advertise and an address that the other brokers reach";
                Err(Over::Lost(format!("the leader at {leader} cannot reach this broker at {own}: {hint}")))
            }
            Ok(Err(WsClientError::InvalidResponseStatus(status))) => Err(Over::Lost(format!("{leader} answered {status}"))),
            Ok(Err(error)) => Err(Over::Lost(format!("{leader}: {error}"))),
            Err(_) => Err(Over::Lost(format!("{leader}: no response"))),
        }
    }

    async fn talk(&mut self, socket: &mut Framed<BoxedSocket, Codec>) -> Over {
        let term = self.work.as_ref().map(|work| work.term);
        let join = ToLeader::Join { broker_id: self.brokers.me.id, term, is_draining: self.is_draining, block_runs: true, answers: true };
        let joined_at = Timestamp::steady();
        if let Err(error) = send(socket, vec![join.into()]).await {
            return Over::Lost(error);
        }
        // When the messages `Alive` were made whose answers have not come.
        let mut unanswered = VecDeque::new();
        let mut made_at = joined_at;
        let mut lends = tokio::time::interval(LEND);
        lends.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        // Set by the welcome: when to show again that this broker lives.
        let mut every = None;
        let mut alive = std::pin::pin!(sleep(SILENT));
        let mut proof: Option<Proof> = None;
        let mut heard = Instant::now();
        let mut may_write = Instant::now();
        loop {
            let (messages, store) = match &mut self.work {
                Some(work) => (Some(&mut work.messages).filter(|_| every.is_some()), Some(work.context.store.clone())),
                None => (None, None),
            };
            let message = tokio::select! {
                frame = socket.next() => match frame {
                    Some(Ok(Frame::Text(text))) => {
                        heard = Instant::now();
                        match frame::read::<ToOwner>(&text) {
                            Ok(ToOwner::Welcome { term, alive_every_ms, block_runs, counts }) => {
                                if let Err(error) = self.welcomed(term, block_runs, counts).await {
                                    return Over::Lost(error.to_string());
                                }
                                every = Some(Duration::from_millis(alive_every_ms.max(10)));
                                alive.as_mut().reset(Instant::now());
                                unanswered.push_back(joined_at);
                                self.heard_at(unanswered.pop_front(), every);
                            }
                            Ok(ToOwner::Alive) => self.heard_at(unanswered.pop_front(), every),
                            Ok(message) => self.take(message),
                            // A later version has messages that this one does not know.
                            Err(problem) => log::warn!("message of the leader ignored reason={}", problem.detail),
                        }
                        continue;
                    }
                    Some(Ok(Frame::Close(reason))) => {
                        let text = reason.and_then(|reason| reason.description).unwrap_or_default();
                        return Over::Lost(format!("closed by the leader: {text}"));
                    }
                    Some(Ok(Frame::Ping(bytes))) => match socket.send(Message::Pong(bytes)).await {
                        Ok(()) => continue,
                        Err(error) => return Over::Lost(error.to_string()),
                    },
                    Some(Ok(_)) => continue,
                    Some(Err(error)) => return Over::Lost(error.to_string()),
                    None => return Over::Lost("closed by the leader".to_owned()),
                },
                Some(message) = next(messages, may_write) => message,
                _ = lends.tick(), if every.is_some() => {
                    self.work.iter_mut().for_each(Work::lend);
                    if self.counted_at.elapsed() < COUNT {
                        continue;
                    }
                    match self.counts_report() {
                        Some(counted) => counted.into(),
                        None => continue,
                    }
                }
                () = deposed(store.clone()) => return Over::Revoked,
                () = &mut alive => {
                    if heard.elapsed() > SILENT.max(every.unwrap_or_default() * 4) {
                        return Over::Lost("the leader is silent".to_owned());
                    }
                    alive.as_mut().reset(Instant::now() + every.unwrap_or(SILENT));
                    // A broker that cannot write is as good as lost: the leader takes its runs back.
                    match store {
                        Some(_) if proof.is_some() => {}
                        Some(store) => {
                            made_at = Timestamp::steady();
                            proof = Some(Box::pin(store.write_unbounded(Barrier)));
                        }
                        None if every.is_some() => proof = Some(Box::pin(std::future::ready(Ok(())))),
                        None => {}
                    }
                    continue;
                }
                proven = done(&mut proof) => {
                    proof = None;
                    match proven {
                        Ok(()) => {
                            unanswered.push_back(made_at);
                            Outgoing::from(ToLeader::Alive)
                        }
                        Err(_) => continue,
                    }
                }
            };
            // Those that wait are sent together.
            let others =
                self.work.iter_mut().filter(|_| every.is_some()).flat_map(|work| std::iter::from_fn(|| work.messages.try_recv().ok()));
            let all: Vec<Outgoing> = std::iter::once(message).chain(others.take(MOST_TOGETHER)).collect();
            let leaves = all.iter().any(|outgoing| matches!(outgoing.message, ToLeader::Leave));
            let are_several = all.len() > 1;
            if let Err(error) = send(socket, all).await {
                return Over::Lost(error);
            }
            if are_several {
                may_write = Instant::now() + GATHER;
            }
            if leaves {
                return Over::Revoked;
            }
        }
    }

    /// The leader has got a message that was made at this time: it takes no runs back before its patience is over.
    fn heard_at(&self, made_at: Option<Timestamp>, every: Option<Duration>) {
        if let (Some(work), Some(made_at), Some(every)) = (&self.work, made_at, every) {
            work.context.brokers.renewed(Some(made_at.plus_ms(every.as_millis() as i64 * ALIVE_IN_PATIENCE)));
        }
    }

    /// The leader lets this broker own runs under this term, if it wants any.
    async fn welcomed(&mut self, term: Option<i64>, block_runs: bool, counts: bool) -> Result<(), StoreError> {
        (self.takes_counts, self.waiting) = (counts, None);
        let Some(term) = term else {
            drop(self.end_work().await);
            return Ok(());
        };
        let me = self.brokers.me.id;
        if self.work.as_ref().is_some_and(|work| work.term != term) {
            drop(self.end_work().await);
        }
        if self.work.is_none() {
            let store = Store::own(&store_config(&self.config), Ownership { broker: me, term })?;
            let context = context(&self.config, store, Brokers::new(self.brokers.me.clone(), self.brokers.role()));
            let context = context.with_telemetry(self.telemetry.clone()).with_counters(self.counters.clone());
            let context = match self.reader.read(LinkSecret).await? {
                Some(secret) => context.with_link_secret(secret),
                None => context,
            };
            let work = Work::begin(term, context);
            log::info!("this broker owns runs term={term}");
            self.edge.own_runs.begin(&self.edge, Service::new(work.context.clone()));
            self.work = Some(work);
        }
        self.work.iter_mut().for_each(|work| work.announce(block_runs));
        // Those that were stored while there was no connection, too.
        let runs = self.reader.read(OwnedRuns(me)).await?;
        for run_id in runs {
            self.take(ToOwner::Start { run_id });
        }
        if let Some(work) = self.work.as_ref().filter(|_| !block_runs) {
            work.registry.give_block_runs_up();
        }
        Ok(())
    }

    /// What was counted since the last time, if the leader does not know it yet.
    fn counts_report(&mut self) -> Option<ToLeader> {
        self.counted_at = Instant::now();
        // A new interval begins even if the leader takes no counts: such a leader counts the ends of runs by itself.
        let sums = self.counters.take_changes();
        let waiting = self.work.as_ref().map_or(0, |work| work.context.addresses.actor_stats.waiting("run"));
        if !self.takes_counts || sums.is_empty() && self.waiting == Some(waiting) {
            return None;
        }
        self.waiting = Some(waiting);
        Some(ToLeader::Counted { sums, waiting })
    }

    fn take(&mut self, message: ToOwner) {
        self.is_draining |= matches!(message, ToOwner::Drain) && self.work.is_some();
        if let Some(work) = &mut self.work {
            work.take(message);
        }
    }
}

/// The address of another broker that leads, if this one can read the tables.
fn leader_of(role: &Role, own: &str) -> Option<String> {
    match role {
        Role::Standby { leader: Some(leader), can_read: true, .. } if leader != own => Some(leader.clone()),
        _ => None,
    }
}

/// The next message of the runs, not before this time; never, if there are none.
async fn next(messages: Option<&mut UnboundedReceiver<Outgoing>>, not_before: Instant) -> Option<Outgoing> {
    match messages {
        Some(messages) => {
            sleep_until(not_before).await;
            messages.recv().await
        }
        None => std::future::pending().await,
    }
}

/// Waits until it is proven that this broker can write; for ever, if that is not being tried.
async fn done(proof: &mut Option<Proof>) -> Result<(), StoreError> {
    match proof {
        Some(proof) => proof.await,
        None => std::future::pending().await,
    }
}

async fn deposed(store: Option<Store>) {
    match store {
        Some(store) => drop(store.deposed().await),
        None => std::future::pending().await,
    }
}

async fn send(socket: &mut Framed<BoxedSocket, Codec>, messages: Vec<Outgoing>) -> Result<(), String> {
    let send = async {
        for Outgoing { message, bulk } in messages {
            let text = Message::Text(frame::text(&message).into());
            for frame in [Some(text), bulk.map(Message::Binary)].into_iter().flatten() {
                socket.feed(frame).await?;
            }
        }
        socket.flush().await
    };
    match timeout(SILENT, send).await {
        Ok(sent) => sent.map_err(|error: actix_http::ws::ProtocolError| error.to_string()),
        Err(_) => Err("the leader does not read".to_owned()),
    }
}
