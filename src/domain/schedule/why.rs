//! Explains why a scheduled time made a run or not. Each rule of the ledger has its sentence here.

use super::plan::Kind;
use super::policies::{MisfirePolicy, Overlap, Policies};
use crate::domain::time::Timestamp;

/// An explanation: keywords for programs, sentences for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// fired, skipped, missed, merged, planned, notPlanned, disabled, forgotten.
    pub verdict: String,
    /// The rule.
    pub rule: String,
    /// The explanation, sentence by sentence.
    pub because: Vec<String>,
}

impl Answer {
    pub(crate) fn new(verdict: impl Into<String>, rule: impl Into<String>, because: Vec<String>) -> Self {
        Self { verdict: verdict.into(), rule: rule.into(), because }
    }
}

/// The rules in the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rule {
    /// It was on time.
    Due,
    /// The last run had requested a later time.
    Asked,
    /// A blackout covers it.
    Blackout,
    /// It was older than the misfire window.
    Window,
    /// It was late, and the misfire policy decided.
    Misfire,
    /// It was late, and the limit of late fires was exceeded.
    Limit,
    /// Another run was not over, and the overlap policy decided.
    Overlap,
    /// An external scheduler triggered it.
    Told,
    /// A backfill requested a past time again.
    Backfill,
    /// Triggered externally while the job was disabled.
    JobDisabled,
    /// Triggered externally, and later than the job allows.
    Stale,
    /// Triggered externally while another run was not over.
    StillRunning,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 12] = [
        Self::Due,
        Self::Asked,
        Self::Blackout,
        Self::Window,
        Self::Misfire,
        Self::Limit,
        Self::Overlap,
        Self::Told,
        Self::Backfill,
        Self::JobDisabled,
        Self::Stale,
        Self::StillRunning,
    ];

    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Due => "due",
            Self::Asked => "asked",
            Self::Blackout => "blackout",
            Self::Window => "window",
            Self::Misfire => "misfire",
            Self::Limit => "limit",
            Self::Overlap => "overlap",
            Self::Told => "told",
            Self::Backfill => "backfill",
            Self::JobDisabled => "job-disabled",
            Self::Stale => "stale",
            Self::StillRunning => "still-running",
        }
    }

    /// The rule with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|rule| rule.name() == name)
    }
}

/// The fields of a ledger row that the explanation needs.
#[derive(Debug, Clone)]
pub struct Recorded<'a> {
    /// The scheduled time, or the first of several.
    pub planned_at: Timestamp,
    /// The last of several.
    pub planned_until: Timestamp,
    /// How many fires the row covers.
    pub instants: u64,
    /// Why it was scheduled.
    pub kind: Kind,
    /// fired, skipped, missed, merged.
    pub verdict: &'a str,
    /// The rule that decided, if it was recorded.
    pub rule: Option<&'a str>,
    /// The same as a text for people.
    pub reason: Option<&'a str>,
    /// When it was decided.
    pub decided_at: Timestamp,
    /// The version of the job when it was decided.
    pub version: i64,
}

/// Explains a row of the ledger; `policies` are the job's, if they have not changed since the decision.
#[must_use]
pub fn explain(row: &Recorded<'_>, policies: Option<&Policies>) -> Answer {
    let late = row.decided_at.since_ms(row.planned_at);
    let mut because = vec![origin(row.kind, row.planned_at)];
    if row.instants > 1 {
        because.push(format!("One ledger row covers {} scheduled times from {} to {}.", row.instants, row.planned_at, row.planned_until));
    }
    let when = if late < 0 { format!("{} ms ahead of its time", -late) } else { format!("{late} ms after its time") };
    because.push(format!("It was decided at {} ({when}), under version {} of the job.", row.decided_at, row.version));
    because.push(match row.rule.map(|name| (name, Rule::named(name))) {
        Some((_, Some(rule))) => sentence(rule, row.verdict),
        Some((name, None)) => format!("The rule `{name}` decided: {}.", outcome(row.verdict)),
        None => format!("The ledger of that version kept no rule: {}.", outcome(row.verdict)),
    });
    if let Some(reason) = row.reason.filter(|reason| !reason.is_empty()) {
        because.push(format!("Recorded with it: {reason}."));
    }
    if let (Some(policies), Some(rule)) = (policies, row.rule.and_then(Rule::named)) {
        because.extend(policy(rule, policies));
    }
    Answer::new(row.verdict, row.rule.unwrap_or("unrecorded"), because)
}

