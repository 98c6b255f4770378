//! WebSocket input: whole messages, with a limit on the bytes of an incomplete one.
//!
//! A frame is rejected by its header. While a message waits here nothing more is read from the connection, so memory holds at most one
//! message and the piece with its end.

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

/// An incomplete message is not counted up to this many bytes.
const FREE: usize = 16 << 10;

/// See the module documentation. Every data message is returned as [`Message::Binary`], whatever its type was.
pub(super) struct Frames {
    payload: Payload,
    buffer: BytesMut,
    codec: Codec,
    /// Parts of a message in several frames.
    joined: Option<BytesMut>,
    charge: Charge,
    is_over: bool,
    /// The longest message.
    most: usize,
}

impl Frames {
    pub(super) fn new(payload: Payload, share: &Share) -> Self {
        let codec = Codec::new().max_size(MAX_MESSAGE);
        Self { payload, buffer: BytesMut::new(), codec, joined: None, charge: share.nothing(), is_over: false, most: MAX_MESSAGE }
    }

    /// Accepts messages of up to this many bytes.
    pub(super) fn up_to(self, most: usize) -> Self {
        Self { codec: Codec::new().max_size(most), most, ..self }
    }

    /// Reserves the rest of a frame at once: a buffer that doubles would exceed the counted size.
    fn make_room(&mut self) {
        let whole = ws_header::whole(&self.buffer);
        if whole > self.buffer.capacity() && !ws_header::is_too_long(&self.buffer, self.most) {
            let mut buffer = BytesMut::with_capacity(whole);
            buffer.extend_from_slice(&self.buffer);
            self.buffer = buffer;
        }
    }

    /// The next message, if it is complete.
    fn decode(&mut self) -> Result<Option<Message>, ProtocolError> {
        loop {
            if ws_header::is_too_long(&self.buffer, self.most) {
                return Err(ProtocolError::Overflow);
            }
            let Some(frame) = self.codec.decode(&mut self.buffer)? else {
                if self.buffer.is_empty() {
                    // Most sockets are idle most of the time.
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
        if joined.len() + part.len() > self.most {
            return Err(ProtocolError::Overflow);
        }
        joined.extend_from_slice(&part);
        self.count()?;
        Ok(if is_last { self.joined.take().map(BytesMut::freeze) } else { None })
    }

    /// Charges the buffered bytes to the budget.
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
                    // The start of the next frame is unknown.
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
