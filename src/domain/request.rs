//! Requests as the frontier sees them: an id, a depth, and the position of their JSON in the received bytes.

use super::fingerprint::Fingerprint;
use super::guards::Shape;
use bytes::Bytes;
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;
use std::ops::Range;

/// A checked batch of requests. The texts stay in the received buffer; nothing is copied until a block is packed.
#[derive(Debug, Clone, Default)]
pub struct RequestBatch {
    /// The body that the client sent.
    pub text: Bytes,
    /// The requests found in it.
    pub requests: Vec<NewRequest>,
    /// The distinct origins of requests that no link led to, each as the beginning of a URL.
    pub origins: Vec<Box<str>>,
    /// The distinct origins of all requests.
    pub all_origins: Vec<Box<str>>,
}

/// One checked request of a [`RequestBatch`].
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Its id within the run. A deliberate repetition has its own id.
    pub id: Fingerprint,
    /// The position of its JSON object in the batch's text, from `{` to `}`.
    pub span: Range<u32>,
    /// Number of links between a first request and this one.
    pub depth: u32,
    /// A request with a higher priority is dispatched first.
    pub priority: i8,
    /// The properties that guards check.
    pub shape: Shape,
    /// Index of its origin in the batch's [`RequestBatch::all_origins`].
    pub origin: u32,
}

/// The highest priority of a request; the lowest is its negative.
pub const MOST_PRIORITY: i8 = 100;

/// Reads the priority of a stored request. Earlier versions accepted any JSON in this member: everything but a priority is 0.
///
/// # Errors
/// It is not JSON.
pub fn priority<'de, D: Deserializer<'de>>(from: D) -> Result<i8, D::Error> {
    let number = serde_json::Value::deserialize(from)?.as_i64();
    Ok(number.and_then(|n| i8::try_from(n).ok()).filter(|n| n.unsigned_abs() <= MOST_PRIORITY.unsigned_abs()).unwrap_or(0))
}

/// Reads a member that may be null, which means its default.
///
/// # Errors
/// It is another value.
pub fn or_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Option::deserialize(from).map(Option::unwrap_or_default)
}

impl RequestBatch {
    /// The JSON object of one of its requests.
    #[must_use]
    pub fn json(&self, request: &NewRequest) -> &[u8] {
        &self.text[request.span.start as usize..request.span.end as usize]
    }

    /// Packs some requests into the text of a block: a JSON array of the objects as sent, each with its `requestId` inserted in front.
    #[must_use]
    pub fn pack(&self, chosen: &[usize]) -> Vec<u8> {
        let bytes: usize = chosen.iter().map(|&i| self.requests[i].span.len() + ID.len() + 27).sum();
        let mut out = Vec::with_capacity(bytes + 2);
        for &i in chosen {
            out.push(if out.is_empty() { b'[' } else { b',' });
            let request = &self.requests[i];
            out.extend_from_slice(ID.as_bytes());
            out.extend_from_slice(&request.id.hex());
            out.extend_from_slice(b"\",");
            out.extend_from_slice(&self.json(request)[1..]);
        }
        if out.is_empty() {
            out.push(b'[');
        }
        out.push(b']');
        out
    }
}

/// The text before the id of a request in a block.
const ID: &str = "{\"requestId\":\"";
/// The text after the id if the request was tried before.
const TRIES: &str = "\",\"tries\":";

/// The requests in the text of a block.
///
/// # Errors
/// The text was not made by [`RequestBatch::pack`].
pub fn unpack(text: &[u8]) -> Result<Vec<&RawValue>, String> {
    serde_json::from_slice(text).map_err(|e| format!("the requests of a block: {e}"))
}

/// The other members of a request, after its id and its number of tries.
fn members(after_id: &str) -> &str {
    match after_id.strip_prefix(TRIES) {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(','),
        // Once: the name of the first member may begin with a comma.
        None => after_id.strip_prefix("\",").unwrap_or(after_id),
    }
}

/// A request of a block without its id and number of tries; `None` if it has no id.
#[must_use]
pub fn without_id(request: &str) -> Option<String> {
    let (_, after_id) = request.strip_prefix(ID)?.split_at_checked(Fingerprint::LEN * 2)?;
    Some(format!("{{{}", members(after_id)))
}

/// The text of a block with these requests; each comes with its number of tries so far, if it should be set.
#[must_use]
pub fn repack<'a>(requests: impl Iterator<Item = (&'a RawValue, Option<u32>)>) -> Vec<u8> {
    let mut out = vec![b'['];
    for (request, tries) in requests {
        if out.len() > 1 {
            out.push(b',');
        }
        let text = request.get();
        match (tries, text.strip_prefix(ID).and_then(|rest| rest.split_at_checked(Fingerprint::LEN * 2))) {
            (Some(tries), Some((id, rest))) => {
                // Only the broker writes this member, and always at this position.
                let rest = members(rest);
                out.extend_from_slice(format!("{ID}{id}{TRIES}{tries},{rest}").as_bytes());
            }
            _ => out.extend_from_slice(text.as_bytes()),
        }
    }
    out.push(b']');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_packed_again_with_the_tries_of_its_requests() {
        let id = Fingerprint([7; 12]);
        let json = r#"{",":1,"url":"http://a/","tries":9}"#;
        let batch = RequestBatch {
            text: Bytes::from_static(json.as_bytes()),
            requests: vec![NewRequest { id, span: 0..json.len() as u32, depth: 0, priority: 0, shape: Shape::default(), origin: 0 }],
            ..RequestBatch::default()
        };
        let text = batch.pack(&[0]);
        let again = repack(unpack(&text).expect("a block").into_iter().map(|request| (request, None)));
        assert_eq!(again, text);
        let mut text = text;
        for tries in [1, 12, 3] {
            text = repack(unpack(&text).expect("a block").into_iter().map(|request| (request, Some(tries))));
            let expected = format!(r#"[{{"requestId":"{id}","tries":{tries},",":1,"url":"http://a/","tries":9}}]"#);
            assert_eq!(String::from_utf8_lossy(&text), expected);
            assert_eq!(unpack(&text).expect("a block").iter().map(|r| without_id(r.get())).collect::<Vec<_>>(), [Some(json.to_owned())]);
        }
        assert_eq!(without_id(json), None);
        assert_eq!(repack(std::iter::empty()), b"[]");
    }
}
