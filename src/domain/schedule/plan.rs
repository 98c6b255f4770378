//! The compiled form of a schedule: computes the next fire.

use super::SHORTEST_INTERVAL;
use super::blackout;
use super::decide::SMALL_STEP_MS;
use crate::domain::cron::Cron;
use crate::domain::time::Timestamp;
use crate::domain::zone::{Zone, ZoneRules};

/// A compiled schedule.
#[derive(Debug)]
pub struct Plan {
    pub(super) triggers: Vec<Compiled>,
    pub(super) zone: Zone,
    pub(super) rules: ZoneRules,
    pub(super) start_at: Option<Timestamp>,
    pub(super) end_at: Option<Timestamp>,
    pub(super) max_fires: Option<u64>,
    pub(super) longest_silence: Option<i64>,
    pub(super) blackouts: Vec<blackout::Compiled>,
}

#[derive(Debug)]
pub(super) enum Compiled {
    Cron(Box<Cron>),
    Every { period: i64, anchor: Timestamp },
    AfterEnd { period: i64 },
    Once(Timestamp),
    At(Timestamp),
}

/// How far the plan of a job has been decided: the state stored with its ledger.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PlanState {
    /// All fires of the plan up to and including this time are in the ledger.
    pub decided_until: Timestamp,
    /// The time that the last run requested.
    pub asked_at: Option<Timestamp>,
    /// When it requested that, if it requested a pause from then on; `None` if it named a time.
    pub asked_from: Option<Timestamp>,
    /// The start of an interval that counts from the end of a run.
    pub rest_from: Timestamp,
    /// The scheduled time of the last fire that made a run.
    pub last_fire: Option<Timestamp>,
    /// After the clock went back: fires up to this time that made a run and are not decided again yet.
    pub fired_until: Option<Timestamp>,
    /// Number of runs that the plan has made.
    pub fires: u64,
    /// Number of consecutive failed runs.
    pub failures: u32,
}

impl PlanState {
    /// The state of a job whose schedule begins now.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self { decided_until: now, rest_from: now, ..Self::default() }
    }

    /// The latest past time in this state. The clock has reached it before.
    #[must_use]
    pub fn latest(&self) -> Timestamp {
        let others = [Some(self.rest_from), self.asked_from, self.last_fire];
        others.into_iter().flatten().fold(self.decided_until, Timestamp::max)
    }

    /// Whether the clock went back since this was decided, by more than the decision waits for.
    #[must_use]
    pub fn is_from_later(&self, now: Timestamp) -> bool {
        self.latest().since_ms(now) > SMALL_STEP_MS
    }

    /// The state after the clock went back to `to`: everything after that is undecided again. Pauses count from here with their
    /// full length.
    #[must_use]
    pub fn rewound(&self, to: Timestamp) -> Self {
        let pause = self.asked_from.filter(|from| *from > to).and_then(|from| Some(self.asked_at?.since_ms(from)));
        Self {
            decided_until: self.decided_until.min(to),
            asked_at: pause.map_or(self.asked_at, |pause| Some(to.plus_ms(pause))),
            asked_from: self.asked_from.map(|from| from.min(to)),
            rest_from: self.rest_from.min(to),
            last_fire: self.last_fire.map(|last| last.min(to)),
            fired_until: self.fired_until.max(self.last_fire),
            ..*self
        }
    }

    /// A run requests its next time: this time, or, if it asked at `from`, a pause from then on.
    pub fn ask(&mut self, at: Timestamp, from: Option<Timestamp>, now: Timestamp) {
        // If the clock went back since the request, the pause keeps its length.
        let at = from.filter(|from| *from > now).map_or(at, |from| now.plus_ms(at.since_ms(from)));
        // A time in the past means at once; there is no named time to wait for. A job that asks for that each time must not use up the broker.
        let from = from.or((at <= now).then_some(now));
        let soonest = now.plus_ms(SHORTEST_INTERVAL as i64);
        (self.asked_at, self.asked_from) = (Some(at.max(soonest)), from.map(|from| from.min(now)));
    }

    /// Fires after the decided time may already be in the ledger with a run.
    #[must_use]
    pub fn may_have_fired_ahead(&self) -> bool {
        self.fired_until.max(self.last_fire).is_some_and(|until| until > self.decided_until)
    }
}

/// Why a fire is in a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A trigger names it.
    Plan,
    /// The last run requested it.
    Asked,
    /// The longest silence was exceeded.
    Silence,
    /// An external scheduler triggered it.
    Outside,
    /// A backfill requested a past time again.
    Backfill,
}

impl Kind {
    const ALL: [Self; 5] = [Self::Plan, Self::Asked, Self::Silence, Self::Outside, Self::Backfill];

    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Plan => "plan",
            Self::Asked => "asked",
            Self::Silence => "silence",
            Self::Outside => "outside",
            Self::Backfill => "backfill",
        }
    }

    /// The kind with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// A future fire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Next {
    /// Its time.
    pub at: Timestamp,
    /// The reason.
    pub kind: Kind,
    /// Index of the trigger, if a trigger names it.
    pub trigger: Option<usize>,
    /// How the time zone changed it, if at all.
    pub note: Option<String>,
}

impl Next {
    fn earlier(a: Option<Self>, b: Option<Self>) -> Option<Self> {
        match (a, b) {
            (Some(a), Some(b)) => Some(if b.at < a.at { b } else { a }),
            (a, b) => a.or(b),
        }
    }
}

