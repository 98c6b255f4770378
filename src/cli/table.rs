//! Answers for people: tables without lines, that grep and awk can read, and texts that cannot play tricks on a terminal.

use chrono::{DateTime, SecondsFormat, Utc};
use comfy_table::{Cell, Color, ContentArrangement, presets};
use serde_json::Value;

/// What stands in a place that has nothing.
const NOTHING: &str = "-";

/// A table: one line for each row, never wrapped, columns two blanks apart.
pub struct Table(comfy_table::Table);

impl Table {
    /// An empty one with these columns.
    pub fn new(columns: &[&str]) -> Self {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled).set_header(columns);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self(table)
    }

    /// Appends a row.
    pub fn row<I: IntoIterator<Item = String>>(&mut self, cells: I) {
        self.0.add_row(cells.into_iter().map(|text| {
            let cell = Cell::new(&text);
            match colour_of(&text) {
                Some(colour) => cell.fg(colour),
                None => cell,
            }
        }));
    }

    /// As text; colours only if standard output is a terminal.
    pub fn text(&self) -> String {
        self.0.trim_fmt()
    }
}

/// Words that say how something is doing.
fn colour_of(text: &str) -> Option<Color> {
    match text {
        "failed" | "missed" | "error" | "critical" | "offline" => Some(Color::Red),
        "success" | "fired" | "online" => Some(Color::Green),
        "running" | "scheduled" => Some(Color::Cyan),
        "stopped" | "skipped" | "merged" | "warning" | "disabled" => Some(Color::Yellow),
        _ => None,
    }
}

/// Name and value, one a line: for a single thing. What is absent is left out.
pub fn card(rows: &[(&str, Option<String>)]) -> String {
    let width = rows.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = rows.iter().filter_map(|(name, value)| Some(format!("{name:width$}  {}", value.as_ref()?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// A table of these items of a list, made row by row; `none` if there are none. Says if there are more than are shown.
pub fn list(answer: &Value, none: &str, columns: &[&str], row: impl Fn(&Value) -> Vec<String>) -> String {
    let items = items(answer);
    if items.is_empty() {
        return none.to_owned();
    }
    let mut table = Table::new(columns);
    for item in items {
        table.row(row(item));
    }
    let more = if answer["nextCursor"].is_string() { "\n… there are more; --limit shows more of them" } else { "" };
    format!("{}{more}", table.text())
}

/// The items of a list, with a frame around it or without.
pub fn items(answer: &Value) -> &[Value] {
    answer["items"].as_array().or_else(|| answer.as_array()).map_or(&[], Vec::as_slice)
}

/// A member as a text, if it is there.
pub fn some(value: &Value, key: &str) -> Option<String> {
    match &value[key] {
        Value::Null => None,
        Value::String(text) => Some(plain(text)),
        Value::Bool(true) => Some("yes".to_owned()),
        Value::Bool(false) => Some("no".to_owned()),
        other => Some(other.to_string()),
    }
    .filter(|text| !text.is_empty())
}

/// A member as a text for a cell.
pub fn cell(value: &Value, key: &str) -> String {
    some(value, key).unwrap_or_else(|| NOTHING.to_owned())
}

/// An instant, if it is there.
pub fn some_time(value: &Value, key: &str) -> Option<String> {
    value[key].as_str().map(short_time)
}

/// An instant and who it was, if they are there.
pub fn since(value: &Value, at: &str, by: &str) -> Option<String> {
    let by = some(value, by).map(|by| format!(" by {by}")).unwrap_or_default();
    some_time(value, at).map(|at| format!("{at}{by}"))
}

/// An instant for a cell.
pub fn time(value: &Value, key: &str) -> String {
    some_time(value, key).unwrap_or_else(|| NOTHING.to_owned())
}

/// An instant in UTC; milliseconds only if they are not zero, so that what is copied is exact.
pub fn short_time(text: &str) -> String {
    let Ok(time) = DateTime::parse_from_rfc3339(text) else { return plain(text) };
    let form = if time.timestamp_subsec_millis() == 0 { SecondsFormat::Secs } else { SecondsFormat::Millis };
    time.with_timezone(&Utc).to_rfc3339_opts(form, true)
}

/// A span of time in words: `1h 30m`.
pub fn span(ms: u64) -> String {
    if ms == 0 {
        return "0s".to_owned();
    }
    humantime::format_duration(std::time::Duration::from_millis(ms)).to_string()
}

/// Without characters that move a terminal's cursor, change its colours or break a line.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { if matches!(c, '\n' | '\t' | '\r') { ' ' } else { '\u{fffd}' } } else { c }).collect()
}

/// At most so many characters.
pub fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_table_is_lines_and_blanks() {
        let answer = json!({ "items": [{ "name": "a", "n": 1 }, { "name": "longer\nname", "on": true }], "nextCursor": "x" });
        let text = list(&answer, "none", &["NAME", "N", "ON"], |item| ["name", "n", "on"].map(|key| cell(item, key)).to_vec());
        assert_eq!(text, "NAME         N  ON\na            1  -\nlonger name  -  yes\n… there are more; --limit shows more of them");
        assert_eq!(list(&json!({ "items": [] }), "none", &[], |_| Vec::new()), "none");
    }

    #[test]
    fn times_are_short_and_exact() {
        assert_eq!(short_time("2026-11-21T06:18:59.000Z"), "2026-11-21T06:18:59Z");
        assert_eq!(short_time("2026-11-21T07:18:59.120+01:00"), "2026-11-21T06:18:59.120Z");
        assert_eq!(span(5_400_000), "1h 30m");
    }

    #[test]
    fn a_terminal_is_not_played_with() {
        assert_eq!(plain("a\u{1b}[2Jb\tc"), "a\u{fffd}[2Jb c");
        assert_eq!(cut("abcdef", 4), "abc…");
        assert_eq!(card(&[("a", Some("1".into())), ("long", None), ("bcd", Some("2".into()))]), "a    1\nbcd  2");
    }
}
