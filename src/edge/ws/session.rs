//! Common parts of the sessions of nodes, workers and windows.

use super::frames::Frames;
use crate::actors::budget::Share;
use crate::actors::session_sender::{Backlog, Frame, Line, SessionSender};
use crate::edge::Edge;
use crate::edge::auth::Caller;
use crate::edge::error::Failure;
use crate::protocol::problem::Problem;
use crate::service::Service;
use actix::{Actor, ActorContext, ActorFutureExt, AsyncContext, Handler, StreamHandler, fut::wrap_future};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws::{self, CloseCode, CloseReason, Message, ProtocolError, WebsocketContext};
use bytes::Bytes;
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, Stream, stream};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::task::{Context, Poll};

/// The longest message that a peer may send. Bulk data uses HTTP; control messages are small.
pub const MAX_MESSAGE: usize = 1 << 20;
/// The most bytes of the reason in a close frame (RFC 6455, 5.5). A peer drops a longer frame, and with it the reason.
const MOST_REASON: usize = 123;

/// Why a socket of an agent or a worker is closed; at most 123 bytes.
const IN_DOUBT: &str = "this broker cannot renew its lease, so another one may lead: connect again, or to another broker";

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// Both directions of a socket, before its session starts to read.
pub struct Ends {
    /// For the socket of an agent or a worker, which may be used only while no other broker can lead.
    only_while_leading: Option<Service>,
    incoming: Option<Frames>,
    sender: Option<SessionSender>,
    backlog: Arc<Backlog>,
    /// Completes when the token of the peer is withdrawn.
    withdrawn: Option<(String, LocalBoxFuture<'static, Problem>)>,
}

impl Ends {
    /// From an upgrade request; callers with the same token share one memory budget. `peer` names the peer in the log.
    pub fn of(edge: &Edge, caller: &Caller, peer: String, request: &HttpRequest, payload: web::Payload) -> Self {
        let share: Share = edge.budget.share(caller.share());
        let line = request.conn_data::<Arc<Line>>().map(Arc::clone);
        let incoming = Some(Frames::new(payload, &share));
        let withdrawn = Some((peer, caller.withdrawn(&edge.tokens).boxed_local()));
        Self { only_while_leading: None, incoming, sender: None, backlog: Arc::new(Backlog::new(share, line)), withdrawn }
    }

    /// The socket of an agent or a worker: it is closed instead of used if another broker may lead.
    pub fn while_leading(self, edge: &Edge) -> Self {
        Self { only_while_leading: Some(edge.service.clone()), ..self }
    }

    /// The peer may send messages of up to this many bytes.
    pub fn up_to(self, most: usize) -> Self {
        Self { incoming: self.incoming.map(|incoming| incoming.up_to(most)), ..self }
    }

    /// Whether the socket may be used; otherwise it is closed.
    fn may_be_used<A: Peer>(&self, ctx: &mut WebsocketContext<A>) -> bool {
        let problem = self.only_while_leading.as_ref().and_then(|service| service.check_lease().err());
        if problem.is_some() {
            refuse(CloseCode::Restart, IN_DOUBT, ctx);
        }
        problem.is_none()
    }

    /// Starts to read, and returns the sender. Closes the socket when the token of the peer is withdrawn.
    pub fn begin<A: Peer + Handler<Frame>>(&mut self, ctx: &mut WebsocketContext<A>) -> SessionSender {
        if let Some(incoming) = self.incoming.take() {
            ctx.add_stream(incoming);
        }
        let (number, session) = (NUMBER.fetch_add(1, Relaxed), ctx.address().recipient());
        if let Some((peer, withdrawn)) = self.withdrawn.take() {
            ctx.spawn(wrap_future(withdrawn).map(move |problem, _: &mut A, ctx: &mut WebsocketContext<A>| {
                log::warn!("session closed because its token was withdrawn {peer} session={number} reason={}", problem.detail);
                refuse(CloseCode::Policy, &format!("token withdrawn: {}", problem.detail), ctx);
            }));
        }
        let sender = SessionSender { number, session, backlog: Arc::clone(&self.backlog) };
        self.sender = Some(sender.clone());
        sender
    }

    /// The sender, once the session has begun.
    pub fn sender(&self) -> Option<SessionSender> {
        self.sender.clone()
    }

    /// Writes a frame from the sender.
    pub fn write<A: Peer>(&self, frame: Frame, ctx: &mut WebsocketContext<A>) {
        self.backlog.buffered(frame.bytes());
        if !self.may_be_used(ctx) {
            return;
        }
        match frame {
            Frame::Text(text) => ctx.text(text),
            Frame::Binary(bytes) => ctx.binary(bytes),
            Frame::Close(why) => refuse(CloseCode::Normal, &why, ctx),
            Frame::Restart(why) => refuse(CloseCode::Restart, &why, ctx),
        }
    }

