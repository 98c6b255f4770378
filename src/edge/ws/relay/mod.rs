//! Connects the socket of an agent or a worker that came to a standby with the leader, so that an agent or a worker needs to know one broker
//! only. What the client sends and gets passes as it is, in both directions, except the close frame of a leader that ends: only the headers of
//! frames are read.
//!
//! When another broker leads, the standby connects with it, and the client keeps its socket. The next leader begins with `welcome`, as on each
//! socket, and after each `welcome` a client does what it does after a reconnect. What the client sends between the two leaders waits in its
//! connection. If the standby itself leads, the client gets a session in this process. The socket ends if the client has got a part of a message
//! only, if a leader refuses or closes it for another reason than its own end, if none leads for [`PATIENCE`], and when this broker ends.

mod upload;

use super::{Client, parameters, session_of};
use crate::actors::session_sender::Line;
use crate::domain::backoff::Backoff;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{ADMITTED, Admitted};
use crate::edge::forward::{FORWARDED, Leader, add_origin, pass_headers};
use crate::protocol::ownership::SECRET_HEADER;
use crate::protocol::problem::Problem;
use crate::protocol::ws_header::{CLOSE, FrameTracker, close_code, is_close};
use actix_codec::FramedParts;
use actix_web::body::MessageBody as _;
use actix_web::http::StatusCode;
use actix_web::http::header::{HeaderMap, HeaderName, HeaderValue, SEC_WEBSOCKET_EXTENSIONS};
use actix_web::{FromRequest as _, HttpRequest, HttpResponse, web};
use actix_web_actors::ws;
use awc::error::WsClientError;
use bytes::{Bytes, BytesMut};
use futures_util::future::LocalBoxFuture;
use futures_util::future::{self, FutureExt as _};
use futures_util::stream::{self, LocalBoxStream, StreamExt as _};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::io::ReaderStream;
use upload::{Sink, Upload};

/// The parameter of a client that knows several brokers: a standby refuses its socket, so that it connects to the leader itself.
const DIRECT: &str = "direct";
/// Bytes that are read at once.
const PIECE: usize = 4 << 10;
/// The pauses between two tries to connect with the next leader.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const MOST_PAUSE: Duration = Duration::from_secs(1);
/// The code of the close frame of a leader that ends, or cannot renew its lease, and of this broker (RFC 6455, 7.4.2; 1012: service restart).
const RESTARTS: u16 = 1012;
/// Why this broker closes a socket; at most 123 bytes.
const WHY: &str = "this broker ends, or no leader takes this socket: connect again";
/// How long one try may take.
const TRY: Duration = Duration::from_secs(5);
/// How long a socket stays without a leader. Its client may have left meanwhile: that is noticed only at a leader.
const PATIENCE: Duration = Duration::from_secs(60);

/// The leader to which a socket is passed on: this broker is a standby, another one leads, and the client knows no other.
pub(in crate::edge) fn leader_for(edge: &Edge, request: &HttpRequest) -> Option<Leader> {
    let is_direct = parameters(request).is_ok_and(|query| query.get(DIRECT).is_some_and(|value| value == "true"));
    let is_for_leader = is_direct || request.headers().contains_key(FORWARDED) || edge.service.makes_way();
    if is_for_leader { None } else { edge.service.leader() }
}

/// Opens a socket at the leader, and passes on what comes on either of the two.
pub(in crate::edge) async fn open(
    edge: &Edge,
    leader: Leader,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let mut answer = ws::handshake(request).map_err(|e| Problem::malformed(format!("not a WebSocket: {e}")))?;
    let first = tokio::select! {
        first = connect(edge, leader.clone(), request, &[]) => first?,
        () = edge.service.is_replaced(leader) => return Err(Problem::standby(None)),
        () = edge.traffic.ending() => return Err(Problem::ending()),
    };
    let upload = Upload::begin(payload);
    upload.use_sink(Some(first.sink));
    let line = request.conn_data::<Arc<Line>>().map(Arc::clone);
    let relay = Relay {
        edge: edge.clone(),
        may_change_leader: Client::at(request.path()).is_some(),
        request: request.clone(),
        admitted_at: Timestamp::now(),
        source: first.source,
        over: first.over,
        upload,
        sent: Sent::default(),
        backoff: Backoff::new(FIRST_PAUSE, MOST_PAUSE),
        gives_up_at: None,
    };
    let frames = stream::unfold(relay, async |mut relay| Some((relay.next().await?, relay)));
    // Yields nothing: closes the write half of the connection, so that the client does not wait for this broker, nor this broker for the client.
    let end = stream::poll_fn(move |_| {
        if let Some(line) = &line {
            line.finish();
        }
        Poll::Ready(None)
    });
    Ok(answer.streaming(frames.chain(end)))
}

