//! A backup is made while a broker works under load, and restored after that broker is killed. Interrupted and damaged backups are
//! refused, and a restore is complete or not there at all.

use crate::support::api::{Api, id, requests};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::shell::{Ended, command, ended, webloom};
use crate::support::{journey, pause, tar_gz, until};
use serde_json::{Value, json};
use std::cell::Cell;
use std::path::Path;
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::time::Instant;

fn text(path: &Path) -> &str {
    path.to_str().expect("a path")
}

fn back_up(database: &Path, to: &Path, faults: &str) -> Ended {
    let mut command = command("", &["backup", "--database", text(database), "--to", text(to)]);
    command.env("WEBLOOM_FAULTS", faults);
    ended(command)
}

fn restore(from: &Path, database: &Path, faults: &str) -> Ended {
    let mut command = command("", &["restore", "--from", text(from), "--database", text(database)]);
    command.env("WEBLOOM_FAULTS", faults);
    ended(command)
}

fn check(from: &Path) -> Ended {
    webloom("", &["restore", "--check", "--from", text(from)])
}

fn verify_history(database: &Path) {
    let said = webloom("", &["verify-history", "--database", text(database)]).ok();
    assert!(said.contains(" 0 discrepancies") && !said.contains(" 0 planned instants"), "{said}");
}

async fn push_package(api: &Api, bytes: &[u8]) -> String {
    let (status, package) = api.send(api.request(reqwest::Method::POST, "/api/v1/packages?name=a.tar.gz").body(bytes.to_vec())).await;
    assert_eq!(status, 200, "{package}");
    package["url"].as_str().expect("a URL").to_owned()
}

async fn package(api: &Api, url: &str) -> Vec<u8> {
    let answer = api.request(reqwest::Method::GET, url).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    answer.bytes().await.expect("its bytes").to_vec()
}

/// A worker fetches and acknowledges until its run is over; the ids of the requests that have results.
async fn finish(api: &Api, run: &str, worker: &str, node: &str) -> Vec<String> {
    let (start, mut done) = (Instant::now(), Vec::new());
    loop {
        let block = api.beat(node, &json!({})).await;
        if !block.is_null() {
            assert_eq!(api.report(node, &block, 200).await.0, 200);
        }
        let (status, page) = api.get(&format!("/requestqueue/{run}?worker={worker}&max=64")).await;
        // 503: the run ends just now.
        assert!([200, 204, 503].contains(&status), "{status} {page}");
        let blocks = page["blocks"].as_array().cloned().unwrap_or_default();
        for result in blocks.iter().flat_map(|block| block["results"].as_array().expect("results")) {
            // `page "` in base64.
            let is_page = result["content"].as_str().is_some_and(|content| content.starts_with("cGFnZSAi"));
            assert!(result["status"] == 200 && is_page, "{result}");
            done.push(result["requestId"].to_string());
        }
        if !blocks.is_empty() {
            let ids: Vec<&Value> = blocks.iter().map(|block| &block["blockId"]).collect();
            assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": ids })).await.0, 200);
        } else if block.is_null() {
            pause(start).await;
        }
        let state = api.state(run).await;
        if state["state"] == "success" {
            done.sort();
            done.dedup();
            assert_eq!(state["total"], done.len(), "each request has one result: {state}");
            return done;
        }
    }
}

async fn take_block(api: &Api, node: &str, run: &str) -> Value {
    until("a block of the run", || async {
        let block = api.beat(node, &json!({})).await;
        (block["identity"] == run).then_some(block)
    })
    .await
}

async fn start_returned(api: &Api, run: &str) {
    until("the end of the start", || async {
        let (status, problem) = api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await;
        // A run that ends just now says: retry.
        assert!(status == 204 || status == 503, "{status} {problem}");
        (status == 204).then_some(())
    })
    .await;
}

/// The id of the run of a job that has only one, when it is there.
async fn only_run(api: &Api, job: &Value) -> String {
    let path = format!("/api/v1/runs?jobId={}", job.as_str().expect("an id"));
    until("a run of the job", || async {
        let (_, page) = api.get(&path).await;
        let runs = page["items"].as_array().cloned().unwrap_or_default();
        assert!(runs.len() <= 1, "{page}");
        Some(runs.first()?["identity"].as_str()?.to_owned())
    })
    .await
}

