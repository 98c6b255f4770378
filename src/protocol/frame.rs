//! Control messages on a WebSocket: text frames of JSON `{"t": name, "v": value}`. A message that carries bulk is a
//! binary frame: the length of the JSON (four bytes, little-endian), the JSON, the bulk.

use super::problem::Problem;
use serde::{Serialize, de::DeserializeOwned};

/// Writes a text message.
#[must_use]
pub fn text<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("messages are plain data")
}

/// Reads a text message.
///
/// # Errors
/// It is no JSON, of no known name, or its value is not what the name asks for.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|e| Problem::malformed(format!("not a message of this socket: {e}")))
}

/// Writes a binary message.
#[must_use]
pub fn binary<T: Serialize>(message: &T, bulk: &[u8]) -> Vec<u8> {
    let mut out = vec![0; 4];
    serde_json::to_writer(&mut out, message).expect("messages are plain data");
    let length = u32::try_from(out.len() - 4).expect("a control message is small");
    out[..4].copy_from_slice(&length.to_le_bytes());
    out.extend_from_slice(bulk);
    out
}

/// Cuts a binary message into its JSON and its bulk.
///
/// # Errors
/// It is shorter than it says.
pub fn split(frame: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    frame
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize))
        .ok_or_else(|| Problem::malformed("a binary message is cut short"))
}
