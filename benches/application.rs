//! `cargo bench --bench application`: programs on one agent.
//!
//! A real broker and a real agent as processes. Three figures: programs started and over in a second, `--at-once` of them at a
//! time; lines of output a second, from a program to the broker's disk; and the time from a trigger to the first instruction
//! of the program, beside the same program started by a shell.
#![expect(clippy::print_stdout, reason = "figures are what a bench is for")]

// Only what this bench uses of what the benches share.
#[path = "support/http.rs"]
mod http;
#[path = "support/process.rs"]
#[expect(dead_code, reason = "shared with the other benches")]
mod process;

use http::Http;
use process::Process;
use serde_json::{Value, json};
use std::error::Error;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

const HELP: &str = "cargo bench --bench application -- [options]
  --starts N         programs that are started (1000)
  --at-once N        at a time (16)
  --lines N          lines that a program writes (100000)
  --latency N        programs of which the first instruction is timed (200)
  --dir PATH         where the database is made (the target directory)";

type Failure = Box<dyn Error>;

struct Options {
    starts: usize,
    at_once: usize,
    lines: u64,
    latency: usize,
    dir: String,
}

impl Options {
    fn read() -> Result<Option<Self>, Failure> {
        let mut options = Self { starts: 1_000, at_once: 16, lines: 100_000, latency: 200, dir: env!("CARGO_TARGET_TMPDIR").to_owned() };
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
                "--starts" => options.starts = value()?.parse()?,
                "--at-once" => options.at_once = value()?.parse()?,
                "--lines" => options.lines = value()?.parse()?,
                "--latency" => options.latency = value()?.parse()?,
                "--dir" => options.dir = value()?,
                _ => return Err(format!("{name} is not known\n{HELP}").into()),
            }
        }
        // `cargo test --benches` runs this too, and means no measurement.
        Ok(is_bench.then_some(options))
    }
}

/// A broker with one agent.
struct Fleet {
    http: Http,
    _agent: Process,
    _broker: Process,
}

impl Fleet {
    fn start(dir: &Path, at_once: usize) -> Result<Self, Failure> {
        let (broker, address) = process::broker(&dir.join("b.db"))?;
        let agent = agent(address, dir, at_once)?;
        let mut fleet = Self { http: Http::connect(address)?, _agent: agent, _broker: broker };
        fleet.wait("the agent", |fleet| Ok(fleet.get("/api/v1/nodes")?["items"][0]["load"].is_object()))?;
        Ok(fleet)
    }

    fn get(&mut self, path: &str) -> Result<Value, Failure> {
        let (status, value) = self.http.json(&format!("GET {path}"), "")?;
        if status == 200 { Ok(value) } else { Err(format!("{path}: {status} {value}").into()) }
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&mut Self) -> Result<bool, Failure>) -> Result<(), Failure> {
        let deadline = Instant::now() + Duration::from_secs(300);
        while !is_so(self)? {
            if Instant::now() > deadline {
                return Err(format!("waited too long for {what}").into());
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        Ok(())
    }

    fn job(&mut self, name: &str, application: &str, arguments: &Value) -> Result<String, Failure> {
        let properties = json!({ "Application": application, "Arguments": arguments.to_string(), "MaxCpu": "101", "MinFreeMemory": "0" });
        let job = json!({ "name": name, "jobType": "application", "properties": properties });
        let (status, made) = self.http.json("POST /api/v1/jobs", &job.to_string())?;
        made["id"].as_str().filter(|_| status == 201).map(str::to_owned).ok_or_else(|| format!("no job was made: {status} {made}").into())
    }

    fn trigger(&mut self, job: &str) -> Result<String, Failure> {
        let (status, run) = self.http.json(&format!("POST /api/v1/jobs/{job}/trigger"), "{}")?;
        run["identity"].as_str().filter(|_| status == 202).map(str::to_owned).ok_or_else(|| format!("no run: {status} {run}").into())
    }

    /// Waits until so many runs of a job ended well; fails if one did not.
    fn ended(&mut self, job: &str, count: usize) -> Result<usize, Failure> {
        let failed = self.get(&format!("/api/v1/runs?jobId={job}&state=failed&limit=1"))?;
        if let Some(run) = failed["items"].get(0) {
            return Err(format!("a run failed: {run}").into());
        }
        let open = ["pending", "scheduled", "running"].map(|state| format!("/api/v1/runs?jobId={job}&state={state}&limit=1000"));
        let mut at_work = 0;
        for path in open {
            at_work += self.get(&path)?["items"].as_array().map_or(0, Vec::len);
        }
        Ok(count - at_work)
    }
}

fn agent(address: SocketAddr, dir: &Path, at_once: usize) -> Result<Process, Failure> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_webloom"));
    command
        .args(["agent", "--applications", "--application-users", "root", "--broker", &format!("http://{address}/"), "--data-dir"])
        .arg(dir.join("agent"));
    let most = (2 * at_once).to_string();
    command.args(["--max-process-count", &most, "--max-programs", &most]).stdin(Stdio::null()).stdout(Stdio::null());
    command.env("RUST_LOG", "error");
    Ok(Process(command.spawn()?))
}

