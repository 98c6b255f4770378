//! The web that politeness is tested on shows what it is asked, and the checker finds what a rude client does to it.

use crate::support::access_log::{Breach, check};
use crate::support::web::{Answer, Kind, Mixed, Web, host};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const WEB: Mixed = Mixed { hosts: 1_000, pages: 5, slow: Duration::from_millis(300), rest_s: 2 };

/// Sends requests on one connection, each after the answer to the one before. What came.
fn ask(web: &Web, number: u32, paths: &[&str]) -> Vec<String> {
    let mut stream = TcpStream::connect((host(number), web.port)).expect("the host is there");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
    let answers = paths.iter().map(|path| {
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}:{}\r\n\r\n", host(number), web.port).expect("sent");
        let mut answer = Vec::new();
        let mut byte = [0; 1];
        while !answer.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("an answer") == 1 {
            answer.push(byte[0]);
        }
        let head = String::from_utf8(answer).expect("text");
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).expect("a length").parse().expect("a number");
        let mut body = vec![0; length];
        stream.read_exact(&mut body).expect("a body");
        head + &String::from_utf8(body).expect("text")
    });
    answers.collect()
}

/// The log has this many entries: they are written after their answers.
fn log_of(web: &Web, entries: usize) -> Vec<crate::support::access_log::Entry> {
    let deadline = std::time::Instant::now() + Duration::from_secs(30);
    while web.requests() < entries {
        assert!(std::time::Instant::now() < deadline, "{} of {entries} entries", web.requests());
        std::thread::yield_now();
    }
    web.log()
}

#[test]
fn a_thousand_hosts_answer_by_their_kind() {
    let web = Web::serve(move |asked| WEB.answer(asked)).expect("a port");
    let of = |kind: Kind| (0..20).find(|number| Mixed::kind(*number) == kind).expect("one of each");
    assert!(ask(&web, of(Kind::Robots), &["/robots.txt"])[0].contains("Crawl-delay: 2"));
    assert!(ask(&web, of(Kind::Broken), &["/robots.txt"])[0].starts_with("HTTP/1.1 503"));
    assert!(ask(&web, 999, &["/robots.txt", "/0"])[1].contains("<title>999</title>"));
    let slow = std::time::Instant::now();
    ask(&web, of(Kind::Slow), &["/0"]);
    assert!(slow.elapsed() >= WEB.slow);
    let busy = ask(&web, of(Kind::Busy), &["/1"; 20]);
    assert!(busy[9].starts_with("HTTP/1.1 429") && busy[19].starts_with("HTTP/1.1 503") && busy[9].contains("retry-after: 2"));
    // A host that hangs is logged when its client goes away.
    let mut stream = TcpStream::connect((host(of(Kind::Hanging)), web.port)).expect("the host is there");
    write!(stream, "GET /0 HTTP/1.1\r\nHost: {}\r\n\r\n", host(of(Kind::Hanging))).expect("sent");
    drop(stream);
    let log = log_of(&web, 26);
    let hanging = log.iter().find(|entry| entry.host == host(of(Kind::Hanging))).expect("logged");
    assert_eq!(hanging.status, 0);
    assert_eq!(log.iter().filter(|entry| entry.retry_after == Some(2)).count(), 2);
}

#[test]
fn a_rude_client_is_found_out_and_a_polite_one_is_not() {
    let web = Web::serve(move |asked| WEB.answer(asked)).expect("a port");
    // Numbers 7 and 4 are of the kinds `Robots` and `Busy`.
    ask(&web, 7, &["/robots.txt", "/private/x"]);
    ask(&web, 4, &["/1"; 11]);
    let mut both = [0; 2].map(|_| TcpStream::connect((host(0), web.port)).expect("the host is there"));
    both.iter_mut().for_each(|stream| write!(stream, "GET /0 HTTP/1.1\r\nHost: {}\r\n\r\n", host(0)).expect("sent"));
    both.iter_mut().for_each(|stream| stream.read_exact(&mut [0; 1]).expect("an answer"));
    ask(&web, 19, &["/0"]);
    let log = log_of(&web, 16);
    let found = check(&log, 0, |host| Mixed::allowed(host, 1_000));
    let has = |kind: fn(&Breach) -> bool| found.breaches.iter().any(kind);
    assert!(has(|breach| matches!(breach, Breach::Gap { host, .. } if host == "127.1.0.8")), "{found}");
    assert!(has(|breach| matches!(breach, Breach::Disallowed { path, .. } if path == "/private/x")), "{found}");
    assert!(has(|breach| matches!(breach, Breach::Held { host, .. } if host == "127.1.0.5")), "{found}");
    assert!(has(|breach| matches!(breach, Breach::Connections { host, count: 2, .. } if host == "127.1.0.1")), "{found}");
    assert!(!has(|breach| matches!(breach, Breach::Gap { host, .. } if host == "127.1.0.20")), "{found}");
    let lax = check(&log, 0, |_| crate::support::access_log::Allowed::default());
    assert!(lax.breaches.iter().all(|breach| matches!(breach, Breach::Held { .. })), "{lax}");
}

#[test]
fn names_are_hosts_too() {
    let web = Web::serve(|asked| Answer::text(asked.host.clone())).expect("a port");
    let mut stream = TcpStream::connect(("127.0.0.1", web.port)).expect("the host is there");
    write!(stream, "GET / HTTP/1.1\r\nHost: site.example:80\r\n\r\nGET /x HTTP/1.1\r\nhost: other.example\r\n\r\n").expect("sent");
    let log = log_of(&web, 2);
    let hosts: Vec<&str> = log.iter().map(|entry| entry.host.as_str()).collect();
    assert_eq!(hosts, ["site.example", "other.example"]);
}
