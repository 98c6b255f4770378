//! Control messages on a WebSocket: text frames of JSON `{"t": name, "v": value}`. A message with bulk data is a binary frame: the length
//! of the JSON (four bytes, little-endian), the JSON, the bulk data.

use super::parser_errors::why_not_json;
use super::problem::Problem;
use serde::{Serialize, de::DeserializeOwned};

/// Writes a text message.
#[must_use]
pub fn text<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("messages are plain data")
}

/// Parses a text message.
///
/// # Errors
/// It is not JSON, its name is unknown, or its value does not match the name.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|e| Problem::malformed(format!("not a valid message for this socket: {}", why_not_json(&e))))
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

/// Splits a binary message into its JSON and its bulk data.
///
/// # Errors
/// It is shorter than its length field.
pub fn split(frame: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    frame
        .split_first_chunk::<4>()
        .and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize))
        .ok_or_else(|| Problem::malformed("a binary message is cut short"))
}