/// Pushes, reports and triggers until it is told to stop.
fn work(api: &Api, run: &str, job: &str, stop: &Rc<Cell<bool>>, accepted: &Rc<Cell<u64>>) -> Vec<actix_rt::task::JoinHandle<()>> {
    let (pusher, reporter, trigger) = (api.clone(), api.clone(), api.clone());
    let (run, job, pushed, count) = (run.to_owned(), job.to_owned(), Rc::clone(stop), Rc::clone(accepted));
    let push = async move {
        for n in 0.. {
            let (status, answer) = pusher.post(&format!("/requestqueue/{run}"), &requests(n * 20..(n + 1) * 20)).await;
            assert_eq!(status, 200, "{answer}");
            count.set(count.get() + answer["accepted"].as_u64().expect("a count"));
            if pushed.get() {
                return;
            }
        }
    };
    let stopped = Rc::clone(stop);
    let report = async move {
        let node = id();
        while !stopped.get() {
            let block = reporter.beat(&node, &json!({})).await;
            if !block.is_null() {
                assert_eq!(reporter.report(&node, &block, 200).await.0, 200);
            }
        }
    };
    let stopped = Rc::clone(stop);
    let runs = async move {
        while !stopped.get() {
            let run = trigger.trigger(&job).await;
            start_returned(&trigger, &run).await;
        }
    };
    vec![actix_rt::spawn(push), actix_rt::spawn(report), actix_rt::spawn(runs)]
}

