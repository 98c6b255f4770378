//! What the commands say of bad input: what is wrong, what was expected, what to do, and the exit code.

use crate::support::certificates::Certificates;
use crate::support::process::Broker;
use crate::support::shell::webloom;
use std::io::{Read as _, Write as _};
use std::net::TcpListener;

#[test]
fn a_value_is_refused_by_the_name_of_its_flag() {
    let broker = Broker::start(&[], "");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("job.yaml").display().to_string();
    std::fs::write(&file, "name: filed\njobType: block\nproperties: {FullClassName: a.B}\nschedule: {triggers: [{cron: '61 * * * *'}]}\n")
        .expect("a file");
    let create = ["job", "create", "--name", "n", "--class", "a.B"];
    let with = |more: &[&str]| webloom(&broker.url, &[&create, more].concat());
    for (flags, expected) in [
        (&["--cron", "61 * * * *"][..], "--cron \"61 * * * *\": the minute must be 0 to 59, not 61"),
        (&["--cron", "0 9 * * *", "--cron", "* 24 * * *"], "--cron \"* 24 * * *\": the hour must be 0 to 23, not 24"),
        (&["--cron", "every monday"], "not a cron expression: it has 2 fields, and 5 fields, 6"),
        (&["--cron", "* * * * FOO"], "the day of week must be 0 to 7 or a name like MON, not \"FOO\""),
        (&["--every", "10ms"], "--every \"10ms\": must be 100 ms to 100 years, not 10 ms"),
        (&["--every", "10"], "'10' for '--every <DURATION>': it needs a unit: 10s, 10m, 10h or 10d"),
        (&["--timeout", "soon"], "a time with its unit is expected: 500ms, 30s, 5m, 2h or 1d"),
        (&["--retry", "many"], "'many' for '--retry <N>': a whole number is expected, for example 3"),
        (&["--retry", "5000"], "--retry \"5000\": must be 0 to 1000, not 5000"),
        (&["--at", "yesterday"], "an instant is expected: 2026-12-24T18:00:00Z, 2026-12-24"),
        (&["--at", "2030-01-01T10:00:00"], "it has no zone: write 2030-01-01T10:00:00Z"),
        (&["--zone", "berlin"], "\"berlin\" is not a time zone of the IANA database (did you mean Europe/Berlin?)"),
        (&["--overlap", "never"], "[possible values: skip, queue-one, queue-all, replace, allow]"),
        (&["--max-failures", "0"], "--max-failures \"0\": must be 1 or more"),
        (&["--every", "1h", "--end-at", "2020-01-01"], "--every \"1h\": the job would never run"),
        (&["--property", "A=b", "--property", "ThreadNum=x"], "--property \"ThreadNum=x\": "),
        (&["--description", &"d".repeat(3_000)], "must have at most"),
        (&["--property", "ThreadNum"], "KEY=VALUE is expected"),
        (&["--start-at", "2030-01-02", "--end-at", "2030-01-01", "--every", "1h"], "--end-at \"2030-01-01\": the end"),
    ] {
        with(flags).refused(2, expected);
    }
    let call = |more: &[&str]| webloom(&broker.url, &[&["job", "create", "--name", "c", "--url"], more].concat());
    call(&["example.com"]).refused(2, "--url \"example.com\": `example.com` is not a URL: https://example.com/path is one");
    call(&["http://a.example", "--method", "FETCH"]).refused(2, "--method \"FETCH\": must be GET, POST");
    call(&["http://a.example", "--expect", "200", "--expect", "999"]).refused(2, "must be an HTTP status from 100 to 599, not 999");
    webloom(&broker.url, &["alert", "create", "--name", "a"]).refused(2, "--webhook or --mail: it is required");
    webloom(&broker.url, &["job", "create", "--class", "a.B"]).refused(2, "--name: a job needs a name");
    webloom(&broker.url, &["job", "create", "--name", "n", "--every", "1h"])
        .refused(2, "--class: a block job needs the class that workers watch");
    webloom(&broker.url, &["job", "create", "-f", &file]).refused(2, "job.yaml: schedule.triggers[0].cron: the minute must be 0 to 59");
    webloom(&broker.url, &["job", "create", "-f", "/no/such/file"]).refused(2, "cannot read /no/such/file: there is no such file");
    webloom(&broker.url, &["job", "create", "-f", "/tmp"]).refused(2, "cannot read /tmp: it is a folder");
    webloom(&broker.url, &["group", "create", ""]).refused(2, "NAME \"\": ");
    webloom(&broker.url, &["run", "list", "--state", "bogus"]).refused(2, "[possible values: pending, scheduled, running");
    webloom(&broker.url, &["run", "list", "--from", "2026-02-30"]).refused(2, "an instant is expected");
    webloom(&broker.url, &["job", "next", "nosuch"]).refused(2, "`nosuch` is neither a job nor a cron expression");
    for name in ["", ".", "..", "a\nb"] {
        webloom(&broker.url, &["site", "hold", name, "--for", "1m"]).refused(2, "is not a name or an id");
    }
    webloom(&broker.url, &["site", "hold", "a.example", "--for", "1M"]).refused(2, "`M` is not a unit: write m for minutes");
    assert_eq!(webloom(&broker.url, &["site", "list"]).ok(), "there are no such sites\n", "nothing was changed");
    webloom(&broker.url, &["run", "show", "nosuch"]).refused(2, "`--job nosuch` is the latest run of a job");
    assert_eq!(webloom(&broker.url, &["job", "list"]).ok(), "there are no such jobs\n", "nothing was changed");

    // What the present state does not allow is no fault of the command line.
    with(&["--every", "1h"]).ok();
    with(&["--every", "1h"]).refused(1, "a job named \"n\" already exists: use another name, or change that job");
    webloom(&broker.url, &["job", "show", "nosuch"]).refused(1, "there is no job `nosuch`: `webloom job list` shows what there is");
    webloom(&broker.url, &["node", "disable", "nosuch"]).refused(1, "there is no node `nosuch`");
    webloom(&broker.url, &["worker", "kick", "nosuch"]).refused(1, "there is no worker `nosuch`");
    webloom(&broker.url, &["group", "show", "nosuch"]).refused(1, "there is no group `nosuch`");
    webloom(&broker.url, &["package", "remove", "nosuch"]).refused(1, "there is no package `nosuch`");
}

