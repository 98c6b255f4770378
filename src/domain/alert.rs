//! Alerts: which channel receives which event, when it is sent, and how often sending is retried.

use super::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Events that a channel can receive.
pub const EVENTS: [&str; 6] = ["failed", "missed", "late", "silent", "recovered", "disabled"];
/// Send attempts before a message is dropped.
pub const MOST_ATTEMPTS: u32 = 12;

const FIRST_PAUSE_MS: i64 = 1_000;
const LONGEST_PAUSE_MS: i64 = 300_000;

/// Where messages are sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ChannelKind {
    /// A `POST` of JSON to a URL.
    Webhook,
    /// A mail to an address.
    Mail,
}

impl ChannelKind {
    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Mail => "mail",
        }
    }
}

impl FromStr for ChannelKind {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Webhook, Self::Mail];
        all.into_iter().find(|kind| kind.name() == text).ok_or_else(|| format!("`{text}` is neither webhook nor mail"))
    }
}

/// The events that a channel receives. An empty list matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Filter {
    /// failed, missed, late, silent, recovered, disabled.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Jobs, by their ids or their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
    /// Groups, by their names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
}

impl Filter {
    /// Whether the filter lets an event through.
    #[must_use]
    pub fn passes(&self, event: &str, job_id: &str, job_name: &str, group: Option<&str>) -> bool {
        let any = |list: &[String], fits: &dyn Fn(&str) -> bool| list.is_empty() || list.iter().any(|entry| fits(entry));
        any(&self.events, &|entry| entry == event)
            && any(&self.jobs, &|entry| entry == job_id || entry == job_name)
            && any(&self.groups, &|entry| Some(entry) == group)
    }

    /// Checks the lists.
    ///
    /// # Errors
    /// The field that is wrong, and why.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        if let Some(event) = self.events.iter().find(|event| !EVENTS.contains(&event.as_str())) {
            return Err(("filter.events", format!("unknown event `{event}`: expected one of {}", EVENTS.join(", "))));
        }
        for (field, list) in [("filter.jobs", &self.jobs), ("filter.groups", &self.groups)] {
            if list.len() > 100 || list.iter().any(|entry| entry.is_empty() || entry.chars().count() > 50) {
                return Err((field, "must have at most 100 entries of 1 to 50 characters".to_owned()));
            }
        }
        Ok(())
    }
}

/// The last message of one kind about one job to one channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// It has not been sent yet, or will be retried.
    pub waits: bool,
    /// When it was or will be due.
    pub due: Timestamp,
}

/// When an event is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Turn {
    /// In a message of its own, at this time.
    At(Timestamp),
    /// Together with the message that is already pending.
    Joins,
}

/// At most one message per `gather_ms` for similar events: the first event is sent at once; the events that follow are
/// collected into a second message, and so on. A job that fails every second causes one message a minute, with a count.
#[must_use]
pub fn turn(last: Option<Last>, now: Timestamp, gather_ms: u64) -> Turn {
    match last {
        None => Turn::At(now),
        Some(last) if last.waits => Turn::Joins,
        Some(last) => Turn::At(last.due.plus_ms(i64::try_from(gather_ms).unwrap_or(i64::MAX)).max(now)),
    }
}

/// Milliseconds between the failure of this attempt (from 1) and the next attempt; `None` after the last one.
#[must_use]
pub fn pause_after(attempt: u32) -> Option<i64> {
    (attempt < MOST_ATTEMPTS).then(|| (FIRST_PAUSE_MS << attempt.saturating_sub(1).min(20)).min(LONGEST_PAUSE_MS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_takes_what_all_its_lists_take() {
        let of = |events: &[&str], jobs: &[&str], groups: &[&str]| {
            let texts = |list: &[&str]| list.iter().map(|entry| (*entry).to_owned()).collect();
            Filter { events: texts(events), jobs: texts(jobs), groups: texts(groups) }.passes("failed", "1d", "nightly", Some("etl"))
        };
        assert!(of(&[], &[], &[]));
        assert!(of(&["late", "failed"], &["nightly"], &["etl"]) && of(&[], &["1d"], &[]));
        assert!(!of(&["late"], &[], &[]) && !of(&[], &["hourly"], &[]) && !of(&[], &[], &["ops"]));
        assert!(!of(&["failed"], &["nightly"], &["ops"]), "every list counts");
        assert!(!Filter { groups: vec!["etl".into()], ..Filter::default() }.passes("failed", "1d", "nightly", None));
    }

    #[test]
    fn what_is_alike_is_gathered() {
        let now = Timestamp(100_000);
        assert_eq!(turn(None, now, 60_000), Turn::At(now));
        assert_eq!(turn(Some(Last { waits: true, due: Timestamp(0) }), now, 60_000), Turn::Joins);
        assert_eq!(turn(Some(Last { waits: false, due: Timestamp(90_000) }), now, 60_000), Turn::At(Timestamp(150_000)));
        assert_eq!(turn(Some(Last { waits: false, due: Timestamp(40_000) }), now, 60_000), Turn::At(now));
    }

    #[test]
    fn pauses_double_up_to_five_minutes() {
        let pauses: Vec<_> = (1..=MOST_ATTEMPTS).map(pause_after).collect();
        assert_eq!(pauses[..3], [Some(1_000), Some(2_000), Some(4_000)]);
        assert_eq!((pauses[9], pauses[10], pauses[11]), (Some(300_000), Some(300_000), None));
    }
}
