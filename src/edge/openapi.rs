//! The OpenAPI document: the route table in a machine-readable form.
//!
//! It contains nothing beyond the table; the schemas come from the types themselves (`schemas.rs`).

use super::access::refused;
use super::auth::{Need, allow_anyone};
use super::route::{Answer, AtStandby, Operation, Resource, resource};
use super::schemas::Schemas;
use super::table;
use crate::domain::ids::{Identity, NumberOr};
use crate::protocol::problem::{MEDIA_TYPE, Problem};
use crate::protocol::{BULK, EXECUTOR_HEADER};
use actix_web::HttpResponse;
use bytes::Bytes;
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;
use std::sync::LazyLock;

const ABOUT: &str = "Webloom schedules work and carries it out on a fleet of machines. This document is made from the broker's \
    own route table. Unknown members of bodies are refused where \
    a schema forbids them (`additionalProperties: false`), and ignored elsewhere. Ids are read as 32 hexadecimal digits, with dashes or without, and \
    written in lower case without. In a path an id may be \
    given as its `number` too, which fits 64 bits and is written as a text. Every error is a problem of RFC 9457. An address that is not here answers 404; a method that is \
    not here answers 405, and its `Allow` names those that are. A broker without tokens asks for none and answers to loopback \
    names only. What crosses the WebSockets and the bulk formats is described in docs/protocol.md.";

/// Status, name and meaning of each kind of failure.
const FAILURES: [(u16, &str, &str); 12] = [
    (400, "Malformed", "The input cannot be parsed."),
    (401, "Unauthorized", "The token is missing or unknown."),
    (403, "Forbidden", "The role of the token lacks the permission, or the request comes from a page of another site."),
    (404, "NotFound", "It does not exist."),
    (409, "Conflict", "It conflicts with the present state; `type` gives the reason."),
    (408, "TooSlow", "The body arrives too slowly."),
    (413, "TooLarge", "The body is larger than the limit."),
    (415, "Unsupported", "The body's encoding is not supported: expected gzip, zstd, lz4 or identity."),
    (422, "Invalid", "The input parses, but a value is not allowed; `field` names it."),
    (
        429,
        "TooMany",
        "Retry later: the calls and sockets of this token have used up its memory share, or too many wrong tokens came from this address.",
    ),
    (500, "Internal", "Internal error; see the broker's log."),
    (
        503,
        "Busy",
        "The broker is overloaded or one of its actors is restarting: retry later. With `type` `/problems/standby`: this broker is a standby.",
    ),
];

static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| Bytes::from(serde_json::to_vec_pretty(&describe(&table())).expect("JSON is plain data")));

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![resource("/api/v1/openapi.json").get(document, |op| {
        op.named("readOpenApi")
            .description("This document. All of it is public, so no token is needed.")
            .admits(|edge, request| allow_anyone(edge, request).map(|()| None), refused)
            .answers::<Map<String, Value>>(200, "An OpenAPI 3.1 document.")
            .may_fail(&[403])
    })]
}

/// `GET /api/v1/openapi.json`
pub async fn document() -> HttpResponse {
    HttpResponse::Ok().content_type("application/json").body(DOCUMENT.clone())
}

/// Builds the document of a table.
pub fn describe(table: &[Resource]) -> Value {
    let mut schemas = Schemas::new();
    let mut paths = Map::new();
    for resource in table {
        for (nth, path) in resource.paths.iter().enumerate() {
            let operations = resource.operations.iter().map(|operation| {
                let described = schemas.operation(operation, resource.tag, path, nth);
                (operation.method.as_str().to_ascii_lowercase(), described)
            });
            let mut item: Map<String, Value> = operations.collect();
            let parameters: Vec<Value> = names_in(path).map(|name| schemas.path_parameter(name, resource)).collect();
            if !parameters.is_empty() {
                item.insert("parameters".to_owned(), parameters.into());
            }
            paths.insert((*path).to_owned(), item.into());
        }
    }
    let responses: Map<String, Value> = FAILURES.iter().map(|failure| (failure.1.to_owned(), schemas.failure(failure))).collect();
    let mut document = json!({
        "openapi": "3.1.0",
        "info": { "title": "Webloom", "version": env!("CARGO_PKG_VERSION"), "description": ABOUT,
            "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" } },
        "servers": [{ "url": "/" }],
        "paths": paths,
        "components": { "responses": responses, "securitySchemes": {
            "token": { "type": "apiKey", "in": "header", "name": "Token" },
            "bearer": { "type": "http", "scheme": "bearer" },
        } },
    });
    let components = schemas.into_components(&mut document);
    document["components"]["schemas"] = components.into();
    document
}

/// The names in braces in a path.
fn names_in(path: &str) -> impl Iterator<Item = &str> {
    path.split('{').skip(1).filter_map(|rest| rest.split_once('}')).map(|(name, _)| name)
}

