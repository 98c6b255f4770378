//! Log lines are printed, and sent as well.

use super::Telemetry;
use crate::domain::time::Timestamp;
use log::{Level, Log, Metadata, Record};
use std::cell::Cell;
use std::sync::OnceLock;

/// Maximum number of bytes of a line.
const MOST_TEXT: usize = 4 << 10;

static SENT_TO: OnceLock<Telemetry> = OnceLock::new();

thread_local! {
    /// The lines of this thread are about the sending itself.
    static IS_SENDER: Cell<bool> = const { Cell::new(false) };
}

/// A log line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) at: Timestamp,
    pub(super) level: Level,
    /// The module that wrote it.
    pub(super) target: String,
    pub(super) text: String,
}

impl Line {
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.target.len() + self.text.len()
    }
}

/// A logger that sends the lines that another one prints.
#[derive(Debug)]
pub struct Tee<L>(pub L);

impl<L: Log> Log for Tee<L> {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.0.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        self.0.log(record);
        let Some(telemetry) = SENT_TO.get().filter(|_| !IS_SENDER.get()) else { return };
        if self.0.enabled(record.metadata()) {
            telemetry.line(|| line(record, Timestamp::now()));
        }
    }

    fn flush(&self) {
        self.0.flush();
    }
}

/// From now on the lines go there as well.
pub(super) fn send_to(telemetry: Telemetry) {
    // The first one stays: a process has one log.
    let _ = SENT_TO.set(telemetry);
}

/// The lines of this thread are not sent: sending them would make more of them.
pub(super) fn is_sender() {
    IS_SENDER.set(true);
}

fn line(record: &Record<'_>, at: Timestamp) -> Line {
    let mut text = record.args().to_string();
    text.truncate(text.floor_char_boundary(MOST_TEXT));
    Line { at, level: record.level(), target: record.target().to_owned(), text }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_bounded() {
        let text = "ö".repeat(MOST_TEXT);
        let long = line(&Record::builder().args(format_args!("x{text}")).level(Level::Warn).target("t").build(), Timestamp(5));
        assert_eq!((long.text.len(), long.level, long.target.as_str(), long.at), (MOST_TEXT - 1, Level::Warn, "t", Timestamp(5)));
    }
}
