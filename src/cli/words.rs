//! The API's enum values as values of flags, so that no list of them is repeated.

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::Value;

/// The values of an enum of the API with their descriptions, from its schema. `queueOne` may also be written `queue-one`; the result is
/// the API's value.
pub fn words<T: JsonSchema>() -> impl TypedValueParser<Value = String> {
    let schema = T::json_schema(&mut SchemaGenerator::default()).to_value();
    let words = words_of(&schema);
    assert!(!words.is_empty(), "{schema} has no words");
    let values = words.iter().map(|(word, meaning)| {
        let value = PossibleValue::new(kebab(word)).alias(word.clone());
        if meaning.is_empty() { value } else { value.help(meaning.clone()) }
    });
    PossibleValuesParser::new(values.collect::<Vec<_>>())
        .map(move |text| words.iter().map(|(word, _)| word).find(|word| kebab(word) == text).cloned().unwrap_or(text))
}

/// Values of a list that is not an enum.
pub fn one_of(words: &[&'static str]) -> PossibleValuesParser {
    PossibleValuesParser::new(words.iter().copied())
}

fn words_of(schema: &Value) -> Vec<(String, String)> {
    let plain = schema["enum"].as_array().into_iter().flatten().filter_map(|word| Some((word.as_str()?.to_owned(), String::new())));
    let meaning =
        |one: &Value| one["description"].as_str().and_then(|text| text.lines().next()).unwrap_or_default().trim_end_matches('.').to_owned();
    let described = schema["oneOf"].as_array().into_iter().flatten().flat_map(|one| match one["const"].as_str() {
        Some(word) => vec![(word.to_owned(), meaning(one))],
        None => words_of(one),
    });
    plain.chain(described).collect()
}

/// `leastRecentlyUsed` as `least-recently-used`.
pub fn kebab(word: &str) -> String {
    word.chars().flat_map(|c| c.is_ascii_uppercase().then_some('-').into_iter().chain([c.to_ascii_lowercase()])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::run::RunState;
    use crate::domain::schedule::Overlap;
    use crate::domain::task::Strategy;
    use clap::{Arg, Command};

    fn read<T: JsonSchema>(text: &str) -> Result<String, String> {
        let command = Command::new("x").arg(Arg::new("a").value_parser(words::<T>()));
        let matches = command.try_get_matches_from(["x", text]).map_err(|e| e.to_string())?;
        Ok(matches.get_one::<String>("a").cloned().unwrap_or_default())
    }

    #[test]
    fn both_forms_are_read() {
        assert_eq!(read::<Overlap>("queue-one"), Ok("queueOne".to_owned()));
        assert_eq!(read::<Overlap>("queueOne"), Ok("queueOne".to_owned()));
        assert_eq!(read::<Strategy>("least-recently-used"), Ok("leastRecentlyUsed".to_owned()));
        assert_eq!(read::<RunState>("stopped"), Ok("stopped".to_owned()));
    }

    #[test]
    fn what_is_no_word_is_refused_with_the_words() {
        let error = read::<RunState>("bogus").unwrap_err();
        assert!(error.contains("bogus") && error.contains("pending, ") && error.contains("stopped"), "{error}");
    }
}
