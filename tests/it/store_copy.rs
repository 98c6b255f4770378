//! A store is copied from SQLite to PostgreSQL and back: nothing is missing, a broker goes on with it, and an interrupted copy is no store.

use crate::support::api::{Api, requests};
use crate::support::postgres::Cluster;
use crate::support::process::Broker;
use crate::support::shell::{Ended, command, ended, webloom};
use crate::support::{journey, tar_gz, until};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::Path;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn copy(from: &str, to: &str, faults: &str) -> Ended {
    let mut command = command("", &["store", "copy", "--json", "--from", from, "--to", to]);
    command.env("WEBLOOM_FAULTS", faults);
    ended(command)
}

/// What was copied, by table: rows and checksum.
fn parts(copied: &str) -> HashMap<String, (u64, String)> {
    let report: Value = serde_json::from_str(copied).expect("JSON");
    assert_eq!(report["warnings"], json!([]));
    let part = |part: &Value| {
        let text = |key: &str| part[key].as_str().expect("a text").to_owned();
        (text("table"), (part["rows"].as_u64().expect("a number"), text("checksum")))
    };
    report["items"].as_array().expect("a list").iter().map(part).collect()
}

fn verify(database: &str) {
    let said = webloom("", &["verify-history", "--database", database]).ok();
    assert!(said.contains(" 0 discrepancies") && !said.contains(" 0 planned instants"), "{said}");
}

/// A broker on this database, with a home of its own.
fn broker(home: &Path, database: &str) -> Broker {
    std::fs::create_dir_all(home).expect("a folder");
    std::fs::write(home.join("b.url"), database).expect("written");
    Broker::start_in(home, "127.0.0.1:0", &[], "")
}

/// What a store has, that a broker on a copy is asked for.
struct Content {
    run: String,
    worker: String,
    package: String,
    bytes: Vec<u8>,
    jobs: Value,
    log: Value,
}

async fn logs(api: &Api, run: &str) -> Value {
    let (status, log) = api.get(&format!("/api/v1/runs/{run}/logs")).await;
    assert_eq!(status, 200, "{log}");
    log["items"].clone()
}

async fn jobs(api: &Api) -> Value {
    let (_, page) = api.get("/api/v1/jobs?sort=name").await;
    page["items"].as_array().expect("jobs").iter().map(|job| json!([job["id"], job["name"], job["schedule"], job["version"]])).collect()
}

/// Fills a store: a run with results that wait, one that was acknowledged, a schedule with fires, logs, a package, a channel, a group.
async fn fill(api: &Api) -> Content {
    let (run, worker) = api.run("it.Copied", &json!({ "BlockSize": "2" })).await;
    api.heard(&worker, "start").await.expect("it begins");
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..10)).await.0, 200);
    let node = crate::support::api::id();
    for status in [200, 200, 404, 200] {
        let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
        assert_eq!(api.report(&node, &block, status).await.0, 200);
    }
    let (status, page) = api.get(&format!("/requestqueue/{run}?worker={worker}&wait=5")).await;
    assert_eq!(status, 200, "{page}");
    assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [page["blockId"]] })).await.0, 200, "{page}");
    let line = json!([{ "level": "info", "text": "half \u{1f98a} 'quoted' \"text\"\nnext line" }]);
    let (status, answer) = api.post(&format!("/api/v1/runs/{run}/logs"), &line).await;
    assert!(status < 300, "{status} {answer}");
    let often = json!({ "name": "often", "jobType": "block", "properties": { "FullClassName": "it.None" },
        "schedule": { "triggers": [{ "every": 200 }] }, "policies": { "overlap": "allow" } });
    assert_eq!(api.post("/api/v1/jobs", &often).await.0, 201);
    until("fires", || async {
        let (_, runs) = api.get("/api/v1/runs?limit=100").await;
        (runs["items"].as_array().map_or(0, Vec::len) > 3).then_some(())
    })
    .await;
    let channel = json!({ "name": "c", "kind": "webhook", "target": "http://127.0.0.1:1/x", "filter": { "events": ["failed"] } });
    let (status, answer) = api.post("/api/v1/alerts", &channel).await;
    assert_eq!(status, 201, "{answer}");
    let bytes = tar_gz("hello", &vec![7; 3 << 20], flate2::Compression::none());
    let sent = api.request(reqwest::Method::POST, "/api/v1/packages?name=a.tar.gz").body(bytes.clone());
    let (status, stored) = api.send(sent).await;
    assert_eq!(status, 200, "{stored}");
    let package = stored["url"].as_str().expect("a URL").to_owned();
    Content { package, bytes, jobs: jobs(api).await, log: logs(api, &run).await, run, worker }
}

