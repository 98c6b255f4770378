//! What one token or one address may take: memory for reports that arrive, ids, and connections; and names that are no lines.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::raw::{connect, head, socket, status};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::io::Write as _;
use std::net::TcpStream;
use std::time::{Duration, Instant};

const ONE: &str = "aaaaaaaaaaaaaaa1";
const TWO: &str = "aaaaaaaaaaaaaaa2";
const BOSS: &str = "boss-boss-boss-b";

fn with_tokens(more: &[&str]) -> Broker {
    let tokens = [format!("agent:{ONE}"), format!("agent:{TWO}"), format!("admin:{BOSS}"), format!("worker:{ONE}w")];
    let mut arguments: Vec<&str> = tokens.iter().flat_map(|token| ["--token", token.as_str()]).collect();
    arguments.extend(more);
    Broker::start(&arguments, "")
}

/// A report that says that it has this many bytes, and of which fewer are sent.
fn begun(broker: &Broker, token: &str, declared: usize, sent: usize) -> TcpStream {
    let mut stream = connect(&broker.url);
    let head = format!(
        "POST /node/block HTTP/1.1\r\nHost: {}\r\nToken: {token}\r\nContent-Type: application/json\r\nContent-Length: {declared}\r\n\r\n",
        broker.url.trim_start_matches("http://")
    );
    stream.write_all(head.as_bytes()).expect("it is sent");
    stream.write_all(&vec![b' '; sent]).expect("it is sent");
    stream
}

/// What is only announced takes nothing, so that reports of others are accepted meanwhile.
#[test]
fn a_report_takes_what_has_arrived_and_not_what_it_declares() {
    journey(async {
        let broker = with_tokens(&[]);
        let _announced: Vec<TcpStream> = (0..4).map(|_| begun(&broker, ONE, 100 << 20, 8 << 10)).collect();
        let api = Api::new(&broker.url).with_token(TWO);
        // The calls above have reached their handler when this one, which came after them, is answered.
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": id() })).await.0, 204);
        let report =
            json!({ "nodeId": id(), "identity": id(), "blockId": id(), "attempt": 1, "exception": "x".repeat(3 << 20), "results": [] });
        let began = Instant::now();
        let (status, answer) = api.post("/node/block", &report).await;
        assert!(status != 503 && status != 429, "{status} {answer}");
        assert!(began.elapsed() < Duration::from_secs(15), "it waited {:?}", began.elapsed());
    });
}

/// Two tokens of one role have shares of their own.
#[test]
fn one_token_leaves_memory_to_another_of_its_role() {
    journey(async {
        let broker = with_tokens(&["--in-flight-mb", "64"]);
        // As many bytes as one token may hold, in reports that do not end.
        let mut begun: Vec<TcpStream> = (0..13).map(|_| begun(&broker, ONE, 100 << 20, 4 << 10)).collect();
        for stream in &mut begun {
            // What does not fit is refused, and then its connection takes no more.
            stream.set_write_timeout(Some(Duration::from_millis(500))).expect("a limit");
            let _ = (0..64).take_while(|_| stream.write_all(&[b' '; 64 << 10]).is_ok()).count();
        }
        let boss = Api::new(&broker.url).with_token(BOSS);
        until("the reports to arrive", || async { (boss.metric("webloom_report_bytes").await >= f64::from(44 << 20)).then_some(()) }).await;
        let mut other = self::begun(&broker, TWO, (1 << 20) + 100, (1 << 20) + 100);
        let answer = head(&mut other);
        assert_eq!(status(&answer), 400, "it was read to its end, and is no report: {answer}");
    });
}

