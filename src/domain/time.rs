//! Timestamps. The clock is read only here, so that tests and simulations can control time.

use chrono::{DateTime, SecondsFormat, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::fmt;
use std::sync::OnceLock;
use std::time::Instant;

/// Milliseconds since 1970-01-01T00:00:00Z. Sent as RFC 3339 text in UTC with milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The wall clock, which can be set: for times that people or other processes see.
    #[must_use]
    pub fn now() -> Self {
        Self(Utc::now().timestamp_millis() + crate::fault::clock_offset_ms())
    }

    /// The wall clock at its first reading, advanced by a monotonic clock: for leases and timeouts within this process. Never stored or
    /// sent: see [`Self::on_the_wall`].
    #[must_use]
    pub fn steady() -> Self {
        static BEGIN: OnceLock<(Instant, Timestamp)> = OnceLock::new();
        let (begin, at) = BEGIN.get_or_init(|| (Instant::now(), Self::now()));
        at.plus_ms(i64::try_from(begin.elapsed().as_millis()).unwrap_or(i64::MAX))
    }

    /// Converts a steady time to the current wall clock, for storing or display.
    #[must_use]
    pub fn on_the_wall(self) -> Self {
        self.plus_ms(Self::now().since_ms(Self::steady()))
    }

    /// This instant moved by `ms` milliseconds.
    #[must_use]
    pub fn plus_ms(self, ms: i64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this instant; negative if it is later.
    #[must_use]
    pub fn since_ms(self, earlier: Self) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// A span of milliseconds in the largest unit that divides it: `100 ms`, `90 s`, `1 day`, `100 years` of 366 days.
#[must_use]
pub fn span_text(ms: u64) -> String {
    const DAY: u64 = 86_400_000;
    let units = [(366 * DAY, "year"), (DAY, "day"), (3_600_000, "hour"), (60_000, "minute"), (1_000, "s")];
    match units.iter().find(|(unit, _)| ms > 0 && ms.is_multiple_of(*unit)) {
        Some((unit, name)) => {
            let count = ms / unit;
            format!("{count} {name}{}", if count == 1 || *name == "s" { "" } else { "s" })
        }
        None => format!("{ms} ms"),
    }
}

impl From<std::time::SystemTime> for Timestamp {
    fn from(time: std::time::SystemTime) -> Self {
        Self(DateTime::<Utc>::from(time).timestamp_millis())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match DateTime::<Utc>::from_timestamp_millis(self.0) {
            Some(time) => f.write_str(&time.to_rfc3339_opts(SecondsFormat::Millis, true)),
            None => write!(f, "{} ms", self.0),
        }
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for Timestamp {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "format": "date-time" })
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(40).collect()
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        let wrong = |_| D::Error::custom(format!("an instant is expected, for example 2026-12-24T18:00:00Z, not {:?}", shortened(&text)));
        DateTime::parse_from_rfc3339(&text).map(|t| Self(t.timestamp_millis())).map_err(wrong)
    }
}
