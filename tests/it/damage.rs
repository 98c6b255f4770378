//! Stored results that are lost or damaged: their requests are downloaded again, or come as failed; no poll hangs and no
//! wrong result is delivered. And files that show at the start that something was lost.

use crate::support::api::{Api, id, requests};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A run of three blocks of ten requests that a node has answered and no worker has fetched; its broker is dead.
struct Scene {
    broker: Broker,
    api: Api,
    run: String,
    worker: String,
    node: String,
}

impl Scene {
    async fn new(class: &str, properties: Value) -> Self {
        let broker = Broker::start(&["--grace", "300", "--worker-offline", "60000"], "");
        let api = Api::new(&broker.url);
        let mut all = json!({ "BlockSize": "10" });
        all.as_object_mut().expect("an object").extend(properties.as_object().expect("an object").clone());
        let (run, worker) = api.run(class, &all).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..30)).await.1["accepted"], 30);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        let mut this = Self { api, run, worker, node: id(), broker };
        for _ in 0..3 {
            this.work().await;
        }
        let state = this.api.state(&this.run).await;
        assert_eq!((&state["success"], &state["left"]), (&json!(30), &json!(0)), "{state}");
        this.broker.process.kill();
        this
    }

    fn results(&self) -> std::path::PathBuf {
        self.broker.folder.join("b.db-results")
    }

    /// The node takes a block and reports it.
    async fn work(&self) {
        let call = || async {
            let block = self.api.beat(&self.node, &json!({})).await;
            (!block.is_null()).then_some(block)
        };
        let block = until("a block for the node", call).await;
        assert_eq!(self.api.report(&self.node, &block, 200).await.0, 200);
    }

    async fn restart(&mut self) {
        self.broker.restart("");
        self.api = Api::new(&self.broker.url);
        until("the run to be loaded", || async { self.api.state(&self.run).await["consuming"].as_u64() }).await;
    }

    /// What one call of the worker gets: blocks, and how long it took.
    async fn poll(&self, wait: u64) -> (Vec<Value>, Duration) {
        let since = Instant::now();
        let (status, blocks) = self.api.get(&format!("/requestqueue/{}?worker={}&max=64&wait={wait}", self.run, self.worker)).await;
        assert!(status == 200 || status == 204, "{status} {blocks}");
        (blocks["blocks"].as_array().cloned().unwrap_or_default(), since.elapsed())
    }

    async fn acknowledge(&self, blocks: &[Value]) -> Vec<Value> {
        let ids: Vec<&Value> = blocks.iter().map(|block| &block["blockId"]).collect();
        assert_eq!(self.api.post(&format!("/requestqueue/{}/ack", self.run), &json!({ "blocks": ids })).await.0, 200);
        blocks.iter().flat_map(|block| block["results"].as_array().expect("results").clone()).collect()
    }

    /// Takes what there is until the run is over; all results.
    async fn take_all(&self, mut results: Vec<Value>) -> Vec<Value> {
        while results.len() < 30 {
            let (blocks, _) = self.poll(10).await;
            assert!(!blocks.is_empty(), "nothing came in ten seconds, of {}", results.len());
            results.extend(self.acknowledge(&blocks).await);
        }
        until("the end", || async { (self.api.state(&self.run).await["state"] == "success").then_some(()) }).await;
        results
    }

    async fn lost(&self) -> u64 {
        self.api.metric("webloom_results_lost_total").await as u64
    }
}

fn segment(folder: &Path) -> std::path::PathBuf {
    let mut found: Vec<_> = fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

async fn are_downloaded_again(class: &str, damage: impl FnOnce(&Path), blocks: u64) {
    let mut scene = Scene::new(class, json!({})).await;
    damage(&scene.results());
    scene.restart().await;
    let mut whole = Vec::new();
    if blocks < 3 {
        whole = scene.poll(2).await.0;
    }
    assert_eq!(whole.len() as u64, 3 - blocks, "what is whole is delivered");
    let (more, took) = scene.poll(1).await;
    assert_eq!(more.len(), 0, "{more:?}");
    assert!(took > Duration::from_millis(900), "a call that waits does so, and not for {took:?}");
    let state = scene.api.state(&scene.run).await;
    assert_eq!((&state["left"], &state["success"]), (&json!(10 * blocks), &json!(10 * (3 - blocks))), "{state}");
    assert_eq!(scene.lost().await, blocks);
    for _ in 0..blocks {
        scene.work().await;
    }
    let results = scene.take_all(scene.acknowledge(&whole).await).await;
    for result in &results {
        // `page "` in base64.
        let is_page = result["content"].as_str().is_some_and(|content| content.starts_with("cGFnZSAi"));
        assert!(result["status"] == 200 && is_page && result["error"].is_null(), "{result}");
    }
    assert_eq!(scene.lost().await, blocks, "each once");
}

#[test]
fn a_deleted_segment() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(are_downloaded_again("it.Deleted", |folder| fs::remove_file(segment(folder)).expect("removed"), 3));
}

