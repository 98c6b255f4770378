//! Pages: a request and its result.

use super::charset;
use super::error::Error;
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::BlockId;
use crate::domain::redirect::is_redirect;
use crate::domain::time::Timestamp;
use crate::protocol::delivery;
use crate::protocol::node::{FetchError, FetchErrorKind};
use crate::protocol::pack::{self, Sent};
use crate::protocol::problem::Problem;
use crate::protocol::push::Request;
use crate::protocol::zstd_frame;
use bytes::Bytes;
use encoding_rs::Encoding;
use std::borrow::Cow;
use std::collections::HashMap;
use std::net::IpAddr;

/// The largest block in bytes, decompressed: slightly more than a node may report.
const MOST: usize = 1 << 30;

/// Pages that were downloaded together, and are acknowledged together.
#[derive(Debug, Clone)]
pub struct FinishedBlock {
    /// Its id.
    pub block_id: BlockId,
    /// Why it could not be downloaded completely; then each of its pages has an error as well.
    pub exception: Option<String>,
    /// Its pages.
    pub pages: Vec<Page>,
}

/// A request and its result.
#[derive(Debug, Clone)]
pub struct Page {
    /// The request as it was pushed.
    pub request: Request,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// Why there is no response, or no complete one.
    pub error: Option<FetchError>,
    /// Number of tries.
    pub tries: u32,
    /// Duration of the last try, in milliseconds.
    pub time_ms: u32,
    /// The final URL after redirects, if there were any.
    pub target_url: Option<String>,
    /// The headers of the response, in their order.
    pub headers: Vec<(String, String)>,
    /// The body, after decompression.
    pub body: Bytes,
    /// When the last try began, if the agent reported it.
    pub fetched_at: Option<Timestamp>,
    /// The IP address that responded (a proxy's, if one was used), if the agent reported it.
    pub remote_address: Option<IpAddr>,
    /// The protocol of the response; HTTP/1.1 if absent.
    pub protocol: Option<String>,
    /// The request of the final response, after redirects, if the agent reported it.
    pub sent: Option<Sent>,
}

impl Page {
    /// The requested URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.request.url
    }

    /// The final URL, after redirects: the base of the page's links.
    #[must_use]
    pub fn final_url(&self) -> &str {
        self.target_url.as_deref().unwrap_or(&self.request.url)
    }

    /// Whether there is a complete response with a status below 400.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.error.is_none() && (100..400).contains(&self.status)
    }

    /// Whether the site has named another URL instead of a page. Unless the job changes that, the run requests that URL by itself.
    #[must_use]
    pub fn is_redirect(&self) -> bool {
        self.error.is_none() && is_redirect(self.status) && self.header("location").is_some()
    }

    /// The request's id in its run.
    #[must_use]
    pub fn request_id(&self) -> Option<Fingerprint> {
        self.request.request_id
    }

    /// Number of links between it and a first request.
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.request.depth
    }

    /// The custom value that the worker gave with the request.
    #[must_use]
    pub fn meta(&self) -> Option<&serde_json::Value> {
        self.request.meta.as_ref()
    }

    /// The first header with this name, ignoring case.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The media type, in lower case and without parameters.
    #[must_use]
    pub fn media_type(&self) -> Option<String> {
        self.header("content-type").map(|text| text.split(';').next().unwrap_or_default().trim().to_ascii_lowercase())
    }

    /// The body as text: see [`charset::encoding_of`] for how its encoding is determined.
    #[must_use]
    pub fn text(&self) -> Cow<'_, str> {
        self.encoding().decode_with_bom_removal(&self.body).0
    }

    /// The encoding of the body: see [`charset::encoding_of`].
    #[must_use]
    pub fn encoding(&self) -> &'static Encoding {
        charset::encoding_of(&self.body, self.request.encoding.as_deref(), self.header("content-type"))
    }
}

/// Opens all blocks of a bulk response. `encoding` is the site's, for requests that name none.
pub(crate) fn open_all(mut body: &[u8], encoding: Option<&str>) -> Result<Vec<FinishedBlock>, Error> {
    let mut blocks = Vec::new();
    while !body.is_empty() {
        let block = delivery::read(&mut body).and_then(|(head, requests, pack)| open(&head, requests, pack, encoding));
        blocks.push(block.map_err(|problem| Error::Answer(problem.to_string()))?);
    }
    Ok(blocks)
}

fn open(head: &delivery::Head, requests: &[u8], pack: &[u8], encoding: Option<&str>) -> Result<FinishedBlock, Problem> {
    let malformed = |e: &dyn std::fmt::Display| Problem::malformed(format!("cannot parse the requests of block {}: {e}", head.block_id));
    let raw = head.requests_raw as usize;
    if raw > MOST {
        return Err(Problem::too_large(MOST));
    }
    let text = zstd_frame::decompress(requests, raw).map_err(|e| malformed(&e))?;
    let requests: Vec<Request> = serde_json::from_slice(&text).map_err(|e| malformed(&e))?;
    let (index, results) = pack::open(pack, MOST)?;
    let mut by_id: HashMap<Fingerprint, Request> = requests.into_iter().filter_map(|r| r.request_id.map(|id| (id, r))).collect();
    let mut pages = Vec::with_capacity(results.len());
    for result in results {
        let id = result.entry.request_id;
        let mut request = by_id.remove(&id).ok_or_else(|| malformed(&format_args!("the result {id} has no request")))?;
        if request.encoding.is_none() {
            request.encoding = encoding.map(str::to_owned);
        }
        pages.push(Page {
            request,
            status: result.entry.status,
            error: result.entry.error,
            tries: result.entry.tries,
            time_ms: result.entry.time,
            target_url: result.head.target_url,
            headers: result.head.headers,
            body: result.body,
            fetched_at: result.head.fetched_at,
            remote_address: result.head.remote_address,
            protocol: result.head.protocol,
            sent: result.head.sent,
        });
    }
    // A request without a result is reported as a failed page, not lost.
    pages.extend(by_id.into_values().map(|request| Page {
        request,
        status: 0,
        error: Some(FetchError {
            kind: FetchErrorKind::NotReported,
            message: "the block has no result for this request".to_owned(),
            retryable: true,
        }),
        tries: 0,
        time_ms: 0,
        target_url: None,
        headers: Vec::new(),
        body: Bytes::new(),
        fetched_at: None,
        remote_address: None,
        protocol: None,
        sent: None,
    }));
    Ok(FinishedBlock { block_id: head.block_id, exception: index.exception, pages })
}
