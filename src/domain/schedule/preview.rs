//! Preview of a plan in its current state: the next fires, for people.

use super::plan::{Compiled, Kind, Next, Plan, PlanState};
use crate::domain::time::Timestamp;
use crate::domain::zone::Zone;
use chrono::{DateTime, FixedOffset, SecondsFormat, Utc};

/// The next fires, with remarks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Preview {
    /// Ordered by time.
    pub fires: Vec<Coming>,
    /// Why there are no more fires, or fewer than expected.
    pub remarks: Vec<String>,
}

/// A future fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Coming {
    /// Time and reason.
    pub next: Next,
    /// The blackout that covers it: it will make no run.
    pub blackout: Option<String>,
}

/// The local time in the zone, with its offset.
#[must_use]
pub fn local(at: Timestamp, zone: &Zone) -> String {
    let offset = FixedOffset::east_opt(zone.offset_seconds(at));
    match (DateTime::<Utc>::from_timestamp_millis(at.0), offset) {
        (Some(time), Some(offset)) => time.with_timezone(&offset).to_rfc3339_opts(SecondsFormat::AutoSi, false),
        _ => at.to_string(),
    }
}

/// Computes at most `count` fires after `after`; `is_open`: a run of the job is not over now.
#[must_use]
pub fn preview(plan: &Plan, state: &PlanState, is_open: bool, after: Timestamp, count: usize) -> Preview {
    let mut out = Preview::default();
    let mut state = *state;
    let mut is_open = is_open;
    if is_open && plan.has_rests() {
        out.remarks.push("a run of the job is not over: the interval counts from its end".to_owned());
    }
    skip_to(plan, &mut state, after, &mut out.remarks);
    while out.fires.len() < count {
        let Some(next) = plan.next(&state, is_open) else {
            out.remarks.extend(plan.end_of(&state, is_open, out.fires.is_empty()));
            return out;
        };
        let blackout = plan.blackout(next.at).map(str::to_owned);
        state.decided_until = next.at;
        if next.kind == Kind::Asked {
            state.asked_at = None;
        }
        if next.kind == Kind::Silence || blackout.is_none() {
            state.last_fire = Some(next.at);
        }
        if blackout.is_none() {
            state.fires += 1;
            if plan.has_rests() && !is_open {
                is_open = true;
                out.remarks.push(format!("the next interval counts from the end of the run of {}", next.at));
            }
        } else {
            state.rest_from = state.rest_from.max(next.at);
        }
        out.fires.push(Coming { next, blackout });
    }
    out
}

/// Starts the preview at another time than the one up to which the plan is decided.
fn skip_to(plan: &Plan, state: &mut PlanState, after: Timestamp, remarks: &mut Vec<String>) {
    if after > state.decided_until && state.asked_at.is_some_and(|at| at <= after) {
        state.asked_at = None;
    }
    let silence = plan.longest_silence.map(|ms| state.last_fire.unwrap_or(state.rest_from).plus_ms(ms));
    if after > state.decided_until && silence.is_some_and(|at| at <= after) {
        state.last_fire = Some(after);
        remarks.push(format!("the longest silence is counted from {after}"));
    }
    state.decided_until = after;
}

impl Plan {
    /// The expanded form of each cron expression, in the order of the triggers.
    #[must_use]
    pub fn understood(&self) -> Vec<String> {
        let texts = self.triggers.iter().filter_map(|trigger| match trigger {
            Compiled::Cron(cron) => Some(cron.understood()),
            _ => None,
        });
        texts.collect()
    }

    /// The first and the last possible time of the plan.
    #[must_use]
    pub fn bounds(&self) -> (Option<Timestamp>, Option<Timestamp>) {
        (self.start_at, self.end_at)
    }

    /// The last time before `before` that a trigger names, if it is within ten years.
    #[must_use]
    pub fn named_before(&self, before: Timestamp) -> Option<Timestamp> {
        // A larger window is searched only if the smaller one was empty, so each search finds few times.
        for ms in [60_000, 3_600_000, 2 * 86_400_000, 60 * 86_400_000, 3_660 * 86_400_000_i64] {
            let mut last = None;
            let mut cursor = before.plus_ms(-ms);
            for _ in 0..10_000 {
                let Some(next) = self.named_after(cursor).filter(|next| next.at < before) else { break };
                cursor = next.at;
                last = Some(next.at);
            }
            if last.is_some() {
                return last;
            }
        }
        None
    }

