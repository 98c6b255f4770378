//! The results of a block as bytes: packed by the agent, stored and forwarded unopened by the broker, read by the worker.
//!
//! ```text
//! "WLP1"  u32 length of index  index (JSON)  bulk (one zstd frame)
//! ```
//! Numbers are little-endian. The index has the result of every request and the lengths of its two parts in the decompressed bulk: a head
//! (JSON: target URL, headers) and the body, as the site sent it after decompression. One frame for the whole block, because pages of one
//! site repeat each other: about half the size of separate frames.

use super::node::{FetchError, GivenBack, SiteNews};
use super::problem::Problem;
use super::zstd_frame::{self, LEVEL};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::time::Timestamp;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::io::Write as _;
use std::net::IpAddr;

const MAGIC: &[u8; 4] = b"WLP1";
/// From this many bytes on, a copy costs more than setting up a stream.
const LARGE: usize = 1 << 20;
/// A body of at least this many bytes is not copied until the pack is compressed.
const LARGE_BODY: usize = 64 << 10;

/// The uncompressed description of a pack.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// The block.
    pub block_id: BlockId,
    /// Its run.
    pub identity: Identity,
    /// The node that downloaded it.
    pub node_id: NodeId,
    /// The epoch that came with the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<i64>,
    /// The attempt that came with the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u32>,
    /// Why the block could not be downloaded completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// The requests, in the order of their parts in the bulk.
    pub results: Vec<Entry>,
    /// Whether more packs of this block follow: the requests that are missing here stay with the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub part: bool,
    /// Requests that the node gives back without a result.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub back: Vec<GivenBack>,
    /// The node's findings about the site of the block.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<SiteNews>,
}

impl Index {
    /// The index of a pack without results.
    #[must_use]
    pub fn new(block_id: BlockId, identity: Identity, node_id: NodeId) -> Self {
        Self {
            block_id,
            identity,
            node_id,
            epoch: None,
            attempt: None,
            exception: None,
            results: Vec::new(),
            part: false,
            back: Vec::new(),
            site: None,
        }
    }
}

/// The result of one request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Entry {
    /// The request.
    pub request_id: Fingerprint,
    /// The HTTP status; 0 if there was no response.
    #[serde(default)]
    pub status: u16,
    /// Number of tries.
    #[serde(default)]
    pub tries: u32,
    /// Duration of the last try, in milliseconds.
    #[serde(default)]
    pub time: u32,
    /// Why there is no response, or no complete one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
    /// The target of a redirect that the node did not follow: the value of `Location`, absolute or relative to the URL of the request; empty
    /// if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// Bytes of its head in the bulk.
    #[serde(default)]
    pub head: u32,
    /// Bytes of its body in the bulk.
    #[serde(default)]
    pub body: u32,
}

impl Entry {
    /// Whether there is a complete response with a status below 400.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none() && (100..400).contains(&self.status)
    }
}

/// The head of a response.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Head {
    /// The final URL after redirects, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target_url: Option<String>,
    /// The headers, in order, including repeated ones.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<(String, String)>,
    /// When the last try began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    /// The IP address that responded; of a proxy, if one was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub remote_address: Option<IpAddr>,
    /// The protocol of the response; `HTTP/1.1` if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// The request of the final response, after redirects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
}

/// A request as the agent sent it to the final URL.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct Sent {
    /// The method.
    pub method: String,
    /// The headers.
    pub headers: Vec<(String, String)>,
}

/// Builds a pack.
#[derive(Debug)]
pub struct Builder {
    index: Index,
    bulk: Vec<u8>,
    /// Bodies that are not copied to the bulk, each with its offset there.
    large: Vec<(usize, Bytes)>,
    len: usize,
}

impl Builder {
    /// Begins with the data of the block; its `results` must be empty.
    #[must_use]
    pub fn new(index: Index) -> Self {
        Self { index, bulk: Vec::new(), large: Vec::new(), len: 0 }
    }

    /// Adds a request; sets the lengths in `entry`.
    pub fn push(&mut self, entry: Entry, head: &Head, body: &[u8]) {
        self.push_head(entry, head, body.len());
        self.bulk.extend_from_slice(body);
    }

    /// Same as `push`, but does not copy a large body.
    pub fn push_bytes(&mut self, entry: Entry, head: &Head, body: Bytes) {
        if body.len() < LARGE_BODY {
            return self.push(entry, head, &body);
        }
        self.push_head(entry, head, body.len());
        self.large.push((self.bulk.len(), body));
    }

