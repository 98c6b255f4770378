//! The proof that ledger and plan agree: the plan is worked out again from the job's definitions, and every instant of it
//! must stand in the ledger once, and nothing else.

use super::Schedule;
use super::plan::{Kind, Plan, PlanState};
use crate::domain::time::Timestamp;

/// How a job was defined from a moment on.
#[derive(Debug, Clone)]
pub struct Definition {
    /// Instants after this one are planned by it.
    pub from: Timestamp,
    /// The version of the job.
    pub version: i64,
    /// It is enabled and not deleted.
    pub is_planned: bool,
    /// Its schedule.
    pub schedule: Schedule,
}

/// A row of the ledger, as far as the proof needs it.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The instant, or the first of several.
    pub at: Timestamp,
    /// The last of several.
    pub until: Timestamp,
    /// How many.
    pub instants: u64,
    /// Why it was planned.
    pub kind: Kind,
    /// It made a run.
    pub is_fired: bool,
    /// The version of the job that it was decided under.
    pub version: i64,
}

/// A place where ledger and plan do not agree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Discrepancy {
    /// The plan has it, the ledger has not.
    Missing {
        /// The instant.
        at: Timestamp,
        /// The version of the job whose plan has it.
        version: i64,
    },
    /// The ledger has it, the plan has not.
    Extra {
        /// The instant.
        at: Timestamp,
    },
    /// A row says that it covers so many instants, and the plan has others.
    Count {
        /// The first of them.
        at: Timestamp,
        /// What the row says.
        said: u64,
        /// What the plan has.
        planned: u64,
    },
    /// The plan of a version cannot be worked out.
    Unreadable {
        /// The version.
        version: i64,
        /// Why.
        detail: String,
    },
}

impl std::fmt::Display for Discrepancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Missing { at, version } => write!(f, "{at} is planned by version {version} and not in the ledger"),
            Self::Extra { at } => write!(f, "{at} is in the ledger and not planned"),
            Self::Count { at, said, planned } => write!(f, "the row of {at} covers {said} instants, and the plan has {planned}"),
            Self::Unreadable { version, detail } => write!(f, "the schedule of version {version} cannot be worked out: {detail}"),
        }
    }
}

/// Compares a ledger, in the order of time, with the definitions of its job, in the order of their versions. Instants up
/// to and with `since` are not looked at (they may have been cleaned away), nor are those after the end of `state`.
#[must_use]
pub fn verify(definitions: &[Definition], entries: &[Entry], since: Timestamp, state: &PlanState) -> Vec<Discrepancy> {
    let mut found = Vec::new();
    let decided_until = state.decided_until;
    // A plan that made its last run before the clock went back is over in the time that comes again.
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
            // Rows before the next planned instant were planned otherwise, or should not be there.
            let horizon = planned.as_ref().map_or(end, |next| next.at.plus_ms(-1));
            while let Some(entry) = entries.next_if(|entry| entry.at <= horizon) {
                let is_own = entry.kind != Kind::Plan || definition.is_planned && plan.has_rests();
                // A clock that went back may have put a change before what was decided already.
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
    // Rows of a time that no definition is for, but for those that made a run before a clock that went back.
    let is_extra = |entry: &&Entry| counts(entry.kind) && !(entry.at > decided_until && is_fired_ahead(definitions, entry));
    found.extend(entries.filter(is_extra).map(|entry| Discrepancy::Extra { at: entry.at }));
    found
}

/// It made a run by the plan that held then.
fn is_fired_ahead(definitions: &[Definition], entry: &Entry) -> bool {
    entry.is_fired && (entry.kind != Kind::Plan || was_planned(definitions, entry))
}

/// Whether the version that a row was decided under has its instant.
fn was_planned(definitions: &[Definition], entry: &Entry) -> bool {
    let definition = definitions.iter().find(|definition| definition.version == entry.version && definition.is_planned);
    let plan = definition.and_then(|definition| definition.schedule.compile().ok());
    plan.is_some_and(|plan| plan.has_rests() || plan.named_after(entry.at.plus_ms(-1)).is_some_and(|next| next.at == entry.at))
}

/// Whether a run of this kind is one of those that the plan may make.
fn counts(kind: Kind) -> bool {
    matches!(kind, Kind::Plan | Kind::Asked | Kind::Silence)
}
