//! The first step of the launcher: starts the program, forwards its output, ends it on an order or after its timeout, and records how it
//! ended. It kills all remaining processes that the program started.

use super::EXEC;
use super::kill::kill_descendants;
use super::proc::{self, Process};
use super::record::{Claim, END, EXIT, EndOrder, Ended, SPEC, STATE, Spec, Started, claim, read, write_durable, write_whole};
use super::spool::{Source, Spool};
use super::text::Lines;
use crate::domain::time::Timestamp;
use crate::protocol::application::ProgramExit;
use nix::errno::Errno;
use nix::sys::prctl::set_child_subreaper;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::signal::{Signal, killpg};
use nix::sys::time::{TimeVal, TimeValLike};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, setsid};
use std::io::{self, BufRead, BufReader, PipeReader, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Interval between checks for an order to end.
const TICK: Duration = Duration::from_millis(50);
/// Ticks between two measurements of memory.
const TICKS_OF_MEMORY: u32 = 10;
/// Time for killed processes to disappear, and for pipes to be read to the end.
const GONE: Duration = Duration::from_secs(10);
const PIPE_BYTES: usize = 64 << 10;

/// Runs a program until its end.
pub fn run(folder: &Path) -> u8 {
    match begin(folder) {
        Ok(program) => {
            // The agent waits for this line; the agent may be gone.
            let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "pid": program.main.as_raw() }));
            u8::from(program.live(folder).is_err())
        }
        Err(Refusal { refused, is_missing }) => {
            let _ = writeln!(io::stderr(), "{}", serde_json::json!({ "refused": refused, "is_missing": is_missing }));
            1
        }
    }
}

#[derive(serde::Deserialize)]
struct Refusal {
    refused: String,
    is_missing: bool,
}

fn at<E: std::fmt::Display>(what: &str) -> impl Fn(E) -> Refusal + '_ {
    move |e| Refusal { refused: format!("{what}: {e}"), is_missing: false }
}

struct Program {
    spec: Spec,
    main: Pid,
    began: Instant,
    spool: Arc<Spool>,
    pumps: Vec<JoinHandle<()>>,
    events: Receiver<Event>,
}

enum Event {
    /// The program itself ended: exit code, signal.
    Ended(Option<i32>, Option<i32>),
    /// All processes that it left behind ended as well.
    Alone,
}

fn begin(folder: &Path) -> Result<Program, Refusal> {
    let spec: Spec = read(folder, SPEC).and_then(|spec| spec.ok_or_else(|| io::ErrorKind::NotFound.into())).map_err(at(SPEC))?;
    // Separates it from the agent's terminal: there a program that asks for a password would be stopped for ever. This fails only for the
    // leader of a process group.
    let _ = setsid();
    // A process that forks twice to escape becomes a child of this process.
    set_child_subreaper(true).map_err(at("subreaper"))?;
    if claim(folder).map_err(at("claim"))? == Claim::Theirs {
        return Err(Refusal { refused: "the program was already started".to_owned(), is_missing: false });
    }
    let spool = Arc::new(Spool::create(folder, spec.backlog_bytes).map_err(at("output"))?);
    let (main, out, err) = start(folder, &spec)?;
    let (began, at_time) = (Instant::now(), Timestamp::now());
    let pumps = vec![pump(out, Source::Stdout, &spool), pump(err, Source::Stderr, &spool)];
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let gone = Process { pid: main.as_raw(), start: 0 };
    let started = Started {
        launcher: Process::now(own).ok_or_else(|| at("/proc")("cannot read the process entry"))?,
        program: Process::now(main.as_raw()).unwrap_or(gone),
        at: at_time,
    };
    // The program already runs, so this error is ignored; without the file, a restarted agent reports it as lost.
    let _ = write_whole(folder, STATE, &started);
    let (sender, events) = channel();
    std::thread::spawn(move || reap(main, &sender));
    Ok(Program { spec, main, began, spool, pumps, events })
}

/// Starts the second step and waits until it has become the program.
fn start(folder: &Path, spec: &Spec) -> Result<(Pid, PipeReader, PipeReader), Refusal> {
    let (out, out_end) = io::pipe().map_err(at("pipe"))?;
    let (err, err_end) = io::pipe().map_err(at("pipe"))?;
    let (refusal, refusal_end) = io::pipe().map_err(at("pipe"))?;
    let (own, arguments) = spec.launcher.split_first().ok_or_else(|| at(SPEC)("the launcher command is empty"))?;
    let child = Command::new(own)
        .args(arguments)
        .arg(folder)
        .arg(EXEC)
        .env_clear()
        .stdin(out_end)
        .stdout(refusal_end)
        .stderr(Stdio::from(err_end))
        .process_group(0)
        .spawn()
        .map_err(at("launcher"))?;
    let main = Pid::from_raw(i32::try_from(child.id()).unwrap_or(i32::MAX));
    // Read to the end, which comes when the program begins or the step fails.
    for line in BufReader::new(refusal).lines() {
        if let Some(refused) = line.ok().and_then(|line| serde_json::from_str::<Refusal>(&line).ok()) {
            return Err(refused);
        }
    }
    Ok((main, out, err))
}

