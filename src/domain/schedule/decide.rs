//! Decides the outcome of each due fire. The ledger gets a row for each of them.

use super::plan::{Kind, Next, Plan, PlanState};
use super::policies::{MisfirePolicy, Overlap, Policies};
use crate::domain::time::Timestamp;
use std::collections::HashMap;

/// Maximum number of fires per step; the next step handles the rest.
const MOST_INSTANTS: usize = 100_000;
/// Maximum number of fires per step that get a row each; earlier ones share a row with a count.
const MOST_ROWS: usize = 500;
/// If the clock went back by less, the decision waits; if by more, decisions for the repeated time are withdrawn.
pub const SMALL_STEP_MS: i64 = 2_000;

/// The unfinished runs of a job.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Open {
    /// Running, or about to start.
    pub at_work: usize,
    /// Queued behind other runs.
    pub queued: usize,
}

impl Open {
    /// Whether any run is unfinished.
    #[must_use]
    pub fn any(self) -> bool {
        self.at_work + self.queued > 0
    }
}

/// Inputs of a decision besides plan and policies.
#[derive(Debug, Clone, Copy, Default)]
pub struct Circumstances<'a> {
    /// The unfinished runs of the job.
    pub open: Open,
    /// Scheduled times that are undecided but have a run in the ledger, because the clock went back over them.
    pub fired_ahead: &'a [Timestamp],
}

/// The outcome of a fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FireOutcome {
    /// It makes a run; `queued`: the run waits until the others are over.
    Fire {
        /// It is queued behind other runs.
        queued: bool,
    },
    /// It makes no run because of a rule.
    Skipped,
    /// It makes no run because it was too late.
    Missed,
    /// It is merged into the fire of this time; `None`: into the run that is queued already.
    Merged(Option<Timestamp>),
}

/// A row for the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// The scheduled time, or the first of several.
    pub at: Timestamp,
    /// The last of several.
    pub until: Timestamp,
    /// How many fires the row covers.
    pub instants: u64,
    /// Why it was scheduled.
    pub kind: Kind,
    /// Its outcome.
    pub fate: FireOutcome,
    /// The rule that decided, for programs.
    pub rule: &'static str,
    /// The same as a text for people.
    pub reason: Option<String>,
}

/// A decision: everything to write in one transaction.
#[derive(Debug, Clone, PartialEq)]
pub struct Step {
    /// The outcomes of the due fires, in order.
    pub rows: Vec<Row>,
    /// The state of the plan after that.
    pub state: PlanState,
    /// The runs in progress must be stopped first.
    pub replace: bool,
    /// The clock went back: rows after this time that made no run must be withdrawn. Changes of the job that were made after it
    /// take effect from it.
    pub rewind: Option<Timestamp>,
    /// Fires that made a run before the clock went back are passed over: the plan continues after them.
    pub passed: bool,
    /// More fires are due than one step handles: call again.
    pub more: bool,
}

impl Step {
    /// The clock went back into the middle of a row that covers several fires: the whole row is decided again.
    pub fn rewind_around(&mut self, at: Timestamp) {
        let to = at.plus_ms(-1);
        self.rewind = Some(to);
        self.state.decided_until = to;
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.rewind.is_none() && !self.passed
    }
}

/// Decides everything that is due.
#[must_use]
pub fn decide(plan: &Plan, policies: &Policies, state: &PlanState, given: &Circumstances<'_>, now: Timestamp) -> Step {
    let mut step = Step { rows: Vec::new(), state: *state, replace: false, rewind: None, passed: false, more: false };
    if state.is_from_later(now) {
        // Fires that made a run stay in the ledger and do not fire again when their time comes again.
        step.rewind = Some(now);
        step.state = state.rewound(now);
        return step;
    }
    let open = given.open;
    let due = gather(plan, &mut step, given, now);
    let mut rows = classify(plan, policies, due, now);
    if given.fired_ahead.is_empty() {
        extend_missed_rest(plan, policies, &mut rows, &mut step.state, now);
    }
    overlap(policies.overlap.unwrap_or(if plan.is_empty() { Overlap::Allow } else { Overlap::Skip }), &mut rows, open, &mut step);
    if let Some(most) = plan.max_fires {
        cut(&mut rows, most.saturating_sub(state.fires));
    }
    for row in &rows {
        if matches!(row.fate, FireOutcome::Fire { .. }) {
            step.state.fires += 1;
            step.state.last_fire = Some(row.at);
        } else {
            // Without a run there is no run end to wait for.
            step.state.rest_from = step.state.rest_from.max(row.until);
        }
    }
    step.rows = fold(rows, given.fired_ahead);
    step
}

