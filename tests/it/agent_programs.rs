//! Programs on a real agent, ordered by a real broker.

use crate::support::api::Api;
use crate::support::process::{Broker, Process, WEBLOOM, agent};
use crate::support::{journey, until};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// A broker and an agent that starts what it is told to.
struct Fleet {
    api: Api,
    broker: Broker,
    agent: Process,
    folder: tempfile::TempDir,
}

const FLAGS: [&str; 7] = ["--applications", "--application-users", "root", "--package-hosts", "*", "--heartbeat", "1"];

fn start_agent(broker: &str, folder: &Path) -> Process {
    agent(broker, folder, &FLAGS)
}

/// Starts it from a shell that permits few open files.
fn start_agent_with_few_files(broker: &str, folder: &Path) -> Process {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -S -n 300 && exec \"$@\"", "sh", WEBLOOM, "agent", "--broker", broker, "--data-dir"]).arg(folder);
    command.args(FLAGS).env("RUST_LOG", "off").stdin(Stdio::null()).stdout(Stdio::null());
    Process(command.spawn().expect("the agent starts"))
}

impl Fleet {
    async fn start() -> Self {
        Self::start_with(start_agent).await
    }

    async fn start_with(start_agent: fn(&str, &Path) -> Process) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = Broker::start_in(folder.path(), "127.0.0.1:0", &[], "");
        let api = Api::new(&broker.url);
        let agent = start_agent(&broker.url, folder.path());
        let fleet = Self { api, broker, agent, folder };
        fleet.there().await;
        fleet
    }

    async fn there(&self) {
        let is_there = || async {
            let (_, nodes) = self.api.get("/api/v1/nodes").await;
            (nodes["items"][0]["isOnline"] == true && nodes["items"][0]["load"].is_object()).then_some(())
        };
        until("the agent to be there", is_there).await;
    }

    /// Triggers a program; the identity of its run. The machine of a test may be as busy as it likes.
    async fn run(&self, properties: &Value, policies: &Value) -> String {
        let mut all = json!({ "MaxCpu": "101", "MinFreeMemory": "0", "Grace": "300" });
        for (key, value) in properties.as_object().expect("an object") {
            all[key] = value.clone();
        }
        let name = crate::support::api::id();
        let input = json!({ "name": name, "jobType": "application", "properties": all, "policies": policies });
        let (status, job) = self.api.post("/api/v1/jobs", &input).await;
        assert_eq!(status, 201, "{job}");
        self.api.trigger(job["id"].as_str().expect("an id")).await
    }

    /// Triggers a line for `sh`.
    async fn sh(&self, script: &str) -> String {
        self.run(
            &json!({ "Application": "sh", "Arguments": json!(["-c", script, "sh", "{runId}", "{nodeIndex}"]).to_string() }),
            &json!({}),
        )
        .await
    }

    async fn over(&self, run: &str) -> Value {
        // A broker that was killed leaves connections behind that answer nothing.
        let path = format!("/api/v1/runs/{run}");
        let ended = || async { Some(self.api.get(&path).await.1).filter(|run| !run["finishTime"].is_null()) };
        until("the run's end", ended).await
    }

    async fn running(&self, run: &str) {
        until("it to run", || async { (self.api.state(run).await["state"] == "running").then_some(()) }).await;
    }

    async fn instance(&self, run: &str) -> Value {
        self.api.get(&format!("/api/v1/runs/{run}/instances")).await.1["items"][0].clone()
    }

    /// What it wrote: source and text.
    async fn output(&self, run: &str) -> Vec<(String, String)> {
        let (_, page) = self.api.get(&format!("/api/v1/runs/{run}/logs?limit=1000")).await;
        let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
        let lines = page["items"].as_array().expect("lines").iter().filter(|line| line["source"] != "broker");
        lines.map(|line| (text(line, "source"), text(line, "text"))).collect()
    }

    /// Whether a process whose command line holds this text lives.
    fn lives(text: &str) -> bool {
        let processes = std::fs::read_dir("/proc").expect("processes").flatten();
        processes
            .into_iter()
            .any(|entry| std::fs::read(entry.path().join("cmdline")).is_ok_and(|line| String::from_utf8_lossy(&line).contains(text)))
    }

    async fn push(&self, bytes: Vec<u8>) -> String {
        let (status, package) = self.api.send(self.api.request(reqwest::Method::POST, "/api/v1/packages").body(bytes)).await;
        assert_eq!(status, 200, "{package}");
        package["url"].as_str().expect("an address").to_owned()
    }
}

