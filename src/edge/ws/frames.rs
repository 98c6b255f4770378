//! What comes in on a WebSocket: whole messages, with a bound on what is kept until they are whole.
//!
//! A frame is refused by its header. No more is read from the connection while a message waits here, so what is in memory is at
//! most one message, and the piece in which its end came.

use super::session::MAX_MESSAGE;
use crate::actors::budget::{Charge, Share};
use crate::protocol::ws_header;
use actix_codec::Decoder as _;
use actix_http::ws::{Codec, Frame, Item};
use actix_web::web::Payload;
use actix_web_actors::ws::{Message, ProtocolError};
use bytes::{Bytes, BytesMut};
use futures_util::Stream;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

/// Bytes of a message that is not whole, up to which they are not counted.
const FREE: usize = 16 << 10;

/// See the module's text. Every message of data is given as [`Message::Binary`], whatever it came as.
pub(super) struct Frames {
    payload: Payload,
    buffer: BytesMut,
    codec: Codec,
    /// Parts of a message that came in several frames.
    joined: Option<BytesMut>,
    charge: Charge,
    is_over: bool,
}

impl Frames {
    pub(super) fn new(payload: Payload, share: &Share) -> Self {
        let codec = Codec::new().max_size(MAX_MESSAGE);
        Self { payload, buffer: BytesMut::new(), codec, joined: None, charge: share.nothing(), is_over: false }
    }

    /// Makes room for the rest of a frame at once: a buffer that doubles is larger than what is counted.
    fn make_room(&mut self) {
        let whole = ws_header::whole(&self.buffer);
        if whole > self.buffer.capacity() && !ws_header::is_too_long(&self.buffer, MAX_MESSAGE) {
            let mut buffer = BytesMut::with_capacity(whole);
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
        }
    }

    /// The next message, if it has come as a whole.
    fn decode(&mut self) -> Result<Option<Message>, ProtocolError> {
        loop {
            if ws_header::is_too_long(&self.buffer, MAX_MESSAGE) {
                return Err(ProtocolError::Overflow);
            }
            let Some(frame) = self.codec.decode(&mut self.buffer)? else {
                if self.buffer.is_empty() && self.buffer.capacity() > FREE {
                    // What a long message needed is not kept.
                    self.buffer = BytesMut::new();
                }
                self.count()?;
                return Ok(None);
            };
            return Ok(Some(match frame {
                Frame::Text(bytes) | Frame::Binary(bytes) => Message::Binary(bytes),
                Frame::Ping(bytes) => Message::Ping(bytes),
                Frame::Pong(bytes) => Message::Pong(bytes),
                Frame::Close(reason) => Message::Close(reason),
                Frame::Continuation(item) => match self.join(item)? {
                    Some(whole) => Message::Binary(whole),
                    None => continue,
                },
            }));
        }
    }

    fn join(&mut self, item: Item) -> Result<Option<Bytes>, ProtocolError> {
        let (part, is_last) = match item {
            Item::FirstText(part) | Item::FirstBinary(part) => {
                self.joined = None;
                (part, false)
            }
            Item::Continue(part) => (part, false),
            Item::Last(part) => (part, true),
        };
        let joined = self.joined.get_or_insert_default();
        if joined.len() + part.len() > MAX_MESSAGE {
            return Err(ProtocolError::Overflow);
        }
        joined.extend_from_slice(&part);
        self.count()?;
        Ok(if is_last { self.joined.take().map(BytesMut::freeze) } else { None })
    }

    /// Counts what is kept.
    fn count(&mut self) -> Result<(), ProtocolError> {
        let kept = self.buffer.len() + self.joined.as_ref().map_or(0, BytesMut::len);
        let room = self.charge.set(if kept > FREE { kept } else { 0 });
        room.map_err(|_| ProtocolError::Io(io::ErrorKind::OutOfMemory.into()))
    }
}

impl Stream for Frames {
    type Item = Result<Message, ProtocolError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            if self.is_over {
                return Poll::Ready(None);
            }
            match self.decode() {
                Ok(None) => {}
                Ok(Some(message)) => return Poll::Ready(Some(Ok(message))),
                Err(error) => {
                    // Where the next frame begins is not known.
                    self.is_over = true;
                    self.buffer = BytesMut::new();
                    self.joined = None;
                    return Poll::Ready(Some(Err(error)));
                }
            }
            match ready!(Pin::new(&mut self.payload).poll_next(cx)) {
                Some(Ok(piece)) => {
                    self.buffer.extend_from_slice(&piece);
                    self.make_room();
                }
                Some(Err(error)) => {
                    self.is_over = true;
                    return Poll::Ready(Some(Err(ProtocolError::Io(io::Error::other(error.to_string())))));
                }
                None => self.is_over = true,
            }
        }
    }
}
