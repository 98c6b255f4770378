//! Messages between the broker and its nodes.

use super::application::{ProgramOrder, ProgramOutput, ProgramRef, ProgramReport};
use super::problem::Problem;
use crate::domain::ids::{BlockId, Identity, NodeId};
use crate::domain::settings::DownloadSettings;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// From the broker to a node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ToNode {
    /// The first message: the node's id and the rules of the connection.
    Welcome {
        /// The id of the node.
        node_id: NodeId,
        /// Milliseconds between two heartbeats.
        heartbeat: u64,
        /// Milliseconds of silence after which the node counts as lost.
        offline: u64,
        /// The largest message, in bytes.
        max_frame: usize,
    },
    /// Download this block. A text frame contains its requests; a binary frame has them as bulk data, zstd-compressed.
    Block(Box<Block>),
    /// Drop this block: its results are not needed any more.
    Drop {
        /// The block.
        block_id: BlockId,
        /// The dispatched attempt.
        attempt: u32,
    },
    /// Start this program. Repeated until the node has responded; a program that it has or had is not started again.
    Start(Box<ProgramOrder>),
    /// End this program: first a stop request, then a kill. Repeated until the node has reported its end.
    Exit {
        /// The program.
        program: ProgramRef,
        /// Milliseconds between the stop request and the kill.
        grace: u64,
        /// The reason.
        reason: String,
    },
    /// The reports of these programs are on disk: those that have ended may be forgotten.
    ProgramsSettled(Vec<ProgramRef>),
    /// The lines of a program's output before this one are on disk.
    OutputTaken {
        /// The program.
        program: ProgramRef,
        /// The number of the next line.
        next: u64,
    },
    /// No new work will come: finish the current work, then leave.
    Drain {
        /// The reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An operator removed or shut down this node: stop everything, and do not connect again.
    Leave {
        /// The reason.
        reason: String,
    },
    /// A message of the node was rejected.
    Error(Problem),
}

/// From a node to the broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum FromNode {
    /// A sign of life.
    Heartbeat(Heartbeat),
    /// The states of programs. Reports of ended programs are repeated after a reconnect, until they are acknowledged.
    Programs(Vec<ProgramReport>),
    /// Output lines of a program. Repeated after a reconnect, from the first line that was not stored.
    Output(ProgramOutput),
}

/// The load of a node, and what it holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Number of running blocks and programs.
    #[serde(default, alias = "ProcessCount")]
    pub process_count: u32,
    /// Processor use, in percent of all processors.
    #[serde(default, alias = "Cpu", alias = "CPU")]
    pub cpu: u32,
    /// Free memory, in MB.
    #[serde(default, alias = "FreeMemory")]
    pub free_memory: u64,
    /// The blocks in progress, and those whose results are not yet accepted. Absent: not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<Vec<Holding>>,
    /// Number of `block` messages that came on this connection. The broker sends no block again that is still on its way. Absent: not counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub received: Option<u64>,
    /// The running programs, and those whose end is not yet acknowledged. Absent: not reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<ProgramRef>>,
}

/// A block that a node holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Holding {
    /// The run.
    pub identity: Identity,
    /// The block.
    pub block_id: BlockId,
    /// The dispatched attempt.
    pub attempt: u32,
    /// The epoch of the dispatch.
    pub epoch: i64,
    /// Whether all that is left of it waits for slow answers, so that it takes no place at the node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
}

/// A block as it is sent to a node: the seeds' *BlockDto*.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema), schemars(rename = "BlockForNode"))]
#[serde(rename_all = "camelCase")]
pub struct Block {
    /// Its id.
    pub block_id: BlockId,
    /// Its run.
    pub identity: Identity,
    /// The run's epoch. Returned with the results.
    pub epoch: i64,
    /// The dispatched attempt, from 1. Returned with the results.
    pub attempt: u32,
    /// Number of earlier attempts that were lost, so that its requests may have been sent. Absent: an older broker, whose `attempt` also
    /// counts those that gave the block back.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u32>,
    /// Whether the node may report in parts: some requests now, others later. See [`BlockReport::part`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// Whether another node may succeed where this one finds no way to a site: then it gives such requests back instead of reporting
    /// their failure. See [`FetchErrorKind::is_of_node`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub elsewhere: bool,
    /// Whether the broker holds sites without a pace: requests that were answered with 429, or 503 with `Retry-After`, are given back with all
    /// others to their origin, and reported at once. See [`SiteNews::paused`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub holds: bool,
    /// The pace limit of the requests' site. Without it only the settings limit the requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// The span of this attempt, the value of a `traceparent` header (W3C Trace Context), if the broker sends spans to a collector.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// How to download.
    #[serde(flatten)]
    pub settings: DownloadSettings,
    /// The requests, a JSON array; absent in a binary frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<Vec<super::push::Request>>"))]
    pub requests: Option<Box<RawValue>>,
}

