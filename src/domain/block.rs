//! Blocks as the frontier of a run sees them: state, holder, and verdicts on reports and acknowledgements.

use super::ids::{NodeId, Seq};
use super::time::Timestamp;

/// State of a block. `Storing`, `Reporting` and `Acking` wait for a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Not yet on disk.
    Storing,
    /// Waits for its first dispatch to a node.
    Ready,
    /// Waits for another dispatch, or for its first with a priority other than 0.
    Retry,
    /// Waits in the queue of its site.
    Queued,
    /// Dispatched to a node.
    Using,
    /// Its results are not yet on disk.
    Reporting,
    /// Its results are stored and wait for a worker.
    Answered,
    /// Its results were delivered to a worker.
    Delivered,
    /// Its acknowledgement is not yet on disk.
    Acking,
    /// Done.
    Done,
}

/// A block that is dispatched to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The node that holds the block.
    pub node: NodeId,
    /// Dispatch attempt of this block, starting at 1.
    pub attempt: u32,
    /// When it was dispatched, or last sent.
    pub since: Timestamp,
    /// It was sent: its requests are not being read from the store any more.
    pub is_sent: bool,
    /// When the lease expires if the node does not renew it.
    pub until: Timestamp,
    /// The node has confirmed that it holds the block.
    pub confirmed: bool,
}

/// The result of admitting a batch of requests.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// The blocks to store: number, and the requests of the batch that each contains.
    pub blocks: Vec<(Seq, Vec<usize>)>,
    /// Requests accepted.
    pub accepted: u64,
    /// Requests that the run had already seen.
    pub duplicates: u64,
    /// Requests beyond the depth limit of the run.
    pub too_deep: u64,
    /// Requests beyond the limit of the run or of their site.
    pub over_limit: u64,
    /// Requests rejected by a guard.
    pub trapped: u64,
}

/// Whether a report of results is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportVerdict {
    /// It is.
    Current,
    /// The block was dispatched again later, or another node holds it.
    Late,
    /// The block already has its results.
    Finished,
    /// There is no such block.
    Unknown,
}

/// Whether an acknowledgement is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AckVerdict {
    /// It is.
    Current,
    /// The block was acknowledged before.
    Already,
    /// The block has no results yet.
    NotAnswered,
    /// There is no such block.
    Unknown,
}

/// What happens to a block that its node lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Lost {
    /// It is ready again after this many attempts.
    Retry(u32),
    /// It has no attempts left. The caller reports it as failed.
    Exhausted(u32),
}

/// A block as stored, for [`super::frontier::Frontier::restore`].
#[derive(Debug, Clone)]
pub struct StoredBlock {
    /// Its number.
    pub seq: Seq,
    /// The site of its requests, if the site has a pace.
    pub site: Option<Box<str>>,
    /// The priority of its requests.
    pub priority: i8,
    /// [`Phase::Ready`], [`Phase::Retry`], [`Phase::Answered`] or [`Phase::Done`].
    pub phase: Phase,
    /// Attempts that were lost.
    pub attempts: u32,
    /// Requests in it.
    pub requests: u32,
    /// Requests that succeeded.
    pub success: u32,
    /// Requests that failed.
    pub error: u32,
    /// Bytes of the bodies in its results.
    pub bytes: u64,
}
