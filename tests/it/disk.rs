//! A full disk: nothing is answered with success, `/readyz` says so, and all goes on when there is room again. And what a
//! broker that has not loaded a run, or stands by, says of its counts.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::json;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A small file system of its own.
struct Disk(tempfile::TempDir);

impl Disk {
    /// None without the right to mount one.
    fn mounted(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mount = Command::new("mount").args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(folder.path()).output();
        mount.is_ok_and(|output| output.status.success()).then_some(Self(folder))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    /// Takes all room.
    fn fill(&self) -> PathBuf {
        let path = self.path().join("fill");
        let mut file = fs::File::create(&path).expect("a file");
        let mut chunk = vec![1_u8; 1 << 16];
        while !chunk.is_empty() {
            if file.write_all(&chunk).is_err() {
                chunk.truncate(chunk.len() / 2);
            }
        }
        path
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("--lazy").arg(self.path()).status());
    }
}

#[test]
fn a_full_disk_is_told_and_passes() {
    if crate::support::process::server().is_some() {
        // It is about the files of an SQLite database.
        return;
    }
    let Some(disk) = Disk::mounted("16m") else {
        eprintln!("not tried: this user may not mount a file system");
        return;
    };
    journey(async {
        // The worker sends nothing while the disk is full.
        let broker = Broker::start_in(disk.path(), "127.0.0.1:0", &["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Full", &json!({ "BlockSize": "10" })).await;
        let job = api.job("other", "it.Full", &json!({})).await;
        assert_eq!(api.get("/readyz").await.0, 200);
        let filled = disk.fill();
        let problem = until("it not to be ready", || async { Some(api.get("/readyz").await).filter(|(status, _)| *status != 200) }).await;
        assert_eq!((problem.0, &problem.1["type"]), (503, &json!("/problems/disk")), "{problem:?}");
        // Some may still go where the log has room; what does not, is refused as it should be.
        let refused = || async {
            let request = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{job}/trigger"));
            let body = json!({ "arguments": "x".repeat(8_000) }).to_string();
            let answer = request.header("content-type", "application/json").body(body).send().await.expect("an answer");
            let (status, retry) = (answer.status().as_u16(), answer.headers().contains_key("retry-after"));
            let body: serde_json::Value = serde_json::from_str(&answer.text().await.expect("a text")).expect("JSON");
            assert!(status == 202 || (status == 503 && retry), "{status} {body}");
            (status == 503).then_some(body)
        };
        let body = until("a refused trigger", refused).await;
        assert!(body["detail"].as_str().is_some_and(|text| text.contains("the disk is full")), "{body}");
        let (status, body) = api.post(&format!("/requestqueue/{run}"), &requests(0..200)).await;
        assert!(status == 200 || status == 503, "{status} {body}");
        assert_eq!(api.get("/healthz").await.0, 200);
        fs::remove_file(filled).expect("removed");
        until("it to be ready again", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
        let pushed = || async { (api.post(&format!("/requestqueue/{run}"), &requests(0..200)).await.0 == 200).then_some(()) };
        until("a push to be taken", pushed).await;
        assert_eq!(api.state(&run).await["total"], 200);
    });
}

#[test]
fn counts_are_true_where_a_run_is_not_loaded() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let leader = Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "600000"], "");
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "600000"], "");
        let (api, other) = (Api::new(&leader.url), Api::new(&standby.url));
        let (run, worker) = api.run("it.Counts", &json!({ "BlockSize": "10" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..100)).await.1["accepted"], 100);
        let node = id();
        for _ in 0..2 {
            let block = api.beat(&node, &json!({})).await;
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        let (_, block) = api.get(&format!("/requestqueue/{run}?worker={worker}")).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
        let leased = api.beat(&node, &json!({})).await;
        assert!(leased["blockId"].is_string());

        until("it stands by", || async { (other.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
        // The standby asks the leader.
        for seen in [other.state(&run).await, other.get("/api/v1/runs").await.1["items"][0].clone()] {
            assert_eq!(seen["blocks"], json!({ "ready": 7, "using": 1, "answered": 1, "total": 10 }), "{seen}");
        }
        // As if another standby had passed the call on: this one answers from what is stored.
        let stored = async |path: &str| other.send(other.request(reqwest::Method::GET, path).header("webloom-forwarded", "1")).await.1;
        for seen in [stored(&format!("/api/v1/runs/{run}")).await, stored("/api/v1/runs").await["items"][0].clone()] {
            let counts = ["left", "success", "error", "total", "seen"].map(|key| seen[key].as_u64());
            assert_eq!(counts, [Some(80), Some(20), Some(0), Some(100), Some(100)], "{seen}");
            assert_eq!(seen["blocks"], json!({ "ready": 8, "answered": 1, "total": 10 }), "{seen}");
            assert!(seen.get("consuming").is_none() && seen.get("seenBytes").is_none(), "not known here: {seen}");
        }
        let status = stored(&format!("/api/v1/runs/{run}/status")).await;
        assert_eq!((&status[0]["total"], &status[0]["left"]), (&json!(100), &json!(80)), "{status}");
        // Each look while the next leader loads it is as true.
        drop(leader);
        until("it to be loaded", || async {
            let (status, seen) = other.get(&format!("/api/v1/runs/{run}")).await;
            if status == 200 {
                assert_eq!((&seen["total"], &seen["success"]), (&json!(100), &json!(20)), "{seen}");
            }
            seen["seenBytes"].as_u64()
        })
        .await;
        assert_eq!(other.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        let list = other.get("/api/v1/runs").await.1;
        for seen in [other.state(&run).await, list["items"][0].clone()] {
            assert_eq!((&seen["state"], &seen["total"], &seen["seen"]), (&json!("stopped"), &json!(100), &json!(100)), "{seen}");
            assert_eq!(seen["blocks"]["total"], 10, "{seen}");
        }
    });
}