impl Plan {
    /// The time zone of the plan.
    #[must_use]
    pub fn zone(&self) -> &Zone {
        &self.zone
    }

    /// Whether nothing makes it fire automatically.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.triggers.is_empty() && self.longest_silence.is_none()
    }

    /// The first fire after `after` that a trigger names; fires that depend on run ends are excluded.
    #[must_use]
    pub fn named_after(&self, after: Timestamp) -> Option<Next> {
        let from = self.start_at.map_or(after, |start| after.max(start.plus_ms(-1)));
        let mut first: Option<Next> = None;
        for (i, trigger) in self.triggers.iter().enumerate() {
            let (at, note) = match trigger {
                Compiled::Cron(cron) => match cron.next(&self.zone, self.rules, from) {
                    Some(occurrence) => (Some(occurrence.at), occurrence.note.map(|note| note.to_string())),
                    None => (None, None),
                },
                Compiled::Every { period, anchor } => (Some(next_multiple(*anchor, *period, from)), None),
                // Once at its anchor, or at the start of the schedule if that is later.
                Compiled::Once(anchor) => (Some(self.start_at.map_or(*anchor, |start| start.max(*anchor))).filter(|at| *at > from), None),
                Compiled::At(at) => (Some(*at).filter(|at| *at > from), None),
                Compiled::AfterEnd { .. } => (None, None),
            };
            let next = at.map(|at| Next { at, kind: Kind::Plan, trigger: Some(i), note });
            first = Next::earlier(first, next);
        }
        first.filter(|next| self.is_within(next.at))
    }

    /// The next fire that a trigger names, unless the plan has made its last run.
    #[must_use]
    pub(super) fn planned_after(&self, state: &PlanState) -> Option<Next> {
        if self.max_fires.is_some_and(|most| state.fires >= most) { None } else { self.named_after(state.decided_until) }
    }

    /// The next fire in the current state; `is_open`: a run of the job is not over.
    #[must_use]
    pub fn next(&self, state: &PlanState, is_open: bool) -> Option<Next> {
        if self.max_fires.is_some_and(|most| state.fires >= most) {
            return None;
        }
        let soonest = |at: Timestamp| at.max(state.decided_until.plus_ms(1)).max(self.start_at.unwrap_or(at));
        let extra = |at: Timestamp, kind| Some(Next { at: soonest(at), kind, trigger: None, note: None });
        let planned = match state.asked_at {
            Some(at) => extra(at, Kind::Asked),
            None => {
                let rests = self.triggers.iter().enumerate().filter_map(|(i, trigger)| match trigger {
                    Compiled::AfterEnd { period } if !is_open => {
                        Some(Next { at: soonest(state.rest_from.plus_ms(*period)), kind: Kind::Plan, trigger: Some(i), note: None })
                    }
                    _ => None,
                });
                Next::earlier(self.named_after(state.decided_until), rests.min_by_key(|next| next.at))
            }
        };
        let silence = self.longest_silence.and_then(|ms| extra(state.last_fire.unwrap_or(state.rest_from).plus_ms(ms), Kind::Silence));
        Next::earlier(planned, silence).filter(|next| self.is_within(next.at))
    }

    /// Whether the fire counts from the end of the last run.
    pub(super) fn rests(&self, next: &Next) -> bool {
        next.trigger.is_some_and(|i| matches!(self.triggers[i], Compiled::AfterEnd { .. }))
    }

    /// Whether a trigger counts from the end of the last run.
    #[must_use]
    pub fn has_rests(&self) -> bool {
        self.triggers.iter().any(|trigger| matches!(trigger, Compiled::AfterEnd { .. }))
    }

    /// The interval that counts from the end of the last run, if nothing else makes the plan fire or covers its fires.
    pub(super) fn only_rest(&self) -> Option<i64> {
        match self.triggers.as_slice() {
            [Compiled::AfterEnd { period }] if self.blackouts.is_empty() && self.longest_silence.is_none() => Some(*period),
            _ => None,
        }
    }

    /// The maximum number of runs that the plan makes.
    #[must_use]
    pub fn max_fires(&self) -> Option<u64> {
        self.max_fires
    }

    /// The blackout that covers a time.
    #[must_use]
    pub fn blackout(&self, at: Timestamp) -> Option<&str> {
        self.blackouts.iter().find(|blackout| blackout.covers(at, &self.zone)).map(blackout::Compiled::name)
    }

    /// Whether it can fire after `after`, automatically or when a run requests it.
    #[must_use]
    pub fn can_fire_after(&self, after: Timestamp) -> bool {
        let open_end = self.end_at.is_none_or(|end| end > after);
        open_end && (self.triggers.is_empty() || self.has_rests() || self.longest_silence.is_some() || self.named_after(after).is_some())
    }

    fn is_within(&self, at: Timestamp) -> bool {
        self.end_at.is_none_or(|end| at <= end)
    }
}

/// The first of `anchor + k · period`, k ≥ 0, after `from`.
fn next_multiple(anchor: Timestamp, period: i64, from: Timestamp) -> Timestamp {
    let passed = from.since_ms(anchor);
    if passed < 0 {
        return anchor;
    }
    anchor.plus_ms((passed / period + 1).saturating_mul(period))
}
