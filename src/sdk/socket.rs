//! The worker's WebSocket: says what it watches, hears of runs, and is made anew whenever it is lost.

use super::backoff::Backoff;
use super::client::Client;
use super::error::Error;
use crate::domain::ids::{Identity, WorkerId};
use crate::protocol::frame;
use crate::protocol::problem::Problem;
use crate::protocol::worker::{FromWorker, ToWorker, WorkerFacts};
use awc::error::WsClientError;
use awc::ws::{CloseCode, Frame, Message};
use futures_util::{SinkExt as _, StreamExt as _};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Until the broker has said how often it wants to hear of us.
const HEARTBEAT: Duration = Duration::from_secs(3);
/// Silence after which a connection counts as lost, likewise.
const OFFLINE: Duration = Duration::from_secs(15);
/// The longest pause between two connections.
const MOST_PAUSE: Duration = Duration::from_secs(5);

/// Who the worker is.
pub(crate) struct Session {
    pub(crate) client: Rc<Client>,
    pub(crate) worker: WorkerId,
    pub(crate) name: String,
    pub(crate) classes: Vec<String>,
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
            match self.connect(&mut told).await {
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
            tokio::select! {
                () = tokio::time::sleep(backoff.pause(None)) => {}
                () = self.leave.notified() => return Ok(()),
            }
        }
    }

    async fn connect(&self, told: &mut bool) -> Result<(), Lost> {
        let name: String = url::form_urlencoded::byte_serialize(self.name.as_bytes()).collect();
        let request = self.client.socket(&format!("/worker?workerid={}&name={name}", self.worker));
        let connected = tokio::time::timeout(OFFLINE, request.connect()).await;
        let (_, mut socket) = connected.map_err(|_| Lost::Network("no answer to the handshake".to_owned()))??;
        *told = false;
        let runs = self.runs.borrow().iter().copied().collect();
        let watch = FromWorker::Watch { class_names: self.classes.clone(), runs, tasks: Vec::new(), worker: WorkerFacts::default() };
        socket.send(Message::Text(frame::text(&watch).into())).await?;
        let (mut heartbeat, mut offline) = (HEARTBEAT, OFFLINE);
        let (mut heard, mut beat) = (Instant::now(), Instant::now() + heartbeat);
        loop {
            tokio::select! {
                () = self.leave.notified() => {
                    // Said goodbye, the broker need not wait for us.
                    socket.send(Message::Close(Some(CloseCode::Normal.into()))).await?;
                    while !matches!(socket.next().await, None | Some(Err(_) | Ok(Frame::Close(_)))) {}
                    return Ok(());
                }
                () = tokio::time::sleep_until(beat) => {
                    if heard.elapsed() > offline {
                        return Err(Lost::Network(format!("nothing heard for {} s", offline.as_secs())));
                    }
                    beat = Instant::now() + heartbeat;
                    socket.send(Message::Text(frame::text(&FromWorker::Heartbeat { tasks: None }).into())).await?;
                    // Its echo shows that the broker is there.
                    socket.send(Message::Ping(bytes::Bytes::new())).await?;
                }
                frame = socket.next() => {
                    let Some(frame) = frame else { return Err(Lost::Network("closed by the broker".to_owned())) };
                    heard = Instant::now();
                    match frame? {
                        Frame::Text(text) => match frame::read::<ToWorker>(&text) {
                            Ok(ToWorker::Welcome { heartbeat: every, offline: after, .. }) => {
                                heartbeat = Duration::from_millis(every.max(10));
                                offline = Duration::from_millis(after.max(100));
                                beat = Instant::now() + heartbeat;
                            }
                            Ok(order) => drop(self.orders.send(order)),
                            Err(problem) => log::warn!("message of the broker is not understood: {problem}"),
                        },
                        Frame::Ping(text) => socket.send(Message::Pong(text)).await?,
                        Frame::Close(reason) => {
                            let text = reason.and_then(|reason| reason.description).unwrap_or_default();
                            return Err(Lost::Network(format!("closed by the broker: {text}")));
                        }
                        Frame::Pong(_) | Frame::Binary(_) | Frame::Continuation(_) => {}
                    }
                }
            }
        }
    }
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
                let detail = "is the token right, and is this a broker?".to_owned();
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
