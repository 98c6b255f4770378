//! Programs that a broker started on this machine.
//!
//! It owns the folder `programs` in the data directory, and the cached packages beside it. It promises to start a program at most once,
//! to repeat the report of its end until the broker acknowledges it, to send its numbered lines before its end, and that nothing that it
//! started outlives it. It runs nothing unless the agent's own settings allow it, and then within their limits.
//!
//! The path of a program: [`Programs::start`] checks the order and writes the `record`; its task (`life`) fetches the `package`, makes
//! the folder (`prepare`), starts the launcher (`launch`), forwards its output (`forwarder`), and forgets it when the broker has
//! acknowledged the end.

mod forwarder;
pub mod launch;
mod life;
mod one;
mod package;
mod prepare;
mod record;

pub use prepare::warnings;

use super::trace::{self, Sink};
use crate::config::agent::AgentConfig;
use crate::config::programs::{AtStop, ProgramSettings};
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::private;
use crate::protocol::application::{ProgramError, ProgramErrorKind, ProgramOrder, ProgramRef, ProgramReport, ProgramState};
use crate::protocol::node::FromNode;
use one::Program;
use package::{Packages, refusal};
use record::Record;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::sync::mpsc::UnboundedSender;
use tokio::time::Instant;

/// Time beyond a program's grace for its launcher to notice the end.
const AFTER_GRACE: Duration = Duration::from_secs(2);

/// All programs of the agent.
pub struct Programs {
    settings: ProgramSettings,
    /// The folder of the programs; `None` without a data directory.
    home: Option<PathBuf>,
    packages: Packages,
    by_ref: RefCell<BTreeMap<ProgramRef, Rc<Program>>>,
    /// Rejected orders with their reports: a repeated order gets the same report.
    refused_by_ref: RefCell<BTreeMap<ProgramRef, ProgramReport>>,
    /// Where to send messages during a session.
    outbox: RefCell<Option<UnboundedSender<FromNode>>>,
    /// Counts the sessions from 1.
    sessions: Cell<u64>,
    /// Why no new programs are accepted, once that is so.
    closed: RefCell<Option<String>>,
    last_end: Cell<Instant>,
    changed: Notify,
    node: NodeId,
    sink: Option<Sink>,
}

impl Programs {
    /// An empty set; see [`Self::find`].
    #[must_use]
    pub fn new(config: &AgentConfig, node: NodeId, sink: Option<Sink>) -> Rc<Self> {
        let data_dir = config.data_dir.clone().map(|dir| std::path::absolute(&dir).unwrap_or(dir));
        let packages = Packages::new(config, data_dir.as_deref().unwrap_or(std::path::Path::new("")));
        Rc::new(Self {
            settings: config.programs.clone(),
            home: data_dir.as_deref().map(record::home),
            packages,
            by_ref: RefCell::default(),
            refused_by_ref: RefCell::default(),
            outbox: RefCell::default(),
            sessions: Cell::default(),
            closed: RefCell::default(),
            last_end: Cell::new(Instant::now()),
            changed: Notify::new(),
            node,
            sink,
        })
    }

    /// Finds programs that earlier agents started, even if new ones are no longer allowed.
    pub fn find(self: &Rc<Self>) {
        let Some(home) = &self.home else { return };
        if self.settings.are_allowed {
            self.packages.clean();
        }
        // Users of programs must pass through it to their own folders.
        if self.settings.users.is_empty() {
            private::keep(home);
        }
        for record in record::load(home) {
            log::info!(
                "found a program of an earlier agent run_id={} instance={}",
                record.order.program.identity,
                record.order.program.instance
            );
            let folder = record::folder(home, &record.order.program);
            let program = Rc::new(Program::new(record, folder));
            let of = program.report.borrow().program;
            self.by_ref.borrow_mut().insert(of, Rc::clone(&program));
            actix_rt::spawn(life::live(Rc::clone(self), program));
        }
    }

    fn get(&self, program: &ProgramRef) -> Option<Rc<Program>> {
        self.by_ref.borrow().get(program).cloned()
    }

