//! What the sessions of nodes and workers have in common.

use crate::actors::outlet::{Frame, Outlet};
use actix::{Actor, ActorContext, Handler};
use actix_http::ws::Item;
use actix_web_actors::ws::{CloseCode, CloseReason, Message, ProtocolError, WebsocketContext};
use bytes::BytesMut;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The longest message that a peer may send. Bulk comes by HTTP; control messages are small.
pub const MAX_MESSAGE: usize = 1 << 20;

static NUMBER: AtomicU64 = AtomicU64::new(1);

/// The outlet of a session that starts.
pub fn outlet<A>(ctx: &WebsocketContext<A>) -> Outlet
where
    A: Actor<Context = WebsocketContext<A>> + Handler<Frame>,
{
    use actix::AsyncContext;
    Outlet { number: NUMBER.fetch_add(1, Relaxed), session: ctx.address().recipient() }
}

/// Writes a frame.
pub fn write<A>(frame: Frame, ctx: &mut WebsocketContext<A>)
where
    A: Actor<Context = WebsocketContext<A>>,
{
    match frame {
        Frame::Text(text) => ctx.text(text),
        Frame::Binary(bytes) => ctx.binary(bytes),
        Frame::Close(why) => {
            // A close frame carries at most 123 bytes of text.
            let description = why.chars().take(100).collect();
            ctx.close(Some(CloseReason { code: CloseCode::Normal, description: Some(description) }));
            ctx.stop();
        }
    }
}

/// Joins the parts of a message that came in several.
#[derive(Debug, Default)]
pub struct Joined(BytesMut);

impl Joined {
    /// Takes a part; gives the message when it is whole, or `Err` if it is too long.
    pub fn add(&mut self, item: Item) -> Result<Option<BytesMut>, ()> {
        let (part, last) = match item {
            Item::FirstText(part) | Item::FirstBinary(part) => {
                self.0.clear();
                (part, false)
            }
            Item::Continue(part) => (part, false),
            Item::Last(part) => (part, true),
        };
        if self.0.len() + part.len() > MAX_MESSAGE {
            return Err(());
        }
        self.0.extend_from_slice(&part);
        Ok(last.then(|| self.0.split()))
    }
}

/// Hangs up on a peer that does not keep to the protocol.
pub fn refuse<A>(code: CloseCode, why: &str, ctx: &mut WebsocketContext<A>)
where
    A: Actor<Context = WebsocketContext<A>>,
{
    ctx.close(Some(CloseReason { code, description: Some(why.to_owned()) }));
    ctx.stop();
}

/// A session, as far as its frames are concerned.
pub trait Peer: Actor<Context = WebsocketContext<Self>> {
    /// Takes a whole message.
    fn take(&mut self, text: &[u8], ctx: &mut WebsocketContext<Self>);
    /// The parts of a message that is not whole yet.
    fn joined(&mut self) -> &mut Joined;
}

/// Takes whatever the socket brings.
pub fn receive<A: Peer>(peer: &mut A, message: Result<Message, ProtocolError>, ctx: &mut WebsocketContext<A>) {
    match message {
        Ok(Message::Text(text)) => peer.take(text.as_bytes(), ctx),
        Ok(Message::Binary(bytes)) => peer.take(&bytes, ctx),
        Ok(Message::Continuation(item)) => match peer.joined().add(item) {
            Ok(Some(text)) => peer.take(&text, ctx),
            Ok(None) => {}
            Err(()) => refuse(CloseCode::Size, "a message is too long", ctx),
        },
        Ok(Message::Ping(bytes)) => ctx.pong(&bytes),
        Ok(Message::Close(_)) => refuse(CloseCode::Normal, "as you like", ctx),
        Ok(Message::Pong(_) | Message::Nop) => {}
        Err(ProtocolError::Overflow) => refuse(CloseCode::Size, "a frame is too long", ctx),
        Err(error) => {
            log::info!("a socket broke: {error}");
            refuse(CloseCode::Protocol, "not a WebSocket frame", ctx);
        }
    }
}
