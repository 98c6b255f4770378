//! A store of an older version is restored from its backup and opened: all that it has is there, and its runs go on.
//! `tests/stores/make.py` made the archive with the program of that version. The archive is never made again.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::shell::webloom;
use crate::support::{journey, until};
use serde_json::{Value, json};

const OF_0_1_0: &[u8] = include_bytes!("../stores/0.1.0.tar.gz");

#[test]
fn a_store_of_an_older_version_is_opened_and_its_runs_go_on() {
    if crate::support::process::server().is_some() {
        // It is about the file of an SQLite database.
        return;
    }
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        tar::Archive::new(flate2::read::GzDecoder::new(OF_0_1_0)).unpack(folder.path()).expect("unpacked");
        let backup = folder.path().join("backup");
        let ids: Value = serde_json::from_slice(&std::fs::read(backup.join("ids.json")).expect("read")).expect("JSON");
        std::fs::remove_file(backup.join("ids.json")).expect("removed");
        let of = |name: &str| ids[name].as_str().expect("an id").to_owned();
        let (from, database) = (backup.display().to_string(), folder.path().join("home/b.db"));
        webloom("", &["restore", "--from", &from, "--database", &database.display().to_string()]).ok();

        // The time of the archive is long ago: nothing in it may be too old to keep.
        let flags = ["--keep-days", "36500", "--worker-offline", "60000"];
        let broker = Broker::start_in(&folder.path().join("home"), "127.0.0.1:0", &flags, "");
        let api = Api::new(&broker.url);
        let crawl = of("crawl");
        until("the crawl to be loaded", || async { api.state(&crawl).await["consuming"].as_u64() }).await;
        let state = api.state(&crawl).await;
        assert_eq!(
            (&state["state"], &state["total"], &state["success"], &state["error"]),
            (&json!("running"), &json!(40), &json!(20), &json!(10))
        );

        // Its ten pending requests are dispatched; what was not acknowledged is delivered, and what was is not.
        let node = id();
        let block = until("a block", || async {
            let block = api.beat(&node, &json!({})).await;
            (!block.is_null()).then_some(block)
        })
        .await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        let worker = api.worker("old.Crawl").await;
        let mut delivered = 0;
        while delivered < 30 {
            let (status, page) = api.get(&format!("/requestqueue/{crawl}?worker={worker}&max=64&wait=5")).await;
            assert!(status == 200 || status == 204, "{status} {page}");
            let blocks = page["blocks"].as_array().cloned().unwrap_or_default();
            delivered += blocks.iter().map(|block| block["results"].as_array().map_or(0, Vec::len)).sum::<usize>();
            let ids: Vec<&Value> = blocks.iter().map(|block| &block["blockId"]).collect();
            if !ids.is_empty() {
                assert_eq!(api.post(&format!("/requestqueue/{crawl}/ack"), &json!({ "blocks": ids })).await.0, 200);
            }
        }
        assert_eq!(delivered, 30, "ten of the forty were acknowledged before the backup");

        // A task that waited for its worker gets one, with the arguments of its trigger.
        let (_, handler) = api.post("/api/v1/workers", &json!({ "classNames": ["old.absent"], "worker": { "slots": 1 } })).await;
        let handler = handler["workerId"].as_str().expect("an id");
        let tasks = api.heard(handler, "tasks").await.expect("a task");
        assert_eq!((&tasks[0]["identity"], &tasks[0]["arguments"]), (&json!(of("waiting")), &json!({ "from": "the past" })), "{tasks}");

        // The history, the group, the channel and the package.
        let (_, runs) = api.get(&format!("/api/v1/runs?jobId={}&state=success", of("every"))).await;
        assert!(runs["items"].as_array().is_some_and(|runs| runs.len() >= 3), "{runs}");
        assert!(api.get("/api/v1/alerts").await.1.to_string().contains("\"hook\""));
        assert!(api.get("/api/v1/groups").await.1.to_string().contains("nightly"));
        let package = api.request(reqwest::Method::GET, &of("package")).send().await.expect("an answer");
        assert_eq!(package.status(), 200);
        drop(broker);
        let verified = webloom("", &["verify-history", "--database", &database.display().to_string()]).ok();
        assert!(verified.contains(" 0 discrepancies"), "{verified}");
    });
}
