//! Validates the reports of workers on their tasks. In a message over a socket each report is validated alone: an invalid one does not
//! affect the others.

use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::protocol::push::read_object;
use crate::protocol::task::{TaskError, TaskRef, TaskReport, TaskState};
use serde::Deserialize;
use serde_json::value::RawValue;

/// Maximum number of invalid reports that the answer to a message describes.
const MOST_DESCRIBED: usize = 10;

/// The reports of a message.
#[derive(Debug, Default)]
pub struct ValidatedReports {
    /// Those to process. The last report of an attempt that is invalid is here as a failure, so that its attempt ends.
    pub reports: Vec<TaskReport>,
    /// Describes the invalid ones; `field` is the first of them.
    pub problem: Option<Problem>,
}

/// Validates reports that are accepted only together.
///
/// # Errors
/// A report is invalid.
pub fn check_reports(reports: &[TaskReport]) -> Result<(), Problem> {
    reports.iter().enumerate().try_for_each(|(i, report)| check_report(report).map_err(|problem| within(i, problem)))
}

/// Validates reports that were parsed.
#[must_use]
pub fn validate_reports(reports: Vec<TaskReport>) -> ValidatedReports {
    collect(reports.into_iter().map(validate_report))
}

fn validate_report(report: TaskReport) -> Result<TaskReport, Invalid> {
    match check_report(&report) {
        Ok(()) => Ok(report),
        Err(problem) => Err(Box::new((Some((report.task(), report.state)), problem))),
    }
}

/// Parses and validates the reports of a message that cannot be parsed as a whole. `None`: it is not a list of reports.
#[must_use]
pub fn read_reports(message: &[u8]) -> Option<ValidatedReports> {
    #[derive(Deserialize)]
    struct Message<'a> {
        t: &'a str,
        #[serde(borrow)]
        v: Vec<&'a RawValue>,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Subject {
        state: TaskState,
        #[serde(flatten)]
        task: TaskRef,
    }
    let message = serde_json::from_slice::<Message<'_>>(message).ok().filter(|message| message.t == "reports")?;
    let validate = |text: &RawValue| {
        let text = text.get().as_bytes();
        let report: TaskReport = read_object(text).map_err(|problem| {
            let subject = read_object::<Subject>(text).ok().map(|subject| (subject.task, subject.state));
            Box::new((subject, problem))
        })?;
        validate_report(report)
    };
    Some(collect(message.v.into_iter().map(validate)))
}

/// An invalid report: its attempt and state, if they can be read.
type Invalid = Box<(Option<(TaskRef, TaskState)>, Problem)>;

fn collect(validated: impl Iterator<Item = Result<TaskReport, Invalid>>) -> ValidatedReports {
    let (mut out, mut described) = (ValidatedReports::default(), Vec::new());
    let mut count = 0;
    for (i, validated) in validated.enumerate() {
        let (subject, problem) = match validated {
            Ok(report) => {
                out.reports.push(report);
                continue;
            }
            Err(invalid) => *invalid,
        };
        let ended = subject.and_then(|(task, state)| failure(task, state, &problem));
        let problem = within(i, problem);
        count += 1;
        if count <= MOST_DESCRIBED {
            let of = subject.map(|(task, _)| format!(" of run {} attempt {}", task.identity, task.attempt)).unwrap_or_default();
            let effect = if ended.is_some() { "its attempt ends with this error" } else { "it was ignored" };
            described.push(format!("report {}{of}: {}; {effect}", problem.field.as_deref().unwrap_or_default(), problem.detail));
        }
        out.reports.extend(ended);
        out.problem.get_or_insert(problem);
    }
    if let Some(problem) = &mut out.problem {
        if count > MOST_DESCRIBED {
            described.push(format!("{} more are invalid", count - MOST_DESCRIBED));
        }
        problem.detail = described.join(". ");
    }
    out
}

/// The report that ends the attempt instead of an invalid last report: its worker must not send that one again, and a repeated attempt
/// would report the same.
fn failure(task: TaskRef, state: TaskState, problem: &Problem) -> Option<TaskReport> {
    if !state.is_final() || task.attempt == 0 {
        return None;
    }
    let state = if state == TaskState::Success { TaskState::Failed } else { state };
    let field = problem.field.as_deref().map(|field| format!("`{field}`: ")).unwrap_or_default();
    let message = format!("the broker refused the worker's last report: {field}{}", problem.detail);
    let error = TaskError { message, stack: None, permanent: state == TaskState::Failed };
    Some(TaskReport {
        identity: task.identity,
        instance: task.instance,
        attempt: task.attempt,
        state,
        progress: None,
        text: None,
        result: None,
        error: Some(error),
        data: None,
        next_at: None,
        logs: Vec::new(),
    })
}

/// The problem of the report at this position of its message.
fn within(i: usize, problem: Problem) -> Problem {
    let field = match problem.field.as_deref() {
        None | Some("") => String::new(),
        Some(field) if field.starts_with('[') => field.to_owned(),
        Some(field) => format!(".{field}"),
    };
    problem.at(format!("[{i}]{field}"))
}

