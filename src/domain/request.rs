//! Requests as the frontier sees them: an id, a depth, and a place in the bytes that they came in.

use super::fingerprint::Fingerprint;
use bytes::Bytes;
use std::ops::Range;

/// A checked batch of requests. The texts stay where they came in; nothing is copied until a block is packed.
#[derive(Debug, Clone, Default)]
pub struct RequestBatch {
    /// What the client sent.
    pub text: Bytes,
    /// The requests found in it.
    pub requests: Vec<NewRequest>,
}

/// One checked request of a [`RequestBatch`].
#[derive(Debug, Clone)]
pub struct NewRequest {
    /// Its id within the run. A deliberate repetition has one of its own.
    pub id: Fingerprint,
    /// Where its JSON object stands in the batch's text, from `{` to `}`.
    pub span: Range<u32>,
    /// Links between it and a first request.
    pub depth: u32,
}

impl RequestBatch {
    /// The JSON object of one of its requests.
    #[must_use]
    pub fn json(&self, request: &NewRequest) -> &[u8] {
        &self.text[request.span.start as usize..request.span.end as usize]
    }

    /// Packs some of its requests into the text of a block: a JSON array of the objects as they were sent, each with
    /// its `requestId` put in front.
    #[must_use]
    pub fn pack(&self, chosen: &[usize]) -> Vec<u8> {
        const ID: &[u8] = b"{\"requestId\":\"";
        let bytes: usize = chosen.iter().map(|&i| self.requests[i].span.len() + ID.len() + 27).sum();
        let mut out = Vec::with_capacity(bytes + 2);
        for &i in chosen {
            out.push(if out.is_empty() { b'[' } else { b',' });
            let request = &self.requests[i];
            out.extend_from_slice(ID);
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
