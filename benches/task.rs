//! `cargo bench --bench task`: how many tasks a second, how soon they begin and end, and what they cost.
//!
//! A real broker process on an empty database, real SDK workers in a process of their own (this program again), and calls
//! by threads of this one. All that the broker answers and settles is on disk. A task counts when the worker has its
//! result settled; tasks that end without that, or twice, are errors of the bench.
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
#[path = "support/tasks.rs"]
mod tasks;

use database::{Cost, Database};
use http::Http;
use process::Process;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use std::error::Error;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tasks::{Workers, now_us};

const HELP: &str = "cargo bench --bench task -- [options]
  --tasks N        tasks of a run of the first two parts (100000)
  --runs N         times that each part is done; the medians are printed (3)
  --callers N      connections that trigger at a time (16)
  --batch N        tasks of one call in the second part (100)
  --batchers N     connections that trigger batches at a time (4)
  --workers N      workers, in one process (2)
  --slots N        places of each (512)
  --rate N         tasks a second of the third part (50)
  --seconds N      for so long (20)
  --only PART      calls, batches or pace
  --dir PATH       where the databases are made (the target directory)
  --database URL   a PostgreSQL server on this machine, postgres://user@host:port: its databases are used instead";

type Failure = Box<dyn Error + Send + Sync>;

struct Options {
    tasks: u64,
    runs: usize,
    callers: u64,
    batch: u64,
    batchers: u64,
    workers: u64,
    slots: u64,
    rate: u64,
    seconds: u64,
    only: Option<String>,
    dir: String,
    database: Option<String>,
}

impl Options {
    fn read() -> Result<Option<Self>, Failure> {
        let mut options = Self {
            tasks: 100_000,
            runs: 3,
            callers: 16,
            batch: 100,
            batchers: 4,
            workers: 2,
            slots: 512,
            rate: 50,
            seconds: 20,
            only: None,
            dir: env!("CARGO_TARGET_TMPDIR").to_owned(),
            database: None,
        };
        let mut arguments = std::env::args().skip(1);
        let mut is_bench = false;
        while let Some(name) = arguments.next() {
            let mut value = || arguments.next().ok_or_else(|| format!("{name} asks for a value"));
            match name.as_str() {
                "--bench" => is_bench = true,
                "--help" => {
                    println!("{HELP}");
                    return Ok(None);
                }
                "--tasks" => options.tasks = value()?.parse()?,
                "--runs" => options.runs = value()?.parse()?,
                "--callers" => options.callers = value()?.parse()?,
                "--batch" => options.batch = value()?.parse()?,
                "--batchers" => options.batchers = value()?.parse()?,
                "--workers" => options.workers = value()?.parse()?,
                "--slots" => options.slots = value()?.parse()?,
                "--rate" => options.rate = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--only" => options.only = Some(value()?),
                "--dir" => options.dir = value()?,
                "--database" => options.database = Some(value()?),
                _ => return Err(format!("{name} is not known\n{HELP}").into()),
            }
        }
        // `cargo test --benches` runs this too, and means no measurement.
        Ok(is_bench.then_some(options))
    }

