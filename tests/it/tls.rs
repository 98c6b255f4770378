//! TLS: a broker that speaks it, and what it calls by it.

use crate::support::api::Api;
use crate::support::certificates::Certificates;
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::receiver::{Receiver, Reply};
use crate::support::site::Site;
use crate::support::{journey, until};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::json;
use std::process::{Command, Output};

fn webloom(broker: &str, args: &[&str]) -> Output {
    let mut command = Command::new(WEBLOOM);
    command.args(args).env("WEBLOOM_BROKER", broker).env_remove("WEBLOOM_TOKEN").env_remove("WEBLOOM_CA_FILE");
    command.output().expect("it runs")
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// What a client that would rather speak HTTP/2 comes to speak with it.
fn agreed_on(url: &str, pem: &Certificates) -> Vec<u8> {
    let address = url.strip_prefix("https://").expect("by TLS");
    let mut roots = rustls::RootCertStore::empty();
    let authority = CertificateDer::from_pem_file(pem.authority()).expect("a certificate");
    roots.add(authority).expect("an authority");
    let mut config = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let name = "localhost".try_into().expect("a name");
    let mut connection = rustls::ClientConnection::new(config.into(), name).expect("a connection");
    let mut socket = std::net::TcpStream::connect(address).expect("it listens");
    connection.complete_io(&mut socket).expect("a handshake");
    connection.alpn_protocol().unwrap_or_default().to_vec()
}

/// Command line, agent and worker come by TLS; who does not trust the authority, or does not speak TLS, does not come in.
#[test]
fn a_broker_speaks_tls() {
    journey(async {
        let pem = Certificates::new();
        let (certificate, key, authority) = (pem.certificate(), pem.key(), pem.authority());
        let mut broker = Broker::start(&["--tls-cert", &certificate, "--tls-key", &key], "");
        assert!(broker.url.starts_with("https://127.0.0.1:"), "{}", broker.url);
        let trusting = ["--ca-file", authority.as_str()];
        let out = webloom(&broker.url, &[&trusting[..], &["job", "create", "--name", "a", "--class", "a.B"]].concat());
        assert!(out.status.success(), "{}", said(&out));
        let out = webloom(&broker.url, &[&["brokers", "--json"], &trusting[..]].concat());
        assert!(said(&out).contains(&broker.url), "it says under which URL it is found: {}", said(&out));
        let out = webloom(&broker.url, &["job", "list"]);
        assert!(!out.status.success() && said(&out).contains("certificate"), "{}", said(&out));
        assert_eq!(agreed_on(&broker.url, &pem), b"http/1.1", "over HTTP/2 nobody would notice who has hung up");
        let plain = broker.url.replace("https://", "http://");
        let out = webloom(&plain, &[&trusting[..], &["job", "list"]].concat());
        assert!(!out.status.success(), "{}", said(&out));

        // A crawl, whose worker and whose agent are other processes; the broker dies once.
        let site = Site::serve(30);
        let home = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, home.path(), &trusting);
        let folder = tempfile::tempdir().expect("a folder");
        let start = site.all().first().cloned().expect("a page");
        let args = [&trusting[..], &["--broker", &broker.url, "--depth", "99"]].concat();
        let mut crawl = Crawl::start(&start, folder.path(), &args);
        until("some pages", || async { (crawl.count() > 3).then_some(()) }).await;
        broker.process.kill();
        broker.restart("");
        crawl.succeeds().await;
        assert_eq!(urls(&crawl.lines()).len(), site.all().len());
        site.stop().await;
    });
}

