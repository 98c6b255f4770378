//! What cannot be meant is refused, with what was probably meant; nothing of it is done.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::{journey, tar_gz, until};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::process::{Command, Output};

/// What a command of the program says, and its exit code.
fn cli(broker: &str, args: &[&str]) -> (i32, String) {
    let out = Command::new(WEBLOOM).args(args).args(["--broker", broker]).env_remove("WEBLOOM_TOKEN").output().expect("it runs");
    let Output { status, stdout, stderr } = out;
    (status.code().unwrap_or(-1), format!("{}{}", String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr)))
}

/// Status, field and detail of an answer.
fn problem((status, problem): (u16, Value)) -> (u16, String, String) {
    let text = |key: &str| problem[key].as_str().unwrap_or_default().to_owned();
    (status, text("field"), text("detail"))
}

#[test]
fn a_name_that_is_not_known_is_refused_at_every_depth() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let whole = json!({ "name": "whole", "properties": { "FullClassName": "a.B", "Whatever": "kept" }, "schedule": { "triggers": [{ "cron": "0 4 * * *" }] },
            "policies": { "retry": { "limit": 1 } } });
        let (status, job) = api.post("/api/v1/jobs", &whole).await;
        assert_eq!((status, &job["properties"]["Whatever"]), (201, &json!("kept")), "{job}");
        let own = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));

        let with = |path: &str, value: Value| {
            let mut input = whole.clone();
            input["name"] = json!("other");
            *input.pointer_mut(path.rsplit_once('/').expect("a path").0).expect("a place") =
                Value::Object(input.pointer(path.rsplit_once('/').expect("a path").0).and_then(Value::as_object).cloned().map_or_else(
                    Default::default,
                    |mut map| {
                        map.insert(path.rsplit_once('/').expect("a path").1.to_owned(), value);
                        map
                    },
                ));
            input
        };
        for (path, field, meant) in [
            ("/shedule", "shedule", "schedule"),
            ("/is_enabled", "is_enabled", "isEnabled"),
            ("/schedule/triggers/0/crom", "schedule.triggers[0].crom", "cron"),
            ("/schedule/zoen", "schedule.zoen", "zone"),
            ("/policies/retry/limits", "policies.retry.limits", "limit"),
        ] {
            let input = with(path, json!(null));
            for answer in [api.post("/api/v1/jobs", &input).await, api.put(&own, &input).await] {
                let (status, at, detail) = problem(answer);
                assert_eq!((status, at.as_str()), (422, field), "{detail}");
                assert!(detail.contains(&format!("`{meant}`")), "{field}: {detail}");
            }
            let (status, at, _) = problem(api.post("/api/v1/jobs/import", &json!([input])).await);
            assert_eq!((status, at), (422, format!("jobs[0].{field}")));
        }
        let task = json!({ "name": "t", "jobType": "task", "task": { "handlr": "x" } });
        assert_eq!(problem(api.post("/api/v1/jobs", &task).await).1, "task.handlr");
        let call = json!({ "name": "c", "jobType": "callback", "callback": { "url": "http://127.0.0.1:1/", "headders": {} } });
        assert_eq!(problem(api.post("/api/v1/jobs", &call).await).1, "callback.headders");
        let node = id();
        api.beat(&node, &json!({ "unknownFact": 1 })).await;
        assert_eq!(api.post("/api/v1/groups", &json!({ "name": "g" })).await.0, 201);
        let (_, group) = api.get("/api/v1/groups/g").await;
        let (status, again) = api.put("/api/v1/groups/g", &group).await;
        assert_eq!((status, &again["name"]), (200, &group["name"]), "a group may be sent back as it was read: {again}");
        for (path, body, field) in [
            ("/api/v1/groups/g".to_owned(), json!({ "descripton": "x" }), "descripton"),
            (format!("{own}/trigger"), json!({ "argumens": "x" }), "argumens"),
            (format!("{own}/trigger/batch"), json!([{}, { "priorty": 1 }]), "[1].priorty"),
            (format!("{own}/disable"), json!({ "reson": "x" }), "reson"),
            (format!("{own}/backfill"), json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z", "dryrun": true }), "dryrun"),
            ("/api/v1/runs/redrive".to_owned(), json!({ "jobid": "x" }), "jobid"),
            (format!("/api/v1/nodes/{node}/drain"), json!({ "raeson": "x" }), "raeson"),
            ("/api/v1/groups".to_owned(), json!({ "nmae": "x" }), "nmae"),
            ("/api/v1/alerts".to_owned(), json!({ "nmae": "x" }), "nmae"),
            ("/api/v1/jobs/preview".to_owned(), json!({ "crom": "x" }), "crom"),
        ] {
            let answer = if path.ends_with("/g") { api.put(&path, &body).await } else { api.post(&path, &body).await };
            let (status, at, detail) = problem(answer);
            assert_eq!((status, at.as_str()), (422, field), "{path}: {detail}");
        }
        for (path, field) in
            [("/api/v1/jobs?knid=block", "knid"), ("/api/v1/runs?stat=failed", "stat"), ("/api/v1/runs?from_=now", "from_")]
        {
            let (status, at, detail) = problem(api.get(path).await);
            assert_eq!((status, at.as_str()), (422, field), "{detail}");
            assert!(detail.contains("Did you mean"), "{detail}");
        }
        let (_, jobs) = api.get("/api/v1/jobs").await;
        assert_eq!(jobs["items"].as_array().map(Vec::len), Some(1), "nothing was made: {jobs}");
        assert_eq!(api.get(&own).await.1["version"], 1, "and nothing was changed");
        assert_eq!(api.get(&format!("/api/v1/nodes/{node}")).await.1["isDraining"], false);
    });
}

