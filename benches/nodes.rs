//! `cargo bench --bench nodes`: what a fleet of nodes costs that does nothing but send heartbeats.
//!
//! A real broker process, and one socket for each node, all served by one thread of this process. A node connects, sends its first
//! heartbeat, and then one every five seconds, spread evenly over the time. Each heartbeat reports a processor load that moves by less
//! than what the broker stores. The limit of open files must allow the sockets: `ulimit -n 20000`.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

// Only what this bench uses of what the benches share.
#[path = "support/database.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod database;
#[path = "support/process.rs"]
mod process;
#[path = "support/socket.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod socket;

use clap::Parser;
use database::Database;
use serde_json::json;
use socket::{Message, Socket};
use std::error::Error;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use webloom::for_tests::ids::NodeId;

/// What thousands of idle nodes cost.
#[derive(Parser)]
struct Options {
    /// Connected nodes
    #[arg(long, default_value_t = 9_800)]
    nodes: u32,
    /// Seconds of the measurement, after a minute of rest
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// A PostgreSQL server on this machine, postgres://user@host:port: its database is used instead of a file
    #[arg(long)]
    database: Option<String>,
    /// Given by `cargo bench`. Without it, as with `cargo test --benches`, nothing is measured.
    #[arg(long, hide = true)]
    bench: bool,
}

/// The interval of the heartbeats.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// What the broker does for new nodes is over after this time.
const REST: Duration = Duration::from_secs(60);

type Failure = Box<dyn Error>;

fn main() -> Result<(), Failure> {
    let Options { nodes, seconds, database, bench } = Options::parse();
    if !bench {
        return Ok(());
    }
    let database = Database::new(env!("CARGO_TARGET_TMPDIR"), database.as_deref())?;
    let (broker, address) = process::broker(database.path())?;
    let pid = broker.pid();
    let memory_before = process::memory(pid, "VmRSS");
    let began = Instant::now();
    let mut sockets = (0..nodes).map(|_| connect(address)).collect::<Result<Vec<_>, _>>()?;
    let connected = began.elapsed();
    beat(&mut sockets, REST)?;
    let (cpu, kernel, switches, written) = (process::cpu_seconds(pid), kernel_seconds(pid), switches(pid), written(pid));
    let (began, beats) = (Instant::now(), beat(&mut sockets, Duration::from_secs(seconds))?);
    let time = began.elapsed().as_secs_f64();
    let memory = process::memory(pid, "VmRSS").saturating_sub(memory_before);
    let figure = |value: f64| (value * 1_000.0).round() / 1_000.0;
    println!(
        "{}",
        json!({
            "bench": "nodes", "nodes": nodes, "connected_s": figure(connected.as_secs_f64()), "heartbeats": beats,
            "broker_cores": figure((process::cpu_seconds(pid) - cpu) / time),
            "of_them_in_the_kernel": figure((kernel_seconds(pid) - kernel) / time),
            "context_switches_per_heartbeat": figure((self::switches(pid) - switches) as f64 / beats as f64),
            "bytes_written_per_heartbeat": figure((self::written(pid) - written) as f64 / beats as f64),
            "memory_per_node": memory / u64::from(nodes),
        })
    );
    Ok(())
}

/// A connected node that has sent its first heartbeat.
fn connect(address: SocketAddr) -> Result<Socket, Failure> {
    let path = format!(
        "/?nodeid={}&operationsystem=linux&proccessorcount=4&memory=8192&nodetype=Console&group=bench&maxprocesscount=4&encoding=zstd",
        NodeId::random()
    );
    let mut socket = Socket::connect(address, &path, Duration::from_secs(10))?;
    match socket.read()? {
        Message::Text(text) if text.starts_with(b"{\"t\":\"welcome\"") => {}
        Message::Text(text) => return Err(String::from_utf8_lossy(&text).into()),
        _ => return Err("a node was not welcomed".into()),
    }
    socket.text(&heartbeat(0))?;
    socket.never_wait()?;
    Ok(socket)
}

fn heartbeat(round: u64) -> String {
    let (cpu, memory) = (20 + round % 3, 4_096 + round % 7);
    json!({ "t": "heartbeat", "v": { "processCount": 0, "cpu": cpu, "freeMemory": memory, "holding": [] } }).to_string()
}

/// Sends heartbeats of all nodes for this time, and reads what the broker sends. Returns their number.
fn beat(sockets: &mut [Socket], time: Duration) -> Result<u64, Failure> {
    let (began, total) = (Instant::now(), sockets.len() as u64);
    let mut beats = 0;
    while began.elapsed() < time {
        let due = (began.elapsed().as_secs_f64() / HEARTBEAT.as_secs_f64() * total as f64) as u64;
        while beats < due {
            let socket = &mut sockets[(beats % total) as usize];
            socket.text(&heartbeat(beats / total))?;
            while !matches!(socket.read()?, Message::Nothing) {}
            beats += 1;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
    Ok(beats)
}

/// CPU seconds in the kernel. The other field is the time of children, which a broker does not have.
fn kernel_seconds(pid: u32) -> f64 {
    process::ticks(pid, 14)
}

/// Voluntary context switches of all threads.
fn switches(pid: u32) -> u64 {
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let of_thread = |path: std::path::PathBuf| {
        let status = std::fs::read_to_string(path.join("status")).ok()?;
        status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")?.trim().parse::<u64>().ok())
    };
    threads.filter_map(|thread| of_thread(thread.path())).sum()
}

/// Bytes that the process has written to the disk.
fn written(pid: u32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    io.lines().find_map(|line| line.strip_prefix("write_bytes: ")?.parse().ok()).unwrap_or(0)
}
