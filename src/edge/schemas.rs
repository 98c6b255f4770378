//! The schemas of the OpenAPI document, generated from the wire types.
//!
//! A type may have one schema in a response and another in a request (a member with a default is always present in the one and optional
//! in the other), so there are two generators. Where their schemas of one name differ, the request's schema gets a separate name.

use schemars::SchemaGenerator;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};
use std::collections::BTreeSet;

/// The location of response schemas.
const SCHEMAS: &str = "#/components/schemas/";
/// The temporary location of request schemas, until their names are decided.
const TAKEN: &str = "#/taken/";

/// The schemas that the operations have used so far.
pub(super) struct Schemas {
    /// For responses.
    pub(super) answers: SchemaGenerator,
    /// For requests.
    pub(super) bodies: SchemaGenerator,
}

impl Schemas {
    /// An empty set.
    pub(super) fn new() -> Self {
        let at = |path: &str| {
            SchemaSettings::draft2020_12().with(|settings| {
                settings.definitions_path = path.trim_start_matches('#').trim_end_matches('/').to_owned().into();
                settings.meta_schema = None;
            })
        };
        Self { answers: at(SCHEMAS).for_serialize().into_generator(), bodies: at(TAKEN).for_deserialize().into_generator() }
    }

    /// All schemas by name; rewrites the references in the document.
    pub(super) fn into_components(mut self, document: &mut Value) -> Map<String, Value> {
        let mut components = self.answers.take_definitions(true);
        let bodies = self.bodies.take_definitions(true);
        let own = names_of_their_own(&components, &bodies);
        let named = |name: &str| if own.contains(name) { format!("{name}Input") } else { name.to_owned() };
        let settle = |value: &mut Value| {
            each_reference(value, &mut |text| {
                if let Some(name) = text.strip_prefix(TAKEN) {
                    *text = format!("{SCHEMAS}{}", named(name));
                }
            })
        };
        settle(document);
        for (name, mut schema) in bodies {
            settle(&mut schema);
            components.insert(named(&name), schema);
        }
        components
    }
}

/// The names that mean different schemas in requests and responses, directly or through a reference.
fn names_of_their_own(answers: &Map<String, Value>, bodies: &Map<String, Value>) -> BTreeSet<String> {
    let mut own = BTreeSet::new();
    loop {
        let before = own.len();
        for (name, body) in bodies {
            let Some(answer) = answers.get(name) else { continue };
            let mut body = body.clone();
            let mut refers_to_own = false;
            each_reference(&mut body, &mut |text| {
                if let Some(other) = text.strip_prefix(TAKEN) {
                    refers_to_own |= own.contains(other);
                    *text = format!("{SCHEMAS}{other}");
                }
            });
            if refers_to_own || body != *answer {
                own.insert(name.clone());
            }
        }
        if own.len() == before {
            return own;
        }
    }
}

fn each_reference(value: &mut Value, visit: &mut impl FnMut(&mut String)) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(text) if name == "$ref" => visit(text),
                    other => each_reference(other, visit),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| each_reference(item, visit)),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_what_differs_gets_a_name_of_its_own() {
        let of = |at: &str, leaf: &str| {
            let schemas =
                json!({ "Leaf": { "type": leaf }, "Tree": { "items": { "$ref": format!("{at}Leaf") } }, "Same": { "type": "object" } });
            schemas.as_object().cloned().expect("an object")
        };
        let own = names_of_their_own(&of(SCHEMAS, "string"), &of(TAKEN, "integer"));
        assert_eq!(own.iter().map(String::as_str).collect::<Vec<_>>(), ["Leaf", "Tree"], "and what refers to it");
        assert!(names_of_their_own(&of(SCHEMAS, "string"), &of(TAKEN, "string")).is_empty());
    }
}
