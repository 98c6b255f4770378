//! A peer on a WebSocket, written from docs/protocol.md and from nothing else of the program.

use super::api::{Answer, Api};
use awc::ws::{Frame, Message};
use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;

/// Longer than anything that a test waits for to come.
const PATIENCE: Duration = Duration::from_secs(30);

/// An open socket. Dropped, it is gone without a word, as when its machine loses power.
pub struct Socket {
    out: mpsc::UnboundedSender<Message>,
    inbox: mpsc::UnboundedReceiver<Value>,
    /// What came before something that was waited for.
    early: VecDeque<Value>,
    task: actix_rt::task::JoinHandle<()>,
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Socket {
    /// Connects to `http://…` as `ws://…`, with this path and query. `alive` is said now and then, if it is given.
    pub async fn open(broker: &str, path: &str, alive: Option<Value>) -> Self {
        Self::open_with(broker, path, alive, &[]).await
    }

    /// The same with these subprotocols.
    pub async fn open_with(broker: &str, path: &str, alive: Option<Value>, protocols: &[&str]) -> Self {
        let url = format!("{}{path}", broker.replace("http://", "ws://"));
        let client = awc::Client::builder().timeout(PATIENCE).finish();
        let mut request = client.ws(&url).max_frame_size(32 << 20);
        if !protocols.is_empty() {
            request = request.protocols(protocols.iter().copied());
        }
        let (_, mut framed) = request.connect().await.unwrap_or_else(|e| panic!("{url}: {e}"));
        let (out, mut outbox) = mpsc::unbounded_channel();
        let (got, inbox) = mpsc::unbounded_channel();
        let task = actix_rt::spawn(async move {
            let mut beat = tokio::time::interval(Duration::from_millis(200));
            loop {
                tokio::select! {
                    frame = framed.next() => match frame {
                        Some(Ok(Frame::Text(text))) => drop(got.send(serde_json::from_slice(&text).expect("a text frame is JSON"))),
                        Some(Ok(Frame::Binary(frame))) => drop(got.send(unpack(&frame))),
                        Some(Ok(Frame::Ping(text))) => if framed.send(Message::Pong(text)).await.is_err() { return },
                        Some(Ok(Frame::Close(_)) | Err(_)) | None => return,
                        Some(Ok(_)) => {}
                    },
                    message = outbox.recv() => match message {
                        Some(message) => if framed.send(message).await.is_err() { return },
                        None => return,
                    },
                    _ = beat.tick(), if alive.is_some() => {
                        let text = alive.as_ref().map(Value::to_string).unwrap_or_default();
                        if framed.send(Message::Text(text.into())).await.is_err() { return }
                    }
                }
            }
        });
        Self { out, inbox, early: VecDeque::new(), task }
    }

    /// Is gone without a word.
    pub fn leave(&self) {
        self.task.abort();
    }

    /// Sends a text frame as it is.
    pub fn text(&self, text: &str) {
        // A socket that the broker has closed shows when it is read.
        let _ = self.out.send(Message::Text(text.to_owned().into()));
    }

    /// Sends a binary frame as it is.
    pub fn binary(&self, bytes: Vec<u8>) {
        let _ = self.out.send(Message::Binary(Bytes::from(bytes)));
    }

    /// Sends a message.
    pub fn say(&self, t: &str, v: &Value) {
        self.text(&json!({ "t": t, "v": v }).to_string());
    }

    /// The next message; none if the broker closed the socket.
    pub async fn next(&mut self) -> Option<Value> {
        if let Some(message) = self.early.pop_front() {
            return Some(message);
        }
        tokio::time::timeout(PATIENCE, self.inbox.recv()).await.expect("a message, or the end of the socket")
    }

    /// The value of the first message on this socket, which must have this name.
    pub async fn first(&mut self, t: &str) -> Value {
        let message = self.next().await.unwrap_or_else(|| panic!("the socket was closed instead of `{t}`"));
        assert_eq!(message["t"], t, "{message}");
        message["v"].clone()
    }

    /// The value of the next message of this name. The others that come before it are dropped.
    pub async fn find(&mut self, t: &str) -> Value {
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("the socket was closed instead of `{t}`"));
            if message["t"] == t {
                return message["v"].clone();
            }
        }
    }

    /// The value of the next message of this name. The others that come before it stay, for who reads next.
    pub async fn find_and_keep_others(&mut self, t: &str) -> Value {
        let mut others = VecDeque::new();
        loop {
            let message = self.next().await.unwrap_or_else(|| panic!("the socket was closed instead of `{t}`"));
            if message["t"] == t {
                others.append(&mut self.early);
                self.early = others;
                return message["v"].clone();
            }
            others.push_back(message);
        }
    }

    /// The next message, if it is there.
    pub fn try_next(&mut self) -> Option<Value> {
        self.early.pop_front().or_else(|| self.inbox.try_recv().ok())
    }

    /// Whether nothing has come that matters. A heartbeat that overtook a report names a block that is done: it may be
    /// answered by a `drop`, which a node that has forgotten the block pays no heed to.
    pub fn is_quiet(&mut self) -> bool {
        let come: Vec<Value> = std::iter::from_fn(|| self.try_next()).collect();
        come.iter().all(|message| message["t"] == "drop")
    }
}

