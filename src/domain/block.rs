//! Blocks as the frontier of a run sees them: where one is, who has it, and what is decided about it.

use super::ids::{NodeId, Seq};
use super::time::Timestamp;

/// Where a block is. `Storing`, `Reporting` and `Acking` wait for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not yet on disk.
    Storing,
    /// Waits for a node for the first time.
    Ready,
    /// Waits for a node again, or for the first time with a priority other than 0.
    Retry,
    /// Waits in the queue of its site.
    Queued,
    /// At a node.
    Using,
    /// Its results are not yet on disk.
    Reporting,
    /// Its results wait for a worker.
    Answered,
    /// Its results are with a worker.
    Delivered,
    /// That it is done is not yet on disk.
    Acking,
    /// Done.
    Done,
}

/// A block in the hands of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// Whose.
    pub node: NodeId,
    /// The how manieth hand-out of the block this is, from 1.
    pub attempt: u32,
    /// When it was handed out, or handed over again.
    pub since: Timestamp,
    /// When it ends if nothing is heard.
    pub until: Timestamp,
    /// The node has said that it holds it.
    pub confirmed: bool,
}

/// What became of a batch of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// The blocks to store: number, and which requests of the batch go in.
    pub blocks: Vec<(Seq, Vec<usize>)>,
    /// Requests taken.
    pub accepted: u64,
    /// Requests that the run had seen.
    pub duplicates: u64,
    /// Requests deeper than the run goes.
    pub too_deep: u64,
    /// Requests past the most that the run takes, in all or of their site.
    pub over_limit: u64,
    /// Requests that a guard has stopped.
    pub trapped: u64,
}

/// Whether a report of results counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportVerdict {
    /// It does.
    Current,
    /// A later hand-out of the block is out, or it is another node's.
    Late,
    /// The block has its results already.
    Finished,
    /// There is no such block.
    Unknown,
}

/// Whether an acknowledgement counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVerdict {
    /// It does.
    Current,
    /// It was given before.
    Already,
    /// The block has no results yet.
    NotAnswered,
    /// There is no such block.
    Unknown,
}

/// What becomes of a block that its node lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It is ready again; this many hand-outs are behind it.
    Retry(u32),
    /// It was handed out too often. The caller reports it as failed.
    Exhausted(u32),
}

/// A block as it was stored, for [`super::frontier::Frontier::restore`].
#[derive(Debug, Clone)]
pub struct StoredBlock {
    /// Its number.
    pub seq: Seq,
    /// The site that its requests go to, if its pace is kept.
    pub site: Option<Box<str>>,
    /// The priority of its requests.
    pub priority: i8,
    /// [`Phase::Ready`], [`Phase::Retry`], [`Phase::Answered`] or [`Phase::Done`].
    pub phase: Phase,
    /// Hand-outs that were lost.
    pub attempts: u32,
    /// Requests in it.
    pub requests: u32,
    /// … of them answered well.
    pub success: u32,
    /// … and not.
    pub error: u32,
}
