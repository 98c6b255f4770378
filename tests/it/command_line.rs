//! The broker from a shell: every command is run as its users run it, and what it prints and how it ends is looked at.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::shell::{command, ended, webloom};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn a_job_from_its_creation_to_its_end() {
    let broker = Broker::start(&[], "");
    let run = |args: &[&str]| webloom(&broker.url, args);
    let words = ["job", "create", "--name", "nightly", "--class", "a.B", "--every", "1d", "--group", "g", "--timeout", "30s"];
    let dry = run(&[&words[..], &["--dry-run"]].concat()).ok();
    assert!(dry.contains("every 1day") && dry.contains(r#""timeout":30000"#), "{dry}");
    assert_eq!(run(&["job", "list"]).ok(), "there are no such jobs\n", "a dry run writes nothing");
    assert!(run(&words).ok().starts_with("created job "));
    run(&words).refused(1, "a job named \"nightly\" already exists");

    let job = run(&["job", "show", "nightly", "--json"]).json();
    let id = job["id"].as_str().expect("an id").to_owned();
    assert_eq!(job["policies"]["timeout"], 30_000, "{job}");
    let list = run(&["job", "list", "--group", "g", "-o", "wide"]).ok();
    let lines: Vec<Vec<&str>> = list.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!((lines[0][0], lines[1][0], lines[1][1], lines[1][3], lines.len()), ("ID", id.as_str(), "nightly", "enabled", 2), "{list}");
    assert_eq!(run(&["job", "list", "--group", "other", "--json"]).json(), json!({ "items": [] }));

    let changed = run(&["job", "update", "nightly", "--property", "ThreadNum=4", "--every", "2h", "--retry", "2"]).ok();
    assert!(changed.contains(&id), "{changed}");
    let job = run(&["job", "show", &id, "--json"]).json();
    assert_eq!(job["properties"], json!({ "FullClassName": "a.B", "ThreadNum": "4" }), "the class stays");
    assert_eq!((&job["schedule"]["triggers"][0]["every"], &job["policies"]["timeout"]), (&json!(7_200_000), &json!(30_000)), "{job}");
    assert_eq!(job["policies"]["retry"]["limit"], 2);
    run(&["job", "update", "nightly"]).refused(2, "there is nothing to change");
    run(&["job", "update", "nightly", "--no-schedule"]).ok();
    assert!(run(&["job", "show", "nightly"]).ok().contains("by hand"));

    run(&["job", "disable", "nightly", "--reason", "a pause"]).ok();
    assert!(run(&["job", "show", "nightly"]).ok().contains("disabled: a pause"));
    run(&["job", "trigger", "nightly"]).refused(1, "is disabled: a pause");
    run(&["job", "enable", &id]).ok();
    run(&["job", "delete", "nightly"]).ok();
    run(&["job", "show", "nightly"]).refused(1, "there is no job `nightly`");
    assert_eq!(run(&["job", "list", "--deleted", "-o", "name"]).ok(), "nightly\n");
    assert!(run(&["job", "list", "--deleted"]).ok().contains(&id[24..]));
    run(&["job", "restore", "nightly"]).ok();
    run(&["job", "delete", "nightly"]).ok();
    run(&["job", "purge", "nightly"]).ok();
    run(&["job", "purge", "nightly"]).refused(1, "there is no deleted job");
}

#[test]
fn a_job_from_a_file() {
    let (broker, folder) = (Broker::start(&[], ""), tempfile::tempdir().expect("a folder"));
    let file = folder.path().join("job.yaml");
    let text = "name: from a file\ncallback:\n  url: http://127.0.0.1:9/{runId}\njobType: callback\nschedule:\n  triggers:\n    - every: 86400000\n";
    std::fs::write(&file, text).expect("a file");
    let path = file.to_str().expect("a path");
    let job = webloom(&broker.url, &["job", "create", "-f", path, "--priority", "7", "--json"]).json();
    assert_eq!((&job["priority"], &job["jobType"], &job["name"]), (&json!(7), &json!("callback"), &json!("from a file")), "{job}");
    std::fs::write(&file, "name: [").expect("a file");
    webloom(&broker.url, &["job", "create", "-f", path]).refused(2, "job.yaml");
    webloom(&broker.url, &["job", "create", "-f", "/no/such/file"]).refused(2, "/no/such/file");
}

#[test]
fn a_run_is_followed_to_its_end() {
    journey(async {
        // A worker without a socket is heard of only when it calls, and this test may be slow.
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = api.job("followed", "a.B", &json!({})).await;
        api.worker("a.B").await;
        for (body, state, code) in [(json!({}), "success", 0), (json!({ "error": "no luck" }), "failed", 3)] {
            let triggered = webloom(&broker.url, &["job", "trigger", "followed", "--json"]).json();
            let identity = triggered["identity"].as_str().expect("an identity");
            let watch = command(&broker.url, &["run", "watch", identity]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
            let watch = watch.expect("it starts");
            until("the start", || async { (api.state(identity).await["state"] != "pending").then_some(()) }).await;
            let (status, _) = api.post(&format!("/api/v1/runs/{identity}/start-returned"), &body).await;
            assert_eq!(status, 204);
            let output = watch.wait_with_output().expect("it ends");
            let said = String::from_utf8_lossy(&output.stdout);
            assert_eq!(output.status.code(), Some(code), "{said}{}", String::from_utf8_lossy(&output.stderr));
            assert!(said.lines().last().is_some_and(|line| line.contains(state)), "{said}");
            let again = webloom(&broker.url, &["run", "watch", "--job", "followed", "--json"]);
            assert_eq!((again.code, &again.json()["state"]), (Some(code), &json!(state)), "the latest run is this one");
        }
        let stopped = webloom(&broker.url, &["job", "trigger", &job, "--json"]).json();
        let identity = stopped["identity"].as_str().expect("an identity");
        assert!(webloom(&broker.url, &["run", "stop", identity]).ok().contains("stopped"));
        assert_eq!(webloom(&broker.url, &["run", "watch", identity]).code, Some(4));
        assert_eq!(webloom(&broker.url, &["job", "trigger", &job, "--key", "k", "--json"]).json()["jobId"], job);

        let list = webloom(&broker.url, &["run", "list", "--job", "followed", "--state", "failed"]).ok();
        assert!(list.contains("no luck") && list.lines().count() == 2, "{list}");
        let all = webloom(&broker.url, &["run", "list", "--limit", "3", "--json"]).json();
        assert_eq!((all["items"].as_array().map(Vec::len), all["nextCursor"].is_string()), (Some(3), true), "{all}");
        assert!(webloom(&broker.url, &["run", "show", identity]).ok().contains("followed"));
        assert!(webloom(&broker.url, &["worker", "list"]).ok().contains("a.B"));
        webloom(&broker.url, &["run", "show", "followed"]).refused(2, "--job followed");
    });
}

#[test]
fn an_expression_needs_no_broker() {
    let nowhere = "http://127.0.0.1:1";
    let next = webloom(nowhere, &["job", "next", "*/5 * * * *", "--after", "2026-01-01T00:01:00Z", "--count", "2"]);
    assert_eq!((next.code, next.out.lines().count()), (Some(0), 2), "{next:?}");
    assert!(next.out.starts_with("2026-01-01T00:05:00"), "{next:?}");
    let neither = webloom(nowhere, &["job", "next", "nightly"]);
    assert_eq!((neither.code, neither.out.as_str()), (Some(1), ""), "{neither:?}");
    assert!(neither.err.contains("no broker answers"), "{neither:?}");
}

#[test]
fn nodes_are_looked_at_and_switched() {
    journey(async {
        let broker = Broker::start(&[], "");
        assert_eq!(webloom(&broker.url, &["node", "list"]).ok(), "there are no nodes\n");
        let node = "6f9619ff8b86d011b42d00c04fc964ff";
        Api::new(&broker.url).beat(node, &json!({})).await;
        assert!(webloom(&broker.url, &["node", "list"]).ok().contains(&node[24..]));
        webloom(&broker.url, &["node", "disable", node]).ok();
        assert!(webloom(&broker.url, &["node", "show", node]).ok().contains("disabled"));
        webloom(&broker.url, &["node", "enable", node]).ok();
        assert_eq!(webloom(&broker.url, &["node", "show", node, "--json"]).json()["isEnabled"], true);
        webloom(&broker.url, &["node", "status", node]).ok();
    });
}

#[test]
fn what_goes_wrong_is_told_apart() {
    let broker = Broker::start(&["--token", "admin:first-token", "--token", "readonly:other-token"], "");
    let with = |token: &str, args: &[&str]| {
        let mut command = command(&broker.url, args);
        command.env("WEBLOOM_TOKEN", token);
        ended(command)
    };
    webloom(&broker.url, &["job", "list"]).refused(1, "needs a token. Give one with --token or WEBLOOM_TOKEN.");
    let wrong = format!("The broker at {} did not accept the token. Check --token or WEBLOOM_TOKEN.", broker.url);
    with("third-token", &["job", "list"]).refused(1, &wrong);
    with("other-token", &["job", "create", "--name", "n", "--class", "a.B"]).refused(1, "the role readonly is not enough for this call");
    with("first-token", &["job", "create", "--name", "n", "--class", "a.B", "--every", "1ms"])
        .refused(2, "--every \"1ms\": must be 100 ms to 100 years, not 1 ms");
    with("agent:whatever,admin:first-token", &["job", "list"]).ok();
    webloom("http://127.0.0.1:1", &["job", "list"]).refused(1, "no broker answers at http://127.0.0.1:1: ");
    webloom("ftp://127.0.0.1/", &["job", "list"]).refused(2, "the scheme must be http or https");
    webloom(&broker.url, &["job", "create", "--every", "soon"]).refused(2, "a time with its unit is expected: 500ms, 30s, 5m, 2h or 1d");
    webloom(&broker.url, &["job", "why"]).refused(2, "<JOB>");
}

#[test]
fn a_reader_that_has_seen_enough_is_no_fault() {
    let broker = Broker::start(&[], "");
    let mut child = command(&broker.url, &["job", "list"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        (output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()),
        (Some(141), ""),
        "as of any program that SIGPIPE ends"
    );
}

/// Copies a store, with what its log holds, and changes the copy.
fn forge(database: &Path, copy: &Path, sql: &str) {
    let script = "import sqlite3, sys\nsource, copy = map(sqlite3.connect, sys.argv[1:3])\nsource.backup(copy)\n\
                  copy.execute(sys.argv[3])\ncopy.commit()\ncopy.close()";
    let status = Command::new("python3").args(["-c", script]).arg(database).arg(copy).arg(sql).status().expect("python3 runs");
    assert!(status.success(), "{sql}");
}

fn verified(database: &Path) -> (Option<i32>, Value) {
    let ended = webloom("http://127.0.0.1:1", &["verify-history", "--json", "--database", database.to_str().expect("a path")]);
    (ended.code, ended.json())
}

#[test]
fn a_ledger_is_proved_and_a_forged_one_is_not() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let words = ["--class", "a.B", "--every", "100ms", "--overlap", "allow", "--json"];
        let job = webloom(&broker.url, &[&["job", "create", "--name", "often"], &words[..]].concat()).json();
        let other = webloom(&broker.url, &[&["job", "create", "--name", "skips"], &words[..3], &["150ms", "--json"]].concat()).json();
        let gone = webloom(&broker.url, &[&["job", "create", "--name", "gone"], &words[..]].concat()).json();
        let gone = gone["id"].as_str().expect("an id");
        let (id, other) = (job["id"].as_str().expect("an id").to_owned(), other["id"].as_str().expect("an id").to_owned());
        let fires = |id: String, most: u64| {
            let api = api.clone();
            async move {
                until("some fires", || async {
                    let (_, job) = api.get(&format!("/api/v1/jobs/{id}")).await;
                    (job["fires"].as_u64() >= Some(most)).then_some(())
                })
                .await;
            }
        };
        fires(id.clone(), 5).await;
        let database = crate::support::process::database(&broker.folder);
        let (code, report) = verified(&database);
        assert_eq!((code, &report["jobs"], &report["discrepancies"]), (Some(0), &json!(3), &json!([])), "while the broker runs: {report}");

        // Changes, a broker that dies, and a job that is deleted.
        webloom(&broker.url, &["job", "update", &id, "--every", "130ms"]).ok();
        fires(id.clone(), 10).await;
        broker.kill_and_restart();
        fires(id.clone(), 15).await;
        webloom(&broker.url, &["job", "delete", gone]).ok();
        fires(other.clone(), 2).await;
        broker.process.terminate();
        let (code, report) = verified(&database);
        assert_eq!((code, &report["discrepancies"]), (Some(0), &json!([])), "{report}");
        assert!(report["plannedInstants"].as_u64() >= Some(20), "{report}");

        // The last instant whose run is over.
        let last = "SELECT MAX(f.planned_at) FROM fire f JOIN run r ON r.identity = f.run_identity WHERE r.finish_time IS NOT NULL AND";
        let row = format!("job_id = '{id}' AND planned_at = ({last} f.job_id = '{id}')");
        let run = format!("identity = (SELECT run_identity FROM fire WHERE {row})");
        let forged = [
            (format!("DELETE FROM fire WHERE {row}"), vec!["missing", "run"]),
            (
                format!("UPDATE fire SET planned_at = planned_at - 1, planned_until = planned_until - 1 WHERE {row}"),
                vec!["missing", "extra", "run"],
            ),
            (format!("UPDATE fire SET instants = 2, planned_until = planned_until + 1 WHERE {row}"), vec!["count"]),
            (format!("UPDATE run SET state = 'running', finish_time = NULL WHERE job_id = '{other}'"), vec!["overlap"]),
            (format!("DELETE FROM run WHERE {run}"), vec!["run"]),
            (format!("UPDATE run SET state = 'pending' WHERE {run}"), vec!["state"]),
        ];
        for (n, (sql, expected)) in forged.into_iter().enumerate() {
            let copy = broker.folder.join(format!("forged-{n}.db"));
            forge(&database, &copy, &sql);
            let (code, report) = verified(&copy);
            let found: std::collections::BTreeSet<&str> =
                report["discrepancies"].as_array().expect("a list").iter().filter_map(|found| found["check"].as_str()).collect();
            assert_eq!(found, expected.iter().copied().collect(), "{sql}: {report}");
            assert_eq!(code, Some(i32::from(!expected.is_empty())), "{sql}");
        }
        let said = webloom("", &["verify-history", "--job", "often", "--database", database.to_str().expect("a path")]).ok();
        assert!(said.starts_with("1 jobs, ") && said.ends_with(" 0 discrepancies\n"), "{said}");
        webloom("", &["verify-history", "--database", "/no/such/file"]).refused(1, "/no/such/file");
    });
}
