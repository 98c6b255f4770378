//! What the journeys share: real processes that end with their test, a client, and waiting for a condition.

#![allow(dead_code, reason = "each journey uses its part")]

pub mod access_log;
pub mod api;
pub mod axe;
pub mod brokers;
pub mod browser;
pub mod certificates;
pub mod crawl;
pub mod dns;
pub mod postgres;
pub mod process;
pub mod protobuf;
pub mod proxy;
pub mod raw;
pub mod receiver;
pub mod shell;
pub mod site;
pub mod socket;
pub mod web;

use std::collections::HashSet;
use std::future::Future;
use std::net::TcpListener;
use std::sync::{LazyLock, Mutex};
use std::time::{Duration, Instant};

/// Waits until a condition gives a value. It is asked again and again, so that no test sleeps for a guess.
///
/// # Panics
/// It does not within two minutes.
pub async fn until<T, F: Future<Output = Option<T>>>(what: &str, mut condition: impl FnMut() -> F) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(start.elapsed() < Duration::from_secs(120), "waited two minutes for {what}");
        pause(start).await;
    }
}

/// The time between two looks at a condition: a tenth of the time it has been waited for, so that long waits leave the processors to others.
pub async fn pause(start: Instant) {
    tokio::time::sleep((start.elapsed() / 10).clamp(Duration::from_millis(10), Duration::from_millis(100))).await;
}

/// A port for a program that cannot choose one itself. It lies below the range from which the system takes the ports of
/// outgoing connections and of port 0, so that none of these takes it before the program listens. No other test gets it.
pub fn free_port() -> u16 {
    static GIVEN: LazyLock<Mutex<HashSet<u16>>> = LazyLock::new(Mutex::default);
    let range = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").expect("the range of ports");
    let end: u16 = range.split_whitespace().next().and_then(|first| first.parse().ok()).expect("a port");
    let mut given = GIVEN.lock().expect("locked");
    loop {
        let random = uuid::Uuid::new_v4().as_u128() as u16;
        let port = 10_000 + random % (end - 10_000);
        if !given.contains(&port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            given.insert(port);
            return port;
        }
    }
}

/// A cron expression for each hour, half an hour before and after now: it does not come in the middle of a test.
pub fn hourly() -> String {
    let minute = (chrono::Timelike::minute(&chrono::Utc::now()) + 30) % 60;
    format!("{minute} * * * *")
}

/// Runs a journey on a runtime of its own, with a limit of time.
pub fn journey<F: Future<Output = ()>>(body: F) {
    journey_within(Duration::from_secs(600), body);
}

/// As [`journey`], with another limit.
pub fn journey_within<F: Future<Output = ()>>(limit: Duration, body: F) {
    actix_rt::System::new().block_on(async {
        tokio::time::timeout(limit, body).await.expect("the journey takes too long");
    });
}

/// A tar.gz with one file that may be executed.
pub fn tar_gz(name: &str, content: &[u8], compression: flate2::Compression) -> Vec<u8> {
    let mut tar = tar::Builder::new(flate2::write::GzEncoder::new(Vec::new(), compression));
    let mut head = tar::Header::new_gnu();
    head.set_size(content.len() as u64);
    head.set_mode(0o755);
    tar.append_data(&mut head, name, content).expect("written");
    tar.into_inner().and_then(flate2::write::GzEncoder::finish).expect("finished")
}
