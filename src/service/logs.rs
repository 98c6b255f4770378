//! Logs of runs: stored within limits, read, and streamed while a run is active.
//!
//! Not every line is stored. The row of a run records its creation, its begin and its success, and the matching lines are
//! generated when the log is read. Otherwise ten thousand fires per second would write twice as much.

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
use tokio::time::Instant;

/// A run accepts lines for this long after its end, so that late lines are not lost. In milliseconds.
const LATE_MS: i64 = 3_600_000;
/// The id of the line for the end: greater than all others, and still exact in every JSON reader.
const END_ID: i64 = (1 << 53) - 1;

/// Selects the lines to show.
#[derive(Debug, Clone, Default)]
pub struct LogFilter {
    /// Only lines after the line with this id.
    pub after: Option<i64>,
    /// Only this level and more severe ones, by name or number.
    pub level: Option<String>,
    /// Only lines that contain this text; case is ignored.
    pub text: Option<String>,
    /// Only lines from this time on.
    pub since: Option<Timestamp>,
    /// Only lines up to this time.
    pub until: Option<Timestamp>,
    /// Maximum number of items in the answer.
    pub limit: usize,
    /// How long to wait for a line if there is none and the run is active.
    pub wait: Duration,
}

/// The number of the level in a filter; the lowest if there is none.
pub(super) fn level_number(level: Option<&str>) -> Result<i16, Problem> {
    level.map_or(Ok(0), |text| level_of(text).ok_or_else(|| invalid_level("level", text)))
}

impl LogFilter {
    /// Whether a line derived from the row matches the filter.
    pub(super) fn fits(&self, level: i16, (own, line): &(i16, LogLine)) -> bool {
        let says = self.text.as_ref().is_none_or(|text| line.text.to_lowercase().contains(&text.to_lowercase()));
        *own >= level && says && self.since.is_none_or(|at| line.at >= at) && self.until.is_none_or(|at| line.at <= at)
    }
}

fn shown(line: StoredLine) -> LogLine {
    let StoredLine { id, line } = line;
    LogLine { id, at: line.at, level: level_name(line.level), source: line.source, text: line.text }
}

/// The ids of the lines for the creation and the begin of a run: less than those of all lines that are stored.
const MADE_ID: i64 = -1;
pub(super) const BEGUN_ID: i64 = 0;
/// Between two looks of a broker that does not lead: it is not notified of what the leader writes.
const LOOK: Duration = Duration::from_millis(500);

/// Lines that are not stored in the log, because the run's row contains the same facts.
pub(super) fn told_by_row(run: &Run) -> Vec<(i16, LogLine)> {
    let line = |id, at, level, text| (level, LogLine { id, at, level: level_name(level), source: "broker".to_owned(), text });
    let by = run.rules.by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    let made = match (run.planned_at, run.rules.after) {
        (Some(planned), _) => format!("made for {planned}{by}"),
        (None, Some(before)) => format!("made after run {before}"),
        (None, None) => format!("triggered{by}"),
    };
    let mut lines = vec![line(MADE_ID, run.creation_time, INFO, made)];
    lines.extend(run.start_time.map(|at| line(BEGUN_ID, at, INFO, "the first attempt began".to_owned())));
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

    /// Stores lines in the log of a run.
    ///
    /// # Errors
    /// The run does not exist, ended long ago, or a line is invalid; then no line is stored.
    pub async fn append_logs(&self, identity: Identity, input: Vec<LogInput>) -> Result<LogAccepted, Problem> {
        let now = Timestamp::now();
        let lines = check_lines(input, now)?;
        let run = self.run_row(identity).await?;
        if run.finish_time.is_some_and(|end| now.since_ms(end) > LATE_MS) {
            return Err(Problem::conflict("run-over", format!("run {identity} ended more than {LATE_MS} ms ago")));
        }
        self.context.take_lines(run.no, identity, lines, now).await
    }

    /// Reads the log of a run, and waits for a line if requested.
    ///
    /// # Errors
    /// The run does not exist, or the filter is invalid.
    pub async fn logs(&self, identity: Identity, filter: LogFilter) -> Result<LogPage, Problem> {
        let level = level_number(filter.level.as_deref())?;
        let waiting = self.context.followers.wait_for(identity);
        let deadline = Instant::now() + filter.wait;
        loop {
            // Notifications from here on are not missed, even during the reads from the store.
            let ring = waiting.ring();
            // Read the row first, so that a line written before the end is not missed.
            let run = self.run_row(identity).await?;
            let page = self.page_of(&run, level, &filter).await?;
            if !page.items.is_empty() || page.state.is_final() || filter.wait.is_zero() || self.context.followers.is_closed() {
                return Ok(page);
            }
            let look = if self.must_lead().is_ok() { deadline } else { deadline.min(Instant::now() + LOOK) };
            if tokio::time::timeout_at(look, ring).await.is_err() && look == deadline {
                return Ok(page);
            }
        }
    }

    /// A page of the log of a run whose row was read before.
    pub(super) async fn page_of(&self, run: &Run, level: i16, filter: &LogFilter) -> Result<LogPage, Problem> {
        let after = filter.after.unwrap_or(MADE_ID - 1);
        let query = ListLogs {
            run_no: run.no,
            after: after.max(BEGUN_ID),
            level,
            text: filter.text.clone(),
            since: filter.since,
            until: filter.until,
            limit: filter.limit + 1,
        };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let told = told_by_row(run).into_iter().filter(|line| line.1.id > after && filter.fits(level, line)).map(|(_, line)| line);
        let (mut items, ends): (Vec<_>, Vec<_>) = told.partition(|line| line.id <= BEGUN_ID);
        items.extend(rows.into_iter().map(shown));
        if !more {
            items.extend(ends);
        }
        let next = items.iter().map(|line| line.id).max().unwrap_or(after).max(MADE_ID);
        Ok(LogPage { items, next, more, state: run.state })
    }
}
