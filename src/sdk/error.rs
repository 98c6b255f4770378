//! What can go wrong between a worker and its broker.

use crate::protocol::problem::Problem;

/// Any error of a worker's own.
pub type BoxError = Box<dyn std::error::Error>;

/// What the methods of a spider return: `?` works on any error.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// Why a worker, or a call of it, ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker's address is none.
    #[error("`{address}` is no address of a broker: {reason}")]
    Address {
        /// What was given.
        address: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The worker watches neither a class nor the name of a task, or one twice.
    #[error("{0}")]
    Classes(String),
    /// The folder of [`super::Worker::outbox`] cannot be used.
    #[error("the outbox `{}` cannot be used: {reason}", folder.display())]
    Outbox {
        /// The folder.
        folder: std::path::PathBuf,
        /// Why.
        reason: String,
    },
    /// An operator put the worker out.
    #[error("an operator put this worker out: {0}")]
    Kicked(String),
    /// The broker said no, and would again.
    #[error("the broker refuses: {0}")]
    Refused(#[from] Problem),
    /// A request that is not allowed; it was not sent.
    #[error("request {index} of a push cannot be sent: {problem}")]
    Request {
        /// Its place in the push, from 0.
        index: usize,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The run is over; nothing more is taken for it.
    #[error("the run is over")]
    RunOver,
    /// The broker cannot be reached, or is busy.
    #[error("the broker does not answer: {0}")]
    Unreachable(String),
    /// The broker's answer cannot be read.
    #[error("the broker's answer cannot be read: {0}")]
    Answer(String),
    /// A spider returned [`Abort`].
    #[error("{0}")]
    Aborted(String),
}

/// Returned by a spider, it ends the worker at once. The block in hand is not acknowledged: its pages are delivered
/// again, to this worker's next life or to another. For what no page is to blame for, such as a full disk.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Abort(pub String);
