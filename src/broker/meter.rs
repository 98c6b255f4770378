//! Sends the metrics of a broker to a collector.

use crate::edge::Edge;
use crate::telemetry::{METRICS_EVERY, Telemetry};
use std::time::Duration;
use tokio::task::JoinHandle;

/// How long the last read of the metrics may take when the broker stops.
const LAST: Duration = Duration::from_millis(500);
/// Between two looks whether the tables can be read.
const LOOK: Duration = Duration::from_millis(500);

/// Sends the metrics at once, and again and again.
#[derive(Debug)]
pub(super) struct Meter {
    edge: Edge,
    telemetry: Telemetry,
    /// If there is a collector.
    task: Option<JoinHandle<()>>,
}

impl Meter {
    pub(super) fn start(edge: Edge, telemetry: Telemetry) -> Self {
        let task = telemetry.is_on().then(|| actix::spawn(send_forever(edge.clone(), telemetry.clone())));
        Self { edge, telemetry, task }
    }

    /// Ends at once.
    pub(super) fn abort(&self) {
        self.task.iter().for_each(JoinHandle::abort);
    }

    /// Sends the last values, while the store is open.
    pub(super) async fn end(&self) {
        self.abort();
        if self.task.is_some() && tokio::time::timeout(LAST, send(&self.edge, &self.telemetry)).await.is_err() {
            log::warn!("the last metrics for the collector were not read in time");
        }
    }
}

async fn send_forever(edge: Edge, telemetry: Telemetry) {
    // A broker that has just begun to stand by does not know yet whether it can read the tables.
    while edge.service.can_read().is_err() {
        tokio::time::sleep(LOOK).await;
    }
    loop {
        send(&edge, &telemetry).await;
        tokio::time::sleep(METRICS_EVERY).await;
    }
}

async fn send(edge: &Edge, telemetry: &Telemetry) {
    if edge.service.can_read().is_err() {
        return;
    }
    match edge.metrics().await {
        Ok(page) => telemetry.metrics(page),
        Err(problem) => log::warn!("failed to read the metrics for the collector reason={}", problem.detail),
    }
}
