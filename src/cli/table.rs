//! Output for people: tables without borders, which grep and awk can process, and texts without terminal control characters.

use super::look::{Format, Look};
use super::times;
use comfy_table::{Cell, Color, ContentArrangement, presets};
use serde_json::Value;
use std::borrow::Cow;
use unicode_width::{UnicodeWidthChar as _, UnicodeWidthStr as _};

/// The text of an empty cell.
pub const NOTHING: &str = "-";

/// Maximum width of a table, in columns of text, unless the terminal is wider.
const WIDTH: usize = 100;
/// Digits of a shortened id, if they are unique in the table.
const SHORT: usize = 8;
/// Minimum width of a cut column.
const NARROWEST: usize = 5;

/// A column of a table.
#[derive(Debug, Clone)]
pub struct Column {
    head: Cow<'static, str>,
    kind: Kind,
    is_wide: bool,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Text(&'static str),
    Of(fn(&Value) -> String),
    Id(&'static str),
    Time(&'static str),
    TimeOf(fn(&Value) -> String),
    Exact(&'static str),
    Whole(&'static str),
}

impl Column {
    const fn new(head: &'static str, kind: Kind) -> Self {
        Self { head: Cow::Borrowed(head), kind, is_wide: false }
    }

    /// A column with one member.
    pub const fn text(head: &'static str, key: &'static str) -> Self {
        Self::new(head, Kind::Text(key))
    }

    /// A column computed from several members.
    pub const fn of(head: &'static str, cell: fn(&Value) -> String) -> Self {
        Self::new(head, Kind::Of(cell))
    }

    /// An id: its last digits, because ids created at one time begin alike; all digits in a wide table.
    pub const fn id(head: &'static str, key: &'static str) -> Self {
        Self::new(head, Kind::Id(key))
    }

    /// A time, as `3 min ago`.
    pub const fn time(head: &'static str, key: &'static str) -> Self {
        Self::new(head, Kind::Time(key))
    }

    /// A time computed from several members.
    pub const fn time_of(head: &'static str, cell: fn(&Value) -> String) -> Self {
        Self::new(head, Kind::TimeOf(cell))
    }

    /// A time that is always exact.
    pub const fn exact(head: &'static str, key: &'static str) -> Self {
        Self::new(head, Kind::Exact(key))
    }

    /// A text that is never cut, because people copy it.
    pub const fn whole(head: &'static str, key: &'static str) -> Self {
        Self::new(head, Kind::Whole(key))
    }

    /// Only in wide tables.
    pub const fn wide(mut self) -> Self {
        self.is_wide = true;
        self
    }

    /// With another header.
    pub fn under(mut self, head: String) -> Self {
        self.head = head.into();
        self
    }

    fn cell(&self, item: &Value) -> String {
        match self.kind {
            Kind::Text(key) | Kind::Id(key) | Kind::Whole(key) => cell(item, key),
            Kind::Of(cell) | Kind::TimeOf(cell) => Some(cell(item)).filter(|text| !text.is_empty()).unwrap_or_else(|| NOTHING.to_owned()),
            Kind::Time(key) => times::time(item, key),
            Kind::Exact(key) => times::exact_time(item, key),
        }
    }

    fn can_be_cut(&self, texts: &[String]) -> bool {
        match self.kind {
            Kind::Text(_) | Kind::Of(_) => true,
            // Some objects have a name and no id.
            Kind::Id(_) => !texts.iter().all(|text| is_id(text)),
            Kind::Time(_) | Kind::TimeOf(_) | Kind::Exact(_) | Kind::Whole(_) => false,
        }
    }
}

/// A table of the items of a list; `none` if there are none. Adds a note if there are more items, unless programs read the table.
pub fn list(answer: &Value, none: &str, columns: &[Column]) -> String {
    let items = items(answer);
    if items.is_empty() {
        return none.to_owned();
    }
    let look = Look::get();
    let has_note = answer["nextCursor"].is_string() && !look.no_headers;
    let more = if has_note { "\n… there are more; --limit shows more of them" } else { "" };
    format!("{}{more}", table(items, columns, look, width()))
}

fn width() -> usize {
    comfy_table::Table::new().width().map_or(WIDTH, |columns| usize::from(columns).max(WIDTH))
}

/// One line per item, never wrapped, columns two blanks apart.
fn table(items: &[Value], columns: &[Column], look: Look, width: usize) -> String {
    let is_wide = look.format == Format::Wide;
    let columns: Vec<&Column> = columns.iter().filter(|column| is_wide || !column.is_wide).collect();
    let mut cells: Vec<Vec<String>> = columns
        .iter()
        .map(|column| {
            let texts: Vec<String> = items.iter().map(|item| column.cell(item)).collect();
            if matches!(column.kind, Kind::Id(_)) && !is_wide { shorten(texts) } else { texts }
        })
        .collect();
    if !is_wide {
        fit(&columns, &mut cells, width);
    }
    let mut table = comfy_table::Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    if !look.no_headers {
        table.set_header(columns.iter().map(|column| column.head.as_ref()));
    }
    for row in 0..items.len() {
        table.add_row(cells.iter().map(|column| {
            let cell = Cell::new(&column[row]);
            match colour_of(&column[row]) {
                Some(colour) => cell.fg(colour),
                None => cell,
            }
        }));
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    // Colours only if standard output is a terminal.
    table.trim_fmt()
}

/// Whether a text is an id, a part of one, or nothing.
fn is_id(text: &str) -> bool {
    text == NOTHING || text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The last digits of ids, as many as make all of them unique.
fn shorten(ids: Vec<String>) -> Vec<String> {
    let end = |id: &str, length: usize| match id.len().checked_sub(length) {
        Some(from) if is_id(id) => id[from..].to_owned(),
        _ => id.to_owned(),
    };
    let longest = ids.iter().map(String::len).max().unwrap_or(0);
    let tells_apart = |length: &usize| {
        let mut by_end = std::collections::HashMap::new();
        ids.iter().all(|id| *by_end.entry(end(id, *length)).or_insert(id) == id)
    };
    let length = (SHORT..longest).find(tells_apart).unwrap_or(longest);
    ids.iter().map(|id| end(id, length)).collect()
}

/// Cuts the widest columns of text until the table fits into this width.
fn fit(columns: &[&Column], cells: &mut [Vec<String>], width: usize) {
    let of = |column: &Column, texts: &[String]| texts.iter().map(|text| text.width()).chain([column.head.width()]).max().unwrap_or(0);
    let mut widths: Vec<usize> = columns.iter().zip(cells.iter()).map(|(column, texts)| of(column, texts)).collect();
    while widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1) > width {
        let can_give = |at: &usize| columns[*at].can_be_cut(&cells[*at]) && widths[*at] > NARROWEST.max(columns[*at].head.width());
        let Some(widest) = (0..widths.len()).filter(can_give).max_by_key(|at| widths[*at]) else { break };
        widths[widest] -= 1;
    }
    for (texts, width) in cells.iter_mut().zip(widths) {
        for text in texts {
            *text = cut(text, width);
        }
    }
}

/// The colour of words that describe a state.
fn colour_of(text: &str) -> Option<Color> {
    match text {
        "failed" | "missed" | "error" | "critical" | "offline" => Some(Color::Red),
        "success" | "fired" | "online" => Some(Color::Green),
        "running" | "scheduled" => Some(Color::Cyan),
        "stopped" | "skipped" | "merged" | "warning" | "disabled" => Some(Color::Yellow),
        _ => None,
    }
}

/// Name and value, one per line, for a single entry. Absent values are omitted.
pub fn card(rows: &[(&str, Option<String>)]) -> String {
    let width = rows.iter().filter(|(_, value)| value.is_some()).map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = rows.iter().filter_map(|(name, value)| Some(format!("{name:width$}  {}", value.as_ref()?)));
    lines.collect::<Vec<_>>().join("\n")
}

/// The items of a list, with or without the page object around it.
pub fn items(answer: &Value) -> &[Value] {
    answer["items"].as_array().or_else(|| answer.as_array()).map_or(&[], Vec::as_slice)
}

/// The names of the entries of a response, one per line: the name where it is unique, otherwise the id.
pub fn names(answer: &Value) -> String {
    let things = if answer.is_array() || answer["items"].is_array() { items(answer) } else { std::slice::from_ref(answer) };
    let keys = |thing: &Value| match thing["classNames"].is_array() {
        // Several workers may have one name.
        true => ["id", "name", "", "", ""],
        false => ["identity", "nodeId", "sha256", "name", "id"],
    };
    let name = |thing: &Value| keys(thing).iter().find_map(|key| some(thing, key));
    things.iter().filter_map(name).collect::<Vec<_>>().join("\n")
}

/// A member as text, if it is present.
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

/// A member as text for a cell.
pub fn cell(value: &Value, key: &str) -> String {
    some(value, key).unwrap_or_else(|| NOTHING.to_owned())
}

/// Removes characters that move a terminal's cursor, change its colours or break a line.
pub fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { if matches!(c, '\n' | '\t' | '\r') { ' ' } else { '\u{fffd}' } } else { c }).collect()
}

/// Cuts a text to this many columns of a terminal.
pub fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut kept = String::new();
    let mut width = 1;
    for c in text.chars() {
        width += c.width().unwrap_or(0);
        if width > most {
            break;
        }
        kept.push(c);
    }
    kept.push('…');
    kept
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn shown(items: &Value, columns: &[Column], look: Look) -> Vec<String> {
        table(items.as_array().unwrap(), columns, look, WIDTH).lines().map(str::to_owned).collect()
    }

    #[test]
    fn a_table_is_lines_and_blanks() {
        let answer = json!({ "items": [{ "name": "a", "n": 1 }, { "name": "longer\nname", "on": true }], "nextCursor": "x" });
        let columns = [Column::text("NAME", "name"), Column::text("N", "n"), Column::text("ON", "on"), Column::text("W", "n").wide()];
        let text = list(&answer, "none", &columns);
        assert_eq!(text, "NAME         N  ON\na            1  -\nlonger name  -  yes\n… there are more; --limit shows more of them");
        assert_eq!(list(&json!({ "items": [] }), "none", &columns), "none");
        let bare = Look { no_headers: true, format: Format::Wide, ..Look::default() };
        assert_eq!(shown(&answer["items"], &columns, bare), ["a            1  -    1", "longer name  -  yes  -"]);
    }

    #[test]
    fn a_table_fits_100_columns_and_keeps_ids_and_times() {
        let id = "0193b2c4d5e67f809a0b1c2d3e4f5a6b";
        let long = "n".repeat(300);
        let rows = json!([{ "id": id, "name": long, "reason": "漢".repeat(90), "at": "2026-11-21T06:18:59.123Z" }]);
        let columns = [
            Column::id("ID", "id"),
            Column::text("NAME", "name"),
            Column::exact("AT", "at"),
            Column::text("STATE", "none"),
            Column::text("REASON", "reason"),
        ];
        let lines = shown(&rows, &columns, Look::default());
        assert!(lines.iter().all(|line| line.width() <= WIDTH), "{lines:#?}");
        assert!(lines[1].starts_with("3e4f5a6b  nnnn") && lines[1].contains("n…  2026-11-21T06:18:59.123Z  -      漢"), "{lines:#?}");
        let wide = shown(&rows, &columns, Look { format: Format::Wide, ..Look::default() });
        assert!(wide[1].starts_with(id) && wide[1].contains(&long), "{wide:#?}");
    }

    #[test]
    fn ids_are_as_short_as_they_may_be() {
        let of = |ids: &[&str]| shorten(ids.iter().map(|id| (*id).to_owned()).collect());
        assert_eq!(of(&["00000000111111112222", "00000000111111113333"]), ["11112222", "11113333"]);
        assert_eq!(
            of(&["aa00000000111111112222", "aa00000001111111112222", "-"]),
            ["0111111112222", "1111111112222", "-"].map(|s| s.to_owned())
        );
        assert_eq!(of(&["aa00000000111111112222"; 2]), ["11112222"; 2]);
        assert_eq!(of(&["00000000111111112222", "build-server", "-"]), ["11112222", "build-server", "-"], "a name stays as it is");
    }

    #[test]
    fn names_are_what_things_are_called_by() {
        assert_eq!(names(&json!({ "items": [{ "id": "1", "name": "a" }, { "identity": "2", "jobName": "b" }] })), "a\n2");
        assert_eq!(names(&json!([{ "id": "1", "name": "a", "classNames": [] }])), "1");
        assert_eq!(names(&json!({ "nodeId": "3", "name": "host" })), "3");
    }

    #[test]
    fn a_terminal_is_not_played_with() {
        assert_eq!(plain("a\u{1b}[2Jb\tc"), "a\u{fffd}[2Jb c");
        assert_eq!((cut("abcdef", 4), cut("漢字漢字", 5)), ("abc…".to_owned(), "漢字…".to_owned()));
        assert_eq!(card(&[("a", Some("1".into())), ("long", None), ("bcd", Some("2".into()))]), "a    1\nbcd  2");
    }
}
