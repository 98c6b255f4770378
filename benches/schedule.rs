//! `cargo bench --bench schedule`: how late a run begins.
//!
//! A real broker process; jobs are written into its store before it starts. Lateness is the wall clock when the worker,
//! a thread of this process with a blocking socket on the same two cores, has read the order to start, minus the planned
//! instant. The worker answers each order at once, so that the run ends; every fire, run and end is on disk.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

// Only what this bench uses of what the benches share.
#[path = "support/database.rs"]
mod database;
#[path = "support/http.rs"]
mod http;
#[path = "support/process.rs"]
mod process;
#[path = "support/socket.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod socket;

use database::{Cost, Database};
use http::Http;
use serde_json::{Value, json};
use socket::{Message, Socket};
use std::collections::{HashMap, HashSet};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::time::{Duration, Instant};
use webloom::for_tests::database::DatabaseAddress;
use webloom::for_tests::ids::{JobId, WorkerId};
use webloom::for_tests::job::{Job, JobKind, Properties};
use webloom::for_tests::schedule::{Overlap, PlanState, Policies, Schedule, Trigger};
use webloom::for_tests::time::Timestamp;
use webloom::for_tests::{InsertJob, Store, StoreConfig};

const HELP: &str = "cargo bench --bench schedule -- [options]
  --burst N,N,…      jobs due at one instant, a part each (1000,10000)
  --runs N           times that each burst is repeated (3)
  --spread N         jobs spread at --rate fires a second; 0: skip (100000)
  --rate N           fires a second of the spread part (1000)
  --seconds N        for so long (20)
  --held N           jobs held by a broker at rest; 0: skip (1000000)
  --dir PATH         where the databases are made (the target directory)
  --database URL     a PostgreSQL server on this machine, postgres://user@host:port: its databases are used instead";

type Failure = Box<dyn Error>;

const CLASS: &str = "bench.Schedule";

struct Options {
    bursts: Vec<u64>,
    runs: u64,
    spread: u64,
    rate: u64,
    seconds: u64,
    held: u64,
    dir: String,
    database: Option<String>,
}

impl Options {
    fn read() -> Result<Option<Self>, Failure> {
        let dir = env!("CARGO_TARGET_TMPDIR").to_owned();
        let mut options =
            Self { bursts: vec![1_000, 10_000], runs: 3, spread: 100_000, rate: 1_000, seconds: 20, held: 1_000_000, dir, database: None };
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
                "--burst" => options.bursts = value()?.split(',').filter(|n| !n.is_empty()).map(str::parse).collect::<Result<_, _>>()?,
                "--runs" => options.runs = value()?.parse()?,
                "--spread" => options.spread = value()?.parse()?,
                "--rate" => options.rate = value()?.parse()?,
                "--seconds" => options.seconds = value()?.parse()?,
                "--held" => options.held = value()?.parse()?,
                "--dir" => options.dir = value()?,
                "--database" => options.database = Some(value()?),
                _ => return Err(format!("{name} is not known\n{HELP}").into()),
            }
        }
        // `cargo test --benches` runs this too, and means no measurement.
        Ok(is_bench.then_some(options))
    }
}

fn main() -> Result<(), Failure> {
    let Some(options) = Options::read()? else { return Ok(()) };
    for jobs in &options.bursts {
        for run in 1..=options.runs {
            let mut line = burst(&options, *jobs)?;
            line["run"] = json!(run);
            println!("{line}");
        }
    }
    if options.spread > 0 {
        println!("{}", spread(&options)?);
    }
    if options.held > 0 {
        println!("{}", held(&options)?);
    }
    Ok(())
}

/// All jobs at one instant.
fn burst(options: &Options, jobs: u64) -> Result<Value, Failure> {
    let database = Database::new(&options.dir, options.database.as_deref())?;
    // Time enough to write them, and for the broker to start and read ahead.
    let writing = if database.folder().is_some() { jobs / 3 } else { jobs * 4 };
    let at = Timestamp::now().plus_ms(8_000 + writing as i64);
    let trigger = Trigger { at: Some(at), ..Trigger::default() };
    fill(database.path(), jobs, |_| (trigger.clone(), at))?;
    let (broker, address) = process::broker(database.path())?;
    let mut worker = watch(address)?;
    if Timestamp::now().plus_ms(2_000) > at {
        return Err("the jobs were nearly due before the broker was ready: this machine is too busy".into());
    }
    let (before, cost_before) = (process::cpu_seconds(broker.pid()), database.cost()?);
    let mut planned = HashMap::new();
    let (late, starts) = attend(
        &mut worker,
        |_, planned_at| *planned.entry(planned_at).or_insert(0_u64) += 1,
        Some(jobs as usize),
        Duration::from_secs(60),
    )?;
    settle(address)?;
    let cpu = process::cpu_seconds(broker.pid()) - before;
    if planned.get(&at) != Some(&jobs) || starts.len() as u64 != jobs {
        return Err(format!("{} runs of {jobs} began", starts.len()).into());
    }
    let mut line = json!({ "bench": "schedule", "part": "burst", "jobs": jobs, "lateness_ms": figures(late), "broker_cpu_s": cpu });
    line.as_object_mut().ok_or("a line is an object")?.extend(Cost::each(cost_before, database.cost()?, jobs, "fire"));
    Ok(line)
}

