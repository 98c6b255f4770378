//! The schedule of a job: triggers, time zone and bounds, in the form that people write. [`Plan`] is its compiled form.

mod agenda;
mod ahead;
mod blackout;
mod decide;
pub mod job_core;
mod plan;
mod policies;
mod preview;
mod settle;
mod ticker;
mod verify;
mod why;

pub use ahead::{AHEAD_MS, Ahead, decide_ahead, may_be_ahead, withdrawn};
pub use blackout::Blackout;
pub use decide::{Circumstances, FireOutcome, Open, Row, SMALL_STEP_MS, Step, decide};
pub use job_core::{JobCore, JobPorts, Move, RunEnd};
pub use plan::{Kind, Next, Plan, PlanState};
pub use policies::{Keep, Misfire, MisfirePolicy, Overlap, Policies, Retry};
pub use preview::{Coming, Preview, local, preview};
pub use settle::{RunEndEffects, changed, settle};
pub use ticker::{Ticker, Turn};
pub use verify::{Definition, Discrepancy, Entry, verify};
pub use why::{Answer, Recorded, Rule, Sight, explain, explain_unrecorded};

use super::cron::{Cron, Dialect};
use super::time::{Timestamp, span_text};
use super::zone::{FoldRule, GapRule, Zone, ZoneRules};
use serde::{Deserialize, Serialize};

/// Maximum number of triggers of one job.
pub const MOST_TRIGGERS: usize = 32;
/// Maximum number of blackouts of one job.
pub const MOST_BLACKOUTS: usize = 64;
/// The shortest interval, in milliseconds. With a shorter one a broker would do little else than write ledger rows.
pub const SHORTEST_INTERVAL: u64 = 100;
/// The longest duration that a schedule may contain, in milliseconds: 100 years.
pub const LONGEST: u64 = 100 * 366 * 86_400_000;

/// When a job runs. Without a trigger: only by hand, or when its last run requested it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Schedule {
    /// Each of them makes the job run; a time that two of them name counts once.
    pub triggers: Vec<Trigger>,
    /// The IANA name of the time zone for cron expressions and blackouts; UTC if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// How numbers of weekdays are counted: `crontab` (0 and 7 are Sunday) or `quartz` (1 is Sunday).
    #[serde(skip_serializing_if = "is_default")]
    pub dialect: Dialect,
    /// How to handle local times that the zone skips: `skip`, `after` or `shift`. See docs/operations.md for the default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapRule>,
    /// How to handle local times that occur twice: `first`, `second` or `both`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fold: Option<FoldRule>,
    /// No fires before this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start_at: Option<Timestamp>,
    /// No fires after this time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_at: Option<Timestamp>,
    /// The maximum number of runs that the plan makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_fires: Option<u64>,
    /// The maximum time between two fires in milliseconds, even if a run requested a later time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub longest_silence: Option<u64>,
    /// Times at which it does not run.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub blackouts: Vec<Blackout>,
}

/// One trigger. Exactly one of `cron`, `every` and `at` is set.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Trigger {
    /// A cron expression of 5, 6 (seconds first) or 7 (years last) fields, or a name like `@daily`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron: Option<String>,
    /// An interval in milliseconds; 0: run once, then disable the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub every: Option<u64>,
    /// The start of the interval: fire k is at anchor + k · every. The time of creation if absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub anchor: Option<Timestamp>,
    /// The interval counts from the end of the last run instead.
    #[serde(skip_serializing_if = "is_default")]
    pub after_end: bool,
    /// A single time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<Timestamp>,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// An invalid schedule, with the invalid part.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {detail}")]
pub struct InvalidSchedule {
    /// The path of the invalid part: `triggers[0].cron`.
    pub field: String,
    /// What is wrong with it.
    pub detail: String,
}

impl InvalidSchedule {
    fn new(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self { field: field.into(), detail: detail.into() }
    }

    /// A duration that is shorter than `least` or longer than [`LONGEST`].
    fn out_of_range(field: impl Into<String>, ms: u64, least: u64) -> Self {
        Self::new(field, format!("must be {} to {}, not {}", span_text(least), span_text(LONGEST), span_text(ms)))
    }
}

impl Schedule {
    /// Its first cron expression.
    #[must_use]
    pub fn first_cron(&self) -> Option<&str> {
        self.triggers.iter().find_map(|trigger| trigger.cron.as_deref())
    }

    /// A schedule of one cron expression.
    #[must_use]
    pub fn of_cron(cron: impl Into<String>) -> Self {
        Self { triggers: vec![Trigger { cron: Some(cron.into()), ..Trigger::default() }], ..Self::default() }
    }

    /// Sets missing anchors: an interval without an anchor gets the current time, or the anchor that the same interval had before,
    /// so that a job keeps its rhythm when it is deployed again.
    pub fn anchor(&mut self, now: Timestamp, before: Option<&Self>) {
        for trigger in self.triggers.iter_mut().filter(|t| t.every.is_some() && t.anchor.is_none()) {
            let same = |old: &&Trigger| old.every == trigger.every && old.after_end == trigger.after_end;
            let old = before.and_then(|before| before.triggers.iter().find(same)).and_then(|old| old.anchor);
            // A job that runs once fires right after its creation.
            let usual = if trigger.every == Some(0) { now.plus_ms(1) } else { now };
            trigger.anchor = Some(old.unwrap_or(usual));
        }
    }