    fn push_head(&mut self, mut entry: Entry, head: &Head, body: usize) {
        let before = self.bulk.len();
        if *head != Head::default() {
            serde_json::to_writer(&mut self.bulk, head).expect("a head is plain data");
        }
        entry.head = (self.bulk.len() - before) as u32;
        entry.body = u32::try_from(body).expect("the limit of a body is below 4 GiB");
        self.len += self.bulk.len() - before + body;
        self.index.results.push(entry);
    }

    /// The index so far.
    #[must_use]
    pub fn index(&self) -> &Index {
        &self.index
    }

    /// Bytes of heads and bodies so far.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no result.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.index.results.is_empty()
    }

    /// The bytes of the pack.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        let (index, frame) = self.seal();
        assemble(&index, &frame)
    }

    /// The index, of which all but the results may still be changed, and the compressed bulk that follows it. See [`head`].
    #[must_use]
    pub fn seal(self) -> (Index, Vec<u8>) {
        let Self { index, bulk, large, len } = self;
        if len < LARGE && large.is_empty() {
            return (index, zstd_frame::compress(&bulk).expect("zstd compresses any memory"));
        }
        let mut encoder = zstd::stream::Encoder::new(Vec::new(), LEVEL).expect("zstd has its level");
        let mut done = 0;
        for (at, body) in large {
            encoder.write_all(&bulk[done..at]).and_then(|()| encoder.write_all(&body)).expect("zstd compresses any memory");
            done = at;
        }
        let frame = encoder.write_all(&bulk[done..]).and_then(|()| encoder.finish());
        (index, frame.expect("zstd compresses any memory"))
    }
}

/// The bytes before the compressed bulk of a pack.
#[must_use]
pub fn head(index: &Index) -> Vec<u8> {
    assemble(index, &[])
}

/// Parses the index of a pack; the rest is not read.
///
/// # Errors
/// It is not a pack.
pub fn read_index(pack: &[u8]) -> Result<Index, Problem> {
    let (index, _) = parts(pack)?;
    serde_json::from_slice(index).map_err(|e| Problem::malformed(format!("cannot parse the index of the pack: {e}")).at("index"))
}

/// The same pack with another index.
///
/// # Errors
/// It is not a pack.
pub fn with_index(pack: &[u8], index: &Index) -> Result<Vec<u8>, Problem> {
    let (_, frame) = parts(pack)?;
    Ok(assemble(index, frame))
}

fn assemble(index: &Index, frame: &[u8]) -> Vec<u8> {
    let index = serde_json::to_vec(index).expect("an index is plain data");
    let mut out = Vec::with_capacity(8 + index.len() + frame.len());
    out.extend_from_slice(MAGIC);
    out.extend_from_slice(&(index.len() as u32).to_le_bytes());
    out.extend_from_slice(&index);
    out.extend_from_slice(frame);
    out
}

fn parts(pack: &[u8]) -> Result<(&[u8], &[u8]), Problem> {
    let cut = pack.strip_prefix(MAGIC).and_then(|rest| rest.split_first_chunk::<4>());
    cut.and_then(|(length, rest)| rest.split_at_checked(u32::from_le_bytes(*length) as usize))
        .ok_or_else(|| Problem::malformed("not a pack of results, or a pack cut short"))
}

/// The result of one request, opened.
#[derive(Debug, Clone)]
pub struct Opened {
    /// The entry in the index.
    pub entry: Entry,
    /// The head of the response.
    pub head: Head,
    /// The body.
    pub body: Bytes,
}