#[test]
fn a_deleted_folder() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(are_downloaded_again("it.Folder", |folder| fs::remove_dir_all(folder).expect("removed"), 3));
}

#[test]
fn a_segment_that_is_cut() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    let cut = |folder: &Path| {
        let path = segment(folder);
        let length = path.metadata().expect("a file").len();
        fs::OpenOptions::new().write(true).open(path).expect("opened").set_len(length / 2).expect("cut");
    };
    journey(are_downloaded_again("it.Cut", cut, 2));
}

#[test]
fn a_changed_byte_in_each_pack() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    let change = |folder: &Path| {
        let path = segment(folder);
        let mut bytes = fs::read(&path).expect("read");
        let third = bytes.len() / 3;
        for at in [third / 2, third + 20, bytes.len() - 3] {
            bytes[at] ^= 0x10;
        }
        fs::write(path, bytes).expect("written");
    };
    journey(are_downloaded_again("it.Changed", change, 3));
}

#[test]
fn a_block_that_may_not_be_handed_out_again_comes_as_failed() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let mut scene = Scene::new("it.Failed", json!({ "BlockAttempts": "1" })).await;
        fs::remove_file(segment(&scene.results())).expect("removed");
        scene.restart().await;
        let results = scene.take_all(Vec::new()).await;
        for result in results {
            let error = &result["error"];
            assert_eq!((&result["status"], &error["kind"]), (&json!(0), &json!("block")), "{result}");
            assert!(error["message"].as_str().is_some_and(|text| text.contains("lost on the disk of the broker")), "{error}");
        }
        let state = scene.api.state(&scene.run).await;
        assert_eq!((&state["success"], &state["error"]), (&json!(0), &json!(30)), "{state}");
    });
}

/// Starts a broker that is to refuse: what it says.
fn refusal(database: &Path, args: &[&str]) -> String {
    let mut command = Command::new(WEBLOOM);
    command.args(["broker", "--listen", "127.0.0.1:0", "--database"]).arg(database).args(args);
    let output = command.stdin(Stdio::null()).env("RUST_LOG", "off").output().expect("it runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn an_empty_database_beside_results_is_refused() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let mut scene = Scene::new("it.Empty", json!({})).await;
        let database = scene.broker.folder.join("b.db");
        let aside = scene.broker.folder.join("aside.db");
        fs::rename(&database, &aside).expect("moved");
        for suffix in ["-wal", "-shm"] {
            let _ = fs::remove_file(scene.broker.folder.join(format!("b.db{suffix}")));
        }
        let text = refusal(&database, &[]);
        assert!(text.contains("empty database") && text.contains("b.db-results") && text.contains("--accept-lost-data"), "{text}");
        assert!(!database.exists(), "nothing is made");
        assert_eq!(fs::read_dir(scene.results()).expect("the folder").count(), 1, "and nothing deleted");
        // Another way to be empty.
        fs::write(&database, "").expect("an empty file");
        assert!(refusal(&database, &[]).contains("--accept-lost-data"));
        let other = Broker::start_in(&scene.broker.folder, "127.0.0.1:0", &["--accept-lost-data"], "");
        assert_eq!(Api::new(&other.url).get("/readyz").await.0, 200);
        drop(other);
        scene.broker.process.kill();
    });
}

#[test]
fn a_database_that_is_none_is_refused_in_words() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let text = refusal(Path::new("mysql://me:secret@db.example/webloom"), &[]);
    assert!(text.contains("expected the path of an SQLite file") && !text.contains("secret"), "{text}");
    let text = refusal(Path::new("postgres://me:secret@127.0.0.1:1/webloom"), &[]);
    assert!(text.contains("the database cannot be reached") && text.contains("Connection refused") && !text.contains("secret"), "{text}");
    assert!(refusal(folder.path(), &[]).contains("it is a folder, and a file is expected."));
    let file = folder.path().join("notes.txt");
    fs::write(&file, "just some notes, and not the header of a database").expect("a file");
    assert!(refusal(&file, &[]).contains("notes.txt: it is not an SQLite database."));
    let verify = |database: &Path| {
        let output = Command::new(WEBLOOM).arg("verify-history").arg("--database").arg(database).output().expect("it runs");
        assert!(!output.status.success());
        String::from_utf8(output.stderr).expect("text")
    };
    assert!(verify(&folder.path().join("nosuch.db")).contains("nosuch.db: no such file."));
    assert!(verify(folder.path()).contains("it is a folder, and a file is expected."));
    assert!(verify(&file).contains("notes.txt: it is not an SQLite database."));
    assert!(verify(Path::new("mysql://me:secret@db/w")).contains("expected the path of an SQLite file"));
}
