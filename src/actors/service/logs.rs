//! Logs of runs: taken in within bounds, read, and followed while a run works.
//!
//! Not every line is stored: that a run was made, began and ended well stands in its row, and the lines that say so are
//! made when the log is read. Ten thousand fires a second would else write twice as much.

use super::Service;
use crate::actors::reply::problem_of;
use crate::actors::run_logs::{ERROR, INFO, WARNING, check_lines, invalid_level, level_name, level_of};
use crate::domain::ids::Identity;
use crate::domain::run::Run;
use crate::domain::time::Timestamp;
use crate::protocol::log::LogInput;
use crate::protocol::management::{LogAccepted, LogLine, LogPage};
use crate::protocol::problem::Problem;
use crate::store::{GetRun, ListLogs, StoredLine};
use std::time::Duration;

/// A run that ended takes lines for so long after: what was under way is not lost. In milliseconds.
const LATE_MS: i64 = 3_600_000;
/// The id of the line that tells of the end: after all others, and still a whole number in every JSON reader.
const END_ID: i64 = (1 << 53) - 1;

/// Which lines to show.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Only those after the line of this id.
    pub after: Option<i64>,
    /// Only this level and worse, by name or number.
    pub level: Option<String>,
    /// Only those that contain this, without case.
    pub text: Option<String>,
    /// Only those of this instant and later.
    pub since: Option<Timestamp>,
    /// Only those of this instant and earlier.
    pub until: Option<Timestamp>,
    /// The most items in the answer.
    pub limit: usize,
    /// Wait so long for a line if there is none and the run is not over.
    pub wait: Duration,
}

/// The number of the level that a filter names; the lowest if it names none.
pub(super) fn level_number(level: Option<&str>) -> Result<i16, Problem> {
    level.map_or(Ok(0), |text| level_of(text).ok_or_else(|| invalid_level("level", text)))
}

impl LogFilter {
    /// Whether a line that the row tells is among those that are to be shown.
    pub(super) fn fits(&self, level: i16, (own, line): &(i16, LogLine)) -> bool {
        let says = self.text.as_ref().is_none_or(|text| line.text.to_lowercase().contains(&text.to_lowercase()));
        *own >= level && says && self.since.is_none_or(|at| line.at >= at) && self.until.is_none_or(|at| line.at <= at)
    }
}

fn shown(line: StoredLine) -> LogLine {
    let StoredLine { id, line } = line;
    LogLine { id, at: line.at, level: level_name(line.level), source: line.source, text: line.text }
}

/// The lines that stand in no log since the row of the run says the same: with id 0 those of its beginning.
pub(super) fn told_by_row(run: &Run) -> Vec<(i16, LogLine)> {
    let line = |id, at, level, text| (level, LogLine { id, at, level: level_name(level), source: "broker".to_owned(), text });
    let by = run.rules.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let made = match (run.planned_at, run.rules.after) {
        (Some(planned), _) => format!("made for {planned}{by}"),
        (None, Some(before)) => format!("made after run {before}"),
        (None, None) => format!("made by hand{by}"),
    };
    let mut lines = vec![line(0, run.creation_time, INFO, made)];
    lines.extend(run.start_time.map(|at| line(0, at, INFO, "the first attempt began".to_owned())));
    let worker = run.worker_id.map(|worker| format!(" at worker {worker}")).unwrap_or_default();
    lines.extend(run.finish_time.filter(|_| run.state.is_final()).map(|at| {
        let why = run.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        let level = match run.state {
            crate::domain::run::RunState::Failed => ERROR,
            crate::domain::run::RunState::Stopped => WARNING,
            _ => INFO,
        };
        line(END_ID, at, level, format!("ended: {}{worker}{why}", run.state.name()))
    }));
    lines
}

impl Service {
    pub(super) async fn run_row(&self, identity: Identity) -> Result<Run, Problem> {
        let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
        run.ok_or_else(|| Problem::not_found(format!("there is no run {identity}")))
    }

    /// Takes lines into the log of a run.
    ///
    /// # Errors
    /// There is no such run, it was over long ago, or a line is not allowed; then none is taken.
    pub async fn append_logs(&self, identity: Identity, input: Vec<LogInput>) -> Result<LogAccepted, Problem> {
        let now = Timestamp::now();
        let lines = check_lines(input, now)?;
        let run = self.run_row(identity).await?;
        if run.finish_time.is_some_and(|end| now.since_ms(end) > LATE_MS) {
            return Err(Problem::conflict("run-over", format!("run {identity} was over more than {LATE_MS} ms ago")));
        }
        self.context.take_lines(run.no, identity, lines, now).await
    }

    /// Reads the log of a run; waits for a line if asked to.
    ///
    /// # Errors
    /// There is no such run, or the filter is not understood.
    pub async fn logs(&self, identity: Identity, filter: LogFilter) -> Result<LogPage, Problem> {
        let level = level_number(filter.level.as_deref())?;
        let waiting = self.context.followers.wait_for(identity);
        let deadline = tokio::time::Instant::now() + filter.wait;
        loop {
            // From here on no ring is missed, whatever happens while the store is read.
            let ring = waiting.ring();
            // The row first: a line that was written before the end is not missed behind it.
            let run = self.run_row(identity).await?;
            let page = self.page_of(&run, level, &filter).await?;
            if !page.items.is_empty() || page.state.is_final() || filter.wait.is_zero() || self.context.followers.is_closed() {
                return Ok(page);
            }
            if tokio::time::timeout_at(deadline, ring).await.is_err() {
                return Ok(page);
            }
        }
    }

    /// A page of the log of a run whose row was read before.
    pub(super) async fn page_of(&self, run: &Run, level: i16, filter: &LogFilter) -> Result<LogPage, Problem> {
        let after = filter.after.unwrap_or(0);
        let query = ListLogs {
            run_no: run.no,
            after,
            level,
            text: filter.text.clone(),
            since: filter.since,
            until: filter.until,
            limit: filter.limit + 1,
        };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let (mut items, ends): (Vec<_>, Vec<_>) =
            told_by_row(run).into_iter().filter(|line| filter.fits(level, line)).map(|(_, line)| line).partition(|line| line.id == 0);
        if filter.after.is_some() {
            items.clear();
        }
        items.extend(rows.into_iter().map(shown));
        if !more {
            items.extend(ends.into_iter().filter(|line| line.id > after));
        }
        let next = items.iter().map(|line| line.id).max().unwrap_or(after).max(after);
        Ok(LogPage { items, next, more, state: run.state })
    }
}
