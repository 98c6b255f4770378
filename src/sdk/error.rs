//! Errors between a worker and its broker.

use crate::protocol::problem::Problem;

/// Any error of the worker's own code.
pub type BoxError = Box<dyn std::error::Error>;

/// The return type of a spider's methods: `?` works on any error.
pub type Result<T = (), E = BoxError> = std::result::Result<T, E>;

/// Why a worker, or a call of it, ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The broker's address is invalid.
    #[error("`{address}` is not a valid broker address: {reason}")]
    Address {
        /// The given address.
        address: String,
        /// The reason.
        reason: String,
    },
    /// The worker watches no class and no task, or one of them twice.
    #[error("{0}")]
    Classes(String),
    /// The folder of [`super::Worker::outbox`] cannot be used.
    #[error("cannot use the outbox `{}`: {reason}", folder.display())]
    Outbox {
        /// The folder.
        folder: std::path::PathBuf,
        /// The reason.
        reason: String,
    },
    /// An operator kicked the worker.
    #[error("an operator kicked this worker: {0}")]
    Kicked(String),
    /// The broker rejected the call for good.
    #[error("the broker rejected the call: {0}{place}", place = place(.0))]
    Refused(#[from] Problem),
    /// A request is not allowed; it was not sent.
    #[error("request {index} of a push cannot be sent: {problem}")]
    Request {
        /// Its index in the push, from 0.
        index: usize,
        /// What is wrong with it.
        problem: Problem,
    },
    /// The run has ended and accepts no more calls.
    #[error("the run has ended")]
    RunOver,
    /// The broker cannot be reached, or is busy.
    #[error("the broker does not respond: {0}")]
    Unreachable(String),
    /// The broker's response cannot be parsed.
    #[error("cannot parse the broker's response: {0}")]
    Answer(String),
    /// A spider returned [`Abort`].
    #[error("{0}")]
    Aborted(String),
}

/// An error from a spider that ends the worker at once. The current block is not acknowledged: its pages are delivered again, to this
/// worker after a restart or to another. Use it for errors that no page causes, such as a full disk.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{0}")]
pub struct Abort(pub String);

/// The part of the input that the problem is about.
fn place(problem: &Problem) -> String {
    problem.field.as_ref().map_or_else(String::new, |field| format!(" ({field})"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_part_of_the_input() {
        let text = |problem: Problem| Error::Refused(problem).to_string();
        assert_eq!(text(Problem::invalid("name", "too long")), "the broker rejected the call: A value is not allowed: too long (name)");
        assert_eq!(text(Problem::unknown_token()).matches('(').count(), 0);
    }
}
