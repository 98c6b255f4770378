//! Where a broker listens, and where others are told to find it.

use crate::support::process::{Broker, WEBLOOM, database};
use crate::support::{api::Api, journey};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A broker whose warnings and output can be read.
pub fn start(folder: &Path, listen: &str, more: &[&str]) -> Child {
    let mut command = Command::new(WEBLOOM);
    command.args(["broker", "--listen", listen, "--database"]).arg(database(folder)).args(more);
    command.env_remove("WEBLOOM_TOKEN").env("RUST_LOG", "warn").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().expect("it starts")
}

#[test]
fn a_port_that_another_program_listens_on_is_refused_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let other = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = other.local_addr().expect("an address");
    let begun = Instant::now();
    let out = start(folder.path(), &address.to_string(), &[]).wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(1), "{said}");
    let expected =
        format!("another program uses port {0} (\"ss -tanp | grep {0}\" shows which). Choose another with --listen", address.port());
    assert!(said.contains(&expected), "{said}");
    assert!(begun.elapsed() < Duration::from_secs(30), "it did not wait");
}

#[test]
fn a_port_that_an_outgoing_connection_holds_is_waited_for() {
    let folder = tempfile::tempdir().expect("a folder");
    let far = TcpListener::bind("127.0.0.1:0").expect("a port");
    let outgoing = TcpStream::connect(far.local_addr().expect("an address")).expect("connected");
    let (mut taken, _) = far.accept().expect("accepted");
    let port = outgoing.local_addr().expect("an address").port();
    let mut broker = start(folder.path(), &format!("127.0.0.1:{port}"), &[]);
    let mut log = BufReader::new(broker.stderr.take().expect("piped")).lines();
    let line = log.next().expect("it says why it waits").expect("a line");
    assert!(line.contains("port held by an outgoing connection") && line.contains(&format!("port={port}")), "{line}");
    // The other end closes first, so nothing lingers at this one.
    taken.shutdown(std::net::Shutdown::Both).expect("closed");
    let _ = std::io::Read::read(&mut taken, &mut [0]);
    drop((taken, outgoing));
    let mut lines = BufReader::new(broker.stdout.take().expect("piped")).lines();
    let line = lines.next().expect("it says where it listens").expect("a line");
    assert_eq!(line, format!("listening on http://127.0.0.1:{port}"));
    broker.kill().expect("killed");
    broker.wait().expect("it ended");
}

#[test]
fn a_name_is_taken_for_an_address_and_an_unusable_one_says_what_is_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut broker = start(folder.path(), "localhost:0", &[]);
    let line = BufReader::new(broker.stdout.take().expect("piped")).lines().next().expect("it says where it listens").expect("a line");
    assert!(line.starts_with("listening on http://127.0.0.1:"), "{line}");
    broker.kill().expect("killed");
    broker.wait().expect("it ended");
    for bad in ["localhost", "55700", ":55700", "127.0.0.1:99999", "no such host:1"] {
        let out = start(folder.path(), bad, &[]).wait_with_output().expect("it ends");
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.code() == Some(2) && said.contains("for example 127.0.0.1:55626"), "{bad}: {said}");
    }
    let out = start(folder.path(), "127.0.0.1:0", &["--advertise", "http://0.0.0.0:1"]).wait_with_output().expect("it ends");
    assert_eq!(out.status.code(), Some(2), "nothing can be found at a wildcard");
}

#[test]
fn a_wildcard_is_never_what_others_are_told() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let token = "a-token-of-sixteen-or-more";
        let mut broker = Broker::start_in(folder.path(), "0.0.0.0:0", &["--token", &format!("admin:{token}")], "");
        let port = broker.url.rsplit_once(':').expect("a port").1.to_owned();
        let api = Api::new(&format!("http://127.0.0.1:{port}")).with_token(token);
        let (status, brokers) = api.get("/api/v1/brokers").await;
        assert_eq!(status, 200, "{brokers}");
        let text = brokers.to_string();
        assert!(!text.contains("0.0.0.0") && text.contains(&format!(":{port}")), "{text}");
        let urls: Vec<&Value> = brokers.as_array().into_iter().flatten().map(|broker| &broker["url"]).collect();
        assert!(!urls.is_empty() && urls.iter().all(|url| url.as_str().is_some_and(|url| url.starts_with("http://"))), "{text}");
        broker.process.kill();
    });
}
