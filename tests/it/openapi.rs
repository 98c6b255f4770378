//! The OpenAPI document and the broker that it describes are one: checked here by hand, and in [`crate::api_at_random`] by Schemathesis.

use crate::support::api::{Api, id};
use crate::support::journey;
use crate::support::process::Broker;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::collections::BTreeSet;

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::DELETE, Method::PATCH];

pub async fn document(api: &Api) -> Value {
    let (status, document) = api.get("/api/v1/openapi.json").await;
    assert_eq!((status, &document["openapi"]), (200, &json!("3.1.0")));
    document
}

/// Path, method and description of each operation.
pub fn operations(document: &Value) -> Vec<(&str, Method, &Value)> {
    let items = document["paths"].as_object().expect("paths");
    let all = items.iter().flat_map(|(path, item)| {
        METHODS.into_iter().filter_map(move |method| {
            let operation = item.get(method.as_str().to_ascii_lowercase())?;
            Some((path.as_str(), method, operation))
        })
    });
    all.collect()
}

/// A path with ids that are nobody's.
fn filled(path: &str) -> String {
    let parts = path.split('/').map(|part| if part.starts_with('{') { id() } else { part.to_owned() });
    parts.collect::<Vec<_>>().join("/")
}

fn references<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            found.extend(members.get("$ref").and_then(Value::as_str));
            members.values().for_each(|member| references(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, found)),
        _ => {}
    }
}

/// What is wrong with a document.
fn faults(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut found = Vec::new();
    references(document, &mut found);
    faults.extend(found.iter().filter(|r| document.pointer(r.trim_start_matches('#')).is_none()).map(|r| format!("{r} leads nowhere")));
    let mut names = BTreeSet::new();
    for (path, method, operation) in operations(document) {
        let mut fault = |what: &str| faults.push(format!("{method} {path}: {what}"));
        let name = operation["operationId"].as_str().unwrap_or("");
        if name.is_empty() || !names.insert(name) {
            fault("it has no name of its own");
        }
        if operation["summary"].as_str().is_none_or(str::is_empty) {
            fault("it does not say what it does");
        }
        let in_path: BTreeSet<&str> = path.split('/').filter_map(|part| part.strip_prefix('{')?.strip_suffix('}')).collect();
        let parameters = document["paths"][path]["parameters"].as_array().into_iter().flatten();
        let declared: BTreeSet<&str> = parameters.filter(|p| p["in"] == "path").filter_map(|p| p["name"].as_str()).collect();
        if in_path != declared {
            fault("its path and its parameters differ");
        }
        let answers = operation["responses"].as_object().expect("responses");
        if !answers.keys().any(|status| status.starts_with('2') || status == "101") {
            fault("it never succeeds");
        }
        let is_problem = |answer: &Value| {
            let answer = answer["$ref"].as_str().and_then(|r| document.pointer(r.trim_start_matches('#'))).unwrap_or(answer);
            answer["content"]["application/problem+json"]["schema"]["$ref"] == "#/components/schemas/Problem"
        };
        let failures: Vec<_> = answers.iter().filter(|(status, _)| status.as_str() >= "400").collect();
        // The errors of scrapyd's calls have scrapyd's form.
        let is_ours = operation["tags"][0] != "scrapyd";
        if failures.is_empty() || is_ours && !failures.iter().all(|(_, answer)| is_problem(answer)) {
            fault("its failures are no problems");
        }
    }
    faults
}

#[test]
fn the_document_is_valid() {
    journey(async {
        let broker = Broker::start(&[], "");
        let mut document = document(&Api::new(&broker.url)).await;
        assert_eq!(faults(&document), Vec::<String>::new());
        assert!(operations(&document).len() > 30);
        // The check sees what it is there for.
        document["components"]["schemas"].as_object_mut().expect("schemas").remove("Problem");
        document["paths"]["/api/v1/jobs/{id}"]["parameters"] = json!([]);
        document["paths"]["/api/v1/jobs"]["get"]["operationId"] = json!("createJob");
        document["paths"]["/healthz"]["get"]["responses"] = json!({ "500": { "description": "no problem" } });
        let seen = faults(&document).join("\n");
        for fault in ["leads nowhere", "parameters differ", "no name of its own", "never succeeds", "no problems"] {
            assert!(seen.contains(fault), "{fault}: {seen}");
        }
    });
}

