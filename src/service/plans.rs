//! Future and past of a job's plan: previews, the ledger, the changes.

use super::Service;
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::schedule::{Plan, PlanState, Preview, Schedule, local, preview};
use crate::domain::time::Timestamp;
use crate::protocol::api::Page;
use crate::protocol::management::{FireOutput, JobChange, PreviewFire, PreviewInput, PreviewOutput};
use crate::protocol::problem::Problem;
use crate::store::{ListChanges, ListFires, OpenRunsOf, StoredChange, StoredFire};

/// Number of fires in a preview: the default and the upper limit.
const USUAL_COUNT: usize = 5;
const MOST_COUNT: usize = 1_000;

/// Selects the rows of a ledger.
#[derive(Debug, Clone, Default)]
pub struct FireFilter {
    /// Only rows from this time on.
    pub from: Option<Timestamp>,
    /// Only rows up to this time.
    pub to: Option<Timestamp>,
    /// One of fired, skipped, missed and merged.
    pub verdict: Option<String>,
    /// The cursor of the previous page.
    pub cursor: Option<String>,
    /// Maximum number of items in the answer.
    pub limit: usize,
}

fn check_count(count: Option<usize>) -> Result<usize, Problem> {
    match count {
        None => Ok(USUAL_COUNT),
        Some(n) if (1..=MOST_COUNT).contains(&n) => Ok(n),
        Some(n) => Err(Problem::invalid("count", format!("must be 1 to {MOST_COUNT}, not {n}"))),
    }
}

fn output(plan: &Plan, preview: Preview) -> PreviewOutput {
    let fire = |coming: crate::domain::schedule::Coming| PreviewFire {
        at: coming.next.at,
        local: local(coming.next.at, plan.zone()),
        kind: coming.next.kind.name().to_owned(),
        trigger: coming.next.trigger,
        note: coming.next.note,
        blackout: coming.blackout,
    };
    PreviewOutput {
        zone: plan.zone().name().to_owned(),
        understood: plan.understood(),
        fires: preview.fires.into_iter().map(fire).collect(),
        remarks: preview.remarks,
    }
}

/// The fires of a schedule that is not stored. Intervals without an anchor count from `after`.
///
/// # Errors
/// The schedule is invalid, or the count is out of range.
pub(super) fn preview_of(input: PreviewInput, now: Timestamp) -> Result<PreviewOutput, Problem> {
    let count = check_count(input.count)?;
    let after = input.after.unwrap_or(now);
    let has_cron = input.cron.is_some();
    let mut schedule = input.schedule;
    if let Some(cron) = input.cron {
        if !schedule.triggers.is_empty() {
            return Err(Problem::invalid("cron", "give either `cron` or `schedule.triggers`, not both"));
        }
        schedule.triggers = Schedule::of_cron(cron).triggers;
    }
    let unanchored = schedule.triggers.iter().any(|trigger| trigger.every.is_some() && trigger.anchor.is_none());
    schedule.anchor(after, None);
    let plan = schedule.compile().map_err(|e| match e.field.as_str() {
        "triggers[0].cron" if has_cron => Problem::invalid("cron", e.detail),
        field => Problem::invalid(format!("schedule.{field}"), e.detail),
    })?;
    let mut found = preview(&plan, &PlanState::new(after), false, after, count);
    if unanchored {
        found.remarks.push(format!("an interval without an anchor is counted from {after} here"));
    }
    Ok(output(&plan, found))
}

/// The API form of a row of the ledger.
fn fire(job_id: JobId, row: StoredFire) -> FireOutput {
    FireOutput {
        job_id,
        planned_at: row.planned_at,
        planned_until: (row.instants > 1).then_some(row.planned_until),
        instants: row.instants,
        kind: row.kind.name().to_owned(),
        verdict: row.verdict,
        rule: row.rule,
        reason: row.reason,
        identity: row.run,
        version: row.version,
        creation_time: row.creation_time,
    }
}

fn shown(change: StoredChange) -> JobChange {
    JobChange {
        id: change.id,
        job_id: change.job_id,
        version: change.version,
        action: change.action,
        by: change.by,
        at: change.at,
        job: serde_json::from_str(&change.job).unwrap_or_default(),
    }
}

fn read_cursor(text: Option<&str>) -> Result<Option<i64>, Problem> {
    text.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()
}

impl Service {
    /// The fires of a schedule.
    ///
    /// # Errors
    /// The schedule is invalid.
    pub fn preview(&self, input: PreviewInput) -> Result<PreviewOutput, Problem> {
        preview_of(input, Timestamp::now())
    }

