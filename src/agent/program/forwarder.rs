//! What a program has to say, in its order: first its lines, a window full at a time, then that it is over.

use super::Programs;
use super::launch::spool::{Line, Tail};
use super::one::Program;
use crate::protocol::application::ProgramOutput;
use crate::protocol::log::LogInput;
use crate::protocol::node::FromNode;
use std::rc::Rc;

/// Lines of one message.
const BATCH_LINES: usize = 500;

/// Reads the output of one program, and passes it on.
pub struct Teller {
    programs: Rc<Programs>,
    program: Rc<Program>,
    tail: Tail,
    /// What was sent in this session.
    session: u64,
}

impl Teller {
    /// From the first line that is still there: which of them the broker has, it says itself.
    pub fn new(programs: Rc<Programs>, program: Rc<Program>) -> Self {
        let tail = Tail::new(&program.folder);
        Self { programs, program, tail, session: 0 }
    }

    /// Sends what may be sent now.
    pub fn tell(&mut self) {
        let Some(session) = self.programs.session() else { return };
        let taken = self.program.taken.get();
        if self.session != session || self.tail.next() < taken {
            self.session = session;
            // In a new session from what was taken: what was on its way when the last one broke off may be lost.
            if let Err(error) = self.tail.seek(taken) {
                log::error!("the output of a program cannot be read folder={} error={error}", self.program.folder.display());
                return;
            }
        }
        self.tail.forget(taken);
        let window = self.programs.settings.inner.window_lines;
        // Before the lines are read: all that it wrote is there then.
        let is_over = self.program.is_over();
        while let Some(room) = (taken.max(self.window_start()) + window).checked_sub(self.tail.next()).filter(|&room| room > 0) {
            let first = self.tail.next();
            let lines = match self.tail.read(BATCH_LINES.min(usize::try_from(room).unwrap_or(BATCH_LINES))) {
                Ok(lines) => lines,
                Err(error) => {
                    log::error!("the output of a program cannot be read folder={} error={error}", self.program.folder.display());
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

    /// After a restart of the agent, the first line that is still there: it does not know yet what was taken.
    fn window_start(&self) -> u64 {
        self.tail.first()
    }
}

fn line(line: Line) -> LogInput {
    LogInput { text: line.text, level: None, source: Some(line.source.name().to_owned()), at: Some(line.at) }
}
