//! Cron expressions: their syntax and meaning, and their next fire in a time zone.
//!
//! **Fields.** Five (minute, hour, day of month, month, day of week; second 0), six (second first) or seven (second first,
//! year last; 1970 to 2099), separated by blanks; or `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`,
//! `@hourly`. Case does not matter. A field is a list of
//!
//! | item | means |
//! | --- | --- |
//! | `*` | every value; `?` means the same, alone in a day field |
//! | `5`, `MAR`, `FRIDAY` | one value |
//! | `1-5`, `22-4`, `FRI-MON` | a range; it may wrap around the end, except for years |
//! | `*/5`, `5/15`, `1-30/7` | every n-th value: of all, from 5 on, of a range |
//! | `L`, `L-3`, `LW`, `L-3W` | day of month: the last, three days before it; the weekday (Monday to Friday) nearest to it |
//! | `15W` | day of month: the weekday nearest to the 15th, in the same month; none if the month has no such day |
//! | `5L`, `FRIL` | day of week: the month's last Friday |
//! | `5#2`, `FRI#2` | day of week: the month's second Friday |
//!
//! **Dialects.** [`Dialect::Crontab`], the default, counts Sunday as 0 and 7 for any number of fields. If both day fields are
//! restricted, a match of either is enough, as in crontab(5). As in Vixie's cron a field that begins with `*` (also `*/2`) does
//! not count as restricted, and then both must match. [`Dialect::Quartz`] counts Sunday as 1; both day fields must always match.
//! (Quartz itself requires a `?` in one of them to avoid ambiguity; here `*` works too, and two restricted fields mean for
//! example "the 13th, if it is a Friday".)
//!
//! **Time zones.** A local time may be missing (the clock is set forward: a gap) or occur twice (set back: a fold). A job may
//! set [`GapRule`] and [`FoldRule`]; the defaults depend, as in Vixie's cron, on the expression: if the hour field begins with `*`
//! the job runs by elapsed time (gap `skip`, fold `both`), else it should run once a day (gap `after`, fold `first`). (Vixie's
//! cron also checks the minute for `*`; here only the hour matters.) Two fires never share an instant: a fire that is moved onto
//! another one merges with it.
//!
//! **The `cron` crate** does not support five fields, L, W, # and wrapped ranges, counts Sunday as 1 and is wrong in a fold.
//! So this module parses expressions, passes plain lists to the crate, and uses it with local time only (represented as UTC);
//! `next` handles the changes of offset and `days` the days that the crate cannot express.

mod days;
mod describe;
mod dialect;
mod error;
mod field;
mod next;
mod parse;
mod preview;
#[cfg(test)]
mod tests;
mod unit;

pub use dialect::Dialect;
pub use error::InvalidCron;
pub use next::Occurrence;
pub use preview::PreviewLine;

#[cfg(doc)]
use super::zone::{FoldRule, GapRule};
use days::Days;
use parse::Fields;

/// A cron expression. It uses about a kilobyte; share it.
#[derive(Clone, Debug)]
pub struct Cron {
    text: Box<str>,
    dialect: Dialect,
    /// Everything except what [`Days`] adds. A superset of the matching local times.
    schedule: cron::Schedule,
    days: Days,
    /// The hour field begins with `*`: gaps and folds are handled by elapsed time.
    elapsed: bool,
}

impl Cron {
    /// Parses an expression.
    ///
    /// # Errors
    /// The expression is invalid; the error contains the field, the position and the reason.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, InvalidCron> {
        let fields = Fields::parse(text, dialect)?;
        let (days, elapsed) = (fields.days(dialect), fields.hour.starred);
        // The crate should accept plain lists within bounds; if not, the caller gets the error.
        let schedule = fields.for_crate(&days).parse().map_err(|e: cron::error::Error| InvalidCron {
            field: "",
            position: 0,
            text: text.to_owned(),
            detail: format!("the schedule could not be parsed: {e}"),
        })?;
        Ok(Self { text: text.into(), dialect, schedule, days, elapsed })
    }

    /// The expression as given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The dialect of the expression.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The same expression with seven fields, numbers instead of names, and crontab's weekday numbers.
    #[must_use]
    pub fn understood(&self) -> String {
        self.fields().map_or_else(String::new, |fields| fields.understood())
    }

    /// A description in short English.
    #[must_use]
    pub fn describe(&self) -> String {
        self.fields().map_or_else(String::new, |fields| describe::describe(&fields, &self.days))
    }

    /// Parsing again on demand is cheaper than keeping the fields, which are rarely needed.
    fn fields(&self) -> Option<Fields> {
        Fields::parse(&self.text, self.dialect).ok()
    }
}
