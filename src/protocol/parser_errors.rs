//! What a parser reports about input that it cannot read, in the words of the API. Serde names types of the program (`expected u64`);
//! here its messages become what is expected and what was given.

use super::problem::Problem;
use super::unknown::refusal;
use serde::de::IgnoredAny;

/// Maximum characters of a given value that are shown.
const SHOWN: usize = 100;

/// The problem for a value that cannot be parsed: 422 for an unknown name, 400 for anything else. `path` is its position; empty for the
/// whole value. `noun` is what has names: member or parameter.
#[must_use]
pub fn unread(noun: &str, path: &str, error: &str) -> Problem {
    let said = without_place(error);
    let inside = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
    if let Some((name, known)) = unknown(said, "unknown field `") {
        return Problem::invalid(if path.is_empty() { name } else { path }, refusal(noun, name, &known));
    }
    for (begin, end) in [("missing field `", "is missing"), ("duplicate field `", "is given twice")] {
        if let Some(name) = said.strip_prefix(begin).and_then(|rest| rest.strip_suffix('`')) {
            return Problem::malformed(format!("the {noun} `{name}` {end}")).at(inside(name));
        }
    }
    let problem = Problem::malformed(plain(said));
    if path.is_empty() { problem } else { problem.at(path) }
}

/// The problem for a JSON text that cannot be parsed. `path` is where the parser stopped.
#[must_use]
pub fn unread_json(text: &[u8], path: &str, error: &serde_json::Error) -> Problem {
    if error.is_data() {
        return unread("member", path, &error.to_string());
    }
    // The parser calls it a syntax error if something else stands where a word is expected.
    let is_no_word = error.to_string().starts_with("expected value") && serde_json::from_slice::<IgnoredAny>(text).is_ok();
    if is_no_word { unread("member", path, "a text is expected") } else { Problem::malformed(why_not_json(error)) }
}

/// Why a JSON text cannot be parsed.
#[must_use]
pub fn why_not_json(error: &serde_json::Error) -> String {
    match error.classify() {
        serde_json::error::Category::Data => plain(&error.to_string()),
        serde_json::error::Category::Eof if (error.line(), error.column()) == (1, 0) => {
            "JSON is expected, and the text is empty".to_owned()
        }
        _ => format!("not valid JSON: {error}"),
    }
}

/// Serde's message in plain words. Messages of our own types stay as they are.
fn plain(error: &str) -> String {
    let said = without_place(error);
    let word = || unknown(said, "unknown variant `").map(|(name, known)| refusal("value", name, &known));
    wrong_type(said).or_else(word).unwrap_or_else(|| said.to_owned())
}

/// Without the position: the path is more useful.
fn without_place(error: &str) -> &str {
    let is_place = |place: &str| place.split(" column ").all(|number| number.bytes().all(|b| b.is_ascii_digit()));
    error.rsplit_once(" at line ").filter(|(_, place)| is_place(place)).map_or(error, |(said, _)| said)
}

/// The unknown name and the known ones.
fn unknown<'a>(said: &'a str, begin: &str) -> Option<(&'a str, Vec<&'a str>)> {
    let rest = said.strip_prefix(begin)?;
    let (name, known) = rest.rsplit_once("`, expected ").or_else(|| rest.rsplit_once("`, there are no "))?;
    Some((name, known.split('`').skip(1).step_by(2).collect()))
}

