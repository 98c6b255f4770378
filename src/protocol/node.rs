//! The broker and its nodes.

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
    /// The first message: the rules of the house.
    Welcome {
        /// The id under which the node is known.
        node_id: NodeId,
        /// Milliseconds between two heartbeats.
        heartbeat: u64,
        /// Milliseconds of silence after which the node counts as lost.
        offline: u64,
        /// The most bytes of a message.
        max_frame: usize,
    },
    /// Download this. As a text frame the requests are in it; as a binary frame they are its bulk, zstd-compressed.
    Block(Box<Block>),
    /// Forget this block: nobody waits for its results.
    Drop {
        /// The block.
        block_id: BlockId,
        /// The hand-out that is meant.
        attempt: u32,
    },
    /// Start this program. Said again until the node has answered; one that it has or had already is not started again.
    Start(Box<ProgramOrder>),
    /// End this program: first asked to, then killed. Said again until the node has said that it is over.
    Exit {
        /// Which.
        program: ProgramRef,
        /// Milliseconds between asking and killing.
        grace: u64,
        /// Why.
        reason: String,
    },
    /// What was said of these programs is on disk: those that are over may be forgotten.
    ProgramsSettled(Vec<ProgramRef>),
    /// The lines of a program's output before this one are on disk.
    OutputTaken {
        /// Which.
        program: ProgramRef,
        /// The number of the line that comes next.
        next: u64,
    },
    /// You get nothing new; finish what you have, then leave.
    Drain {
        /// Why.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        reason: Option<String>,
    },
    /// An operator removed this node, or wants it to end: stop everything, and do not connect again.
    Leave {
        /// Why.
        reason: String,
    },
    /// What the node sent could not be taken.
    Error(Problem),
}

/// From a node to the broker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum FromNode {
    /// I live.
    Heartbeat(Heartbeat),
    /// Where programs are. Those that are over are said again after a reconnect, until they are settled.
    Programs(Vec<ProgramReport>),
    /// Lines that a program wrote. Said again after a reconnect, from the first that was not taken.
    Output(ProgramOutput),
}

/// How a node is, and what it holds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// Blocks and programs at work.
    #[serde(default, alias = "ProcessCount")]
    pub process_count: u32,
    /// Percent of all processors.
    #[serde(default, alias = "Cpu", alias = "CPU")]
    pub cpu: u32,
    /// MB.
    #[serde(default, alias = "FreeMemory")]
    pub free_memory: u64,
    /// The blocks that it works on, or whose results are not yet taken. Absent: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holding: Option<Vec<Holding>>,
    /// The programs that it runs, or whose end is not yet taken. Absent: it does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub programs: Option<Vec<ProgramRef>>,
}

/// A block in the hands of a node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Holding {
    /// The run.
    pub identity: Identity,
    /// The block.
    pub block_id: BlockId,
    /// The hand-out.
    pub attempt: u32,
    /// The epoch of the hand-out.
    pub epoch: i64,
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
    /// The run's epoch. Goes back with the results.
    pub epoch: i64,
    /// The hand-out, from 1. Goes back with the results.
    pub attempt: u32,
    /// Earlier hand-outs that were lost, so that its requests may have been sent. Absent: an older broker, which counts in
    /// `attempt` those that gave the block back as well.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost: Option<u32>,
    /// The node may report in parts: some requests now, others later. See [`BlockReport::part`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub parts: bool,
    /// The requests go to a site that must not be asked faster than this. Without it there is no limit but the settings'.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<Pace>,
    /// How to download.
    #[serde(flatten)]
    pub settings: DownloadSettings,
    /// The requests, a JSON array; none in a binary frame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "broker", schemars(with = "Option<Vec<super::push::Request>>"))]
    pub requests: Option<Box<RawValue>>,
}

/// How fast a node may ask the site of a block. The site is the node's alone until the block is reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Pace {
    /// The site: a host, a registrable domain or an IP address.
    pub site: String,
    /// Least milliseconds between the beginnings of two requests, first tries and later ones alike.
    pub delay: u64,
    /// Up to this many milliseconds more, by chance.
    #[serde(default)]
    pub jitter: u64,
    /// The most requests at once.
    pub connections: u32,
    /// Milliseconds from now before the first request may begin.
    #[serde(default)]
    pub not_before: u64,
    /// Milliseconds without a word from the broker after which the node begins no more requests of this block: by then
    /// the site may be another node's.
    pub right: u64,
}

/// A request that a node gives back without a result. It waits in the queue of its run again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct GivenBack {
    /// The request.
    pub request_id: crate::domain::fingerprint::Fingerprint,
    /// How often it was tried so far, earlier nodes' tries included.
    #[serde(default)]
    pub tries: u32,
    /// What was wrong the last time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<FetchError>,
}