    /// Handles an order to start. A repeated order gets the current report.
    pub fn start(self: &Rc<Self>, order: ProgramOrder) {
        let of = order.program;
        if let Some(program) = self.get(&of) {
            if program.is_over() {
                // The report comes after its lines.
                program.said_in.set(0);
                program.changed.notify_one();
            } else {
                self.say(&program);
            }
            return;
        }
        let known = self.refused_by_ref.borrow().get(&of).cloned();
        let report = match known {
            Some(report) => report,
            None => match self.check(&order) {
                Ok(home) => {
                    // Listed at once: the order may be repeated while its record is being written, and slots are counted.
                    let program = Rc::new(Program::new(Record::new(order), record::folder(&home, &of)));
                    self.by_ref.borrow_mut().insert(of, Rc::clone(&program));
                    actix_rt::spawn(Rc::clone(self).accept(program));
                    return;
                }
                Err(error) => {
                    log::warn!("program rejected run_id={} instance={} reason={}", of.identity, of.instance, error.message);
                    over(of, ProgramState::Refused, error)
                }
            },
        };
        self.refused_by_ref.borrow_mut().insert(of, report.clone());
        self.send(FromNode::Programs(vec![report]));
    }

    /// Checks that the agent's own settings allow this order.
    fn check(&self, order: &ProgramOrder) -> Result<PathBuf, ProgramError> {
        self.check_allowed()?;
        let Some(home) = &self.home else { return Err(refusal(ProgramErrorKind::Forbidden, "this agent has no data directory")) };
        if let Some(why) = &*self.closed.borrow() {
            return Err(refusal(ProgramErrorKind::Busy, why.clone()));
        }
        prepare::user(order, &self.settings)?;
        if let Some(package) = &order.package {
            self.packages.check(package)?;
        }
        if self.at_work() >= self.settings.max_programs as usize {
            return Err(refusal(
                ProgramErrorKind::Busy,
                format!("all slots are used: {} programs run on this agent", self.settings.max_programs),
            ));
        }
        Ok(home.clone())
    }

    fn check_allowed(&self) -> Result<(), ProgramError> {
        if self.settings.are_allowed {
            return Ok(());
        }
        Err(refusal(ProgramErrorKind::Forbidden, "this agent does not start programs: its setting `applications` is off"))
    }

    /// Accepts an order: its record is on disk before any reply.
    async fn accept(self: Rc<Self>, program: Rc<Program>) {
        let of = program.report.borrow().program;
        let record = program.record.borrow().clone();
        let written = match make_folder(&program.folder) {
            Ok(()) => record.write(&program.folder).await,
            Err(error) => Err(error),
        };
        if let Err(error) = written {
            self.by_ref.borrow_mut().remove(&of);
            let why = refusal(ProgramErrorKind::Spawn, format!("cannot write the record of the program: {error}"));
            let report = over(of, ProgramState::Refused, why);
            self.refused_by_ref.borrow_mut().insert(of, report.clone());
            self.send(FromNode::Programs(vec![report]));
            self.one_is_over();
            return;
        }
        self.say(&program);
        life::live(self, program).await;
    }

    /// Handles an order to end. An unknown program is reported as lost.
    pub fn exit(&self, of: ProgramRef, grace_ms: u64, reason: &str) {
        match self.get(&of) {
            Some(program) if program.is_over() => {
                program.said_in.set(0);
                program.changed.notify_one();
            }
            Some(program) => {
                log::info!("broker ordered a program to end run_id={} instance={} reason={reason}", of.identity, of.instance);
                program.end(grace_ms, "exit");
            }
            None => {
                let unknown = || over(of, ProgramState::Lost, refusal(ProgramErrorKind::Lost, "this program is unknown to this agent"));
                let report = self.refused_by_ref.borrow().get(&of).cloned().unwrap_or_else(unknown);
                self.send(FromNode::Programs(vec![report]));
            }
        }
    }

    /// The broker has stored the reports of these programs; those that have ended are forgotten.
    pub fn settled(&self, programs: &[ProgramRef]) {
        for of in programs {
            self.refused_by_ref.borrow_mut().remove(of);
            if let Some(program) = self.get(of).filter(|program| program.is_over()) {
                program.is_settled.set(true);
                program.changed.notify_one();
            }
        }
        self.changed.notify_waiters();
    }

    /// The broker has stored the lines before this one.
    pub fn taken(&self, of: &ProgramRef, next: u64) {
        if let Some(program) = self.get(of) {
            let before = program.taken.get();
            program.lacks_lines.set(next <= before);
            program.taken.set(before.max(next));
            program.changed.notify_one();
        }
    }

