//! Live answers: what to send to those who watch an answer of the API, and when to look at it again.
//!
//! The [`Answer`] keeps the last text of an answer. A new text becomes a [`Change`]: the whole answer, and the difference from the one
//! before as a JSON Patch (RFC 6902), if that is shorter.

use serde_json::Value;
use std::sync::Arc;
use std::time::Duration;

/// The pause between two looks at an answer …
const PAUSE: Duration = Duration::from_secs(2);
/// … and after its first change, because more changes often follow at once.
const PAUSE_AFTER_NEWS: Duration = Duration::from_secs(1);
/// The longest pause because an answer is slow.
const MOST_PAUSE: Duration = Duration::from_secs(4);
/// The longest pause because many answers are watched.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How many times longer than a look the pause after it is: up to the longest pause, an answer takes 2 % of a core.
const REST: u32 = 50;

/// An answer as it was sent last.
#[derive(Debug, Default)]
pub struct Answer {
    text: Arc<str>,
    /// `None`: a number in the text has more digits than can be kept, so differences would change it.
    value: Option<Value>,
    version: u64,
}

/// A new answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Counts the changes of this answer, from 1.
    pub version: u64,
    /// The whole answer, which is JSON.
    pub text: Arc<str>,
    /// The JSON Patch that makes this answer of the one with the previous version.
    pub patch: Option<Arc<str>>,
}

impl Answer {
    /// Takes a new text. Returns the change if there is one.
    ///
    /// # Errors
    /// The text is not JSON.
    pub fn take(&mut self, text: &str) -> Result<Option<Change>, serde_json::Error> {
        if *self.text == *text {
            return Ok(None);
        }
        let value: Value = serde_json::from_str(text)?;
        let value = keeps_numbers(text).then_some(value);
        let patch = self.value.as_ref().zip(value.as_ref()).map(|(old, new)| json_patch::diff(old, new));
        self.text = text.into();
        self.value = value;
        if patch.as_ref().is_some_and(|patch| patch.0.is_empty()) {
            return Ok(None);
        }
        self.version += 1;
        let patch = patch.and_then(|patch| serde_json::to_string(&patch).ok()).filter(|patch| patch.len() < text.len());
        Ok(Some(Change { version: self.version, text: Arc::clone(&self.text), patch: patch.map(Into::into) }))
    }
}

/// What to send to somebody who has the answer of this version (0: none).
#[derive(Debug, PartialEq, Eq)]
pub enum Message<'a> {
    /// Nothing.
    Nothing,
    /// The whole answer.
    Value(&'a str),
    /// The difference.
    Patch(&'a str),
}

impl Change {
    /// See [`Message`].
    #[must_use]
    pub fn since(&self, version: u64) -> Message<'_> {
        match &self.patch {
            _ if version == self.version => Message::Nothing,
            Some(patch) if version + 1 == self.version => Message::Patch(patch),
            _ => Message::Value(&self.text),
        }
    }
}

/// The pause after a look that took so long. It brings news if the answer has changed and the look before showed no change.
///
/// This many paths are watched, and this many looks were made at once, among which the time is divided. Up to the longest pause, the looks at
/// all paths together take half a core.
#[must_use]
pub fn pause(took: Duration, is_news: bool, paths: usize, at_once: usize) -> Duration {
    let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX).max(1);
    let alone = took.saturating_mul(REST).clamp(if is_news { PAUSE_AFTER_NEWS } else { PAUSE }, MOST_PAUSE);
    let among_all = (took / count(at_once)).saturating_mul(2).saturating_mul(count(paths));
    alone.max(among_all.min(LONGEST_PAUSE))
}

/// Whether each number of a JSON text is written again as it is here.
fn keeps_numbers(text: &str) -> bool {
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        match first {
            b'"' => rest = after_string(after),
            b'-' | b'0'..=b'9' => {
                let length = rest.iter().take_while(|byte| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')).count();
                let (number, others) = rest.split_at(length);
                let again = serde_json::from_slice::<serde_json::Number>(number).map(|number| number.to_string());
                if again.is_ok_and(|again| again.as_bytes() != number) {
                    return false;
                }
                rest = others;
            }
            _ => rest = after,
        }
    }
    true
}

