//! Splits an argument line into words, without a shell, and expands placeholders.

use super::super::ids::{Identity, JobId};
use super::super::time::Timestamp;

/// Splits a line into words at blanks. `'…'` quotes literally; in `"…"` a backslash is literal except before `"` and `\`; outside of
/// quotes it is literal except before a quote, a blank and a backslash. A JSON array of strings is used as the list of words.
///
/// # Errors
/// A quote is not closed, or the array does not contain only strings.
pub fn split(line: &str) -> Result<Vec<String>, String> {
    if line.trim_start().starts_with('[') {
        return serde_json::from_str(line).map_err(|e| format!("the text begins like a JSON array, but is not an array of strings: {e}"));
    }
    let (mut words, mut word): (Vec<String>, Option<String>) = (Vec::new(), None);
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        let escapes = |next: &char| match quote {
            Some('\'') => false,
            Some(_) => matches!(next, '"' | '\\'),
            None => matches!(next, '"' | '\'' | '\\') || next.is_whitespace(),
        };
        match c {
            '\\' if chars.peek().is_some_and(escapes) => word.get_or_insert_default().extend(chars.next()),
            _ if quote == Some(c) => quote = None,
            '\'' | '"' if quote.is_none() => {
                quote = Some(c);
                // Empty quotes are a word too.
                word.get_or_insert_default();
            }
            _ if quote.is_none() && c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    if let Some(quote) = quote {
        return Err(format!("a quote {quote} is not closed"));
    }
    words.extend(word);
    Ok(words)
}

/// Splits a command line into the program and the argument line; `None` without arguments.
///
/// # Errors
/// The line cannot be split, or contains no program.
pub fn of_command(line: &str) -> Result<(String, Option<String>), String> {
    let mut words = split(line)?.into_iter();
    let program = words.next().filter(|word| !word.trim().is_empty());
    let program = program.ok_or_else(|| "expected a program, followed by its arguments".to_owned())?;
    let arguments: Vec<String> = words.collect();
    let is_plain = |word: &String| !word.is_empty() && !word.contains(|c: char| c.is_whitespace() || matches!(c, '\'' | '"' | '\\' | '['));
    let line = if arguments.iter().all(is_plain) { arguments.join(" ") } else { serde_json::Value::from(arguments).to_string() };
    Ok((program, Some(line).filter(|line| !line.is_empty())))
}

/// Values of the placeholders of an instance.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The run.
    pub run: Identity,
    /// Its job.
    pub job: JobId,
    /// The job's name.
    pub job_name: &'a str,
    /// W3C trace id.
    pub trace_id: &'a str,
    /// Index of the instance, from 0.
    pub index: u32,
    /// Number of instances.
    pub count: u32,
    /// The scheduled time of the run, or when it was triggered.
    pub fire_time: Timestamp,
    /// The attempt of the run, from 1.
    pub attempt: u32,
    /// The arguments of the trigger.
    pub arguments: &'a str,
}

/// Replaces placeholders. This happens after splitting, so that a value never becomes two words; placeholders inside values stay.
#[must_use]
pub fn expand(word: &str, place: &Place<'_>) -> String {
    let (mut out, mut rest) = (String::with_capacity(word.len()), word);
    while let Some(open) = rest.find('{') {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let known = rest.find('}').and_then(|close| Some((value(&rest[1..close], place)?, close)));
        match known {
            Some((value, close)) => {
                out.push_str(&value);
                rest = &rest[close + 1..];
            }
            None => {
                out.push('{');
                rest = &rest[1..];
            }
        }
    }
    out.push_str(rest);
    out
}

fn value(name: &str, place: &Place<'_>) -> Option<String> {
    Some(match name {
        "runId" => place.run.to_string(),
        "jobId" => place.job.to_string(),
        "jobName" => place.job_name.to_owned(),
        "traceId" => place.trace_id.to_owned(),
        "nodeIndex" => place.index.to_string(),
        "nodeCount" => place.count.to_string(),
        "fireTime" => place.fire_time.to_string(),
        "attempt" => place.attempt.to_string(),
        "arguments" => place.arguments.to_owned(),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_are_split_without_a_shell() {
        for (line, words) in [
            ("", &[][..]),
            ("  a  b\tc ", &["a", "b", "c"]),
            (r#"--name "two words" 'it''s' """#, &["--name", "two words", "its", ""]),
            (r#"a\ b "x\"y\\z" '\n' \'"#, &["a b", r#"x"y\z"#, r"\n", "'"]),
            (r"C:\tools\x.exe $HOME * ;rm", &[r"C:\tools\x.exe", "$HOME", "*", ";rm"]),
            (r#" ["a b", "", "\"x"]"#, &["a b", "", "\"x"]),
        ] {
            assert_eq!(split(line).as_deref(), Ok(&words.iter().map(|w| (*w).to_owned()).collect::<Vec<_>>()[..]), "{line}");
        }
        for line in ["'a", "a \"b", "[1]", "[\"a\"", "[{}]"] {
            assert!(split(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_command_is_a_program_and_its_arguments() {
        for (line, program, arguments) in [
            ("date", "date", None),
            ("/bin/echo  a b", "/bin/echo", Some("a b")),
            ("'my tool' \"two words\" ''", "my tool", Some(r#"["two words",""]"#)),
            (r#"["a b", "c"]"#, "a b", Some("c")),
            ("echo [x]", "echo", Some(r#"["[x]"]"#)),
            (r"sed s/\d/x/", "sed", Some(r#"["s/\\d/x/"]"#)),
        ] {
            let read = of_command(line).expect(line);
            assert_eq!((read.0.as_str(), read.1.as_deref()), (program, arguments), "{line}");
            let words: Vec<String> = split(line).expect(line).into_iter().skip(1).collect();
            assert_eq!(split(arguments.unwrap_or_default()).as_deref(), Ok(&words[..]), "{line}: the agent reads the same words");
        }
        for line in ["", "  ", "''", "'a", "[]"] {
            assert!(of_command(line).is_err(), "{line}");
        }
    }

    #[test]
    fn placeholders_are_put_in_once() {
        let place = Place {
            run: Identity(uuid::Uuid::from_u128(1)),
            job: JobId(uuid::Uuid::from_u128(2)),
            job_name: "a b",
            trace_id: "t",
            index: 1,
            count: 3,
            fire_time: Timestamp(1_000),
            attempt: 2,
            arguments: "x {jobName} y",
        };
        assert_eq!(expand("{nodeIndex}/{nodeCount}#{attempt}", &place), "1/3#2");
        assert_eq!(expand("{{jobName}}{what}{", &place), "{a b}{what}{");
        assert_eq!(expand("{arguments}", &place), "x {jobName} y", "what is put in is not looked at again");
        assert_eq!(expand("{runId}{fireTime}", &place), format!("{:032x}1970-01-01T00:00:01.000Z", 1));
    }

    proptest! {
        #[test]
        fn a_quoted_word_comes_out_as_it_is(words in proptest::collection::vec("[^']{0,8}", 0..5)) {
            let line: Vec<String> = words.iter().map(|word| format!("'{word}'")).collect();
            prop_assert_eq!(split(&line.join(" ")), Ok(words));
        }

        #[test]
        fn no_line_makes_it_panic(line in ".{0,40}") {
            let _ = split(&line);
        }
    }
}
