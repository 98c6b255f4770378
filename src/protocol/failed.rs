//! Failed requests of a run: how they are stored, listed and queued again.

use super::node::{FetchError, FetchErrorKind};
use super::pack::{Entry, Index};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::HashSet;

/// Maximum characters of a stored error message.
const MOST_MESSAGE: usize = 500;

/// A failed request, as stored with its block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The request.
    pub request_id: Fingerprint,
    /// The HTTP status; 0 if there was no response.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub status: u16,
    /// Number of tries.
    #[serde(default)]
    pub tries: u32,
    /// Why there is no response, or no complete one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
    /// The id under which it was queued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_as: Option<Fingerprint>,
    /// The run in which it was queued again, if it was not its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_in: Option<Identity>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's skip_serializing_if hands a reference")]
fn is_zero(n: &u16) -> bool {
    *n == 0
}

impl Failed {
    fn of(entry: &Entry) -> Self {
        let error = entry.error.clone().map(|mut error| {
            if let Some((end, _)) = error.message.char_indices().nth(MOST_MESSAGE) {
                error.message.truncate(end);
            }
            error
        });
        Self { request_id: entry.request_id, status: entry.status, tries: entry.tries, error, requeued_as: None, requeued_in: None }
    }

    /// The reason, from a closed list; `None` if the site sent a complete response.
    #[must_use]
    pub fn kind(&self) -> Option<FetchErrorKind> {
        self.error.as_ref().map(|error| error.kind)
    }
}

/// The failed requests of a run, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureCounts {
    /// One row for each kind, and for each status of complete responses; the largest first.
    pub items: Vec<FailureCount>,
    /// Whether there are more failures than were counted: one call reads a limited number of blocks.
    pub more: bool,
}

/// The failed requests of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailureCount {
    /// Why there is no response, or no complete one; absent: the site responded with the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FetchErrorKind>,
    /// The HTTP status, if there is no kind.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Number of failed requests.
    pub failed: u64,
    /// Number of them that were queued again.
    pub requeued: u64,
}

/// The stored form of the failures of a block; `None` if there are none.
#[must_use]
pub fn failures(index: &Index) -> Option<Vec<u8>> {
    let failed: Vec<Failed> = index.results.iter().filter(|entry| !entry.is_success()).map(Failed::of).collect();
    (!failed.is_empty()).then(|| to_text(&failed))
}

/// The stored text of failures.
#[must_use]
pub fn to_text(failed: &[Failed]) -> Vec<u8> {
    serde_json::to_vec(failed).expect("failures are plain data")
}

/// Parses the stored failures of a block.
///
/// # Errors
/// They are damaged.
pub fn of_text(text: &[u8]) -> Result<Vec<Failed>, String> {
    serde_json::from_slice(text).map_err(|error| format!("cannot parse the failures of a block: {error}"))
}

/// The stored failures of a block, with some of them marked as queued again in another run, and how many were marked now. They keep their ids
/// there.
///
/// # Errors
/// The failures are damaged.
pub fn marked(text: &[u8], chosen: &HashSet<Fingerprint>, run: Identity) -> Result<(Vec<u8>, usize), String> {
    let (mut all, mut count) = (of_text(text)?, 0);
    for failed in all.iter_mut().filter(|failed| failed.requeued_as.is_none() && chosen.contains(&failed.request_id)) {
        (failed.requeued_as, failed.requeued_in) = (Some(failed.request_id), Some(run));
        count += 1;
    }
    Ok((to_text(&all), count))
}

/// A failed request of a run.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRequest {
    /// The request.
    pub request_id: Fingerprint,
    /// Its URL as it was pushed.
    pub url: String,
    /// The method; absent: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Why there is no response, or no complete one; absent: the site responded with the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FetchErrorKind>,
    /// The same as a text for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The HTTP status; 0 if there was no response.
    pub status: u16,
    /// Number of tries.
    pub tries: u32,
    /// Its block.
    pub block_id: BlockId,
    /// The node that reported it; absent if the broker itself did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_id: Option<NodeId>,
    /// The name of the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// When its block was reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
    /// The id under which it was queued again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_as: Option<Fingerprint>,
    /// The run in which it was queued again; absent: its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_in: Option<Identity>,
}

/// Which failed requests of a run to queue again; all by default.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequeueInput {
    /// Only requests to this host or site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only requests that failed for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FetchErrorKind>,
    /// Only requests with this HTTP status; 0: those without a response.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 999))]
    pub status: Option<u16>,
    /// Maximum number of requests, 1 to 10,000; 1,000 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Only count the requests.
    pub dry_run: bool,
}

/// The result of queueing failed requests again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requeued {
    /// Failed requests that were found and had not been queued again before.
    pub found: u64,
    /// Requests that are queued now; in a dry run 0.
    pub queued: u64,
    /// Requests beyond the limit of the run.
    pub over_limit: u64,
    /// There are more requests than the limit, or more blocks than one call checks: call again.
    pub more: bool,
    /// The new run that begins with them, because their own run is over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_called_as_it_is_sent() {
        let schema = schemars::schema_for!(FetchErrorKind).to_value();
        let words: Vec<&str> = schema["oneOf"].as_array().into_iter().flatten().filter_map(|one| one["const"].as_str()).collect();
        assert!(words.len() >= 16, "{schema}");
        for word in words {
            let kind: FetchErrorKind = serde_json::from_value(word.into()).expect("a kind");
            assert_eq!(kind.name(), word);
        }
    }

    #[test]
    fn what_is_kept_of_failures_is_small_and_comes_back() {
        let entry = |status, error: Option<&str>| Entry {
            request_id: Fingerprint::of_key("k"),
            status,
            tries: 2,
            time: 1,
            error: error.map(|text| FetchError { kind: FetchErrorKind::Dns, message: text.to_owned(), retryable: true }),
            location: None,
            head: 0,
            body: 0,
        };
        let index =
            |results| Index { results, ..Index::new(BlockId::new(Identity::random(), 0), Identity::random(), NodeId(uuid::Uuid::nil())) };
        assert_eq!(failures(&index(vec![entry(200, None), entry(301, None)])), None);
        let text = failures(&index(vec![entry(200, None), entry(404, None), entry(0, Some(&"ü".repeat(9_000)))])).expect("failures");
        let failed = of_text(&text).expect("as it was written");
        assert_eq!(failed.iter().map(|one| (one.status, one.kind())).collect::<Vec<_>>(), [(404, None), (0, Some(FetchErrorKind::Dns))]);
        assert_eq!(failed[1].error.as_ref().map(|error| error.message.chars().count()), Some(MOST_MESSAGE));
        assert_eq!(to_text(&failed), text);
        assert!(of_text(b"x").is_err());
    }
}