    /// A session has begun: all reports are sent again.
    pub fn connected(&self, outbox: UnboundedSender<FromNode>) {
        *self.outbox.borrow_mut() = Some(outbox);
        self.sessions.set(self.sessions.get() + 1);
        let mut reports: Vec<ProgramReport> = self.refused_by_ref.borrow().values().cloned().collect();
        for program in self.by_ref.borrow().values() {
            if !program.is_over() {
                reports.push(program.report.borrow().clone());
            }
            program.changed.notify_one();
        }
        if !reports.is_empty() {
            self.send(FromNode::Programs(reports));
        }
    }

    /// The session has ended.
    pub fn disconnected(&self) {
        *self.outbox.borrow_mut() = None;
    }

    /// The number of the session; `None` without one.
    fn session(&self) -> Option<u64> {
        self.outbox.borrow().as_ref().map(|_| self.sessions.get())
    }

    fn send(&self, message: FromNode) {
        if let Some(outbox) = &*self.outbox.borrow() {
            // A message lost with an ending session is sent again in the next.
            let _ = outbox.send(message);
        }
    }

    fn say(&self, program: &Program) {
        self.send(FromNode::Programs(vec![program.report.borrow().clone()]));
    }

    fn packages(&self) -> &Packages {
        &self.packages
    }

    /// A program has ended, which began at these times. See [`trace::program`].
    fn trace(&self, program: &Program, times: (Timestamp, Option<Timestamp>), last: &ProgramReport) {
        trace::program(self.sink.as_ref(), &program.record.borrow().order, self.node, times, last);
    }

    fn one_is_over(&self) {
        self.last_end.set(Instant::now());
        self.changed.notify_waiters();
    }

    fn forget(&self, program: &Program) {
        self.by_ref.borrow_mut().remove(&program.report.borrow().program);
        self.changed.notify_waiters();
    }

    /// All programs that run, or whose end the broker has not acknowledged.
    #[must_use]
    pub fn list(&self) -> Vec<ProgramRef> {
        self.by_ref.borrow().keys().chain(self.refused_by_ref.borrow().keys()).copied().collect()
    }

    /// Number of programs that have not ended.
    #[must_use]
    pub fn at_work(&self) -> usize {
        self.by_ref.borrow().values().filter(|program| !program.is_over()).count()
    }

    /// Accepts no new programs from now on.
    pub fn close(&self, why: &str) {
        self.closed.borrow_mut().get_or_insert_with(|| why.to_owned());
    }

    /// Asks all programs to end, each within its own grace.
    pub fn end_all(&self) {
        for program in self.by_ref.borrow().values().filter(|program| !program.is_over()) {
            let grace = program.record.borrow().order.grace;
            program.end(grace, "agent");
        }
    }

    /// Whether programs keep running when the agent stops.
    #[must_use]
    pub fn are_kept(&self) -> bool {
        self.settings.at_stop == AtStop::Keep
    }

    /// The longest time until all programs that were asked to end have ended.
    #[must_use]
    pub fn longest_grace(&self) -> Duration {
        let by_ref = self.by_ref.borrow();
        let graces = by_ref.values().filter(|program| !program.is_over()).map(|program| program.record.borrow().order.grace);
        graces.max().map_or(Duration::ZERO, |ms| Duration::from_millis(ms) + AFTER_GRACE)
    }

    /// When the last program ended.
    #[must_use]
    pub fn last_end(&self) -> Instant {
        self.last_end.get()
    }

    /// Waits until no program is running.
    pub async fn all_over(&self) {
        self.until(|| self.at_work() == 0).await;
    }

    /// Waits until the broker has acknowledged the end of every program.
    pub async fn all_settled(&self) {
        self.until(|| self.list().is_empty()).await;
    }

    async fn until(&self, is_so: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            if is_so() {
                return;
            }
            changed.await;
        }
    }
}

fn over(program: ProgramRef, state: ProgramState, error: ProgramError) -> ProgramReport {
    ProgramReport { program, state, at: Timestamp::now(), error: Some(error), pid: None, exit: None }
}

/// Creates a folder that other users may not read: programs and their orders may contain secrets.
fn make_folder(folder: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    let Some(home) = folder.parent() else { return Err(std::io::ErrorKind::InvalidInput.into()) };
    private::make_folder(home)?;
    match std::fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    launch::sync_dir(home)
}

/// Only the packages.
#[cfg(test)]
pub fn packages_for_tests(config: &AgentConfig, data_dir: &std::path::Path) -> Packages {
    Packages::new(config, data_dir)
}
