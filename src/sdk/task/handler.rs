//! The trait for task handlers: a function, or a value with its own state.

use super::context::TaskContext;
use super::failure::{TaskFailure, TaskResult};
use crate::domain::task::limits;
use futures_util::future::LocalBoxFuture;
use serde::Serialize;
use serde_json::value::RawValue;
use std::rc::Rc;

/// The code behind a task name, with its own state. A function without state does not need this: see [`super::super::Worker::task`].
/// Write `run` as an `async fn`.
///
/// Its future runs on the worker's thread and need not be `Send`. It is dropped at an `await` when the task's lease is over, so put
/// cleanup into a `Drop`.
pub trait TaskHandler: 'static {
    /// The result: any JSON; `()` for none.
    type Output: Serialize;

    /// The name that jobs give as their handler.
    fn name(&self) -> &str;

    /// Runs one attempt.
    fn run(&self, task: TaskContext) -> impl Future<Output = TaskResult<Self::Output>>;
}

/// The result of an attempt: JSON, or nothing.
pub(crate) type Outcome = TaskResult<Option<Box<RawValue>>>;

/// A handler of any type.
pub(crate) trait AnyHandler {
    fn call(self: Rc<Self>, task: TaskContext) -> LocalBoxFuture<'static, Outcome>;
}

impl<H: TaskHandler> AnyHandler for H {
    fn call(self: Rc<Self>, task: TaskContext) -> LocalBoxFuture<'static, Outcome> {
        Box::pin(async move { brought(&self.run(task).await?) })
    }
}

/// A handler that is a function.
pub(crate) struct Function<F>(pub(crate) F);

impl<F, Fut, T> AnyHandler for Function<F>
where
    F: Fn(TaskContext) -> Fut + 'static,
    Fut: Future<Output = TaskResult<T>> + 'static,
    T: Serialize,
{
    fn call(self: Rc<Self>, task: TaskContext) -> LocalBoxFuture<'static, Outcome> {
        // The function is called within the future, so that its panics are caught there.
        Box::pin(async move { brought(&(self.0)(task).await?) })
    }
}

fn brought<T: Serialize>(result: &T) -> Outcome {
    let json = serde_json::value::to_raw_value(result)
        .map_err(|error| TaskFailure::new(format!("the result is not JSON: {error}")).permanent())?;
    match json.get() {
        "null" => Ok(None),
        text if text.len() > limits::PAYLOAD => {
            let message = format!("the result has {} bytes: must be at most {}", text.len(), limits::PAYLOAD);
            Err(TaskFailure::new(message).permanent())
        }
        _ => Ok(Some(json)),
    }
}
