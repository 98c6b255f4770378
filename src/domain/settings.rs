//! How the requests of a run are to be downloaded: read from a job's properties once, when the run begins.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// What every block of a run tells the node that downloads it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct DownloadSettings {
    /// Requests of one block that are downloaded at the same time.
    pub thread_num: u32,
    /// A regular expression; a body that matches it makes the node change its IP address and ask again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub change_ip_pattern: Option<String>,
    /// What holds for the whole site.
    pub site: SiteSettings,
    /// A `Cookie` header: `name=value; name=value`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cookies: Option<String>,
    /// What the cookies are for.
    pub cookie_mode: CookieMode,
    /// Milliseconds between the starts of two requests of this run to one host on one node; 0 for none.
    pub sleep_time: u64,
    /// Milliseconds that one try may take, body included.
    pub timeout: u64,
    /// The most bytes of a body, after decompression.
    pub max_body: u64,
    /// Redirects that are followed; 0 returns the redirect itself.
    pub max_redirects: u32,
    /// Tries after the first one; none: the agent's own setting.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_download: Option<u32>,
}

impl Default for DownloadSettings {
    fn default() -> Self {
        Self {
            thread_num: 1,
            change_ip_pattern: None,
            site: SiteSettings::default(),
            cookies: None,
            cookie_mode: CookieMode::Initial,
            sleep_time: 0,
            timeout: 30_000,
            max_body: 16 << 20,
            max_redirects: 10,
            retry_download: None,
        }
    }
}

/// What holds for all requests of a run to its site.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SiteSettings {
    /// The `User-Agent`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Headers for each request that does not set them itself.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// A proxy for all requests: `http://`, `https://`, `socks5://`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<String>,
    /// The character encoding of its pages, where it is known better than its pages know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub encoding: Option<String>,
}

/// The two ways that the seeds name in which cookies are used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum CookieMode {
    /// Set before the first request; then the site may change them.
    #[default]
    Initial,
    /// The same on every request, whatever the site sets.
    Fixed,
}

/// How the frontier of a run behaves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct QueueSettings {
    /// Requests in a block.
    pub block_size: u32,
    /// The deepest request that is taken; deeper ones are counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub depth_limit: Option<u32>,
    /// The most requests that the run takes; later ones are counted and dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_requests: Option<u64>,
    /// Hand-outs of a block before its requests are given up.
    pub block_attempts: u32,
    /// Milliseconds in which a worker must acknowledge a block before it is delivered again.
    pub ack_wait: u64,
    /// Milliseconds that a node may keep a block without a word about it.
    pub lease: u64,
    /// Only nodes of this group; compared without case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node_group: Option<String>,
    /// Only nodes whose operating system contains this text; compared without case.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub os: Option<String>,
}

impl Default for QueueSettings {
    fn default() -> Self {
        Self {
            block_size: 50,
            depth_limit: None,
            max_requests: None,
            block_attempts: 10,
            ack_wait: 300_000,
            lease: 600_000,
            node_group: None,
            os: None,
        }
    }
}
