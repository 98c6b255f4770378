//! Trap 15 and the roles: who may do what, and what a wrong token gets.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::{journey, until};
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
        let node: webloom::for_tests::ids::NodeId = id().parse().expect("an id");
        let url = |sign: &str| {
            format!(
                "{}/?nodeid={node}&operationsystem=linux&proccessorcount=4&memory=1600&nodetype=console&group=default{sign}",
                broker.url
            )
        };
        let good = webloom::for_tests::sign::sign("node-token", node);
        let other = webloom::for_tests::sign::sign("look-token", node);
        assert_eq!(upgrade(&url(""), None).await, 401);
        assert_eq!(upgrade(&url(""), Some("wrong-token")).await, 401);
        assert_eq!(upgrade(&url(""), Some("work-token")).await, 403);
        assert_eq!(upgrade(&url(&format!("&sign={other}")), None).await, 401);
        assert_eq!(upgrade(&url(&format!("&sign={good}")), None).await, 101);
        assert_eq!(upgrade(&url(""), Some("node-token")).await, 101);
        assert_eq!(upgrade(&url("&token=node-token"), None).await, 101);
        assert_eq!(upgrade(&url("&token=agent:node-token"), None).await, 101);
        let now = webloom::for_tests::time::Timestamp::now();
        let timed = |off_ms: i64, said_ms: i64| {
            let at = now.plus_ms(off_ms);
            let sign = webloom::for_tests::sign::sign_at("node-token", node, at);
            url(&format!("&sign={sign}&signtime={}", at.0 + said_ms))
        };
        assert_eq!(upgrade(&timed(0, 0), None).await, 101);
        assert_eq!(upgrade(&timed(0, 1), None).await, 401, "another time");
        assert_eq!(upgrade(&timed(-20 * 60_000, 0), None).await, 401, "an old one");
        assert_eq!(upgrade(&timed(20 * 60_000, 0), None).await, 401, "one of the future");
        assert_eq!(upgrade(&url(&format!("&sign={good}&signtime=soon")), None).await, 400);
        let strict = Broker::start(&["--token", "agent:node-token", "--require-sign-time"], "");
        let moved = |address: String| address.replace(&broker.url, &strict.url);
        assert_eq!(upgrade(&moved(url(&format!("&sign={good}"))), None).await, 401);
        assert_eq!(upgrade(&moved(timed(0, 0)), None).await, 101);
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

fn refused_broker(args: &[&str]) -> String {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = std::process::Command::new(WEBLOOM);
    command.args(["broker", "--database"]).arg(folder.path().join("b.db")).args(args).env_remove("WEBLOOM_TOKEN");
    let output = command.output().expect("it runs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(!folder.path().join("b.db").exists(), "it did nothing");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn what_is_wrong_with_a_token_is_said_at_the_start() {
    let role = refused_broker(&["--listen", "127.0.0.1:0", "--token", "agents:typo-role"]);
    assert!(role.contains("\"agents\" is not a role. Use admin, editor, operator, readonly, agent or worker."), "{role}");
    let short = refused_broker(&["--listen", "0.0.0.0:0", "--token", "admin:fifteen-letters"]);
    assert!(short.contains("fewer than 16 characters"), "{short}");
    let twice = refused_broker(&["--listen", "127.0.0.1:0", "--token", "admin:same-text,worker:same-text"]);
    assert!(twice.contains("one token has two roles, admin and worker"), "{twice}");
    let none = refused_broker(&["--listen", "127.0.0.1:0", "--token-file", "/nonexistent/tokens"]);
    assert!(none.contains("the token file /nonexistent/tokens"), "{none}");
}

#[test]
fn a_token_file_is_read_again_when_the_broker_is_told_to() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        let write = |text: &str| std::fs::write(&file, text).expect("a file");
        write("# first\nadmin:first-token\n");
        let broker = Broker::start(&["--token-file", file.to_str().expect("a name")], "");
        let hang_up = || {
            let status = std::process::Command::new("kill").arg("-HUP").arg(broker.process.0.id().to_string()).status();
            assert!(status.expect("kill runs").success());
        };
        let api = Api::new(&broker.url);
        let status = |token: &'static str| {
            let api = api.with_token(token);
            async move { api.get("/api/v1/jobs").await.0 }
        };
        assert_eq!((status("first-token").await, status("second-token").await), (200, 401));
        write("admin:second-token\n");
        hang_up();
        until("the new token is taken", || async { (status("second-token").await == 200).then_some(()) }).await;
        assert_eq!(status("first-token").await, 401);
        write("admin:third-token\nboss:x\n");
        hang_up();
        for _ in 0..20 {
            assert_eq!(status("second-token").await, 200, "a broken file changes nothing");
        }
        write("admin:fourth-token\n");
        hang_up();
        until("the good one is taken", || async { (status("fourth-token").await == 200).then_some(()) }).await;
        assert_eq!(status("second-token").await, 401);
    });
}

#[test]
fn wrong_tokens_are_counted_and_slowed_down() {
    journey(async {
        let broker = Broker::start(TOKENS, "");
        let api = Api::new(&broker.url);
        let boss = api.with_token("boss-token");
        assert_eq!(boss.get("/api/v1/jobs").await.0, 200);
        let guess = |i: usize| {
            let api = api.with_token(&format!("guess-{i}"));
            async move { api.get("/api/v1/jobs").await }
        };
        let answers = futures_util::future::join_all((0..300).map(guess)).await;
        assert!(answers.iter().any(|(status, problem)| *status == 401 && problem["title"] == "The token is not known"));
        assert!(answers.iter().any(|(status, problem)| *status == 429 && problem["type"] == "/problems/too-many-attempts"));
        assert!(answers.iter().all(|(status, _)| matches!(status, 401 | 429)));
        assert_eq!(boss.get("/api/v1/jobs").await.0, 200, "who was right before goes on");
        until("another right one is taken again", || async {
            (api.with_token("look-token").get("/api/v1/jobs").await.0 == 200).then_some(())
        })
        .await;
        let page = boss.metrics().await;
        for reason in ["wrong", "throttled"] {
            let sample = format!("webloom_refused_tokens_total{{reason=\"{reason}\"}} ");
            let count = page.lines().find_map(|line| line.strip_prefix(&sample)?.parse::<u64>().ok());
            assert!(count.is_some_and(|count| count > 0), "{sample} {page}");
        }
        assert!(!page.contains("guess-"));
    });
}

#[test]
fn a_token_may_be_written_with_its_role() {
    journey(async {
        let broker = Broker::start(TOKENS, "");
        let api = Api::new(&broker.url).with_token("admin:boss-token");
        assert_eq!(api.get("/api/v1/jobs").await.0, 200);
        assert_eq!(api.with_token("admin:look-token").get("/api/v1/jobs").await.0, 401);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--token", "agent:node-token", "--heartbeat", "1"]);
        until("the agent is there", || async { (api.get("/api/v1/nodes").await.1["items"][0]["isOnline"] == true).then_some(()) }).await;
    });
}
