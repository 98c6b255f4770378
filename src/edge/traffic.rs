//! Open calls and connections at the edge, and whether the server is stopping.
//!
//! A stopping server first accepts no new connections, answers every waiting call, and waits for the calls in progress. Then the next
//! leader may begin; only the last bytes remain to be sent.

use super::connections::{Connections, Refused};
use crate::protocol::exposition::Exposition;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// See the module documentation.
#[derive(Debug, Clone)]
pub struct Traffic(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    is_ending: watch::Sender<bool>,
    calls: AtomicUsize,
    connections: AtomicUsize,
    admitted: Arc<Connections>,
    fewer: Notify,
}

/// A call in progress or an open connection; it ends when this is dropped.
#[derive(Debug)]
pub struct Open {
    traffic: Traffic,
    counter: fn(&Inner) -> &AtomicUsize,
    /// The address of an admitted connection.
    admitted: Option<Option<IpAddr>>,
}

impl Default for Traffic {
    fn default() -> Self {
        Self::new(Arc::default())
    }
}

impl Traffic {
    /// Nothing is open yet. The limits of all servers of the broker are in `admitted`.
    #[must_use]
    pub fn new(admitted: Arc<Connections>) -> Self {
        Self(Arc::new(Inner {
            is_ending: watch::Sender::new(false),
            calls: AtomicUsize::new(0),
            connections: AtomicUsize::new(0),
            admitted,
            fewer: Notify::new(),
        }))
    }

    fn open(&self, counter: fn(&Inner) -> &AtomicUsize) -> Open {
        counter(&self.0).fetch_add(1, SeqCst);
        Open { traffic: self.clone(), counter, admitted: None }
    }

    /// Begins a call.
    #[must_use]
    pub fn call(&self) -> Open {
        self.open(|inner| &inner.calls)
    }

    /// Begins a connection that no limit applies to.
    #[cfg(test)]
    pub fn connection(&self) -> Open {
        self.open(|inner| &inner.connections)
    }

    /// Begins a connection of a peer.
    ///
    /// # Errors
    /// Too many are open.
    pub fn admit(&self, address: Option<IpAddr>) -> Result<Open, Refused> {
        self.0.admitted.open(address)?;
        let mut open = self.open(|inner| &inner.connections);
        open.admitted = Some(address);
        Ok(open)
    }

    /// Writes the counters of connections as Prometheus metrics.
    pub fn write(&self, page: &mut Exposition) {
        self.0.admitted.write(page);
    }

    /// Starts the stop: incomplete bodies are dropped, and connections close after their current call.
    pub fn end(&self) {
        self.0.is_ending.send_replace(true);
    }

    /// Whether the server is stopping.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        *self.0.is_ending.borrow()
    }

    /// Resolves when the server begins to stop.
    pub fn ending(&self) -> impl Future<Output = ()> + use<> {
        let mut receiver = self.0.is_ending.subscribe();
        async move {
            // The server owns the sender; without it there is nothing to wait for.
            let _ = receiver.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Waits until no call is in progress, at most this long; returns how many are left.
    pub async fn calls_over(&self, most: Duration) -> usize {
        self.over(|inner| &inner.calls, most).await
    }

    /// Waits until no connection is open, at most this long; returns how many are left.
    pub async fn connections_over(&self, most: Duration) -> usize {
        self.over(|inner| &inner.connections, most).await
    }

    async fn over(&self, counter: fn(&Inner) -> &AtomicUsize, most: Duration) -> usize {
        let none = async {
            loop {
                let mut fewer = std::pin::pin!(self.0.fewer.notified());
                fewer.as_mut().enable();
                if counter(&self.0).load(SeqCst) == 0 {
                    return;
                }
                fewer.await;
            }
        };
        // After a timeout the caller counts what is left.
        let _ = tokio::time::timeout(most, none).await;
        counter(&self.0).load(SeqCst)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        if let Some(address) = self.admitted {
            self.traffic.0.admitted.close(address);
        }
        let left = (self.counter)(&self.traffic.0).fetch_sub(1, SeqCst) - 1;
        if left == 0 && self.traffic.is_ending() {
            self.traffic.0.fewer.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_end_waits_for_calls_and_then_for_connections() {
        let traffic = Traffic::default();
        let (call, connection) = (traffic.call(), traffic.connection());
        let ending = traffic.ending();
        traffic.end();
        ending.await;
        assert_eq!(traffic.calls_over(Duration::from_millis(1)).await, 1);
        let waits = tokio::spawn({
            let traffic = traffic.clone();
            async move { traffic.calls_over(Duration::from_secs(60)).await }
        });
        drop(call);
        assert_eq!(waits.await.expect("it ends"), 0);
        assert_eq!(traffic.connections_over(Duration::ZERO).await, 1);
        drop(connection);
        assert_eq!(traffic.connections_over(Duration::from_secs(60)).await, 0);
    }
}
