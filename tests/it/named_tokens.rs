//! Tokens with a name: what each role may do, what a limited token sees, and what ends when one is revoked or expires.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::raw::{close_code, socket};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::io::Read as _;

const BOSS: &[&str] = &["--token", "boss-token"];

/// Creates a token; a client with it.
pub async fn token(boss: &Api, name: &str, role: &str, more: Value) -> Api {
    let mut input = json!({ "name": name, "role": role });
    for (key, value) in more.as_object().expect("an object") {
        input[key] = value.clone();
    }
    let (status, made) = boss.post("/api/v1/tokens", &input).await;
    assert_eq!(status, 201, "{made}");
    boss.with_token(made["text"].as_str().expect("a text"))
}

/// The same token at this broker.
fn at(broker: &Broker, api: &Api) -> Api {
    Api::new(&broker.url).with_token(api.token.as_deref().expect("a token"))
}

pub async fn job(api: &Api, name: &str, group: Option<&str>) -> (u16, Value) {
    let mut input = json!({ "name": name, "jobType": "task", "task": { "handler": "it.nobody" } });
    if let Some(group) = group {
        input["group"] = group.into();
    }
    api.post("/api/v1/jobs", &input).await
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_else(|| panic!("{key} in {value}"))
}

fn names(page: &(u16, Value), key: &str) -> Vec<String> {
    assert_eq!(page.0, 200, "{}", page.1);
    page.1["items"].as_array().expect("items").iter().map(|item| text(item, key).to_owned()).collect()
}

