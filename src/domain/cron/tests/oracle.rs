//! Brute force: finds the matching local times day by day and item by item, and their instants. Written from the text of the
//! rules and slow on purpose; it shares only jiff's data with the code under test.

use super::*;
use chrono::{Datelike, Days, NaiveDate, Weekday};
use jiff::tz::AmbiguousOffset;
use std::collections::BTreeSet;

/// Supports numbers only, no names; crontab's weekdays.
pub struct Oracle {
    fields: Vec<String>,
    /// Seconds of the day that match.
    times: Vec<i64>,
}

fn number(text: &str) -> u32 {
    text.parse().unwrap()
}

/// Whether a plain item contains this value, counted from its start.
fn has(item: &str, value: u32, first: u32, last: u32) -> bool {
    let (range, step) = item.split_once('/').map_or((item, 1), |(range, step)| (range, number(step)));
    let (from, to) = match range.split_once('-') {
        _ if range == "*" => (first, last),
        Some((from, to)) => (number(from), number(to)),
        None => (number(range), if item.contains('/') { last } else { number(range) }),
    };
    let (mut at, mut count) = (from, 0);
    loop {
        if at == value && count % step == 0 {
            return true;
        }
        if at == to {
            return false;
        }
        at = if at == last { first } else { at + 1 };
        count += 1;
    }
}

fn any(field: &str, value: u32, first: u32, last: u32) -> bool {
    field.split(',').any(|item| has(item, value, first, last))
}

fn is_working_day(day: NaiveDate) -> bool {
    !matches!(day.weekday(), Weekday::Sat | Weekday::Sun)
}

fn month_of(day: NaiveDate) -> Vec<NaiveDate> {
    (1..=31).filter_map(|n| day.with_day(n)).collect()
}

/// The working day of the month that is nearest to its n-th day, if it has such a day.
fn nearest(day: NaiveDate, n: u32) -> Option<NaiveDate> {
    day.with_day(n)?;
    month_of(day).into_iter().filter(|d| is_working_day(*d)).min_by_key(|d| d.day().abs_diff(n))
}

fn date_matches(item: &str, day: NaiveDate) -> bool {
    let days = month_of(day);
    let from_end = |n: usize| days.len().checked_sub(n + 1).map(|at| days[at]);
    match (item.strip_prefix('L'), item.strip_suffix('W')) {
        (Some("" | "W"), _) if item.ends_with('W') => days.iter().rfind(|d| is_working_day(**d)) == Some(&day),
        (Some(""), _) => from_end(0) == Some(day),
        (Some(rest), Some(_)) => from_end(rest[1..rest.len() - 1].parse().unwrap()).and_then(|d| nearest(day, d.day())) == Some(day),
        (Some(rest), None) => from_end(rest[1..].parse().unwrap()) == Some(day),
        (None, Some(n)) => nearest(day, number(n)) == Some(day),
        (None, None) => has(item, day.day(), 1, 31),
    }
}

fn weekday_matches(item: &str, day: NaiveDate) -> bool {
    let today = day.weekday().num_days_from_sunday();
    if let Some((weekday, nth)) = item.split_once('#') {
        let same: Vec<_> = month_of(day).into_iter().filter(|d| d.weekday() == day.weekday()).collect();
        return number(weekday) % 7 == today && same.get(number(nth) as usize - 1) == Some(&day);
    }
    if let Some(weekday) = item.strip_suffix('L') {
        return number(weekday) % 7 == today && (day + Days::new(7)).month() != day.month();
    }
    match item.split_once('-') {
        // Sunday at the end of a range is a 7, so that the range need not wrap.
        Some((from, "7")) if !item.contains('/') => today >= number(from) || today == 0,
        _ => has(item, today, 0, 6),
    }
}

impl Oracle {
    /// Five to seven fields.
    pub fn new(text: &str) -> Self {
        let mut fields: Vec<_> = text.split_whitespace().map(|field| field.replace('?', "*")).collect();
        if fields.len() == 5 {
            fields.insert(0, "0".to_owned());
        }
        if fields.len() == 6 {
            fields.push("*".to_owned());
        }
        let mut times = Vec::new();
        for hour in (0..24).filter(|v| any(&fields[2], *v, 0, 23)) {
            for minute in (0..60).filter(|v| any(&fields[1], *v, 0, 59)) {
                times.extend((0..60).filter(|v| any(&fields[0], *v, 0, 59)).map(|second| i64::from(hour * 3600 + minute * 60 + second)));
            }
        }
        Self { fields, times }
    }

    fn has_day(&self, day: NaiveDate) -> bool {
        let (date, weekday) = (&self.fields[3], &self.fields[5]);
        let by_date = date.split(',').any(|item| date_matches(item, day));
        let by_weekday = weekday.split(',').any(|item| weekday_matches(item, day));
        let either = !date.starts_with('*') && !weekday.starts_with('*');
        let days = if either { by_date || by_weekday } else { by_date && by_weekday };
        days && any(&self.fields[4], day.month(), 1, 12) && any(&self.fields[6], day.year().unsigned_abs(), 1970, 2099)
    }

    /// Matching local times from a day on, in seconds.
    pub fn walls(&self, from: NaiveDate, days: usize) -> Vec<i64> {
        let matching = from.iter_days().take(days).filter(|day| self.has_day(*day));
        matching
            .flat_map(|day| {
                let midnight = day.and_hms_opt(0, 0, 0).unwrap().and_utc().timestamp();
                self.times.iter().map(move |time| midnight + time)
            })
            .collect()
    }
}

/// The instants of these local times, in seconds.
pub fn instants(walls: &[i64], zone_name: &str, gap: GapRule, fold: FoldRule) -> BTreeSet<i64> {
    let zone = jiff::tz::TimeZoneDatabase::bundled().get(zone_name).unwrap();
    let mut found = BTreeSet::new();
    for wall in walls {
        let civil = jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(*wall).unwrap());
        let at = |offset: jiff::tz::Offset| wall - i64::from(offset.seconds());
        match zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => {
                found.insert(at(offset));
            }
            AmbiguousOffset::Fold { before, after } => {
                found.extend((fold != FoldRule::Second).then(|| at(before)));
                found.extend((fold != FoldRule::First).then(|| at(after)));
            }
            AmbiguousOffset::Gap { before, after } => match gap {
                GapRule::Skip => {}
                GapRule::Shift => {
                    found.insert(at(before));
                }
                // The first second that has the new offset.
                GapRule::After => {
                    let (mut low, mut high) = (at(after) - 1, at(before));
                    while high - low > 1 {
                        let middle = low.midpoint(high);
                        let changed = zone.to_offset(jiff::Timestamp::from_second(middle).unwrap()) == after;
                        if changed { high = middle } else { low = middle }
                    }
                    found.insert(high);
                }
            },
        }
    }
    found
}
