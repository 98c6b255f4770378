//! Sends the output of a program in order: first its lines, one window at a time, then the report that it has ended.

use super::Programs;
use super::launch::spool::{Line, Tail};
use super::one::Program;
use crate::protocol::application::ProgramOutput;
use crate::protocol::log::LogInput;
use crate::protocol::node::FromNode;
use std::rc::Rc;
use std::time::{Duration, Instant};

/// Maximum number of lines in one message.
const BATCH_LINES: usize = 500;
/// Lines that were lost are sent again after this time at the earliest: until then acknowledgements of what was sent before arrive.
const SEND_AGAIN: Duration = Duration::from_secs(5);

/// Reads the output of one program and forwards it.
pub struct Teller {
    programs: Rc<Programs>,
    program: Rc<Program>,
    tail: Tail,
    /// The session in which the last lines were sent.
    session: u64,
    /// When lines were last sent again.
    sought: Option<Instant>,
}

impl Teller {
    /// Starts at the first line on disk; the broker reports which lines it already has.
    pub fn new(programs: Rc<Programs>, program: Rc<Program>) -> Self {
        let tail = Tail::new(&program.folder);
        Self { programs, program, tail, session: 0, sought: None }
    }

    /// Sends everything that the window allows.
    pub fn tell(&mut self) {
        let Some(session) = self.programs.session() else { return };
        let taken = self.program.taken.get();
        let sends_again = self.program.lacks_lines.get() && self.sought.is_none_or(|at| at.elapsed() >= SEND_AGAIN);
        if self.session != session || self.tail.next() < taken || sends_again {
            (self.session, self.sought) = (session, Some(Instant::now()));
            self.program.lacks_lines.set(false);
            // Start after the stored lines: messages in flight may be lost when a session breaks off, or when the broker rebuilds an actor.
            if let Err(error) = self.tail.seek(taken) {
                log::error!("cannot read the output of a program folder={} error={error}", self.program.folder.display());
                return;
            }
        }
        self.tail.forget(taken);
        let window = self.programs.settings.inner.window_lines;
        // Check this before reading lines: if it has ended, all its output is there.
        let is_over = self.program.is_over();
        while let Some(room) = (taken.max(self.window_start()) + window).checked_sub(self.tail.next()).filter(|&room| room > 0) {
            let first = self.tail.next();
            let lines = match self.tail.read(BATCH_LINES.min(usize::try_from(room).unwrap_or(BATCH_LINES))) {
                Ok(lines) => lines,
                Err(error) => {
                    log::error!("cannot read the output of a program folder={} error={error}", self.program.folder.display());
                    return;
                }
            };
            if lines.is_empty() {
                if is_over && self.program.said_in.get() != session {
                    self.program.said_in.set(session);
                    self.programs.say(&self.program);
                }
                return;
            }
            let program = self.program.report.borrow().program;
            self.programs.send(FromNode::Output(ProgramOutput { program, first, lines: lines.into_iter().map(line).collect() }));
        }
    }

    /// After a restart of the agent, the first line on disk: the agent does not know yet which lines the broker stored.
    fn window_start(&self) -> u64 {
        self.tail.first()
    }
}

fn line(line: Line) -> LogInput {
    LogInput { text: line.text, level: None, source: Some(line.source.name().to_owned()), at: Some(line.at) }
}