    fn wants(&self, part: &str) -> bool {
        self.only.as_deref().is_none_or(|only| only == part)
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some(tasks::WORK) {
        return tasks::work(&arguments.collect::<Vec<_>>());
    }
    let Some(options) = Options::read()? else { return Ok(()) };
    println!("{:<34} {:>12} {:>14} {:>14} {:>12}", "part", "tasks/s", "broker ms/1k", "worker ms/1k", "sum ms/1k");
    if options.wants("calls") {
        let name = format!("one a call, {} connections", options.callers);
        row(&name, &many(&options, |context, job| fast(context, job, options.tasks, options.callers, 1))?);
    }
    if options.wants("batches") {
        let name = format!("{} a call, {} connections", options.batch, options.batchers);
        row(&name, &many(&options, |context, job| fast(context, job, options.tasks, options.batchers, options.batch))?);
    }
    if options.wants("pace") {
        let mut runs = many(&options, |context, job| pace(context, job, &options))?;
        row(&format!("{} tasks a second", options.rate), &runs);
        println!("\n{:<34} {:>12} {:>14} {:>14}", "latency, ms", "p50", "p99", "most");
        for (name, of) in [("trigger to start", 0), ("trigger to settled result", 1)] {
            let figures = [0.5, 0.99, 1.0].map(|share| median(runs.iter_mut().map(|run| percentile_ms(&mut run.late_us[of], share))));
            println!("{name:<34} {:>12.2} {:>14.2} {:>14.2}", figures[0], figures[1], figures[2]);
        }
    }
    Ok(())
}

/// One run of a part.
struct Run {
    per_second: f64,
    /// CPU ms per 1,000 tasks: the broker's, the workers'.
    cpu: [f64; 2],
    /// Microseconds from the trigger: to the start, to the settled result.
    late_us: [Vec<u32>; 2],
    /// What the server of the database did for a task.
    cost: Map<String, Value>,
}

/// A broker with one job, and workers that watch it.
struct BrokerContext {
    broker: Process,
    workers: Workers,
    address: SocketAddr,
    database: Database,
}

fn many(options: &Options, part: impl Fn(&mut BrokerContext, &str) -> Result<Run, Failure>) -> Result<Vec<Run>, Failure> {
    let mut runs = Vec::new();
    for _ in 0..options.runs.max(1) {
        let database = Database::new(&options.dir, options.database.as_deref())?;
        let (broker, address) = process::broker(database.path()).map_err(|error| error.to_string())?;
        let workers = Workers::start(address, options.workers, options.slots)?;
        let mut context = BrokerContext { broker, workers, address, database };
        let job = make_job(address)?;
        // Caches, pools and the first pages of the database are not what is measured.
        fast(&mut context, &job, 2_000, 4, 1)?;
        runs.push(part(&mut context, &job)?);
    }
    Ok(runs)
}

/// The job that is triggered; its id.
fn make_job(address: SocketAddr) -> Result<String, Failure> {
    let job = json!({ "name": "bench", "jobType": "task", "task": { "handler": tasks::NAME }, "policies": { "overlap": "allow" } });
    let (status, made) = Http::connect(address)?.json("POST /api/v1/jobs", &job.to_string())?;
    let id = made["id"].as_str().filter(|_| status == 201).ok_or_else(|| format!("no job was made: {status} {made}"))?;
    Ok(id.to_owned())
}

/// Triggers as fast as answers come, `batch` at a time, and waits until all is settled.
fn fast(context: &mut BrokerContext, job: &str, tasks: u64, connections: u64, batch: u64) -> Result<Run, Failure> {
    let calls = tasks.div_ceil(batch);
    let (path, body) = match batch {
        1 => (format!("POST /api/v1/jobs/{job}/trigger"), "{}".to_owned()),
        _ => (format!("POST /api/v1/jobs/{job}/trigger/batch"), format!("[{}]", vec!["{}"; batch as usize].join(","))),
    };
    let head = format!("{path} HTTP/1.1\r\nContent-Type: application/json\r\n");
    let next = AtomicU64::new(0);
    let caller = || -> Result<(), Failure> {
        let mut http = Http::connect(context.address)?;
        while next.fetch_add(1, Ordering::Relaxed) < calls {
            trigger(&mut http, &head, &body, batch)?;
        }
        Ok(())
    };
    let before = context.used()?;
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..connections).map(|_| scope.spawn(caller)).collect();
        callers.into_iter().try_for_each(|caller| caller.join().map_err(|_| Failure::from("a caller panicked"))?)
    })?;
    context.workers.wait(calls * batch)?;
    let took = begun.elapsed();
    context.run(before, calls * batch, took, [Vec::new(), Vec::new()])
}

