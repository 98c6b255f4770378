//! Lines for the logs of runs: validation and size limits, for all transports.

use super::context::BrokerContext;
use super::followers::{Size, full};
use super::reply::problem_of;
use crate::domain::ids::Identity;
use crate::domain::time::Timestamp;
use crate::protocol::log::{LogInput, LogLevel};
use crate::protocol::management::LogAccepted;
use crate::protocol::problem::Problem;
use crate::store::{AppendLogs, LogSize, NewLine, StoreError};

/// Maximum number of lines in one call.
pub(crate) const MOST_IN_CALL: usize = 1_000;
/// Maximum bytes of one line.
const MOST_IN_LINE: usize = 8_192;

const LEVELS: [&str; 6] = ["trace", "debug", "info", "warning", "error", "critical"];
pub(crate) const INFO: i16 = 2;
pub(crate) const WARNING: i16 = 3;
pub(crate) const ERROR: i16 = 4;

/// The number of a level given by name or by number.
pub(crate) fn level_of(text: &str) -> Option<i16> {
    let text = text.trim();
    let short = match text.to_ascii_lowercase().as_str() {
        "information" => Some(INFO),
        "warn" => Some(WARNING),
        "fatal" => Some(5),
        _ => None,
    };
    let named = || LEVELS.iter().position(|name| name.eq_ignore_ascii_case(text)).map(|n| n as i16);
    short.or_else(named).or_else(|| text.parse().ok().filter(|n| (0..=5).contains(n)))
}

pub(crate) fn level_name(level: i16) -> String {
    LEVELS.get(level as usize).copied().unwrap_or("info").to_owned()
}

pub(crate) fn invalid_level(field: &str, text: &str) -> Problem {
    Problem::invalid(field, format!("unknown level `{text}`: expected one of {}, or 0 to 5", LEVELS.join(", ")))
}

/// Cuts the text of a line to the longest that the log stores.
pub(crate) fn cut_line(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(MOST_IN_LINE));
    text
}

/// Validates the received lines.
pub(crate) fn check_lines(input: Vec<LogInput>, now: Timestamp) -> Result<Vec<NewLine>, Problem> {
    if input.len() > MOST_IN_CALL {
        return Err(Problem::invalid("lines", format!("must be at most {MOST_IN_CALL} lines, got {}", input.len())));
    }
    let line = |(i, line): (usize, LogInput)| {
        if line.text.len() > MOST_IN_LINE {
            return Err(Problem::invalid(format!("[{i}].text"), format!("must be at most {MOST_IN_LINE} bytes")));
        }
        let level = match &line.level {
            None => INFO,
            Some(level) => {
                let text = match level {
                    LogLevel::Number(number) => number.to_string(),
                    LogLevel::Name(name) => name.clone(),
                };
                level_of(&text).ok_or_else(|| invalid_level(&format!("[{i}].level"), &text))?
            }
        };
        let source = line.source.unwrap_or_else(|| "worker".to_owned());
        if source.is_empty() || source.chars().count() > 50 || source.eq_ignore_ascii_case("broker") {
            return Err(Problem::invalid(format!("[{i}].source"), "must have 1 to 50 characters and must not be `broker`"));
        }
        Ok(NewLine { at: line.at.unwrap_or(now), level, source, text: line.text })
    };
    input.into_iter().enumerate().map(line).collect()
}

impl BrokerContext {
    /// Stores the lines that fit into the log of a run, and notifies its subscribers. If the size of the log is cached, the write
    /// is queued before this function returns, so it precedes all later writes.
    ///
    /// # Errors
    /// The store fails.
    pub fn take_lines(
        &self,
        run_no: i64,
        identity: Identity,
        lines: Vec<NewLine>,
        now: Timestamp,
    ) -> impl Future<Output = Result<LogAccepted, Problem>> + use<> + 'static {
        let context = self.clone();
        let entered = if self.followers.knows(run_no) { Ok(self.enter_lines(run_no, lines, now)) } else { Err(lines) };
        async move {
            let (accepted, written) = match entered {
                Ok(entered) => entered,
                Err(lines) => {
                    let (count, bytes) = context.store.read(LogSize { run_no }).await.map_err(|e| problem_of(&e))?;
                    context.followers.learn(run_no, Size::read(count, bytes));
                    context.enter_lines(run_no, lines, now)
                }
            };
            if let Some(written) = written {
                written.await.map_err(|e| problem_of(&e))?;
                context.followers.ring(identity);
            }
            Ok(accepted)
        }
    }

    fn enter_lines(
        &self,
        run_no: i64,
        mut lines: Vec<NewLine>,
        now: Timestamp,
    ) -> (LogAccepted, Option<impl Future<Output = Result<(), StoreError>> + use<> + 'static>) {
        let lengths: Vec<usize> = lines.iter().map(|line| line.text.len()).collect();
        let room = self.followers.make_room(run_no, &lengths);
        lines.truncate(room.taken);
        if room.filled {
            lines.push(NewLine { at: now, level: WARNING, source: "broker".to_owned(), text: full() });
        }
        let accepted = LogAccepted { accepted: room.taken, dropped: lengths.len() - room.taken };
        (accepted, (!lines.is_empty()).then(|| self.store.write(AppendLogs { run_no, lines })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn input(value: serde_json::Value) -> Result<Vec<NewLine>, Option<String>> {
        check_lines(serde_json::from_value(value).expect("lines"), Timestamp(7)).map_err(|problem| problem.field)
    }

    #[test]
    fn lines_are_checked() {
        let taken =
            input(json!([{ "text": "a" }, { "text": "b", "level": "Warn", "at": "1970-01-01T00:00:01Z" }, { "text": "c", "level": 5 }]));
        let levels: Vec<_> = taken.expect("taken").iter().map(|line| (line.level, line.at.0)).collect();
        assert_eq!(levels, [(2, 7), (3, 1_000), (5, 7)]);
        for (lines, field) in [
            (json!([{ "text": "a" }, { "text": "x".repeat(8_193) }]), "[1].text"),
            (json!([{ "text": "a", "level": "loud" }]), "[0].level"),
            (json!([{ "text": "a", "level": 6 }]), "[0].level"),
            (json!([{ "text": "a", "source": "Broker" }]), "[0].source"),
            (json!(vec![json!({ "text": "a" }); 1_001]), "lines"),
        ] {
            assert_eq!(input(lines), Err(Some(field.to_owned())));
        }
    }

    #[test]
    fn levels_have_names_and_numbers() {
        for (i, name) in LEVELS.iter().enumerate() {
            assert_eq!((level_of(name), level_of(&i.to_string())), (Some(i as i16), Some(i as i16)));
            assert_eq!(level_name(i as i16), *name);
        }
        assert_eq!(level_of("6"), None);
    }
}