/// The parts of the document that hold schemas.
impl Schemas {
    fn operation(&mut self, operation: &Operation, tag: &str, path: &str, nth: usize) -> Value {
        let summary = operation.description.split_inclusive(['.', ':']).next().unwrap_or_default().trim_end_matches(['.', ':']);
        let name = if nth == 0 { operation.name.to_owned() } else { format!("{}{}", operation.name, nth + 1) };
        let mut out = json!({ "operationId": name, "tags": [tag], "summary": summary, "description": operation.description });
        let mut parameters = Vec::new();
        if let Some(query) = operation.query {
            parameters = query_parameters(query(&mut self.bodies).into());
        }
        if !parameters.is_empty() {
            out["parameters"] = parameters.into();
        }
        if let Some(body) = &operation.body {
            let schema: Value = (body.shape)(&mut self.bodies).into();
            let mut content = json!({ body.form.unwrap_or("application/json"): { "schema": schema } });
            if body.bulk {
                content[BULK] = json!({});
            }
            if body.raw {
                content = json!({ "application/octet-stream": { "schema": { "type": "string", "format": "binary", "minLength": 1 } } });
            }
            out["requestBody"] = json!({ "required": body.required, "content": content });
        }
        let mut responses: Map<String, Value> =
            operation.answers.iter().map(|answer| (answer.status.to_string(), self.answer(answer))).collect();
        if operation.is_of_run {
            let header = json!({ "description": "The broker that executes the run, if it is a standby. A client may call it directly.", "schema": { "type": "string" } });
            responses.values_mut().for_each(|response| response["headers"][EXECUTOR_HEADER] = header.clone());
        }
        for status in failures(operation, names_in(path).next().is_some()) {
            if let Some((_, name, _)) = FAILURES.iter().find(|failure| failure.0 == status) {
                // An operation for the clients of another system may describe its own.
                let reference = || json!({ "$ref": format!("#/components/responses/{name}") });
                responses.entry(status.to_string()).or_insert_with(reference);
            }
        }
        out["responses"] = responses.into();
        if operation.is_live {
            out["x-live"] = true.into();
        }
        if let Some(need) = operation.access.need() {
            let roles = need.roles();
            out["security"] = json!([{ "token": roles }, { "bearer": roles }]);
        }
        out
    }

    fn path_parameter(&mut self, name: &str, resource: &Resource) -> Value {
        if let Some((_, description)) = resource.texts.iter().find(|text| text.0 == name) {
            let schema = json!({ "type": "string", "minLength": 1 });
            return json!({ "name": name, "in": "path", "required": true, "description": description, "schema": schema });
        }
        let schema: Value = self.bodies.subschema_for::<NumberOr<Identity>>().into();
        json!({ "name": name, "in": "path", "required": true, "schema": schema })
    }

    fn answer(&mut self, answer: &Answer) -> Value {
        let mut out = json!({ "description": answer.description });
        for (media_type, shape) in &answer.contents {
            let schema = shape.map(|shape| Value::from(shape(&mut self.answers)));
            out["content"][media_type] = schema.map_or_else(|| json!({}), |schema| json!({ "schema": schema }));
        }
        for (name, description) in &answer.headers {
            out["headers"][name] = json!({ "description": description, "schema": { "type": "string" } });
        }
        out
    }

    fn failure(&mut self, (status, _, description): &(u16, &str, &str)) -> Value {
        let schema: Value = self.answers.subschema_for::<Problem>().into();
        let mut out = json!({ "description": description, "content": { MEDIA_TYPE: { "schema": schema } } });
        let header = match status {
            401 => Some(("WWW-Authenticate", json!({ "type": "string" }))),
            429 | 503 => Some(("Retry-After", json!({ "type": "integer", "description": "Seconds." }))),
            _ => None,
        };
        if let Some((name, schema)) = header {
            out["headers"][name] = json!({ "required": true, "schema": schema });
        }
        out
    }
}

/// The failure statuses of an operation: those that it lists, and those that follow from its inputs.
fn failures(operation: &Operation, has_id: bool) -> BTreeSet<u16> {
    let mut statuses: BTreeSet<u16> = operation.failures.iter().copied().chain([500]).collect();
    if operation.access.need().is_some() {
        // An operation that checks its caller goes on to ask the actors or the store.
        statuses.extend([401, 403, 429, 503]);
    }
    if operation.at_standby() == AtStandby::PassesOn {
        statuses.insert(503);
    }
    if has_id {
        // Several things may share the number in a path.
        statuses.extend([400, 404, 409]);
    }
    if operation.query.is_some() || operation.refuses_parameters() {
        statuses.extend([400, 422]);
    }
    if operation.body.is_some() {
        statuses.extend([400, 408, 413, 415, 422, 429, 503]);
    }
    statuses
}

/// The members of a query as parameters. An optional parameter cannot be null in a URL.
fn query_parameters(mut schema: Value) -> Vec<Value> {
    let required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    let Some(members) = schema.get_mut("properties").and_then(Value::as_object_mut).map(std::mem::take) else { return Vec::new() };
    let parameters = members.into_iter().map(|(name, mut schema)| {
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description")).unwrap_or_default();
        let required = required.contains(&Value::from(name.as_str()));
        json!({ "name": name, "in": "query", "required": required, "description": description, "schema": without_null(schema) })
    });
    parameters.collect()
}

fn without_null(mut schema: Value) -> Value {
    if let Some(kinds) = schema.get_mut("type").and_then(Value::as_array_mut) {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            schema["type"] = only.clone();
        }
    }
    if let Some(choices) = schema.get_mut("anyOf").and_then(Value::as_array_mut) {
        choices.retain(|choice| choice["type"] != "null");
        if let [only] = &choices[..] {
            return only.clone();
        }
    }
    schema
}

impl Need {
    /// The roles that have this permission.
    fn roles(self) -> Vec<&'static str> {
        use crate::config::tokens::Role;
        let all = [Role::Admin, Role::Editor, Role::Operator, Role::ReadOnly, Role::Agent, Role::Worker];
        all.into_iter().filter(|role| self.met_by(*role)).map(Role::name).collect()
    }
}
