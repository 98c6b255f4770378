//! The proof, from a store file alone, that the ledger is the plan: every planned instant stands in it once, and nothing
//! else; and that ledger and runs fit together. The file is only read, also while a broker writes to it.

mod runs;

use super::dialect::{Conn, current as dialect};
use super::error::StoreError;
use super::schema::{fire, job, job_history, meta, plan};
use crate::domain::job::Properties;
use crate::domain::schedule::{self, Definition, Discrepancy, Entry, Kind, Overlap, PlanState, Policies, Schedule};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};
use std::path::Path;

/// Rows of the ledger that end before this instant may have been cleaned away.
const LEDGER_CLEANED_UNTIL: &str = "ledger_cleaned_until";

/// A store file, as it is at one moment.
pub struct History {
    conn: Conn,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Jobs that were looked at, deleted ones among them.
    pub jobs: u64,
    /// Planned instants that were looked at.
    pub planned_instants: u64,
    /// Where something does not fit.
    pub discrepancies: Vec<Finding>,
}

/// A place where something does not fit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The job.
    pub job_id: String,
    /// Its name.
    pub job_name: String,
    /// What does not fit, in one word: missing, extra, count, unreadable, run, state, overlap.
    pub check: &'static str,
    /// The same for people.
    pub detail: String,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("history")
    }
}

impl History {
    /// Opens a store file for reading, with or without a broker that has it open.
    ///
    /// # Errors
    /// It is no store, or cannot be read.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let mut conn = dialect::observer(path)?;
        if !dialect::has_table(&mut conn, "job")? {
            return Err(StoreError::Unusable(format!("Cannot open {}: it is no database of a broker.", path.display())));
        }
        Ok(Self { conn })
    }

    /// Looks at all jobs, or at those of this name or id.
    ///
    /// # Errors
    /// The file is no store of this version.
    pub fn verify(&mut self, name: Option<&str>) -> Result<Report, StoreError> {
        // One transaction: what a broker writes meanwhile is not half seen.
        self.conn.transaction(|conn| {
            let mut query = job::table.order((job::name, job::id)).select((job::id, job::name)).into_boxed();
            if let Some(name) = name {
                query = query.filter(job::name.eq(name).or(job::id.eq(name)));
            }
            let jobs: Vec<(String, String)> = query.load(conn)?;
            if let Some(name) = name.filter(|_| jobs.is_empty()) {
                return Err(StoreError::Failed(format!("there is no job `{name}`")));
            }
            let cleaned: Option<String> = meta::table.find(LEDGER_CLEANED_UNTIL).select(meta::value).get_result(conn).optional()?;
            let cleaned = cleaned.and_then(|text| text.parse::<i64>().ok()).map_or(i64::MIN, |until| until - 1);
            let mut report = Report::default();
            for (id, name) in jobs {
                let mut found = Found { id: &id, name: &name, report: &mut report };
                verify_job(conn, &mut found, Timestamp(cleaned))?;
                report.jobs += 1;
            }
            Ok(report)
        })
    }
}

/// Where what is found of one job goes.
struct Found<'a> {
    id: &'a str,
    name: &'a str,
    report: &'a mut Report,
}

impl Found<'_> {
    fn push(&mut self, check: &'static str, detail: String) {
        let (job_id, job_name) = (self.id.to_owned(), self.name.to_owned());
        self.report.discrepancies.push(Finding { job_id, job_name, check, detail });
    }
}

/// A job as it was at a change, as far as the proof needs it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Past {
    is_enabled: bool,
    is_deleted: bool,
    schedule: Option<Schedule>,
    policies: Option<Policies>,
    properties: Properties,
}

impl Past {
    /// A fire that finds a run of the job not over makes none.
    fn skips(&self) -> bool {
        let said = self.policies.as_ref().and_then(|policies| policies.overlap);
        let older = self.properties.get("Overlap").is_some().then(|| self.properties.allows_overlap().unwrap_or(true));
        match (said, older) {
            (Some(overlap), _) => overlap == Overlap::Skip,
            (None, Some(allows)) => !allows,
            (None, None) => self.schedule.as_ref().is_some_and(|s| !s.triggers.is_empty() || s.longest_silence.is_some()),
        }
    }
}

