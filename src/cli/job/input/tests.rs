use super::*;
use clap::Parser;

#[derive(Debug, Parser)]
struct Line {
    #[command(flatten)]
    flags: JobFlags,
}

fn input(job: &Value, words: &[&str]) -> Value {
    Line::try_parse_from([&["job"], words].concat()).unwrap().flags.input(job).unwrap()
}

#[test]
fn flags_become_a_job() {
    let words = [
        "--name",
        "nightly",
        "--class",
        "demo.Titles",
        "--arguments",
        "-x",
        "--cron",
        "0 2 * * *",
        "--every",
        "90s",
        "--after-end",
        "--zone",
        "Europe/Berlin",
        "--gap",
        "skip",
        "--group",
        "g",
        "--priority",
        "-3",
        "-p",
        "ThreadNum=4",
        "--overlap",
        "queue-one",
        "--misfire",
        "all",
        "--retry",
        "2",
        "--retry-delay",
        "10s",
        "--timeout",
        "30s",
        "--disabled",
    ];
    let expected = json!({
        "name": "nightly",
        "properties": { "FullClassName": "demo.Titles", "Arguments": "-x", "ThreadNum": "4" },
        "schedule": {
            "triggers": [{ "cron": "0 2 * * *" }, { "every": 90_000, "afterEnd": true }], "zone": "Europe/Berlin", "gap": "skip",
        },
        "policies": {
            "overlap": "queueOne", "timeout": 30_000, "misfire": { "policy": "all" }, "retry": { "limit": 2, "delay": 10_000 },
        },
        "group": "g", "priority": -3, "isEnabled": false,
    });
    assert_eq!(input(&Value::Null, &words), expected);
}

#[test]
fn the_worker_of_a_block_job_is_chosen_by_its_properties() {
    let flags = ["--worker-group", "red", "--worker-tag", "gpu", "--worker-tag", "eu", "--strategy", "least-loaded", "--wait-for-worker"];
    let properties = json!({ "FullClassName": "a.B", "WorkerGroup": "red", "WorkerTags": "gpu,eu", "WorkerStrategy": "leastLoaded", "NoWorker": "wait" });
    assert_eq!(input(&Value::Null, &[&["--class", "a.B"], &flags[..]].concat()), json!({ "properties": properties }));
    let task = json!({ "group": "red", "tags": ["gpu", "eu"], "strategy": "leastLoaded", "noWorker": "wait" });
    assert_eq!(input(&json!({ "jobType": "task" }), &flags), json!({ "task": task }));
    let changed = input(&json!({ "jobType": "block", "properties": { "WORKER_GROUP": "blue", "X": "y" } }), &["--worker-group", "red"]);
    assert_eq!(changed, json!({ "properties": { "WorkerGroup": "red", "X": "y" } }));
}

#[test]
fn a_url_makes_a_callback() {
    let words = ["--url", "http://h/", "--method", "PUT", "-H", "A: b", "--body", "{}", "--expect", "200", "--expect", "404"];
    let callback = json!({ "url": "http://h/", "method": "PUT", "headers": { "A": "b" }, "body": "{}", "expect": [200, 404] });
    assert_eq!(input(&Value::Null, &words), json!({ "jobType": "callback", "callback": callback }));
}

#[test]
fn what_is_not_said_stays() {
    let job = json!({
        "name": "n", "properties": { "FullClassName": "a.B", "ThreadNum": "4", "X": "y" },
        "schedule": { "triggers": [{ "cron": "0 2 * * *" }], "zone": "Europe/Berlin" },
        "policies": { "retry": { "limit": 1, "delay": 5 }, "timeout": 7 },
    });
    let changed = input(&job, &["--every", "1m", "--retry", "3", "--property", "X=", "--property", "ThreadNum=8"]);
    let expected = json!({
        "properties": { "FullClassName": "a.B", "ThreadNum": "8" },
        "schedule": { "triggers": [{ "every": 60_000 }], "zone": "Europe/Berlin" },
        "policies": { "retry": { "limit": 3, "delay": 5 }, "timeout": 7 },
    });
    assert_eq!(changed, expected);
    assert_eq!(input(&job, &["--name", "m"]), json!({ "name": "m" }), "parts that are not touched are not sent");
}

#[test]
fn flags_go_before_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.yaml");
    std::fs::write(&path, "name: a\npriority: 1\nproperties:\n  FullClassName: a.B\n").unwrap();
    let words = ["-f", path.to_str().unwrap(), "--name", "b", "-p", "K=v"];
    let expected = json!({ "name": "b", "priority": 1, "properties": { "FullClassName": "a.B", "K": "v" } });
    assert_eq!(input(&Value::Null, &words), expected);
}

#[test]
fn a_program_makes_an_application() {
    let words = ["--application", "bin/x", "--package", "https://h/a.zip", "--node-count", "3", "--node-group", "Vps", "--os", "linux"];
    let properties = json!({ "Application": "bin/x", "Package": "https://h/a.zip", "NodeCount": "3", "NodeGroup": "Vps", "Os": "linux" });
    assert_eq!(input(&Value::Null, &words), json!({ "jobType": "application", "properties": properties }));
}
