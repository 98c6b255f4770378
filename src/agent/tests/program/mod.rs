//! Real programs, in real packages, on an agent whose broker the test controls.

mod bad_packages;
mod cache;
mod ends;
mod lives;
mod refusals;
mod runs;

use super::broker::{Broker, Running, Say};
use super::site::{Site, answer};
use super::until;
use crate::agent::AgentError;
use crate::agent::program::launch;
use crate::config::agent::AgentConfig;
use crate::config::programs::HostPattern;
use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use crate::domain::trace::SpanId;
use crate::protocol::application::{Package, ProgramOrder, ProgramRef, ProgramReport, ProgramState};
use crate::protocol::frame;
use crate::protocol::node::ToNode;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use tempfile::TempDir;

/// The launcher in these tests: this test binary, which runs only this function.
#[test]
#[ignore = "is no test: the launcher of the others"]
fn launcher() {
    let mut arguments = std::env::args_os().skip_while(|argument| argument != "--nocapture").skip(1);
    if let Some(folder) = arguments.next() {
        let code = launch::run(Path::new(&folder), arguments.next().as_deref());
        std::process::exit(code.into());
    }
}

/// A broker, and the data folder of an agent.
struct Scene {
    broker: Broker,
    data: TempDir,
}

impl Scene {
    fn new() -> Self {
        Self { broker: Broker::start(), data: tempfile::tempdir().expect("a folder") }
    }

    fn config(&self) -> AgentConfig {
        let mut config = AgentConfig { data_dir: Some(self.data.path().to_owned()), ..self.broker.config() };
        let own = std::env::current_exe().expect("this program").display().to_string();
        let launcher = ["--exact", "agent::tests::program::launcher", "--ignored", "--nocapture"];
        config.programs.inner.launcher = std::iter::once(own).chain(launcher.map(str::to_owned)).collect();
        config.programs.are_allowed = true;
        // The tests run as root.
        config.programs.users = vec!["root".to_owned()];
        config.programs.package_hosts = vec![HostPattern::new("127.0.0.1").expect("a host")];
        config
    }

    async fn say(&self, message: &ToNode) {
        let last = self.broker.seen().sessions.len().max(1) - 1;
        self.broker.session(last).await.do_send(Say::Text(frame::text(message)));
    }

    async fn start(&self, order: &ProgramOrder) {
        self.say(&ToNode::Start(Box::new(order.clone()))).await;
    }

    async fn exit(&self, order: &ProgramOrder, grace: u64) {
        self.say(&ToNode::Exit { program: order.program, grace, reason: "a test wants it".to_owned() }).await;
    }

    fn reports(&self, order: &ProgramOrder) -> Vec<ProgramReport> {
        self.broker.seen().programs.iter().filter(|report| report.program == order.program).cloned().collect()
    }

    /// Waits until the program is reported in this state.
    async fn reached(&self, order: &ProgramOrder, state: ProgramState) -> ProgramReport {
        let mut found = None;
        until(&format!("it is {state:?}"), || {
            let reports = self.reports(order);
            let is_over = |r: &&ProgramReport| matches!(r.state, ProgramState::Refused | ProgramState::Lost | ProgramState::Exited);
            let other = reports.iter().find(is_over);
            found = reports.iter().find(|report| report.state == state).cloned();
            assert!(found.is_some() || other.is_none(), "{state:?} was expected, and this came: {other:?}");
            found.is_some()
        })
        .await;
        found.expect("found")
    }

    /// The lines of one source; checks that no line changed and none is missing.
    fn lines(&self, order: &ProgramOrder, source: &str) -> Vec<String> {
        let mut by_number = BTreeMap::new();
        for output in self.broker.seen().outputs.iter().filter(|output| output.program == order.program) {
            for (number, line) in (output.first..).zip(&output.lines) {
                let before = by_number.insert(number, line.clone());
                assert!(before.is_none_or(|before| before.text == line.text), "line {number} has changed");
            }
        }
        assert!(by_number.keys().copied().eq(0..by_number.len() as u64), "a line is missing");
        by_number.into_values().filter(|line| line.source.as_deref() == Some(source)).map(|line| line.text).collect()
    }

