//! Secrets: who sees them in answers, what a mask that comes back does, and who may read the files that hold them.

use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

const TOKENS: &[&str] = &["--token", "admin:boss-token,readonly:look-token,worker:work-token"];
const SECRETS: [&str; 10] = ["BEARER1", "QUERY1", "BODY1", "SIGN1", "COOKIE1", "ENV1", "FILE1", "SITE1", "PROXY1", "HOOK1"];

fn callback_job() -> Value {
    json!({ "name": "calls", "jobType": "callback", "callback": {
        "url": "http://127.0.0.1:1/hook?at={fireTime}&key=QUERY1", "method": "POST", "headers": { "Authorization": "Bearer BEARER1" },
        "body": "{\"pass\":\"BODY1\"}", "secret": "SIGN1",
    } })
}

fn block_job() -> Value {
    json!({ "name": "crawls", "properties": {
        "FullClassName": "a.B", "Cookies": "session=COOKIE1", "Environment": "{\"PASS\": \"ENV1\"}", "Files": "{\"key.pem\":\"FILE1\"}",
        "Site": "{\"headers\":{\"X-Key\":\"SITE1\"},\"proxy\":\"http://me:PROXY1@127.0.0.1:3128\"}",
    } })
}

fn secrets_in(text: &str) -> Vec<&'static str> {
    SECRETS.into_iter().filter(|secret| text.contains(secret)).collect()
}

#[test]
fn only_an_admin_sees_secrets_and_a_mask_that_comes_back_changes_nothing() {
    journey(async {
        let broker = Broker::start(&[TOKENS, &["--callback-allow", "127.0.0.1"]].concat(), "");
        let admin = Api::new(&broker.url).with_token("boss-token");
        let (mut ids, mut originals) = (Vec::new(), Vec::new());
        for job in [callback_job(), block_job()] {
            let (status, job) = admin.post("/api/v1/jobs", &job).await;
            assert_eq!(status, 201, "{job}");
            ids.push(job["id"].as_str().expect("an id").to_owned());
            originals.push(job);
        }
        let hook = json!({ "name": "hook", "kind": "webhook", "target": "http://127.0.0.1:1/services/HOOK1", "secret": "SIGN1" });
        let (status, hook) = admin.post("/api/v1/alerts", &hook).await;
        assert_eq!(status, 201, "{hook}");
        let hook_path = format!("/api/v1/alerts/{}", hook["id"].as_str().expect("an id"));
        assert_eq!(admin.post(&format!("/api/v1/jobs/{}/trigger", ids[0]), &json!({})).await.0, 202);
        let mut paths: Vec<String> =
            ["/api/v1/jobs", "/api/v1/jobs/export", "/api/v1/changes", "/api/v1/alerts", "/api/v1/runs", "/api/v1/alerts/events"]
                .map(str::to_owned)
                .into();
        paths.push(hook_path.clone());
        for id in &ids {
            paths.extend(["", "/history", "/next", "/fires"].map(|rest| format!("/api/v1/jobs/{id}{rest}")));
        }
        for path in &paths {
            for token in ["look-token", "work-token"] {
                for accept in ["application/json", "application/yaml"] {
                    let request = admin.with_token(token).request(reqwest::Method::GET, path).header("accept", accept);
                    let answer = request.send().await.expect("an answer");
                    assert_eq!(answer.status(), 200, "{path}");
                    let text = answer.text().await.expect("a text");
                    assert!(secrets_in(&text).is_empty(), "{token} {path}: {:?} in {text}", secrets_in(&text));
                }
            }
        }
        let exported = admin.get("/api/v1/jobs/export").await;
        let text = admin.request(reqwest::Method::GET, "/api/v1/jobs/export").send().await.expect("an answer").text().await.expect("YAML");
        assert_eq!(secrets_in(&text).len(), 8, "an admin takes them along: {text} {exported:?}");

        // Whoever may only look hands the document on, and an admin sends it.
        let looking = admin.with_token("look-token");
        for (id, original) in ids.iter().zip(&originals) {
            let path = format!("/api/v1/jobs/{id}");
            let (_, masked) = looking.get(&path).await;
            let members = ["name", "properties", "callback"];
            let mut sent: Value =
                members.iter().map(|name| ((*name).to_owned(), masked[name].clone())).collect::<serde_json::Map<_, _>>().into();
            if sent["callback"].is_null() {
                sent.as_object_mut().expect("an object").remove("callback");
            }
            sent["description"] = "changed".into();
            let (status, changed) = admin.put(&path, &sent).await;
            assert_eq!(status, 200, "{changed}");
            assert_eq!((&changed["description"], &changed["properties"]), (&json!("changed"), &original["properties"]));
            assert_eq!(changed["callback"], original["callback"]);
            // Under another name nothing is stored that the masks could stand for.
            sent["name"] = "another".into();
            sent["jobType"] = original["jobType"].clone();
            let (status, problem) = admin.post("/api/v1/jobs", &sent).await;
            assert_eq!((status, problem["type"].as_str()), (422, Some("/problems/invalid")), "{problem}");
        }
        let (_, masked) = looking.get(&hook_path).await;
        assert_eq!(masked["target"], "http://127.0.0.1:1/**hidden**");
        let (status, changed) = admin.put(&hook_path, &json!({ "target": masked["target"], "isEnabled": false })).await;
        assert_eq!((status, &changed["target"]), (200, &hook["target"]), "{changed}");
        assert_eq!(admin.put(&hook_path, &json!({ "target": "http://127.0.0.2:1/**hidden**" })).await.0, 422);
    });
}

