//! Control messages on a WebSocket: text frames of JSON `{"t": name, "v": value}`. A message with bulk data is a binary frame: the length
//! of the JSON (four bytes, little-endian), the JSON, the bulk data.

use super::parser_errors::why_not_json;
use super::problem::Problem;
use super::push::read_json;
use serde::{Serialize, de::DeserializeOwned};

/// Writes a text message.
#[must_use]
pub fn text<T: Serialize>(message: &T) -> String {
    serde_json::to_string(message).expect("messages are plain data")
}

/// Parses a text message.
///
/// # Errors
/// It is not JSON, its name is unknown, or its value does not match the name; the problem names the member.
pub fn read<T: DeserializeOwned>(text: &[u8]) -> Result<T, Problem> {
    serde_json::from_slice(text).map_err(|e| {
        let wrong = |why: &str| Problem::malformed(format!("not a valid message for this socket: {why}"));
        // Parse again with the slow parser, to find the position.
        match read_json::<T>(text) {
            Err(Problem { field: Some(field), detail, .. }) => wrong(&format!("`{field}`: {detail}")).at(field),
            _ if e.is_data() => wrong(&format!("{} at line {} column {}", why_not_json(&e), e.line(), e.column())),
            _ => wrong(&why_not_json(&e)),
        }
    })
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::worker::FromWorker;

    #[test]
    fn an_error_tells_the_place() {
        for (text, field, why) in [
            (r#"{"t":"watch","v":{"classNames":["a",5]}}"#, Some("v.classNames[1]"), "`v.classNames[1]`: a text is expected, not 5"),
            (r#"{"t":"watch","v":{}}"#, Some("v.classNames"), "`v.classNames`: the member `classNames` is missing"),
            (r#"{"v":{"classNames":5},"t":"watch"}"#, None, "an array is expected, not 5 at line 1 column 34"),
            (r#"{"t":"watch""#, None, "not valid JSON: EOF while parsing an object at line 1 column 12"),
        ] {
            let problem = read::<FromWorker>(text.as_bytes()).expect_err(text);
            assert_eq!((problem.status, problem.field.as_deref()), (400, field), "{text}");
            assert_eq!(problem.detail, format!("not a valid message for this socket: {why}"));
        }
    }
}