fn origin(kind: Kind, at: Timestamp) -> String {
    match kind {
        Kind::Plan => format!("A trigger of the job's schedule named {at}."),
        Kind::Asked => format!("The previous run requested {at}."),
        Kind::Silence => format!("The longest silence that the schedule allows was over at {at}."),
        Kind::Outside => format!("An external scheduler triggered {at}."),
        Kind::Backfill => format!("A backfill requested the past time {at} again."),
    }
}

fn outcome(verdict: &str) -> &'static str {
    match verdict {
        "fired" => "it made a run",
        "skipped" => "it made no run",
        "missed" => "it came too late to make a run",
        "merged" => "it was merged into another run",
        _ => "its outcome is not known to this version",
    }
}

fn sentence(rule: Rule, verdict: &str) -> String {
    let outcome = outcome(verdict);
    match rule {
        Rule::Due => format!("It was due and within the grace period: {outcome}."),
        Rule::Asked => format!("The previous run had requested another time, which replaces the plan once: {outcome}."),
        Rule::Blackout => format!("A blackout of the schedule covers it: {outcome}."),
        Rule::Window => format!("It was older than the misfire window, after which fires are not made up for: {outcome}."),
        Rule::Misfire => format!("It was later than the grace period, so the misfire policy decided: {outcome}."),
        Rule::Limit => format!("More fires were late than the misfire policy makes up for: {outcome}."),
        Rule::Overlap => format!("Another run of the job was not over, so the overlap policy decided: {outcome}."),
        Rule::Told => format!("An external trigger makes a run at once if the job accepts it: {outcome}."),
        Rule::Backfill => format!("A backfill requests times that made no run: {outcome}."),
        Rule::JobDisabled => format!("The job was disabled when it was triggered: {outcome}."),
        Rule::Stale => format!("It was triggered later than the job's property StaleAfter allows: {outcome}."),
        Rule::StillRunning => format!("Another run of the job was not over when it was triggered: {outcome}."),
    }
}

/// Describes the policy that decided.
fn policy(rule: Rule, policies: &Policies) -> Option<String> {
    let misfire = &policies.misfire;
    let kind = match misfire.policy {
        MisfirePolicy::Once => "`once`: one run for all that were late",
        MisfirePolicy::Skip => "`skip`: no run for what is late",
        MisfirePolicy::All => "`all`: a run for each, up to the limit",
    };
    match rule {
        Rule::Window | Rule::Misfire | Rule::Limit => Some(format!(
            "The misfire policy is {kind}; grace {} ms, window {} ms, limit {}.",
            misfire.grace, misfire.window, misfire.limit
        )),
        Rule::Overlap | Rule::StillRunning => policies.overlap.map(|overlap| {
            let words = match overlap {
                Overlap::Skip => "`skip`: no second run while one is not over",
                Overlap::QueueOne => "`queueOne`: one run waits, others are merged into it",
                Overlap::QueueAll => "`queueAll`: each run is queued",
                Overlap::Replace => "`replace`: the previous run is stopped",
                Overlap::Allow => "`allow`: runs side by side",
            };
            format!("The overlap policy is {words}.")
        }),
        _ => None,
    }
}

