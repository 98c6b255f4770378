//! A task as its handler sees it.

use super::failure::{TaskFailure, TaskResult, cut_chars};
use super::logs::Logs;
use crate::domain::ids::{Identity, JobId};
use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::protocol::task::{TaskOrder, TaskRef, TaskReport, TaskState};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// The data of a task for its handler, and its reports before the end. Cheap to clone, for the worker's thread only.
#[derive(Clone)]
pub struct TaskContext(pub(super) Rc<Task>);

impl std::fmt::Debug for TaskContext {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TaskContext").field("task", &self.0.order.task()).finish_non_exhaustive()
    }
}

/// Tasks with unsent reports, and the signal that there are some.
#[derive(Default)]
pub(super) struct Talk {
    pub(super) tasks: RefCell<Vec<Rc<Task>>>,
    pub(super) urgent: Cell<bool>,
    pub(super) wake: Notify,
}

/// One attempt.
pub(super) struct Task {
    pub(super) order: TaskOrder,
    began: Timestamp,
    talk: Rc<Talk>,
    /// Whether it is in the list of tasks with unsent reports.
    pub(super) is_listed: Cell<bool>,
    is_accepted: Cell<bool>,
    progress: RefCell<Option<(u8, String)>>,
    logs: RefCell<Logs>,
    data: RefCell<Option<Box<RawValue>>>,
    next_at: Cell<Option<Timestamp>>,
    span: OnceCell<String>,
    /// Why it should end.
    cancelled: RefCell<Option<String>>,
    /// Its future must be dropped now.
    is_stopped: Cell<bool>,
    /// When it must begin to end, unless its lease is renewed.
    pub(super) cancel_at: Cell<Instant>,
    signal: Notify,
}

impl Task {
    pub(super) fn new(order: TaskOrder, cancel_at: Instant, talk: Rc<Talk>) -> Self {
        Self {
            order,
            began: Timestamp::now(),
            talk,
            is_listed: Cell::new(false),
            is_accepted: Cell::new(false),
            progress: RefCell::default(),
            logs: RefCell::default(),
            data: RefCell::default(),
            next_at: Cell::new(None),
            span: OnceCell::new(),
            cancelled: RefCell::default(),
            is_stopped: Cell::new(false),
            cancel_at: Cell::new(cancel_at),
            signal: Notify::new(),
        }
    }

    /// Asks the handler to end; the first reason counts.
    pub(super) fn cancel(&self, reason: &str) {
        self.cancelled.borrow_mut().get_or_insert_with(|| reason.to_owned());
        self.signal.notify_waiters();
    }

    pub(super) fn cancel_reason(&self) -> Option<String> {
        self.cancelled.borrow().clone()
    }

    /// Makes the worker drop the handler's future.
    pub(super) fn stop(&self, reason: &str) {
        self.is_stopped.set(true);
        self.cancel(reason);
    }

    async fn until(&self, is_so: impl Fn(&Self) -> bool) {
        loop {
            let mut signal = std::pin::pin!(self.signal.notified());
            signal.as_mut().enable();
            if is_so(self) {
                return;
            }
            signal.await;
        }
    }

    /// Resolves when the future must be dropped.
    pub(super) async fn stopped(&self) {
        self.until(|task| task.is_stopped.get()).await;
    }

    /// An empty report of this attempt.
    pub(super) fn report(&self, state: TaskState) -> TaskReport {
        report(self.order.task(), state)
    }

    /// The next report before its end, if there is something to report. True: there is more.
    pub(super) fn take_said(&self) -> (Option<TaskReport>, bool) {
        let (progress, logs) = (self.progress.borrow_mut().take(), self.logs.borrow_mut().take());
        let was_accepted = self.is_accepted.replace(true);
        if progress.is_none() && logs.is_empty() && was_accepted {
            return (None, false);
        }
        let state = if progress.is_none() && logs.is_empty() { TaskState::Accepted } else { TaskState::Running };
        let (progress, text) = progress.map_or((None, None), |(progress, text)| (Some(progress), (!text.is_empty()).then_some(text)));
        (Some(TaskReport { progress, text, logs, ..self.report(state) }), !self.logs.borrow().is_empty())
    }

