//! The broker is killed at random while schedules fire; afterwards ledger and plan agree, from the store file alone.

use crate::schedule::{job, runs};
use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::socket::Worker;
use crate::support::{journey_within, until};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

/// Kills of the broker; `WEBLOOM_KILLS` for more.
fn kills() -> u32 {
    std::env::var("WEBLOOM_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(15)
}

/// A worker that ends every run at once, for this time after it has connected: a broker that takes over many runs is slow at first.
async fn carry_out(api: &Api, worker_id: &str, time: Duration) {
    let mut worker = Worker::watch(api, worker_id, &["it.Kill"]).await;
    let until = Instant::now() + time;
    while Instant::now() < until {
        while let Some(message) = worker.socket.try_next() {
            if message["t"] == "start" {
                let failed = message["v"]["identity"].as_str().is_some_and(|run| run.starts_with('0'));
                let error = failed.then_some("bad luck");
                worker.socket.say("startReturned", &json!({ "identity": message["v"]["identity"], "error": error }));
            }
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

#[test]
fn ledger_and_plan_agree_after_random_kills() {
    // Fifteen seconds of work, and far more beside other work.
    journey_within(Duration::from_secs(480), async {
        let mut broker = Broker::start(&["--grace", "200"], "");
        let api = Api::new(&broker.url);
        let worker = id();
        let _first = Worker::watch(&api, &worker, &["it.Kill"]).await;
        let class = |schedule: Value, policies: Value| json!({ "properties": { "FullClassName": "it.Kill" }, "schedule": schedule, "policies": policies });
        let every = |ms: u64| json!({ "triggers": [{ "every": ms }] });
        let all = json!({ "policy": "all", "limit": 1000, "grace": 50 });
        let jobs = [
            ("allow", class(every(100), json!({ "overlap": "allow", "misfire": all }))),
            ("skip", class(every(130), json!({ "overlap": "skip", "misfire": { "policy": "once", "grace": 50 } }))),
            ("one", class(every(170), json!({ "overlap": "queueOne", "misfire": { "policy": "skip", "grace": 50 } }))),
            ("queue", class(every(190), json!({ "overlap": "queueAll", "misfire": all, "retry": { "limit": 1, "delay": 20 } }))),
            ("replace", class(every(230), json!({ "overlap": "replace" }))),
            ("rest", class(json!({ "triggers": [{ "every": 150, "afterEnd": true }] }), json!({}))),
            (
                "cron",
                class(json!({ "triggers": [{ "cron": "* * * * * *" }, { "cron": "*/2 * * * * *" }], "zone": "Europe/Berlin" }), json!({})),
            ),
        ];
        let mut ids = Vec::new();
        for (name, more) in jobs {
            ids.push(job(&api, name, more).await);
        }
        // These come once each, and are decided ahead of their time.
        let ahead = chrono::Duration::milliseconds(300);
        let begin = chrono::Utc::now() + ahead;
        let mut singles = Vec::new();
        for n in 0..3 * i64::from(kills()) {
            // A busy machine may take longer to create a job: its time must still be ahead.
            let at = (begin + chrono::Duration::milliseconds(n * 151)).max(chrono::Utc::now() + ahead);
            let schedule = json!({ "triggers": [{ "at": at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true) }] });
            singles.push(job(&api, &format!("single {n}"), class(schedule, json!({}))).await);
        }
        // Chance by the ids that the jobs were given: other moments in every run.
        let mut dice = ids.iter().flat_map(|id| id.bytes()).cycle().map(|byte| u64::from(byte) * 7 % 50);
        for _ in 0..kills() {
            let api = Api::new(&broker.url);
            let pause = Duration::from_millis(150 + 12 * dice.next().expect("a cycle"));
            carry_out(&api, &worker, pause).await;
            broker.kill_and_restart();
        }
        let api = Api::new(&broker.url);
        // The last life is quiet, until what was missed is dealt with.
        let (quiet, last) = (api.clone(), worker.clone());
        let quiet = actix_rt::spawn(async move { carry_out(&quiet, &last, Duration::from_secs(600)).await });
        // On a slow machine the others make runs faster than they are carried out.
        for job in &ids {
            assert_eq!(api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({})).await.0, 200);
        }
        for job in &singles {
            let is_over = async || {
                let runs = runs(&api, job).await;
                assert!(runs.len() <= 1, "one run each: {runs:?}");
                runs.first().is_some_and(|run| run["finishTime"].is_string()).then_some(())
            };
            until("its run to be over", is_over).await;
        }
        let made = until("all to be over or queued", || async {
            let (_, page) = api.get("/api/v1/runs?limit=1000").await;
            let runs = page["items"].as_array().cloned().unwrap_or_default();
            (runs.len() > 50).then_some(runs)
        })
        .await;
        let mut planned: Vec<_> = made
            .iter()
            .filter(|run| run["plannedAt"].is_string())
            .map(|run| (run["jobId"].to_string(), run["plannedAt"].to_string()))
            .collect();
        planned.sort();
        let count = planned.len();
        planned.dedup();
        assert_eq!(planned.len(), count, "no instant made two runs");
        quiet.abort();
        broker.process.terminate();
        let database = crate::support::process::database(&broker.folder);
        let proof = Command::new(WEBLOOM).arg("verify-history").arg("--database").arg(&database).output().expect("it runs");
        let told = String::from_utf8_lossy(&proof.stdout);
        assert!(proof.status.success(), "{told}");
        assert!(told.contains(" 0 discrepancies") && !told.contains(" 0 planned instants"), "{told}");
    });
}