/// Why a scheduled time is not in the ledger.
#[derive(Debug, Clone)]
pub enum Sight {
    /// The job did not exist.
    BeforeJob {
        /// When it was created.
        created: Timestamp,
        /// Who created it.
        by: Option<String>,
    },
    /// The job was, or is, disabled or deleted.
    Off {
        /// `disabled` or `deleted`.
        how: &'static str,
        /// The start of that state.
        since: Timestamp,
        /// Who did it.
        by: Option<String>,
        /// The reason.
        reason: Option<String>,
    },
    /// The plan contains it, and it is not decided yet.
    Coming {
        /// Its time has passed and it will be decided soon.
        is_due: bool,
        /// Why it is scheduled.
        kind: Kind,
        /// How the zone changed it.
        note: Option<String>,
        /// The blackout that covers it.
        blackout: Option<String>,
    },
    /// A trigger names it, but a run requested a later time.
    Overruled {
        /// The requested time.
        asked: Timestamp,
    },
    /// The plan had made all its runs before.
    Exhausted {
        /// The maximum number of runs.
        most: u64,
    },
    /// It is before the start or after the end of the schedule.
    OutOfBounds {
        /// The start.
        start: Option<Timestamp>,
        /// The end.
        end: Option<Timestamp>,
    },
    /// No trigger names it.
    NotNamed {
        /// The last scheduled time before it.
        before: Option<Timestamp>,
        /// The next scheduled time after it.
        after: Option<Timestamp>,
        /// The version of the job with that plan.
        version: i64,
    },
    /// The plan contained it, and its row was removed by retention.
    CleanedAway {
        /// The oldest kept row.
        oldest: Option<Timestamp>,
        /// The version of the job with that plan.
        version: i64,
    },
    /// The definition of the job at that time is no longer stored.
    Unknown,
}