/// Opens a whole pack. `most` limits the decompressed bytes.
///
/// # Errors
/// It is not a pack, or it is damaged, or larger than `most`.
pub fn open(pack: &[u8], most: usize) -> Result<(Index, Vec<Opened>), Problem> {
    let mut index = read_index(pack)?;
    let (_, frame) = parts(pack)?;
    let length: usize = index.results.iter().map(|e| e.head as usize + e.body as usize).sum();
    if length > most {
        return Err(Problem::too_large(most));
    }
    // A bulk longer than declared in the index does not fit and is rejected here.
    let bulk = Bytes::from(
        zstd_frame::decompress(frame, length)
            .map_err(|e| Problem::malformed(format!("cannot decompress the bulk of the pack: {e}")).at("bulk"))?,
    );
    if bulk.len() != length {
        return Err(Problem::malformed("the bulk of the pack is shorter than declared in its index").at("bulk"));
    }
    let mut at = 0;
    let mut out = Vec::with_capacity(index.results.len());
    for entry in std::mem::take(&mut index.results) {
        let (head, body) = (at + entry.head as usize, at + entry.head as usize + entry.body as usize);
        let text = &bulk[at..head];
        let parsed = if text.is_empty() { Ok(Head::default()) } else { serde_json::from_slice(text) };
        let parsed = parsed.map_err(|e| Problem::malformed(format!("cannot parse the head of {}: {e}", entry.request_id)).at("bulk"))?;
        out.push(Opened { entry, head: parsed, body: bulk.slice(head..body) });
        at = body;
    }
    Ok((index, out))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Vec<u8> {
        let identity = Identity::random();
        let block_id = BlockId::new(identity, 3);
        let index = Index { epoch: Some(1), attempt: Some(2), ..Index::new(block_id, identity, NodeId::random()) };
        let mut pack = Builder::new(index);
        let entry = |n: u8, status| Entry {
            request_id: Fingerprint([n; 12]),
            status,
            tries: 1,
            time: 5,
            error: None,
            location: None,
            head: 0,
            body: 0,
        };
        let head = Head { target_url: None, headers: vec![("a".into(), "b".into()), ("a".into(), "c".into())], ..Head::default() };
        pack.push(entry(1, 200), &head, b"hello");
        pack.push(entry(2, 404), &Head::default(), b"");
        pack.finish()
    }

    #[test]
    fn a_pack_opens_to_what_was_put_in() {
        let pack = sample();
        let (_, results) = open(&pack, 1 << 20).expect("a pack");
        assert_eq!(results[0].body, "hello");
        assert_eq!(results[0].head.headers.len(), 2);
        assert!(results[0].entry.is_success() && !results[1].entry.is_success());
        assert!(results[1].body.is_empty());
    }

    #[test]
    fn a_head_of_an_older_or_a_newer_agent_is_read() {
        let old: Head = serde_json::from_str(r#"{"headers":[["a","b"]]}"#).expect("an old head");
        assert_eq!((old.fetched_at, old.sent), (None, None));
        let new =
            r#"{"fetchedAt":"2026-01-02T03:04:05.678Z","remoteAddress":"::1","sent":{"method":"GET","headers":[],"more":1},"more":1}"#;
        let head: Head = serde_json::from_str(new).expect("a newer head");
        assert_eq!(head.sent.expect("the request").method, "GET");
    }

    #[test]
    fn a_large_pack_opens_to_what_was_put_in() {
        let mut pack = Builder::new(read_index(&sample()).map(|index| Index { results: Vec::new(), ..index }).expect("an index"));
        let body: Vec<u8> = (0..LARGE as u32 + 7).map(|n| ((n * 31) >> 3) as u8).collect();
        let entry =
            Entry { request_id: Fingerprint([3; 12]), status: 200, tries: 1, time: 5, error: None, location: None, head: 0, body: 0 };
        pack.push(entry.clone(), &Head::default(), &body);
        // Large bodies between small ones keep their offsets.
        let head = Head { target_url: Some("http://a/".into()), ..Head::default() };
        for body in [&body[..], b"small", b"", &body[9..]] {
            pack.push_bytes(entry.clone(), &head, Bytes::copy_from_slice(body));
        }
        assert_eq!(pack.len(), pack.index().results.iter().map(|e| e.head as usize + e.body as usize).sum::<usize>());
        let (_, results) = open(&pack.finish(), 8 * LARGE).expect("a pack");
        let bodies: Vec<&[u8]> = results.iter().map(|result| &result.body[..]).collect();
        assert!(bodies == [&body[..], &body[..], b"small", b"", &body[9..]]);
        assert!(results[1..].iter().all(|result| result.head == head));
    }

    #[test]
    fn damage_is_told() {
        let pack = sample();
        for length in 0..pack.len() {
            assert!(open(&pack[..length], 1 << 20).is_err(), "cut at {length}");
        }
        assert_eq!(open(&pack, 4).map_err(|p| p.status).err(), Some(413));
        let mut longer = Index { results: Vec::new(), ..read_index(&pack).expect("index") };
        longer.results.push(Entry {
            request_id: Fingerprint([1; 12]),
            status: 200,
            tries: 1,
            time: 0,
            error: None,
            location: None,
            head: 0,
            body: 0,
        });
        let mut liar = Builder::new(longer);
        liar.bulk = vec![0; 100];
        assert!(open(&liar.finish(), 1 << 20).is_err(), "more bulk than the index says");
    }
}
