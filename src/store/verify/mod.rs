//! Verifies a store file: every scheduled time of the plan must be in the ledger exactly once, and nothing else; and ledger and runs
//! must agree. The file is only read, even while a broker writes to it.

mod runs;

use super::dialect::{self, Conn};
use super::error::StoreError;
use super::schema::{fire, job, job_history, meta, plan};
use crate::domain::database::DatabaseAddress;
use crate::domain::job::Properties;
use crate::domain::schedule::{self, Definition, Discrepancy, Entry, Kind, Overlap, PlanState, Policies, Schedule};
use crate::domain::time::Timestamp;
use diesel::prelude::*;
use serde::{Deserialize, Serialize};

/// Ledger rows that end before this time may have been deleted.
const LEDGER_CLEANED_UNTIL: &str = "ledger_cleaned_until";

/// A snapshot of a store file.
pub struct History {
    conn: Conn,
}

/// The result.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Number of checked jobs, including deleted ones.
    pub jobs: u64,
    /// Number of checked scheduled times.
    pub planned_instants: u64,
    /// The inconsistencies.
    pub discrepancies: Vec<Finding>,
}

/// An inconsistency.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// The job.
    pub job_id: String,
    /// Its name.
    pub job_name: String,
    /// The kind: missing, extra, count, unreadable, run, state, overlap.
    pub check: &'static str,
    /// The same as a text for people.
    pub detail: String,
}

impl std::fmt::Debug for History {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("history")
    }
}

impl History {
    /// Opens a store read-only, even if a broker has it open.
    ///
    /// # Errors
    /// It is not a store, or cannot be read.
    pub fn open(address: &DatabaseAddress) -> Result<Self, StoreError> {
        let mut conn = dialect::observer(address)?;
        if !dialect::has_table(&mut conn, "job")? {
            return Err(StoreError::Unusable(format!("Cannot open {address}: it is not a database of a broker.")));
        }
        super::copy::check_finished(&mut conn, address)?;
        Ok(Self { conn })
    }

    /// Checks all jobs, or those with this name or id.
    ///
    /// # Errors
    /// The file is not a store of this version.
    pub fn verify(&mut self, name: Option<&str>) -> Result<Report, StoreError> {
        // One transaction, so that concurrent writes of a broker are never partly visible.
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

/// Collects the findings for one job.
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

/// A job after a change, with the columns that the verification needs.
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
    /// Whether a fire makes no run while another run of the job is open.
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
    // For a job that is older than its stored changes, the time before them cannot be verified.
    let known_since = changes.first().filter(|(_, action, ..)| action != "created").map_or(i64::MIN, |(_, _, at, _)| *at);
    let entries = entries(conn, found)?;
    // A row that spans the edge was not deleted, but cannot be verified, like everything before the edge.
    let edge = Timestamp(known_since.max(cleaned.0));
    let since = entries.iter().filter(|entry| entry.at <= edge).map(|entry| entry.until).max().map_or(edge, |until| until.max(edge));
    let looked_at: Vec<&Entry> = entries.iter().filter(|entry| entry.at > since && entry.kind != Kind::Outside).collect();
    found.report.planned_instants += looked_at.iter().map(|entry| entry.instants).sum::<u64>();
    if since.0 > i64::MIN {
        let own = |entry: &&&Entry| entry.is_fired && matches!(entry.kind, Kind::Plan | Kind::Asked | Kind::Silence);
        less(&mut definitions, (fires as u64).saturating_sub(looked_at.iter().filter(own).count() as u64));
    }
    // A store that no broker of this version has opened yet lacks this column.
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

/// Deleted runs count towards the maximum number of runs of a plan.
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
            None => found.push("unreadable", format!("the row of {at} has the unknown kind `{kind}`")),
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