/// How fast a node may send requests to the site of a block. The node has the site to itself until the block is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pace {
    /// The site: a host, a registrable domain or an IP address.
    pub site: String,
    /// Minimum milliseconds between the end of an answer and the next request, first tries and retries alike.
    pub delay: u64,
    /// Random extra delay, at most this many milliseconds.
    #[serde(default)]
    pub jitter: u64,
    /// Maximum number of concurrent requests.
    pub connections: u32,
    /// Milliseconds from now before the first request may begin.
    #[serde(default)]
    pub not_before: u64,
    /// Milliseconds without a message from the broker after which the node starts no more requests of this block: by then another node
    /// may have the site.
    pub right: u64,
}

/// A request that a node gives back without a result. It returns to the queue of its run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GivenBack {
    /// The request.
    pub request_id: crate::domain::fingerprint::Fingerprint,
    /// Number of tries so far, including those of earlier nodes.
    #[serde(default)]
    pub tries: u32,
    /// The last error, if this node tried it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
    /// The HTTP status of the last try; absent: there was no response.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Duration of the last try, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<u32>,
}

impl GivenBack {
    /// Without the outcome of a try.
    #[must_use]
    pub fn new(request_id: crate::domain::fingerprint::Fingerprint, tries: u32) -> Self {
        Self { request_id, tries, error: None, status: None, time: None }
    }
}

/// The body of `POST /node/heartbeat`: a node without a socket sends its facts, and gets a block or nothing. The names of both revisions
/// of the seeds are accepted, in camel or Pascal case.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatCall {
    /// The node.
    #[serde(alias = "NodeId", alias = "nodeid", alias = "id", alias = "Id")]
    pub node_id: NodeId,
    /// A name for people; without one it keeps its present name.
    #[serde(default, alias = "Name")]
    pub name: Option<String>,
    /// The IP address that it reports; by default the address of the call.
    #[serde(default, alias = "Ip", alias = "ipAddress", alias = "IPAddress", alias = "IpAddress")]
    pub ip: Option<String>,
    /// Number of processors.
    #[serde(default, alias = "ProcessorCount", alias = "cpuCount", alias = "CpuCount", alias = "proccessorCount")]
    pub processor_count: Option<u32>,
    /// Its group.
    #[serde(default, alias = "Group")]
    pub group: Option<String>,
    /// Its operating system.
    #[serde(default, alias = "OperatingSystem", alias = "os", alias = "Os", alias = "OS")]
    pub operating_system: Option<String>,
    /// Total memory, in MB.
    #[serde(default, alias = "Memory", alias = "totalMemory", alias = "TotalMemory")]
    pub memory: Option<u64>,
    /// Console or Web.
    #[serde(default, alias = "NodeType", alias = "nodetype")]
    pub node_type: Option<String>,
    /// Runs that it already works for: it gets no blocks of these.
    #[serde(default, alias = "Runnings")]
    pub runnings: Vec<Identity>,
    /// Its load.
    #[serde(flatten)]
    pub heartbeat: Heartbeat,
}

/// The body of `POST /node/block` as JSON: the seeds' *BlockResponse*.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct BlockReport {
    /// The block.
    #[serde(alias = "BlockId")]
    pub block_id: BlockId,
    /// Its run.
    #[serde(alias = "Identity")]
    pub identity: Identity,
    /// The node that reports.
    #[serde(alias = "NodeId")]
    pub node_id: NodeId,
    /// The epoch that came with the block; absent: the current one.
    #[serde(default, alias = "Epoch")]
    pub epoch: Option<i64>,
    /// The attempt that came with the block; absent: the current one.
    #[serde(default, alias = "Attempt")]
    pub attempt: Option<u32>,
    /// Why the block could not be downloaded completely.
    #[serde(default, alias = "Exception")]
    pub exception: Option<String>,
    /// The requests, each with its result.
    #[serde(default, alias = "Results")]
    pub results: Vec<RequestReport>,
    /// Whether more reports follow: the requests that are missing here stay with the node.
    #[serde(default)]
    pub part: bool,
    /// Requests that the node gives back without a result.
    #[serde(default)]
    pub back: Vec<GivenBack>,
    /// The node's findings about the site of the block: see [`SiteNews`].
    #[serde(default)]
    pub site: Option<SiteNews>,
}