/// A socket with the leader.
struct Connected {
    source: LocalBoxStream<'static, io::Result<Bytes>>,
    sink: Sink,
    /// Completes when nothing more can be expected from the leader. A machine without power closes no connection.
    over: LocalBoxFuture<'static, ()>,
}

async fn connect(edge: &Edge, leader: Leader, request: &HttpRequest, more: &[(HeaderName, HeaderValue)]) -> Result<Connected, Problem> {
    let Some(client) = request.app_data::<awc::Client>() else { return Err(Problem::internal()) };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut headers = HeaderMap::new();
    pass_headers(request.headers(), &mut headers);
    add_origin(edge, request, &mut headers);
    // The client would not learn of an extension that the leader chooses.
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    for (name, value) in more {
        headers.insert(name.clone(), value.clone());
    }
    let mut call = client.ws(format!("{}{path}", leader.0));
    for (name, value) in &headers {
        call = call.header(name.clone(), value.clone());
    }
    let (_, socket) = call.connect().await.map_err(|error| refused(&leader, &error))?;
    let FramedParts { io, read_buf, .. } = socket.into_parts();
    let (from_leader, to_leader) = tokio::io::split(io);
    let first = Some(read_buf.freeze()).filter(|bytes| !bytes.is_empty()).map(Ok);
    let source = stream::iter(first).chain(ReaderStream::with_capacity(from_leader, PIECE)).boxed_local();
    let (replaced, ending) = (edge.service.is_replaced(leader), edge.traffic.ending());
    let over = async move {
        tokio::select! {
            () = replaced => {}
            () = ending => {}
        }
    };
    Ok(Connected { source, sink: Sink::Leader(to_leader), over: over.boxed_local() })
}

fn refused(leader: &Leader, error: &WsClientError) -> Problem {
    log::debug!("the leader did not open a socket leader={} error={error}", leader.0);
    match error {
        WsClientError::InvalidResponseStatus(status) if status.is_client_error() || status.is_server_error() => {
            Problem::socket_refused(&leader.0, status.as_u16())
        }
        _ => Problem::leader_unreachable(&leader.0),
    }
}

/// A client's socket on its way from one leader to the next.
struct Relay {
    edge: Edge,
    request: HttpRequest,
    /// The client is a node or a worker, and its session is not in this process.
    may_change_leader: bool,
    admitted_at: Timestamp,
    source: LocalBoxStream<'static, io::Result<Bytes>>,
    over: LocalBoxFuture<'static, ()>,
    upload: Upload,
    sent: Sent,
    /// Both are reset when a leader sends something to the client.
    backoff: Backoff,
    gives_up_at: Option<Instant>,
}

