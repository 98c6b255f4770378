//! `cargo bench --bench polite`: how much of the rate that sites allow a fleet achieves, and what politeness costs.
//!
//! A real broker and three real agents on a web of many hosts (loopback addresses, in a thread of this process), one after the
//! other: the pages without a pace, which is what the machine can do; with a pace for each site; with a pace while some of
//! the sites hang. A worker takes all results and acknowledges them. The log of the web is checked for breaches of the pace.
//! Then the memory part: a queue of many sites, `kill -9`, and the time until the run goes on. One JSON line for each part.
//! `--help` lists what can be changed.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

#[path = "../tests/it/support/access_log.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod access_log;
#[path = "support/many_sites.rs"]
mod many_sites;
#[expect(dead_code, reason = "shared with the other benches")]
mod support;
#[path = "../tests/it/support/web.rs"]
#[expect(dead_code, reason = "shared with the tests")]
mod web;

use access_log::{Allowed, check};
use serde_json::{Value, json};
use std::error::Error;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use support::http::Http;
use support::process::{self, Process};
use support::run::{Run, trigger_with};
use support::worker::{Worker, poll};
use web::{Answer, Mixed, Web};

const HELP: &str = "cargo bench --bench polite -- [options]
  --sites N            sites of the web (10000)
  --delay-ms N         least time between two requests to a site (1000)
  --seconds N          time that is measured (20)
  --warm N             most seconds before that, in which each site is asked for its first page (40)
  --hanging SHARE      share of the sites that hang in the third part; 0: skip it (0.2)
  --hang-seconds N     how long they hang (30)
  --agents N (3)       --node-sites N (4096)  --node-connections N (2048): of each agent
  --threads N          requests at a time of an unpaced block (16)
  --slack-ms N         how much less than the delay a gap may be in the log of the web (200)
  --page BYTES         size of a page (2048)
  --sites-memory N     sites of the memory part; 0: skip it (1000000)
  --per-site N         pending requests of each of these sites (1)
  --rounds             each push asks other sites, so that each request is a block (the requests of a site are pushed together)
  --memory             the memory part alone
  --dir PATH           where the databases are made (the target directory)";

type Failure = Box<dyn Error>;

/// Pages a second that no machine fetches without a pace.
const MOST_UNPACED: u64 = 20_000;

struct Options {
    sites: u64,
    delay_ms: u64,
    seconds: u64,
    warm: u64,
    hanging: f64,
    hang_seconds: u64,
    agents: u64,
    node_sites: u64,
    node_connections: u64,
    threads: u64,
    slack_ms: u64,
    page: u64,
    sites_memory: u64,
    per_site: u64,
    rounds: bool,
    memory_only: bool,
    dir: String,
}

impl Options {
    fn read() -> Result<Option<Self>, Failure> {
        let mut options = Self {
            sites: 10_000,
            delay_ms: 1_000,
            seconds: 20,
            warm: 40,
            hanging: 0.2,
            hang_seconds: 30,
            agents: 3,
            node_sites: 4_096,
            node_connections: 2_048,
            threads: 16,
            slack_ms: 200,
            page: 2_048,
            sites_memory: 1_000_000,
            per_site: 1,
            rounds: false,
            memory_only: false,
            dir: env!("CARGO_TARGET_TMPDIR").to_owned(),
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
                "--rounds" => {
                    options.rounds = true;
                    continue;
                }
                "--dir" => {
                    options.dir = value()?;
                    continue;
                }
                "--hanging" => {
                    options.hanging = value()?.parse().map_err(|e| format!("--hanging: {e}"))?;
                    continue;
                }
                "--sites" => &mut options.sites,
                "--delay-ms" => &mut options.delay_ms,
                "--seconds" => &mut options.seconds,
                "--warm" => &mut options.warm,
                "--hang-seconds" => &mut options.hang_seconds,
                "--agents" => &mut options.agents,
                "--node-sites" => &mut options.node_sites,
                "--node-connections" => &mut options.node_connections,
                "--threads" => &mut options.threads,
                "--slack-ms" => &mut options.slack_ms,
                "--page" => &mut options.page,
                "--sites-memory" => &mut options.sites_memory,
                "--per-site" => &mut options.per_site,
                _ => return Err(format!("{name} is not known\n{HELP}").into()),
            };
            *place = value()?.parse().map_err(|e| format!("{name}: {e}"))?;
        }
        // `cargo test --benches` runs this too, and means no measurement.
        Ok(is_bench.then_some(options))
    }

    /// The share of the sites that hang in the third part, in thousandths.
    fn of_1000(&self) -> u32 {
        (self.hanging * 1_000.0).round() as u32
    }

    /// Whether a site hangs. `of_1000` is the share of all sites that do, in thousandths.
    fn hangs(number: u32, of_1000: u32) -> bool {
        number.wrapping_mul(7_919) % 1_000 < of_1000
    }
}

