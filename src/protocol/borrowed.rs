//! Members of JSON that are read in place.

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

/// A text that borrows from the input unless it contains escapes. serde copies each text of an `Option<Cow<str>>` or of a map, even with
/// `#[serde(borrow)]`; the attribute has an effect only on a field of the type `Cow<str>` itself.
#[derive(Debug, Deserialize)]
pub struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// The headers of a request, which are checked while they are read.
#[derive(Debug, Default)]
pub struct CheckedHeaders<'a> {
    /// The name of the first invalid header.
    pub invalid: Option<Text<'a>>,
}

impl<'de: 'a, 'a> Deserialize<'de> for CheckedHeaders<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Pairs;
        impl<'de> Visitor<'de> for Pairs {
            type Value = CheckedHeaders<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object with texts as members")
            }

            fn visit_map<M: MapAccess<'de>>(self, mut members: M) -> Result<Self::Value, M::Error> {
                let mut invalid = None;
                while let Some((name, value)) = members.next_entry::<Text<'de>, Text<'de>>()? {
                    if invalid.is_none() && !(is_name(&name) && is_value(&value)) {
                        invalid = Some(name);
                    }
                }
                Ok(CheckedHeaders { invalid })
            }
        }
        from.deserialize_map(Pairs)
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn is_value(value: &str) -> bool {
    !value.bytes().any(|b| matches!(b, b'\r' | b'\n' | 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_without_escapes_is_borrowed() {
        #[derive(Deserialize)]
        struct Record<'a> {
            #[serde(borrow)]
            plain: Option<Text<'a>>,
            #[serde(borrow)]
            escaped: Option<Text<'a>>,
            #[serde(borrow)]
            headers: Option<CheckedHeaders<'a>>,
        }
        let read: Record<'_> =
            serde_json::from_str(r#"{"plain":"a","escaped":"a\u0062","headers":{"A":"1","B b":"2","C\n":"3"}}"#).expect("valid");
        assert!(matches!(read.plain, Some(Text(Cow::Borrowed("a")))));
        assert!(matches!(read.escaped, Some(Text(Cow::Owned(text))) if text == "ab"));
        assert!(matches!(read.headers.and_then(|headers| headers.invalid), Some(Text(Cow::Borrowed("B b")))));
    }

    #[test]
    fn a_value_with_a_line_break_is_invalid() {
        let invalid = |text| serde_json::from_str::<CheckedHeaders<'_>>(text).map(|headers| headers.invalid.map(|name| name.to_owned()));
        assert_eq!(invalid(r#"{"A":"1","B":"2\r\nC: 3"}"#).expect("valid"), Some("B".to_owned()));
        assert_eq!(invalid(r#"{"":"1"}"#).expect("valid"), Some(String::new()));
        assert_eq!(invalid("{}").expect("valid"), None);
        assert!(invalid(r#"{"A":1}"#).is_err() && invalid("[]").is_err());
    }
}