/// A tar.gz with these entries: name and text.
fn package(entries: &[(&str, &str)]) -> Vec<u8> {
    let mut gz = GzEncoder::new(Vec::new(), Compression::default());
    for (name, text) in entries {
        let mut head = [0_u8; 512];
        head[..name.len()].copy_from_slice(name.as_bytes());
        head[100..107].copy_from_slice(b"0000755");
        head[108..115].copy_from_slice(b"0000000");
        head[116..123].copy_from_slice(b"0000000");
        head[124..135].copy_from_slice(format!("{:011o}", text.len()).as_bytes());
        head[136..147].copy_from_slice(b"00000000000");
        head[148..156].fill(b' ');
        head[156] = b'0';
        head[257..265].copy_from_slice(b"ustar\x0000");
        let sum: u32 = head.iter().map(|byte| u32::from(*byte)).sum();
        head[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        gz.write_all(&head).expect("written");
        let mut body = text.as_bytes().to_vec();
        body.resize(text.len().next_multiple_of(512), 0);
        gz.write_all(&body).expect("written");
    }
    gz.write_all(&[0; 1_024]).expect("written");
    gz.finish().expect("finished")
}

#[test]
fn an_agent_raises_its_limit_of_open_files_and_its_programs_get_the_usual_one() {
    journey(async {
        let fleet = Fleet::start_with(start_agent_with_few_files).await;
        let limits = std::fs::read_to_string(format!("/proc/{}/limits", fleet.agent.0.id())).expect("limits");
        let files = limits.lines().find_map(|line| line.strip_prefix("Max open files")).expect("a line");
        let [soft, hard] = [0, 1].map(|n| files.split_whitespace().nth(n).expect("a number"));
        assert_eq!(soft, hard);
        let run = fleet.sh("ulimit -S -n; ulimit -H -n").await;
        fleet.over(&run).await;
        let lines: Vec<_> = fleet.output(&run).await.into_iter().map(|(_, text)| text).collect();
        assert_eq!(lines, ["300", hard]);
    });
}

#[test]
fn a_program_ends_well_or_with_a_code() {
    journey(async {
        let fleet = Fleet::start().await;
        let run = fleet.sh("echo out $1 $2; echo err >&2").await;
        let end = fleet.over(&run).await;
        assert_eq!(end["state"], "success", "{end}");
        until("it to be counted", || async {
            let metrics = reqwest::get(format!("{}/metrics", fleet.api.url)).await.ok()?.text().await.ok()?;
            metrics.contains("webloom_runs_ended_total{state=\"success\"} 1\n").then_some(())
        })
        .await;
        let instance = fleet.instance(&run).await;
        assert_eq!((&instance["result"]["code"], &instance["lines"]), (&json!(0), &json!(2)), "{instance}");
        let mut output = fleet.output(&run).await;
        output.sort();
        assert_eq!(output, [("0:stderr".to_owned(), "err".to_owned()), ("0:stdout".to_owned(), format!("out {run} 0"))]);
        let end = fleet.over(&fleet.sh("exit 7").await).await;
        assert_eq!((&end["state"], &end["reason"]), (&json!("failed"), &json!("exit code 7")));
        let missing = fleet.run(&json!({ "Application": "no-such-program-here" }), &json!({})).await;
        let end = fleet.over(&missing).await;
        assert!(end["reason"].as_str().is_some_and(|why| why.starts_with("not-found: ")), "{end}");
    });
}

#[test]
fn a_program_that_does_not_want_to_end_is_killed() {
    journey(async {
        let fleet = Fleet::start().await;
        let mark = crate::support::api::id();
        let run = fleet.sh(&format!("trap '' TERM; echo ready; while :; do sleep 0.1; done # {mark}")).await;
        fleet.running(&run).await;
        until("its first line", || async { (!fleet.output(&run).await.is_empty()).then_some(()) }).await;
        assert_eq!(fleet.api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        let end = fleet.over(&run).await;
        assert_eq!(end["state"], "stopped", "{end}");
        let instance = fleet.instance(&run).await;
        assert_eq!((&instance["state"], &instance["result"]["signal"]), (&json!("stopped"), &json!(9)), "{instance}");
        assert!(!Fleet::lives(&mark));
        let late = fleet.run(&json!({ "Application": "sleep", "Arguments": "600" }), &json!({ "timeout": 500 })).await;
        assert_eq!(fleet.over(&late).await["state"], "failed");
    });
}

#[test]
fn programs_live_through_the_death_of_their_broker() {
    journey(async {
        let mut fleet = Fleet::start().await;
        let run = fleet.sh("echo before; sleep 2; echo after").await;
        fleet.running(&run).await;
        fleet.broker.kill_and_restart();
        let end = fleet.over(&run).await;
        assert_eq!((&end["state"], &end["attempt"]), (&json!("success"), &json!(1)), "{end}");
        let texts: Vec<String> = fleet.output(&run).await.into_iter().map(|line| line.1).collect();
        assert_eq!(texts, ["before", "after"], "each once");
    });
}

#[test]
fn programs_of_an_agent_that_died_are_found_or_lost_and_not_started_twice() {
    journey(async {
        let mut fleet = Fleet::start().await;
        let run = fleet.sh("echo started; sleep 3").await;
        fleet.running(&run).await;
        until("its first line", || async { (!fleet.output(&run).await.is_empty()).then_some(()) }).await;
        fleet.agent.kill();
        fleet.agent = start_agent(&fleet.broker.url, fleet.folder.path());
        let end = fleet.over(&run).await;
        assert!(end["state"] == "success" || end["reason"].as_str().is_some_and(|why| why.starts_with("lost: ")), "{end}");
        let started = fleet.output(&run).await.into_iter().filter(|line| line.1 == "started").count();
        assert_eq!(started, 1);
    });
}

#[test]
fn packages_are_fetched_from_the_broker_and_bad_ones_are_not_kept() {
    journey(async {
        let fleet = Fleet::start().await;
        let good = fleet.push(package(&[("bin/hello", "#!/bin/sh\necho hello $1\n"), ("data", "x")])).await;
        let run = fleet.run(&json!({ "Package": good, "Application": "bin/hello", "Arguments": "'you there'" }), &json!({})).await;
        let end = fleet.over(&run).await;
        assert_eq!(end["state"], "success", "{end}");
        assert_eq!(fleet.output(&run).await, [("0:stdout".to_owned(), "hello you there".to_owned())]);
        // What agents would refuse the broker does not keep.
        for (bad, why) in [
            (package(&[("../evil", "x")]), "leads out"),
            (b"neither zip nor tar.gz, whatever it says".to_vec(), "neither a zip nor a tar.gz"),
        ] {
            let push = fleet.api.request(reqwest::Method::POST, "/api/v1/packages").body(bad);
            let (status, problem) = fleet.api.send(push).await;
            assert!(status == 422 && problem["detail"].as_str().is_some_and(|text| text.contains(why)), "{status} {problem}");
        }
        let unknown = format!("/api/v1/packages/{}", "0".repeat(64));
        for (url, program, kind) in [(&unknown, "bin/hello", "package-not-found"), (&good, "bin/other", "not-found")] {
            let end = fleet.over(&fleet.run(&json!({ "Package": url, "Application": program }), &json!({})).await).await;
            assert!(end["reason"].as_str().is_some_and(|why| why.starts_with(&format!("{kind}: "))), "{kind}: {end}");
        }
        assert!(!fleet.folder.path().join("evil").exists());
    });
}
