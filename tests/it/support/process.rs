//! The program as a process, killed when the test lets go of it.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The program under test.
pub const WEBLOOM: &str = env!("CARGO_BIN_EXE_webloom");

/// A child process that does not outlive its test.
pub struct Process(pub Child);

impl Process {
    /// Ends it as a power cut would.
    pub fn kill(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    /// Asks it to end, and waits for that.
    pub fn terminate(&mut self) -> std::process::ExitStatus {
        let status = Command::new("kill").arg("-TERM").arg(self.0.id().to_string()).status().expect("kill runs");
        assert!(status.success());
        self.0.wait().expect("it ends")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Where the databases are: files, unless `WEBLOOM_TEST_POSTGRES` has the URL of a server, without a database.
pub fn server() -> Option<String> {
    std::env::var("WEBLOOM_TEST_POSTGRES").ok()
}

/// The database of the brokers in this folder: a file, or one of its own at the server.
pub fn database(folder: &Path) -> PathBuf {
    let note = folder.join("b.url");
    if let Ok(url) = std::fs::read_to_string(&note) {
        return url.into();
    }
    let Some(server) = server() else { return folder.join("b.db") };
    let name = format!("it_{}", uuid::Uuid::new_v4().simple());
    let made = Command::new("psql").arg(format!("{server}/postgres")).args(["-qc", &format!("CREATE DATABASE {name}")]).status();
    assert!(made.expect("psql runs").success(), "no database at {server}");
    let url = format!("{server}/{name}");
    std::fs::create_dir_all(folder).expect("a folder");
    std::fs::write(note, &url).expect("written");
    url.into()
}

/// A broker in a folder of its own.
pub struct Broker {
    pub process: Process,
    pub url: String,
    pub folder: PathBuf,
    args: Vec<String>,
    _own: Option<tempfile::TempDir>,
}

impl Broker {
    /// Starts one with these flags and planned faults.
    pub fn start(args: &[&str], faults: &str) -> Self {
        let own = tempfile::tempdir().expect("a folder");
        let mut broker = Self::start_in(own.path(), "127.0.0.1:0", args, faults);
        broker._own = Some(own);
        broker
    }

    /// Starts one on this address with the database in this folder.
    pub fn start_in(folder: &Path, listen: &str, args: &[&str], faults: &str) -> Self {
        let args: Vec<String> = args.iter().map(|a| (*a).to_owned()).collect();
        let (process, url) = Self::spawn(folder, listen, &args, faults);
        Self { process, url, folder: folder.to_owned(), args, _own: None }
    }

    fn spawn(folder: &Path, listen: &str, args: &[String], faults: &str) -> (Process, String) {
        let mut command = Command::new(WEBLOOM);
        command.arg("broker").arg("--listen").arg(listen).arg("--database").arg(database(folder)).args(args);
        command.env("WEBLOOM_FAULTS", faults).env_remove("WEBLOOM_TOKEN").stdin(Stdio::null()).stdout(Stdio::piped());
        // A test that wants to set its clock has put the file there.
        if folder.join("clock").exists() {
            command.env("WEBLOOM_CLOCK_FILE", folder.join("clock"));
        }
        if std::env::var_os("RUST_LOG").is_none() {
            // A collector gets the lines that are printed.
            let level = if args.iter().any(|arg| arg == "--otlp-endpoint") { "warn" } else { "error" };
            command.env("RUST_LOG", level);
        }
        let mut child = command.spawn().expect("the broker starts");
        let out = child.stdout.take().expect("piped");
        let process = Process(child);
        let mut lines = BufReader::new(out).lines();
        let line = lines.next().expect("the broker says where it listens").expect("a line");
        let url = line.strip_prefix("listening on ").unwrap_or_else(|| panic!("unexpected: {line}")).to_owned();
        (process, url)
    }

    /// Kills it, and starts it again on the same address and database.
    pub fn kill_and_restart(&mut self) {
        self.process.kill();
        self.restart("");
    }

    /// Starts it again, after it has ended somehow.
    pub fn restart(&mut self, faults: &str) {
        let listen = self.url.split_once("://").expect("a URL").1.to_owned();
        let (process, url) = Self::spawn(&self.folder, &listen, &self.args, faults);
        self.process = process;
        assert_eq!(url, self.url);
    }
}

/// An agent of a broker.
pub fn agent(broker: &str, folder: &Path, args: &[&str]) -> Process {
    let mut command = Command::new(WEBLOOM);
    command.arg("agent").arg("--broker").arg(broker).arg("--data-dir").arg(folder).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    if std::env::var_os("RUST_LOG").is_none() {
        command.env("RUST_LOG", "off");
    }
    Process(command.spawn().expect("the agent starts"))
}