fn starts(fleet: &mut Fleet, options: &Options) -> Result<(), Failure> {
    let job = fleet.job("starts", "true", &json!([]))?;
    let begin = Instant::now();
    let (mut triggered, mut over) = (0, 0);
    while over < options.starts {
        while triggered < options.starts && triggered - over < options.at_once {
            fleet.trigger(&job)?;
            triggered += 1;
        }
        over = fleet.ended(&job, triggered)?;
    }
    let seconds = begin.elapsed().as_secs_f64();
    println!("starts a second, {} at once: {:.0} ({} programs)", options.at_once, options.starts as f64 / seconds, options.starts);
    let begin = Instant::now();
    for _ in 0..options.starts {
        Command::new("true").status()?;
    }
    println!("  one after the other without any of it: {:.0}", options.starts as f64 / begin.elapsed().as_secs_f64());
    Ok(())
}

fn lines(fleet: &mut Fleet, options: &Options) -> Result<(), Failure> {
    let script = format!("seq 1 {}", options.lines);
    let job = fleet.job("lines", "sh", &json!(["-c", script]))?;
    let begin = Instant::now();
    let run = fleet.trigger(&job)?;
    fleet.wait("the lines", |fleet| Ok(fleet.ended(&job, 1)? == 1))?;
    let seconds = begin.elapsed().as_secs_f64();
    let taken = fleet.get(&format!("/api/v1/runs/{run}/instances"))?["items"][0]["lines"].as_u64().unwrap_or(0);
    if taken != options.lines {
        return Err(format!("{taken} lines of {} were taken", options.lines).into());
    }
    println!("lines of output a second, to the disk: {:.0} ({taken} lines; the log keeps the first 10,000)", taken as f64 / seconds);
    Ok(())
}

fn now_us() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().map_or(0, |since| since.as_micros() as u64)
}

/// Milliseconds from `begun` to the instant that a program wrote into a file, as nanoseconds since 1970.
fn first_instruction(file: &Path, begun: u64) -> Option<f64> {
    let nanos: u64 = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
    Some((nanos / 1_000).saturating_sub(begun) as f64 / 1_000.0)
}

fn latency(fleet: &mut Fleet, options: &Options, dir: &Path) -> Result<(), Failure> {
    let file = dir.join("first");
    let script = format!("date +%s%N > {0}.part && mv {0}.part {0}", file.display());
    let job = fleet.job("latency", "sh", &json!(["-c", script]))?;
    let (mut ours, mut shells) = (Vec::new(), Vec::new());
    for nth in 0..options.latency {
        let begun = now_us();
        fleet.trigger(&job)?;
        fleet.wait("the program", |_| Ok(file.exists()))?;
        ours.extend(first_instruction(&file, begun));
        std::fs::remove_file(&file)?;
        fleet.wait("its end", |fleet| Ok(fleet.ended(&job, nth + 1)? == nth + 1))?;
        let begun = now_us();
        Command::new("sh").args(["-c", &script]).status()?;
        shells.extend(first_instruction(&file, begun));
        std::fs::remove_file(&file)?;
    }
    for (what, times) in [("trigger to first instruction", &mut ours), ("  the same from a shell", &mut shells)] {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times[((times.len() - 1) as f64 * share).round() as usize];
        println!("{what}: p50 {:.1} ms, p99 {:.1} ms", at(0.5), at(0.99));
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let Some(options) = Options::read()? else { return Ok(()) };
    let dir = Path::new(&options.dir).join(format!("application-{}", std::process::id()));
    std::fs::create_dir_all(dir.join("agent"))?;
    let measured = Fleet::start(&dir, options.at_once).and_then(|mut fleet| {
        starts(&mut fleet, &options)?;
        lines(&mut fleet, &options)?;
        latency(&mut fleet, &options, &dir)
    });
    std::fs::remove_dir_all(&dir)?;
    measured
}