/// One call, again while the broker is too busy for it. All that it was to trigger must be.
fn trigger(http: &mut Http, head: &str, body: &str, batch: u64) -> Result<(), Failure> {
    loop {
        let answer = http.call(head, &[body.as_bytes()])?;
        match answer.status {
            200..=299 => {
                // Read as text: the load is on the same machine.
                let made = std::str::from_utf8(answer.body)?.matches("\"identity\"").count() as u64;
                return if made == batch { Ok(()) } else { Err(format!("{made} runs of {batch} were made").into()) };
            }
            429 | 503 => std::thread::sleep(Duration::from_millis(2)),
            status => return Err(format!("{status} {}", String::from_utf8_lossy(answer.body)).into()),
        }
    }
}

/// Triggers so many a second, and asks when each began and was settled.
fn pace(context: &mut BrokerContext, job: &str, options: &Options) -> Result<Run, Failure> {
    let mut http = Http::connect(context.address)?;
    let line = format!("POST /api/v1/jobs/{job}/trigger");
    let tasks = options.rate * options.seconds;
    let mut begun_us = HashMap::new();
    context.workers.record()?;
    let before = context.used()?;
    let begun = Instant::now();
    for n in 0..tasks {
        let due = begun + Duration::from_micros(n * 1_000_000 / options.rate);
        std::thread::sleep(due.saturating_duration_since(Instant::now()));
        let at = now_us();
        let (status, run) = http.json(&line, "{}")?;
        let identity = run["identity"].as_str().ok_or_else(|| format!("no run was made: {status} {run}"))?;
        begun_us.insert(identity.to_owned(), at);
    }
    context.workers.wait(tasks)?;
    let took = begun.elapsed();
    let mut late_us = [Vec::new(), Vec::new()];
    for (identity, started, settled) in context.workers.times()? {
        let Some(at) = begun_us.remove(&identity) else { return Err(format!("{identity} was done twice, or is not ours").into()) };
        late_us[0].push(u32::try_from(started.saturating_sub(at)).unwrap_or(u32::MAX));
        late_us[1].push(u32::try_from(settled.saturating_sub(at)).unwrap_or(u32::MAX));
    }
    match begun_us.len() {
        0 => context.run(before, tasks, took, late_us),
        lost => Err(format!("{lost} tasks were not done").into()),
    }
}

impl BrokerContext {
    /// CPU seconds so far: the broker's, the workers'; and what the server of the database has done.
    fn used(&self) -> Result<([f64; 2], Option<Cost>), Failure> {
        Ok(([self.broker.pid(), self.workers.pid()].map(process::cpu_seconds), self.database.cost()?))
    }

    fn run(&self, before: ([f64; 2], Option<Cost>), tasks: u64, took: Duration, late_us: [Vec<u32>; 2]) -> Result<Run, Failure> {
        let now = self.used()?;
        // Seconds for all are milliseconds for a thousand, times a million.
        let cpu = [0, 1].map(|of| (now.0[of] - before.0[of]) * 1e6 / tasks as f64);
        let cost = Cost::each(before.1, now.1, tasks, "task");
        Ok(Run { per_second: tasks as f64 / took.as_secs_f64(), cpu, late_us, cost })
    }
}

fn row(name: &str, runs: &[Run]) {
    let per_second = median(runs.iter().map(|run| run.per_second));
    let [broker, workers] = [0, 1].map(|of| median(runs.iter().map(|run| run.cpu[of])));
    println!("{name:<34} {per_second:>12.0} {broker:>14.1} {workers:>14.1} {:>12.1}", broker + workers);
    for name in runs.first().into_iter().flat_map(|run| run.cost.keys()) {
        println!("    {name:<42} {:>12.1}", median(runs.iter().filter_map(|run| run.cost.get(name)?.as_f64())));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

fn percentile_ms(late: &mut [u32], share: f64) -> f64 {
    if late.is_empty() {
        return f64::NAN;
    }
    let at = ((late.len() - 1) as f64 * share).round() as usize;
    f64::from(*late.select_nth_unstable(at).1) / 1_000.0
}