fn pump(mut pipe: PipeReader, source: Source, spool: &Arc<Spool>) -> JoinHandle<()> {
    let spool = Arc::clone(spool);
    std::thread::spawn(move || {
        let (mut rest, mut lines, mut buffer) = (Lines::default(), Vec::new(), vec![0; PIPE_BYTES]);
        loop {
            match pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => rest.push(&buffer[..n], |line| lines.push(line.to_owned())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => break,
            }
            spool.append(source, &lines);
            lines.clear();
        }
        rest.finish(|line| lines.push(line.to_owned()));
        spool.append(source, &lines);
    })
}

/// Waits for all children, including adopted ones, until none are left.
fn reap(main: Pid, events: &Sender<Event>) {
    let mut is_told = false;
    loop {
        let event = match waitpid(None, None) {
            Ok(WaitStatus::Exited(pid, code)) if pid == main => Event::Ended(Some(code), None),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == main => Event::Ended(None, Some(signal as i32)),
            Err(Errno::ECHILD) => break,
            // A real-time signal has no name here; the end of the child is noticed when none are left.
            Ok(_) | Err(_) => continue,
        };
        is_told = true;
        let _ = events.send(event);
    }
    if !is_told {
        let _ = events.send(Event::Ended(None, None));
    }
    let _ = events.send(Event::Alone);
}

impl Program {
    fn live(self, folder: &Path) -> io::Result<()> {
        let mut peak = 0;
        let mut ending = Ending { by: None, kill_at: None };
        let time_out = self.spec.timeout_ms.map(|ms| self.began + Duration::from_millis(ms));
        let mut ticks: u32 = 0;
        let (code, signal) = loop {
            match self.events.recv_timeout(TICK) {
                Ok(Event::Ended(code, signal)) => break (code, signal),
                Ok(Event::Alone) | Err(RecvTimeoutError::Disconnected) => break (None, None),
                Err(RecvTimeoutError::Timeout) => {}
            }
            // The agent rewrites an order that cannot be read.
            if let Ok(Some(order)) = read::<EndOrder>(folder, END) {
                ending.ask(self.main, &order.by, order.grace_ms);
            }
            if time_out.is_some_and(|at| at <= Instant::now()) {
                ending.ask(self.main, "timeout", self.spec.grace_ms);
            }
            if ending.kill_at.is_some_and(|at| at <= Instant::now()) {
                kill_all();
            }
            if ticks.is_multiple_of(TICKS_OF_MEMORY) {
                peak = peak.max(resident());
            }
            ticks = ticks.wrapping_add(1);
        };
        let wall = self.began.elapsed();
        self.end_all();
        let lines = self.finish_output();
        let usage = getrusage(UsageWho::RUSAGE_CHILDREN).ok();
        let ms = |time: TimeVal| u64::try_from(time.num_milliseconds()).unwrap_or(0);
        let most = usage.as_ref().map_or(0, |usage| u64::try_from(usage.max_rss()).unwrap_or(0) << 10);
        let exit = ProgramExit {
            code,
            signal,
            ended_by: ending.by,
            peak_memory: Some(peak.max(most)),
            user_ms: usage.as_ref().map(|usage| ms(usage.user_time())),
            system_ms: usage.as_ref().map(|usage| ms(usage.system_time())),
            wall_ms: u64::try_from(wall.as_millis()).unwrap_or(u64::MAX),
            lines,
        };
        write_durable(folder, EXIT, &Ended { exit, at: Timestamp::now() })
    }

    /// Kills the processes that the program left behind, until none exist. One look at `/proc` may miss a process whose parent ends
    /// meanwhile, so the end of all children is what counts.
    fn end_all(&self) {
        let deadline = Instant::now() + GONE;
        while Instant::now() < deadline {
            kill_all();
            if let Ok(Event::Alone) | Err(RecvTimeoutError::Disconnected) = self.events.recv_timeout(Duration::from_millis(5)) {
                return;
            }
        }
    }

    /// Reads the pipes to their ends, which have been reached unless a process could not be killed.
    fn finish_output(self) -> u64 {
        self.spool.end();
        let deadline = Instant::now() + GONE;
        while !self.pumps.iter().all(JoinHandle::is_finished) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.spool.finish()
    }
}

struct Ending {
    by: Option<String>,
    kill_at: Option<Instant>,
}

impl Ending {
    /// Sends the stop request once; a shorter grace than before is applied.
    fn ask(&mut self, main: Pid, by: &str, grace_ms: u64) {
        let kill_at = Instant::now().checked_add(Duration::from_millis(grace_ms));
        if self.by.is_none() {
            self.by = Some(by.to_owned());
            let _ = killpg(main, Signal::SIGTERM);
            self.kill_at = kill_at;
        } else {
            self.kill_at = match (self.kill_at, kill_at) {
                (Some(before), Some(now)) => Some(before.min(now)),
                (before, now) => before.or(now),
            };
        }
    }
}

fn own_pid() -> i32 {
    i32::try_from(std::process::id()).unwrap_or(0)
}

fn kill_all() {
    kill_descendants(own_pid());
}

/// Resident bytes of the program and its children; for each alone, its maximum.
fn resident() -> u64 {
    let each: Vec<_> = proc::descendants(own_pid()).into_iter().filter_map(proc::memory).collect();
    each.iter().map(|(now, _)| now).sum::<u64>().max(each.iter().map(|(_, most)| *most).max().unwrap_or(0))
}
