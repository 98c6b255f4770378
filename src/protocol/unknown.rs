//! Unknown names in a body or a query: the message suggests the most similar known name.

/// A name with a lower similarity, of at most 1, is not suggested.
const LIKE: f64 = 0.75;

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
}
