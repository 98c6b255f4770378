//! Finds the days of a month that match the two day fields.

use chrono::{Datelike, NaiveDate};

/// The parsed day fields. Sets are bit masks: day 1 is bit 1, Sunday is bit 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Days {
    /// Plain days of the month.
    pub month_days: u32,
    /// `L-n`: bit n.
    pub from_last: u32,
    /// `dW`: bit d.
    pub near: u32,
    /// `L-nW`, `LW`: bit n.
    pub near_from_last: u32,
    /// Plain weekdays.
    pub weekdays: u8,
    /// `xL`: bit x.
    pub last_weekdays: u8,
    /// `x#n`: bit 7 (n - 1) + x.
    pub nth_weekdays: u64,
    /// A match of one field is enough.
    pub either: bool,
}

impl Days {
    pub(super) fn is_plain(&self) -> bool {
        !self.either && (self.from_last | self.near | self.near_from_last) == 0 && self.last_weekdays == 0 && self.nth_weekdays == 0
    }

    /// The matching days of a month (1 to 12), as bits 1 to 31.
    pub(super) fn of_month(&self, year: i32, month: u32) -> u32 {
        let Some(month) = Month::of(year, month) else { return 0 };
        let (by_date, by_weekday) = (self.by_date(month), self.by_weekday(month));
        let both = if self.either { by_date | by_weekday } else { by_date & by_weekday };
        both & month.all()
    }

    fn by_date(&self, month: Month) -> u32 {
        let mut days = self.month_days;
        for n in bits(self.from_last.into()) {
            days |= month.last.checked_sub(n).map_or(0, |day| 1 << day);
        }
        for day in bits(self.near.into()) {
            days |= month.nearest_weekday(day);
        }
        for n in bits(self.near_from_last.into()) {
            days |= month.last.checked_sub(n).map_or(0, |day| month.nearest_weekday(day));
        }
        days
    }

    fn by_weekday(&self, month: Month) -> u32 {
        let mut days = bits(self.weekdays.into()).fold(0, |days, weekday| days | month.every(weekday));
        for weekday in bits(self.last_weekdays.into()) {
            days |= 1 << (31 - month.every(weekday).leading_zeros());
        }
        for bit in bits(self.nth_weekdays) {
            days |= 1_u32.checked_shl(month.first_of(bit % 7) + 7 * (bit / 7)).unwrap_or(0);
        }
        days
    }
}

fn bits(set: u64) -> impl Iterator<Item = u32> {
    let mut rest = set;
    std::iter::from_fn(move || {
        let bit = rest.trailing_zeros();
        rest &= rest.wrapping_sub(1);
        (bit < 64).then_some(bit)
    })
}

#[derive(Clone, Copy)]
struct Month {
    /// The weekday of its first day, Sunday = 0.
    first_weekday: u32,
    /// Its last day.
    last: u32,
}

impl Month {
    fn of(year: i32, month: u32) -> Option<Self> {
        let first = NaiveDate::from_ymd_opt(year, month, 1)?;
        Some(Self { first_weekday: first.weekday().num_days_from_sunday(), last: u32::from(first.num_days_in_month()) })
    }

    fn all(self) -> u32 {
        (u32::MAX >> (31 - self.last)) & !1
    }

    /// The first day with this weekday.
    fn first_of(self, weekday: u32) -> u32 {
        1 + (weekday + 7 - self.first_weekday) % 7
    }

    /// All days with this weekday.
    fn every(self, weekday: u32) -> u32 {
        (0x1020_4081 << self.first_of(weekday)) & self.all()
    }

    /// The weekday (Monday to Friday) nearest to a day, within the same month; `None` if the month has no such day.
    fn nearest_weekday(self, day: u32) -> u32 {
        if day == 0 || day > self.last {
            return 0;
        }
        match (self.first_weekday + day - 1) % 7 {
            6 if day == 1 => 1 << 3,
            6 => 1 << (day - 1),
            0 if day == self.last => 1 << (day - 2),
            0 => 1 << (day + 1),
            _ => 1 << day,
        }
    }
}
