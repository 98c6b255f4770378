//! Cron expressions: what they mean, and when they fire next in a time zone.
//!
//! **Fields.** Five (minute, hour, day of month, month, day of week; second 0), six (second first) or seven (second first,
//! year last; 1970 to 2099), parted by blanks; or `@yearly`, `@annually`, `@monthly`, `@weekly`, `@daily`, `@midnight`,
//! `@hourly`. Letters may be in either case. A field is a list of
//!
//! | item | means |
//! | --- | --- |
//! | `*` | every value; `?` is the same, alone and in a day field |
//! | `5`, `MAR`, `FRIDAY` | one value |
//! | `1-5`, `22-4`, `FRI-MON` | a range; it may go round the end, except for years |
//! | `*/5`, `5/15`, `1-30/7` | each n-th of all, from 5 to the last, of a range |
//! | `L`, `L-3`, `LW`, `L-3W` | day of month: the last, three days before it; the weekday (Monday to Friday) nearest to it |
//! | `15W` | day of month: the weekday nearest to the 15th, in the same month; none if the month has no such day |
//! | `5L`, `FRIL` | day of week: the month's last Friday |
//! | `5#2`, `FRI#2` | day of week: the month's second Friday |
//!
//! **Dialects.** [`Dialect::Crontab`], the default, counts Sunday as 0 and 7 whatever the number of fields, and follows
//! crontab(5) where both day fields are restricted: either is enough. As in Vixie's cron a field that begins with `*`
//! (`*/2` too) is not restricted in this sense, and then both must match. [`Dialect::Quartz`] counts Sunday as 1; both day
//! fields must match always. (Quartz itself wants a `?` in one of them. Without one its texts would be ambiguous; here `*`
//! does as well, and two restricted fields are read as "the 13th, if it is a Friday".)
//!
//! **Time zones.** A local time may be missing (the clock is set forward: a gap) or come twice (set back: a fold). A job may
//! choose [`GapRule`] and [`FoldRule`]; what it does not choose depends, as in Vixie's cron, on the expression: if the hour
//! field begins with `*` the job goes by elapsed time (gap `skip`, fold `both`), else it is meant once a day (gap `after`,
//! fold `first`). (Vixie's looks at the minute's `*` as well; here the hour alone decides.) Two fires never share an
//! instant: what is moved onto another fire is one with it.
//!
//! **The `cron` crate** knows no five fields, no L, W, # and no wrapped ranges, counts Sunday as 1 and is wrong in a fold.
//! So expressions are read here, it is given plain lists, and it is asked in local time without any zone (in UTC that
//! stands for it); [`next`] adds the changes of offset and `days` those days that it cannot say.

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
pub use next::{Note, Occurrence};
pub use preview::PreviewLine;

use super::time::Timestamp;
#[cfg(doc)]
use super::zone::{FoldRule, GapRule};
use days::Days;
use parse::Fields;

/// A cron expression. It takes about a kilobyte; share it.
#[derive(Clone, Debug)]
pub struct Cron {
    text: Box<str>,
    dialect: Dialect,
    /// All but what [`Days`] adds. A superset of the matching local times.
    schedule: cron::Schedule,
    days: Days,
    /// The hour field begins with `*`: gaps and folds are passed by elapsed time.
    elapsed: bool,
}

impl Cron {
    /// Reads an expression.
    ///
    /// # Errors
    /// It is not valid; the error tells the field, the place and the reason.
    pub fn parse(text: &str, dialect: Dialect) -> Result<Self, InvalidCron> {
        let fields = Fields::parse(text, dialect)?;
        let (days, elapsed) = (fields.days(dialect), fields.hour.starred);
        // A text made of plain lists within bounds is one that the crate takes; were it not, the caller is told.
        let schedule = fields.for_crate(&days).parse().map_err(|e: cron::error::Error| InvalidCron {
            field: "",
            position: 0,
            text: text.to_owned(),
            detail: format!("the schedule was not understood: {e}"),
        })?;
        Ok(Self { text: text.into(), dialect, schedule, days, elapsed })
    }

    /// The expression as it was given.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The dialect that it is written in.
    #[must_use]
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The same in seven fields, numbers for names, weekdays as crontab counts them.
    #[must_use]
    pub fn understood(&self) -> String {
        self.fields().map_or_else(String::new, |fields| fields.understood())
    }

    /// The same in short English.
    #[must_use]
    pub fn describe(&self) -> String {
        self.fields().map_or_else(String::new, |fields| describe::describe(&fields, &self.days))
    }

    /// Whether it has a local time left after this instant, in whatever zone. If not, it never fires again.
    #[must_use]
    pub fn can_fire_after(&self, after: Timestamp) -> bool {
        // The local time furthest behind UTC.
        self.next_wall(after.0.div_euclid(1000).saturating_sub(26 * 3600)).is_some()
    }

    /// Reading it again is cheaper than keeping all its parts for the few who ask.
    fn fields(&self) -> Option<Fields> {
        Fields::parse(&self.text, self.dialect).ok()
    }
}