#[test]
fn a_job_may_be_sent_back_as_it_was_read() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        for input in [
            json!({ "name": "b", "cron": "0 4 * * *", "group": "g", "properties": { "FullClassName": "a.B" } }),
            json!({ "name": "t", "jobType": "task", "task": { "handler": "x" } }),
            json!({ "name": "c", "jobType": "callback", "callback": { "url": "http://127.0.0.1:1/", "secret": "s" } }),
            json!({ "name": "p", "command": "echo 'two words' x", "isEnabled": false }),
        ] {
            let (status, job) = api.post("/api/v1/jobs", &input).await;
            assert_eq!(status, 201, "{job}");
            let own = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
            let (_, read) = api.get(&own).await;
            let (status, again) = api.put(&own, &read).await;
            assert_eq!(status, 200, "{again}");
            for key in ["schedule", "properties", "task", "callback", "group", "jobType", "isEnabled"] {
                assert_eq!(again[key], read[key], "{key}");
            }
        }
    });
}

#[test]
fn a_job_that_could_never_run_is_refused() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let class = json!({ "FullClassName": "a.B" });
        for (input, field) in [
            (json!({}), "properties.FullClassName"),
            (json!({ "properties": { "FullClassName": "" } }), "properties.FullClassName"),
            (json!({ "jobType": "task" }), "task.handler"),
            (json!({ "jobType": "callback" }), "callback"),
            (json!({ "jobType": "callback", "callback": {} }), "callback.url"),
            (json!({ "jobType": "application" }), "properties.Application"),
            (json!({ "jobType": "application", "properties": { "Package": "http://x.test/a.zip" } }), "properties.Application"),
            (json!({ "command": " " }), "command"),
            (json!({ "command": "'open" }), "command"),
            (json!({ "command": "echo", "arguments": "x" }), "command"),
            (json!({ "jobType": "block", "properties": class, "command": "echo" }), "command"),
            (json!({ "properties": class, "task": { "handler": "x" } }), "task"),
            (json!({ "properties": class, "callback": { "url": "http://127.0.0.1:1/" } }), "callback"),
            (json!({ "jobType": "task", "task": { "handler": "x" }, "properties": class }), "properties.FullClassName"),
            (json!({ "command": "echo", "properties": class }), "properties.FullClassName"),
            (json!({ "jobType": "task", "task": { "handler": "x" }, "callback": { "url": "http://127.0.0.1:1/" } }), "callback"),
        ] {
            let mut input = input;
            input["name"] = json!("j");
            let (status, at, detail) = problem(api.post("/api/v1/jobs", &input).await);
            assert_eq!((status, at.as_str()), (422, field), "{input}: {detail}");
        }
        let (code, text) = cli(&broker.url, &["job", "create", "--name", "j1"]);
        assert!(code == 2 && text.contains("--class"), "{text}");
        let (code, text) = cli(&broker.url, &["job", "create", "--name", "j1", "--handler", "x", "--class", "y"]);
        assert!(code == 2 && text.contains("--class"), "{text}");
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]));

        // A job that becomes one of another kind leaves behind what belonged to the first.
        let (_, job) = api.post("/api/v1/jobs", &json!({ "name": "j", "jobType": "task", "task": { "handler": "x" } })).await;
        let own = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
        let (status, job) = api.put(&own, &json!({ "jobType": "block", "properties": class })).await;
        assert_eq!((status, &job["task"]), (200, &Value::Null), "{job}");
    });
}