fn main() -> Result<(), Failure> {
    let Some(options) = Options::read()? else { return Ok(()) };
    if !options.memory_only {
        let unpaced = measure(&options, None, 0)?;
        println!("{}", unpaced.line("unpaced", &options));
        let allowed = options.sites as f64 * 1e3 / options.delay_ms as f64;
        let possible = allowed.min(unpaced.rate);
        let paced = measure(&options, Some(options.delay_ms), 0)?;
        let mut line = paced.line("paced", &options);
        line["allowed_per_s"] = json!(round(allowed));
        line["machine_per_s"] = json!(round(unpaced.rate));
        line["ratio"] = json!(round(paced.rate / possible));
        line["cpu_ratio"] = json!(round(paced.cpu_ms() / unpaced.cpu_ms()));
        println!("{line}");
        if options.of_1000() > 0 {
            let hanging = measure(&options, Some(options.delay_ms), options.of_1000())?;
            let mut line = hanging.line("hanging", &options);
            let allowed = allowed * (1.0 - options.hanging);
            line["allowed_per_s"] = json!(round(allowed));
            line["ratio"] = json!(round(hanging.rate / allowed.min(unpaced.rate)));
            // What the others lose: compared with the same sites in the part in which no site hangs.
            line["others_ratio"] = json!(round(hanging.rate_of_others / paced.rate_of_others));
            println!("{line}");
        }
    }
    if options.sites_memory > 0 {
        let dir = tempfile::tempdir_in(&options.dir)?;
        println!("{}", many_sites::many_sites(dir.path(), options.sites_memory, options.per_site, options.rounds)?);
    }
    Ok(())
}

/// What one part gave.
struct Measured {
    /// Pages a second, without those of sites that hang.
    rate: f64,
    /// Pages a second of the sites that do not hang in the third part.
    rate_of_others: f64,
    pages: u64,
    seconds: f64,
    /// Seconds from the first request until each site was asked for a page.
    ramp_up: f64,
    asked: usize,
    broker_cpu: f64,
    agents_cpu: f64,
    bench_cpu: f64,
    least_gap_ms: f64,
    violations: usize,
    most_at_once: usize,
    errors: usize,
    broker_rss: u64,
    agent_rss: u64,
}

impl Measured {
    /// CPU of broker and agents for a page.
    fn cpu_ms(&self) -> f64 {
        (self.broker_cpu + self.agents_cpu) * 1e3 / self.pages as f64
    }

    fn line(&self, part: &str, options: &Options) -> Value {
        let per_page = |seconds: f64| round(seconds * 1e3 / self.pages as f64);
        json!({
            "bench": "polite", "part": part, "sites": options.sites, "delay_ms": options.delay_ms, "agents": options.agents,
            "seconds": round(self.seconds), "pages": self.pages, "requests_per_s": round(self.rate),
            "ramp_up_s": round(self.ramp_up), "sites_asked": self.asked, "at_once": self.most_at_once,
            "broker_cpu_ms_per_page": per_page(self.broker_cpu), "agents_cpu_ms_per_page": per_page(self.agents_cpu),
            "web_and_worker_cpu_ms_per_page": per_page(self.bench_cpu), "least_gap_ms": round(self.least_gap_ms),
            "violations": self.violations, "errors": self.errors,
            "broker_rss_mb": mb(self.broker_rss), "agent_rss_mb": mb(self.agent_rss),
        })
    }
}

