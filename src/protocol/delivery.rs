//! Finished blocks as a worker gets them: requests and results together.
//!
//! To a client that asks for JSON, [`Block`]. To one that accepts [`super::BULK`], one or more of
//!
//! ```text
//! u32 length of all that follows  u32 length of head  head (JSON)  requests (zstd of a JSON array)  results (a pack)
//! ```
//! with numbers little-endian: what the broker has on disk, not opened on the way.

use super::node::FetchError;
use super::pack::Sent;
use super::problem::Problem;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use std::net::IpAddr;

/// The head of a delivery in bulk form.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Head {
    /// The block.
    pub block_id: BlockId,
    /// Bytes of the compressed requests.
    pub requests: u32,
    /// Bytes of the requests, decompressed.
    pub requests_raw: u32,
    /// Bytes of the pack.
    pub pack: u32,
}

/// Adds one delivery to a body.
pub fn write(out: &mut Vec<u8>, head: &Head, requests: &[u8], pack: &[u8]) {
    let text = serde_json::to_vec(head).expect("a head is plain data");
    let length = 4 + text.len() + requests.len() + pack.len();
    out.reserve(4 + length);
    out.extend_from_slice(&(length as u32).to_le_bytes());
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(&text);
    out.extend_from_slice(requests);
    out.extend_from_slice(pack);
}

/// Splits the first delivery off a body: its head, its compressed requests, its pack.
///
/// # Errors
/// The body is cut short.
pub fn read<'a>(body: &mut &'a [u8]) -> Result<(Head, &'a [u8], &'a [u8]), Problem> {
    let cut = || Problem::malformed("a delivery is cut short");
    let (length, rest) = body.split_first_chunk::<4>().ok_or_else(cut)?;
    let (all, rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
    let (length, all) = all.split_first_chunk::<4>().ok_or_else(cut)?;
    let (head, all) = all.split_at_checked(u32::from_le_bytes(*length) as usize).ok_or_else(cut)?;
    let head: Head = serde_json::from_slice(head).map_err(|e| Problem::malformed(format!("cannot parse the head of a delivery: {e}")))?;
    let (requests, pack) = all.split_at_checked(head.requests as usize).ok_or_else(cut)?;
    if pack.len() != head.pack as usize {
        return Err(cut());
    }
    *body = rest;
    Ok((head, requests, pack))
}

/// A finished block as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(rename = "FinishedBlock"))]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// The block.
    pub block_id: BlockId,
    /// Its run.
    pub identity: Identity,
    /// `success`, or `failed` if the block failed as a whole.
    pub state: String,
    /// Why it could not be downloaded completely.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exception: Option<String>,
    /// Its requests, each with its response.
    pub results: Vec<Outcome>,
}

/// One request and its response as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Outcome {
    /// The request's id.
    pub request_id: Fingerprint,
    /// The request as it was pushed, including unknown members.
    #[cfg_attr(feature = "broker", schemars(with = "super::push::Request"))]
    pub request: Box<RawValue>,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// Number of tries.
    pub tries: u32,
    /// Duration of the last try, in milliseconds.
    pub time: u32,
    /// The final URL after redirects, if there were any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_url: Option<String>,
    /// Why there is no response, or no complete one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
    /// The headers of the response.
    #[serde(default)]
    pub headers: Vec<(String, String)>,
    /// When the last try began, if its node reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fetched_at: Option<Timestamp>,
    /// The IP address that responded, if its node reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<String>"))]
    pub remote_address: Option<IpAddr>,
    /// The request of the final response, after redirects, if its node reported it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sent: Option<Sent>,
    /// The body in base64.
    pub content: String,
}
