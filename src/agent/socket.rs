//! The WebSocket to the broker as messages: its address, its opening, and the assembly of frames.

use super::facts::Machine;
use crate::config::agent::AgentConfig;
use crate::domain::ids::NodeId;
use crate::domain::node::Instance;
use crate::domain::time::Timestamp;
use crate::protocol::frame;
use crate::protocol::node::{Block, FromNode, ToNode};
use crate::protocol::token::NAMED;
use crate::protocol::{MAX_FRAME, sign::sign_at};
use crate::sockets::{self, Checked};
use actix_codec::Framed;
use actix_http::ws::Item;
use awc::error::{WsClientError, WsProtocolError};
use awc::http::StatusCode;
use awc::ws::{CloseCode, Frame, Message};
use awc::{BoxedSocket, Client, Connector};
use bytes::{Bytes, BytesMut};
use futures_util::{SinkExt, StreamExt};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::timeout;
use url::Url;

pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
/// The connect timeout if there are several brokers to try.
pub const BRIEF_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// A peer that accepts no bytes for this long counts as gone.
const SEND_TIMEOUT: Duration = Duration::from_secs(15);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);

/// Why there is no socket.
#[derive(Debug)]
pub enum OpenError {
    /// The broker responded with 401 or 403.
    Refused(u16),
    /// Any other error; another try may help.
    Unreachable(String),
}

/// A message from the broker, with its bulk data if it is binary.
pub type Incoming = (ToNode, Option<Bytes>);

/// An open socket.
pub struct Socket {
    framed: Framed<BoxedSocket, Checked>,
    part: Option<(bool, BytesMut)>,
}

/// The HTTP client for the broker, for sockets and reports.
#[must_use]
pub fn client() -> Client {
    let connector = Connector::new()
        // An open WebSocket counts as a connection: with a limit, further calls would hang.
        .limit(0)
        .timeout(CONNECT_TIMEOUT)
        .max_http_version(awc::http::Version::HTTP_11)
        .rustls_0_23(Arc::new(crate::tls::client()));
    Client::builder().connector(connector).timeout(CONNECT_TIMEOUT).disable_redirects().finish()
}

/// The URL of the socket: the seeds' parameters in the seeds' spelling, then ours.
#[must_use]
pub fn address(config: &AgentConfig, broker: &Url, (node_id, instance): (NodeId, Instance), machine: &Machine) -> Url {
    let mut url = broker.clone();
    let scheme = if url.scheme() == "https" { "wss" } else { "ws" };
    url.set_scheme(scheme).expect("ws and http are of one kind");
    let mut query = url.query_pairs_mut();
    query
        .append_pair("nodeid", &node_id.to_string())
        .append_pair("operationsystem", Machine::operating_system())
        .append_pair("proccessorcount", &Machine::processors().to_string())
        .append_pair("memory", &machine.memory().to_string())
        .append_pair("nodetype", &config.node_type)
        .append_pair("group", &config.group);
    if let Some(name) = config.name.clone().or_else(Machine::host_name) {
        query.append_pair("name", &name);
    }
    if let Some(token) = config.token.as_ref().filter(|token| !token.starts_with(NAMED)) {
        let now = Timestamp::now();
        query.append_pair("sign", &sign_at(token, node_id, now)).append_pair("signtime", &now.0.to_string());
    }
    if config.broker.are_several() {
        query.append_pair("direct", "true");
    }
    query.append_pair("maxprocesscount", &config.max_process_count.to_string());
    query.append_pair("maxsites", &config.max_sites.to_string());
    // Keeps the broker from sending programs to an agent that starts none.
    query.append_pair("applications", if config.programs.are_allowed { "true" } else { "false" });
    query.append_pair("maxprograms", &config.programs.max_programs.to_string());
    if let Some(ip) = &config.ip {
        query.append_pair("ip", &ip.to_string());
    }
    query.append_pair("encoding", "zstd");
    query.append_pair("instance", &instance.id.to_string());
    if let Some(after) = instance.after {
        query.append_pair("after", &after.to_string());
    }
    drop(query);
    url
}