/// What follows the end of a string.
fn after_string(mut rest: &[u8]) -> &[u8] {
    while let Some((&byte, after)) = rest.split_first() {
        match byte {
            b'"' => return after,
            b'\\' => rest = after.get(1..).unwrap_or_default(),
            _ => rest = after,
        }
    }
    rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn take(answer: &mut Answer, text: &str) -> Option<Change> {
        answer.take(text).expect("JSON")
    }

    #[test]
    fn a_difference_goes_to_those_who_have_the_answer_before() {
        let mut answer = Answer::default();
        let text = r#"{"items":[{"id":1,"state":"running"},{"id":2,"state":"running"}],"note":"no change here"}"#;
        let first = take(&mut answer, text).expect("a change");
        assert_eq!((first.version, first.since(0)), (1, Message::Value(text)));
        assert_eq!(take(&mut answer, text), None);
        assert_eq!(take(&mut answer, &text.replace(":1,", ": 1,")), None, "only a space is new");
        let second = take(&mut answer, &text.replacen("running", "success", 1)).expect("a change");
        let patch = r#"[{"op":"replace","path":"/items/0/state","value":"success"}]"#;
        assert_eq!((second.since(2), second.since(1)), (Message::Nothing, Message::Patch(patch)));
        assert!(matches!(second.since(0), Message::Value(whole) if whole.contains("success")));
        assert!(answer.take("<html>").is_err());
    }

    #[test]
    fn a_long_difference_is_not_sent() {
        let mut answer = Answer::default();
        take(&mut answer, "[1,2,3,4]");
        let change = take(&mut answer, "[2,3,4,5]").expect("a change");
        assert_eq!(change.since(1), Message::Value("[2,3,4,5]"));
    }

    #[test]
    fn numbers_that_would_change_are_sent_whole() {
        let text = |number: &str| format!(r#"{{"arguments":{{"n":{number}}},"text":"12345678901234567890123 \" 1.50","more":"and more"}}"#);
        for (number, has_patch) in
            [("1", true), ("-12", true), ("0.5", true), ("18446744073709551615", true), ("18446744073709551616", false), ("1.50", false)]
        {
            let mut answer = Answer::default();
            take(&mut answer, &text("7"));
            let change = take(&mut answer, &text(number)).expect("a change");
            assert_eq!(change.patch.is_some(), has_patch, "{number}");
        }
    }

    #[test]
    fn a_slow_answer_is_looked_at_less_often() {
        let ms = Duration::from_millis;
        let pauses =
            [(0, true), (0, false), (40, true), (1_000, false), (10_000, false)].map(|(took, is_news)| pause(ms(took), is_news, 1, 1));
        assert_eq!(pauses, [ms(1_000), ms(2_000), ms(2_000), ms(4_000), ms(20_000)]);
    }

    #[test]
    fn many_paths_are_looked_at_less_often() {
        let ms = Duration::from_millis;
        let pauses = [(10, 100, 1), (10, 500, 1), (100, 500, 10), (100, 500, 0), (10_000, 2_000, 1), (0, 2_000, 2_000)]
            .map(|(took, paths, at_once)| pause(ms(took), false, paths, at_once));
        assert_eq!(pauses, [ms(2_000), ms(10_000), ms(10_000), ms(30_000), ms(30_000), ms(2_000)]);
    }

    fn json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "[a-z/~\"\\\\]{0,4}".prop_map(Value::from)
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-c/~]{0,2}", inner, 0..4).prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn differences_lead_from_each_answer_to_the_next(values in prop::collection::vec(json(), 1..6)) {
            let (mut answer, mut theirs, mut version) = (Answer::default(), Value::Null, 0);
            for value in values {
                let Some(change) = take(&mut answer, &value.to_string()) else {
                    prop_assert_eq!(&theirs, &value);
                    continue;
                };
                match change.since(version) {
                    Message::Nothing => prop_assert!(false, "a change is news"),
                    Message::Value(text) => theirs = serde_json::from_str(text).expect("JSON"),
                    Message::Patch(text) => json_patch::patch(&mut theirs, &serde_json::from_str::<json_patch::Patch>(text).expect("a patch")).expect("it applies"),
                }
                version = change.version;
                prop_assert_eq!(&theirs, &value);
            }
        }
    }
}
