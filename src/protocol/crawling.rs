//! The settings of a block run: what it does at sites, and where it ends.

use serde::{Deserialize, Serialize};

/// How a block run treats sites. The settings were read when the run was created: later changes of its job do not change them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CrawlingOutput {
    /// `obey`, `ignore`, or `public`: robots.txt is obeyed at public hosts only.
    pub robots: String,
    /// Milliseconds between two requests to a site; absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay: Option<u32>,
    /// Concurrent requests to a site; absent: the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_site: Option<u16>,
    /// What counts as one site: host, domain or ip.
    pub site_by: String,
    /// Who requests the targets of redirects: `request` (the run) or `follow` (the node).
    pub redirects: String,
    /// Maximum number of redirects in a chain.
    pub max_redirects: u32,
    /// The `User-Agent`; absent: that of the agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Hosts that get the job's headers and cookies; absent: those where the run began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hosts: Option<Vec<String>>,
    /// Maximum depth of a request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth_limit: Option<u32>,
    /// Maximum number of requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u64>,
    /// Maximum number of requests to one site.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_per_site: Option<u64>,
    /// Maximum number of bytes of bodies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_bytes: Option<u64>,
}
