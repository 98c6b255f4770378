//! Jobs that run by themselves: every planned instant makes one run, or a recorded reason why it made none.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::socket::Worker;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// A block job of this class with more members.
pub async fn job(api: &Api, class: &str, more: Value) -> String {
    let mut job = json!({ "name": class, "jobType": "block", "properties": { "FullClassName": class } });
    for (key, value) in more.as_object().expect("an object") {
        job[key] = value.clone();
    }
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// The runs of a job, the oldest first.
pub async fn runs(api: &Api, job: &str) -> Vec<Value> {
    let (status, page) = api.get(&format!("/api/v1/runs?jobId={job}&limit=1000")).await;
    assert_eq!(status, 200, "{page}");
    let mut runs = page["items"].as_array().expect("items").clone();
    runs.reverse();
    runs
}

async fn state(api: &Api, job: &str) -> Value {
    let (status, job) = api.get(&format!("/api/v1/jobs/{job}")).await;
    assert_eq!(status, 200, "{job}");
    job
}

fn words<'a>(runs: &'a [Value], key: &str) -> Vec<&'a str> {
    runs.iter().map(|run| run[key].as_str().unwrap_or_default()).collect()
}

/// Ends a run well: it has no requests.
pub async fn end(api: &Api, run: &Value) {
    let (status, answer) = api.post(&format!("/api/v1/runs/{}/start-returned", run.as_str().expect("an id")), &json!({})).await;
    assert_eq!(status, 204, "{answer}");
}

/// A worker starts the runs of an interval as they come; the broker is killed in the middle, and no instant is doubled or lost.
#[test]
fn an_interval_survives_the_broker() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Every"]).await;
        let every = json!({ "triggers": [{ "every": 200 }] });
        let policies = json!({ "overlap": "allow", "misfire": { "policy": "all", "limit": 10_000 } });
        let job = job(&api, "it.Every", json!({ "schedule": every, "policies": policies })).await;
        for _ in 0..3 {
            let start = worker.socket.find("start").await;
            assert_eq!(start["className"], "it.Every");
            end(&api, &start["identity"]).await;
        }
        let anchor = state(&api, &job).await["schedule"]["triggers"][0]["anchor"].clone();
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &worker.id, &["it.Every"]).await;
        for _ in 0..5 {
            let start = worker.socket.find("start").await;
            end(&api, &start["identity"]).await;
        }
        let (status, disabled) = api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({ "reason": "enough" })).await;
        assert_eq!((status, &disabled["disabledReason"]), (200, &json!("enough")), "{disabled}");
        assert_eq!(disabled["nextFire"], Value::Null);
        assert_eq!(disabled["schedule"]["triggers"][0]["anchor"], anchor, "neither a restart nor a change moves it");

        let runs = runs(&api, &job).await;
        let planned: BTreeSet<i64> = runs.iter().map(|run| millis(&run["plannedAt"])).collect();
        assert_eq!(planned.len(), runs.len(), "no instant twice");
        let first = millis(&anchor);
        let last = *planned.last().expect("runs");
        let expected: BTreeSet<i64> = (1..=(last - first) / 200).map(|k| first + k * 200).collect();
        assert_eq!(planned, expected, "every instant once: anchor + k * 200 ms");
        assert_eq!(disabled["fires"], runs.len());
    });
}

pub fn millis(time: &Value) -> i64 {
    chrono::DateTime::parse_from_rfc3339(time.as_str().expect("a time")).expect("RFC 3339").timestamp_millis()
}

