//! The worker's WebSocket: says what it watches, hears of runs and tasks, carries reports, and is made anew whenever it is
//! lost.

use super::backoff::Backoff;
use super::client::Client;
use super::error::Error;
use super::task::Tasks;
use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskRef;
use crate::protocol::worker::{FromWorker, ToWorker, WorkerFacts};
use crate::sockets::Checked;
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

/// Silence after which a connection counts as lost, until the broker has said it.
const OFFLINE: Duration = Duration::from_secs(15);
/// The longest wait for the answer to a handshake, where another broker may be the one.
const BRIEF_HANDSHAKE: Duration = Duration::from_secs(5);
/// The longest pause between two connections.
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// Who the worker is.
pub(crate) struct Session {
    pub(crate) client: Rc<Client>,
    pub(crate) worker: WorkerId,
    pub(crate) name: String,
    /// Classes of spiders and names of tasks.
    pub(crate) classes: Vec<String>,
    pub(crate) facts: WorkerFacts,
    pub(crate) tasks: Rc<Tasks>,
    /// The runs in hand; a new connection tells them.
    pub(crate) runs: Rc<RefCell<BTreeSet<Identity>>>,
    /// Where the broker's orders go.
    pub(crate) orders: UnboundedSender<ToWorker>,
    /// To be told when the worker leaves.
    pub(crate) leave: Notify,
}

impl Session {
    /// Keeps a connection, until the worker leaves.
    ///
    /// # Errors
    /// The broker does not want this worker.
    pub(crate) async fn keep(&self) -> Result<(), Error> {
        let mut backoff = Backoff::new(Duration::from_millis(100), MOST_PAUSE);
        let mut told = false;
        loop {
            let began = Instant::now();
            let brokers = self.client.brokers();
            let (number, broker) = brokers.current();
            match self.connect(broker, &mut told).await {
                Ok(()) => return Ok(()),
                Err(Lost::Network(reason)) => {
                    if !std::mem::replace(&mut told, true) {
                        log::warn!("connection lost, connecting again: {reason}");
                    }
                }
                Err(Lost::Refused(error)) => return Err(error),
            }
            if began.elapsed() > OFFLINE {
                backoff.reset();
            }
            // Another may lead; only when all were tried is there anything to wait for.
            let pause = if brokers.leave(number) { backoff.pause(None) } else { Duration::ZERO };
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.leave.notified() => return Ok(()),
            }
        }
    }

    async fn connect(&self, broker: &url::Url, told: &mut bool) -> Result<(), Lost> {
        let name: String = url::form_urlencoded::byte_serialize(self.name.as_bytes()).collect();
        let request = self.client.socket(broker, &format!("/worker?workerid={}&name={name}", self.worker));
        let began = Instant::now();
        let patience = if self.client.brokers().are_several() { BRIEF_HANDSHAKE } else { OFFLINE };
        let connected = tokio::time::timeout(patience, request.connect()).await;
        let (_, socket) = connected.map_err(|_| Lost::Network("no answer to the handshake".to_owned()))??;
        let mut socket = socket.into_map_codec(Checked);
        *told = false;
        let in_hand = self.tasks.connected(began);
        let mut is_closed = self.tasks.is_closed();
        send(&mut socket, [self.watch(in_hand, is_closed)], OFFLINE).await?;
        let (mut heard, mut offline) = (Instant::now(), OFFLINE);
        // One timer for all that is to be sent at a time, moved only when that time changes.
        let mut timer = std::pin::pin!(tokio::time::sleep_until(self.tasks.wake_at()));
        loop {
            let now = Instant::now();
            if self.tasks.is_beat_due(now) {
                if heard.elapsed() > offline {
                    return Err(Lost::Network(format!("nothing heard for {} s", offline.as_secs())));
                }
                let (number, tasks) = self.tasks.beat();
                let beat = frame::text(&FromWorker::Heartbeat { tasks });
                // Its echo shows that the broker is there, and has had the heartbeat.
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
                    // Said goodbye, the broker need not wait for us.
                    socket.send(Message::Close(Some(CloseCode::Normal.into()))).await?;
                    while !matches!(socket.next().await, None | Some(Err(_) | Ok(Frame::Close(_)))) {}
                    return Ok(());
                }
                () = &mut timer => continue,
                () = self.tasks.has_something() => {
                    // Others that end in the same turn are told with it.
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
                    }
                    Ok(ToWorker::Kicked { reason }) => return Err(Lost::Refused(Error::Kicked(reason))),
                    Ok(message) => {
                        if let Some(order) = self.tasks.take(message) {
                            drop(self.orders.send(order));
                        }
                    }
                    Err(problem) => log::warn!("message of the broker is not understood: {problem}"),
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

    /// What is watched; a worker that takes no tasks any more has no places.
    fn watch(&self, tasks: Vec<TaskRef>, is_closed: bool) -> Message {
        let runs = self.runs.borrow().iter().copied().collect();
        let mut worker = self.facts.clone();
        if is_closed {
            worker.slots = Some(0);
        }
        Message::Text(frame::text(&FromWorker::Watch { class_names: self.classes.clone(), runs, tasks, worker }).into())
    }
}

/// Sends messages; those that are there together go out together.
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
    // Whoever does not read is as good as away.
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
            // A broker that stops or is overloaded answers 5xx; anything else would be the answer tomorrow as well.
            WsClientError::InvalidResponseStatus(status) if status.is_client_error() && status.as_u16() != 429 => {
                let title = format!("the connection is refused with {status}");
                let kind = "about:blank".to_owned();
                let detail = match status.as_u16() {
                    401 => "the broker did not accept the token: check it, or give one if there is none".to_owned(),
                    403 => "this token is not one of role worker, the worker's id belongs to another token, or an operator put it out"
                        .to_owned(),
                    _ => "is this a broker?".to_owned(),
                };
                Self::Refused(Error::Refused(Problem { kind, title, status: status.as_u16(), detail, field: None }))
            }
            error => Self::Network(error.to_string()),
        }
    }
}

impl From<awc::error::WsProtocolError> for Lost {
    fn from(error: awc::error::WsProtocolError) -> Self {
        Self::Network(error.to_string())
    }
}
