//! Verifies that ledger and plan agree: recomputes the plan from the job's definitions; every fire of it must be in the ledger
//! exactly once, and nothing else.

use super::Schedule;
use super::plan::{Kind, Plan, PlanState};
use crate::domain::time::Timestamp;

/// A definition of a job and its start.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Fires after this time follow it.
    pub from: Timestamp,
    /// The version of the job.
    pub version: i64,
    /// It is enabled and not deleted.
    pub is_planned: bool,
    /// Its schedule.
    pub schedule: Schedule,
}

/// A row of the ledger, with the fields that the check needs.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The scheduled time, or the first of several.
    pub at: Timestamp,
    /// The last of several.
    pub until: Timestamp,
    /// How many fires the row covers.
    pub instants: u64,
    /// Why it was scheduled.
    pub kind: Kind,
    /// It made a run.
    pub is_fired: bool,
    /// The version of the job when it was decided.
    pub version: i64,
}

/// A difference between ledger and plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discrepancy {
    /// In the plan, but not in the ledger.
    Missing {
        /// The scheduled time.
        at: Timestamp,
        /// The version of the job whose plan contains it.
        version: i64,
    },
    /// In the ledger, but not in the plan.
    Extra {
        /// The scheduled time.
        at: Timestamp,
    },
    /// A row covers a number of fires that differs from the plan.
    Count {
        /// The first of them.
        at: Timestamp,
        /// The number in the row.
        said: u64,
        /// The number in the plan.
        planned: u64,
    },
    /// The plan of a version cannot be compiled.
    Unreadable {
        /// The version.
        version: i64,
        /// The reason.
        detail: String,
    },
}

impl std::fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { at, version } => write!(f, "{at} is planned by version {version} and not in the ledger"),
            Self::Extra { at } => write!(f, "{at} is in the ledger and not planned"),
            Self::Count { at, said, planned } => write!(f, "the row of {at} covers {said} instants, and the plan has {planned}"),
            Self::Unreadable { version, detail } => write!(f, "the schedule of version {version} cannot be compiled: {detail}"),
        }
    }
}

/// Compares a ledger, ordered by time, with the definitions of its job, ordered by version. Fires up to and including `since` are
/// ignored (they may have been removed by retention), and so are fires after the end of `state`.
#[must_use]
pub fn verify(definitions: &[Definition], entries: &[Entry], since: Timestamp, state: &PlanState) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    let decided_until = state.decided_until;
    // A plan that made its last run before the clock went back stays over in the repeated time.
    let all_fired = entries.iter().filter(|entry| entry.is_fired && counts(entry.kind)).count() as u64;
    let is_over_again = |plan: &Plan, at: Timestamp| {
        state.fired_until.is_some_and(|until| at <= until) && plan.max_fires().is_some_and(|most| all_fired >= most)
    };
    let mut entries = entries.iter().filter(|entry| entry.at > since).peekable();
    let mut fires = 0;
    for (i, definition) in definitions.iter().enumerate() {
        let end = definitions.get(i + 1).map_or(decided_until, |next| next.from.min(decided_until));
        let plan = match definition.schedule.compile() {
            Ok(plan) => plan,
            Err(error) => {
                found.push(Discrepancy::Unreadable { version: definition.version, detail: error.to_string() });
                continue;
            }
        };
        let mut cursor = definition.from.max(since);
        loop {
            let is_over = !definition.is_planned || plan.max_fires().is_some_and(|most| fires >= most);
            let planned = if is_over { None } else { plan.named_after(cursor).filter(|next| next.at <= end) };
            // Rows before the next fire belong to another plan, or should not exist.
            let horizon = planned.as_ref().map_or(end, |next| next.at.plus_ms(-1));
            while let Some(entry) = entries.next_if(|entry| entry.at <= horizon) {
                let is_own = entry.kind != Kind::Plan || definition.is_planned && plan.has_rests();
                // After the clock went back, a change may lie before fires that were decided already.
                let is_older = entry.version < definition.version && was_planned(definitions, entry);
                if !is_own && !is_older {
                    found.push(Discrepancy::Extra { at: entry.at });
                }
                fires += u64::from(entry.is_fired && counts(entry.kind));
            }
            let Some(planned) = planned else { break };
            if plan.max_fires().is_some_and(|most| fires >= most) {
                continue;
            }
            cursor = planned.at;
            match entries.next_if(|entry| entry.at == planned.at) {
                None if is_over_again(&plan, planned.at) => {}
                None => found.push(Discrepancy::Missing { at: planned.at, version: definition.version }),
                Some(entry) if entry.instants == 1 => fires += u64::from(entry.is_fired && counts(entry.kind)),
                Some(entry) => {
                    let mut count = 1;
                    while let Some(next) = plan.named_after(cursor).filter(|next| next.at <= entry.until) {
                        cursor = next.at;
                        count += 1;
                    }
                    if count != entry.instants {
                        found.push(Discrepancy::Count { at: entry.at, said: entry.instants, planned: count });
                    }
                }
            }
        }
    }
    // Rows without a definition for their time, except those that made a run before the clock went back.
    let is_extra = |entry: &&Entry| counts(entry.kind) && !(entry.at > decided_until && is_fired_ahead(definitions, entry));
    found.extend(entries.filter(is_extra).map(|entry| Discrepancy::Extra { at: entry.at }));
    found
}

/// Whether it made a run under the plan of that time.
fn is_fired_ahead(definitions: &[Definition], entry: &Entry) -> bool {
    entry.is_fired && (entry.kind != Kind::Plan || was_planned(definitions, entry))
}

/// Whether the row was in the plan of its version.
fn was_planned(definitions: &[Definition], entry: &Entry) -> bool {
    let definition = definitions.iter().find(|definition| definition.version == entry.version && definition.is_planned);
    let plan = definition.and_then(|definition| definition.schedule.compile().ok());
    plan.is_some_and(|plan| plan.has_rests() || plan.named_after(entry.at.plus_ms(-1)).is_some_and(|next| next.at == entry.at))
}

/// Whether a run of this kind counts towards the maximum number of runs.
fn counts(kind: Kind) -> bool {
    matches!(kind, Kind::Plan | Kind::Asked | Kind::Silence)
}
