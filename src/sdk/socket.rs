//! The worker's WebSocket: sends what it watches, receives runs and tasks, sends reports, and reconnects when it is lost.

use super::client::Client;
use super::error::Error;
use super::task::Tasks;
use crate::domain::backoff::Backoff;
use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{FromWorker, ToWorker, WorkerFacts};
use crate::sockets::{self, Checked};
use awc::error::WsClientError;
use awc::ws::{CloseCode, Frame, Message};
use futures_util::{Sink, SinkExt as _, StreamExt as _};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Silence after which a connection counts as lost, until the broker sends its own value.
const OFFLINE: Duration = Duration::from_secs(15);
/// Handshake timeout if there are several brokers to try.
const BRIEF_HANDSHAKE: Duration = Duration::from_secs(5);
/// The longest pause before a reconnect.
const MOST_PAUSE: Duration = Duration::from_secs(5);
/// The same while the broker rejects the token of a worker that was connected: rejected tokens count against the address that they come
/// from.
const MOST_REFUSED_PAUSE: Duration = Duration::from_secs(30);

/// The worker's identity and its connection to the other modules.
pub(crate) struct Session {
    pub(crate) client: Rc<Client>,
    pub(crate) worker: WorkerId,
    pub(crate) name: String,
    /// Watched classes of spiders and names of tasks.
    pub(crate) classes: Vec<String>,
    pub(crate) facts: WorkerFacts,
    pub(crate) tasks: Rc<Tasks>,
    /// The runs in progress; a new connection reports them.
    pub(crate) runs: Rc<RefCell<BTreeSet<Identity>>>,
    /// Receives the broker's orders.
    pub(crate) orders: UnboundedSender<ToWorker>,
    /// Signals that the worker leaves.
    pub(crate) leave: Notify,
}

impl Session {
    /// Keeps a connection until the worker leaves. A token that was right before is tried again: it may come back to the token file.
    ///
    /// # Errors
    /// The broker rejects this worker.
    pub(crate) async fn keep(&self) -> Result<(), Error> {
        let mut backoff = Backoff::new(Duration::from_millis(100), MOST_PAUSE);
        let mut refused_backoff = Backoff::new(Duration::from_millis(100), MOST_REFUSED_PAUSE);
        let (mut told, mut told_refused, mut was_connected) = (false, false, false);
        loop {
            let began = Instant::now();
            let brokers = self.client.brokers();
            let (number, broker) = brokers.current();
            let mut is_refused = false;
            match self.connect(broker, &mut told, &mut was_connected).await {
                Ok(()) => return Ok(()),
                Err(Lost::Network(reason)) => {
                    if !std::mem::replace(&mut told, true) {
                        log::warn!("connection lost, reconnecting: {reason}");
                    }
                }
                Err(Lost::Refused(Error::Refused(problem))) if was_connected && problem.status == 401 => {
                    if !std::mem::replace(&mut told_refused, true) {
                        log::warn!("broker rejects the token, retrying: {}", problem.detail);
                    }
                    is_refused = true;
                }
                Err(Lost::Refused(error)) => return Err(error),
            }
            if began.elapsed() > OFFLINE {
                backoff.reset();
                refused_backoff.reset();
                told_refused = false;
            }
            // Another broker may lead; wait only after all were tried.
            let backoff = if is_refused { &mut refused_backoff } else { &mut backoff };
            let pause = if brokers.leave(number) { backoff.next_wait() } else { Duration::ZERO };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.leave.notified() => return Ok(()),
            }
        }
    }

    async fn connect(&self, broker: &url::Url, told: &mut bool, was_connected: &mut bool) -> Result<(), Lost> {
        let name: String = url::form_urlencoded::byte_serialize(self.name.as_bytes()).collect();
        let (patience, direct) = if self.client.brokers().are_several() { (BRIEF_HANDSHAKE, "&direct=true") } else { (OFFLINE, "") };
        let request = self.client.socket(broker, &format!("/worker?workerid={}&name={name}{direct}", self.worker));
        let began = Instant::now();
        let connected = tokio::time::timeout(patience, request.connect()).await;
        let (_, socket) = connected.map_err(|_| Lost::Network("no response to the handshake".to_owned()))??;
        let mut socket = socket.into_map_codec(Checked);
        *told = false;
        *was_connected = true;
        let in_hand = self.tasks.connected(began);
        let mut is_closed = self.tasks.is_closed();
        send(&mut socket, [self.watch(in_hand, is_closed)], OFFLINE).await?;
        let (mut heard, mut offline, mut is_welcome) = (Instant::now(), OFFLINE, false);
        // One timer for everything that is sent at a set time, reset only when that time changes.
        let mut timer = std::pin::pin!(tokio::time::sleep_until(self.tasks.wake_at()));
        loop {
            let now = Instant::now();
            if self.tasks.is_beat_due(now) {
                if heard.elapsed() > offline {
                    return Err(Lost::Network(format!("no message from the broker for {} s", offline.as_secs())));
                }
                let (number, tasks) = self.tasks.beat();
                let beat = frame::text(&FromWorker::Heartbeat { tasks });
                // Its echo shows that the broker is alive and has received the heartbeat.
                let ping = Message::Ping(bytes::Bytes::copy_from_slice(&number.to_be_bytes()));
                send(&mut socket, [Message::Text(beat.into()), ping], offline).await?;
            }
            if !is_closed && self.tasks.is_closed() {
                is_closed = true;
                send(&mut socket, [self.watch(self.tasks.in_hand(), true)], offline).await?;
            }
            send(&mut socket, self.tasks.say().into_iter().map(|text| Message::Text(text.into())), offline).await?;
            let wake_at = self.tasks.wake_at();
            if timer.deadline() != wake_at {
                timer.as_mut().reset(wake_at);
            }
            let frame = tokio::select! {
                () = self.leave.notified() => {
                    // After a goodbye the broker need not wait for this worker.
                    socket.send(Message::Close(Some(CloseCode::Normal.into()))).await?;
                    while !matches!(socket.next().await, None | Some(Err(_) | Ok(Frame::Close(_)))) {}
                    return Ok(());
                }
                () = &mut timer => continue,
                () = self.tasks.has_something() => {
                    // Tasks that end in the same poll go into the same message.
                    tokio::task::yield_now().await;
                    continue;
                }
                frame = socket.next() => frame.ok_or_else(|| Lost::Network("closed by the broker".to_owned()))??,
            };
            heard = Instant::now();
            match frame {
                Frame::Text(text) => match frame::read::<ToWorker>(&text) {
                    Ok(ToWorker::Welcome { heartbeat: every, offline: after, .. }) => {
                        self.tasks.set_heartbeat(Duration::from_millis(every.max(10)));
                        offline = Duration::from_millis(after.max(100));
                        // Another broker leads, or this one has rebuilt the actor of this worker: it does not know what the worker watches and has reported.
                        if std::mem::replace(&mut is_welcome, true) {
                            send(&mut socket, [self.watch(self.tasks.begin_again(), is_closed)], offline).await?;
                        }
                    }
                    Ok(ToWorker::Kicked { reason }) => return Err(Lost::Refused(Error::Kicked(reason))),
                    Ok(message) => {
                        if let Some(order) = self.tasks.take(message) {
                            drop(self.orders.send(order));
                        }
                    }
                    Err(problem) => log::warn!("cannot parse a message from the broker: {problem}"),
                },
                Frame::Pong(number) => {
                    if let Ok(number) = <[u8; 8]>::try_from(&*number) {
                        self.tasks.answered(u64::from_be_bytes(number));
                    }
                }
                Frame::Ping(text) => send(&mut socket, [Message::Pong(text)], offline).await?,
                Frame::Close(reason) => {
                    let text = reason.and_then(|reason| reason.description).unwrap_or_default();
                    return Err(Lost::Network(format!("closed by the broker: {text}")));
                }
                Frame::Binary(_) | Frame::Continuation(_) => {}
            }
        }
    }

    /// The watch message; a worker that accepts no more tasks reports no slots.
    fn watch(&self, tasks: Vec<TaskRef>, is_closed: bool) -> Message {
        let runs = self.runs.borrow().iter().copied().collect();
        let mut worker = self.facts.clone();
        if is_closed {
            worker.slots = Some(0);
        }
        Message::Text(frame::text(&FromWorker::Watch { class_names: self.classes.clone(), runs, tasks, worker }).into())
    }
}