/// Files that are none, or do not go together, are named before anything begins.
#[test]
fn files_for_tls_are_checked() {
    let (pem, other) = (Certificates::new(), Certificates::new());
    let folder = tempfile::tempdir().expect("a folder");
    let database = folder.path().join("b.db").display().to_string();
    let broker = |more: &[&str]| webloom("", &[&["broker", "--listen", "127.0.0.1:0", "--database", &database], more].concat());
    let cases = [
        (vec!["--tls-cert", "/no/such/file", "--tls-key", "/no/such/file"], "/no/such/file"),
        (vec!["--tls-key", "x"], "--tls-cert"),
        (vec!["--ca-file", "/no/such/file"], "--ca-file: /no/such/file"),
    ];
    for (args, expected) in cases {
        let out = broker(&args);
        assert!(!out.status.success() && said(&out).contains(expected), "{args:?}: {}", said(&out));
    }
    let locked = folder.path().join("locked.pem").display().to_string();
    std::fs::write(&locked, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n").expect("a file");
    let (certificate, key, alien) = (pem.certificate(), pem.key(), other.key());
    for (args, expected) in [
        (["--tls-cert", &certificate, "--tls-key", &alien], "does not go with the key"),
        (["--tls-cert", &key, "--tls-key", &key], "no certificate in it"),
        (["--tls-cert", &certificate, "--tls-key", &certificate], "no key in it"),
        (["--tls-cert", &certificate, "--tls-key", &locked], "the key has a password"),
    ] {
        let out = broker(&args);
        assert!(!out.status.success() && said(&out).contains(expected), "{args:?}: {}", said(&out));
    }
    let out = broker(&["--ca-file", &key]);
    assert!(!out.status.success() && said(&out).contains("no certificate in it"), "{}", said(&out));
    assert!(!folder.path().join("b.db").exists(), "nothing was begun");
}

/// A certificate is good for the names in it.
#[test]
fn another_name_is_refused() {
    let pem = Certificates::new();
    let (certificate, key, authority) = (pem.certificate(), pem.key(), pem.authority());
    let folder = tempfile::tempdir().expect("a folder");
    // Not among them, and still this machine.
    let broker = Broker::start_in(folder.path(), "127.0.0.2:0", &["--tls-cert", &certificate, "--tls-key", &key], "");
    let out = webloom(&broker.url, &["job", "list", "--ca-file", &authority]);
    assert!(!out.status.success() && said(&out).contains("not valid for name"), "{}", said(&out));
}

/// A callback and a webhook by HTTPS; a certificate of an authority that is not trusted is no way round.
#[test]
fn callbacks_and_webhooks_go_by_tls() {
    journey(async {
        let pem = Certificates::new();
        let authority = pem.authority();
        let receiver = Receiver::start_tls(pem.server(), [Reply::status(500)]);
        let url = receiver.url.replace("127.0.0.1", "localhost");
        for (args, expected) in [(vec!["--ca-file", authority.as_str()], "success"), (Vec::new(), "failed")] {
            let broker = Broker::start(&[&args[..], &["--alert-gather", "1"]].concat(), "");
            let api = Api::new(&broker.url);
            let hook = json!({ "name": "hook", "kind": "webhook", "target": format!("{url}/hook") });
            let (status, channel) = api.post("/api/v1/alerts", &hook).await;
            assert_eq!(status, 201, "{channel}");
            let job = json!({ "name": "call", "jobType": "callback", "callback": { "url": format!("{url}/call"), "method": "POST" },
                "policies": { "retry": { "limit": 1, "delay": 10 } } });
            let (status, job) = api.post("/api/v1/jobs", &job).await;
            assert_eq!(status, 201, "{job}");
            let run = api.trigger(job["id"].as_str().expect("an id")).await;
            let over = until("its end", || async { Some(api.state(&run).await).filter(|run| run["finishTime"].is_string()) }).await;
            assert_eq!(over["state"], expected, "{over}");
            let (status, test) = api.post(&format!("/api/v1/alerts/{}/test", channel["id"].as_str().expect("an id")), &json!({})).await;
            if expected == "success" {
                assert!(status < 300, "{test}");
                let paths: Vec<_> = receiver.got().into_iter().map(|got| got.path).collect();
                assert_eq!(paths, ["/call", "/call", "/hook"], "the first call was refused");
            } else {
                assert!(over["reason"].as_str().is_some_and(|reason| reason.contains("certificate")), "{over}");
                assert_eq!(receiver.got().len(), 3, "nothing more came through: {test}");
            }
        }
        receiver.stop().await;
    });
}
