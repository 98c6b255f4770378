//! Mail for alerts: a server that takes one, in the open, by TLS from the first byte and by STARTTLS.

use crate::alerts::{job, run};
use crate::support::api::Api;
use crate::support::certificates::Certificates;
use crate::support::journey;
use crate::support::process::Broker;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

enum Tls {
    None,
    FromTheStart(ServerConfig),
    WhenAsked(ServerConfig),
}

/// A line without its end; none if there are no more.
fn line(stream: &mut impl Read) -> Option<String> {
    let mut line = Vec::new();
    loop {
        let mut byte = [0];
        match stream.read(&mut byte) {
            Ok(1) if byte == *b"\n" => return Some(String::from_utf8_lossy(&line).trim_end().to_owned()),
            Ok(1) => line.push(byte[0]),
            _ => return None,
        }
    }
}

/// Takes a mail; true if its sender wants to go on by TLS.
fn session(stream: &mut (impl Read + Write), capability: &str, lines: &mut Vec<String>) -> bool {
    let mut in_data = false;
    while let Some(line) = line(stream) {
        lines.push(line.clone());
        let answer = match line.split(' ').next().unwrap_or_default() {
            "." if in_data => {
                in_data = false;
                "250 taken"
            }
            _ if in_data => continue,
            "EHLO" => &format!("250-mail.test\r\n250 {capability}"),
            "AUTH" => "235 welcome",
            "DATA" => {
                in_data = true;
                "354 go on"
            }
            "STARTTLS" => "220 go on",
            "QUIT" => "221 bye",
            _ => "250 ok",
        };
        write!(stream, "{answer}\r\n").and_then(|()| stream.flush()).expect("it listens");
        match line.as_str() {
            "STARTTLS" => return true,
            "QUIT" => break,
            _ => {}
        }
    }
    false
}

/// A mail server that takes one mail: its port, and the lines that it was told.
fn mail_server(tls: Tls) -> (u16, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    let thread = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client");
        stream.set_read_timeout(Some(std::time::Duration::from_secs(60))).expect("a limit");
        let mut lines = Vec::new();
        let wrap = |stream, config| StreamOwned::new(ServerConnection::new(Arc::new(config)).expect("a connection"), stream);
        match tls {
            Tls::FromTheStart(config) => {
                let mut stream = wrap(stream, config);
                stream.write_all(b"220 mail.test\r\n").expect("it listens");
                session(&mut stream, "AUTH PLAIN", &mut lines);
            }
            Tls::None => {
                stream.write_all(b"220 mail.test\r\n").expect("it listens");
                session(&mut stream, "AUTH PLAIN", &mut lines);
            }
            Tls::WhenAsked(config) => {
                stream.write_all(b"220 mail.test\r\n").expect("it listens");
                if session(&mut stream, "STARTTLS", &mut lines) {
                    session(&mut wrap(stream, config), "AUTH PLAIN", &mut lines);
                }
            }
        }
        lines
    });
    (port, thread)
}

async fn told(server: JoinHandle<Vec<String>>) -> String {
    let lines = tokio::task::spawn_blocking(move || server.join().expect("it took a mail")).await.expect("it ended");
    lines.join("\n")
}

#[test]
fn a_mail_goes_by_tls() {
    journey(async {
        let pem = Certificates::new();
        let authority = pem.authority();
        for (server, scheme, query) in
            [(Tls::FromTheStart(pem.server()), "smtps", ""), (Tls::WhenAsked(pem.server()), "smtp", "?tls=required")]
        {
            let (port, server) = mail_server(server);
            let url = format!("{scheme}://post:secret@localhost:{port}{query}");
            let broker = Broker::start(&["--smtp-url", &url, "--mail-from", "webloom@broker.test", "--ca-file", &authority], "");
            let api = Api::new(&broker.url);
            let (status, channel) = api.post("/api/v1/alerts", &json!({ "name": "ops", "kind": "mail", "target": "ops@team.test" })).await;
            assert_eq!(status, 201, "{channel}");
            let (status, answer) = api.post(&format!("/api/v1/alerts/{}/test", channel["id"].as_str().expect("an id")), &json!({})).await;
            assert!(status < 300, "{answer}");
            let all = told(server).await;
            // printf '\0post\0secret' | base64
            let (password, begins) = (all.find("AUTH PLAIN AHBvc3QAc2VjcmV0"), all.find("STARTTLS"));
            assert!(password.is_some() && all.contains("RCPT TO:<ops@team.test>"), "{all}");
            assert_eq!(begins.is_some(), scheme == "smtp", "{all}");
            assert!(begins < password, "the password comes after it: {all}");
        }
    });
}

#[test]
fn a_mail_is_handed_in() {
    journey(async {
        let (port, server) = mail_server(Tls::None);
        let url = format!("smtp://post:pass%20word@127.0.0.1:{port}");
        let broker = Broker::start(&["--smtp-url", &url, "--mail-from", "webloom@broker.test"], "");
        let api = Api::new(&broker.url);
        let input = json!({ "name": "ops", "kind": "mail", "target": "not an address" });
        assert_eq!(api.post("/api/v1/alerts", &input).await.1["field"], "target");
        let input = json!({ "name": "ops", "kind": "mail", "target": "ops@team.test", "filter": { "jobs": ["nightly é"] } });
        let (status, channel) = api.post("/api/v1/alerts", &input).await;
        assert_eq!(status, 201, "{channel}");
        let other = job(&api, "other", &json!({})).await;
        run(&api, &other, Some("not for them")).await;
        let nightly = job(&api, "nightly é", &json!({})).await;
        let failed = run(&api, &nightly, Some("boom")).await;
        let all = told(server).await;
        assert!(all.contains("MAIL FROM:<webloom@broker.test>") && all.contains("RCPT TO:<ops@team.test>"), "{all}");
        // printf '\0post\0pass word' | base64
        assert!(all.contains("AUTH PLAIN AHBvc3QAcGFzcyB3b3Jk"), "{all}");
        assert!(all.contains("Subject: [webloom] failed") && all.contains("Message-ID: <"), "{all}");
        assert!(!all.contains("not for them"));
        let text = all.replace("=\n", "").replace("=3D", "=");
        assert!(text.contains(&failed) && text.contains("boom"), "{all}");
    });
}