#[test]
fn every_operation_is_there_and_no_other() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let document = document(&api).await;
        for (path, item) in document["paths"].as_object().expect("paths") {
            let mut taken: Vec<String> = METHODS.iter().map(|m| m.as_str().to_owned()).collect();
            taken.retain(|method| item.get(method.to_ascii_lowercase()).is_some());
            for method in METHODS {
                let answer = api.request(method.clone(), &filled(path)).send().await.expect("an answer");
                let (status, allow) = (answer.status(), answer.headers().get("allow").cloned());
                let text = answer.text().await.expect("a body");
                if taken.contains(&method.to_string()) {
                    assert_ne!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                    assert!(!text.contains("nothing is at"), "{method} {path}: {text}");
                } else {
                    assert_eq!(status, StatusCode::METHOD_NOT_ALLOWED, "{method} {path}");
                    let allow = allow.as_ref().and_then(|v| v.to_str().ok()).unwrap_or("");
                    assert_eq!(allow.split(", ").collect::<BTreeSet<_>>(), taken.iter().map(String::as_str).collect(), "{path}");
                }
            }
        }
    });
}

#[test]
fn every_operation_refuses_parameters_that_it_does_not_know() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut refused = 0;
        for (path, method, operation) in operations(&document(&api).await) {
            // Those that are for everybody, and the addresses of other systems, take what comes.
            if operation["security"].is_null()
                || ["easy-job", "scrapyd"].map(Value::from).contains(&operation["tags"][0])
                || ["/worker", "/live"].contains(&path)
            {
                continue;
            }
            for query in ["nonsense=1", "nonsense", "%20=1"] {
                let (status, problem) = api.send(api.request(method.clone(), &format!("{}?{query}", filled(path)))).await;
                assert_eq!((status, &problem["type"]), (422, &json!("/problems/invalid")), "{method} {path}?{query}: {problem}");
                let name = if query == "%20=1" { " " } else { "nonsense" };
                assert_eq!(problem["field"], name, "{method} {path}: {problem}");
            }
            let (_, problem) = api.send(api.request(method.clone(), &format!("{}?", filled(path)))).await;
            assert!(!problem.to_string().contains("unknown parameter"), "{method} {path}?: {problem}");
            refused += 1;
        }
        assert!(refused > 70, "{refused}");
    });
}

/// The routes let pass whom the table says they do, before anything else is looked at.
#[test]
fn every_operation_takes_the_tokens_that_it_says() {
    journey(async {
        let roles = ["admin", "readonly", "agent", "worker", "operator", "editor"];
        let token = |role: &str| format!("a-token-of-{role}");
        let tokens = roles.map(|role| format!("{role}:{}", token(role)));
        let args: Vec<&str> = tokens.iter().flat_map(|token| ["--token", token]).collect();
        let broker = Broker::start(&args, "");
        let api = Api::new(&broker.url);
        for (path, method, operation) in operations(&document(&api).await) {
            let Some(may) = operation["security"][0]["token"].as_array() else {
                let status = api.send(api.request(method.clone(), &filled(path))).await.0;
                // Scheduler.NET's dialect refuses with a 206, which its own tests look at; the portal has no file of that name.
                let expected = if path.starts_with("/api/v1.0/") { 206 } else { 200 };
                let expected = if path == "/portal/{file}" { 404 } else { expected };
                // A hook asks for its own secret, and the connection of another broker for that of the database.
                let expected = if path == "/hooks/{hook}" || path == "/api/v1/link" { 401 } else { expected };
                assert_eq!(status, expected, "{method} {path} asks for no token");
                continue;
            };
            let status_of = async |api: &Api, query: &str| {
                let request = api.request(method.clone(), &format!("{}{query}", filled(path)));
                // The errors of scrapyd's calls have scrapyd's form, which `send` would not take.
                let is_ours = operation["tags"][0] != "scrapyd";
                if is_ours { api.send(request).await.0 } else { request.send().await.expect("an answer").status().as_u16() }
            };
            // Also with a query that is refused afterwards.
            for query in ["", "?nonsense=1", "?limit=x"] {
                assert_eq!(status_of(&api, query).await, 401, "{method} {path}{query}");
            }
            for role in roles {
                let status = status_of(&api.with_token(&token(role)), "").await;
                assert_eq!(status != 403, may.contains(&json!(role)), "{method} {path} by {role}: {status}");
            }
        }
    });
}

/// A page of another site reads nothing here, not even what is public.
#[test]
fn the_document_is_not_for_other_sites() {
    journey(async {
        let broker = Broker::start(&["--token", "admin:the-admin-token"], "");
        let api = Api::new(&broker.url);
        assert_eq!(document(&api).await["info"]["title"], "Webloom", "it asks for no token");
        for (name, value) in [("Origin", "http://elsewhere.example"), ("Sec-Fetch-Site", "cross-site")] {
            let request = api.request(Method::GET, "/api/v1/openapi.json").header(name, value);
            assert_eq!(api.send(request).await.0, 403, "{name}");
        }
    });
}
