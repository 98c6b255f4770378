//! One run as all its clients see it, and what they count together.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::http::Http;

/// The class that the bench watches.
pub const CLASS: &str = "bench.Worker";

/// Shared by producers, nodes and workers.
pub struct Run {
    /// The broker that is called about it.
    pub address: SocketAddr,
    /// The broker to which its nodes connect: the leader, as agents do.
    pub leader: SocketAddr,
    pub identity: String,
    /// The group of the nodes that take its blocks.
    pub group: String,
    /// Requests of a push, and of a block.
    pub batch: usize,
    /// Pushes in all.
    pub batches: u64,
    pub next_batch: AtomicU64,
    /// Pushes that may be ahead of what is acknowledged; 0: any.
    window: u64,
    /// Pushes a second, all producers together; 0: as fast as they go.
    rate: u64,
    started: Instant,
    acknowledged: Mutex<u64>,
    more_acknowledged: Condvar,
    /// By number of the block: when its push began and when a worker had it, in microseconds since the start.
    pushed_us: Vec<AtomicU32>,
    delivered_us: Vec<AtomicU32>,
    /// Answers 503.
    pub busy: AtomicU64,
    /// Reports that the broker did not want.
    pub refused: AtomicU64,
    /// Everything is pushed.
    pub all_pushed: AtomicBool,
    /// Everything is acknowledged.
    pub over: AtomicBool,
}

impl Run {
    pub fn new(address: SocketAddr, identity: String, requests: u64, batch: usize, window: u64, rate: u64) -> Self {
        let batches = requests / batch as u64;
        let times = || (0..batches * 2 + 16).map(|_| AtomicU32::new(0)).collect();
        Self {
            address,
            leader: address,
            identity,
            group: "bench".to_owned(),
            batch,
            batches,
            next_batch: AtomicU64::new(0),
            window,
            rate: rate / batch as u64,
            started: Instant::now(),
            acknowledged: Mutex::new(0),
            more_acknowledged: Condvar::new(),
            pushed_us: times(),
            delivered_us: times(),
            busy: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            all_pushed: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Blocks a producer until its push is due and fits the window.
    pub fn wait_for_room(&self, batch: u64) {
        if let Some(due_us) = (batch * 1_000_000).checked_div(self.rate) {
            let due = self.started + Duration::from_micros(due_us);
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
        }
        if self.window > 0 {
            let acknowledged = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.more_acknowledged.wait_while(acknowledged, |done| batch >= *done + self.window));
        }
    }

    /// Remembers when the blocks of a push were begun; `answer` is the broker's.
    pub fn note_pushed(&self, answer: &[u8], begun: Instant) {
        let text = std::str::from_utf8(answer).unwrap_or_default();
        let ids = text.split_once("\"blockIds\":[").and_then(|(_, rest)| rest.split_once(']')).map_or("", |(ids, _)| ids);
        for id in ids.split(',') {
            self.note(&self.pushed_us, id.trim_matches('"'), begun.saturating_duration_since(self.started));
        }
    }

    /// Remembers that a worker has a block.
    pub fn note_delivered(&self, block: &str) {
        self.note(&self.delivered_us, block, self.started.elapsed());
    }

    fn note(&self, times: &[AtomicU32], block: &str, time: Duration) {
        // The lower half of a block's id is its number.
        let number = block.get(16..).and_then(|low| usize::from_str_radix(low, 16).ok());
        if let Some(slot) = number.and_then(|n| times.get(n)) {
            slot.store(time.as_micros() as u32 | 1, Ordering::Relaxed);
        }
    }

    /// Counts acknowledged blocks; true if these were the last.
    pub fn note_acknowledged(&self, blocks: u64) -> bool {
        let mut done = self.acknowledged.lock().unwrap_or_else(PoisonError::into_inner);
        *done += blocks;
        self.more_acknowledged.notify_all();
        *done >= self.batches
    }

    /// Microseconds from a push to a worker, of each block.
    pub fn deliveries(&self) -> Vec<u32> {
        let both = self.pushed_us.iter().zip(&self.delivered_us).map(|(a, b)| (a.load(Ordering::Relaxed), b.load(Ordering::Relaxed)));
        both.filter(|(pushed, delivered)| *pushed > 0 && *delivered > 0)
            .map(|(pushed, delivered)| delivered.saturating_sub(pushed))
            .collect()
    }
}

/// Makes the job and triggers it, once a worker watches; the run's identity.
pub fn trigger(http: &mut Http, block: usize) -> Result<String, Box<dyn Error>> {
    trigger_with(http, serde_json::json!({ "BlockSize": block.to_string() }))
}

/// As [`trigger`], with these properties of the job.
pub fn trigger_with(http: &mut Http, mut properties: serde_json::Value) -> Result<String, Box<dyn Error>> {
    properties["FullClassName"] = CLASS.into();
    properties["AckWait"] = "600000".into();
    let name = properties["NodeGroup"].as_str().unwrap_or("bench");
    let job = serde_json::json!({ "name": name, "jobType": "block", "properties": properties });
    let (status, made) = http.json("POST /api/v1/jobs", &job.to_string())?;
    let id = made["id"].as_str().filter(|_| status == 201).ok_or_else(|| format!("no job was made: {status} {made}"))?;
    let (status, run) = http.json(&format!("POST /api/v1/jobs/{id}/trigger"), "{}")?;
    let identity = run["identity"].as_str().filter(|_| status == 202).ok_or_else(|| format!("no run was made: {status} {run}"))?;
    Ok(identity.to_owned())
}

/// Microseconds since an instant.
pub fn micros(since: Instant) -> u32 {
    u32::try_from(since.elapsed().as_micros()).unwrap_or(u32::MAX)
}

/// The value below which `share` of all lie, in milliseconds.
pub fn percentile_ms(values: &mut [u32], share: f64) -> f64 {
    if values.is_empty() {
        return f64::NAN;
    }
    let at = ((values.len() - 1) as f64 * share).round() as usize;
    f64::from(*values.select_nth_unstable(at).1) / 1_000.0
}
