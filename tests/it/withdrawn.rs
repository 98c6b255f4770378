//! A reload of the token file withdraws tokens: everything that was opened with one of them ends at once, all else stays open.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, Process, WEBLOOM};
use crate::support::raw::{close_code, connect, frame_header, head, socket, status};
use crate::support::{journey, until};
use serde_json::json;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Stdio};
use webloom::sdk::{TaskContext, TaskResult, Worker};

const KEPT: &str = "admin:boss-token\nagent:node-kept\nworker:work-kept\n";
const WITHDRAWN: &str = "agent:node-old\nworker:work-old\nreadonly:look-old\nadmin:boss-old\n";

fn reload(broker: &Broker) {
    let status = Command::new("kill").arg("-HUP").arg(broker.process.0.id().to_string()).status().expect("kill runs");
    assert!(status.success());
}

fn get(broker: &Broker, path: &str, token: &str) -> TcpStream {
    let mut stream = connect(&broker.url);
    let host = broker.url.trim_start_matches("http://");
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nToken: {token}\r\n\r\n").as_bytes()).expect("it is sent");
    stream
}

/// A socket whose welcome has been read: its session has begun.
fn welcomed(broker: &Broker, path: &str, token: &str) -> TcpStream {
    let mut stream = socket(&broker.url, path, token);
    let mut frame = [0; 2];
    stream.read_exact(&mut frame).expect("a welcome");
    assert!(frame[1] < 126, "a longer welcome than this test reads");
    stream.read_exact(&mut vec![0; usize::from(frame[1])]).expect("a welcome");
    stream
}

/// Reads up to this text.
fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains(end) {
        let read = stream.read(&mut piece).expect("it is open");
        assert!(read > 0, "it was closed after {text}");
        text.push_str(&String::from_utf8_lossy(&piece[..read]));
    }
    text
}

/// An agent whose log is in this folder.
fn agent(broker: &Broker, folder: &Path, token: &str) -> Process {
    let log = std::fs::File::create(folder.join("log")).expect("a file");
    let mut command = Command::new(WEBLOOM);
    command.args(["agent", "--broker", &broker.url, "--token", token, "--name", token, "--data-dir"]).arg(folder);
    command.env("RUST_LOG", "info").stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    Process(command.spawn().expect("the agent starts"))
}

async fn node_is(api: &Api, name: &str, is_online: bool) {
    until("the node's state", || async {
        let (_, nodes) = api.get("/api/v1/nodes").await;
        let mut nodes = nodes["items"].as_array().expect("nodes").iter();
        nodes.any(|node| node["name"] == name && node["isOnline"] == is_online).then_some(())
    })
    .await;
}

async fn no_task(_: TaskContext) -> TaskResult<()> {
    Ok(())
}

