//! Trap 15 and the roles: who may do what, and what a wrong token gets.

use crate::support::api::{Api, id};
use crate::support::journey;
use crate::support::process::{Broker, WEBLOOM};
use reqwest::Method;
use serde_json::json;

const TOKENS: &[&str] =
    &["--token", "boss-token", "--token", "readonly:look-token", "--token", "agent:node-token", "--token", "worker:work-token"];

#[test]
fn every_role_has_its_doors() {
    journey(async {
        let broker = Broker::start(TOKENS, "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "x", "properties": { "FullClassName": "a.B" } });
        let calls = [
            // method, path, body, and the status for: none, wrong, readonly, agent, worker, admin
            ("GET", "/api/v1/jobs", json!(null), [401, 401, 200, 403, 200, 200]),
            ("GET", "/api/v1/actors", json!(null), [401, 401, 200, 403, 200, 200]),
            ("POST", "/api/v1/jobs", job, [401, 401, 403, 403, 403, 201]),
            ("POST", "/node/heartbeat", json!({ "nodeId": id() }), [401, 401, 403, 204, 403, 204]),
            ("POST", "/api/v1/workers", json!({ "classNames": ["a.B"] }), [401, 401, 403, 403, 200, 200]),
            ("GET", "/healthz", json!(null), [200; 6]),
        ];
        for (method, path, body, expected) in calls {
            let tokens = [None, Some("wrong-token"), Some("look-token"), Some("node-token"), Some("work-token"), Some("boss-token")];
            for (token, expected) in tokens.into_iter().zip(expected) {
                for header in ["Token", "Authorization"] {
                    let mut request = api.request(Method::from_bytes(method.as_bytes()).expect("a method"), path);
                    if let Some(token) = token {
                        request = request.header(header, if header == "Token" { token.to_owned() } else { format!("Bearer {token}") });
                    }
                    if !body.is_null() {
                        request = request.body(body.to_string());
                    }
                    let (status, answer) = api.send(request).await;
                    // The second way to send it finds the name taken.
                    let expected = if expected == 201 && header == "Authorization" { 409 } else { expected };
                    assert_eq!(status, expected, "{method} {path} {token:?} {answer}");
                }
            }
        }
    });
}

/// What a socket's upgrade is answered.
async fn upgrade(url: &str, token: Option<&str>) -> u16 {
    let client = awc::Client::default();
    let mut request = client.ws(url.replace("http://", "ws://"));
    if let Some(token) = token {
        request = request.header("Token", token);
    }
    match request.connect().await {
        Ok(_) => 101,
        Err(awc::error::WsClientError::InvalidResponseStatus(status)) => status.as_u16(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn sockets_are_refused_too() {
    journey(async {
        let broker = Broker::start(TOKENS, "");
        let node: webloom::domain::ids::NodeId = id().parse().expect("an id");
        let url = |sign: &str| {
            format!(
                "{}/?nodeid={node}&operationsystem=linux&proccessorcount=4&memory=1600&nodetype=console&group=default{sign}",
                broker.url
            )
        };
        let good = webloom::protocol::sign::sign("node-token", node);
        let other = webloom::protocol::sign::sign("look-token", node);
        assert_eq!(upgrade(&url(""), None).await, 401);
        assert_eq!(upgrade(&url(""), Some("wrong-token")).await, 401);
        assert_eq!(upgrade(&url(""), Some("work-token")).await, 403);
        assert_eq!(upgrade(&url(&format!("&sign={other}")), None).await, 401);
        assert_eq!(upgrade(&url(&format!("&sign={good}")), None).await, 101);
        assert_eq!(upgrade(&url(""), Some("node-token")).await, 101);
        assert_eq!(upgrade(&url("&token=node-token"), None).await, 101);
        let worker = format!("{}/worker", broker.url);
        assert_eq!(upgrade(&worker, None).await, 401);
        assert_eq!(upgrade(&worker, Some("node-token")).await, 403);
        assert_eq!(upgrade(&worker, Some("work-token")).await, 101);
    });
}

#[test]
fn beyond_loopback_it_does_not_start_without_a_token() {
    let folder = tempfile::tempdir().expect("a folder");
    let output = std::process::Command::new(WEBLOOM)
        .args(["broker", "--listen", "0.0.0.0:0", "--database"])
        .arg(folder.path().join("b.db"))
        .env_remove("WEBLOOM_TOKEN")
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("without a token"), "{output:?}");
    assert!(!folder.path().join("b.db").exists(), "it did nothing");
}

/// A page of another site in a browser on this machine must not reach an open broker.
#[test]
fn other_sites_pages_are_refused() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let own = broker.url.clone();
        for (header, value, expected) in [
            ("Origin", "http://evil.example", 403),
            ("Origin", "null", 403),
            ("Sec-Fetch-Site", "cross-site", 403),
            ("Sec-Fetch-Site", "same-origin", 200),
            ("Origin", own.as_str(), 200),
            ("Host", "evil.example:55626", 403),
            ("Host", "localhost:1", 200),
        ] {
            let (status, _) = api.send(api.request(Method::GET, "/api/v1/jobs").header(header, value)).await;
            assert_eq!(status, expected, "{header}: {value}");
        }
    });
}