/// Explains why a scheduled time is not in the ledger.
#[must_use]
pub fn explain_unrecorded(at: Timestamp, sight: &Sight) -> Answer {
    let by = |by: &Option<String>| by.as_deref().map(|by| format!(" by {by}")).unwrap_or_default();
    match sight {
        Sight::BeforeJob { created, by: who } => {
            let text = format!("The job was created at {created}{}: nothing was planned before.", by(who));
            Answer::new("notPlanned", "before", vec![text])
        }
        Sight::Off { how, since, by: who, reason } => {
            let because = reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
            let text = format!("The job is {how} at that time, since {since}{}{because}.", by(who));
            Answer::new("disabled", *how, vec![text, "A disabled or deleted job has no scheduled times.".to_owned()])
        }
        Sight::Coming { is_due, kind, note, blackout } => {
            let mut because = vec![origin(*kind, at)];
            because.extend(note.as_ref().map(|note| format!("Its time zone changes it: {note}.")));
            because.extend(blackout.as_ref().map(|name| format!("The blackout `{name}` covers it: it will make no run.")));
            because.push(if *is_due { "It is due and about to be decided.".to_owned() } else { "Its time has not come yet.".to_owned() });
            Answer::new("planned", if blackout.is_some() { "blackout" } else { kind.name() }, because)
        }
        Sight::Overruled { asked } => {
            let text = format!("A trigger names {at}, but the last run requested {asked}: the plan is skipped once until then.");
            Answer::new("planned", Rule::Asked.name(), vec![text])
        }
        Sight::Exhausted { most } => {
            let text = format!("A trigger names {at}, but the plan ends after {most} runs, and they were made before.");
            Answer::new("notPlanned", "maxFires", vec![text])
        }
        Sight::OutOfBounds { start, end } => {
            let mut because = Vec::new();
            because.extend(start.filter(|start| at < *start).map(|start| format!("The schedule begins at {start}.")));
            because.extend(end.filter(|end| at > *end).map(|end| format!("The schedule ends at {end}.")));
            because.push(format!("So {at} is not in the plan."));
            Answer::new("notPlanned", "bounds", because)
        }
        Sight::NotNamed { before, after, version } => {
            let mut because = vec![format!("No trigger of version {version} of the job names {at}.")];
            because.extend(before.map(|before| format!("The time before it is {before}.")));
            because.extend(after.map(|after| format!("The time after it is {after}.")));
            Answer::new("notPlanned", "plan", because)
        }
        Sight::CleanedAway { oldest, version } => {
            let kept = oldest.map_or("The ledger keeps no row of the job".to_owned(), |oldest| {
                format!("The oldest row of the job in the ledger is that of {oldest}")
            });
            let text = format!("The plan of version {version} contained {at}, but the ledger no longer has a row for it.");
            Answer::new("forgotten", "cleaned", vec![text, format!("{kept}; retention removes older rows.")])
        }
        Sight::Unknown => {
            let text = format!("The definition of the job at {at} is no longer stored, and the ledger has no row for that time.");
            Answer::new("forgotten", "history", vec![text])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::{Blackout, Circumstances, Misfire, Open, PlanState, Schedule, Trigger, decide};

    const AT: Timestamp = Timestamp(60_000);

    fn is_whole(answer: &Answer) {
        assert!(!answer.verdict.is_empty() && !answer.rule.is_empty() && !answer.because.is_empty(), "{answer:?}");
        for text in &answer.because {
            assert!(text.len() > 15 && text.ends_with('.'), "{text}");
            assert!(!text.contains("not known to this version"), "{text}");
        }
    }

    #[test]
    fn no_verdict_goes_without_its_reason() {
        let words: Vec<Option<&str>> = Rule::ALL.iter().map(|rule| Some(rule.name())).chain([None, Some("a-rule-of-tomorrow")]).collect();
        for verdict in ["fired", "skipped", "missed", "merged"] {
            for rule in &words {
                for kind in [Kind::Plan, Kind::Asked, Kind::Silence, Kind::Outside, Kind::Backfill] {
                    let row = Recorded {
                        planned_at: AT,
                        planned_until: AT,
                        instants: 1,
                        kind,
                        verdict,
                        rule: *rule,
                        reason: None,
                        decided_at: AT,
                        version: 1,
                    };
                    is_whole(&explain(&row, Some(&Policies::default())));
                }
            }
        }
        assert!(Rule::ALL.iter().all(|rule| Rule::named(rule.name()) == Some(*rule)));
    }

    #[test]
    fn every_rule_that_a_decision_names_is_known() {
        let mut schedule = Schedule {
            triggers: vec![Trigger { every: Some(1_000), anchor: Some(Timestamp(0)), ..Trigger::default() }],
            ..Schedule::default()
        };
        let dark = Blackout { from: Some(Timestamp(1_000)), to: Some(Timestamp(3_000)), ..Blackout::default() };
        schedule.blackouts.push(dark);
        let plan = schedule.compile().expect("a schedule");
        let mut seen = std::collections::BTreeSet::new();
        for policy in [MisfirePolicy::Once, MisfirePolicy::Skip, MisfirePolicy::All] {
            for overlap in [Overlap::Skip, Overlap::QueueOne, Overlap::QueueAll, Overlap::Replace, Overlap::Allow] {
                for (at_work, queued) in [(0, 0), (1, 0), (1, 1)] {
                    for asked_at in [None, Some(Timestamp(4_500))] {
                        let misfire = Misfire { policy, grace: 2_000, window: 20_000, limit: 3 };
                        let policies = Policies { misfire, overlap: Some(overlap), ..Policies::default() };
                        let state = PlanState { asked_at, ..PlanState::default() };
                        for now in [5_000, 40_000] {
                            let given = Circumstances { open: Open { at_work, queued }, ..Circumstances::default() };
                            let step = decide(&plan, &policies, &state, &given, Timestamp(now));
                            seen.extend(step.rows.iter().map(|row| row.rule));
                        }
                    }
                }
            }
        }
        assert!(seen.iter().all(|rule| Rule::named(rule).is_some()), "{seen:?}");
        assert_eq!(seen.len(), 7, "all that a decision may name: {seen:?}");
    }

    #[test]
    fn what_is_not_recorded_has_its_reason_too() {
        let t = Some(AT);
        for sight in [
            Sight::BeforeJob { created: AT, by: Some("admin".into()) },
            Sight::Off { how: "disabled", since: AT, by: None, reason: Some("too loud".into()) },
            Sight::Coming { is_due: true, kind: Kind::Plan, note: None, blackout: Some("dark".into()) },
            Sight::Coming { is_due: false, kind: Kind::Silence, note: Some("shifted".into()), blackout: None },
            Sight::Overruled { asked: AT },
            Sight::Exhausted { most: 3 },
            Sight::OutOfBounds { start: None, end: t },
            Sight::NotNamed { before: t, after: None, version: 1 },
            Sight::CleanedAway { oldest: None, version: 1 },
            Sight::Unknown,
        ] {
            is_whole(&explain_unrecorded(AT, &sight));
        }
    }
}