    /// Why there are no further fires.
    fn end_of(&self, state: &PlanState, is_open: bool, is_empty: bool) -> Option<String> {
        if let Some(most) = self.max_fires.filter(|most| state.fires >= *most) {
            return Some(format!("the plan ends with {most} runs: that is its limit"));
        }
        if let Some(end) = self.end_at {
            return Some(format!("the plan ends at {end}"));
        }
        if self.is_empty() {
            return is_empty.then(|| "there is no trigger: the job runs by hand, or when a run of it asks".to_owned());
        }
        if is_open && self.has_rests() {
            return None; // a remark exists already
        }
        Some("no trigger names a later instant".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::schedule::{Blackout, Schedule, Trigger};

    fn every(ms: u64) -> Schedule {
        let trigger = Trigger { every: Some(ms), anchor: Some(Timestamp(0)), ..Trigger::default() };
        Schedule { triggers: vec![trigger], ..Schedule::default() }
    }

    fn seen(schedule: &Schedule, state: PlanState, is_open: bool, after: i64, count: usize) -> (Vec<i64>, String) {
        let plan = schedule.compile().expect("a schedule");
        let out = preview(&plan, &state, is_open, Timestamp(after), count);
        (out.fires.iter().map(|fire| fire.next.at.0).collect(), out.remarks.join("; "))
    }

    #[test]
    fn a_plan_is_followed_and_its_end_is_said() {
        let state = PlanState::default();
        assert_eq!(seen(&every(1_000), state, false, 500, 3), (vec![1_000, 2_000, 3_000], String::new()));
        let limited = Schedule { max_fires: Some(2), ..every(1_000) };
        assert_eq!(seen(&limited, state, false, 0, 9), (vec![1_000, 2_000], "the plan ends with 2 runs: that is its limit".to_owned()));
        let used = PlanState { fires: 2, ..state };
        assert_eq!(seen(&limited, used, false, 0, 9).0, Vec::<i64>::new());
        let ending = Schedule { end_at: Some(Timestamp(1_500)), ..every(1_000) };
        let (fires, remarks) = seen(&ending, state, false, 0, 9);
        assert_eq!(fires, [1_000]);
        assert!(remarks.contains("ends at 1970-01-01T00:00:01.500Z"), "{remarks}");
        assert!(seen(&Schedule::default(), state, false, 0, 9).1.contains("no trigger"));
        let once = Schedule { triggers: vec![Trigger { at: Some(Timestamp(5)), ..Trigger::default() }], ..Schedule::default() };
        assert_eq!(seen(&once, state, false, 10, 9), (vec![], "no trigger names a later instant".to_owned()));
    }

    #[test]
    fn what_hangs_on_the_end_of_a_run_is_not_guessed() {
        let mut after_end = every(1_000);
        after_end.triggers[0].after_end = true;
        let state = PlanState { rest_from: Timestamp(100), ..PlanState::default() };
        let (fires, remarks) = seen(&after_end, state, false, 100, 5);
        assert_eq!(fires, [1_100]);
        assert!(remarks.contains("from the end of the run of"), "{remarks}");
        let (fires, remarks) = seen(&after_end, state, true, 100, 5);
        assert_eq!(fires, Vec::<i64>::new());
        assert!(remarks.contains("is not over"), "{remarks}");
    }

    #[test]
    fn asked_times_silences_and_blackouts_are_marked() {
        let state = PlanState { asked_at: Some(Timestamp(2_500)), ..PlanState::default() };
        let (fires, _) = seen(&every(1_000), state, false, 0, 2);
        assert_eq!(fires, [2_500, 3_000], "what was asked for wins once");
        assert_eq!(seen(&every(1_000), state, false, 5_000, 1).0, [6_000], "and is past then");
        let silent = Schedule { longest_silence: Some(700), ..every(1_000) };
        assert_eq!(seen(&silent, PlanState::default(), false, 0, 3).0, [700, 1_000, 1_700]);
        let dark = Blackout { from: Some(Timestamp(1_000)), to: Some(Timestamp(2_000)), name: Some("dark".into()), ..Blackout::default() };
        let plan = Schedule { blackouts: vec![dark], max_fires: Some(1), ..every(1_000) }.compile().expect("a schedule");
        let out = preview(&plan, &PlanState::default(), false, Timestamp(0), 5);
        let marks: Vec<_> = out.fires.iter().map(|fire| fire.blackout.as_deref()).collect();
        assert_eq!(marks, [Some("dark"), None], "a fire that makes no run does not count");
    }

    #[test]
    fn the_instant_before_is_found() {
        let plan = every(1_000).compile().expect("a schedule");
        assert_eq!(plan.named_before(Timestamp(5_000)), Some(Timestamp(4_000)));
        assert_eq!(plan.named_before(Timestamp(0)), None);
        let day = every(86_400_000).compile().expect("a schedule");
        assert_eq!(day.named_before(Timestamp(90 * 86_400_000 + 1)), Some(Timestamp(90 * 86_400_000)));
    }

    #[test]
    fn local_time_has_its_offset() {
        assert_eq!(local(Timestamp(1_000), &Zone::utc()), "1970-01-01T00:00:01+00:00");
    }
}