/// What is late goes by the misfire policy of each job; a broker that was away says what it missed.
#[test]
fn what_was_missed_goes_by_the_policy() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let _worker = Worker::watch(&api, &id(), &["once", "skip", "all"]).await;
        let mut jobs = BTreeMap::new();
        for policy in ["once", "skip", "all"] {
            let anchor = chrono::Utc::now() + chrono::Duration::seconds(2);
            let schedule = json!({ "triggers": [{ "every": 100, "anchor": anchor.to_rfc3339() }] });
            let misfire = json!({ "policy": policy, "grace": 1_000, "limit": 3 });
            let job = job(&api, policy, json!({ "schedule": schedule, "policies": { "overlap": "allow", "misfire": misfire } })).await;
            jobs.insert(policy, job);
        }
        broker.process.kill();
        let since = std::time::Instant::now();
        // The plan goes on without the broker: 2 s of it pass.
        until("four seconds", || async { (since.elapsed().as_secs() >= 4).then_some(()) }).await;
        broker.restart("");
        let api = Api::new(&broker.url);
        for (policy, job) in jobs {
            until("something decided", || async { (state(&api, &job).await["fires"].as_u64() > Some(0)).then_some(()) }).await;
            assert_eq!(api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({})).await.0, 200);
            // The ledger says what was decided; a run is created a little later.
            let ledger = api.get(&format!("/api/v1/jobs/{job}/fires?limit=1000")).await.1;
            let ledger = ledger["items"].as_array().expect("rows");
            let missed: Vec<_> = ledger.iter().filter(|row| row["rule"] == "misfire").collect();
            // The newest are first. A broker on a busy machine may be late again, so only its first decision counts.
            let first = &missed.last().unwrap_or_else(|| panic!("{policy}: the broker has missed some: {ledger:?}"))["creationTime"];
            let late: Vec<_> = missed.iter().filter(|row| row["creationTime"] == *first && row["verdict"] == "fired").collect();
            match policy {
                "all" => assert_eq!(late.len(), 3, "{policy}: {late:?}"),
                "skip" => assert_eq!(late.len(), 0, "{policy}: {late:?}"),
                // A fire that is on time stands for those that were late.
                _ => assert!(late.len() <= 1, "{policy}: {late:?}"),
            }
        }
    });
}

#[test]
fn fires_that_find_the_job_at_work() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Queue", "it.Replace"]).await;
        // Triggered by hand, so that the test owns the time.
        let queue = job(&api, "it.Queue", json!({ "policies": { "overlap": "queueAll" } })).await;
        let (first, second, third) = (api.trigger(&queue).await, api.trigger(&queue).await, api.trigger(&queue).await);
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        let waiting = api.state(&second).await;
        assert_eq!((&waiting["state"], &waiting["reason"]), (&json!("pending"), &json!("waits until the other runs of the job are over")));
        end(&api, &json!(first)).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str(), "then it is its turn");
        // One that waits can be stopped, and the others stay in order.
        let fourth = api.trigger(&queue).await;
        assert_eq!(api.post(&format!("/api/v1/runs/{third}/stop"), &json!({})).await.1["state"], "stopped");
        end(&api, &json!(second)).await;
        assert_eq!(worker.socket.find("start").await["identity"], fourth.as_str());
        end(&api, &json!(fourth)).await;

        let replace = job(&api, "it.Replace", json!({ "policies": { "overlap": "replace" } })).await;
        let first = api.trigger(&replace).await;
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        let second = api.trigger(&replace).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str());
        let first = api.state(&first).await;
        assert_eq!((&first["state"], &first["reason"]), (&json!("stopped"), &json!("another run of the job replaces it")));
    });
}

/// A run that waits for its turn gets it from the next broker as well.
#[test]
fn the_queue_survives_the_broker() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Turn"]).await;
        let job = job(&api, "it.Turn", json!({ "policies": { "overlap": "queueAll" } })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &worker.id, &["it.Turn"]).await;
        assert_eq!(worker.socket.find("start").await["identity"], first.as_str());
        assert_eq!(api.state(&second).await["state"], "pending");
        end(&api, &json!(first)).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str());
    });
}