    /// The next fires of a job's plan, in its current state.
    ///
    /// # Errors
    /// The job does not exist, or the count is out of range.
    pub async fn next_fires(&self, id: JobId, count: Option<usize>, after: Option<Timestamp>) -> Result<PreviewOutput, Problem> {
        let count = check_count(count)?;
        let (job, stored) = self.stored_job(id, false).await?;
        let plan = self.plan_of(job.schedule.as_ref())?;
        let open = self.context.store.read(OpenRunsOf(vec![id])).await.map_err(|e| problem_of(&e))?;
        // Times that are due and not decided yet are still in the future of the plan.
        let undecided = stored.state.decided_until;
        // Those of a disabled job that are past are never decided.
        let first = if job.is_enabled { undecided } else { undecided.max(Timestamp::now()) };
        let after = after.unwrap_or(first);
        let mut found = preview(&plan, &stored.state, !open.is_empty(), after, count);
        if !job.is_enabled {
            let why = job.disabled_reason.as_deref().map(|why| format!(" ({why})")).unwrap_or_default();
            found.remarks.insert(0, format!("the job is disabled{why}: none of this happens until it is enabled"));
        }
        Ok(output(&plan, found))
    }

    pub(super) fn plan_of(&self, schedule: Option<&Schedule>) -> Result<Plan, Problem> {
        let compiled = schedule.unwrap_or(&Schedule::default()).compile();
        compiled.map_err(|e| Problem::conflict("schedule", format!("the stored schedule is invalid: {e}")))
    }

    /// The ledger of a job, newest first.
    ///
    /// # Errors
    /// The job does not exist, or the filter is invalid.
    pub async fn fires(&self, id: JobId, filter: FireFilter) -> Result<Page<FireOutput>, Problem> {
        if let Some(verdict) = filter.verdict.as_deref().filter(|word| !["fired", "skipped", "missed", "merged"].contains(word)) {
            return Err(Problem::invalid("verdict", format!("must be fired, skipped, missed or merged, not `{verdict}`")));
        }
        if let (Some(from), Some(to)) = (filter.from, filter.to)
            && to < from
        {
            return Err(Problem::invalid("to", format!("must not be before `from`: {to} is earlier than {from}")));
        }
        let cursor = read_cursor(filter.cursor.as_deref())?.map(|at| Timestamp(at).plus_ms(-1));
        self.stored_job(id, true).await?;
        let to = [filter.to, cursor].into_iter().flatten().min();
        let query = ListFires { job_id: id, from: filter.from, to, verdict: filter.verdict, ascending: false, limit: filter.limit + 1 };
        let mut rows = self.context.store.read(query).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > filter.limit;
        rows.truncate(filter.limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.planned_at.0.to_string());
        Ok(Page { items: rows.into_iter().map(|row| fire(id, row)).collect(), next_cursor })
    }

    /// The changes of one job or of all jobs, newest first.
    ///
    /// # Errors
    /// The job does not exist, or the cursor is invalid.
    pub async fn changes(&self, job_id: Option<JobId>, cursor: Option<&str>, limit: usize) -> Result<Page<JobChange>, Problem> {
        let before = read_cursor(cursor)?;
        if let Some(id) = job_id {
            self.stored_job(id, true).await?;
        }
        let mut rows = self.context.store.read(ListChanges { job_id, before, limit: limit + 1 }).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|row| row.id.to_string());
        Ok(Page { items: rows.into_iter().map(shown).collect(), next_cursor })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::Trigger;

    #[test]
    fn a_preview_says_what_was_understood() {
        let out = preview_of(PreviewInput { cron: Some("*/5 * * * *".into()), count: Some(2), ..PreviewInput::default() }, Timestamp(0));
        let out = out.expect("a preview");
        assert_eq!(out.fires.iter().map(|fire| fire.at.0).collect::<Vec<_>>(), [300_000, 600_000]);
        assert_eq!((out.zone.as_str(), out.understood.len()), ("UTC", 1));
        assert!(out.fires[0].local.starts_with("1970-01-01T00:05:00"), "{}", out.fires[0].local);
        let every = Schedule { triggers: vec![Trigger { every: Some(1_000), ..Trigger::default() }], ..Schedule::default() };
        let input = PreviewInput { schedule: every, after: Some(Timestamp(500)), count: Some(1), ..PreviewInput::default() };
        let out = preview_of(input, Timestamp(0)).expect("a preview");
        assert_eq!(out.fires[0].at.0, 1_500);
        assert!(out.remarks[0].contains("without an anchor"));
    }

    #[test]
    fn a_preview_names_what_is_wrong() {
        let field = |input| preview_of(input, Timestamp(0)).map_err(|problem| problem.field.unwrap_or_default()).err();
        assert_eq!(field(PreviewInput { cron: Some("no".into()), ..PreviewInput::default() }).as_deref(), Some("cron"));
        assert_eq!(field(PreviewInput { count: Some(0), ..PreviewInput::default() }).as_deref(), Some("count"));
        let schedule = Schedule::of_cron("no");
        assert_eq!(field(PreviewInput { schedule, ..PreviewInput::default() }).as_deref(), Some("schedule.triggers[0].cron"));
        let both = PreviewInput { cron: Some("*/5 * * * *".into()), schedule: Schedule::of_cron("*/5 * * * *"), ..PreviewInput::default() };
        assert_eq!(field(both).as_deref(), Some("cron"));
    }
}