/// A node's findings about the site of a block, for its pace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SiteNews {
    /// Milliseconds from now in which the site must not get requests: from its last `Retry-After`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Milliseconds since the last answer of the site ended, or since the last request began if that is later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_began: Option<u64>,
    /// For a block without a pace: requests whose sites asked for a pause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paused: Vec<Paused>,
}

/// A request of a block without a pace, whose site asked for a pause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// The request.
    pub request_id: crate::domain::fingerprint::Fingerprint,
    /// Milliseconds from its `Retry-After`; absent: it had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}

/// The result of one request, in a [`BlockReport`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// The request.
    #[serde(alias = "RequestId")]
    pub request_id: crate::domain::fingerprint::Fingerprint,
    /// The HTTP status; 0 or absent if there was no response.
    #[serde(default, alias = "Status", alias = "StatusCode", alias = "statusCode")]
    pub status: u16,
    /// Number of tries.
    #[serde(default = "one", alias = "Tries")]
    pub tries: u32,
    /// Duration of the last try, in milliseconds.
    #[serde(default, alias = "Time")]
    pub time: u32,
    /// The final URL after redirects.
    #[serde(default, alias = "TargetUrl")]
    pub target_url: Option<String>,
    /// The headers of the response, in order.
    #[serde(default, alias = "Headers")]
    pub headers: Vec<(String, String)>,
    /// When the last try began.
    #[serde(default, alias = "FetchedAt")]
    pub fetched_at: Option<Timestamp>,
    /// The body in base64.
    #[serde(default, alias = "Content")]
    pub content: Option<String>,
    /// The body as text, for clients without the raw bytes.
    #[serde(default, alias = "Text")]
    pub text: Option<String>,
    /// Why there is no response, or no complete one.
    #[serde(default, alias = "Error")]
    pub error: Option<FetchError>,
}

fn one() -> u32 {
    1
}

/// The response to an accepted report: it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Requests that got a status below 400.
    pub success: u32,
    /// All other requests.
    pub error: u32,
}

/// Why a request got no response, or no complete one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FetchError {
    /// The kind, from a closed list.
    pub kind: FetchErrorKind,
    /// A text for people.
    pub message: String,
    /// Whether another try, later or elsewhere, may succeed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// The closed list of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FetchErrorKind {
    /// The host name cannot be resolved.
    Dns,
    /// No connection.
    Connect,
    /// The TLS handshake failed.
    Tls,
    /// A timeout.
    Timeout,
    /// The body is over the limit.
    TooLarge,
    /// The body is cut short or cannot be decompressed.
    Body,
    /// Too many redirects, or an invalid target.
    Redirect,
    /// The response is not HTTP.
    Protocol,
    /// The body matches the pattern that asks for another IP address.
    ChangeIp,
    /// The request itself cannot be sent.
    Invalid,
    /// The node may not send requests to this address.
    Refused,
    /// The site's robots.txt forbids it.
    Robots,
    /// An operator discarded the request before a node had it, or the run had downloaded as many bytes as its job allows.
    Discarded,
    /// The node's report did not include the request.
    NotReported,
    /// Every node that got the block was lost.
    NodeLost,
    /// The block failed as a whole.
    Block,
    /// Any other reason.
    Other,
}

impl FetchErrorKind {
    /// Whether the reason may be the node's own: its name servers, its network, its trust store, its owner's settings.
    #[must_use]
    pub fn is_of_node(self) -> bool {
        matches!(self, Self::Dns | Self::Connect | Self::Tls | Self::Refused)
    }

    /// The name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Dns => "dns",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Timeout => "timeout",
            Self::TooLarge => "too-large",
            Self::Body => "body",
            Self::Redirect => "redirect",
            Self::Protocol => "protocol",
            Self::ChangeIp => "change-ip",
            Self::Invalid => "invalid",
            Self::Refused => "refused",
            Self::Robots => "robots",
            Self::Discarded => "discarded",
            Self::NotReported => "not-reported",
            Self::NodeLost => "node-lost",
            Self::Block => "block",
            Self::Other => "other",
        }
    }
}