#[test]
fn what_a_withdrawn_token_has_open_ends_at_once() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let tokens = folder.path().join("tokens");
        let write = |text: String| std::fs::write(&tokens, text).expect("a file");
        write(format!("{KEPT}{WITHDRAWN}worker:role-changes\n"));
        let broker = Broker::start(&["--token-file", tokens.to_str().expect("a name")], "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let (run, _) = api.run("it.Withdrawn", &json!({})).await;
        let old_api = Api::new(&broker.url).with_token("work-old");
        let worker = old_api.worker("it.Other").await;
        // What waits for it already would answer the poll.
        until("no message", || async { (old_api.get(&format!("/api/v1/workers/{worker}/messages")).await.0 == 204).then_some(()) }).await;

        let (kept, old) = (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
        let mut kept_agent = agent(&broker, kept.path(), "node-kept");
        let mut old_agent = agent(&broker, old.path(), "node-old");
        let sdk = Worker::new(&broker.url).token("work-old").name("sdk").task("it.none", no_task);
        let sdk = actix_rt::spawn(sdk.run(std::future::pending()));
        let sdk_is = |is_online: bool| {
            let api = api.clone();
            async move {
                until("the state of the worker of the SDK", || async {
                    let (_, workers) = api.get("/api/v1/workers").await;
                    let mut workers = workers["items"].as_array().expect("workers").iter();
                    workers.any(|worker| worker["name"] == "sdk" && worker["isOnline"] == is_online).then_some(())
                })
                .await;
            }
        };
        node_is(&api, "node-kept", true).await;
        node_is(&api, "node-old", true).await;
        sdk_is(true).await;

        let of_worker = || format!("/worker?workerid={}", id());
        let of_node = || format!("/?nodeid={}", id());
        let mut closed: Vec<TcpStream> = vec![
            welcomed(&broker, &of_worker(), "work-old"),
            welcomed(&broker, &of_worker(), "role-changes"),
            welcomed(&broker, &of_worker(), "boss-old"),
            welcomed(&broker, &of_node(), "node-old"),
        ];
        let mut open = vec![welcomed(&broker, &of_worker(), "work-kept"), welcomed(&broker, &of_node(), "node-kept")];
        let polls = [format!("/requestqueue/{run}?wait=60"), format!("/api/v1/workers/{worker}/messages?wait=60")];
        let mut polls = polls.map(|path| get(&broker, &path, "work-old"));
        let log = format!("/api/v1/runs/{run}/logs/stream");
        let mut log_old = get(&broker, &log, "look-old");
        let mut log_kept = get(&broker, &log, "boss-token");
        assert_eq!((status(&head(&mut log_old)), status(&head(&mut log_kept))), (200, 200));

        write(format!("{KEPT}readonly:role-changes\n"));
        reload(&broker);
        for (i, socket) in closed.iter_mut().enumerate() {
            assert_eq!(close_code(socket), Some(1008), "{i}");
        }
        for (i, poll) in polls.iter_mut().enumerate() {
            assert_eq!(status(&head(poll)), 401, "{i}");
        }
        let rest = read_until(&mut log_old, "\r\n0\r\n\r\n");
        assert!(rest.contains("event: problem") && rest.contains("/problems/unauthorized"), "{rest}");
        for (path, token, expected) in [
            (of_worker(), "work-old", 401),
            (of_node(), "node-old", 401),
            (of_worker(), "boss-old", 401),
            (of_worker(), "role-changes", 403),
        ] {
            let opened = awc::Client::default().ws(format!("{}{path}", broker.url)).header("Token", token).connect().await;
            match opened {
                Err(awc::error::WsClientError::InvalidResponseStatus(status)) => assert_eq!(status.as_u16(), expected, "{token}"),
                other => panic!("{token}: {:?}", other.map(|_| "it is open")),
            }
        }
        node_is(&api, "node-old", false).await;
        sdk_is(false).await;

        // The others are where they were: their sockets answer, and the log goes on.
        for socket in &mut open {
            socket.write_all(&frame_header(0x89, 0)).expect("it is open");
            let (mut bytes, mut piece) = (Vec::new(), [0; 4096]);
            while !bytes.ends_with(&[0x8a, 0]) {
                let read = socket.read(&mut piece).expect("it is open");
                assert!(read > 0, "it was closed");
                bytes.extend_from_slice(&piece[..read]);
            }
        }
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/logs"), &json!([{ "text": "still-followed" }])).await.0, 200);
        read_until(&mut log_kept, "still-followed");
        let log = |folder: &tempfile::TempDir| std::fs::read_to_string(folder.path().join("log")).expect("a log");
        until("the agent to say that it is rejected", || async { log(&old).contains("broker rejects the token, retrying").then_some(()) })
            .await;
        assert!(log(&old).contains("token withdrawn: the broker does not have this token"), "{}", log(&old));
        assert!(!log(&kept).contains("connection lost"), "{}", log(&kept));

        // With its token back, each is back.
        write(format!("{KEPT}{WITHDRAWN}"));
        reload(&broker);
        node_is(&api, "node-old", true).await;
        sdk_is(true).await;
        assert!(!sdk.is_finished() && old_agent.0.try_wait().expect("a state").is_none());
        assert!(kept_agent.0.try_wait().expect("a state").is_none());
        sdk.abort();
        old_agent.kill();
        kept_agent.kill();
    });
}