#[test]
fn each_role_may_do_what_it_says() {
    journey(async {
        let mut broker = Broker::start(BOSS, "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let (viewer, operator) = (token(&boss, "vi", "viewer", json!({})).await, token(&boss, "otto", "operator", json!({})).await);
        let editor = token(&boss, "ed@example.org", "editor", json!({})).await;
        let admin = token(&boss, "ann", "admin", json!({})).await;
        assert_eq!(names(&admin.get("/api/v1/tokens").await, "name"), ["ann", "ed@example.org", "otto", "vi"]);
        let (_, made) = job(&editor, "one", None).await;
        assert_eq!((&made["createBy"], &made["updateBy"]), (&json!("ed@example.org"), &json!("ed@example.org")), "{made}");
        let path = format!("/api/v1/jobs/{}", text(&made, "id"));
        for (api, read, trigger, change, tokens) in
            [(&viewer, 200, 403, 403, 403), (&operator, 200, 202, 403, 403), (&editor, 200, 202, 200, 403), (&admin, 200, 202, 200, 200)]
        {
            assert_eq!(api.get(&path).await.0, read);
            assert_eq!(api.post(&format!("{path}/trigger"), &json!({})).await.0, trigger);
            assert_eq!(api.put(&path, &json!({ "description": "x" })).await.0, change);
            assert_eq!(api.get("/api/v1/tokens").await.0, tokens);
        }
        let (_, run) = operator.post(&format!("{path}/trigger"), &json!({})).await;
        assert_eq!(run["createBy"], "otto", "{run}");
        // An editor does not see the secrets of jobs, also not in the answer to a change.
        let callback = json!({ "url": "https://hooks.example.test/", "headers": { "Authorization": "the-secret" } });
        let with_secret = json!({ "name": "two", "jobType": "callback", "callback": callback });
        let (status, made) = boss.post("/api/v1/jobs", &with_secret).await;
        assert_eq!(status, 201, "{made}");
        let (status, changed) = editor.put(&format!("/api/v1/jobs/{}", text(&made, "id")), &json!({ "description": "y" })).await;
        assert!(status == 200 && !changed.to_string().contains("the-secret"), "{changed}");
        for (input, field) in [
            (json!({ "name": "admin", "role": "viewer" }), "name"),
            (json!({ "name": "a b", "role": "viewer" }), "name"),
            (json!({ "name": "x", "role": "boss" }), "role"),
            (json!({ "name": "x", "role": "worker", "groups": ["g"] }), "groups"),
            (json!({ "name": "x", "role": "viewer", "groups": [] }), "groups"),
            (json!({ "name": "x", "role": "viewer", "expireTime": "2020-01-01T00:00:00Z" }), "expireTime"),
        ] {
            let (status, problem) = admin.post("/api/v1/tokens", &input).await;
            assert_eq!((status, &problem["field"]), (422, &json!(field)), "{problem}");
        }
        assert_eq!(admin.post("/api/v1/tokens", &json!({ "name": "vi", "role": "viewer" })).await.0, 409);
        assert_eq!(admin.delete("/api/v1/tokens/nobody").await.0, 404);
        // What was stored holds after a crash, and so does what was revoked.
        assert_eq!(admin.delete("/api/v1/tokens/otto").await.0, 204);
        assert_eq!(operator.get(&path).await.0, 401);
        broker.kill_and_restart();
        let (viewer_now, operator_now) = (at(&broker, &viewer), at(&broker, &operator));
        assert_eq!((viewer_now.get(&path).await.0, operator_now.get(&path).await.0), (200, 401));
        for entry in std::fs::read_dir(&broker.folder).expect("a folder") {
            let file = entry.expect("an entry").path();
            let bytes = std::fs::read(&file).unwrap_or_default();
            let secret = viewer.token.as_deref().expect("a token").as_bytes();
            assert!(!bytes.windows(secret.len()).any(|part| part == secret), "a token is in {}", file.display());
        }
    });
}

#[test]
fn a_limited_token_sees_and_changes_its_groups_only() {
    journey(async {
        let broker = Broker::start(BOSS, "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let mut paths = Vec::new();
        for (name, group) in [("mine", Some("red")), ("theirs", Some("blue")), ("free", None)] {
            let (status, made) = job(&boss, name, group).await;
            assert_eq!(status, 201, "{made}");
            let path = format!("/api/v1/jobs/{}", text(&made, "id"));
            let (_, run) = boss.post(&format!("{path}/trigger"), &json!({})).await;
            paths.push((path, format!("/api/v1/runs/{}", text(&run, "identity"))));
        }
        let theirs = boss.get(&paths[1].0).await.1;
        let limit = json!({ "groups": ["red"] });
        let viewer = token(&boss, "vi", "viewer", limit.clone()).await;
        let editor = token(&boss, "ed", "editor", limit).await;
        assert_eq!(names(&viewer.get("/api/v1/jobs").await, "name"), ["mine"]);
        assert_eq!(names(&viewer.get("/api/v1/jobs?group=blue").await, "name"), Vec::<String>::new());
        assert_eq!(names(&viewer.get("/api/v1/runs").await, "jobName"), ["mine"]);
        assert_eq!(names(&viewer.get("/api/v1/groups").await, "name"), ["red"]);
        for (i, (job, run)) in paths.iter().enumerate() {
            let expected = if i == 0 { 200 } else { 404 };
            for path in [job.clone(), format!("{job}/fires"), format!("{job}/history"), run.clone(), format!("{run}/logs")] {
                assert_eq!(viewer.get(&path).await.0, expected, "{path}");
                assert_eq!(boss.get(&path).await.0, 200, "{path}");
            }
            let expected = if i == 0 { 200 } else { 404 };
            assert_eq!(editor.put(job, &json!({ "description": "x" })).await.0, expected, "{job}");
            assert_eq!(editor.post(&format!("{run}/retry"), &json!({})).await.0 == 404, i != 0, "{run}");
        }
        // It is answered as what is not there.
        let missing = format!("/api/v1/jobs/{}", id());
        let (hidden, unknown) = (viewer.get(&paths[1].0).await.1, viewer.get(&missing).await.1);
        assert_eq!((&hidden["type"], &hidden["title"]), (&unknown["type"], &unknown["title"]));
        // What is not about one job or run is rejected.
        for path in [
            "nodes",
            "workers",
            "sites",
            "alerts",
            "changes",
            "jobs/export",
            "warnings",
            "series?from=2026-01-01T00:00:00Z",
            "actors",
            "settings",
        ] {
            assert_eq!(viewer.get(&format!("/api/v1/{path}")).await.0, 403, "{path}");
        }
        for path in ["runs/redrive", "jobs/import", "groups", "groups/blue/disable"] {
            assert_eq!(editor.post(&format!("/api/v1/{path}"), &json!({})).await.0, 403, "{path}");
        }
        // A job stays in the groups of the token, and starts no job of another.
        let tries = [
            (job(&editor, "a", None).await.0, 403),
            (job(&editor, "b", Some("blue")).await.0, 403),
            (job(&editor, "c", Some("red")).await.0, 201),
        ];
        assert!(tries.iter().all(|(status, expected)| status == expected), "{tries:?}");
        for (change, expected) in [
            (json!({ "group": "blue" }), 403),
            (json!({ "group": "" }), 403),
            (json!({ "successors": [{ "job": "theirs" }] }), 422),
            (json!({ "successors": [{ "job": "c" }], "group": "red" }), 200),
            (json!({ "properties": { "worker_job": "theirs" } }), 422),
            (json!({ "properties": { "WorkerJob": text(&theirs, "id") } }), 422),
        ] {
            let (status, answer) = editor.put(&paths[0].0, &change).await;
            assert_eq!(status, expected, "{change} {answer}");
        }
        // A job of its own whose name is the id of another one does not stand for that one.
        assert_eq!(job(&editor, text(&theirs, "id"), Some("red")).await.0, 201);
        let disguised = json!({ "successors": [{ "job": theirs["id"] }] });
        assert_eq!(editor.put(&paths[0].0, &disguised).await.0, 422);
        // The token follows a group that is renamed.
        assert_eq!(boss.put("/api/v1/groups/red", &json!({ "name": "ruby" })).await.0, 200);
        assert_eq!(names(&viewer.get("/api/v1/jobs").await, "name"), ["mine", "c", text(&theirs, "id")]);
        assert_eq!(viewer.get(&paths[0].0).await.1["group"], "ruby");
    });
}

#[test]
fn a_revoked_or_expired_token_loses_what_it_has_open() {
    journey(async {
        // A worker that sends nothing is not lost before its token expires.
        let broker = Broker::start(&["--token", "boss-token", "--worker-offline", "60000"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let worker = token(&boss, "w1", "worker", json!({})).await;
        let node = token(&boss, "n1", "agent", json!({})).await;
        let open = |path: String, api: &Api| socket(&broker.url, &path, api.token.as_deref().expect("a token"));
        let welcomed = |mut stream: std::net::TcpStream| {
            let mut frame = [0; 2];
            stream.read_exact(&mut frame).expect("a welcome");
            assert!(frame[1] < 126, "a longer welcome than this test reads");
            stream.read_exact(&mut vec![0; usize::from(frame[1])]).expect("a welcome");
            stream
        };
        let kept = welcomed(open(format!("/worker?workerid={}", id()), &boss));
        // The agent sends a named token as it is: the broker cannot check a signature by it.
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--token", node.token.as_deref().expect("a token")]);
        until("the agent to be connected", || async {
            let (_, nodes) = boss.get("/api/v1/nodes").await;
            nodes["items"].as_array().is_some_and(|nodes| nodes.iter().any(|node| node["isOnline"] == true)).then_some(())
        })
        .await;
        // Far enough away for a machine with much else to do.
        let soon = webloom::for_tests::time::Timestamp::now().plus_ms(12_000);
        let brief = token(&boss, "w2", "worker", json!({ "expireTime": soon })).await;
        let mut closed = [
            welcomed(open(format!("/worker?workerid={}", id()), &worker)),
            welcomed(open(format!("/?nodeid={}", id()), &node)),
            welcomed(open(format!("/worker?workerid={}", id()), &brief)),
        ];
        for name in ["w1", "n1"] {
            assert_eq!(boss.delete(&format!("/api/v1/tokens/{name}")).await.0, 204);
        }
        for (i, stream) in closed.iter_mut().enumerate() {
            // The last one by its time.
            assert_eq!(close_code(stream), Some(1008), "{i}");
        }
        assert_eq!((worker.get("/api/v1/jobs").await.0, brief.get("/api/v1/jobs").await.0), (401, 401));
        let (_, tokens) = boss.get("/api/v1/tokens").await;
        assert_eq!((&tokens["items"][0]["name"], &tokens["items"][0]["isExpired"]), (&json!("w2"), &json!(true)), "{tokens}");
        kept.set_nonblocking(true).expect("a socket");
        let read = (&kept).read(&mut [0; 1 << 16]);
        assert!(read.as_ref().map_or_else(|e| e.kind() == std::io::ErrorKind::WouldBlock, |bytes| *bytes > 0), "{read:?}");
    });
}

#[test]
fn a_standby_follows_and_an_open_broker_has_none() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let args = ["--lease-ms", "600000", "--token", "boss-token"];
        let leader = Broker::start_in(folder.path(), "127.0.0.1:0", &args, "");
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &args, "");
        let boss = Api::new(&leader.url).with_token("boss-token");
        // The standby must know this token before it counts wrong ones.
        let boss_there = at(&standby, &boss);
        until("the standby reads", || async { (boss_there.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
        let viewer = token(&boss, "vi", "viewer", json!({})).await;
        let there = at(&standby, &viewer);
        until("the standby has it", || async { (there.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
        // It is revoked by way of the standby.
        assert_eq!(boss_there.delete("/api/v1/tokens/vi").await.0, 204);
        assert_eq!(viewer.get("/api/v1/jobs").await.0, 401);
        until("the standby rejects it", || async { (there.get("/api/v1/jobs").await.0 == 401).then_some(()) }).await;

        let open = Broker::start(&[], "");
        let (status, problem) = Api::new(&open.url).post("/api/v1/tokens", &json!({ "name": "x", "role": "admin" })).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/open-broker")), "{problem}");
    });
}

#[test]
fn the_command_line_makes_lists_and_revokes_them() {
    journey(async {
        let broker = Broker::start(BOSS, "");
        let call = |args: &[&str], token: &str| {
            let output = std::process::Command::new(WEBLOOM).args(args).args(["--broker", &broker.url, "--token", token]).output();
            let output = output.expect("the command line");
            (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr))
        };
        let args = ["token", "create", "otto", "--role", "operator", "--group", "red", "--group", "blue", "--expires-in", "90d"];
        let (code, text) = call(&args, "boss-token");
        assert!(code == Some(0) && text.trim().starts_with("wl_") && text.lines().count() == 1, "{text}");
        let otto = text.trim();
        assert_eq!(call(&["job", "list"], otto).0, Some(0));
        let (_, list) = call(&["token", "list"], "boss-token");
        assert!(list.contains("operator") && list.contains("red,blue") && !list.contains("wl_"), "{list}");
        let (code, text) = call(&["token", "revoke", "otto"], "boss-token");
        assert!(code == Some(0) && text.contains("revoked token otto"), "{text}");
        assert_ne!(call(&["job", "list"], otto).0, Some(0));
    });
}

#[test]
fn the_page_shows_the_text_of_a_token_once() {
    journey(async {
        let broker = Broker::start(BOSS, "");
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/tokens", broker.url)).await;
        browser.fill("Token", "boss-token").await;
        browser.click("Sign in").await;
        browser.sees("No named token yet").await;
        browser.click("New token …").await;
        browser.fill("Name", "bad name").await;
        browser.click("Create").await;
        browser.gives("a problem", "return document.querySelector('dialog .error')?.hidden === false;", json!([])).await;
        browser.fill("Name", "otto").await;
        browser.fill("Groups", "red, <b>blue").await;
        browser.click("Create").await;
        browser.sees("It is shown only now").await;
        let text = browser.run("return document.getElementById('new-token').textContent;", json!([])).await;
        let otto = Api::new(&broker.url).with_token(text.as_str().expect("a text"));
        assert_eq!(otto.get("/api/v1/jobs").await.0, 200);
        browser.click("Hide").await;
        browser.sees("red, <b>blue").await;
        assert!(!browser.text().await.contains(text.as_str().expect("a text")));
        browser.click("Revoke …").await;
        browser.click("Revoke").await;
        browser.sees("No named token yet").await;
        assert_eq!(otto.get("/api/v1/jobs").await.0, 401);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