/// Many jobs, so many fires a second.
fn spread(options: &Options) -> Result<Value, Failure> {
    let database = Database::new(&options.dir, options.database.as_deref())?;
    let begin = Timestamp::now().plus_ms(10_000 + options.spread as i64 / 4);
    let (gap, period) = (1_000.0 / options.rate as f64, options.spread * 1_000 / options.rate);
    fill(database.path(), options.spread, |n| {
        let anchor = begin.plus_ms((n as f64 * gap) as i64);
        (Trigger { every: Some(period), anchor: Some(anchor), ..Trigger::default() }, anchor)
    })?;
    let (broker, address) = process::broker(database.path())?;
    let mut worker = watch(address)?;
    let wanted = options.rate * options.seconds;
    let begun = process::cpu_seconds(broker.pid());
    let (late, starts) = attend(&mut worker, |_, _| (), Some(wanted as usize), Duration::from_secs(options.seconds + 90))?;
    let cpu = process::cpu_seconds(broker.pid()) - begun;
    Ok(json!({ "bench": "schedule", "part": "spread", "jobs": options.spread, "fires_per_s": options.rate, "fires": starts.len(),
        "lateness_ms": figures(late), "broker_cpu_s": cpu, "broker_rss_mb": process::memory(broker.pid(), "VmRSS") >> 20 }))
}

/// A million jobs that are not due: how long a broker takes to start, and what it holds.
fn held(options: &Options) -> Result<Value, Failure> {
    let database = Database::new(&options.dir, options.database.as_deref())?;
    let rest = {
        let empty = Database::new(&options.dir, options.database.as_deref())?;
        let (broker, address) = process::broker(empty.path())?;
        settle(address)?;
        process::memory(broker.pid(), "VmRSS")
    };
    let at = Timestamp::now().plus_ms(86_400_000);
    fill(database.path(), options.held, |n| {
        let at = at.plus_ms(n as i64);
        (Trigger { at: Some(at), ..Trigger::default() }, at)
    })?;
    let begun = Instant::now();
    let (broker, address) = process::broker(database.path())?;
    let listening = begun.elapsed().as_secs_f64();
    let mut http = Http::connect(address)?;
    while !is_read(&mut http)? {
        if begun.elapsed() > Duration::from_secs(120) {
            return Err("the agenda is not read after two minutes".into());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let loaded = begun.elapsed().as_secs_f64();
    settle(address)?;
    let memory = process::memory(broker.pid(), "VmRSS").saturating_sub(rest);
    Ok(json!({ "bench": "schedule", "part": "held", "jobs": options.held, "listening_s": listening, "agenda_read_s": loaded,
        "bytes_per_job": memory / options.held, "peak_mb": process::memory(broker.pid(), "VmHWM") >> 20 }))
}

/// Whether the scheduler has read its agenda.
fn is_read(http: &mut Http) -> Result<bool, Failure> {
    let (_, actors) = http.json("GET /api/v1/actors", "")?;
    Ok(actors.as_array().is_some_and(|all| all.iter().any(|actor| actor["kind"] == "scheduler" && actor["state"] == "running")))
}

/// Writes jobs into a store that no broker has open.
fn fill(database: &Path, jobs: u64, of: impl Fn(u64) -> (Trigger, Timestamp)) -> Result<(), Failure> {
    let now = Timestamp::now();
    let policies = Policies { overlap: Some(Overlap::Allow), ..Policies::default() };
    actix_rt::System::new().block_on(async {
        let store = Store::open(&StoreConfig::new(DatabaseAddress::parse(database)?))?;
        let mut n = 0;
        while n < jobs {
            let writes = (n..jobs.min(n + 2_000)).map(|n| {
                let (trigger, next_at) = of(n);
                let job = Job {
                    id: JobId::random(),
                    name: format!("bench {n}"),
                    job_type: JobKind::Block,
                    description: None,
                    group: None,
                    is_enabled: true,
                    disabled_reason: None,
                    is_deleted: false,
                    priority: 0,
                    properties: Properties([("FullClassName".to_owned(), CLASS.to_owned())].into()),
                    schedule: Some(Schedule { triggers: vec![trigger], ..Schedule::default() }),
                    policies: Some(policies.clone()),
                    callback: None,
                    task: None,
                    successors: Vec::new(),
                    version: 1,
                    create_by: None,
                    update_by: None,
                    creation_time: now,
                    update_time: now,
                };
                debug_assert_eq!(PlanState::new(now).decided_until, now);
                store.write(InsertJob { job, next_at: Some(next_at) })
            });
            for written in futures_util::future::join_all(writes).await {
                written?;
            }
            n += 2_000;
        }
        store.close().await;
        Ok(())
    })
}

/// A worker that watches the class.
fn watch(address: SocketAddr) -> Result<Socket, Failure> {
    let id = WorkerId::random().to_string();
    let mut socket = Socket::connect(address, &format!("/worker?workerid={id}&name=bench"), Duration::from_millis(100))?;
    socket.text(&json!({ "t": "watch", "v": { "classNames": [CLASS], "runs": [] } }).to_string())?;
    loop {
        if let Message::Text(text) = socket.read()?
            && serde_json::from_slice::<Value>(&text)?["t"] == "watching"
        {
            return Ok(socket);
        }
    }
}

#[derive(serde::Deserialize)]
struct Order<'a> {
    t: &'a str,
    #[serde(borrow)]
    v: &'a serde_json::value::RawValue,
}

#[derive(serde::Deserialize)]
#[serde(rename_all = "camelCase")]
struct Start<'a> {
    identity: &'a str,
    planned_at: Option<Timestamp>,
}

