//! Processes under measurement: start, address, CPU, memory, end.

use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// Ticks of `/proc/*/stat` in a second: `USER_HZ`, the same on every Linux that runs this.
const TICKS: f64 = 100.0;

/// A child that is killed when it goes out of scope.
pub struct Process(pub Child);

impl Process {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a broker on a free port and waits until it says its address. `database` is a file or a URL.
pub fn broker(database: &Path) -> Result<(Process, SocketAddr), Box<dyn Error>> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_webloom"));
    command.args(["broker", "--listen", "127.0.0.1:0", "--database"]).arg(database);
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut process = Process(command.spawn()?);
    let stdout = process.0.stdout.take().ok_or("the broker has no output")?;
    let mut lines = BufReader::new(stdout).lines();
    let address = loop {
        let line = lines.next().ok_or("the broker ended before it listened")??;
        if let Some((_, address)) = line.split_once("http://") {
            break address.trim_end_matches('/').parse()?;
        }
    };
    // Whatever else it says must not fill the pipe.
    std::thread::spawn(move || lines.for_each(drop));
    Ok((process, address))
}

/// CPU seconds of a process so far, in user mode and in the kernel.
pub fn cpu_seconds(pid: u32) -> f64 {
    ticks(pid, 13)
}

/// The sum of two neighbouring fields of `/proc/<pid>/stat`, numbered from 0, in seconds.
pub fn ticks(pid: u32, field: usize) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name of the program may hold blanks; what follows its bracket does not. The first field there is number 2.
    let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    rest.split_whitespace().skip(field - 2).take(2).filter_map(|n| n.parse::<f64>().ok()).sum::<f64>() / TICKS
}

/// A line of `/proc/<pid>/status` in bytes: `VmRSS`, `VmHWM`.
pub fn memory(pid: u32, line: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let kb = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')?.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or(0) * 1_024
}
