//! The frames of a WebSocket on the side of agents and workers: one over the limit is refused by its header.

use crate::protocol::{MAX_FRAME, ws_header};
use actix_codec::{Decoder, Encoder};
use awc::error::WsProtocolError;
use awc::ws::{Codec, Frame, Message};
use bytes::BytesMut;

/// A codec that looks at the header before it waits for the rest.
#[derive(Debug)]
pub struct Checked(pub Codec);

impl Decoder for Checked {
    type Item = Frame;
    type Error = WsProtocolError;

    fn decode(&mut self, bytes: &mut BytesMut) -> Result<Option<Frame>, WsProtocolError> {
        if ws_header::is_too_long(bytes, MAX_FRAME) {
            return Err(WsProtocolError::Overflow);
        }
        self.0.decode(bytes)
    }
}

impl Encoder<Message> for Checked {
    type Error = WsProtocolError;

    fn encode(&mut self, message: Message, bytes: &mut BytesMut) -> Result<(), WsProtocolError> {
        self.0.encode(message, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_over_the_limit_is_not_waited_for() {
        let mut codec = Checked(Codec::new().max_size(MAX_FRAME).client_mode());
        let mut bytes = BytesMut::from(&[0x82, 127, 0, 0, 0, 0, 2, 0, 0, 1][..]);
        assert!(matches!(codec.decode(&mut bytes), Err(WsProtocolError::Overflow)));
        let mut bytes = BytesMut::from(&[0x82, 127, 0, 0, 0, 0, 2, 0, 0, 0][..]);
        assert!(matches!(codec.decode(&mut bytes), Ok(None)));
    }
}