/// Sends messages; those that are ready together are sent together.
async fn send<S>(socket: &mut S, messages: impl IntoIterator<Item = Message>, patience: Duration) -> Result<(), Lost>
where
    S: Sink<Message> + Unpin,
    Lost: From<S::Error>,
{
    let mut messages = messages.into_iter().peekable();
    if messages.peek().is_none() {
        return Ok(());
    }
    let all = async {
        for message in messages {
            socket.feed(message).await?;
        }
        socket.flush().await
    };
    // A broker that does not read counts as disconnected.
    let sent = tokio::time::timeout(patience, all).await;
    Ok(sent.map_err(|_| Lost::Network("the broker does not read".to_owned()))??)
}

enum Lost {
    Network(String),
    Refused(Error),
}

impl From<WsClientError> for Lost {
    fn from(error: WsClientError) -> Self {
        match error {
            // A broker that is stopping or overloaded responds with 5xx; any other status would be the same later.
            WsClientError::InvalidResponseStatus(status) if status.is_client_error() && status.as_u16() != 429 => {
                let title = format!("the broker rejected the connection with status {status}");
                let kind = "about:blank".to_owned();
                let detail = match status.as_u16() {
                    401 => "the broker did not accept the token: check it, or give one if there is none".to_owned(),
                    403 => "this token is not one of role worker, the worker's id belongs to another token, or an operator kicked it"
                        .to_owned(),
                    _ => "is this a broker?".to_owned(),
                };
                Self::Refused(Error::Refused(Problem { kind, title, status: status.as_u16(), detail, field: None }))
            }
            WsClientError::InvalidResponseStatus(status) => Self::Network(sockets::refusal(status)),
            error => Self::Network(error.to_string()),
        }
    }
}

impl From<awc::error::WsProtocolError> for Lost {
    fn from(error: awc::error::WsProtocolError) -> Self {
        Self::Network(error.to_string())
    }
}
