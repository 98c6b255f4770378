//! The frames of a WebSocket on the side of agents and workers: one over the limit is refused by its header.

use crate::protocol::{MAX_FRAME, ws_header};
use actix_codec::{Decoder, Encoder};
use awc::error::WsProtocolError;
use awc::http::StatusCode;
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

/// Describes a status with which a broker answered instead of opening a socket. awc drops the text of the answer.
pub fn refusal(status: StatusCode) -> String {
    if status != StatusCode::TOO_MANY_REQUESTS {
        return format!("it responded with status {status}");
    }
    format!(
        "it responded with status {status}: too many wrong tokens came from this address, or this token has the maximum number of ids \
         (--ids-per-token of the broker); the broker's log says which"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_says_what_429_means() {
        assert_eq!(refusal(StatusCode::NOT_FOUND), "it responded with status 404 Not Found");
        assert!(refusal(StatusCode::TOO_MANY_REQUESTS).contains("429 Too Many Requests: too many wrong tokens"));
    }

    #[test]
    fn a_frame_over_the_limit_is_not_waited_for() {
        let mut codec = Checked(Codec::new().max_size(MAX_FRAME).client_mode());
        let mut bytes = BytesMut::from(&[0x82, 127, 0, 0, 0, 0, 2, 0, 0, 1][..]);
        assert!(matches!(codec.decode(&mut bytes), Err(WsProtocolError::Overflow)));
        let mut bytes = BytesMut::from(&[0x82, 127, 0, 0, 0, 0, 2, 0, 0, 0][..]);
        assert!(matches!(codec.decode(&mut bytes), Ok(None)));
    }
}
