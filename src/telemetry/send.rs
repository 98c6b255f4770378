//! The thread that sends: every second, or when a batch is full.

use super::encode::Sender;
use super::wire::Answer;
use super::{BATCH, Endpoint, Inner, LAST};
use awc::http::StatusCode;
use awc::http::header::{HeaderName, HeaderValue};
use awc::{Client, Connector};
use bytes::Bytes;
use prost::Message as _;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

/// Interval between two rounds.
const EVERY: Duration = Duration::from_secs(1);
/// How long a connection, and a request, may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const TIMEOUT: Duration = Duration::from_secs(10);
/// The longest pause after a failure.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How often, and how soon, a program that stops tries again.
const LAST_TRIES: u32 = 3;
const LAST_PAUSE: Duration = Duration::from_millis(250);
/// Interval between two log lines about failures.
const LOG_EVERY: Duration = Duration::from_secs(60);
/// Maximum number of bytes of an answer that are read.
const MOST_ANSWER: usize = 64 << 10;

/// What is sent to an address of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Traces,
    Metrics,
    Logs,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Traces => "traces",
            Self::Metrics => "metrics",
            Self::Logs => "logs",
        }
    }
}

/// A kind, with the request that is sent again.
struct Signal {
    kind: Kind,
    url: String,
    unsent: Option<(Bytes, usize)>,
    pause: Duration,
    not_before: Option<Instant>,
}

/// How a request ended.
#[derive(Debug, PartialEq, Eq)]
enum Sent {
    /// The collector has it, except this many items, for this reason.
    Done(u64, String),
    /// It may be accepted later.
    Later(String),
    /// It would be refused again.
    Never(String),
}

/// Sends until the program stops.
pub(super) fn run(inner: &Inner, endpoint: &Endpoint, sender: &Sender) {
    actix_rt::System::new().block_on(async {
        let base = endpoint.url.as_str().trim_end_matches('/');
        let signal =
            |kind: Kind| Signal { kind, url: format!("{base}/v1/{}", kind.name()), unsent: None, pause: Duration::ZERO, not_before: None };
        let mut signals = [Kind::Traces, Kind::Metrics, Kind::Logs].map(signal);
        let mut courier = Courier { inner, sender, client: client(), headers: headers(endpoint), failures: Failures::default() };
        loop {
            // A timeout is the usual case.
            let _ = tokio::time::timeout(EVERY, inner.wake.notified()).await;
            let is_stopping = inner.is_stopping.load(Relaxed);
            if is_stopping {
                // The caller does not wait longer, either.
                let _ = tokio::time::timeout(LAST, courier.last_rounds(&mut signals)).await;
                return;
            }
            courier.round(&mut signals).await;
        }
    });
}

struct Courier<'a> {
    inner: &'a Inner,
    sender: &'a Sender,
    client: Client,
    headers: Vec<(HeaderName, HeaderValue)>,
    failures: Failures,
}