fn check_report(report: &TaskReport) -> Result<(), Problem> {
    if report.progress.is_some_and(|progress| progress > 100) {
        return Err(Problem::invalid("progress", "must be 0 to 100"));
    }
    for (field, payload) in [("result", &report.result), ("data", &report.data)] {
        if payload.as_ref().is_some_and(|payload| payload.get().len() > limits::PAYLOAD) {
            return Err(Problem::invalid(field, format!("must be at most {} bytes", limits::PAYLOAD)));
        }
    }
    if report.attempt == 0 {
        return Err(Problem::invalid("attempt", "must be at least 1"));
    }
    crate::actors::run_logs::check_lines(report.logs.clone(), Timestamp::default()).map(drop).map_err(|problem| {
        let field = problem.field.clone().unwrap_or_default();
        problem.at(format!("logs{field}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::Identity;
    use crate::protocol::worker::FromWorker;
    use serde_json::json;

    #[test]
    fn an_invalid_report_does_not_affect_the_others() {
        let runs = [(); 7].map(|()| Identity::random());
        let report = |i: usize, state: &str, more: serde_json::Value| {
            let mut report = json!({ "identity": runs[i], "attempt": 1, "state": state });
            report.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
            report
        };
        let message = json!({ "t": "reports", "v": [
            report(0, "success", json!({ "result": 1 })),
            report(1, "running", json!({ "progress": 400 })),
            report(2, "success", json!({ "nextAt": "soon" })),
            report(3, "success", json!({ "result": "x".repeat(limits::PAYLOAD) })),
            report(4, "refused", json!({ "error": "not an object" })),
            report(5, "done", json!({})),
            "no object",
            report(6, "running", json!({ "progress": 7 })),
        ] })
        .to_string();
        assert!(serde_json::from_str::<FromWorker>(&message).is_err(), "it cannot be parsed as a whole");
        let ValidatedReports { reports, problem } = read_reports(message.as_bytes()).expect("a list of reports");
        let kept: Vec<_> =
            reports.iter().map(|report| (report.identity, report.state, report.error.as_ref().map(|e| e.permanent))).collect();
        let expected = [
            (runs[0], TaskState::Success, None),
            (runs[2], TaskState::Failed, Some(true)),
            (runs[3], TaskState::Failed, Some(true)),
            (runs[4], TaskState::Refused, Some(false)),
            (runs[6], TaskState::Running, None),
        ];
        assert_eq!(kept, expected);
        let why = |i: usize| reports[i].error.as_ref().expect("an error").message.clone();
        assert!(why(1).contains("last report: `nextAt`: "), "{}", why(1));
        assert_eq!(why(2), "the broker refused the worker's last report: `result`: must be at most 262144 bytes");
        let problem = problem.expect("a problem");
        assert_eq!(problem.field.as_deref(), Some("[1].progress"));
        for part in [
            format!("report [1].progress of run {} attempt 1: ", runs[1]),
            format!("report [3].result of run {} attempt 1: must be at most 262144 bytes; its attempt ends with this error", runs[3]),
            "report [5].state: ".to_owned(),
            "report [6]: ".to_owned(),
        ] {
            assert!(problem.detail.contains(&part), "{part} in {}", problem.detail);
        }
        assert!(!problem.detail.contains("[0]") && !problem.detail.contains("[7]"), "{}", problem.detail);
    }

    #[test]
    fn parsed_reports_are_validated_in_the_same_way() {
        let report = |attempt: u32, state: &str, progress: u8| {
            let text = json!({ "identity": Identity::random(), "attempt": attempt, "state": state, "progress": progress });
            serde_json::from_value::<TaskReport>(text).expect("a report")
        };
        let ValidatedReports { reports, problem } =
            validate_reports(vec![report(1, "running", 200), report(0, "success", 1), report(1, "failed", 200), report(1, "success", 9)]);
        let states: Vec<_> = reports.iter().map(|report| report.state).collect();
        assert_eq!(states, [TaskState::Failed, TaskState::Success], "an attempt 0 is none that could end");
        assert_eq!(problem.and_then(|problem| problem.field).as_deref(), Some("[0].progress"));
        assert!(validate_reports(vec![report(1, "success", 9)]).problem.is_none());
        let many = (0..13).map(|_| report(1, "running", 101)).collect();
        let detail = validate_reports(many).problem.expect("a problem").detail;
        assert!(detail.contains("report [9].progress") && !detail.contains("[10]") && detail.ends_with("3 more are invalid"), "{detail}");
    }

    #[test]
    fn another_message_is_not_a_list_of_reports() {
        for text in [r#"{"t":"watch","v":[]}"#, r#"{"t":"reports","v":{}}"#, "{", r#"{"t":"reports"}"#] {
            assert!(read_reports(text.as_bytes()).is_none(), "{text}");
        }
    }
}
