//! Why a task failed.

use crate::domain::task::limits;
use crate::protocol::task::TaskError;
use std::error::Error;

/// What a task returns: `?` works on any error.
pub type TaskResult<T = ()> = Result<T, TaskFailure>;

/// Why a task failed: made from any error by `?`, or from a text by [`TaskFailure::new`].
///
/// It does not implement [`Error`], so that every error can be converted into it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskFailure {
    message: String,
    stack: Option<String>,
    permanent: bool,
}

impl TaskFailure {
    /// A failure with this reason; the job's policy decides whether it is tried again.
    #[must_use]
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), stack: None, permanent: false }
    }

    /// From a boxed error, on which `?` does not work.
    #[must_use]
    pub fn of(error: &(dyn Error + 'static)) -> Self {
        let mut sources = Vec::new();
        let mut next = error.source();
        while let Some(source) = next {
            sources.push(format!("caused by: {source}"));
            next = source.source();
        }
        let stack = (!sources.is_empty()).then(|| sources.join("\n"));
        Self { message: error.to_string(), stack, permanent: false }
    }

    /// Marks it as permanent: there will be no other attempt.
    #[must_use]
    pub fn permanent(mut self) -> Self {
        self.permanent = true;
        self
    }

    /// Adds the location in the program; an existing text, such as the chain of sources, stays before it.
    #[must_use]
    pub fn with_stack(mut self, stack: impl AsRef<str>) -> Self {
        let above = self.stack.take().map(|above| above + "\n").unwrap_or_default();
        self.stack = Some(above + stack.as_ref());
        self
    }

    /// The message.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Whether there will be no other attempt.
    #[must_use]
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// The error for a report, within the limits of the broker.
    pub(super) fn into_error(self) -> TaskError {
        let message = cut_chars(self.message, limits::MESSAGE);
        let stack = self.stack.map(|stack| cut_chars(stack, limits::STACK));
        TaskError { message, stack, permanent: self.permanent }
    }
}

impl<E: Error + 'static> From<E> for TaskFailure {
    fn from(error: E) -> Self {
        Self::of(&error)
    }
}

/// Cuts a text to this many characters.
pub(super) fn cut_chars(mut text: String, most: usize) -> String {
    if text.len() > most
        && let Some((at, _)) = text.char_indices().nth(most)
    {
        text.truncate(at);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] std::num::ParseIntError);

    #[test]
    fn an_error_becomes_a_failure_with_its_sources() {
        let fails = || -> TaskResult { Err(Outer("x".parse::<i32>().unwrap_err()))? };
        let error = fails().unwrap_err().with_stack("at line 3").permanent().into_error();
        assert_eq!((error.message.as_str(), error.permanent), ("outer", true));
        assert_eq!(error.stack.as_deref(), Some("caused by: invalid digit found in string\nat line 3"));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let error = TaskFailure::new("ü".repeat(3_000)).with_stack("x".repeat(20_000)).into_error();
        assert_eq!(error.message, "ü".repeat(limits::MESSAGE));
        assert_eq!(error.stack.map(|stack| stack.len()), Some(limits::STACK));
    }
}
