//! Unsent lines of a task's log. The buffer is limited: when the broker is unreachable or a task logs too much, the oldest lines are
//! dropped.

use crate::domain::time::Timestamp;
use crate::protocol::log::{LogInput, LogLevel};
use std::collections::VecDeque;

/// Lines per message.
pub(super) const MOST_LINES: usize = 1_000;
/// Bytes of the lines per message.
pub(super) const MOST_BYTES: usize = 64 << 10;
/// Maximum number of unsent lines.
const MOST_WAITING: usize = 10_000;
/// Maximum bytes of unsent lines.
const MOST_WAITING_BYTES: usize = 8 << 20;
/// Maximum bytes of one line: the broker's limit.
const MOST_TEXT: usize = 8_192;

/// The unsent lines.
#[derive(Debug, Default)]
pub(super) struct Logs {
    lines: VecDeque<LogInput>,
    bytes: usize,
    dropped: u64,
}

impl Logs {
    pub(super) fn is_empty(&self) -> bool {
        self.lines.is_empty() && self.dropped == 0
    }

    pub(super) fn push(&mut self, level: &str, mut text: String, at: Timestamp) {
        if text.len() > MOST_TEXT {
            let cut = (0..=MOST_TEXT).rev().find(|at| text.is_char_boundary(*at)).unwrap_or_default();
            text.truncate(cut);
        }
        self.bytes += text.len();
        self.lines.push_back(LogInput { text, level: Some(LogLevel::Name(level.to_owned())), source: None, at: Some(at) });
        while self.lines.len() > MOST_WAITING || self.bytes > MOST_WAITING_BYTES {
            let Some(oldest) = self.lines.pop_front() else { break };
            self.bytes -= oldest.text.len();
            self.dropped += 1;
        }
    }

    /// The lines of the next message; empty if there are none.
    pub(super) fn take(&mut self) -> Vec<LogInput> {
        let (mut taken, mut bytes) = (Vec::new(), 0);
        if self.dropped > 0 {
            let text = format!("{} lines were dropped here: more came than could be sent", std::mem::take(&mut self.dropped));
            let at = self.lines.front().and_then(|line| line.at);
            taken.push(LogInput { text, level: Some(LogLevel::Name("warning".to_owned())), source: None, at });
        }
        while taken.len() < MOST_LINES && self.lines.front().is_some_and(|line| bytes + line.text.len() <= MOST_BYTES) {
            let Some(line) = self.lines.pop_front() else { break };
            bytes += line.text.len();
            taken.push(line);
        }
        self.bytes -= bytes;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_bounded_in_lines_and_in_bytes() {
        let mut logs = Logs::default();
        (0..1_500).for_each(|n| logs.push("info", n.to_string(), Timestamp(n)));
        assert_eq!((logs.take().len(), logs.take().len(), logs.take().len()), (1_000, 500, 0));
        (0..20).for_each(|n| logs.push("info", "x".repeat(10_000), Timestamp(n)));
        assert_eq!(logs.take().len(), 8, "of 8,192 bytes each");
        assert!(!logs.is_empty());
    }

    #[test]
    fn the_oldest_are_dropped_and_counted() {
        let mut logs = Logs::default();
        (0..10_007).for_each(|n| logs.push("info", n.to_string(), Timestamp(n)));
        let first = logs.take();
        assert!(first[0].text.starts_with("7 lines were dropped"), "{}", first[0].text);
        assert_eq!((first[1].text.as_str(), first.len()), ("7", 1_000));
        while !logs.is_empty() {
            logs.take();
        }
        assert_eq!(logs.bytes, 0);
    }
}
