//! The database of a broker under measurement: a file, or one of its own at a PostgreSQL server, which is asked through `psql`.

use super::process::cpu_seconds;
use serde_json::{Map, Value, json};
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

static MADE: AtomicU32 = AtomicU32::new(0);

/// See the module documentation. It is removed when this goes out of scope.
pub struct Database {
    /// The file, or the URL.
    path: PathBuf,
    /// Where the file is.
    folder: Option<tempfile::TempDir>,
    /// The URL of the server, and the name of the database there.
    server: Option<(String, String)>,
}

/// What a PostgreSQL server has done so far: all its processes, its log, and the statements of all databases if `pg_stat_statements` counts
/// them.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    pub cpu_s: f64,
    pub wal_bytes: f64,
    pub statements: f64,
}

impl Database {
    /// An empty database in a folder in `dir`, or at this server (`postgres://user@host:port`, on this machine).
    pub fn new(dir: &str, server: Option<&str>) -> io::Result<Self> {
        let Some(server) = server.map(|url| url.trim_end_matches('/').to_owned()) else {
            let folder = tempfile::tempdir_in(dir)?;
            return Ok(Self { path: folder.path().join("b.db"), folder: Some(folder), server: None });
        };
        let name = format!("webloom_bench_{}_{}", std::process::id(), MADE.fetch_add(1, Ordering::Relaxed));
        ask(&server, &format!("CREATE DATABASE {name}"))?;
        Ok(Self { path: format!("{server}/{name}").into(), folder: None, server: Some((server, name)) })
    }

    /// What the broker's `--database` gets.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The folder of the file; `None` at a server.
    pub fn folder(&self) -> Option<&Path> {
        self.folder.as_ref().map(tempfile::TempDir::path)
    }

    /// What the server has done so far; `None` for a file.
    pub fn cost(&self) -> io::Result<Option<Cost>> {
        let Some((server, _)) = &self.server else { return Ok(None) };
        let checkpointer = number(&ask(server, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")?)? as u32;
        let statements = ask(server, "SELECT coalesce(sum(calls), 0) FROM pg_stat_statements").ok();
        Ok(Some(Cost {
            cpu_s: family_cpu_seconds(
                parent(checkpointer).ok_or_else(|| io::Error::other("the PostgreSQL server does not run on this machine"))?,
            ),
            wal_bytes: number(&ask(server, "SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), '0/0')")?)?,
            statements: statements.map_or(Ok(f64::NAN), |text| number(&text))?,
        }))
    }
}

impl Cost {
    /// What one of so many things has cost, as members of a line of figures: CPU milliseconds for a thousand, bytes, statements. `of` names
    /// the thing.
    pub fn each(before: Option<Self>, after: Option<Self>, count: u64, of: &str) -> Map<String, Value> {
        let (Some(before), Some(after)) = (before, after) else { return Map::new() };
        let each = |all: f64| (all / count as f64 * 1e3).round() / 1e3;
        [
            (format!("postgres_cpu_ms_per_1000_{of}s"), each((after.cpu_s - before.cpu_s) * 1e6)),
            (format!("wal_bytes_per_{of}"), each(after.wal_bytes - before.wal_bytes)),
            (format!("statements_per_{of}"), each(after.statements - before.statements)),
        ]
        .map(|(name, figure)| (name, json!(figure)))
        .into_iter()
        .collect()
    }
}

#[expect(clippy::print_stderr, reason = "a drop returns no error")]
impl Drop for Database {
    fn drop(&mut self) {
        if let Some((server, name)) = &self.server
            && let Err(error) = ask(server, &format!("DROP DATABASE {name} WITH (FORCE)"))
        {
            eprintln!("the database {name} stays: {error}");
        }
    }
}

/// The only value of the answer.
fn ask(server: &str, statement: &str) -> io::Result<String> {
    let answer = Command::new("psql").args(["-X", "-A", "-t", "-q", "-c", statement]).arg(format!("{server}/postgres")).output()?;
    if !answer.status.success() {
        return Err(io::Error::other(format!("psql: {}", String::from_utf8_lossy(&answer.stderr).trim())));
    }
    Ok(String::from_utf8_lossy(&answer.stdout).trim().to_owned())
}

fn number(text: &str) -> io::Result<f64> {
    text.parse().map_err(|error| io::Error::other(format!("psql: `{text}`: {error}")))
}

/// CPU seconds of a process, of its children, and of those that have ended.
fn family_cpu_seconds(first: u32) -> f64 {
    let all = std::fs::read_dir("/proc").into_iter().flatten().filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let children: f64 = all.filter(|pid| parent(*pid) == Some(first)).map(cpu_seconds).sum();
    cpu_seconds(first) + super::process::ticks(first, 15) + children
}

fn parent(pid: u32) -> Option<u32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // After the name of the program and the state.
    stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
}
