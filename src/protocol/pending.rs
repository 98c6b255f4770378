//! Requests of a run that wait for a node: as they are listed and discarded.

use crate::domain::fingerprint::Fingerprint;
use crate::domain::ids::BlockId;
use serde::{Deserialize, Serialize};

/// A request of a run that has no result yet.
#[derive(Debug, Clone, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PendingRequest {
    /// The request.
    pub request_id: Fingerprint,
    /// Its URL as it was pushed.
    pub url: String,
    /// Absent: GET.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Links between it and a first request.
    pub depth: u32,
    /// A higher one is dispatched first.
    pub priority: i8,
    /// How often nodes tried it that gave it back.
    pub tries: u32,
    /// The site that it waits for; absent if its pace is not kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// The block that it is in.
    pub block_id: BlockId,
}

/// Which pending requests of a run are to be discarded. At least one condition, or `all`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DiscardInput {
    /// Only those to this host or site.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Only those whose URL has this part; `*` stands for any characters, `$` at the end for the end of the URL.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub url: Option<String>,
    /// Only those of at least this depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_depth: Option<u32>,
    /// Only those of at most this depth.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_depth: Option<u32>,
    /// Without a condition: all that are pending.
    pub all: bool,
    /// At most this many, 1 to 10,000; 1,000 if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub limit: Option<usize>,
    /// Only count them.
    pub dry_run: bool,
}

/// What became of pending requests that were to be discarded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Discarded {
    /// Requests that were found.
    pub found: u64,
    /// … that are discarded. The others are at a node.
    pub discarded: u64,
    /// There are more than the limit, or than one call looks at: call again.
    pub more: bool,
}