/// Dies between the end of a run and what it means to its job: the next broker deals with it.
#[test]
fn an_end_that_was_not_dealt_with_is() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "300"], "job.run_over=die@1");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Lost"]).await;
        let job = job(&api, "it.Lost", json!({ "policies": { "overlap": "queueOne" } })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        let start = worker.socket.find("start").await;
        assert_eq!(start["identity"], first.as_str());
        // It dies over the news that this run is over; the answer may get lost with it.
        let _ = api.post(&format!("/api/v1/runs/{first}/start-returned"), &json!({})).await;
        assert!(!broker.process.0.wait().expect("it ends").success());
        broker.restart("");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &worker.id, &["it.Lost"]).await;
        assert_eq!(worker.socket.find("start").await["identity"], second.as_str());
        assert_eq!(api.state(&first).await["state"], "success");
    });
}

#[test]
fn once_and_no_more() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Once", "it.Three"]).await;
        let once = job(&api, "it.Once", json!({ "interval": 0 })).await;
        let start = worker.socket.find("start").await;
        assert_eq!(state(&api, &once).await["isEnabled"], true, "until it is done");
        end(&api, &start["identity"]).await;
        let done = until("it to be disabled", || async { Some(state(&api, &once).await).filter(|job| job["isEnabled"] == false) }).await;
        assert_eq!((&done["disabledReason"], &done["updateBy"]), (&json!("the job was planned to run once"), &json!("broker")));
        assert_eq!(runs(&api, &once).await.len(), 1);

        // After the end of the last run, three times at most.
        let schedule = json!({ "triggers": [{ "every": 100, "afterEnd": true }], "maxFires": 3 });
        let three = job(&api, "it.Three", json!({ "schedule": schedule })).await;
        for _ in 0..3 {
            let start = worker.socket.find("start").await;
            assert_eq!(state(&api, &three).await["nextFire"], Value::Null, "not before it has ended");
            end(&api, &start["identity"]).await;
        }
        let all =
            until("the last to end", || async { Some(runs(&api, &three).await).filter(|runs| words(runs, "state") == ["success"; 3]) })
                .await;
        for pair in all.windows(2) {
            assert_eq!(millis(&pair[1]["plannedAt"]), millis(&pair[0]["finishTime"]) + 100);
        }
        assert_eq!(state(&api, &three).await["nextFire"], Value::Null);
    });
}

#[test]
fn a_run_that_fails_is_tried_again_and_then_the_job_is_stopped() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Fails"]).await;
        let retry = json!({ "limit": 1, "delay": 50, "jitter": 0.0 });
        let job = job(&api, "it.Fails", json!({ "policies": { "retry": retry, "maxFailures": 2 } })).await;
        let fail = async |worker: &mut Worker, run: &str| {
            for attempt in 1..=2 {
                assert_eq!(worker.socket.find("start").await["identity"], run);
                assert_eq!(api.state(run).await["attempt"], attempt);
                let error = json!({ "error": format!("no luck {attempt}") });
                assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &error).await.0, 204);
            }
            until("it to have failed", || async { Some(api.state(run).await).filter(|run| run["state"] == "failed") }).await
        };
        let first = api.trigger(&job).await;
        let failed = fail(&mut worker, &first).await;
        assert!(failed["reason"].as_str().is_some_and(|why| why.contains("no luck 2")), "{failed}");
        let second = api.trigger(&job).await;
        fail(&mut worker, &second).await;
        let stopped =
            until("the job to be disabled", || async { Some(state(&api, &job).await).filter(|job| job["isEnabled"] == false) }).await;
        assert_eq!(stopped["disabledReason"], "2 runs failed one after the other");
        let (status, problem) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/job-disabled")));
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("one after the other")), "{problem}");

        // The dead runs are run again with one call, once.
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/enable"), &json!({})).await.1["failures"], 0);
        let redrive = format!("/api/v1/jobs/{job}/redrive");
        let (status, dry) = api.post(&redrive, &json!({ "dryRun": true })).await;
        assert_eq!((status, &dry["dead"], &dry["runs"]), (200, &json!([first, second]), &json!([])), "{dry}");
        assert_eq!(api.post(&redrive, &json!({ "dryrun": true })).await.0, 422, "it would be done for good");
        let (status, redriven) = api.post(&redrive, &json!({})).await;
        assert_eq!((status, redriven["runs"].as_array().map(Vec::len)), (200, Some(2)), "{redriven}");
        let again = api.state(redriven["runs"][0].as_str().expect("an id")).await;
        assert_eq!(again["retryOf"], first.as_str());
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/redrive"), &json!({})).await.1["runs"], json!([]));
    });
}