#[test]
fn a_date_without_a_time_is_its_midnight() {
    let broker = Broker::start(&[], "");
    let job = |more: &[&str]| webloom(&broker.url, &[&["job", "create", "--class", "a.B", "--json", "--name"], more].concat()).json();
    assert_eq!(job(&["utc", "--at", "2030-01-01"])["schedule"]["triggers"][0]["at"], "2030-01-01T00:00:00.000Z");
    let there = job(&["there", "--at", "2030-01-01", "--zone", "America/New_York", "--start-at", "2029-07-01"]);
    assert_eq!(there["schedule"]["triggers"][0]["at"], "2030-01-01T05:00:00.000Z", "{there}");
    assert_eq!(there["schedule"]["startAt"], "2029-07-01T04:00:00.000Z", "{there}");
    webloom(&broker.url, &["run", "list", "--from", "2026-01-01"]).ok();
}

/// Answers whatever comes with these bytes, as often as it is asked.
fn server(answer: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(answer);
        }
    });
    url
}

#[test]
fn what_is_no_broker_is_told_apart() {
    let list = |url: &str, more: &[&str]| webloom(url, &[&["job", "list"], more].concat());
    list("http://127.0.0.1:1", &[])
        .refused(1, "no broker answers at http://127.0.0.1:1: Connection refused (os error 111). Is it running?");
    list("127.0.0.1:55626", &[]).refused(2, "did you mean http://127.0.0.1:55626?");
    list("nosuchhost:55626", &[]).refused(2, "did you mean http://nosuchhost:55626?");
    list("ftp://127.0.0.1", &[]).refused(2, "the scheme must be http or https, not ftp");
    let html = server(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\n<html>");
    list(&html, &[]).refused(1, &format!("the server at {html} is not a Webloom broker: its response is not"));
    list(&html, &["--json"]).refused(1, "is not a Webloom broker");
    let missing = server(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    list(&missing, &[]).refused(1, "is not a Webloom broker: it responded with status 404 Not Found");
    let ssh = server(b"SSH-2.0-OpenSSH_9.9\r\n");
    list(&ssh, &[]).refused(1, "is not a broker: its response is not HTTP");
}

#[test]
fn tls_and_no_tls_are_told_apart() {
    let pem = Certificates::new();
    let folder = tempfile::tempdir().expect("a folder");
    let secure = Broker::start_in(folder.path(), "127.0.0.1:0", &["--tls-cert", &pem.certificate(), "--tls-key", &pem.key()], "");
    let plain = Broker::start(&[], "");
    let list = |url: &str| webloom(url, &["job", "list"]);
    list(&secure.url).refused(1, "is not trusted: if it is your own, pass it, or that of its authority, with --ca-file FILE");
    let wrong = secure.url.replace("https", "http");
    list(&wrong).refused(1, &format!("{wrong} speaks TLS: use --broker https://"));
    let wrong = plain.url.replace("http", "https");
    list(&wrong).refused(1, &format!("{wrong} does not speak TLS: use --broker http://"));
    webloom(&secure.url, &["job", "list", "--ca-file", &pem.authority()]).ok();
}