#[test]
fn a_token_owns_a_limited_number_of_ids() {
    journey(async {
        let mut broker = with_tokens(&["--ids-per-token", "3", "--node-heartbeat", "500", "--node-offline", "2000"]);
        let (url, nodes) = (broker.url.clone(), [id(), id(), id()]);
        let beat =
            async |token: &str, node: &str| Api::new(&url).with_token(token).post("/node/heartbeat", &json!({ "nodeId": node })).await;
        for node in &nodes {
            assert_eq!(beat(ONE, node).await.0, 204);
        }
        for is_restarted in [false, true] {
            if is_restarted {
                broker.kill_and_restart();
            }
            let (status, problem) = beat(ONE, &id()).await;
            assert_eq!((status, &problem["type"]), (429, &json!("/problems/too-many")), "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains("--ids-per-token")), "{problem}");
            assert_eq!(beat(ONE, &nodes[0]).await.0, 204, "what it owns, it may use");
        }
        assert_eq!(beat(TWO, &id()).await.0, 204, "another token has a limit of its own");
        let workers = Api::new(&url).with_token(&format!("{ONE}w"));
        for expected in [200, 200, 200, 429] {
            assert_eq!(workers.post("/api/v1/workers", &json!({ "workerId": id(), "classNames": ["a.B"] })).await.0, expected);
        }
        // What an admin removes may be replaced.
        let boss = Api::new(&url).with_token(BOSS);
        until("a node to be removed", || async { (boss.delete(&format!("/api/v1/nodes/{}", nodes[2])).await.0 == 204).then_some(()) })
            .await;
        assert_eq!(beat(ONE, &id()).await.0, 204);
        assert_eq!(beat(ONE, &id()).await.0, 429);
    });
}

/// Asks for the health on a connection that stays open.
fn healthy(stream: &mut TcpStream, broker: &Broker) -> String {
    let _ = write!(stream, "GET /healthz HTTP/1.1\r\nHost: {}\r\n\r\n", broker.url.trim_start_matches("http://"));
    head(stream)
}

#[test]
fn connections_are_limited_in_all_and_for_each_address() {
    for (flag, limit) in [("--max-connections", "all"), ("--max-connections-per-address", "address")] {
        journey(async {
            let broker = Broker::start(&[flag, "12"], "");
            let mut open: Vec<TcpStream> = (0..10).map(|_| connect(&broker.url)).collect();
            for stream in &mut open {
                assert_eq!(status(&healthy(stream, &broker)), 200);
            }
            // A socket counts like any other connection. The connection with which the test waited for the start may be open too.
            open.push(socket(&broker.url, &format!("/worker?workerid={}", id()), ""));
            let refused = (0..5).find_map(|_| {
                let mut stream = connect(&broker.url);
                let answer = healthy(&mut stream, &broker);
                let is_refused = status(&answer) == 503;
                open.push(stream);
                is_refused.then_some(answer)
            });
            let refused = refused.expect("the limit is reached");
            assert!(refused.contains("connection: close") && refused.contains(flag), "{refused}");
            // What is open goes on, and what is closed may be replaced.
            assert_eq!(status(&healthy(&mut open[0], &broker)), 200);
            open.truncate(2);
            let api = Api::new(&broker.url);
            until("a connection to be accepted", || async { (api.get("/healthz").await.0 == 200).then_some(()) }).await;
            assert!(api.metric(&format!("webloom_refused_connections_total{{limit=\"{limit}\"}}")).await >= 1.0);
            assert!(api.metric("webloom_connections").await >= 2.0);
        });
    }
}

/// The status and the place of a problem.
fn at((status, problem): (u16, Value)) -> (u16, String) {
    (status, problem["field"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn misspelt_properties_are_refused_with_a_suggestion() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = |name: &str, key: &str, value: &str| json!({ "name": name, "properties": { "FullClassName": "a.B", key: value } });
        for (key, value, hint) in [
            ("Redirect", "request", "Did you mean `Redirects`?"),
            ("Robot", "ignore", "Did you mean `Robots`?"),
            ("PerSites", "2", "Did you mean `PerSite`?"),
            ("Site", r#"{"useragent":"x"}"#, "Did you mean `userAgent`?"),
        ] {
            let (status, problem) = api.post("/api/v1/jobs", &job("new", key, value)).await;
            assert_eq!((status, &problem["field"]), (422, &json!(format!("properties.{key}"))), "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|detail| detail.contains(hint)), "{problem}");
            let imported = at(api.post("/api/v1/jobs/import", &json!([job("new", key, value)])).await);
            assert_eq!(imported, (422, format!("jobs[0].properties.{key}")));
        }
        let (status, own) = api.post("/api/v1/jobs", &job("own", "Currency", "EUR")).await;
        assert_eq!(status, 201, "a worker may read properties of its own: {own}");
        let path = format!("/api/v1/jobs/{}", own["id"].as_str().expect("an id"));
        assert_eq!(at(api.put(&path, &job("own", "ThreadNums", "4")).await), (422, "properties.ThreadNums".to_owned()));
        assert_eq!(api.put(&path, &job("own", "THREAD_NUM", "4")).await.0, 200);
    });
}

#[test]
fn names_have_no_control_characters() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let block = |name: &str, class: &str| json!({ "name": name, "properties": { "FullClassName": class } });
        for (path, body, field) in [
            ("/api/v1/jobs", block("a\nb", "a.B"), "name"),
            ("/api/v1/jobs", block("a", "a\u{0}B"), "properties.FullClassName"),
            ("/api/v1/jobs", json!({ "name": "a", "group": "g\tg", "properties": { "FullClassName": "a.B" } }), "group"),
            ("/api/v1/jobs", json!({ "name": "a", "jobType": "task", "task": { "handler": "a\rb" } }), "task.handler"),
            ("/api/v1/groups", json!({ "name": "a\u{1b}b" }), "name"),
            ("/api/v1/workers", json!({ "classNames": ["a\nB"] }), "classNames[0]"),
            ("/node/heartbeat", json!({ "nodeId": id(), "group": "a\nb" }), "group"),
        ] {
            assert_eq!(at(api.post(path, &body).await), (422, field.to_owned()), "{path} {body}");
        }
    });
}