impl Socket {
    /// Opens the socket. `patience` limits the wait for a response. A named token is sent as it is; any other one has signed the address.
    ///
    /// # Errors
    /// The broker rejected it, or was not reached.
    pub async fn open(client: &Client, address: &Url, token: Option<&str>, patience: Duration) -> Result<Self, OpenError> {
        let mut request = client.ws(address.as_str()).max_frame_size(MAX_FRAME);
        if let Some(token) = token.filter(|token| token.starts_with(NAMED)) {
            request = request.set_header("Token", token);
        }
        match timeout(patience, request.connect()).await {
            Err(_) => Err(OpenError::Unreachable(format!("no response within {} s", patience.as_secs()))),
            Ok(Err(WsClientError::InvalidResponseStatus(status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN)))) => {
                Err(OpenError::Refused(status.as_u16()))
            }
            Ok(Err(WsClientError::InvalidResponseStatus(status))) => Err(OpenError::Unreachable(sockets::refusal(status))),
            Ok(Err(error)) => Err(OpenError::Unreachable(error.to_string())),
            Ok(Ok((_, framed))) => Ok(Self { framed: framed.into_map_codec(Checked), part: None }),
        }
    }

    /// Waits for the next frame: a message, or `None` for a frame that only shows that the peer is alive. Safe to cancel.
    ///
    /// # Errors
    /// The socket is lost or closed; the text gives the reason.
    pub async fn next(&mut self) -> Result<Option<Incoming>, String> {
        let frame = match self.framed.next().await {
            None => return Err("the connection ended".to_owned()),
            Some(Err(WsProtocolError::Overflow)) => return Err(format!("received a message of more than {MAX_FRAME} bytes")),
            Some(Err(error)) => return Err(error.to_string()),
            Some(Ok(frame)) => frame,
        };
        match frame {
            Frame::Text(text) => read(false, &text),
            Frame::Binary(bytes) => read(true, &bytes),
            Frame::Continuation(item) => self.join(item),
            Frame::Ping(payload) => self.write(Message::Pong(payload)).await.map(|()| None),
            Frame::Pong(_) => Ok(None),
            Frame::Close(reason) => {
                let why = reason.and_then(|r| r.description).map_or(String::new(), |text| format!(": {text}"));
                Err(format!("the broker closed it{why}"))
            }
        }
    }

    fn join(&mut self, item: Item) -> Result<Option<Incoming>, String> {
        let (bytes, is_last) = match item {
            Item::FirstText(bytes) => {
                self.part = Some((false, BytesMut::from(&bytes[..])));
                return Ok(None);
            }
            Item::FirstBinary(bytes) => {
                self.part = Some((true, BytesMut::from(&bytes[..])));
                return Ok(None);
            }
            Item::Continue(bytes) => (bytes, false),
            Item::Last(bytes) => (bytes, true),
        };
        let Some((is_binary, part)) = &mut self.part else { return Err("received a continuation frame without a start".to_owned()) };
        if part.len() + bytes.len() > MAX_FRAME {
            return Err(format!("received a message of more than {MAX_FRAME} bytes"));
        }
        part.extend_from_slice(&bytes);
        if !is_last {
            return Ok(None);
        }
        let (is_binary, whole) = (*is_binary, part.split().freeze());
        self.part = None;
        read(is_binary, &whole)
    }

    /// Sends a message.
    ///
    /// # Errors
    /// The socket is lost.
    pub async fn send(&mut self, message: &FromNode) -> Result<(), String> {
        self.write(Message::Text(frame::text(message).into())).await
    }

    /// Sends a ping.
    ///
    /// # Errors
    /// The socket is lost.
    pub async fn ping(&mut self) -> Result<(), String> {
        self.write(Message::Ping(Bytes::new())).await
    }

    /// Sends a close frame and waits briefly for the reply.
    pub async fn close(mut self) {
        if self.write(Message::Close(Some(CloseCode::Away.into()))).await.is_ok() {
            let _ = timeout(CLOSE_TIMEOUT, async { while self.next().await.is_ok() {} }).await;
        }
    }

    async fn write(&mut self, message: Message) -> Result<(), String> {
        match timeout(SEND_TIMEOUT, self.framed.send(message)).await {
            Ok(sent) => sent.map_err(|e| e.to_string()),
            Err(_) => Err("the peer accepts no more bytes".to_owned()),
        }
    }
}

/// Parses a message. One that cannot be parsed is logged and ignored: a newer broker may send messages that this agent does not support.
fn read(is_binary: bool, bytes: &Bytes) -> Result<Option<Incoming>, String> {
    let (json, bulk) = if is_binary {
        let (json, bulk) = frame::split(bytes).map_err(|problem| problem.detail)?;
        (json, Some(bytes.slice_ref(bulk)))
    } else {
        (&bytes[..], None)
    };
    match frame::read::<ToNode>(json) {
        Ok(message) => Ok(Some((message, bulk))),
        Err(problem) => {
            log::warn!("ignored an unknown message from the broker reason={}", problem.detail);
            Ok(None)
        }
    }
}

/// The entry of a block in heartbeats.
#[must_use]
pub fn holding(block: &Block) -> crate::protocol::node::Holding {
    crate::protocol::node::Holding {
        identity: block.identity,
        block_id: block.block_id,
        attempt: block.attempt,
        epoch: block.epoch,
        waits: false,
    }
}
