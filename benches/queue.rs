//! `cargo bench --bench queue`: how fast requests go through a broker, and what they cost.
//!
//! A real broker process on an empty database; 4 producers push requests of about 300 bytes in calls of 100, 4 nodes
//! take them as blocks and report 100 results of 2 KB each, 2 workers poll and acknowledge. Everything the broker answers
//! is on disk by then. One JSON line for each run and one with the medians. `--help` lists what can be changed.
//!
//! The load is made by threads of this process with blocking sockets, so that the broker gets as much of the machine as
//! can be; the pages that the nodes report were compressed beforehand. By default the producers wait when they are
//! `--window` blocks ahead of the workers, else the time from push to delivery is only the length of the backlog.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

mod support;

use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use support::database::{Cost, Database};
use support::http::Http;
use support::node::{Results, node};
use support::process::{self, Process};
use support::producer::produce;
use support::run::{Run, percentile_ms, trigger, trigger_with};
use support::worker::{Worker, poll};

const HELP: &str = "cargo bench --bench queue -- [options]
  --requests N         requests of a run (2000000)
  --runs N             runs, of which the medians are given (3)
  --window N           blocks that producers may be ahead of the workers; 0: any number (512)
  --rate N             requests a second at which they push; 0: as fast as they can (0)
  --calm-rate N        one more run at this rate, to see latencies without a jam; 0: none (50000)
  --producers N (4)  --nodes N (4)  --workers N (2)
  --brokers N          brokers on one PostgreSQL database, each with a run and its part of the requests and of the clients (1)
  --by-leader          clients call the leader about all runs, not the brokers that execute them
  --blocks N           blocks that a node takes at once (8)
  --reporters N        reports that a node sends at once (4)
  --poll N             blocks that a worker asks for at once (32)
  --memory-requests N  requests of the memory part; 0: skip it (10000000)
  --memory             the memory part alone
  --dir PATH           where the databases are made (the target directory)
  --database URL       a PostgreSQL server on this machine, postgres://user@host:port: its databases are used instead";

type Failure = Box<dyn Error>;

struct Options {
    requests: u64,
    runs: u64,
    window: u64,
    rate: u64,
    calm_rate: u64,
    producers: u64,
    nodes: u64,
    workers: u64,
    brokers: u64,
    blocks: u64,
    reporters: u64,
    poll: u64,
    memory_requests: u64,
    memory_only: bool,
    by_leader: bool,
    dir: String,
    database: Option<String>,
}

impl Options {
    fn read() -> Result<Option<Self>, Failure> {
        let mut options = Self {
            requests: 2_000_000,
            runs: 3,
            window: 512,
            rate: 0,
            calm_rate: 50_000,
            producers: 4,
            nodes: 4,
            workers: 2,
            brokers: 1,
            blocks: 8,
            reporters: 4,
            poll: 32,
            memory_requests: 10_000_000,
            memory_only: false,
            by_leader: false,
            dir: env!("CARGO_TARGET_TMPDIR").to_owned(),
            database: None,
        };
        let mut arguments = std::env::args().skip(1);
        let mut is_bench = false;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} asks for a value"));
            let place = match name.as_str() {
                "--bench" => {
                    is_bench = true;
                    continue;
                }
                "--help" => {
                    println!("{HELP}");
                    return Ok(None);
                }
                "--memory" => {
                    options.memory_only = true;
                    continue;
                }
                "--by-leader" => {
                    options.by_leader = true;
                    continue;
                }
                "--dir" => {
                    options.dir = value()?;
                    continue;
                }
                "--database" => {
                    options.database = Some(value()?);
                    continue;
                }
                "--requests" => &mut options.requests,
                "--runs" => &mut options.runs,
                "--window" => &mut options.window,
                "--rate" => &mut options.rate,
                "--calm-rate" => &mut options.calm_rate,
                "--producers" => &mut options.producers,
                "--nodes" => &mut options.nodes,
                "--workers" => &mut options.workers,
                "--brokers" => &mut options.brokers,
                "--blocks" => &mut options.blocks,
                "--reporters" => &mut options.reporters,
                "--poll" => &mut options.poll,
                "--memory-requests" => &mut options.memory_requests,
                _ => return Err(format!("{name} is not known\n{HELP}").into()),
            };
            *place = value()?.parse().map_err(|e| format!("{name}: {e}"))?;
        }
        // `cargo test --benches` runs this too, and means no measurement.
        Ok(is_bench.then_some(options))
    }
}

const BATCH: usize = 100;