    async fn line(&self, order: &ProgramOrder, line: &str) {
        until(&format!("it says {line}"), || self.lines(order, "stdout").iter().any(|said| said == line)).await;
    }

    /// Checks that nothing is left: no process, no folder, no entry in heartbeats.
    async fn is_clean(&self, order: &ProgramOrder) {
        no_process(&order.program).await;
        let folder = self.data.path().join("programs");
        until("its folder is gone", || folder.read_dir().map_or(0, Iterator::count) == 0).await;
        let beats = self.broker.seen().heartbeats.len();
        let is_idle = || self.broker.seen().heartbeats[beats..].iter().any(|b| b.process_count == 0 && b.programs == Some(vec![]));
        until("heartbeats do not have it", is_idle).await;
    }

    async fn end(self, agent: Running) {
        agent.stop().await.expect("a clean end");
        self.broker.server.stop(false).await;
    }
}

fn marked(program: &ProgramRef) -> usize {
    launch::proc::marked(&launch::proc::mark(program)).len()
}

async fn no_process(program: &ProgramRef) {
    until("no process is left", || marked(program) == 0).await;
}

fn order(application: &str, arguments: &[&str]) -> ProgramOrder {
    ProgramOrder {
        program: ProgramRef { identity: Identity::random(), instance: 1, attempt: 1 },
        instances: 3,
        job_id: JobId::random(),
        job_name: "test".to_owned(),
        package: None,
        application: application.to_owned(),
        arguments: arguments.iter().map(|&argument| argument.to_owned()).collect(),
        environment: BTreeMap::new(),
        files: BTreeMap::new(),
        timeout: Some(60_000),
        grace: 20_000,
        limits: Default::default(),
        user: None,
        trace_id: Some("0123456789abcdef0123456789abcdef".to_owned()),
        span_id: Some(SpanId(10)),
        fire_time: Timestamp(0),
    }
}

fn sh(script: &str) -> ProgramOrder {
    order("sh", &["-c", script])
}

fn packed(application: &str, site: &Site, sha256: Option<String>) -> ProgramOrder {
    ProgramOrder { package: Some(Package { url: site.url("/package"), sha256 }), ..order(application, &[]) }
}

/// A site that has one file.
fn site(bytes: Vec<u8>) -> Site {
    Site::new(move |_| answer(200, "", &bytes))
}

/// A zip of files, each with its mode.
fn zip(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut writer = zip::ZipWriter::new(std::io::Cursor::new(Vec::new()));
    for (name, mode, content) in files {
        let options = zip::write::SimpleFileOptions::default().compression_method(zip::CompressionMethod::Deflated).unix_permissions(*mode);
        writer.start_file(*name, options).expect("a file");
        writer.write_all(content).expect("written");
    }
    writer.finish().expect("a zip").into_inner()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// An agent that can be killed: it runs in a separate thread and gets no notice of its end.
struct Killable {
    kill: tokio::sync::oneshot::Sender<()>,
    thread: std::thread::JoinHandle<Option<Result<(), AgentError>>>,
}

impl Killable {
    fn start(config: AgentConfig) -> Self {
        let (kill, killed) = tokio::sync::oneshot::channel();
        let thread = std::thread::spawn(move || {
            actix_rt::System::new().block_on(async move {
                tokio::select! {
                    ended = crate::agent::run(config, None, std::future::pending()) => Some(ended),
                    _ = killed => None,
                }
            })
        });
        Self { kill, thread }
    }

    async fn kill(self) {
        self.kill.send(()).expect("it lives");
        until("it is dead", || self.thread.is_finished()).await;
        assert!(self.thread.join().expect("no panic").is_none(), "it was killed");
    }

    async fn ended(self) -> Result<(), AgentError> {
        until("it ends by itself", || self.thread.is_finished()).await;
        self.thread.join().expect("no panic").expect("it was not killed")
    }
}