fn wrong_type(said: &str) -> Option<String> {
    let rest = said.strip_prefix("invalid type: ").or_else(|| said.strip_prefix("invalid value: "))?;
    let (given, expected) = rest.rsplit_once(", expected ")?;
    let expected = match expected {
        "u8" => format!("a whole number from 0 to {}", u8::MAX),
        "u16" => format!("a whole number from 0 to {}", u16::MAX),
        "u32" => format!("a whole number from 0 to {}", u32::MAX),
        "u64" | "usize" => "a whole number from 0".to_owned(),
        "i32" => format!("a whole number from {} to {}", i32::MIN, i32::MAX),
        "i64" => "a whole number".to_owned(),
        "f32" | "f64" => "a number".to_owned(),
        "a string" | "a borrowed string" | "string or map" => "a text".to_owned(),
        "a boolean" => "`true` or `false`".to_owned(),
        "a sequence" => "an array".to_owned(),
        "a map" => "an object".to_owned(),
        other if other.starts_with("struct ") => "an object".to_owned(),
        other => other.to_owned(),
    };
    let given = match given {
        "sequence" => "an array",
        "map" => "an object",
        "unit value" => "null",
        // integer `5`, floating point `1.5`, boolean `true`
        other => other.strip_prefix("string ").or_else(|| other.split_once('`')?.1.strip_suffix('`')).unwrap_or(other),
    };
    // The parser reads a whole number that is too large for any type as a fraction.
    if expected.starts_with("a whole number") && given.parse::<f64>().is_ok_and(|number| number >= u64::MAX as f64) {
        return Some("the number is too large".to_owned());
    }
    let is_long = given.chars().count() > SHOWN;
    let shown: String = given.chars().take(SHOWN).collect();
    Some(format!("{expected} is expected, not {shown}{}", if is_long { "…" } else { "" }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_name_is_refused_with_a_suggestion() {
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
    }

    #[test]
    fn a_wrong_value_is_told_with_its_member_and_what_is_expected() {
        #[derive(Debug, serde::Deserialize)]
        #[serde(rename_all = "kebab-case")]
        enum Word {
            TooLarge,
        }
        #[derive(Debug, serde::Deserialize)]
        #[expect(dead_code, reason = "only its types count")]
        struct Input {
            name: String,
            every: Option<u64>,
            depth: Option<u32>,
            on: Option<bool>,
            list: Option<Vec<String>>,
            word: Option<Word>,
            at: Option<crate::domain::time::Timestamp>,
            any: Option<serde_json::Value>,
        }
        let told = |text: &[u8]| {
            let problem = crate::protocol::push::read_json::<Input>(text).expect_err("it cannot be read");
            assert_eq!(problem.status, 400, "{problem}");
            (problem.field.unwrap_or_default(), problem.detail)
        };
        let cut = format!("a whole number from 0 is expected, not \"{}…", "x".repeat(SHOWN - 1));
        let deep = "not valid JSON: recursion limit exceeded at line 1 column 145";
        for (text, field, detail) in [
            (r#"{"name":"a","every":"1s"}"#, "every", r#"a whole number from 0 is expected, not "1s""#),
            (r#"{"name":"a","every":-1}"#, "every", "a whole number from 0 is expected, not -1"),
            (r#"{"name":"a","every":1.5}"#, "every", "a whole number from 0 is expected, not 1.5"),
            (r#"{"name":"a","every":99999999999999999999}"#, "every", "the number is too large"),
            (r#"{"name":"a","every":[1]}"#, "every", "a whole number from 0 is expected, not an array"),
            (r#"{"name":"a","depth":4294967296}"#, "depth", "a whole number from 0 to 4294967295 is expected, not 4294967296"),
            (r#"{"name":5}"#, "name", "a text is expected, not 5"),
            (r#"{"name":null}"#, "name", "a text is expected, not null"),
            (r#"{"name":"a","on":"yes"}"#, "on", r#"`true` or `false` is expected, not "yes""#),
            (r#"{"name":"a","list":{}}"#, "list", "an array is expected, not an object"),
            (r#"{"name":"a","list":["b",true]}"#, "list[1]", "a text is expected, not true"),
            (r#"{"name":"a","word":"tooLarge"}"#, "word", "unknown value `tooLarge`. Did you mean `too-large`?"),
            (r#"{"name":"a","word":"x"}"#, "word", "unknown value `x`. Known are: too-large"),
            (r#"{"name":"a","word":5}"#, "word", "a text is expected"),
            (r#"{"name":"a","at":"x"}"#, "at", "an instant is expected, for example 2026-12-24T18:00:00Z, not \"x\""),
            ("{}", "name", "the member `name` is missing"),
            (r#"{"name":"a","name":"b"}"#, "name", "the member `name` is given twice"),
            ("null", "", "an object is expected, not null"),
            ("", "", "JSON is expected, and the text is empty"),
            (r#"{"name":"a""#, "", "not valid JSON: EOF while parsing an object at line 1 column 11"),
            (r#"{"name":"a"}}"#, "", "not valid JSON: trailing characters at line 1 column 13"),
            ("{\"name\":\n", "", "not valid JSON: EOF while parsing a value at line 2 column 0"),
            (r#"{"name":"a","word":}"#, "", "not valid JSON: expected value at line 1 column 20"),
            (r#"{"name":"\ud800"}"#, "", "not valid JSON: unexpected end of hex escape at line 1 column 16"),
            (r#"{"name":"a","every":1e999}"#, "", "not valid JSON: number out of range at line 1 column 25"),
            (&format!(r#"{{"name":"a","any":{0}1{1}}}"#, "[".repeat(129), "]".repeat(129)), "", deep),
            (&format!(r#"{{"name":"a","every":"{}"}}"#, "x".repeat(200)), "every", cut.as_str()),
        ] {
            assert_eq!(told(text.as_bytes()), (field.to_owned(), detail.to_owned()), "{text}");
        }
        let latin = "not valid JSON: invalid unicode code point at line 1 column 10".to_owned();
        assert_eq!(told(b"{\"name\":\"\xe4\"}"), (String::new(), latin));
    }
}
