//! A PostgreSQL server of a test, in a folder of its own.

use super::free_port;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// See the module documentation.
pub struct Cluster {
    folder: tempfile::TempDir,
    port: u16,
}

impl Cluster {
    /// Starts a server that trusts whoever comes, with these settings, such as `ssl=on`.
    pub fn start(settings: &[&str]) -> Self {
        let this = Self::empty();
        let folder = this.folder.path().display();
        this.run("initdb", &["-U", "webloom", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync", "-D", &format!("{folder}/data")]);
        this.configure(settings);
        this.begin();
        this.sql("postgres", "CREATE DATABASE webloom");
        this
    }

    /// A server that has no data yet and does not run.
    pub fn empty() -> Self {
        let this = Self { folder: tempfile::tempdir().expect("a folder"), port: free_port() };
        if is_root() {
            // The server refuses to run as root.
            let done = Command::new("chown").arg("postgres").arg(this.folder.path()).status().expect("chown runs");
            assert!(done.success());
        }
        this
    }

    fn configure(&self, settings: &[&str]) {
        let mut lines = vec![
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("port = {}", self.port),
            format!("unix_socket_directories = '{}'", self.folder.path().display()),
            // It may be killed, but no test cuts the power.
            "fsync = off".to_owned(),
        ];
        lines.extend(settings.iter().map(|line| (*line).to_owned()));
        self.put(&self.data().join("conf"), &lines.join("\n"));
    }

    /// Gets the present state of another server, and nothing that follows: a replica that is behind.
    pub fn copy(&self, primary: &Self) {
        let (port, data) = (primary.port.to_string(), self.data());
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", "webloom", "-X", "fetch", "-c", "fast", "--no-sync", "-D", text(&data)];
        self.run("pg_basebackup", &from);
        self.configure(&[]);
    }

    /// Becomes a replica of another server, which from then on confirms a commit only when this one has it.
    pub fn follow(&self, primary: &Self) {
        let (port, data) = (primary.port.to_string(), self.data());
        let from = ["-h", "127.0.0.1", "-p", &port, "-U", "webloom", "-R", "-X", "stream", "-c", "fast", "--no-sync", "-D", text(&data)];
        self.run("pg_basebackup", &from);
        self.configure(&["wal_retrieve_retry_interval = '100ms'"]);
        self.begin();
        for setting in ["synchronous_standby_names = '*'", "synchronous_commit = 'on'"] {
            primary.sql("postgres", &format!("ALTER SYSTEM SET {setting}"));
        }
        primary.sql("postgres", "SELECT pg_reload_conf()");
    }

    /// A replica accepts writes from now on.
    pub fn promote(&self) {
        assert_eq!(self.sql("postgres", "SELECT pg_promote()"), "t");
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Stops all its processes, as a machine that hangs would. Connections to it stay open.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// They go on.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, name: &str) {
        let Some(first) = self.pid() else { return };
        // The first makes no others after it was stopped.
        let _ = Command::new("kill").args([name, &first]).status();
        let children = Command::new("ps").args(["-o", "pid=", "--ppid", &first]).output().expect("ps runs");
        let children = String::from_utf8_lossy(&children.stdout).into_owned();
        // One of them may have ended.
        let _ = Command::new("kill").arg(name).args(children.split_whitespace()).stderr(Stdio::null()).status();
    }

    fn pid(&self) -> Option<String> {
        let file = std::fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        file.lines().next().map(str::to_owned)
    }

    /// Where its files are.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Writes a file that the server may read.
    pub fn put(&self, file: &Path, text: &str) {
        std::fs::write(file, text).expect("written");
        if is_root() {
            assert!(Command::new("chown").arg("postgres").arg(file).status().expect("chown runs").success());
        }
        assert!(Command::new("chmod").arg("600").arg(file).status().expect("chmod runs").success());
    }

    /// Starts it again.
    pub fn begin(&self) {
        let options = format!("-c config_file={}", self.data().join("conf").display());
        let log = self.folder.path().join("log");
        let data = self.data();
        self.run("pg_ctl", &["-D", text(&data), "-o", &options, "-l", text(&log), "-w", "start"]);
    }

    /// Ends it: `fast` as for an update, `immediate` as a crash.
    pub fn stop(&self, mode: &str) {
        self.run("pg_ctl", &["-D", text(&self.data()), "-m", mode, "-w", "stop"]);
    }

    /// Executes statements as its owner.
    pub fn sql(&self, database: &str, statements: &str) -> String {
        let url = format!("postgres://webloom@127.0.0.1:{}/{database}", self.port);
        let done = Command::new("psql").args([url.as_str(), "-Atqc", statements]).output().expect("psql runs");
        assert!(done.status.success(), "{statements}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).trim().to_owned()
    }

    /// The URL of its database, with this text before the host and this query.
    pub fn url(&self, user: &str, query: &str) -> String {
        format!("postgres://{user}@localhost:{}/webloom{query}", self.port)
    }

    fn run(&self, program: &str, args: &[&str]) {
        let mut versions: Vec<PathBuf> =
            std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL").map(|entry| entry.expect("a folder").path()).collect();
        versions.sort();
        let program = versions.last().expect("a version").join("bin").join(program);
        let mut command = if is_root() {
            let mut command = Command::new("runuser");
            command.args(["-u", "postgres", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        let status = command.args(args).current_dir("/").stdin(Stdio::null()).stdout(Stdio::null()).status().expect("it runs");
        assert!(status.success(), "{args:?}");
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.resume();
        // It may have ended.
        if let Some(pid) = self.pid() {
            let _ = Command::new("kill").args(["-QUIT", &pid]).status();
        }
    }
}

fn is_root() -> bool {
    let id = Command::new("id").arg("-u").output().expect("id runs");
    id.stdout == b"0\n"
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}