    /// The last report, and before it reports with the lines that do not fit into it.
    pub(super) fn take_last(&self, state: TaskState) -> (Vec<TaskReport>, TaskReport) {
        let mut before = Vec::new();
        let (progress, text) = self.progress.borrow_mut().take().map_or((None, None), |(progress, text)| (Some(progress), Some(text)));
        let mut waiting = self.logs.borrow_mut();
        let mut logs = waiting.take();
        while !waiting.is_empty() {
            before.push(TaskReport { logs: std::mem::replace(&mut logs, waiting.take()), ..self.report(TaskState::Running) });
        }
        let text = text.filter(|text| !text.is_empty());
        let (data, next_at) = (self.data.borrow_mut().take(), self.next_at.get());
        (before, TaskReport { progress, text, logs, data, next_at, ..self.report(state) })
    }
}

/// A report with only a state.
pub(super) fn report(task: TaskRef, state: TaskState) -> TaskReport {
    let TaskRef { identity, instance, attempt } = task;
    let (progress, text, result, error, data, next_at, logs) = (None, None, None, None, None, None, Vec::new());
    TaskReport { identity, instance, attempt, state, progress, text, result, error, data, next_at, logs }
}

impl TaskContext {
    /// The arguments, parsed as your type; absent ones are read as `null`.
    ///
    /// # Errors
    /// They do not match the type. Returned from the handler, the error fails the task for good: the next attempt would get the same
    /// arguments.
    pub fn arguments<T: DeserializeOwned>(&self) -> TaskResult<T> {
        read(self.raw_arguments(), "arguments")
    }

    /// The arguments as JSON text; `None` if neither the job nor its trigger has any.
    #[must_use]
    pub fn raw_arguments(&self) -> Option<&str> {
        self.0.order.arguments.as_ref().map(|json| json.get())
    }

    /// The data that the last run of the job stored with [`TaskContext::set_data`]; absent data are read as `null`.
    ///
    /// # Errors
    /// They do not match the type; see [`TaskContext::arguments`].
    pub fn data<T: DeserializeOwned>(&self) -> TaskResult<T> {
        read(self.0.order.data.as_ref().map(|json| json.get()), "data")
    }

    /// Stores data for the next run of the job. They are written with the end of this run, whatever its state. If this attempt fails and
    /// another one follows, they are dropped.
    ///
    /// # Errors
    /// They are not valid JSON, or more than 256 KiB of it.
    pub fn set_data<T: Serialize + ?Sized>(&self, data: &T) -> TaskResult {
        let json = serde_json::value::to_raw_value(data)
            .map_err(|error| TaskFailure::new(format!("the data are not JSON: {error}")).permanent())?;
        if json.get().len() > limits::PAYLOAD {
            let message = format!("the data have {} bytes: must be at most {}", json.get().len(), limits::PAYLOAD);
            return Err(TaskFailure::new(message).permanent());
        }
        self.0.data.replace(Some(json));
        Ok(())
    }

    /// Reports progress in percent, with a text. Call it any number of times: the newest value is sent, at most ten times a second.
    /// Values above 100 count as 100; texts are cut after 500 characters.
    pub fn progress(&self, percent: u8, text: impl Into<String>) {
        self.0.progress.replace(Some((percent.min(100), cut_chars(text.into(), limits::TEXT))));
        self.speak();
    }

    /// Writes a line into the log of the run: `trace`, `debug`, `info`, `warning`, `error` or `critical`. Lines are sent in batches; when
    /// 10,000 wait, the oldest are dropped and counted. Texts are cut after 8,192 bytes.
    pub fn log(&self, level: log::Level, text: impl Into<String>) {
        let level = match level {
            log::Level::Error => "error",
            log::Level::Warn => "warning",
            log::Level::Info => "info",
            log::Level::Debug => "debug",
            log::Level::Trace => "trace",
        };
        self.0.logs.borrow_mut().push(level, text.into(), Timestamp::now());
        self.speak();
    }