/// The body of `POST /node/heartbeat`: a node without a socket says who and how it is, and gets a block or nothing. The
/// names of both revisions of the seeds are taken, in camel or Pascal case.
#[derive(Debug, Clone, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HeartbeatCall {
    /// The node.
    #[serde(alias = "NodeId", alias = "nodeid", alias = "id", alias = "Id")]
    pub node_id: NodeId,
    /// Its name, for people; without one it keeps the name that it has.
    #[serde(default, alias = "Name")]
    pub name: Option<String>,
    /// Where it says it is; else where the call came from.
    #[serde(default, alias = "Ip", alias = "ipAddress", alias = "IPAddress", alias = "IpAddress")]
    pub ip: Option<String>,
    /// Processors.
    #[serde(default, alias = "ProcessorCount", alias = "cpuCount", alias = "CpuCount", alias = "proccessorCount")]
    pub processor_count: Option<u32>,
    /// Its group.
    #[serde(default, alias = "Group")]
    pub group: Option<String>,
    /// Its operating system.
    #[serde(default, alias = "OperatingSystem", alias = "os", alias = "Os", alias = "OS")]
    pub operating_system: Option<String>,
    /// MB.
    #[serde(default, alias = "Memory", alias = "totalMemory", alias = "TotalMemory")]
    pub memory: Option<u64>,
    /// Console or Web.
    #[serde(default, alias = "NodeType", alias = "nodetype")]
    pub node_type: Option<String>,
    /// Runs that it works for already: it wants none of these.
    #[serde(default, alias = "Runnings")]
    pub runnings: Vec<Identity>,
    /// How it is.
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
    /// Who reports.
    #[serde(alias = "NodeId")]
    pub node_id: NodeId,
    /// As it came with the block; absent: the current one is meant.
    #[serde(default, alias = "Epoch")]
    pub epoch: Option<i64>,
    /// As it came with the block; absent: the current one is meant.
    #[serde(default, alias = "Attempt")]
    pub attempt: Option<u32>,
    /// What kept the block from being downloaded as a whole.
    #[serde(default, alias = "Exception")]
    pub exception: Option<String>,
    /// The requests, each with what became of it.
    #[serde(default, alias = "Results")]
    pub results: Vec<RequestReport>,
    /// More reports follow: the requests that are not in this one stay with the node.
    #[serde(default)]
    pub part: bool,
    /// Requests that the node gives back without a result.
    #[serde(default)]
    pub back: Vec<GivenBack>,
    /// What the node found about the site of the block: see [`SiteNews`].
    #[serde(default)]
    pub site: Option<SiteNews>,
}

/// What a node found about the site of a block, for its pace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", default)]
pub struct SiteNews {
    /// Milliseconds from now for which the site is not to be asked: what its last `Retry-After` said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
    /// Milliseconds since the last request to the site began.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_began: Option<u64>,
}

/// What became of one request, in a [`BlockReport`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestReport {
    /// The request.
    #[serde(alias = "RequestId")]
    pub request_id: crate::domain::fingerprint::Fingerprint,
    /// The HTTP status; 0 or absent if there was no answer.
    #[serde(default, alias = "Status", alias = "StatusCode", alias = "statusCode")]
    pub status: u16,
    /// How often it was tried.
    #[serde(default = "one", alias = "Tries")]
    pub tries: u32,
    /// Milliseconds of the last try.
    #[serde(default, alias = "Time")]
    pub time: u32,
    /// Where the redirects led.
    #[serde(default, alias = "TargetUrl")]
    pub target_url: Option<String>,
    /// The headers of the answer, in its order.
    #[serde(default, alias = "Headers")]
    pub headers: Vec<(String, String)>,
    /// When the last try began.
    #[serde(default, alias = "FetchedAt")]
    pub fetched_at: Option<Timestamp>,
    /// The body in base64.
    #[serde(default, alias = "Content")]
    pub content: Option<String>,
    /// The body as text, for who has no bytes.
    #[serde(default, alias = "Text")]
    pub text: Option<String>,
    /// Why there is no answer, or not a whole one.
    #[serde(default, alias = "Error")]
    pub error: Option<FetchError>,
}

fn one() -> u32 {
    1
}

/// The answer to a report that was taken: it is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct Reported {
    /// Requests answered with a status below 400.
    pub success: u32,
    /// The others.
    pub error: u32,
}

/// Why a request was not answered, or not wholly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct FetchError {
    /// One of a closed list.
    pub kind: FetchErrorKind,
    /// In words.
    pub message: String,
    /// Asked again later or elsewhere it may well be answered.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub retryable: bool,
}

/// The closed list of reasons.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum FetchErrorKind {
    /// The host's name is not known.
    Dns,
    /// No connection.
    Connect,
    /// TLS was refused.
    Tls,
    /// It took too long.
    Timeout,
    /// The body is over the limit.
    TooLarge,
    /// The body is cut short or wrongly compressed.
    Body,
    /// Too many redirects, or one that leads nowhere.
    Redirect,
    /// The answer is no HTTP.
    Protocol,
    /// The body matches the pattern that asks for another IP address.
    ChangeIp,
    /// The request itself cannot be sent.
    Invalid,
    /// The node may not make requests to this address.
    Refused,
    /// The site's robots.txt forbids it.
    Robots,
    /// An operator discarded the request before a node had it.
    Discarded,
    /// The node did not mention the request in its report.
    NotReported,
    /// No node survived the block.
    NodeLost,
    /// The block failed as a whole.
    Block,
    /// Any other.
    Other,
}

impl FetchErrorKind {
    /// The word, as it is sent.
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