impl Relay {
    /// What the client gets next; `None` at the end of its socket.
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        loop {
            let piece = tokio::select! {
                piece = self.source.next() => piece.and_then(Result::ok),
                () = &mut self.over => None,
                () = &mut self.upload.client_left => return None,
            };
            let is_lost = match piece {
                Some(piece) => {
                    let passed = self.sent.take(piece, self.may_change_leader);
                    if !passed.is_empty() {
                        self.backoff.reset();
                        self.gives_up_at = None;
                        return Some(Ok(passed));
                    }
                    self.sent.leader_leaves()
                }
                None => true,
            };
            if is_lost && !self.change_leader().await {
                return self.sent.last_frame().map(Ok);
            }
        }
    }

    /// Connects with the next leader. Returns false if the socket ends instead.
    async fn change_leader(&mut self) -> bool {
        // Neither may be asked again after its end.
        (self.source, self.over) = (stream::empty().boxed_local(), future::pending().boxed_local());
        self.upload.use_sink(None);
        if !self.may_change_leader || !self.sent.can_continue() {
            return false;
        }
        log::debug!("looking for the next leader of a socket path={}", self.request.path());
        self.sent.close.clear();
        // A leader that accepts sockets and ends them at once is tried again after a pause, too.
        let mut pauses = self.gives_up_at.is_some();
        let gives_up_at = *self.gives_up_at.get_or_insert_with(|| Instant::now() + PATIENCE);
        while !self.upload.has_ended() && Instant::now() < gives_up_at {
            let leader = self.edge.service.leader();
            if std::mem::replace(&mut pauses, true) {
                tokio::select! {
                    () = sleep(self.backoff.next_wait()) => {}
                    () = self.edge.service.leader_is_not(leader) => {}
                    () = self.edge.traffic.ending(), if !self.edge.traffic.is_ending() => {}
                }
            }
            // A leader that ends may accept a connection and not answer any more.
            let leader = self.edge.service.leader();
            let tried = tokio::select! {
                tried = timeout(TRY, self.connect_next()) => tried.unwrap_or(Err(Some(Problem::standby(None)))),
                () = self.edge.service.leader_is_not(leader) => continue,
                () = self.edge.traffic.ending(), if !self.edge.traffic.is_ending() => continue,
            };
            let connected = match tried {
                Ok(connected) => connected,
                Err(Some(problem)) if is_final(&problem) => {
                    let peer = self.request.peer_addr().map_or_else(String::new, |peer| peer.to_string());
                    let (path, reason) = (self.request.path(), problem.detail);
                    log::info!("socket closed because the next leader refused it peer={peer} path={path} reason={reason}");
                    return false;
                }
                Err(None) => return false,
                Err(Some(_)) => continue,
            };
            // When this broker leads no more, it ends.
            self.may_change_leader = !matches!(connected.sink, Sink::Session(_));
            (self.source, self.over) = (connected.source, connected.over);
            self.upload.use_sink(Some(connected.sink));
            return true;
        }
        false
    }

    /// Tries once to connect with the broker that leads now. The error is empty if this broker ends.
    async fn connect_next(&self) -> Result<Connected, Option<Problem>> {
        if let Some(successor) = self.edge.successor.get() {
            return if successor.traffic.is_ending() { Err(None) } else { self.begin_session(successor).await.map_err(Some) };
        }
        match self.edge.service.leader() {
            // Another process has the address of this broker.
            Some(_) if self.edge.service.makes_way() => Err(None),
            _ if self.edge.traffic.is_ending() => Err(None),
            Some(leader) => self.connect(leader).await.map_err(Some),
            None => Err(Some(Problem::standby(None))),
        }
    }

    /// Connects with another broker that leads. It learns when this one admitted the client: its `sign` may be too old by now.
    async fn connect(&self, leader: Leader) -> Result<Connected, Problem> {
        let secret = self.edge.link_secret.get_or_try_init(|| self.edge.service.stored_link_secret()).await?;
        let secret = HeaderValue::from_str(secret).map_err(|_| Problem::internal())?;
        let more = [(HeaderName::from_static(SECRET_HEADER), secret), (ADMITTED, HeaderValue::from(self.admitted_at.0))];
        connect(&self.edge, leader, &self.request, &more).await
    }

    /// Begins a session at this broker, which leads now.
    async fn begin_session(&self, leader: &Edge) -> Result<Connected, Problem> {
        let client = Client::at(self.request.path()).ok_or_else(Problem::internal)?;
        let (sink, messages) = mpsc::channel(1);
        let messages = stream::unfold(messages, async |mut messages| Some((Ok(messages.recv().await?), messages)));
        let mut payload = actix_web::dev::Payload::Stream { payload: messages.boxed_local() };
        let payload = web::Payload::from_request(&self.request, &mut payload).await.map_err(|_| Problem::internal())?;
        let session = session_of(client, leader, Admitted(self.admitted_at), &self.request, payload).await.map_err(|failure| failure.0)?;
        let mut frames = session.into_body();
        let source = stream::poll_fn(move |cx| Pin::new(&mut frames).poll_next(cx).map_err(|error| io::Error::other(error.to_string())));
        Ok(Connected { source: source.boxed_local(), sink: Sink::Session(sink), over: future::pending().boxed_local() })
    }
}

/// What leaders have sent to the client.
#[derive(Default)]
struct Sent {
    tracker: FrameTracker,
    /// A close frame, as far as it has come: the client gets it only if its socket ends.
    close: BytesMut,
    /// The client has got a close frame.
    is_closed: bool,
    /// The client has got a whole frame. Before, it would take the next `welcome` for its first one, and not repeat what it sent before it.
    has_begun: bool,
}

