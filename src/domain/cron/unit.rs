//! The allowed values of each field.

use super::dialect::Dialect;

/// A field of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Second,
    Minute,
    Hour,
    DayOfMonth,
    Month,
    DayOfWeek,
    Year,
}

/// The years that an expression can contain; `*` means all of them.
pub(super) const YEARS: (u16, u16) = (1970, 2099);

pub(super) const MONTHS: [&str; 12] =
    ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december"];
pub(super) const WEEKDAYS: [&str; 7] = ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];

impl Unit {
    pub(super) const ALL: [Self; 7] = [Self::Second, Self::Minute, Self::Hour, Self::DayOfMonth, Self::Month, Self::DayOfWeek, Self::Year];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Second => "second",
            Self::Minute => "minute",
            Self::Hour => "hour",
            Self::DayOfMonth => "day of month",
            Self::Month => "month",
            Self::DayOfWeek => "day of week",
            Self::Year => "year",
        }
    }

    /// First and last value. Weekdays count from Sunday = 0 in all dialects.
    pub(super) fn bounds(self) -> (u16, u16) {
        match self {
            Self::Second | Self::Minute => (0, 59),
            Self::Hour => (0, 23),
            Self::DayOfMonth => (1, 31),
            Self::Month => (1, 12),
            Self::DayOfWeek => (0, 6),
            Self::Year => YEARS,
        }
    }

    /// First and last number that an expression may contain.
    pub(super) fn written(self, dialect: Dialect) -> (u16, u16) {
        match (self, dialect) {
            (Self::DayOfWeek, Dialect::Crontab) => (0, 7),
            (Self::DayOfWeek, Dialect::Quartz) => (1, 7),
            _ => self.bounds(),
        }
    }

    pub(super) fn count(self) -> u16 {
        let (first, last) = self.bounds();
        last - first + 1
    }

    /// The value of a name: its first three letters, or the whole name.
    pub(super) fn named(self, name: &str) -> Option<u16> {
        let (names, first): (&[&str], u16) = match self {
            Self::Month => (&MONTHS, 1),
            Self::DayOfWeek => (&WEEKDAYS, 0),
            _ => return None,
        };
        let is = |full: &&str| name.eq_ignore_ascii_case(full) || name.eq_ignore_ascii_case(&full[..3]);
        names.iter().position(is).and_then(|at| u16::try_from(at).ok()).map(|at| at + first)
    }

    pub(super) fn is_day(self) -> bool {
        matches!(self, Self::DayOfMonth | Self::DayOfWeek)
    }
}
