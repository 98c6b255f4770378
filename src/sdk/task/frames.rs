//! Packs reports into messages: many in one, within the broker's size limit.

use super::logs::{MOST_BYTES, MOST_LINES};
use crate::protocol::frame;
use crate::protocol::task::TaskReport;
use serde::Serialize;

/// Bytes of results, data and lines of one message. The broker's limit is one megabyte; the largest single report has three quarters of
/// that.
const MOST: usize = 256 << 10;
/// Reports per message.
const MOST_REPORTS: usize = 2_000;

/// `FromWorker::Reports`, from borrowed reports.
#[derive(Serialize)]
struct Reports<'a> {
    t: &'static str,
    v: &'a [&'a TaskReport],
}

/// The messages for these reports, in their order.
pub(super) fn frames(reports: &[&TaskReport]) -> Vec<String> {
    let mut frames = Vec::new();
    let mut begin = 0;
    let (mut lines, mut line_bytes, mut bytes) = (0, 0, 0);
    for (at, report) in reports.iter().enumerate() {
        let (more_lines, more_line_bytes) = (report.logs.len(), report.logs.iter().map(|line| line.text.len()).sum::<usize>());
        let more = more_line_bytes + size(report);
        let is_full = lines + more_lines > MOST_LINES
            || line_bytes + more_line_bytes > MOST_BYTES
            || bytes + more > MOST
            || at - begin >= MOST_REPORTS;
        if at > begin && is_full {
            frames.push(frame::text(&Reports { t: "reports", v: &reports[begin..at] }));
            (begin, lines, line_bytes, bytes) = (at, 0, 0, 0);
        }
        lines += more_lines;
        line_bytes += more_line_bytes;
        bytes += more;
    }
    if begin < reports.len() {
        frames.push(frame::text(&Reports { t: "reports", v: &reports[begin..] }));
    }
    frames
}

/// The approximate size of a report, in bytes, without its lines.
fn size(report: &TaskReport) -> usize {
    let json = [&report.result, &report.data].into_iter().flatten().map(|json| json.get().len()).sum::<usize>();
    let error = report.error.as_ref().map_or(0, |error| error.message.len() + error.stack.as_ref().map_or(0, String::len));
    json + error + report.text.as_ref().map_or(0, String::len) + 120
}

#[cfg(test)]
mod tests {
    use super::super::context::report;
    use super::*;
    use crate::domain::ids::Identity;
    use crate::protocol::log::LogInput;
    use crate::protocol::task::{TaskRef, TaskState};
    use crate::protocol::worker::FromWorker;

    fn some(n: usize, of: impl Fn() -> TaskReport) -> Vec<TaskReport> {
        (0..n).map(|_| of()).collect()
    }

    fn counts(reports: &[TaskReport]) -> Vec<usize> {
        let frames = frames(&reports.iter().collect::<Vec<_>>());
        let count = |text: &String| match frame::read::<FromWorker>(text.as_bytes()).expect("a message of the protocol") {
            FromWorker::Reports(reports) => reports.len(),
            other => panic!("{other:?}"),
        };
        frames.iter().map(count).collect()
    }

    fn one() -> TaskReport {
        report(TaskRef { identity: Identity::random(), instance: 0, attempt: 1 }, TaskState::Running)
    }

    #[test]
    fn many_reports_are_one_message_of_the_protocol_and_large_ones_are_not() {
        assert_eq!(counts(&[]), [] as [usize; 0]);
        assert_eq!(counts(&some(100, one)), [100]);
        let large = || TaskReport { result: serde_json::value::to_raw_value(&"x".repeat(100_000)).ok(), ..one() };
        assert_eq!(counts(&some(5, large)), [2, 2, 1]);
        let line = || LogInput { text: "x".to_owned(), ..LogInput::default() };
        let talks = || TaskReport { logs: (0..400).map(|_| line()).collect(), ..one() };
        assert_eq!(counts(&some(5, talks)), [2, 2, 1]);
    }
}