impl Sent {
    /// Takes what the leader has sent, and returns what the client gets now.
    fn take(&mut self, piece: Bytes, may_continue: bool) -> Bytes {
        if self.is_closed {
            return piece;
        }
        let mut at = 0;
        while at < piece.len() && self.close.is_empty() {
            if self.tracker.is_between_frames() && is_close(piece[at]) {
                break;
            }
            at += self.tracker.advance(&piece[at..]);
            self.has_begun |= self.tracker.is_between_frames();
        }
        self.close.extend_from_slice(&piece[at..]);
        let is_last = close_code(&self.close).is_some_and(|code| code != RESTARTS || !may_continue || !self.can_continue());
        if !is_last {
            return piece.slice(..at);
        }
        self.is_closed = true;
        piece.slice(..at).into_iter().chain(self.close.split()).collect()
    }

    /// A close frame, unless the client has got one, or lacks the rest of another frame.
    fn last_frame(&mut self) -> Option<Bytes> {
        let can_end = !self.is_closed && self.tracker.is_between_frames();
        self.is_closed = true;
        can_end.then(|| [&[0x80 | CLOSE, 2 + WHY.len() as u8], &RESTARTS.to_be_bytes()[..], WHY.as_bytes()].concat().into())
    }

    /// Whether the last thing that the leader has sent is that it ends.
    fn leader_leaves(&self) -> bool {
        close_code(&self.close) == Some(RESTARTS)
    }

    /// Whether another leader can continue: what the client has got ends with a whole message.
    fn can_continue(&self) -> bool {
        self.has_begun && !self.is_closed && self.tracker.is_between_messages()
    }
}

/// Whether the client must learn the reason by connecting again. The leader throttles this broker for what other clients have done.
fn is_final(problem: &Problem) -> bool {
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::BAD_REQUEST);
    status.is_client_error() && status != StatusCode::TOO_MANY_REQUESTS
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: [u8; 4] = [0x81, 2, b'h', b'i'];
    const LEADER_ENDS: [u8; 4] = [0x88, 2, 0x03, 0xf4];

    #[test]
    fn a_client_gets_all_but_the_end_of_a_leader() {
        for size in 1..=8 {
            let mut sent = Sent::default();
            let all = [TEXT, TEXT, LEADER_ENDS].concat();
            let got: Vec<u8> = all.chunks(size).flat_map(|piece| sent.take(Bytes::copy_from_slice(piece), true)).collect();
            assert_eq!(got, [TEXT, TEXT].concat(), "pieces of {size}");
            assert!(sent.leader_leaves() && sent.can_continue());
        }
    }

    #[test]
    fn a_close_frame_for_another_reason_reaches_the_client() {
        let kicked = [0x88, 3, 0x03, 0xe8, b'x'];
        for (close, may_continue) in [(&kicked[..], true), (&LEADER_ENDS[..], false)] {
            let mut sent = Sent::default();
            let all = [&TEXT[..], close].concat();
            let got: Vec<u8> = all.chunks(3).flat_map(|piece| sent.take(Bytes::copy_from_slice(piece), may_continue)).collect();
            assert_eq!(got, all);
            assert!(!sent.leader_leaves() && !sent.can_continue());
        }
    }

    #[test]
    fn a_socket_without_a_leader_ends_with_a_close_frame_where_one_can_be() {
        let mut sent = Sent::default();
        assert_eq!(sent.take(Bytes::from_static(&TEXT), true), TEXT[..]);
        let last = sent.last_frame().expect("a frame");
        assert_eq!((close_code(&last), FrameTracker::default().advance(&last)), (Some(RESTARTS), last.len()));
        assert_eq!(sent.last_frame(), None);
        let mut sent = Sent::default();
        sent.take(Bytes::from_static(&TEXT[..3]), true);
        assert_eq!(sent.last_frame(), None, "it would be the rest of the text");
    }

    #[test]
    fn a_client_that_has_got_a_part_of_a_message_cannot_continue() {
        let mut sent = Sent::default();
        assert_eq!(sent.take(Bytes::from_static(&TEXT[..3]), true), TEXT[..3]);
        assert!(!sent.can_continue());
        assert!(!Sent::default().can_continue(), "it has got nothing");
        let mut sent = Sent::default();
        // The first frame of a message, and a close frame.
        let all = [&[0x01, 0][..], &LEADER_ENDS].concat();
        assert_eq!(sent.take(Bytes::from(all.clone()), true), all);
        assert!(!sent.can_continue());
    }
}
