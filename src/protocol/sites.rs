//! The API's outputs for sites.

use crate::domain::ids::Identity;
use crate::domain::sites::{DelayBy, Why};
use crate::domain::time::Timestamp;
use crate::protocol::failed::FailureCount;
use crate::protocol::node::FetchErrorKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hold: no run starts a request to the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldOutput {
    /// When it ends.
    pub until: Timestamp,
    /// The reason; `operator`: an operator set it.
    pub why: Why,
    /// The role of the operator; absent: no operator set it, or the broker has no tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

impl HeldOutput {
    /// A hold that ends at this time of the steady clock.
    #[must_use]
    pub fn of(held: Option<(Timestamp, Why)>, by: Option<&str>) -> Option<Self> {
        held.map(|(until, why)| Self { until: until.on_the_wall(), why, by: by.map(str::to_owned) })
    }
}

/// The last error at a site. It is absent as soon as the site has answered, also with an error status.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteErrorOutput {
    /// The kind of the error.
    pub kind: FetchErrorKind,
    /// What happened.
    pub message: String,
    /// Number of tries of the request so far. For robots.txt: number of fetches in a row that failed.
    pub tries: u32,
    /// Whether robots.txt was requested.
    pub robots: bool,
    /// When the broker learned it.
    pub at: Timestamp,
}

/// Selects the sites to list.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SiteFilter {
    /// Only sites whose name contains this text.
    pub name: Option<String>,
    /// Only sites that are held, or only others.
    pub held: Option<bool>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

/// A site in the broker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteOutput {
    /// Its name: a host, a domain or an address; an origin if it has no pace.
    pub name: String,
    /// The run that has the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Identity>,
    /// When the next request may begin; absent: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Milliseconds between two requests; absent: no run has needed a turn since the broker started.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<u64>,
    /// Consecutive failures, halved by each success.
    pub failures: u32,
    /// The hold; absent: it is not on hold.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOutput>,
    /// The last error, if the site has not answered since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<SiteErrorOutput>,
}

/// A site of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSiteOutput {
    /// Its name.
    pub name: String,
    /// Requests to the site that have no result yet.
    pub left: u64,
    /// Requests to the site that succeeded.
    pub success: u64,
    /// Requests to the site that failed.
    pub error: u64,
    /// The failed requests by kind and status, the largest number first, if the call asks for them (`errors=true`).
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<FailureCount>,
    /// Number of blocks of the run that wait for the site.
    pub pending: u64,
    /// Number of blocks of the run for this site that are at nodes.
    pub at_nodes: u64,
    /// When the next request may begin; absent: at once, unless another run has the turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Milliseconds between two requests; 0: it has no pace; absent: the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<u64>,
    /// What the delay comes from; absent: there is none, or the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_by: Option<DelayBy>,
    /// Maximum number of concurrent requests; absent: the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u16>,
    /// The hold; absent: it is not on hold, or the run is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOutput>,
    /// The last error, if the site has not answered since.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<SiteErrorOutput>,
}

/// The length of a hold: exactly one of the two members.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [{ "for": 600_000 }, { "until": "2030-01-01T00:00:00Z" }]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldInput {
    /// Until this time, at most 49 days from now.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// For this many milliseconds, at most 49 days.
    #[serde(default, rename = "for")]
    #[schemars(range(min = 1, max = 4_233_600_000_u64))]
    pub for_ms: Option<u64>,
}
