//! Unknown names in a body or a query. Serde rejects them where a type asks for it (`deny_unknown_fields`); this module turns its message
//! into a problem with the most similar known name.

use super::problem::Problem;

/// A name with a lower similarity, of at most 1, is not suggested.
const LIKE: f64 = 0.75;

/// The problem for a value that cannot be parsed: 422 for an unknown name, 400 for anything else. `path` is its position; empty for the
/// whole value.
#[must_use]
pub fn unread(noun: &str, path: &str, error: &str) -> Problem {
    let problem = match unknown(error) {
        Some((name, known)) => Problem::invalid(if path.is_empty() { name } else { path }, refusal(noun, name, &known)),
        None => Problem::malformed(error),
    };
    if path.is_empty() || problem.field.is_some() { problem } else { problem.at(path) }
}

/// The message for an unknown name.
#[must_use]
pub fn refusal(noun: &str, name: &str, known: &[&str]) -> String {
    let name_shown = name.escape_debug();
    match nearest(name, known) {
        Some(nearest) => format!("unknown {noun} `{name_shown}`. Did you mean `{nearest}`?"),
        None if known.is_empty() => format!("unknown {noun} `{name_shown}`. None is expected here"),
        None => format!("unknown {noun} `{name_shown}`. Known are: {}", without_doubles(known).join(", ")),
    }
}

/// The unknown name and the known ones, from serde's message.
fn unknown(error: &str) -> Option<(&str, Vec<&str>)> {
    let rest = error.strip_prefix("unknown field `")?;
    let (name, known) = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no fields"))?;
    Some((name, known.split('`').skip(1).step_by(2).collect()))
}

/// The form for comparing names: `IsEnabled`, `is_enabled` and `isEnabled` are equal.
#[must_use]
pub fn letters(name: &str) -> String {
    name.chars().filter(|c| c.is_alphanumeric()).flat_map(char::to_lowercase).collect()
}

/// Of two spellings of one name, keeps the one that this version writes.
fn without_doubles<'a>(known: &[&'a str]) -> Vec<&'a str> {
    let is_own = |name: &&&str| name.starts_with(|c: char| c.is_ascii_lowercase()) && !name.contains('_');
    let own: Vec<&str> = known.iter().filter(is_own).copied().collect();
    if own.is_empty() { known.to_vec() } else { own }
}

fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let name = letters(name);
    let like = |known: &str| likeness(&name, &letters(known));
    let best = without_doubles(known).into_iter().map(|known| (like(known), known)).max_by(|a, b| a.0.total_cmp(&b.0));
    best.filter(|(likeness, _)| *likeness >= LIKE).map(|(_, known)| known)
}

#[cfg(feature = "broker")]
fn likeness(a: &str, b: &str) -> f64 {
    strsim::jaro(a, b)
}

/// Without the broker feature there are no suggestions.
#[cfg(not(feature = "broker"))]
fn likeness(a: &str, b: &str) -> f64 {
    if a == b { 1.0 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_suggested() {
        let known = ["IsEnabled", "Name", "cron", "enabled", "isEnabled", "name", "policies", "properties", "schedule"];
        for (name, meant) in [
            ("shedule", Some("schedule")),
            ("crom", Some("cron")),
            ("is_enabled", Some("isEnabled")),
            ("nmae", Some("name")),
            ("propertys", Some("properties")),
            ("colour", None),
            ("", None),
        ] {
            assert_eq!(nearest(name, &known), meant, "{name}");
        }
    }

    #[test]
    fn what_serde_says_is_understood() {
        let problem = unread("member", "jobs[1].shedule", "unknown field `shedule`, expected one of `name`, `schedule` at line 1 column 9");
        assert_eq!((problem.status, problem.field.as_deref()), (422, Some("jobs[1].shedule")));
        assert_eq!(problem.detail, "unknown member `shedule`. Did you mean `schedule`?");
        let odd = unread("member", "", "unknown field `a`, expected `b`, expected `colour`");
        assert_eq!(
            (odd.field.as_deref(), odd.detail.as_str()),
            (Some("a`, expected `b"), "unknown member `a`, expected `b`. Known are: colour")
        );
        assert_eq!(
            unread("parameter", "", "unknown field `x`, there are no fields").detail,
            "unknown parameter `x`. None is expected here"
        );
        let other = unread("member", "name", "invalid type: integer `5`, expected a string");
        assert_eq!((other.status, other.field.as_deref()), (400, Some("name")));
    }
}