    /// The clock went back to `to`, and this schedule was stored at `at`, after that: intervals with an anchor in the future keep their
    /// rhythm, but begin before it.
    pub fn set_back(&mut self, to: Timestamp, at: Timestamp) {
        for trigger in &mut self.triggers {
            if let (Some(every @ 1..), Some(anchor)) = (trigger.every, trigger.anchor.filter(|anchor| *anchor > to && *anchor <= at)) {
                let (every, ahead) = (every.min(LONGEST) as i64, anchor.since_ms(to));
                trigger.anchor = Some(anchor.plus_ms(-(ahead + every - 1) / every * every));
            }
        }
    }

    /// Compiles the schedule.
    ///
    /// # Errors
    /// A part of it is not allowed, or conflicts with another part.
    pub fn compile(&self) -> Result<Plan, InvalidSchedule> {
        let zone = match self.zone.as_deref() {
            None => Zone::utc(),
            Some(name) => Zone::named(name).map_err(|e| InvalidSchedule::new("zone", e.to_string()))?,
        };
        if self.triggers.len() > MOST_TRIGGERS {
            return Err(InvalidSchedule::new("triggers", format!("must be at most {MOST_TRIGGERS} triggers")));
        }
        if self.blackouts.len() > MOST_BLACKOUTS {
            return Err(InvalidSchedule::new("blackouts", format!("must be at most {MOST_BLACKOUTS} blackouts")));
        }
        if let (Some(start), Some(end)) = (self.start_at, self.end_at)
            && end < start
        {
            return Err(InvalidSchedule::new("endAt", format!("the end {end} is before the start {start}")));
        }
        if self.max_fires == Some(0) {
            return Err(InvalidSchedule::new("maxFires", "must be 1 or more: to stop the schedule, disable the job"));
        }
        if let Some(ms) = self.longest_silence.filter(|ms| !(SHORTEST_INTERVAL..=LONGEST).contains(ms)) {
            return Err(InvalidSchedule::out_of_range("longestSilence", ms, SHORTEST_INTERVAL));
        }
        let mut triggers = Vec::with_capacity(self.triggers.len());
        for (i, trigger) in self.triggers.iter().enumerate() {
            triggers.push(self.compile_trigger(i, trigger)?);
        }
        let mut blackouts = Vec::with_capacity(self.blackouts.len());
        for (i, blackout) in self.blackouts.iter().enumerate() {
            blackouts.push(blackout.compile().map_err(|(part, detail)| InvalidSchedule::new(format!("blackouts[{i}].{part}"), detail))?);
        }
        Ok(Plan {
            triggers,
            zone,
            rules: ZoneRules { gap: self.gap, fold: self.fold },
            start_at: self.start_at,
            end_at: self.end_at,
            max_fires: self.max_fires,
            longest_silence: self.longest_silence.map(|ms| ms as i64),
            blackouts,
        })
    }

    fn compile_trigger(&self, i: usize, trigger: &Trigger) -> Result<plan::Compiled, InvalidSchedule> {
        let wrong = |part: &str, detail: String| InvalidSchedule::new(format!("triggers[{i}].{part}"), detail);
        match (&trigger.cron, trigger.every, trigger.at) {
            (Some(cron), None, None) if trigger.anchor.is_none() && !trigger.after_end => {
                let cron = Cron::parse(cron, self.dialect).map_err(|e| wrong("cron", e.to_string()))?;
                Ok(plan::Compiled::Cron(Box::new(cron)))
            }
            (None, Some(0), None) if !trigger.after_end => Ok(plan::Compiled::Once(trigger.anchor.unwrap_or_default())),
            (None, Some(ms), None) if (SHORTEST_INTERVAL..=LONGEST).contains(&ms) => {
                let (period, anchor) = (ms as i64, trigger.anchor.unwrap_or_default());
                Ok(if trigger.after_end { plan::Compiled::AfterEnd { period } } else { plan::Compiled::Every { period, anchor } })
            }
            (None, Some(ms), None) => Err(InvalidSchedule::out_of_range(format!("triggers[{i}].every"), ms, SHORTEST_INTERVAL)),
            (None, None, Some(at)) if trigger.anchor.is_none() && !trigger.after_end => Ok(plan::Compiled::At(at)),
            (None, None, None) => Err(wrong("cron", "a trigger needs one of `cron`, `every` and `at`".to_owned())),
            (cron, every, at) if [cron.is_some(), every.is_some(), at.is_some()].iter().filter(|is| **is).count() > 1 => {
                Err(wrong("cron", "a trigger has only one of `cron`, `every` and `at`; several triggers are several entries".to_owned()))
            }
            _ => Err(wrong("anchor", "`anchor` and `afterEnd` go with `every` only".to_owned())),
        }
    }

    /// Whether it runs once and the job is then disabled (`every` 0).
    #[must_use]
    pub fn is_once(&self) -> bool {
        self.triggers.iter().any(|trigger| trigger.every == Some(0))
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