fn main() -> Result<(), Failure> {
    let Some(options) = Options::read()? else { return Ok(()) };
    if !options.memory_only {
        let results: Vec<_> = (1..=8).map(|seed| Results::new(BATCH, seed)).collect();
        let mut figures = Vec::new();
        for n in 1..=options.runs {
            let mut line = through(&options, options.requests, options.rate, &results)?;
            line["run"] = json!(n);
            println!("{line}");
            figures.push(line);
        }
        if let Some(median) = medians(&figures) {
            println!("{median}");
        }
        if options.calm_rate > 0 {
            let mut line = through(&options, options.calm_rate * 10, options.calm_rate, &results)?;
            line["run"] = json!("calm");
            println!("{line}");
        }
    }
    if options.memory_requests > 0 {
        println!("{}", memory(&options)?);
    }
    Ok(())
}

/// Brokers on one database.
struct Brokers {
    all: Vec<(Process, SocketAddr)>,
}

impl Brokers {
    /// The first one leads, and the others execute runs.
    fn start(database: &Path, count: u64) -> Result<Self, Failure> {
        let all = (0..count).map(|_| process::broker(database)).collect::<Result<Vec<_>, _>>()?;
        let this = Self { all };
        let begun = Instant::now();
        while count > 1 && this.list()?.iter().filter(|broker| broker["executes"] == true).count() < count as usize {
            if begun.elapsed() > Duration::from_secs(10) {
                return Err("the brokers do not execute runs: do they share a PostgreSQL database?".into());
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(this)
    }

    fn leader(&self) -> Result<SocketAddr, Failure> {
        Ok(self.all.first().ok_or("no broker")?.1)
    }

    fn list(&self) -> Result<Vec<Value>, Failure> {
        let (_, list) = Http::connect(self.leader()?)?.json("GET /api/v1/brokers", "")?;
        Ok(list.as_array().ok_or("no list of brokers")?.clone())
    }

    /// The address of the broker that executes a run.
    fn of_run(&self, http: &mut Http, identity: &str) -> Result<SocketAddr, Failure> {
        let (_, run) = http.json(&format!("GET /api/v1/runs/{identity}"), "")?;
        let Some(id) = run["brokerId"].as_str() else { return self.leader() };
        let list = self.list()?;
        let url = list.iter().find(|broker| broker["id"] == id).and_then(|broker| broker["url"].as_str()).ok_or("an unknown broker")?;
        Ok(url.trim_start_matches("http://").parse()?)
    }

    fn cpu_seconds(&self) -> Vec<f64> {
        self.all.iter().map(|(broker, _)| process::cpu_seconds(broker.pid())).collect()
    }

    fn memory(&self, line: &str) -> f64 {
        mb(self.all.iter().map(|(broker, _)| process::memory(broker.pid(), line)).sum())
    }
}

/// What the clients of a run measured, in microseconds.
#[derive(Default)]
struct Times {
    pushes: Vec<u32>,
    acks: Vec<u32>,
}

/// All clients of one run, until its last block is acknowledged.
fn clients(options: &Options, run: &Run, workers: &mut [Worker], results: &[Results]) -> Result<Times, String> {
    let each = |all: u64| (all / options.brokers).max(1);
    let mut times = Times::default();
    std::thread::scope(|threads| {
        let mut others = Vec::new();
        for n in 0..each(options.nodes) as usize {
            others.push(threads.spawn(move || node(run, n, options.blocks as usize, options.reporters as usize, results)));
        }
        let ids: Vec<_> = workers.iter().map(Worker::id).collect();
        for worker in workers {
            others.push(threads.spawn(move || worker.attend(run)));
        }
        let polls: Vec<_> =
            ids.into_iter().map(|id| threads.spawn(move || stop_on_error(run, poll(run, &id, options.poll as usize)))).collect();
        let producers: Vec<_> = (0..each(options.producers)).map(|_| threads.spawn(move || stop_on_error(run, produce(run)))).collect();
        for producer in producers {
            times.pushes.extend(producer.join().map_err(|_| "a producer panicked")?.map_err(|e| e.to_string())?);
        }
        run.all_pushed.store(true, Ordering::Release);
        for poll in polls {
            times.acks.extend(poll.join().map_err(|_| "a worker panicked")?.map_err(|e| e.to_string())?);
        }
        for other in others {
            other.join().map_err(|_| "a client panicked")?.map_err(|e| e.to_string())?;
        }
        Ok(times)
    })
}

/// A run at each broker, from the first push to the last acknowledgement.
fn through(options: &Options, requests: u64, rate: u64, results: &[Results]) -> Result<Value, Failure> {
    let database = Database::new(&options.dir, options.database.as_deref())?;
    let brokers = Brokers::start(database.path(), options.brokers)?;
    let (count, leader) = (options.brokers, brokers.leader()?);
    // As many whole blocks for each.
    let each = requests / count / BATCH as u64 * BATCH as u64;
    let requests = each * count;
    let mut http = Http::connect(leader)?;
    let mut runs = Vec::new();
    for n in 0..count {
        let watching = (0..(options.workers / count).max(1)).map(|_| Worker::watch(leader)).collect::<Result<Vec<_>, _>>();
        let workers = watching.map_err(|e| e.to_string())?;
        let group = format!("bench{n}");
        let identity = trigger_with(&mut http, json!({ "BlockSize": BATCH.to_string(), "NodeGroup": group }))?;
        let address = if options.by_leader { leader } else { brokers.of_run(&mut http, &identity)? };
        let mut run = Run::new(address, identity, each, BATCH, options.window / count, rate / count);
        (run.group, run.leader) = (group, leader);
        runs.push((run, workers));
    }
    let cost = database.cost()?;
    let cpu_before = (brokers.cpu_seconds(), process::cpu_seconds(std::process::id()));
    let begun = Instant::now();
    let mut times = Times::default();
    std::thread::scope(|threads| -> Result<(), Failure> {
        let all: Vec<_> = runs.iter_mut().map(|(run, workers)| threads.spawn(|| clients(options, run, workers, results))).collect();
        for one in all {
            let one = one.join().map_err(|_| "the clients of a run panicked")??;
            times.pushes.extend(one.pushes);
            times.acks.extend(one.acks);
        }
        Ok(())
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    let millions = requests as f64 / 1e6;
    let cpu: Vec<f64> = brokers.cpu_seconds().iter().zip(&cpu_before.0).map(|(now, before)| round((now - before) / millions)).collect();
    let client_cpu = process::cpu_seconds(std::process::id()) - cpu_before.1;
    for (run, _) in &runs {
        let state = ended(&mut http, &run.identity)?;
        if (state["total"].as_u64(), state["success"].as_u64()) != (Some(each), Some(each)) {
            return Err(format!("the counters are not right: {state}").into());
        }
    }
    let batches = runs.iter().map(|(run, _)| run.batches).sum();
    let cost = Cost::each(cost, database.cost()?, batches, "block");
    let mut deliveries: Vec<u32> = runs.iter().flat_map(|(run, _)| run.deliveries()).collect();
    let sum = |counter: fn(&Run) -> &AtomicU64| runs.iter().map(|(run, _)| counter(run).load(Ordering::Relaxed)).sum::<u64>();
    let Times { mut pushes, mut acks } = times;
    let mut line = json!({
        "bench": "queue", "requests": requests, "window": options.window, "rate": rate, "seconds": round(seconds),
        "requests_per_s": (requests as f64 / seconds).round(),
        "push_p50_ms": percentile_ms(&mut pushes, 0.5), "push_p99_ms": percentile_ms(&mut pushes, 0.99),
        "push_to_delivery_p50_ms": percentile_ms(&mut deliveries, 0.5),
        "push_to_delivery_p99_ms": percentile_ms(&mut deliveries, 0.99),
        "ack_p50_ms": percentile_ms(&mut acks, 0.5), "ack_p99_ms": percentile_ms(&mut acks, 0.99),
        "broker_cpu_s_per_million": round(cpu.iter().sum()), "client_cpu_s_per_million": round(client_cpu / millions),
        "broker_rss_mb": brokers.memory("VmRSS"), "broker_peak_mb": brokers.memory("VmHWM"),
        "disk_bytes_per_request": database.folder().map(size).map(|bytes| bytes / requests), "result_bytes_per_block": results.first().map_or(0, Results::len),
        "busy": sum(|run| &run.busy), "refused": sum(|run| &run.refused),
    });
    let line_of = line.as_object_mut().ok_or("a line is an object")?;
    line_of.extend(cost);
    if count > 1 {
        line_of.insert("cpu_s_per_million_of_each_broker".to_owned(), json!(cpu));
    }
    Ok(line)
}

/// A client that failed ends the run for all, else they would wait for what never comes.
fn stop_on_error<T, E>(run: &Run, outcome: Result<T, E>) -> Result<T, E> {
    if outcome.is_err() {
        run.over.store(true, Ordering::Release);
        run.note_acknowledged(run.batches);
    }
    outcome
}

/// Waits until the run has ended; the run.
fn ended(http: &mut Http, identity: &str) -> Result<Value, Failure> {
    let begun = Instant::now();
    loop {
        let (_, run) = http.json(&format!("GET /api/v1/runs/{identity}"), "")?;
        match run["state"].as_str() {
            Some("success") => return Ok(run),
            Some("running" | "scheduled" | "pending") if begun.elapsed() < Duration::from_secs(10) => {}
            _ => return Err(format!("the run did not end well: {run}").into()),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A broker at rest, one with a long queue, and the same one started again.
fn memory(options: &Options) -> Result<Value, Failure> {
    let requests = options.memory_requests;
    let database = Database::new(&options.dir, options.database.as_deref())?;
    let (broker, address) = process::broker(database.path())?;
    let mut http = Http::connect(address)?;
    http.call("GET /healthz HTTP/1.1\r\n", &[])?;
    let at_rest = process::memory(broker.pid(), "VmRSS");
    let mut worker = Worker::watch(address).map_err(|e| e.to_string())?;
    let identity = trigger(&mut http, BATCH)?;
    let run = Run::new(address, identity.clone(), requests, BATCH, 0, 0);
    let before = process::memory(broker.pid(), "VmRSS");
    let begun = Instant::now();
    let run_ref = &run;
    std::thread::scope(|threads| -> Result<(), Failure> {
        let attending = threads.spawn(|| worker.attend(run_ref));
        let producers: Vec<_> = (0..2).map(|_| threads.spawn(move || produce(run_ref))).collect();
        let pushed: Vec<_> = producers.into_iter().map(|p| p.join().map_err(|_| "a producer panicked".to_owned())).collect();
        run.over.store(true, Ordering::Release);
        attending.join().map_err(|_| "a worker panicked")?.map_err(|e| e.to_string())?;
        pushed.into_iter().try_for_each(|outcome| outcome?.map(drop).map_err(|e| e.to_string().into()))
    })?;
    let pushing = begun.elapsed().as_secs_f64();
    let after = process::memory(broker.pid(), "VmRSS");
    let peak = process::memory(broker.pid(), "VmHWM");
    // The first connection was idle for longer than the broker keeps one.
    let (_, state) = Http::connect(address)?.json(&format!("GET /api/v1/runs/{identity}"), "")?;
    kill(broker);
    let begun = Instant::now();
    let (broker, address) = process::broker(database.path())?;
    let listening = begun.elapsed();
    let mut http = Http::connect(address)?;
    let restored = loop {
        let (status, run) = http.json(&format!("GET /api/v1/runs/{identity}"), "")?;
        // Before it is restored, the store counts for it, and the memory of its seen set is not known.
        if status == 200 && run["seen"] == requests && run["seenBytes"].is_number() {
            break begun.elapsed();
        }
        if begun.elapsed() > Duration::from_secs(300) {
            return Err(format!("the run did not come back: {status} {run}").into());
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let seen = state["seen"].as_f64().unwrap_or(f64::NAN);
    let restarted = process::memory(broker.pid(), "VmRSS");
    Ok(json!({
        "bench": "memory", "requests": requests, "pushes_seconds": round(pushing),
        "at_rest_mb": mb(at_rest), "before_mb": mb(before), "after_mb": mb(after), "peak_mb": mb(peak),
        // The first includes what the broker warms up with; the second is a broker that has only loaded the run.
        "growth_bytes_per_url": round((after as f64 - before as f64) / requests as f64),
        "seen": state["seen"], "seen_bytes_per_url": round(state["seenBytes"].as_f64().unwrap_or(f64::NAN) / seen),
        "disk_bytes_per_request": database.folder().map(size).map(|bytes| bytes / requests),
        "restart_listening_s": round(listening.as_secs_f64()), "restart_restored_s": round(restored.as_secs_f64()),
        "restarted_mb": mb(restarted), "restarted_bytes_per_url": round((restarted as f64 - at_rest as f64) / requests as f64), "restarted_peak_mb": mb(process::memory(broker.pid(), "VmHWM")),
    }))
}

/// As a power cut would end it.
fn kill(broker: Process) {
    drop(broker);
}

fn medians(lines: &[Value]) -> Option<Value> {
    let mut out = lines.first()?.clone();
    for (key, value) in out.as_object_mut()? {
        let mut all: Vec<_> = lines.iter().filter_map(|line| line[key].as_f64()).collect();
        all.sort_by(f64::total_cmp);
        if value.is_number() && !all.is_empty() {
            *value = json!(all[all.len() / 2]);
        }
    }
    out["run"] = json!("median");
    Some(out)
}

fn size(dir: &Path) -> u64 {
    let entries = std::fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.map(|e| if e.path().is_dir() { size(&e.path()) } else { e.metadata().map_or(0, |m| m.len()) }).sum()
}

fn round(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}

fn mb(bytes: u64) -> f64 {
    round(bytes as f64 / 1e6)
}
