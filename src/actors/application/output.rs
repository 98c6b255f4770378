//! Stores the output lines of the programs in the log of the run, each once.

use super::{Application, ApplicationActor};
use crate::actors::followers::Size;
use crate::actors::run_logs::cut_line;
use crate::actors::run_shell::Ctx;
use crate::domain::ids::NodeId;
use crate::domain::time::Timestamp;
use crate::protocol::application::ProgramOutput;
use crate::protocol::log::LogInput;
use crate::protocol::node::ToNode;
use crate::store::{LogSize, NewLine, TakeOutput};

const INFO: i16 = 2;
const WARNING: i16 = 3;

/// The stored form of a line: its source contains the instance and the stream.
fn kept(instance: u32, line: LogInput, now: Timestamp) -> NewLine {
    let is_error = line.source.as_deref() == Some("stderr");
    let (name, level) = if is_error { ("stderr", WARNING) } else { ("stdout", INFO) };
    NewLine { at: line.at.unwrap_or(now), level, source: format!("{instance}:{name}"), text: cut_line(line.text) }
}

impl ApplicationActor {
    pub(super) fn keep_output(&mut self, node: NodeId, output: ProgramOutput, ctx: &mut Ctx<Application>) {
        let (program, end) = (output.program, output.first.saturating_add(output.lines.len() as u64));
        let Some(nth) = self.meant(node, program) else {
            // The run does not expect this program. Acknowledge the lines, so that the node does not wait forever.
            self.tell_node(node, &ToNode::OutputTaken { program, next: end });
            return self.dismiss(node, program);
        };
        let next = self.kind.instances[nth].next_line;
        if output.first > next || end <= next {
            // A gap or a repeat: acknowledge what was stored so far.
            let stored = self.kind.instances[nth].stored_lines;
            return self.tell_node(node, &ToNode::OutputTaken { program, next: stored });
        }
        let run_no = self.run.no;
        if !self.context.followers.knows(run_no) {
            // The broker caches the sizes of some logs only, and this one may have many lines already.
            return Self::then(ctx, self.context.store.read(LogSize { run_no }), move |this, (lines, bytes), ctx| {
                this.context.followers.learn(run_no, Size::read(lines, bytes));
                this.keep_output(node, output, ctx);
            });
        }
        self.kind.instances[nth].next_line = end;
        let now = Timestamp::now();
        let new = output.lines.into_iter().skip((next - output.first) as usize);
        let mut lines: Vec<NewLine> = new.map(|line| kept(program.instance, line, now)).collect();
        let lengths: Vec<usize> = lines.iter().map(|line| line.text.len()).collect();
        // Lines that do not fit are counted and dropped, so that a program does not wait for a full log.
        let room = self.context.followers.make_room(self.run.no, &lengths);
        lines.truncate(room.taken);
        if room.filled {
            lines.push(NewLine { at: now, level: WARNING, source: "broker".to_owned(), text: crate::actors::followers::full() });
        }
        let is_more = !lines.is_empty();
        let write = TakeOutput { no: self.run.no, epoch: self.epoch, instance: program.instance, next: end, lines };
        Self::then(ctx, self.context.store.write_unbounded(write), move |this, (), _| {
            this.kind.instances[nth].stored_lines = end;
            this.tell_node(node, &ToNode::OutputTaken { program, next: end });
            if is_more {
                this.context.followers.ring(this.run.identity);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_where_it_comes_from() {
        let line = |text: &str, source: Option<&str>| {
            let input = LogInput { text: text.to_owned(), source: source.map(str::to_owned), level: None, at: None };
            kept(3, input, Timestamp(7))
        };
        assert_eq!((line("a", None).source, line("a", Some("stderr")).source), ("3:stdout".to_owned(), "3:stderr".to_owned()));
        assert_eq!(line("a", Some("broker")).source, "3:stdout", "a program does not speak for the broker");
        assert_eq!(line(&"ä".repeat(5_000), None).text.len(), 8_192);
        assert_eq!(line(&format!("a{}", "ä".repeat(5_000)), None).text.len(), 8_191, "whole characters");
    }
}