    /// The socket is gone.
    pub fn end(&mut self) {
        self.sender = None;
        self.backlog.end();
    }
}

/// The output of a socket. It is polled again when its previous piece is sent.
struct Outgoing<S> {
    frames: Pin<Box<S>>,
    backlog: Arc<Backlog>,
}

impl<S: Stream<Item = Result<Bytes, actix_web::Error>>> Stream for Outgoing<S> {
    type Item = S::Item;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.backlog.flushed();
        let next = self.frames.as_mut().poll_next(cx);
        if matches!(next, Poll::Ready(None)) {
            // The server waits up to a second for the peer to close the connection. A WebSocket client waits for the server (RFC 6455,
            // 7.1.1), so the server must begin.
            self.backlog.finished();
        }
        next
    }
}

/// Performs the WebSocket upgrade.
pub fn open<A: Peer>(mut session: A, request: &HttpRequest) -> Result<HttpResponse, Failure> {
    let mut answer =
        ws::handshake_with_protocols(request, A::PROTOCOLS).map_err(|e| Failure(Problem::malformed(format!("not a WebSocket: {e}"))))?;
    let backlog = Arc::clone(&session.ends().backlog);
    // Frames are read by [`Ends::begin`]: the context's own reader has no limit.
    let frames = Box::pin(WebsocketContext::create(session, stream::pending()));
    Ok(answer.streaming(Outgoing { frames, backlog }))
}

/// Closes the connection of a peer, for a reason.
pub fn refuse<A>(code: CloseCode, why: &str, ctx: &mut WebsocketContext<A>)
where
    A: Actor<Context = WebsocketContext<A>>,
{
    ctx.close(Some(CloseReason { code, description: Some(reason(why).to_owned()) }));
    ctx.stop();
}

/// As much of a reason as fits into a close frame.
fn reason(why: &str) -> &str {
    &why[..why.floor_char_boundary(MOST_REASON)]
}

/// A session, as far as its frames are concerned.
pub trait Peer: Actor<Context = WebsocketContext<Self>> + StreamHandler<Result<Message, ProtocolError>> {
    /// Subprotocols, one of which a client may ask for.
    const PROTOCOLS: &'static [&'static str] = &[];

    /// Handles a whole message.
    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>);
    /// Its socket.
    fn ends(&mut self) -> &mut Ends;
}

/// Handles everything that arrives on the socket.
pub fn receive<A: Peer>(peer: &mut A, message: Result<Message, ProtocolError>, ctx: &mut WebsocketContext<A>) {
    if !peer.ends().may_be_used(ctx) {
        return;
    }
    match message {
        Ok(Message::Binary(bytes)) => peer.take(&bytes, ctx),
        Ok(Message::Ping(bytes)) => ctx.pong(&bytes),
        Ok(Message::Close(_)) => refuse(CloseCode::Normal, "closed by the peer", ctx),
        // Data always arrives as bytes, whatever its type was.
        Ok(Message::Text(_) | Message::Continuation(_) | Message::Pong(_) | Message::Nop) => {}
        Err(ProtocolError::Overflow) => refuse(CloseCode::Size, "a message is too long", ctx),
        Err(ProtocolError::Io(error)) if error.kind() == std::io::ErrorKind::OutOfMemory => {
            refuse(CloseCode::Again, "the sockets of this token have used up their memory share", ctx);
        }
        Err(error) => {
            log::info!("connection failed error={error}");
            refuse(CloseCode::Protocol, "not a WebSocket frame", ctx);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actors::budget::Budget;
    use futures_util::StreamExt as _;

    #[test]
    fn a_reason_fits_into_a_close_frame() {
        assert_eq!(reason("gone"), "gone");
        assert_eq!(reason(&"x".repeat(200)).len(), 123);
        // Two bytes each.
        assert_eq!(reason(&"é".repeat(100)), "é".repeat(61));
    }

    #[tokio::test]
    async fn the_write_half_closes_after_the_last_frame_and_not_before() {
        let line = Arc::new(Line::default());
        let backlog = Arc::new(Backlog::new(Budget::new(1_000).share(None), Some(Arc::clone(&line))));
        let frames = Box::pin(stream::iter([Ok(Bytes::from_static(b"a")), Ok(Bytes::from_static(b"b"))]));
        let mut outgoing = Outgoing { frames, backlog };
        for _ in 0..2 {
            assert!(outgoing.next().await.is_some() && !line.is_finished());
        }
        assert!(outgoing.next().await.is_none() && line.is_finished());
    }
}