fn verify_job(conn: &mut Conn, found: &mut Found<'_>, cleaned: Timestamp) -> Result<(), StoreError> {
    let decided: Option<(i64, i64)> = plan::table.find(found.id).select((plan::decided_until, plan::fires)).get_result(conn).optional()?;
    let Some((decided_until, fires)) = decided else {
        found.push("unreadable", "it has no plan".to_owned());
        return Ok(());
    };
    let changes: Vec<(i64, String, i64, String)> = job_history::table
        .filter(job_history::job_id.eq(found.id))
        .order(job_history::id)
        .select((job_history::version, job_history::action, job_history::at, job_history::job))
        .load(conn)?;
    let (mut definitions, mut last) = (Vec::with_capacity(changes.len()), None);
    for (version, _, at, text) in &changes {
        match serde_json::from_str::<Past>(text) {
            Ok(past) => {
                definitions.push(Definition {
                    from: Timestamp(*at),
                    version: *version,
                    is_planned: past.is_enabled && !past.is_deleted,
                    schedule: past.schedule.clone().unwrap_or_default(),
                });
                last = Some((Timestamp(*at), past));
            }
            Err(e) => found.push("unreadable", format!("the change to version {version} cannot be read: {e}")),
        }
    }
    // Of a job that is older than its known changes, the time before them cannot be proved.
    let known_since = changes.first().filter(|(_, action, ..)| action != "created").map_or(i64::MIN, |(_, _, at, _)| *at);
    let entries = entries(conn, found)?;
    // A row that reaches over the edge was not cleaned away, and is proved as little as what lies before it.
    let edge = Timestamp(known_since.max(cleaned.0));
    let since = entries.iter().filter(|entry| entry.at <= edge).map(|entry| entry.until).max().map_or(edge, |until| until.max(edge));
    let looked_at: Vec<&Entry> = entries.iter().filter(|entry| entry.at > since && entry.kind != Kind::Outside).collect();
    found.report.planned_instants += looked_at.iter().map(|entry| entry.instants).sum::<u64>();
    if since.0 > i64::MIN {
        let own = |entry: &&&Entry| entry.is_fired && matches!(entry.kind, Kind::Plan | Kind::Asked | Kind::Silence);
        less(&mut definitions, (fires as u64).saturating_sub(looked_at.iter().filter(own).count() as u64));
    }
    // A store that no broker of this version has opened yet has no such column.
    let fired_until: Option<i64> = plan::table.find(found.id).select(plan::fired_until).get_result(conn).unwrap_or_default();
    let state = PlanState { decided_until: Timestamp(decided_until), fired_until: fired_until.map(Timestamp), ..PlanState::default() };
    for discrepancy in schedule::verify(&definitions, &entries, since, &state) {
        found.report.planned_instants += u64::from(matches!(discrepancy, Discrepancy::Missing { .. }));
        found.push(word(&discrepancy), discrepancy.to_string());
    }
    runs::verify(conn, found, since)?;
    if let Some((at, _)) = last.filter(|(_, past)| past.skips()) {
        runs::verify_overlap(conn, found, at)?;
    }
    Ok(())
}

/// Runs whose rows are gone count against what a plan may make at most.
fn less(definitions: &mut [Definition], gone: u64) {
    for definition in definitions {
        if let Some(most) = definition.schedule.max_fires {
            definition.schedule.max_fires = Some(most.saturating_sub(gone).max(1));
            definition.is_planned &= most > gone;
        }
    }
}

fn entries(conn: &mut Conn, found: &mut Found<'_>) -> Result<Vec<Entry>, StoreError> {
    let rows: Vec<(i64, i64, i64, String, String, i64)> = fire::table
        .filter(fire::job_id.eq(found.id))
        .order(fire::planned_at)
        .select((fire::planned_at, fire::planned_until, fire::instants, fire::kind, fire::verdict, fire::version))
        .load(conn)?;
    let mut entries = Vec::with_capacity(rows.len());
    for (at, until, instants, kind, verdict, version) in rows {
        let (at, until) = (Timestamp(at), Timestamp(until));
        match Kind::named(&kind) {
            Some(kind) => entries.push(Entry { at, until, instants: instants as u64, kind, is_fired: verdict == "fired", version }),
            None => found.push("unreadable", format!("the row of {at} is of no known kind: `{kind}`")),
        }
    }
    Ok(entries)
}

fn word(discrepancy: &Discrepancy) -> &'static str {
    match discrepancy {
        Discrepancy::Missing { .. } => "missing",
        Discrepancy::Extra { .. } => "extra",
        Discrepancy::Count { .. } => "count",
        Discrepancy::Unreadable { .. } => "unreadable",
    }
}
