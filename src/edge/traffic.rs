//! What is under way at the edge: calls and connections, and whether the server is about to end.
//!
//! A server that ends first takes no new connection, lets every call that waits be answered, and waits for those that are at
//! work. Then the next leader may begin; what is left is to send the last bytes.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// See the module's text.
#[derive(Debug, Clone)]
pub struct Traffic(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    is_ending: watch::Sender<bool>,
    calls: AtomicUsize,
    connections: AtomicUsize,
    fewer: Notify,
}

/// A call that is at work, or a connection that is open; dropped, it is over.
#[derive(Debug)]
pub struct Open {
    traffic: Traffic,
    counter: fn(&Inner) -> &AtomicUsize,
}

impl Default for Traffic {
    fn default() -> Self {
        let is_ending = watch::Sender::new(false);
        Self(Arc::new(Inner { is_ending, calls: AtomicUsize::new(0), connections: AtomicUsize::new(0), fewer: Notify::new() }))
    }
}

impl Traffic {
    fn open(&self, counter: fn(&Inner) -> &AtomicUsize) -> Open {
        counter(&self.0).fetch_add(1, SeqCst);
        Open { traffic: self.clone(), counter }
    }

    /// A call begins.
    #[must_use]
    pub fn call(&self) -> Open {
        self.open(|inner| &inner.calls)
    }

    /// A connection is there.
    #[must_use]
    pub fn connection(&self) -> Open {
        self.open(|inner| &inner.connections)
    }

    /// The server is about to end: bodies that have not come are not waited for, and no connection outlives its call.
    pub fn end(&self) {
        self.0.is_ending.send_replace(true);
    }

    /// The server is about to end.
    #[must_use]
    pub fn is_ending(&self) -> bool {
        *self.0.is_ending.borrow()
    }

    /// Ready when the server is about to end.
    pub fn ending(&self) -> impl Future<Output = ()> + use<> {
        let mut receiver = self.0.is_ending.subscribe();
        async move {
            // The sender is in the hands of whoever serves; without it there is nothing to wait for.
            let _ = receiver.wait_for(|is_ending| *is_ending).await;
        }
    }

    /// Waits until no call is at work, but not longer than this; how many are.
    pub async fn calls_over(&self, most: Duration) -> usize {
        self.over(|inner| &inner.calls, most).await
    }

    /// Waits until no connection is open, but not longer than this; how many are.
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
        // Those that are left are counted.
        let _ = tokio::time::timeout(most, none).await;
        counter(&self.0).load(SeqCst)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
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