/// One part: pushes, starts the agents, waits until each site was asked, and measures for some seconds.
fn measure(options: &Options, delay_ms: Option<u64>, hanging: u32) -> Result<Measured, Failure> {
    let dir = tempfile::tempdir_in(&options.dir)?;
    let (page, hang) = ("<p>text</p>\n".repeat(options.page as usize / 12 + 1), Duration::from_secs(options.hang_seconds));
    let web = Web::serve(move |asked| {
        let hangs = Mixed::number(&asked.host).is_some_and(|number| Options::hangs(number, hanging));
        match asked.path.as_str() {
            "/robots.txt" => Answer::status(404),
            _ if hangs => Answer::html(page.clone()).after(hang),
            _ => Answer::html(page.clone()),
        }
    })?;
    let (broker, address) = process::broker(&dir.path().join("b.db"))?;
    let mut http = Http::connect(address)?;
    let mut worker = Worker::watch(address).map_err(|e| e.to_string())?;
    let mut properties = json!({ "ThreadNum": options.threads.to_string(), "Timeout": "120000" });
    if let Some(delay_ms) = delay_ms {
        properties["Delay"] = json!(delay_ms.to_string());
        properties["Robots"] = json!("obey");
        properties["PerSite"] = json!("1");
    }
    let identity = trigger_with(&mut http, properties)?;
    // Enough pages for the whole time.
    let per_site = match delay_ms {
        Some(delay_ms) => (options.warm + options.seconds) * 1_000 / delay_ms + 2,
        None => ((3 + options.seconds) * MOST_UNPACED).div_ceil(options.sites),
    };
    push(&mut http, &identity, &web, options.sites, per_site)?;
    let run = Run::new(address, identity, options.sites * per_site, 1, 0, 0);
    let run_ref = &run;
    let id = worker.id();
    std::thread::scope(|threads| {
        let attending = threads.spawn(move || worker.attend(run_ref));
        let polling = threads.spawn(move || poll(run_ref, &id, 32));
        let measured = observe(options, &web, &broker, address, dir.path(), delay_ms, hanging);
        run.over.store(true, Ordering::Release);
        attending.join().map_err(|_| "the worker panicked")?.map_err(|e| e.to_string())?;
        polling.join().map_err(|_| "the worker panicked")?.map_err(|e| e.to_string())?;
        measured
    })
}

