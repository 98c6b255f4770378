//! Requests of a run that failed: as they are stored, listed and queued once more.

use super::node::{FetchError, FetchErrorKind};
use super::pack::{Entry, Index};
use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::{BlockId, NodeId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Characters that are kept of what is said of a failure.
const MOST_MESSAGE: usize = 500;

/// A request that failed, as it is stored with its block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failed {
    /// The request.
    pub request_id: Fingerprint,
    /// The HTTP status; 0 if there was no answer.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub status: u16,
    /// How often it was tried.
    #[serde(default)]
    pub tries: u32,
    /// Why there is no answer, or not a whole one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
    /// It was queued once more, under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_as: Option<Fingerprint>,
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
        Self { request_id: entry.request_id, status: entry.status, tries: entry.tries, error, requeued_as: None }
    }

    /// Why, in one of a closed list of words; none if the site has answered.
    #[must_use]
    pub fn kind(&self) -> Option<FetchErrorKind> {
        self.error.as_ref().map(|error| error.kind)
    }
}

/// What is stored of the failures of a block; nothing if there are none.
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

/// Reads what is stored of the failures of a block.
///
/// # Errors
/// It is damaged.
pub fn of_text(text: &[u8]) -> Result<Vec<Failed>, String> {
    serde_json::from_slice(text).map_err(|error| format!("the failures of a block: {error}"))
}

/// A request of a run that failed.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FailedRequest {
    /// The request.
    pub request_id: Fingerprint,
    /// Its URL as it was pushed.
    pub url: String,
    /// Absent: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Why there is no answer, or not a whole one; absent: the site answered with the status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<FetchErrorKind>,
    /// The same in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The HTTP status; 0 if there was no answer.
    pub status: u16,
    /// How often it was tried.
    pub tries: u32,
    /// The block that it was in.
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
    /// It was queued once more, under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued_as: Option<Fingerprint>,
}

/// Which failed requests of a run are to be queued once more; all, if nothing is said.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RequeueInput {
    /// Only those to this host or site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only those that failed for this reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<FetchErrorKind>,
    /// Only those with this HTTP status; 0: those without an answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 999))]
    pub status: Option<u16>,
    /// At most so many, 1 to 10,000; 1,000 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Only count them.
    pub dry_run: bool,
}

/// What became of failed requests that were to be queued once more.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Requeued {
    /// Failed requests that were found and had not been queued once more before.
    pub found: u64,
    /// Those that are queued now; in a dry run none.
    pub queued: u64,
    /// Those that are past the most that the run takes.
    pub over_limit: u64,
    /// There are more than the limit, or more blocks than one call looks at: call again.
    pub more: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Identity;

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