#[test]
fn an_attempt_that_takes_too_long_is_ended() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Slow"]).await;
        let job = job(&api, "it.Slow", json!({ "policies": { "timeout": 300 } })).await;
        let run = api.trigger(&job).await;
        assert_eq!(worker.socket.find("start").await["identity"], run.as_str());
        let ended = worker.socket.find("ended").await;
        assert_eq!((&ended["identity"], &ended["state"]), (&json!(run), &json!("failed")));
        assert_eq!(ended["reason"], "it took longer than 300 ms");
    });
}

#[test]
fn a_run_says_when_it_wants_to_be_next() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Worker::watch(&api, &id(), &["it.Asks"]).await;
        // On a busy machine the asked time comes before the run is over.
        let job = job(&api, "it.Asks", json!({ "cron": "0 0 1 1 *", "policies": { "overlap": "queueOne" } })).await;
        let planned = state(&api, &job).await["nextFire"].clone();
        let run = api.trigger(&job).await;
        let start = worker.socket.find("start").await;
        let (status, answer) = api.post(&format!("/api/v1/runs/{run}/next"), &json!({ "in": 200 })).await;
        assert_eq!(status, 200, "{answer}");
        let asked = answer["nextFire"].clone();
        end(&api, &start["identity"]).await;
        let next = worker.socket.find("start").await;
        assert_eq!(api.state(next["identity"].as_str().expect("an id")).await["plannedAt"], asked);
        assert_eq!(state(&api, &job).await["nextFire"], planned, "then the plan goes on");
        for (body, status) in [
            (json!({}), 422),
            (json!({ "at": "soon" }), 400),
            (json!({ "in": -1 }), 400),
            (json!({ "in": u64::MAX }), 422),
            (json!({ "in": 1, "at": "2030-01-01T00:00:00Z" }), 422),
        ] {
            assert_eq!(api.post(&format!("/api/v1/runs/{run}/next"), &body).await.0, status, "{body}");
        }
        assert_eq!(api.post(&format!("/api/v1/runs/{}/next", id()), &json!({ "in": 1 })).await.0, 404);
    });
}

#[test]
fn past_instants_are_made_up_for() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let _worker = Worker::watch(&api, &id(), &["it.Past"]).await;
        // Every hour, half an hour before and after now: the plan itself fires nothing meanwhile.
        let text = |at: chrono::DateTime<chrono::Utc>| at.to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
        let anchor = chrono::Utc::now() - chrono::Duration::minutes(10 * 60 + 30);
        let schedule = json!({ "triggers": [{ "every": 3_600_000, "anchor": text(anchor) }] });
        let job = job(&api, "it.Past", json!({ "schedule": schedule })).await;
        let range = json!({ "from": text(anchor), "to": text(anchor + chrono::Duration::minutes(3 * 60 + 30)) });
        let path = format!("/api/v1/jobs/{job}/backfill");
        let mut dry = range.clone();
        dry["dryRun"] = json!(true);
        let (status, would) = api.post(&path, &dry).await;
        assert_eq!((status, would["fires"].as_array().map(Vec::len)), (200, Some(4)), "{would}");
        assert!(runs(&api, &job).await.is_empty());
        let (status, did) = api.post(&path, &range).await;
        assert_eq!((status, did["fires"].as_array().map(Vec::len)), (200, Some(4)), "{did}");
        let made = runs(&api, &job).await;
        assert_eq!(words(&made, "plannedAt")[3], text(anchor + chrono::Duration::hours(3)));
        // The plan allows no overlap: one is at work, the others wait for their turn.
        assert_eq!(made.iter().filter(|run| run["reason"] == "waits until the other runs of the job are over").count(), 3);
        let (_, again) = api.post(&path, &range).await;
        assert_eq!((&again["fires"], &again["already"]), (&json!([]), &json!(4)), "each instant once");
        for (body, status) in [
            (json!({ "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z" }), 422),
            (json!({ "from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "limit": 0 }), 422),
            (json!({ "to": "2026-01-02T00:00:00Z" }), 400),
        ] {
            assert_eq!(api.post(&path, &body).await.0, status, "{body}");
        }
    });
}