/// A receiver that answers one call with a secret in each part.
fn receiver() -> (std::net::SocketAddr, std::thread::JoinHandle<()>) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    let answers = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a call");
        let mut request = Vec::new();
        let mut piece = [0; 1024];
        while !request.ends_with(b"\r\n\r\n") {
            let read = stream.read(&mut piece).expect("a request");
            assert!(read > 0, "a whole request");
            request.extend_from_slice(&piece[..read]);
        }
        let answer = "HTTP/1.1 200 OK\r\nLocation: http://me:LOCATION1@x.test/?key=LOCATION2\r\nContent-Length: 7\r\nConnection: close\r\n\r\nANSWER1";
        stream.write_all(answer.as_bytes()).expect("it is sent");
    });
    (address, answers)
}

#[test]
fn only_an_admin_sees_what_a_callback_was_answered() {
    journey(async {
        let broker = Broker::start(&[TOKENS, &["--callback-allow", "127.0.0.1"]].concat(), "");
        let admin = Api::new(&broker.url).with_token("boss-token");
        let (address, answers) = receiver();
        let job = json!({ "name": "asks", "jobType": "callback", "callback": { "url": format!("http://{address}/?key=QUERY1"), "method": "GET" } });
        let (status, job) = admin.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let run = admin.trigger(job["id"].as_str().expect("an id")).await;
        let path = format!("/api/v1/runs/{run}");
        let done = until("the end of the run", || async { Some(admin.get(&path).await.1).filter(|run| run["state"] == "success") }).await;
        answers.join().expect("it was called");
        assert_eq!(done["result"]["body"], "ANSWER1", "{done}");
        assert!(done.to_string().contains("LOCATION2"), "{done}");
        for token in ["look-token", "work-token"] {
            for path in [path.as_str(), "/api/v1/runs"] {
                let (status, shown) = admin.with_token(token).get(path).await;
                assert_eq!(status, 200, "{shown}");
                let shown = shown.to_string();
                for secret in ["ANSWER1", "LOCATION1", "LOCATION2", "QUERY1"] {
                    assert!(!shown.contains(secret), "{secret} in {shown}");
                }
                assert!(shown.contains("**hidden**") && shown.contains("\"status\":200"), "{shown}");
            }
        }
    });
}

fn below(folder: &Path, out: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder").flatten() {
        out.push(entry.path());
        if entry.path().is_dir() {
            below(&entry.path(), out);
        }
    }
}

/// Files that others may read, as they would be seen by one who may go through every folder.
fn open_files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    below(folder, &mut all);
    all.retain(|path| path.symlink_metadata().is_ok_and(|meta| meta.permissions().mode() & 0o077 != 0));
    all
}

#[test]
fn files_are_for_their_owner_alone_also_those_of_before() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        until("the agent is there", || async { (api.get("/api/v1/nodes").await.1["items"][0]["isOnline"] == true).then_some(()) }).await;
        let package = api.request(reqwest::Method::POST, "/api/v1/packages").body("PK\x05\x06");
        let (_, _) = api.send(package).await;
        assert_eq!(open_files(&broker.folder), Vec::<PathBuf>::new());
        assert_eq!(open_files(folder.path()), Vec::<PathBuf>::new());
        let names: Vec<_> = std::fs::read_dir(&broker.folder).expect("a folder").flatten().map(|entry| entry.file_name()).collect();
        for name in ["b.db", "b.db-wal", "b.db-shm", "b.db-results"] {
            assert!(names.iter().any(|there| there == name), "{name} in {names:?}");
        }
        broker.process.kill();
        for name in ["b.db", "b.db-wal", "b.db-results"] {
            std::fs::set_permissions(broker.folder.join(name), std::fs::Permissions::from_mode(0o755)).expect("ours");
        }
        broker.restart("");
        assert_eq!(open_files(&broker.folder), Vec::<PathBuf>::new());
    });
}
