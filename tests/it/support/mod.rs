//! What the journeys share: real processes that end with their test, a client, and waiting for a condition.

#![allow(dead_code, reason = "each journey uses its part")]

pub mod api;
pub mod browser;
pub mod certificates;
pub mod crawl;
pub mod process;
pub mod receiver;
pub mod site;
pub mod socket;

use std::future::Future;
use std::time::{Duration, Instant};

/// Waits until a condition gives a value. It is asked again and again, so that no test sleeps for a guess.
///
/// # Panics
/// It does not within a minute.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(Instant::now() < deadline, "waited a minute for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a journey on a runtime of its own, with a limit of time.
pub fn journey<F: Future<Output = ()>>(body: F) {
    actix_rt::System::new().block_on(async {
        tokio::time::timeout(Duration::from_secs(240), body).await.expect("the journey takes too long");
    });
}