/// Answers orders until there were so many; how late each was, in microseconds, and which runs they were.
fn attend(
    worker: &mut Socket,
    mut note: impl FnMut(&str, Timestamp),
    wanted: Option<usize>,
    patience: Duration,
) -> Result<(Vec<u32>, HashSet<String>), Failure> {
    let (begun, mut beaten) = (Instant::now(), Instant::now());
    let (mut late, mut starts) = (Vec::new(), HashSet::new());
    while wanted.is_none_or(|wanted| starts.len() < wanted) && begun.elapsed() < patience {
        if beaten.elapsed() > Duration::from_secs(2) {
            beaten = Instant::now();
            worker.text("{\"t\":\"heartbeat\",\"v\":{}}")?;
        }
        let Message::Text(text) = worker.read()? else { continue };
        #[expect(clippy::disallowed_methods, reason = "lateness is measured finer than in milliseconds")]
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH)?;
        let order: Order<'_> = serde_json::from_slice(&text)?;
        if order.t != "start" {
            continue;
        }
        let start: Start<'_> = serde_json::from_str(order.v.get())?;
        let Some(planned) = start.planned_at else { continue };
        if starts.insert(start.identity.to_owned()) {
            late.push(u32::try_from((now.as_micros() as i64 - planned.0 * 1_000).max(0)).unwrap_or(u32::MAX));
            note(start.identity, planned);
            worker.text(&format!("{{\"t\":\"startReturned\",\"v\":{{\"identity\":\"{}\"}}}}", start.identity))?;
        }
    }
    Ok((late, starts))
}

/// Waits until nothing is left to be written.
fn settle(address: SocketAddr) -> Result<(), Failure> {
    let mut http = Http::connect(address)?;
    for _ in 0..2_000 {
        let (_, page) = http.json("GET /api/v1/runs?state=scheduled&limit=1", "")?;
        if page["items"].as_array().is_some_and(Vec::is_empty) {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Err("runs are still open".into())
}

fn figures(mut late: Vec<u32>) -> Value {
    let mut of = |share| percentile_ms(&mut late, share);
    json!({ "p50": of(0.5), "p99": of(0.99), "max": of(1.0) })
}

fn percentile_ms(late: &mut [u32], share: f64) -> f64 {
    if late.is_empty() {
        return f64::NAN;
    }
    let at = ((late.len() - 1) as f64 * share).round() as usize;
    f64::from(*late.select_nth_unstable(at).1) / 1_000.0
}