#[test]
fn what_is_no_package_is_refused_and_one_is_handed_over_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let file = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).expect("written");
            path.to_str().expect("a path").to_owned()
        };
        let good = tar_gz("run.sh", b"#!/bin/sh\necho packed $1\n", Compression::default());
        let cut = &good[..good.len() / 2];
        let empty = tar::Builder::new(GzEncoder::new(Vec::new(), Compression::default()));
        let empty = empty.into_inner().and_then(GzEncoder::finish).expect("finished");
        for bad in [&b"name: yaml\n"[..], b"\x1f\x8bnonsense", b"PK\x03\x04nonsense", cut, &empty] {
            let push = api.request(reqwest::Method::POST, "/api/v1/packages").body(bad.to_vec());
            let (status, at, detail) = problem(api.send(push).await);
            assert_eq!((status, at.as_str()), (422, "package"), "{detail}");
        }
        let text = file("bad.yaml", b"name: yaml\n");
        let (code, said) = cli(&broker.url, &["package", "push", &text]);
        assert!(code == 1 && said.contains("bad.yaml is no package") && said.contains("tar.gz"), "{said}");
        assert_eq!(api.get("/api/v1/packages").await.1["items"], json!([]), "nothing is kept");

        let app = file("app.tar.gz", &good);
        let flags = ["--application", "run.sh", "--package"];
        let create = |name: &str, package: &str, more: &[&str]| {
            let args = [&["job", "create", "--name", name], &flags[..], &[package], more].concat();
            cli(&broker.url, &args)
        };
        let (code, said) = create("dry", &app, &["--dry-run"]);
        assert!(code == 0 && said.contains("/api/v1/packages/"), "{said}");
        assert_eq!(api.get("/api/v1/packages").await.1["items"], json!([]), "it was only asked");
        for name in ["one", "two"] {
            let (code, said) = create(name, &app, &[]);
            assert_eq!(code, 0, "{said}");
        }
        let (_, packages) = api.get("/api/v1/packages").await;
        assert_eq!(packages["items"].as_array().map(Vec::len), Some(1), "{packages}");
        let (_, jobs) = api.get("/api/v1/jobs").await;
        for job in jobs["items"].as_array().expect("jobs") {
            assert_eq!(job["properties"]["Package"], packages["items"][0]["url"], "{job}");
        }
        assert_eq!(create("three", "nowhere.zip", &[]).0, 2);
        assert_eq!(create("three", &text, &[]).0, 1);
    });
}

#[test]
fn a_command_runs_on_a_node_that_allows_programs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (closed, open) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _closed = agent(&broker.url, closed.path(), &["--name", "closed", "--group", "closed"]);
        let there = |count: usize| {
            let api = &api;
            until("the nodes to be there", move || async move {
                let (_, all) = api.get("/api/v1/nodes").await;
                let ready = all["items"].as_array()?.iter().filter(|node| node["load"].is_object()).count();
                (ready == count).then_some(())
            })
        };
        there(1).await;
        let over = |identity: String| {
            let api = &api;
            until("the end of the run", move || {
                let identity = identity.clone();
                async move {
                    let run = api.state(&identity).await;
                    matches!(run["state"].as_str(), Some("success" | "failed")).then_some(run)
                }
            })
        };
        let command = "sh -c 'echo \"said: $0\"; exit 3' 'two words'";
        let (code, said) = cli(&broker.url, &["job", "create", "--name", "hello", "--command", command]);
        assert_eq!(code, 0, "{said}");
        let (_, jobs) = api.get("/api/v1/jobs").await;
        let job = jobs["items"][0].clone();
        assert_eq!((&job["jobType"], &job["properties"]["Application"]), (&json!("application"), &json!("sh")), "{job}");
        assert_eq!(job["properties"]["MaxCpu"], "101", "a busy machine runs it as well");
        let (_, limited) =
            api.post("/api/v1/jobs", &json!({ "name": "limited", "command": "true", "properties": { "maxcpu": "50" } })).await;
        assert_eq!(limited["properties"], json!({ "Application": "true", "maxcpu": "50" }), "the job's own limit stays");
        let job = job["id"].as_str().expect("an id").to_owned();
        let run = over(api.trigger(&job).await).await;
        assert_eq!(run["state"], "failed");
        assert!(run["reason"].as_str().is_some_and(|why| why.contains("`applications`")), "it names the setting: {run}");

        let _open = agent(&broker.url, open.path(), &["--name", "open", "--applications", "--application-users", "root"]);
        there(2).await;
        let identity = api.trigger(&job).await;
        let run = over(identity.clone()).await;
        assert!(run["state"] == "failed" && run["reason"].as_str().is_some_and(|why| why.contains("exit code 3")), "{run}");
        let (_, log) = api.get(&format!("/api/v1/runs/{identity}/logs?limit=100")).await;
        assert!(log.to_string().contains("said: two words"), "{log}");
        let (_, instances) = api.get(&format!("/api/v1/runs/{identity}/instances")).await;
        assert_eq!(instances["items"][0]["peerName"], "open", "{instances}");
    });
}