/// Collects everything that is due, and advances the plan state past it.
fn gather(plan: &Plan, step: &mut Step, given: &Circumstances<'_>, now: Timestamp) -> Vec<(Next, bool)> {
    let mut due = Vec::new();
    let state = &mut step.state;
    loop {
        let next = plan.next(state, given.open.any()).filter(|next| next.at <= now);
        if state.asked_at.is_some() {
            // A time that a run requested replaces, once, everything that the plan has before it.
            let until = next.as_ref().map_or(now, |next| next.at.plus_ms(-1));
            while let Some(planned) = plan.planned_after(state).filter(|planned| planned.at <= until && due.len() < MOST_INSTANTS) {
                state.decided_until = planned.at;
                if !given.fired_ahead.contains(&planned.at) {
                    due.push((planned, true));
                }
            }
        }
        if due.len() >= MOST_INSTANTS {
            step.more = true;
            return due;
        }
        let Some(next) = next else { break };
        let rests = plan.rests(&next);
        state.decided_until = next.at;
        if next.kind == Kind::Asked {
            (state.asked_at, state.asked_from) = (None, None);
        }
        if next.kind == Kind::Silence {
            state.last_fire = Some(next.at);
        }
        if given.fired_ahead.contains(&next.at) {
            step.passed = true;
            if next.kind == Kind::Asked {
                // The run of this time is from before the clock went back. Without this, nothing would request the next time.
                state.asked_at = Some(next.at.plus_ms(1));
            }
            if rests {
                state.rest_from = next.at;
            }
            continue;
        }
        due.push((next, false));
        if rests {
            // An interval after the end of a run depends on the outcome of this fire.
            step.more = true;
            return due;
        }
    }
    step.state.decided_until = step.state.decided_until.max(now);
    due
}

/// Applies the blackouts and the misfire policy.
fn classify(plan: &Plan, policies: &Policies, due: Vec<(Next, bool)>, now: Timestamp) -> Vec<Row> {
    let misfire = &policies.misfire;
    let last_fireable = due.iter().rposition(|(next, passed)| !passed && plan.blackout(next.at).is_none());
    let is_late = |at: Timestamp| now.since_ms(at) > misfire.grace as i64;
    // For a job that runs only at times its runs request, a lost time would be the last one.
    let is_last = |next: &Next| next.kind == Kind::Asked && plan.is_empty();
    let is_lost = |next: &Next| now.since_ms(next.at) > misfire.window as i64 && is_late(next.at) && !is_last(next);
    // For `all`: the index of the first late fire within the limit.
    let late = due
        .iter()
        .enumerate()
        .filter(|(_, (next, passed))| !passed && is_late(next.at) && !is_lost(next) && plan.blackout(next.at).is_none());
    let late: Vec<usize> = late.map(|(i, _)| i).collect();
    let first_within = late.len().checked_sub(misfire.limit as usize).map_or(0, |i| late[i]);
    let target = last_fireable.map(|i| due[i].0.at);
    let mut rows = Vec::with_capacity(due.len());
    for (i, (next, passed)) in due.into_iter().enumerate() {
        let at = next.at;
        let late_ms = now.since_ms(at);
        let (fate, rule, reason) = if passed {
            (FireOutcome::Skipped, "asked", Some("the last run had requested a later time".to_owned()))
        } else if let Some(name) = plan.blackout(at) {
            (FireOutcome::Skipped, "blackout", Some(format!("it falls into `{name}`")))
        } else if !is_late(at) {
            (FireOutcome::Fire { queued: false }, "due", None)
        } else if is_lost(&next) {
            (FireOutcome::Missed, "window", Some(format!("{late_ms} ms late, but counts as missed after {} ms", misfire.window)))
        } else {
            match misfire.policy {
                MisfirePolicy::Skip => {
                    (FireOutcome::Missed, "misfire", Some(format!("{late_ms} ms late, but counts as missed after {} ms", misfire.grace)))
                }
                MisfirePolicy::Once if last_fireable == Some(i) => {
                    (FireOutcome::Fire { queued: false }, "misfire", Some(format!("{late_ms} ms late, made up for")))
                }
                MisfirePolicy::Once => (FireOutcome::Merged(target), "misfire", Some("one run makes up for all that were late".to_owned())),
                MisfirePolicy::All if i >= first_within => {
                    (FireOutcome::Fire { queued: false }, "misfire", Some(format!("{late_ms} ms late, made up for")))
                }
                MisfirePolicy::All => (FireOutcome::Missed, "limit", Some(format!("more than {} were late", misfire.limit))),
            }
        };
        rows.push(Row { at, until: at, instants: 1, kind: next.kind, fate, rule, reason });
    }
    rows
}

