//! OpenTelemetry: traces, metrics and logs by OTLP/HTTP to a collector.
//!
//! Off unless an endpoint is set: then nothing is made or kept. Otherwise items wait in bounded buffers, and a thread of its own sends them,
//! so that a collector that is slow or away delays nothing. What does not fit is dropped and counted.

mod buffer;
mod encode;
mod logs;
mod send;
mod wire;

pub use logs::Tee;

use crate::domain::ids::BrokerId;
use crate::domain::time::Timestamp;
use crate::domain::trace::Span;
use crate::protocol::exposition::{Exposition, Metric};
use buffer::Buffer;
use encode::Sender;
use logs::Line;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::Duration;
use tokio::sync::Notify;
use url::Url;

/// Interval between two times at which metrics are sent.
pub const METRICS_EVERY: Duration = Duration::from_secs(60);

/// Memory for spans that wait.
const MOST_SPANS: usize = 16 << 20;
/// Memory for log lines that wait.
const MOST_LINES: usize = 4 << 20;
/// Number of items in a request.
const BATCH: usize = 512;
/// How long a program that stops may take to send what is left.
const LAST: Duration = Duration::from_secs(3);

/// Where to send, checked.
#[derive(Clone)]
pub struct Endpoint {
    /// The URL of the collector, without `/v1/traces` and the like.
    pub url: Url,
    /// Headers of each request.
    pub headers: Vec<(String, String)>,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the values of the headers.
        f.debug_struct("Endpoint").field("url", &self.url.as_str()).finish_non_exhaustive()
    }
}

/// Takes what is sent; a handle that may be cloned. The default sends nothing.
#[derive(Debug, Clone, Default)]
pub struct Telemetry(Option<Arc<Inner>>);

#[derive(Debug)]
struct Inner {
    instance: BrokerId,
    waiting: Mutex<Waiting>,
    /// A batch is full, or the program stops.
    wake: Notify,
    is_stopping: AtomicBool,
    /// Completes when the thread has ended.
    ended: Mutex<mpsc::Receiver<()>>,
}

#[derive(Debug)]
struct Waiting {
    spans: Buffer<Span>,
    lines: Buffer<Line>,
    /// Newer metrics replace older ones: they are cumulative.
    metrics: Option<(Vec<Metric>, Timestamp)>,
}

impl Telemetry {
    /// Begins to send to this endpoint, and to send the lines of a log that [`Tee`] prints.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub fn start(endpoint: Endpoint, service: &'static str) -> std::io::Result<Self> {
        let instance = BrokerId::random();
        let sender = Sender { service, instance: instance.to_string(), since: Timestamp::now() };
        let (end, ended) = mpsc::channel();
        let waiting = Waiting { spans: Buffer::new(MOST_SPANS), lines: Buffer::new(MOST_LINES), metrics: None };
        let (wake, is_stopping) = (Notify::new(), AtomicBool::new(false));
        let inner = Arc::new(Inner { instance, waiting: Mutex::new(waiting), wake, is_stopping, ended: Mutex::new(ended) });
        let shared = Arc::clone(&inner);
        std::thread::Builder::new().name("telemetry".to_owned()).spawn(move || {
            logs::is_sender();
            send::run(&shared, &endpoint, &sender);
            // The receiver lives as long as the handle.
            let _ = end.send(());
        })?;
        let telemetry = Self(Some(inner));
        logs::send_to(telemetry.clone());
        Ok(telemetry)
    }

    /// Whether anything is sent.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.0.is_some()
    }

    /// The id of this process in what it sends.
    #[must_use]
    pub fn instance(&self) -> Option<BrokerId> {
        self.0.as_ref().map(|inner| inner.instance)
    }

    /// Sends these spans. They are not made if nothing is sent.
    pub fn spans<I: IntoIterator<Item = Span>>(&self, make: impl FnOnce() -> I) {
        let Some(inner) = &self.0 else { return };
        let spans = make();
        let is_full = {
            let mut waiting = inner.waiting();
            spans.into_iter().for_each(|span| waiting.spans.push_sized(span));
            waiting.spans.len() >= BATCH
        };
        if is_full {
            inner.wake.notify_one();
        }
    }

    /// Sends these metrics.
    pub fn metrics(&self, page: Exposition) {
        if let Some(inner) = &self.0 {
            inner.waiting().metrics = Some((page.into_metrics(), Timestamp::now()));
        }
    }

    fn line(&self, make: impl FnOnce() -> Line) {
        let Some(inner) = &self.0 else { return };
        let line = make();
        let bytes = line.bytes();
        inner.waiting().lines.push(line, bytes);
    }

    /// Sends what is left and ends the thread. Waits a few seconds at most.
    pub fn stop(self) {
        let Some(inner) = self.0 else { return };
        inner.is_stopping.store(true, Relaxed);
        inner.wake.notify_one();
        let ended = inner.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // After that time, what is left is lost.
        let _ = ended.recv_timeout(LAST);
    }
}

impl Inner {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Buffer<Span> {
    fn push_sized(&mut self, span: Span) {
        let bytes = span.bytes();
        self.push(span, bytes);
    }
}