/// Told twice under one key, a trigger makes one run.
#[test]
fn one_key_makes_one_run() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let _worker = Worker::watch(&api, &id(), &["it.Key"]).await;
        let job = job(&api, "it.Key", json!({})).await;
        let trigger = |key: &'static str| {
            let request = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{job}/trigger"));
            api.send(
                request.header("Idempotency-Key", key).header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
            )
        };
        let (first, again, other) = (trigger("a").await.1, trigger("a").await.1, trigger("b").await.1);
        assert_eq!(first["identity"], again["identity"]);
        assert_ne!(first["identity"], other["identity"]);
        assert_eq!(first["traceId"], "0af7651916cd43dd8448eb211c80319c", "the trace of whoever triggered it");
    });
}

/// What could never be, or says two things at once, is refused before anything is written.
#[test]
fn schedules_that_cannot_be() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let cases = [
            (json!({ "cron": "* * * *" }), "cron"),
            (json!({ "cron": "0 0 31 2 *" }), "cron"),
            (json!({ "cron": "@reboot" }), "cron"),
            (json!({ "cron": "* * * * *", "interval": 1_000 }), "schedule"),
            (json!({ "interval": 5 }), "interval"),
            (json!({ "schedule": { "triggers": [{ "cron": "* * * * *" }], "zone": "Mars/Olympus" } }), "schedule.zone"),
            (json!({ "schedule": { "triggers": [{ "at": "2020-01-01T00:00:00Z" }] } }), "schedule"),
            (
                json!({ "schedule": { "triggers": [{ "cron": "* * * * *" }], "startAt": "2030-01-02T00:00:00Z", "endAt": "2030-01-01T00:00:00Z" } }),
                "schedule.endAt",
            ),
            (
                json!({ "schedule": { "triggers": [{ "cron": "* * * * *" }], "blackouts": [{ "start": "1 o'clock", "end": "02:00" }] } }),
                "schedule.blackouts[0].start",
            ),
            (json!({ "policies": { "timeout": 0 } }), "policies.timeout"),
            (json!({ "policies": { "retry": { "jitter": 2.0 } } }), "policies.retry.jitter"),
            (json!({ "policies": { "maxFailures": 0 } }), "policies.maxFailures"),
            (json!({ "cron": "* * * * *", "properties": {} }), "properties.FullClassName"),
            (json!({ "jobType": "callback", "properties": {} }), "callback"),
            (json!({ "jobType": "callback", "properties": {}, "callback": { "url": "gopher://x" } }), "callback.url"),
            (json!({ "group": "x".repeat(51) }), "group"),
        ];
        for (more, field) in cases {
            let mut job = json!({ "name": "n", "jobType": "block", "properties": { "FullClassName": "a" } });
            for (key, value) in more.as_object().expect("an object") {
                job[key] = value.clone();
            }
            let (status, problem) = api.post("/api/v1/jobs", &job).await;
            assert_eq!((status, problem["field"].as_str()), (422, Some(field)), "{job}: {problem}");
        }
        for (unreadable, expected) in [
            (json!({ "schedule": { "trigers": [] } }), 422),
            (json!({ "policies": { "overlap": "maybe" } }), 400),
            (json!({ "schedule": { "gap": "jump" } }), 400),
        ] {
            let mut job = unreadable.clone();
            job["name"] = json!("n");
            assert_eq!(api.post("/api/v1/jobs", &job).await.0, expected, "{unreadable}");
        }
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]), "nothing was written");
    });
}