#[test]
fn a_backup_that_was_made_under_load_is_restored_elsewhere() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (to, elsewhere) = (folder.path().join("backup"), folder.path().join("elsewhere"));
        let mut broker = Broker::start(&["--grace", "300", "--worker-offline", "60000"], "");
        let api = Api::new(&broker.url);
        let database = broker.folder.join("b.db");
        let bytes = tar_gz("hello", &[7; 100_000], flate2::Compression::none());
        let kept = push_package(&api, &bytes).await;
        // A run with a block that has results, one that a node has, and two that wait.
        let (exact, exact_worker) = api.run("it.Exact", &json!({ "BlockSize": "10" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{exact}"), &requests(0..40)).await.1["accepted"], 40);
        let node = id();
        let block = take_block(&api, &node, &exact).await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        let held = take_block(&api, &node, &exact).await;
        assert_eq!(api.post(&format!("/api/v1/runs/{exact}/pause"), &json!({})).await.0, 200);

        let (many, many_worker) = api.run("it.Many", &json!({ "BlockSize": "5" })).await;
        let scheduled = json!({ "name": "often", "properties": { "FullClassName": "it.Often" },
            "schedule": { "triggers": [{ "every": 100 }] }, "policies": { "overlap": "allow" } });
        let (status, created) = api.post("/api/v1/jobs", &scheduled).await;
        assert_eq!(status, 201, "{created}");
        // It comes while the original works, and after the backup unless this machine is very slow.
        let at = chrono::Utc::now() + chrono::Duration::seconds(4);
        let once = json!({ "name": "once", "properties": { "FullClassName": "it.Often" }, "schedule": { "triggers": [{ "at": at.to_rfc3339() }] } });
        let (status, once) = api.post("/api/v1/jobs", &once).await;
        assert_eq!(status, 201, "{once}");
        api.worker("it.Short").await;
        let job = api.job("short", "it.Short", &json!({})).await;
        let (stop, accepted) = (Rc::new(Cell::new(false)), Rc::new(Cell::new(0)));
        let load = work(&api, &many, &job, &stop, &accepted);
        until("some load", || async { (accepted.get() > 200).then_some(()) }).await;

        let before = accepted.get();
        let (from, target) = (database.clone(), to.clone());
        let said = actix_rt::task::spawn_blocking(move || back_up(&from, &target, "")).await.expect("it ran").ok();
        assert!(said.starts_with("backed up ") && said.contains(" 1 packages, "), "{said}");
        let first = only_run(&api, &once["id"]).await;
        until("the broker to work on", || async { (accepted.get() > before + 200).then_some(()) }).await;
        stop.set(true);
        for task in load {
            task.await.expect("no panic");
        }
        // After the backup: a node takes a block that the backup has as waiting, and one that it does not have.
        assert_eq!(api.post(&format!("/api/v1/runs/{many}/stop"), &json!({})).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{exact}/resume"), &json!({})).await.0, 200);
        let other = id();
        let taken = take_block(&api, &other, &exact).await;
        assert_eq!(api.report(&other, &take_block(&api, &other, &exact).await, 200).await.0, 200);
        assert_eq!(api.post(&format!("/requestqueue/{exact}"), &requests(100..110)).await.1["accepted"], 10);
        let unknown = take_block(&api, &other, &exact).await;
        let (late, _) = api.run("it.Late", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{late}"), &requests(0..10)).await.1["accepted"], 10);
        let of_late = take_block(&api, &other, &late).await;
        broker.process.kill();

        let restored = elsewhere.join("b.db");
        let said = restore(&to, &restored, "").ok();
        assert!(said.starts_with("restored ") && said.contains(" 1 packages, "), "{said}");
        for database in [&database, &to.join("webloom.db"), &restored] {
            verify_history(database);
        }
        check(&to).ok();

        let next = Broker::start_in(&elsewhere, "127.0.0.1:0", &["--grace", "300", "--worker-offline", "60000"], "");
        let api = Api::new(&next.url);
        let brokers = api.get("/api/v1/brokers").await.1;
        assert_eq!(brokers.as_array().map(Vec::len), Some(1), "only the new one: {brokers}");
        assert_eq!(package(&api, &kept).await, bytes);
        until("the run to be loaded", || async { api.state(&many).await["consuming"].as_u64() }).await;
        // What was due after the backup is decided again.
        let manifest: Value = serde_json::from_slice(&std::fs::read(to.join("manifest.json")).expect("read")).expect("JSON");
        let made = manifest["createdAt"].as_str().and_then(|text| text.parse::<chrono::DateTime<chrono::Utc>>().ok()).expect("a time");
        let is_again = only_run(&api, &once["id"]).await != first;
        // It is decided a second ahead at the earliest.
        assert!(is_again || made + chrono::Duration::seconds(2) > at, "made {made}, due {at}");
        let total = api.state(&many).await["total"].as_u64().expect("a count");
        assert!((before..accepted.get()).contains(&total), "{before} were answered before the backup, and {total} are in it");
        // What nodes still have: known blocks are taken, unknown ones are refused.
        let state = api.state(&exact).await;
        assert_eq!((&state["total"], &state["success"], state["pausedAt"].is_string()), (&json!(40), &json!(10), true), "{state}");
        assert_eq!(api.report(&node, &held, 200).await.0, 200, "it had the block before the backup");
        assert_eq!(api.report(&other, &taken, 200).await.0, 200, "it took the block after the backup");
        assert_eq!(api.report(&other, &unknown, 200).await.0, 404, "the block was pushed after the backup");
        assert_eq!(api.report(&other, &of_late, 200).await.0, 404, "the run began after the backup");
        // A new block has the number of the unknown one, and other requests.
        assert_eq!(api.post(&format!("/requestqueue/{exact}"), &requests(200..210)).await.1["accepted"], 10);
        let (status, problem) = api.report(&other, &unknown, 200).await;
        assert_eq!(status, 422, "{problem}");
        assert_eq!(api.post(&format!("/api/v1/runs/{exact}/resume"), &json!({})).await.0, 200);
        for (run, worker, count) in [(&exact, &exact_worker, 50), (&many, &many_worker, total)] {
            start_returned(&api, run).await;
            assert_eq!(finish(&api, run, worker, &id()).await.len() as u64, count);
        }
        drop(next);
        verify_history(&restored);
    });
}

/// The database of a broker that was killed: a run with results of thirty requests, and two packages.
async fn small_store(folder: &Path) -> (String, String, String) {
    let mut broker = Broker::start_in(folder, "127.0.0.1:0", &["--worker-offline", "60000"], "");
    let api = Api::new(&broker.url);
    let (run, worker) = api.run("it.Small", &json!({ "BlockSize": "10" })).await;
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..30)).await.1["accepted"], 30);
    start_returned(&api, &run).await;
    let node = id();
    for _ in 0..3 {
        let block = take_block(&api, &node, &run).await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
    }
    let mut url = String::new();
    for n in 0..2 {
        url = push_package(&api, &tar_gz("hello", &[n; 1_000], flate2::Compression::none())).await;
    }
    broker.process.kill();
    (run, worker, url)
}

/// Starts a broker that is to refuse: what it says.
fn refusal(database: &Path) -> String {
    let mut command = Command::new(WEBLOOM);
    command.args(["broker", "--listen", "127.0.0.1:0", "--database"]).arg(database);
    let output = command.stdin(Stdio::null()).env("RUST_LOG", "off").env_remove("WEBLOOM_TOKEN").output().expect("it runs");
    assert!(!output.status.success());
    String::from_utf8(output.stderr).expect("text")
}

