//! Blackouts: times at which a job does not run.

use crate::domain::time::Timestamp;
use crate::domain::zone::Zone;
use chrono::{DateTime, Datelike, NaiveDate, NaiveTime, Timelike, Utc};
use serde::{Deserialize, Serialize};

/// A time at which a job does not run: between two times (`from`, `to`), on whole days (`dates`), or every day or on some weekdays
/// between two times of the day (`start`, `end`, `days`). Days and times are in the job's zone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Blackout {
    /// Its name in the ledger.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The first time that is covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from: Option<Timestamp>,
    /// The first time that is no longer covered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub to: Option<Timestamp>,
    /// Whole days, as `2026-12-25`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub dates: Vec<String>,
    /// A time of the day, as `22:00`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub start: Option<String>,
    /// The time of the day at which it ends; if before `start`, on the next day.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end: Option<String>,
    /// The weekdays on which it begins, as `MON`; all if the list is empty.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub days: Vec<String>,
}

#[derive(Debug, Clone)]
pub(super) struct Compiled {
    name: String,
    span: Span,
}

#[derive(Debug, Clone)]
enum Span {
    Between(Timestamp, Timestamp),
    Dates(Vec<NaiveDate>),
    /// Bit n is the n-th day after Monday.
    Daily {
        start: NaiveTime,
        end: NaiveTime,
        days: u8,
    },
}

const DAYS: [&str; 7] = ["MON", "TUE", "WED", "THU", "FRI", "SAT", "SUN"];

impl Blackout {
    pub(super) fn compile(&self) -> Result<Compiled, (&'static str, String)> {
        if self.name.as_ref().is_some_and(|name| name.chars().count() > 50) {
            return Err(("name", "must be at most 50 characters".to_owned()));
        }
        let span = match (self.from, self.to, self.start.as_deref(), self.end.as_deref()) {
            (Some(from), Some(to), None, None) if self.dates.is_empty() && self.days.is_empty() => {
                if to <= from {
                    return Err(("to", format!("the end {to} is not after the beginning {from}")));
                }
                Span::Between(from, to)
            }
            (None, None, Some(start), Some(end)) if self.dates.is_empty() => {
                Span::Daily { start: time("start", start)?, end: time("end", end)?, days: self.weekdays()? }
            }
            (None, None, None, None) if !self.dates.is_empty() && self.days.is_empty() => {
                if self.dates.len() > 1_000 {
                    return Err(("dates", "must be at most 1000 dates".to_owned()));
                }
                let date = |text: &String| {
                    NaiveDate::parse_from_str(text, "%Y-%m-%d").map_err(|_| ("dates", format!("`{text}` is not a date like 2026-12-25")))
                };
                Span::Dates(self.dates.iter().map(date).collect::<Result<_, _>>()?)
            }
            _ => {
                let detail = "a blackout must have `from` and `to`, or `dates`, or `start` and `end` with or without `days`";
                return Err(("from", detail.to_owned()));
            }
        };
        Ok(Compiled { name: self.name.clone().unwrap_or_else(|| "blackout".to_owned()), span })
    }

    fn weekdays(&self) -> Result<u8, (&'static str, String)> {
        let mut bits = 0;
        for text in &self.days {
            let day = DAYS.iter().position(|day| day.eq_ignore_ascii_case(text));
            bits |= 1 << day.ok_or_else(|| ("days", format!("`{text}` is none of {}", DAYS.join(", "))))?;
        }
        Ok(if bits == 0 { 0x7f } else { bits })
    }
}

fn time(part: &'static str, text: &str) -> Result<NaiveTime, (&'static str, String)> {
    let parsed = NaiveTime::parse_from_str(text, "%H:%M").or_else(|_| NaiveTime::parse_from_str(text, "%H:%M:%S"));
    parsed.map_err(|_| (part, format!("`{text}` is not a time of the day like 22:00")))
}

impl Compiled {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn covers(&self, at: Timestamp, zone: &Zone) -> bool {
        let local = || {
            let shifted = at.plus_ms(i64::from(zone.offset_seconds(at)) * 1_000);
            DateTime::<Utc>::from_timestamp_millis(shifted.0).unwrap_or_default().naive_utc()
        };
        match &self.span {
            Span::Between(from, to) => (*from..*to).contains(&at),
            Span::Dates(dates) => dates.contains(&local().date()),
            Span::Daily { start, end, days } => {
                let local = local();
                let time = local.time().with_nanosecond(0).unwrap_or_default();
                let today = local.weekday().num_days_from_monday();
                let begins = |day: u32| days & 1 << day != 0;
                if start < end {
                    begins(today) && (*start..*end).contains(&time)
                } else {
                    begins(today) && time >= *start || begins((today + 6) % 7) && time < *end
                }
            }
        }
    }
}