/// After a missed interval that counts from the end of a run comes the next one, without a run between them. All of them with the same
/// outcome share a row: after a long outage there may be very many, and each decision takes a write.
fn extend_missed_rest(plan: &Plan, policies: &Policies, rows: &mut [Row], state: &mut PlanState, now: Timestamp) {
    let misfire = &policies.misfire;
    let (Some(period), Some(row)) = (plan.only_rest(), rows.last_mut()) else { return };
    if row.fate != FireOutcome::Missed || row.kind != Kind::Plan {
        return;
    }
    let late_ms = if row.rule == "window" { misfire.window.max(misfire.grace) } else { misfire.grace } as i64;
    let last = plan.end_at.unwrap_or(now).min(now.plus_ms(-late_ms - 1));
    let more = last.since_ms(row.at).max(0) / period;
    row.until = row.at.plus_ms(more * period);
    row.instants += more as u64;
    state.decided_until = row.until;
}

/// Applies the overlap policy to the fires.
fn overlap(policy: Overlap, rows: &mut [Row], open: Open, step: &mut Step) {
    let (mut at_work, mut queued) = (open.at_work, open.queued);
    let mut waiting = None;
    for row in rows.iter_mut().filter(|row| matches!(row.fate, FireOutcome::Fire { .. })) {
        let is_free = at_work + queued == 0;
        match policy {
            Overlap::Allow => at_work += 1,
            _ if is_free => at_work += 1,
            Overlap::Skip => {
                row.fate = FireOutcome::Skipped;
                row.rule = "overlap";
                row.reason = Some("a run of the job is not over".to_owned());
            }
            Overlap::QueueOne if queued > 0 => {
                row.fate = FireOutcome::Merged(waiting);
                row.rule = "overlap";
                row.reason = Some("a run of the job is queued already".to_owned());
            }
            Overlap::QueueOne | Overlap::QueueAll => {
                row.fate = FireOutcome::Fire { queued: true };
                waiting = Some(row.at);
                queued += 1;
            }
            Overlap::Replace => {
                step.replace = true;
                at_work += 1;
            }
        }
    }
    if step.replace {
        replace_within(rows);
    }
    // A fire merged into one that was itself skipped or merged gets the same outcome and reason.
    let decided = |row: &Row| (row.at, (row.fate.clone(), row.reason.clone()));
    let others: HashMap<_, _> = rows.iter().filter(|row| row.rule == "overlap").map(decided).collect();
    for row in rows.iter_mut() {
        if let FireOutcome::Merged(Some(into)) = row.fate
            && let Some((fate, reason)) = others.get(&into)
        {
            (row.fate, row.reason, row.rule) = (fate.clone(), reason.clone(), "overlap");
        }
    }
}

/// If several due fires each replace the one before, only the last makes a run.
fn replace_within(rows: &mut [Row]) {
    let Some(last) = rows.iter().rposition(|row| matches!(row.fate, FireOutcome::Fire { .. })) else { return };
    let into = rows[last].at;
    for row in rows[..last].iter_mut().filter(|row| matches!(row.fate, FireOutcome::Fire { .. })) {
        row.fate = FireOutcome::Merged(Some(into));
        row.rule = "overlap";
        row.reason = Some("a later fire replaces it".to_owned());
    }
}

/// Drops the fires after the last run that the plan may make.
fn cut(rows: &mut Vec<Row>, left: u64) {
    let mut left = left;
    let mut keep = rows.len();
    for (i, _) in rows.iter().enumerate().filter(|(_, row)| matches!(row.fate, FireOutcome::Fire { .. })) {
        left = left.saturating_sub(1);
        if left == 0 {
            keep = i + 1;
            break;
        }
    }
    rows.truncate(keep);
}

/// Merges neighbouring rows with the same outcome if there are more than a step may write; the latest stay separate.
fn fold(rows: Vec<Row>, fired_ahead: &[Timestamp]) -> Vec<Row> {
    let Some(surplus) = rows.len().checked_sub(MOST_ROWS).filter(|surplus| *surplus > 0) else { return rows };
    let between = |from: Timestamp, to: Timestamp| fired_ahead.iter().any(|at| (from..to).contains(at));
    let mut folded: Vec<Row> = Vec::with_capacity(MOST_ROWS + 8);
    for (i, row) in rows.into_iter().enumerate() {
        match folded.last_mut().filter(|last| {
            i < surplus && last.fate == row.fate && last.kind == row.kind && last.rule == row.rule && !between(last.until, row.at)
        }) {
            Some(last) if !matches!(row.fate, FireOutcome::Fire { .. }) => {
                last.until = row.at;
                last.instants += 1;
            }
            _ => folded.push(row),
        }
    }
    folded
}
