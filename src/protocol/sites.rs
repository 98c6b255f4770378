//! Sites, as the API shows them.

use crate::domain::ids::Identity;
use crate::domain::sites::Why;
use crate::domain::time::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A hold: no run begins a request to the site.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeldOutput {
    /// Until when.
    pub until: Timestamp,
    /// Why; `operator`: somebody asked for it.
    pub why: Why,
}

/// A site, as the broker knows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SiteOutput {
    /// Its name: a host, a domain or an address; an origin where it has no pace.
    pub name: String,
    /// The run whose turn it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<Identity>,
    /// When the next request may begin; absent: at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Milliseconds between two requests; absent: no run has asked for a turn since the broker began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<u64>,
    /// Failures in a row, halved by each success.
    pub failures: u32,
    /// Absent: it is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOutput>,
}

/// A site of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunSiteOutput {
    /// Its name.
    pub name: String,
    /// Blocks of the run that wait for the site.
    pub pending: u64,
    /// Blocks of the run to this site that are at nodes.
    pub at_nodes: u64,
    /// When the next request may begin; absent: at once, unless it is another run's turn.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Milliseconds between two requests; 0: it has no pace.
    pub delay: u64,
    /// Requests at once.
    pub connections: u16,
    /// Absent: it is not held.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub held: Option<HeldOutput>,
}

/// How long a site is held: one of the two.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[schemars(extend("examples" = [{ "for": 600_000 }, { "until": "2030-01-01T00:00:00Z" }]))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HoldInput {
    /// Until this instant, at most 49 days from now.
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// For so many milliseconds, at most 49 days.
    #[serde(default, rename = "for")]
    #[schemars(range(min = 1, max = 4_233_600_000_u64))]
    pub for_ms: Option<u64>,
}
