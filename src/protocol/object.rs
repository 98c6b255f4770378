//! Members that must be objects: serde would accept an array for a struct as well, with its items as the members in order. No wire format
//! here uses that, and its meaning would change when a member is added.

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Visitor};
use std::fmt;
use std::marker::PhantomData;

struct Only<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Only<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::deserialize(MapAccessDeserializer::new(map))
    }
}

/// Parses an object.
///
/// # Errors
/// It is not an object, or a member does not match its type.
pub fn object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    from.deserialize_map(Only(PhantomData))
}

struct Maybe<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for Maybe<T> {
    type Value = Option<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object or null")
    }

    fn visit_none<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_unit<E: Error>(self) -> Result<Option<T>, E> {
        Ok(None)
    }

    fn visit_some<D: Deserializer<'de>>(self, from: D) -> Result<Option<T>, D::Error> {
        object(from).map(Some)
    }
}

/// Parses an object or null.
///
/// # Errors
/// It is neither, or a member does not match its type.
pub fn maybe_object<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    from.deserialize_option(Maybe(PhantomData))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::worker::WorkerFacts;

    #[derive(Debug, Deserialize)]
    struct Both {
        #[serde(default, deserialize_with = "object")]
        a: WorkerFacts,
        #[serde(default, deserialize_with = "maybe_object")]
        b: Option<WorkerFacts>,
    }

    #[test]
    fn an_array_is_no_object() {
        let both: Both = serde_json::from_str(r#"{"a":{"slots":2},"b":{"name":"x"}}"#).expect("objects");
        assert_eq!((both.a.slots, both.b.and_then(|b| b.name).as_deref()), (Some(2), Some("x")));
        assert!(serde_json::from_str::<Both>(r#"{"b":null}"#).is_ok_and(|both| both.b.is_none()));
        for wrong in [r#"{"a":[null]}"#, r#"{"b":[null]}"#, r#"{"a":null}"#, r#"{"b":[]}"#] {
            assert!(serde_json::from_str::<Both>(wrong).is_err(), "{wrong}");
        }
    }
}