    fn speak(&self) {
        if !self.0.is_listed.replace(true) {
            self.0.talk.tasks.borrow_mut().push(Rc::clone(&self.0));
        }
        if !self.0.talk.urgent.replace(true) {
            self.0.talk.wake.notify_one();
        }
    }

    /// Sets the next fire of the job to this time, once, instead of its schedule.
    pub fn next_at(&self, time: Timestamp) {
        self.0.next_at.set(Some(time));
    }

    /// Sets the next fire of the job to this time from now, once, instead of its schedule.
    pub fn next_in(&self, pause: Duration) {
        self.next_at(Timestamp::now().plus_ms(i64::try_from(pause.as_millis()).unwrap_or(i64::MAX)));
    }

    /// Resolves when the task should end, with the reason: it was cancelled, the worker stops, or the broker was silent for so long that
    /// it will give the task to another worker. Return soon; later the future is dropped.
    pub async fn cancelled(&self) -> String {
        self.0.until(|task| task.cancelled.borrow().is_some()).await;
        self.0.cancel_reason().unwrap_or_default()
    }

    /// Whether the task should end. For long computations, which should check it; it also detects that the lease has run out.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.borrow().is_some() || Instant::now() >= self.0.cancel_at.get()
    }

    /// The run.
    #[must_use]
    pub fn identity(&self) -> Identity {
        self.0.order.identity
    }

    /// Its job.
    #[must_use]
    pub fn job_id(&self) -> JobId {
        self.0.order.job_id
    }

    /// The name of the handler.
    #[must_use]
    pub fn handler(&self) -> &str {
        &self.0.order.handler
    }

    /// The attempt of the run, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.0.order.attempt
    }

    /// The instance of the run, from 0: the shard, or the index among the workers of a broadcast.
    #[must_use]
    pub fn instance(&self) -> u32 {
        self.0.order.instance
    }

    /// The number of instances of the run; 1 if it is not divided.
    #[must_use]
    pub fn instances(&self) -> u32 {
        self.0.order.instances
    }

    /// The scheduled time of the run; `None` if it was triggered by hand.
    #[must_use]
    pub fn planned_at(&self) -> Option<Timestamp> {
        self.0.order.planned_at
    }

    /// When the broker will cancel the attempt, if the job has a time limit.
    #[must_use]
    pub fn deadline(&self) -> Option<Timestamp> {
        let timeout = self.0.order.timeout?;
        Some(self.0.began.plus_ms(i64::try_from(timeout).unwrap_or(i64::MAX)))
    }

    /// The W3C trace id of the run: 32 hexadecimal digits.
    #[must_use]
    pub fn trace_id(&self) -> Option<&str> {
        self.0.order.trace_id.as_deref()
    }

    /// The value of a `traceparent` header (W3C Trace Context) for calls that this task makes; its span belongs to this attempt.
    #[must_use]
    pub fn traceparent(&self) -> Option<String> {
        let trace = self.trace_id()?;
        if let Some(span) = self.0.order.span_id {
            return Some(format!("00-{trace}-{span}-01"));
        }
        let span = self.0.span.get_or_init(|| uuid::Uuid::new_v4().simple().to_string()[..16].to_owned());
        Some(format!("00-{trace}-{span}-01"))
    }
}

fn read<T: DeserializeOwned>(json: Option<&str>, what: &str) -> TaskResult<T> {
    let mut reader = serde_json::Deserializer::from_str(json.unwrap_or("null"));
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let (path, error) = (error.path().to_string(), error.into_inner());
        let at = if path == "." { String::new() } else { format!(" at {path}") };
        TaskFailure::new(format!("the {what} are not as expected{at}: {error}")).permanent()
    })
}