/// The message in a binary frame, with its bulk as `requests` and a mark that it was one.
fn unpack(frame: &[u8]) -> Value {
    let length = u32::from_le_bytes(frame[..4].try_into().expect("four bytes")) as usize;
    let mut message: Value = serde_json::from_slice(&frame[4..4 + length]).expect("the head of a binary frame is JSON");
    assert!(message["v"]["requests"].is_null(), "the requests are the bulk: {message}");
    let requests = zstd::decode_all(&frame[4 + length..]).expect("the bulk is zstd");
    message["v"]["requests"] = serde_json::from_slice(&requests).expect("the bulk is JSON");
    message["binary"] = json!(true);
    message
}

/// A node.
pub struct Node {
    pub id: String,
    pub socket: Socket,
    pub holding: Vec<Value>,
    pub api: Api,
    query: String,
}

impl Node {
    /// Connects by the address that the seeds write, with more parameters (`&maxprocesscount=2`), and says that it holds
    /// nothing.
    pub async fn connect(api: &Api, id: &str, more: &str) -> Self {
        let query =
            format!("/?nodeid={id}&operationsystem=linux&proccessorcount=4&memory=8000&nodetype=Console&group=default&sign=5df3fc02{more}");
        let socket = Socket::open(&api.url, &query, None).await;
        let mut node = Self { id: id.to_owned(), socket, holding: Vec::new(), api: api.clone(), query };
        node.welcome().await;
        node
    }

    async fn welcome(&mut self) {
        let welcome = self.socket.first("welcome").await;
        assert_eq!(welcome["nodeId"], self.id.as_str());
        assert!(welcome["heartbeat"].as_u64() > Some(0) && welcome["offline"].as_u64() > welcome["heartbeat"].as_u64(), "{welcome}");
        self.beat();
    }

    /// Loses its connection without a word, and connects again.
    pub async fn reconnect(&mut self) {
        self.socket = Socket::open(&self.api.url, &self.query, None).await;
        self.welcome().await;
    }

    /// A heartbeat.
    pub fn beat(&self) {
        let holding: Vec<Value> = self.holding.iter().map(held).collect();
        let v = json!({ "processCount": holding.len(), "cpu": 7, "freeMemory": 321, "holding": holding });
        self.socket.say("heartbeat", &v);
    }

    /// The next block, which it holds from now on.
    pub async fn block(&mut self) -> Value {
        let block = self.socket.find("block").await;
        self.holding.push(block.clone());
        block
    }

    /// Reports a block as answered, and forgets it.
    pub async fn report(&mut self, block: &Value) -> Answer {
        self.holding.retain(|held| held["blockId"] != block["blockId"]);
        self.api.report(&self.id, block, 200).await
    }
}

/// The entry of a block in a heartbeat.
pub fn held(block: &Value) -> Value {
    json!({ "identity": block["identity"], "blockId": block["blockId"], "attempt": block["attempt"], "epoch": block["epoch"] })
}

/// A worker.
pub struct Worker {
    pub id: String,
    pub socket: Socket,
}

impl Worker {
    /// Connects, and watches classes.
    pub async fn watch(api: &Api, id: &str, classes: &[&str]) -> Self {
        let alive = json!({ "t": "heartbeat", "v": {} });
        let socket = Socket::open(&api.url, &format!("/worker?workerid={id}&name=it"), Some(alive)).await;
        let mut worker = Self { id: id.to_owned(), socket };
        let welcome = worker.socket.first("welcome").await;
        assert_eq!(welcome["workerId"], id);
        worker.socket.say("watch", &json!({ "classNames": classes, "runs": [] }));
        // A worker that comes back may get messages about runs first: `start`, `ended`, and others.
        let watching = worker.socket.find_and_keep_others("watching").await;
        assert_eq!(watching, json!({ "classNames": classes }));
        worker
    }
}