/// A broker on the copy has all of it, and goes on.
async fn check(api: &Api, content: &Content) {
    assert_eq!(jobs(api).await, content.jobs);
    let log = logs(api, &content.run).await;
    assert_eq!(log.as_array().expect("lines")[..content.log.as_array().expect("lines").len()], content.log.as_array().expect("lines")[..]);
    let answer = api.request(reqwest::Method::GET, &content.package).send().await.expect("an answer");
    assert_eq!(answer.bytes().await.expect("its bytes"), content.bytes);
    let page = until("the results", || async {
        let (status, page) = api.get(&format!("/requestqueue/{}?max=64&wait=5", content.run)).await;
        (status == 200).then_some(page)
    })
    .await;
    let blocks = page["blocks"].as_array().cloned().unwrap_or_else(|| vec![page.clone()]);
    let results: Vec<&Value> = blocks.iter().flat_map(|block| block["results"].as_array().expect("results")).collect();
    assert!(results.iter().any(|result| result["status"] == 200 && result["content"] != ""), "{page}");
    // New rows take numbers that no other has.
    let job = api.job("new", "it.New", &json!({ "A": "1", "B": "2" })).await;
    api.worker("it.New").await;
    let run = api.trigger(&job).await;
    assert_eq!(api.state(&run).await["jobName"], "new");
}

#[test]
fn a_store_goes_to_a_server_and_back_and_nothing_is_lost() {
    if crate::support::process::server().is_some() {
        // It begins with files.
        return;
    }
    journey(async {
        let (cluster, home) = (Cluster::start(&[]), tempfile::tempdir().expect("a folder"));
        let at = |name: &str| home.path().join(name);
        let (first, url, last) = (at("first.db"), cluster.url("webloom", ""), at("last.db"));
        let mut original = broker(&at("1"), text(&first));
        let content = fill(&Api::new(&original.url)).await;
        copy(text(&first), &url, "").refused(1, &format!("the broker at {} (process ", original.url));
        original.process.kill();

        let there = parts(&copy(text(&first), &url, "").ok());
        for (table, least) in [("run", 4), ("job", 2), ("block", 5), ("fire", 3), ("run_log", 1), ("results", 3), ("packages", 1)] {
            assert!(there[table].0 >= least, "{table}: {there:?}");
        }
        // No table of the server was forgotten.
        let tables =
            "SELECT string_agg(table_name, ' ') FROM information_schema.tables WHERE table_schema = 'public' AND table_name !~ '^result_'";
        let mut left_out: Vec<String> =
            cluster.sql("webloom", tables).split(' ').filter(|table| !there.contains_key(*table)).map(ToOwned::to_owned).collect();
        left_out.sort();
        assert_eq!(left_out, ["__diesel_schema_migrations", "broker", "leader", "package_piece", "run_owner", "segment"]);
        copy(text(&first), &url, "").refused(1, "it is not empty: the table ");
        let back = parts(&copy(&url, text(&last), "").ok());
        assert_eq!(back, there, "the second copy equals the first store");
        for database in [text(&first), &url, text(&last)] {
            verify(database);
        }
        for (name, database) in [("2", url.as_str()), ("3", text(&last))] {
            let broker = broker(&at(name), database);
            let api = Api::new(&broker.url);
            assert_eq!(api.get("/readyz").await.0, 200, "it leads");
            let (_, brokers) = api.get("/api/v1/brokers").await;
            assert!(brokers[0]["term"].as_i64().is_some_and(|term| term > 2), "later than the source: {brokers}");
            check(&api, &content).await;
            if name == "2" {
                copy(&url, text(&at("never.db")), "").refused(1, "leads it");
            }
            drop(broker);
            verify(database);
        }
        assert_ne!(content.worker, "");
    });
}

#[test]
fn a_copy_that_is_killed_at_any_moment_is_no_store() {
    if crate::support::process::server().is_some() {
        return;
    }
    journey(async {
        let (cluster, home) = (Cluster::start(&[]), tempfile::tempdir().expect("a folder"));
        let at = |name: &str| home.path().join(name);
        let first = at("first.db");
        let mut original = broker(&at("1"), text(&first));
        fill(&Api::new(&original.url)).await;
        original.process.kill();
        let whole = parts(&copy(text(&first), text(&at("whole.db")), "").ok());
        let mut refused = 0;
        for to in [cluster.url("webloom", ""), text(&at("target.db")).to_owned()] {
            for step in (1..).step_by(4) {
                let ended = copy(text(&first), &to, &format!("copy.step=die@{step}"));
                if ended.code == Some(0) {
                    // It has fewer steps.
                    assert_eq!(parts(&ended.out), whole);
                    assert!(step > 40, "{step}");
                    break;
                }
                assert_eq!(ended.code, None, "killed: {ended:?}");
                if step == 1 {
                    // Nothing is in it yet, and nothing says what it is to be.
                    continue;
                }
                if webloom("", &["verify-history", "--database", &to]).code == Some(0) {
                    // The last step was after the end: then it is whole.
                    assert!(step > 40, "{step}");
                    break;
                }
                let start = webloom("", &["broker", "--listen", "127.0.0.1:0", "--database", &to]);
                start.refused(1, "was interrupted, or is in progress");
                webloom("", &["verify-history", "--database", &to]).refused(1, "was interrupted, or is in progress");
                refused += 1;
            }
            verify(&to);
        }
        assert!(refused > 20, "{refused}");
    });
}
