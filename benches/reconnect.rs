//! `cargo bench --bench reconnect`: what workers cost that connect and reconnect, beside no open run and beside many.
//!
//! A real broker process. The open runs wait for a worker that never comes; the workers that connect watch another handler. So what they
//! cost must not depend on the open runs. All workers are connected by one thread, one after the other, then all their sockets close, and
//! all connect again.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

// Only what this bench uses of what the benches share.
#[path = "support/database.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod database;
#[path = "support/http.rs"]
mod http;
#[path = "support/process.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod process;
#[path = "support/socket.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod socket;

use clap::Parser;
use database::Database;
use http::Http;
use serde_json::json;
use socket::{Message, Socket};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use webloom::for_tests::ids::WorkerId;

/// What workers cost that connect and reconnect, beside no open run and beside many.
#[derive(Parser)]
struct Options {
    /// Workers that connect
    #[arg(long, default_value_t = 1_000)]
    workers: usize,
    /// Open runs of the second half of the measurements
    #[arg(long, default_value_t = 10_000)]
    runs: u64,
    /// Pairs of measurements
    #[arg(long, default_value_t = 3)]
    pairs: u32,
    /// A PostgreSQL server on this machine, postgres://user@host:port: its databases are used instead of files
    #[arg(long)]
    database: Option<String>,
    /// Given by `cargo bench`. Without it, as with `cargo test --benches`, nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

/// Runs of one call.
const BATCH: u64 = 1_000;

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let options = Options::parse();
    if !options.bench {
        return Ok(());
    }
    for _ in 0..options.pairs {
        for runs in [0, options.runs] {
            measure(&options, runs)?;
        }
    }
    Ok(())
}

fn measure(options: &Options, runs: u64) -> Result<(), Failure> {
    let database = Database::new(env!("CARGO_TARGET_TMPDIR"), options.database.as_deref())?;
    let (broker, address) = process::broker(database.path())?;
    begin_runs(address, runs)?;
    let workers: Vec<_> = (0..options.workers).map(|_| WorkerId::random()).collect();
    let used = || process::cpu_seconds(broker.pid());
    let mut figures = Vec::new();
    // The second time all of them reconnect.
    for _ in 0..2 {
        let (before, began) = (used(), Instant::now());
        let sockets = workers.iter().map(|worker| connect(address, *worker)).collect::<Result<Vec<_>, _>>()?;
        let time = began.elapsed();
        drop(sockets);
        figures.push((time, (used() - before) * 1_000.0 / options.workers as f64));
    }
    let rounded = |value: f64| (value * 1_000.0).round() / 1_000.0;
    let [connect, reconnect] = [0, 1].map(|i| {
        let (time, cpu): (Duration, f64) = figures[i];
        json!({ "seconds": rounded(time.as_secs_f64()), "broker_cpu_ms_per_worker": rounded(cpu) })
    });
    println!(
        "{}",
        json!({ "bench": "reconnect", "workers": options.workers, "open_runs": runs, "connect": connect, "reconnect": reconnect })
    );
    Ok(())
}

/// Makes runs that wait for a worker.
fn begin_runs(address: SocketAddr, runs: u64) -> Result<(), Failure> {
    let mut http = Http::connect(address)?;
    let job = json!({ "name": "waits", "jobType": "task", "task": { "handler": "bench.waits", "noWorker": "wait" }, "policies": { "overlap": "allow" } });
    let (status, made) = http.json("POST /api/v1/jobs", &job.to_string())?;
    let job = made["id"].as_str().filter(|_| status == 201).ok_or_else(|| format!("no job was made: {status} {made}"))?.to_owned();
    let mut left = runs;
    while left > 0 {
        let count = left.min(BATCH);
        let body = format!("[{}]", vec!["{}"; count as usize].join(","));
        let (status, answer) = http.json(&format!("POST /api/v1/jobs/{job}/trigger/batch"), &body)?;
        let made = answer.as_array().into_iter().flatten().filter(|run| run["identity"].is_string()).count() as u64;
        if status != 202 || made != count {
            return Err(format!("{made} runs of {count} were made: {status} {answer}").into());
        }
        left -= count;
    }
    Ok(())
}

/// A connected worker that watches a handler of which there are no runs.
fn connect(address: SocketAddr, worker: WorkerId) -> Result<Socket, Failure> {
    let mut socket = Socket::connect(address, &format!("/worker?workerid={worker}"), Duration::from_secs(10))?;
    expect(&mut socket, "welcome")?;
    socket.text(&json!({ "t": "watch", "v": { "classNames": ["bench.other"] } }).to_string())?;
    expect(&mut socket, "watching")?;
    Ok(socket)
}

fn expect(socket: &mut Socket, kind: &str) -> Result<(), Failure> {
    match socket.read()? {
        Message::Text(text) if text.starts_with(format!("{{\"t\":\"{kind}\"").as_bytes()) => Ok(()),
        Message::Text(text) => Err(format!("{kind} was expected: {}", String::from_utf8_lossy(&text)).into()),
        _ => Err(format!("{kind} was expected").into()),
    }
}
