//! Validates the reports of workers on their tasks.

use crate::domain::task::limits;
use crate::domain::time::Timestamp;
use crate::protocol::problem::Problem;
use crate::protocol::task::TaskReport;

/// Validates reports.
///
/// # Errors
/// A report is invalid.
pub fn check_reports(reports: &[TaskReport]) -> Result<(), Problem> {
    reports.iter().enumerate().try_for_each(|(i, report)| check_report(i, report))
}

fn check_report(i: usize, report: &TaskReport) -> Result<(), Problem> {
    if report.progress.is_some_and(|progress| progress > 100) {
        return Err(Problem::invalid(format!("[{i}].progress"), "must be 0 to 100"));
    }
    for (field, payload) in [("result", &report.result), ("data", &report.data)] {
        if payload.as_ref().is_some_and(|payload| payload.get().len() > limits::PAYLOAD) {
            return Err(Problem::invalid(format!("[{i}].{field}"), format!("must be at most {} bytes", limits::PAYLOAD)));
        }
    }
    if report.attempt == 0 {
        return Err(Problem::invalid(format!("[{i}].attempt"), "must be at least 1"));
    }
    crate::actors::run_logs::check_lines(report.logs.clone(), Timestamp::default()).map(drop).map_err(|problem| {
        let field = problem.field.clone().unwrap_or_default();
        problem.at(format!("[{i}].logs{field}"))
    })
}