#[test]
fn a_backup_and_a_restore_may_be_killed_at_every_step() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, to, elsewhere) = (folder.path().join("home"), folder.path().join("backup"), folder.path().join("elsewhere"));
        let (database, restored) = (home.join("b.db"), elsewhere.join("b.db"));
        let (run, worker, url) = small_store(&home).await;
        let mut kills = 0;
        while !to.join("manifest.json").exists() {
            kills += 1;
            let killed = back_up(&database, &to, &format!("backup.step=die@{kills}"));
            assert_eq!(killed.code, None, "it was killed: {killed:?}");
            if !to.join("manifest.json").exists() {
                check(&to).refused(1, "it is incomplete. The backup was interrupted");
                restore(&to, &restored, "").refused(1, "it is incomplete");
                assert!(!elsewhere.exists(), "nothing is made");
            }
        }
        assert!(kills > 5, "{kills} steps");
        // The last one died when all was done.
        check(&to).ok();
        back_up(&database, &to, "").refused(1, "it holds a backup already");
        let again = folder.path().join("again");
        assert_eq!(back_up(&database, &again, "backup.step=die@4").code, None);
        back_up(&database, &again, "").ok();
        check(&again).ok();

        let mut kills = 0;
        while !restored.exists() {
            kills += 1;
            let killed = restore(&to, &restored, &format!("restore.step=die@{kills}"));
            assert_eq!(killed.code, None, "it was killed: {killed:?}");
            if elsewhere.join("b.db.restoring").exists() {
                assert!(refusal(&restored).contains("a restore was interrupted"));
                assert!(!restored.exists(), "no broker begins a store there");
            }
        }
        assert!(kills > 8, "{kills} steps");
        restore(&to, &restored, "").refused(1, "a restore replaces nothing");
        let broker = Broker::start_in(&elsewhere, "127.0.0.1:0", &["--worker-offline", "60000"], "");
        let api = Api::new(&broker.url);
        restore(&to, &restored, "").refused(1, "a broker or another restore uses it");
        assert_eq!(package(&api, &url).await, tar_gz("hello", &[1; 1_000], flate2::Compression::none()));
        until("the run to be loaded", || async { api.state(&run).await["consuming"].as_u64() }).await;
        assert_eq!(finish(&api, &run, &worker, &id()).await.len(), 30);
    });
}

#[test]
fn a_damaged_backup_is_refused_and_a_full_disk_is_told() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (home, to, restored) = (folder.path().join("home"), folder.path().join("backup"), folder.path().join("r.db"));
        small_store(&home).await;
        let manifest = webloom("", &["backup", "--json", "--database", text(&home.join("b.db")), "--to", text(&to)]).json();
        assert_eq!(manifest["counts"], json!({ "jobs": 1, "runs": 1, "openRuns": 1, "results": 3, "packages": 2 }));
        assert_eq!(manifest["files"].as_array().map(Vec::len), Some(4), "{manifest}");
        let segment = to.join("webloom.db-results/1.seg");
        let whole = std::fs::read(&segment).expect("read");
        std::fs::write(&segment, &whole[1..]).expect("cut");
        restore(&to, &restored, "").refused(1, "webloom.db-results/1.seg is damaged: it has ");
        let mut changed = whole.clone();
        changed[whole.len() / 2] ^= 1;
        std::fs::write(&segment, changed).expect("changed");
        check(&to).refused(1, "webloom.db-results/1.seg was changed: its checksum does not match.");
        assert!(!restored.exists());
        webloom("", &["backup", "--to", "x", "--database", "postgres://me:secret@db/w"])
            .refused(1, "--database: this is a PostgreSQL database");
        webloom("", &["backup", "--database", text(&home.join("b.db"))]).refused(2, "--to <FOLDER>");

        let disk = folder.path().join("disk");
        std::fs::create_dir(&disk).expect("a folder");
        let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&disk).output();
        if mounted.is_ok_and(|output| output.status.success()) {
            let full = back_up(&home.join("b.db"), &disk.join("b"), "");
            let status = Command::new("umount").arg("--lazy").arg(&disk).status().expect("it runs");
            assert!(status.success());
            full.refused(1, "kB free. Make room, or name a folder on another disk.");
        } else {
            eprintln!("not tried: this user may not mount a file system");
        }
    });
}
