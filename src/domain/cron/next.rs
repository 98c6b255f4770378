//! The next fire: combines local times from the crate, days from [`super::days`], and the zone's changes of offset.

use super::Cron;
use super::unit::YEARS;
use crate::domain::time::Timestamp;
use crate::domain::zone::{Change, FoldRule, GapRule, Twin, Wall, Zone, ZoneRules};
use chrono::{DateTime, Datelike, Duration, NaiveDate, Utc};
use std::fmt;

/// A fire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Occurrence {
    /// When; a whole second.
    pub at: Timestamp,
    /// How the zone changed it.
    pub note: Option<Note>,
}

/// Why a fire is not simply a matching local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Note {
    /// This local time (the first, if several) is missing: it fires at the end of the gap.
    GapAfter(Wall),
    /// This local time is missing: it fires later by the gap's length.
    GapShifted(Wall),
    /// Its local time occurs twice; this is the first.
    FoldFirst,
    /// Its local time occurs twice; this is the second.
    FoldSecond,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::GapAfter(wall) => write!(f, "local time {wall} is missing; first instant after the gap"),
            Self::GapShifted(wall) => write!(f, "local time {wall} is missing; shifted by the gap"),
            Self::FoldFirst => f.write_str("local time comes twice; the first"),
            Self::FoldSecond => f.write_str("local time comes twice; the second"),
        }
    }
}

/// Local time is at most 14 hours from UTC and never jumps by more than 24: only instants closer than this can be
/// out of order on the wall clock.
const FAR: i64 = 27 * 3600;

impl Cron {
    /// The rules for gaps and folds: those of the job, or the defaults of the expression.
    #[must_use]
    pub fn rules(&self, chosen: ZoneRules) -> (GapRule, FoldRule) {
        let (gap, fold) = if self.elapsed { (GapRule::Skip, FoldRule::Both) } else { (GapRule::After, FoldRule::First) };
        (chosen.gap.unwrap_or(gap), chosen.fold.unwrap_or(fold))
    }

    /// The first fire strictly after an instant; `None` if there is none until the end of 2099.
    ///
    /// Between two changes of offset local time is linear, and the crate is used there; this function handles the change itself.
    #[must_use]
    pub fn next(&self, zone: &Zone, rules: ZoneRules, after: Timestamp) -> Option<Occurrence> {
        let (gap, fold) = self.rules(rules);
        // Fires are at whole seconds: after x.5 s means after x. There are no fires before 1970 or after 2099.
        let mut t = after.0.div_euclid(1000).clamp(-2 * FAR, MAX_SECOND);
        let mut offset = zone.offset_at(t);
        // The last change that may still affect times at `t`, and the end of the range that was searched for changes.
        let mut last = if gap == GapRule::Shift { zone.change_until(t) } else { None };
        let mut seen = t;
        loop {
            let change = zone.change_after(seen);
            let wall = self.next_wall(t + offset);
            let plain = wall.map(|wall| wall - offset);
            if let Some(shifted) = last.and_then(|last| self.shifted(last, t)).filter(|_| gap == GapRule::Shift)
                && plain.is_none_or(|plain| shifted.at.0 < plain * 1000)
            {
                return Some(shifted);
            }
            let horizon = t + FAR;
            match (plain, change) {
                (Some(at), change) if change.is_none_or(|change| at < change.at) => {
                    let copy = zone.copy_of(Wall(at + offset), offset);
                    let end_of_copy = match (copy, fold) {
                        (Twin::First, FoldRule::Second) => change.map(|change| change.at - 1),
                        (Twin::Second, FoldRule::First) => zone.change_until(at).map(|last| last.at + last.fold() - 1),
                        _ => None,
                    };
                    let Some(end) = end_of_copy else { return Some(Occurrence { at: Timestamp(at * 1000), note: fold_note(copy) }) };
                    t = end.max(at);
                    if let Some(change) = change {
                        t = t.min(change.at - 1);
                    }
                }
                (None, change) if change.is_none_or(|change| change.at > horizon) => return None,
                // There is no match for a long time, so earlier changes have no effect.
                (Some(at), Some(change)) if change.at > horizon && at - FAR > change.at => {
                    t = at - FAR;
                    offset = zone.offset_at(t);
                    last = if gap == GapRule::Shift { zone.change_until(t) } else { None };
                    seen = t;
                }
                (_, Some(change)) => {
                    let missing = wall.filter(|wall| *wall < change.at + change.after);
                    if let Some(wall) = missing
                        && gap == GapRule::After
                    {
                        return Some(Occurrence { at: Timestamp(change.at * 1000), note: Some(Note::GapAfter(Wall(wall))) });
                    }
                    (t, offset, last, seen) = (change.at - 1, change.after, Some(change), change.at);
                }
                (_, None) => return None,
            }
        }
    }

    /// The next local time of this gap that was shifted to after `t`.
    fn shifted(&self, gap: Change, t: i64) -> Option<Occurrence> {
        if t >= gap.at + gap.gap() - 1 {
            return None;
        }
        let wall = self.next_wall(t.max(gap.at - 1) + gap.before).filter(|wall| *wall < gap.at + gap.after)?;
        Some(Occurrence { at: Timestamp((wall - gap.before) * 1000), note: Some(Note::GapShifted(Wall(wall))) })
    }

    /// The first matching local time after this one, both in seconds since 1970 of the same wall clock.
    pub(super) fn next_wall(&self, after: i64) -> Option<i64> {
        let mut from = DateTime::<Utc>::from_timestamp(after.clamp(-FAR, MAX_SECOND), 0)?;
        loop {
            let found = self.schedule.after(&from).next().filter(|found| found.year() <= i32::from(YEARS.1))?;
            let days = self.days.of_month(found.year(), found.month());
            if days & (1 << found.day()) != 0 {
                return Some(found.timestamp());
            }
            // Continue with the next matching day or the next month, never second by second.
            let later = u64::from(days) >> (found.day() + 1);
            let month = NaiveDate::from_ymd_opt(found.year(), found.month(), 1)?;
            let day = if later == 0 {
                month.checked_add_months(chrono::Months::new(1))?
            } else {
                month.with_day(found.day() + 1 + later.trailing_zeros())?
            };
            from = day.and_hms_opt(0, 0, 0)?.and_utc() - Duration::seconds(1);
        }
    }
}

/// A day after the last second that can match.
const MAX_SECOND: i64 = 4_102_444_800 + 86_400;

fn fold_note(copy: Twin) -> Option<Note> {
    match copy {
        Twin::Only => None,
        Twin::First => Some(Note::FoldFirst),
        Twin::Second => Some(Note::FoldSecond),
    }
}
