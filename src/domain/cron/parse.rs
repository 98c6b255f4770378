//! Parses a whole expression: splits it into fields, parses each, and formats the result.

use super::days::Days;
use super::dialect::{Dialect, macro_fields};
use super::error::InvalidCron;
use super::field::{Field, Item, Piece};
use super::unit::Unit;
use std::fmt::Write as _;

/// More than any sensible list; it bounds the size for storage and display.
const MAX_CHARACTERS: usize = 1000;
const FIELDS: &str = "5 fields, 6 (seconds first) or 7 (years last)";
const EXAMPLE: &str = "Example: \"0 9 * * MON\" runs at 09:00 every Monday";

/// The seven parsed fields.
#[derive(Clone, Debug)]
pub(super) struct Fields {
    pub second: Field,
    pub minute: Field,
    pub hour: Field,
    pub day_of_month: Field,
    pub month: Field,
    pub day_of_week: Field,
    pub year: Field,
}

impl Fields {
    pub(super) fn parse(text: &str, dialect: Dialect) -> Result<Self, InvalidCron> {
        let fault =
            |field, position, detail: String| InvalidCron { field, position, text: text.chars().take(MAX_CHARACTERS).collect(), detail };
        let characters = text.chars().count();
        if characters > MAX_CHARACTERS {
            return Err(fault("", 0, format!("must be at most {MAX_CHARACTERS} characters, not {characters}")));
        }
        let mut pieces = split(text);
        let Some(first) = pieces.first().copied() else {
            return Err(fault("", 0, format!("the expression is empty: {FIELDS} are expected. {EXAMPLE}")));
        };
        if first.text.starts_with('@') {
            let expanded = macro_fields(first.text).map_err(|detail| fault("", first.at, detail.to_owned()))?;
            if let Some(more) = pieces.get(1) {
                return Err(fault("", more.at, format!("nothing may follow {}", first.text)));
            }
            pieces = split(expanded);
        }
        if first.text.starts_with("TZ=") || first.text.starts_with("CRON_TZ=") {
            return Err(fault("", first.at, "the time zone must be set in its own field, not in the expression".to_owned()));
        }
        let units = match pieces.len() {
            5 => &Unit::ALL[1..6],
            6 => &Unit::ALL[..6],
            7 => &Unit::ALL[..],
            n => {
                let at = pieces.get(7).map_or_else(|| text.trim_end().chars().count(), |surplus| surplus.at);
                let fields = if n == 1 { "field" } else { "fields" };
                return Err(fault("", at, format!("not a cron expression: it has {n} {fields}, and {FIELDS} are expected. {EXAMPLE}")));
            }
        };
        let read = |unit: Unit| match units.iter().position(|u| *u == unit) {
            Some(at) => Field::parse(unit, dialect, pieces[at]).map_err(|(at, detail)| fault(unit.name(), at, detail)),
            None => Ok(Field::of(unit, (unit == Unit::Second).then_some(0))),
        };
        // In text order, so that the first error is reported.
        let fields = Self {
            second: read(Unit::Second)?,
            minute: read(Unit::Minute)?,
            hour: read(Unit::Hour)?,
            day_of_month: read(Unit::DayOfMonth)?,
            month: read(Unit::Month)?,
            day_of_week: read(Unit::DayOfWeek)?,
            year: read(Unit::Year)?,
        };
        if dialect == Dialect::Quartz && pieces.len() > 4 {
            let day = |unit| units.iter().position(|u| *u == unit).map(|at| pieces[at]);
            if let (Some(date), Some(weekday)) = (day(Unit::DayOfMonth), day(Unit::DayOfWeek))
                && (date.text, weekday.text) == ("?", "?")
            {
                return Err(fault(Unit::DayOfWeek.name(), weekday.at, "? can stand in one of the two day fields only".to_owned()));
            }
        }
        Ok(fields)
    }

    pub(super) fn days(&self, dialect: Dialect) -> Days {
        let restricted = !self.day_of_month.starred && !self.day_of_week.starred;
        let mut days = Days { either: restricted && dialect == Dialect::Crontab, ..Days::default() };
        self.day_of_month.add_to(Unit::DayOfMonth, &mut days);
        self.day_of_week.add_to(Unit::DayOfWeek, &mut days);
        days
    }

    /// The text for the `cron` crate: lists of plain ranges, Sunday as 1; every day where the crate cannot express what [`Days`] holds.
    pub(super) fn for_crate(&self, days: &Days) -> String {
        let list =
            |field: &Field, unit: Unit, shift: u16| if field.is_all(unit) { "*".to_owned() } else { ranges(&field.values(unit), shift) };
        let (date, weekday) = if days.is_plain() {
            (list(&self.day_of_month, Unit::DayOfMonth, 0), list(&self.day_of_week, Unit::DayOfWeek, 1))
        } else {
            ("*".to_owned(), "*".to_owned())
        };
        [
            list(&self.second, Unit::Second, 0),
            list(&self.minute, Unit::Minute, 0),
            list(&self.hour, Unit::Hour, 0),
            date,
            list(&self.month, Unit::Month, 0),
            weekday,
            list(&self.year, Unit::Year, 0),
        ]
        .join(" ")
    }

    pub(super) fn understood(&self) -> String {
        let fields =
            [&self.second, &self.minute, &self.hour, &self.day_of_month, &self.month, &self.day_of_week, &self.year].map(Field::to_string);
        fields.join(" ")
    }
}

/// Splits at blanks and tabs. Line ends are allowed around the expression, but not inside.
fn split(text: &str) -> Vec<Piece<'_>> {
    let trimmed = text.trim();
    let mut at = text.chars().take_while(|c| c.is_whitespace()).count();
    let mut pieces = Vec::new();
    for part in trimmed.split([' ', '\t']) {
        if !part.is_empty() {
            pieces.push(Piece { text: part, at });
        }
        at += part.chars().count() + 1;
    }
    pieces
}

/// `1-3,7` of the sorted values 1, 2, 3, 7.
fn ranges(values: &[u16], shift: u16) -> String {
    let mut text = String::new();
    for run in values.chunk_by(|a, b| a + 1 == *b) {
        if let [first, .., last] = run {
            // Writing into a `String` cannot fail.
            let _ = write!(text, "{}-{},", first + shift, last + shift);
        } else if let [only] = run {
            let _ = write!(text, "{},", only + shift);
        }
    }
    text.pop();
    text
}

impl std::fmt::Display for Field {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (at, item) in self.items.iter().enumerate() {
            if at > 0 {
                f.write_str(",")?;
            }
            match *item {
                Item::Span { star: true, step: 1, .. } => f.write_str("*"),
                Item::Span { star: true, step, .. } => write!(f, "*/{step}"),
                Item::Span { from, to, .. } if from == to => write!(f, "{from}"),
                Item::Span { from, to, step: 1, .. } => write!(f, "{from}-{to}"),
                Item::Span { from, to, step, .. } => write!(f, "{from}-{to}/{step}"),
                Item::Last { before, weekday } => {
                    f.write_str("L")?;
                    if before > 0 {
                        write!(f, "-{before}")?;
                    }
                    f.write_str(if weekday { "W" } else { "" })
                }
                Item::Near(day) => write!(f, "{day}W"),
                Item::LastWeekday(day) => write!(f, "{day}L"),
                Item::Nth(day, nth) => write!(f, "{day}#{nth}"),
            }?;
        }
        Ok(())
    }
}
