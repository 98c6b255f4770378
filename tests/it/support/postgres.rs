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
        let folder = tempfile::tempdir().expect("a folder");
        let this = Self { folder, port: free_port() };
        if is_root() {
            // The server refuses to run as root.
            let done = Command::new("chown").arg("postgres").arg(this.folder.path()).status().expect("chown runs");
            assert!(done.success());
        }
        let folder = this.folder.path().display();
        this.run("initdb", &["-U", "webloom", "-A", "trust", "--no-locale", "-E", "UTF8", "--no-sync", "-D", &format!("{folder}/data")]);
        let mut lines = vec![
            "listen_addresses = '127.0.0.1'".to_owned(),
            format!("port = {}", this.port),
            format!("unix_socket_directories = '{folder}'"),
            // It may be killed, but no test cuts the power.
            "fsync = off".to_owned(),
        ];
        lines.extend(settings.iter().map(|line| (*line).to_owned()));
        let file = this.data().join("conf");
        this.put(&file, &lines.join("\n"));
        this.begin();
        this.sql("postgres", "CREATE DATABASE webloom");
        this
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
        // It may have been stopped.
        let data = self.data();
        let mut command = Command::new("kill");
        let pid = std::fs::read_to_string(data.join("postmaster.pid")).unwrap_or_default();
        if let Some(pid) = pid.lines().next() {
            let _ = command.args(["-QUIT", pid]).status();
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
