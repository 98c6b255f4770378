//! Every command that lists something fits a terminal, whatever the broker answers.

use crate::support::shell::webloom;
use serde_json::{Value, json};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

const ID: &str = "0193b2c4d5e67f809a0b1c2d3e4f5a6b";

/// An entry of any list, with a long value for every column of every command.
fn entry(n: usize) -> Value {
    let mut entry = json!({
        "held": {}, "load": { "cpu": 100, "freeMemory": 123_456_789 }, "result": { "code": 137, "signal": "SIGKILL", "peakMemory": 98_765_432_100_u64 },
        "classNames": ["shop.reports.Monthly".repeat(3), "shop.reports.Daily"], "groups": ["accounting".repeat(4), "reports"],
        "schedule": { "triggers": [{ "cron": "1,2,3,4,5,6,7,8,9,10 0-23/2 * * MON-FRI" }], "zone": "America/Argentina/Buenos_Aires" },
        "filter": { "events": ["failed", "missed"] }, "deliveries": [{ "state": "delivered" }, { "state": "failed" }],
        "isOnline": true, "isEnabled": true, "isExpired": false, "role": "readonly", "kind": "block", "jobType": "application",
        "state": "scheduled", "verdict": "skipped", "job": { "version": n, "properties": n }, "changed": "properties",
        "sha256": format!("{ID}{ID}"), "path": format!("/hooks/{ID}"), "ipAddress": "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
        "address": "2001:0db8:85a3:0000:0000:8a2e:0370:7334",
    });
    let fill = |entry: &mut Value, keys: &str, value: Value| keys.split(' ').for_each(|key| entry[key] = value.clone());
    fill(
        &mut entry,
        "name jobName group description reason caller operation createBy by message exception peerName nodeName fullClassName waitsFor \
         members site rule event action nodeType operatingSystem",
        json!("very-long-name".repeat(5)),
    );
    fill(&mut entry, "url target", json!(format!("https://example.com/{}", "x".repeat(200))));
    fill(
        &mut entry,
        "id identity nodeId connectionId runId jobId blockId requestId requeuedAs requeuedIn workerId traceId peer run object",
        json!(ID),
    );
    fill(
        &mut entry,
        "creationTime updateTime finishTime startTime startedAt lastSeen connectTime disconnectTime at plannedAt nextFire lastFire \
         lastRunTime pausedAt nextAt lastOnlineTime expireTime",
        json!("2026-11-25T18:29:32.571Z"),
    );
    fill(&mut entry, "success error left total requests pending size holding jobs nodes freeMemory", json!(123_456_789));
    fill(
        &mut entry,
        "attempt instance lines atNodes delay connections failures depth priority tries term version slots tasks programs cpu \
         maxProcessCount processCount status fires runs",
        json!(12_345),
    );
    entry["lastError"] = json!({ "kind": "connect", "message": entry["name"] });
    entry["errors"] = json!([{ "kind": "not-reported", "failed": 12_345 }, { "status": 503, "failed": 9 }]);
    entry["executes"] = json!(true);
    entry["delayBy"] = json!("slowAnswers");
    entry["held"] = json!({ "why": "operator", "by": entry["name"], "until": entry["at"] });
    entry
}

/// A broker that answers every call with the same list.
fn broker() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let body = json!({ "items": [entry(2), entry(1)] }).to_string();
    // It ends with the process.
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("a connection");
            let head = BufReader::new(&stream).lines().map_while(Result::ok).take_while(|line| !line.is_empty());
            head.for_each(drop);
            let head = format!("Content-Type: application/json\r\nContent-Length: {}\r\nConnection: close", body.len());
            write!(stream, "HTTP/1.1 200 OK\r\n{head}\r\n\r\n{body}").expect("answered");
        }
    });
    url
}

/// The commands that list something, with the arguments that they need, from their manual pages.
fn lists() -> Vec<Vec<String>> {
    let folder = tempfile::tempdir().expect("a folder");
    webloom("http://127.0.0.1:1", &["man", folder.path().to_str().expect("text")]).ok();
    let mut lists = Vec::new();
    for page in folder.path().read_dir().expect("a folder") {
        let text = std::fs::read_to_string(page.expect("an entry").path()).expect("a page").replace('\\', "");
        let section = |name: &str| text.split_once(&format!(".SH {name}\n")).and_then(|(_, rest)| rest.lines().next()).unwrap_or_default();
        let (synopsis, name) = (section("SYNOPSIS"), section("NAME"));
        if !name.contains(" - List ") && !name.contains(" - Show the statistics ") {
            continue;
        }
        let words = synopsis.strip_prefix("fB").and_then(|rest| rest.split_once("fR")).expect("a command").0;
        let mut words: Vec<String> = words.split(' ').skip(1).map(str::to_owned).collect();
        if ["<fIJOB", "<fIRUN", "<fINODE"].iter().any(|argument| synopsis.contains(argument)) {
            words.push(ID.to_owned());
        }
        if synopsis.contains("--failed") {
            lists.push([words.as_slice(), &["--pending".to_owned()]].concat());
            words.push("--failed".to_owned());
        }
        lists.push(words);
    }
    lists
}

#[test]
fn every_list_fits_100_columns_and_shows_all_if_asked() {
    let (broker, lists) = (broker(), lists());
    assert!(lists.len() >= 23, "{lists:?}");
    for list in &lists {
        let run = |more: &[&str]| webloom(&broker, &[list.iter().map(String::as_str).collect::<Vec<_>>().as_slice(), more].concat()).ok();
        // Exact times are wider than relative ones.
        let table = run(&["--utc"]);
        assert!(table.lines().count() == 3 && table.lines().all(|line| line.chars().count() <= 100), "{list:?}\n{table}");
        let wide = run(&["-o", "wide"]);
        let first = wide.lines().nth(1).expect("a line");
        assert!(!first.split("  ").any(|cell| cell.trim() == "-"), "`entry` has no value for a column of {list:?}:\n{wide}");
    }
}