fn observe(
    options: &Options,
    web: &Web,
    broker: &Process,
    address: SocketAddr,
    dir: &Path,
    delay_ms: Option<u64>,
    hanging: u32,
) -> Result<Measured, Failure> {
    let agents = (0..options.agents).map(|n| agent(options, address, &dir.join(format!("agent{n}")))).collect::<Result<Vec<_>, _>>()?;
    let cpu = || {
        let agents: f64 = agents.iter().map(|agent| process::cpu_seconds(agent.pid())).sum();
        (process::cpu_seconds(broker.pid()), agents, process::cpu_seconds(std::process::id()))
    };
    let sleep = || std::thread::sleep(Duration::from_millis(100));
    let waiting = Instant::now();
    while web.requests() == 0 {
        if waiting.elapsed() > Duration::from_secs(60) {
            return Err("no request came within a minute".into());
        }
        sleep();
    }
    let first = Instant::now();
    // With a pace the first request to a site is for robots.txt. Without one the sites are asked one after the other.
    let (wanted, least) = if delay_ms.is_some() { (2, Duration::ZERO) } else { (1, Duration::from_secs(3)) };
    let warm = if delay_ms.is_some() { Duration::from_secs(options.warm) } else { least };
    let everyone = options.sites as usize;
    while first.elapsed() < warm && (first.elapsed() < least || web.hosts_asked(wanted) < everyone) {
        sleep();
    }
    let ramp_up = first.elapsed().as_secs_f64();
    let (begin_us, cpu_before, begun) = (web.now_us(), cpu(), Instant::now());
    while begun.elapsed() < Duration::from_secs(options.seconds) {
        sleep();
    }
    let (end_us, cpu_after, seconds) = (web.now_us(), cpu(), begun.elapsed().as_secs_f64());
    let rss = (process::memory(broker.pid(), "VmRSS"), agents.first().map_or(0, |agent| process::memory(agent.pid(), "VmRSS")));
    let asked = web.hosts_asked(wanted);
    drop(agents);
    let log = web.log();
    let is_page = |path: &str| path != "/robots.txt";
    let hangs = |host: &str| Mixed::number(host).is_some_and(|number| Options::hangs(number, hanging));
    let in_time = || log.iter().filter(|entry| (begin_us..end_us).contains(&entry.end) && is_page(&entry.path) && entry.status == 200);
    let pages = in_time().filter(|entry| !hangs(&entry.host)).count() as u64;
    let is_other = |host: &str| Mixed::number(host).is_none_or(|number| !Options::hangs(number, options.of_1000()));
    let of_others = in_time().filter(|entry| is_other(&entry.host)).count();
    if pages == 0 {
        return Err("no page was fetched in the time that is measured: make --seconds longer, or --warm shorter".into());
    }
    let limits = Allowed { delay_ms: delay_ms.unwrap_or(0), connections: usize::from(delay_ms.is_some()), disallowed: Vec::new() };
    let found = check(&log, options.slack_ms * 1_000, |_| limits.clone());
    Ok(Measured {
        rate: pages as f64 / seconds,
        rate_of_others: of_others as f64 / seconds,
        pages,
        seconds,
        ramp_up,
        asked,
        broker_cpu: cpu_after.0 - cpu_before.0,
        agents_cpu: cpu_after.1 - cpu_before.1,
        bench_cpu: cpu_after.2 - cpu_before.2,
        least_gap_ms: found.least_gap.as_ref().map_or(f64::NAN, |(gap, _)| *gap as f64 / 1e3),
        violations: found.breaches.len(),
        most_at_once: found.most_at_once,
        // What was under way at the end has status 0.
        errors: log.iter().filter(|entry| entry.status != 200 && entry.end < end_us && is_page(&entry.path)).count(),
        broker_rss: rss.0,
        agent_rss: rss.1,
    })
}

fn agent(options: &Options, broker: SocketAddr, dir: &Path) -> Result<Process, Failure> {
    std::fs::create_dir_all(dir)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_webloom"));
    command.args(["agent", "--broker", &format!("http://{broker}/"), "--max-sites", &options.node_sites.to_string()]);
    // The hosts are more than a run may begin at.
    command.args(["--download-allow", "127.0.0.0/8"]);
    command.args(["--max-connections", &options.node_connections.to_string(), "--data-dir"]).arg(dir);
    command.env("RUST_LOG", "error").stdin(Stdio::null()).stdout(Stdio::null());
    Ok(Process(command.spawn()?))
}

/// Pushes the pages: all of a site together, so that they make few blocks.
fn push(http: &mut Http, identity: &str, web: &Web, sites: u64, per_site: u64) -> Result<(), Failure> {
    let numbers: Vec<u32> = (0..u32::try_from(sites)?).collect();
    let sites_of_a_push = (20_000 / per_site).max(1) as usize;
    for some in numbers.chunks(sites_of_a_push) {
        let mut body = String::from("[");
        for number in some {
            for page in 0..per_site {
                let comma = if body.len() > 1 { "," } else { "" };
                write!(body, "{comma}{{\"url\":\"{}\"}}", web.url(*number, &format!("/{page}")))?;
            }
        }
        body.push(']');
        let (status, answer) = http.json(&format!("POST /requestqueue/{identity}"), &body)?;
        if status != 200 {
            return Err(format!("a push was answered {status}: {answer}").into());
        }
    }
    Ok(())
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