impl Courier<'_> {
    /// Sends all that waits, unless it failed just now.
    async fn round(&mut self, signals: &mut [Signal]) {
        for signal in signals {
            if signal.not_before.is_none_or(|at| at <= Instant::now()) {
                self.send_all(signal).await;
            }
        }
        let dropped = {
            let mut waiting = self.inner.waiting();
            waiting.spans.take_dropped() + waiting.lines.take_dropped()
        };
        self.failures.dropped += dropped;
        self.failures.report(None);
    }

    /// Sends what is left, at once. What is refused for now is sent again soon, but not for long.
    async fn last_rounds(&mut self, signals: &mut [Signal]) {
        for _ in 0..LAST_TRIES {
            signals.iter_mut().for_each(|signal| signal.not_before = None);
            self.round(signals).await;
            if signals.iter().all(|signal| signal.unsent.is_none()) {
                return;
            }
            tokio::time::sleep(LAST_PAUSE).await;
        }
    }

    async fn send_all(&mut self, signal: &mut Signal) {
        while let Some((body, items)) = signal.unsent.take().or_else(|| self.next(signal.kind)) {
            match self.send(&signal.url, body.clone()).await {
                Sent::Done(rejected, why) => {
                    (signal.pause, signal.not_before) = (Duration::ZERO, None);
                    self.failures.dropped += rejected;
                    if rejected > 0 {
                        self.failures.report(Some((&signal.url, &why)));
                    }
                }
                Sent::Never(why) => {
                    self.failures.dropped += items as u64;
                    self.failures.report(Some((&signal.url, &why)));
                }
                Sent::Later(why) => {
                    signal.unsent = Some((body, items));
                    signal.pause = (signal.pause * 2).clamp(EVERY, LONGEST_PAUSE);
                    signal.not_before = Some(Instant::now() + signal.pause);
                    self.failures.report(Some((&signal.url, &why)));
                    return;
                }
            }
        }
    }

    /// The next request, with the number of its items.
    fn next(&self, kind: Kind) -> Option<(Bytes, usize)> {
        let (body, items) = match kind {
            Kind::Traces => {
                let spans = self.inner.waiting().spans.take(BATCH);
                let items = spans.len();
                ((items > 0).then(|| self.sender.traces(spans)), items)
            }
            Kind::Logs => {
                let lines = self.inner.waiting().lines.take(BATCH);
                let items = lines.len();
                ((items > 0).then(|| self.sender.logs(lines)), items)
            }
            Kind::Metrics => {
                let metrics = self.inner.waiting().metrics.take();
                let items = metrics.as_ref().map_or(0, |(metrics, _)| metrics.len());
                (metrics.map(|(metrics, at)| self.sender.metrics(metrics, at)), items)
            }
        };
        body.map(|body| (body.into(), items))
    }

    async fn send(&self, url: &str, body: Bytes) -> Sent {
        let mut request = self.client.post(url).content_type("application/x-protobuf");
        for (name, value) in &self.headers {
            request = request.insert_header((name.clone(), value.clone()));
        }
        let mut answer = match request.send_body(body).await {
            Ok(answer) => answer,
            Err(error) => return Sent::Later(error.to_string()),
        };
        let status = answer.status();
        match status {
            status if status.is_success() => {
                let body = answer.body().limit(MOST_ANSWER).await.unwrap_or_default();
                let partial = Answer::decode(body).ok().and_then(|answer| answer.partial_success).unwrap_or_default();
                Sent::Done(u64::try_from(partial.rejected).unwrap_or(0), partial.error_message)
            }
            StatusCode::TOO_MANY_REQUESTS | StatusCode::BAD_GATEWAY | StatusCode::SERVICE_UNAVAILABLE | StatusCode::GATEWAY_TIMEOUT => {
                Sent::Later(format!("the collector answered {status}"))
            }
            _ => Sent::Never(format!("the collector answered {status}")),
        }
    }
}

/// Failures, logged once a minute at most.
#[derive(Debug, Default)]
struct Failures {
    dropped: u64,
    logged: Option<Instant>,
}

impl Failures {
    /// Logs a failure, or items that were dropped, unless there was a line just now.
    /// Returns whether there is one now.
    fn report(&mut self, failure: Option<(&str, &str)>) -> bool {
        if failure.is_none() && self.dropped == 0 || self.logged.is_some_and(|at| at.elapsed() < LOG_EVERY) {
            return false;
        }
        self.logged = Some(Instant::now());
        let dropped = std::mem::take(&mut self.dropped);
        match failure {
            Some((url, why)) => log::warn!("telemetry not sent url={url} dropped={dropped}: {why}"),
            None => log::warn!("telemetry dropped, the collector is too slow dropped={dropped}"),
        }
        true
    }
}

fn headers(endpoint: &Endpoint) -> Vec<(HeaderName, HeaderValue)> {
    let header = |(name, value): &(String, String)| Some((name.parse().ok()?, HeaderValue::from_str(value).ok()?));
    endpoint.headers.iter().filter_map(header).collect()
}

fn client() -> Client {
    let mut tls = crate::tls::client();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let connector = Connector::new().rustls_0_23(Arc::new(tls)).timeout(CONNECT_TIMEOUT).handshake_timeout(CONNECT_TIMEOUT);
    Client::builder()
        .connector(connector)
        .timeout(TIMEOUT)
        .disable_redirects()
        .add_default_header(("User-Agent", concat!("webloom/", env!("CARGO_PKG_VERSION"))))
        .finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_logged_once_a_minute() {
        let mut failures = Failures::default();
        assert!(!failures.report(None), "there is none");
        let away = Some(("http://c/v1/logs", "no connection"));
        assert!(failures.report(away) && !failures.report(away));
        failures.dropped = 5;
        assert!(!failures.report(None) && failures.dropped == 5, "they are counted until the next line");
        failures.logged = Instant::now().checked_sub(LOG_EVERY);
        assert!(failures.report(None) && failures.dropped == 0);
    }
}
