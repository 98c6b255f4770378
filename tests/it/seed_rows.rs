//! Rows of docs/seeds.md that no other journey shows.

use crate::support::api::{Api, id, requests};
use crate::support::process::Broker;
use crate::support::{journey, until};
use crate::tasks::{Raw, job, over};
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::Write as _;
use webloom::for_tests::time::Timestamp;

fn text(value: &Value) -> &str {
    value.as_str().expect("a text")
}

async fn watch(api: &Api, id: &str) -> Raw {
    Raw::watch(api, id, &["h"], json!({ "slots": 4 }), json!([])).await
}

/// Rows 99 and 114: the run, its log, its instances and its job name the worker, also after a restart.
#[test]
fn the_worker_of_a_run_is_known_after_its_end() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (first, second) = (id(), id());
        let mut worker = watch(&api, &first).await;
        let job = job(&api, "kept", json!({ "handler": "h" }), json!({ "policies": { "retry": { "limit": 1, "delay": 1 } } })).await;
        let run = api.trigger(&job).await;
        let order = worker.order().await;
        let (_, busy) = api.get(&format!("/api/v1/jobs/{job}")).await;
        assert_eq!((&busy["activity"]["status"], &busy["activity"]["openRun"]), (&json!("running"), &json!(run)), "{busy}");
        assert_eq!(busy["activity"]["workerId"], first.as_str());
        // The second attempt is another worker's.
        let mut other = watch(&api, &second).await;
        worker.report(&order, "failed", json!({ "error": { "message": "no" } }));
        let order = other.order().await;
        assert_eq!(order["attempt"], 2);
        other.report(&order, "success", json!({ "result": 7 }));
        over(&api, &run).await;
        drop((worker, other));
        for restarted in [false, true] {
            if restarted {
                broker.kill_and_restart();
            }
            let api = Api::new(&broker.url);
            let run = until("the run", || async { Some(api.get(&format!("/api/v1/runs/{run}")).await).filter(|answer| answer.0 == 200) });
            let run = run.await.1;
            assert_eq!((&run["state"], &run["workerId"]), (&json!("success"), &json!(second)), "{run}");
            let identity = text(&run["identity"]);
            let (_, list) = api.get(&format!("/api/v1/runs?jobId={job}")).await;
            assert_eq!(list["items"][0]["workerId"], second.as_str(), "{list}");
            let (_, log) = api.get(&format!("/api/v1/runs/{identity}/logs")).await;
            let lines: Vec<&str> = log["items"].as_array().expect("lines").iter().map(|line| text(&line["text"])).collect();
            assert!(lines.iter().any(|line| line.contains("attempt 1") && line.contains(&first)), "{lines:?}");
            assert!(lines.iter().any(|line| line.starts_with("ended: success") && line.contains(&second)), "{lines:?}");
            let (_, instances) = api.get(&format!("/api/v1/runs/{identity}/instances")).await;
            let [instance] = &instances["items"].as_array().expect("items")[..] else { panic!("{instances}") };
            assert_eq!(
                (&instance["peer"], &instance["attempt"], &instance["result"]),
                (&json!(second), &json!(2), &json!(7)),
                "{instance}"
            );
            let (_, job) = api.get(&format!("/api/v1/jobs/{job}")).await;
            let activity = &job["activity"];
            assert_eq!((&activity["status"], &activity["runs"], &activity["workerId"]), (&json!("idle"), &json!(1), &json!(second)));
            assert_eq!((&activity["lastRun"]["identity"], &activity["lastRun"]["state"]), (&run["identity"], &json!("success")));
            assert!(activity["averageMs"].is_u64() && activity["lastRun"]["tookMs"].is_u64() && activity.get("openRun").is_none());
        }
    });
}

/// The same of a block run.
#[test]
fn the_worker_of_a_block_run_is_known_after_its_end() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, worker) = api.run("it.Kept", &json!({})).await;
        api.heard(&worker, "start").await.expect("a start");
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..1)).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        let run = over(&api, &run).await;
        assert_eq!((&run["state"], &run["workerId"]), (&json!("stopped"), &json!(worker)), "{run}");
    });
}

/// Row 100.
#[test]
fn runs_are_found_by_their_trace() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "traced", json!({ "handler": "h", "noWorker": "wait" }), json!({})).await;
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let mut ours = Vec::new();
        for _ in 0..2 {
            let trigger = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{job}/trigger"));
            let (status, run) = api.send(trigger.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))).await;
            assert_eq!((status, &run["traceId"]), (202, &json!(trace)), "{run}");
            ours.insert(0, text(&run["identity"]).to_owned());
        }
        let own = api.trigger(&job).await;
        let found = |trace: String| {
            let api = api.clone();
            async move {
                let (status, page) = api.get(&format!("/api/v1/runs?traceId={trace}")).await;
                assert_eq!(status, 200, "{page}");
                page["items"].as_array().expect("items").iter().map(|run| text(&run["identity"]).to_owned()).collect::<Vec<_>>()
            }
        };
        assert_eq!(found(trace.to_owned()).await, ours);
        assert_eq!(found(trace.to_uppercase()).await, ours);
        let (_, run) = api.get(&format!("/api/v1/runs/{own}")).await;
        assert_eq!(found(text(&run["traceId"]).to_owned()).await, [own], "one that began its own trace");
        // The identity of a run that is in another's trace is no trace.
        assert!(found(ours[0].clone()).await.is_empty() && found(id()).await.is_empty());
        for wrong in ["x", "0af7651916cd43dd8448eb211c80319", "%27"] {
            assert_eq!(api.get(&format!("/api/v1/runs?traceId={wrong}")).await.0 / 100, 4, "{wrong}");
        }
    });
}

/// Row 73: a worker with work in hand is deleted only by force, and what it had goes to another.
#[test]
fn a_worker_is_deleted_by_force() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (gone, stays) = (id(), id());
        let mut worker = watch(&api, &gone).await;
        let job = job(&api, "moves", json!({ "handler": "h", "lease": 1000, "noWorker": "wait" }), json!({})).await;
        let run = api.trigger(&job).await;
        let order = worker.order().await;
        let path = format!("/api/v1/workers/{gone}");
        let (status, problem) = api.delete(&path).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/worker-online")), "{problem}");
        assert_eq!(api.get(&path).await.1["isOnline"], true, "nothing has changed");
        assert_eq!(api.delete(&format!("{path}?force=maybe")).await.0 / 100, 4);
        assert_eq!(api.delete(&format!("{path}?force=true")).await.0, 204);
        worker.socket.find("kicked").await;
        assert_eq!(api.get(&path).await.0, 404);
        assert_eq!(api.delete(&format!("{path}?force=true")).await.0, 404);
        let mut other = watch(&api, &stays).await;
        let again = other.order().await;
        assert_eq!((&again["identity"], again["attempt"].as_u64()), (&order["identity"], Some(2)));
        other.report(&again, "success", json!({}));
        assert_eq!(over(&api, &run).await["workerId"], stays.as_str());
        // One that registers under the id again is a new worker, and gets work.
        drop(other);
        let mut back = watch(&api, &gone).await;
        let run = api.trigger(&job).await;
        let order = back.order().await;
        assert_eq!(order["identity"], run.as_str());
    });
}

/// Row 89: a job is disabled at once, or when its run is over.
#[test]
fn a_job_is_disabled_at_once_or_when_its_run_is_over() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = watch(&api, &id()).await;
        for (name, mode) in [("drains", json!({})), ("drains too", json!({ "mode": "drain" })), ("stops", json!({ "mode": "stop" }))] {
            let job = job(&api, name, json!({ "handler": "h" }), json!({})).await;
            let run = api.trigger(&job).await;
            let order = worker.order().await;
            worker.report(&order, "running", json!({ "progress": 1 }));
            until("the report", || async { (api.state(&run).await["progress"] == 1).then_some(()) }).await;
            let path = format!("/api/v1/jobs/{job}/disable");
            let expected = if mode["mode"] == "stop" {
                let stop = async {
                    assert_eq!(worker.socket.find("cancel").await["task"]["identity"], run.as_str());
                    worker.report(&order, "cancelled", json!({}));
                };
                let (answer, ()) = futures_util::join!(api.post(&path, &mode), stop);
                assert_eq!((answer.0, &answer.1["isEnabled"]), (200, &json!(false)), "{}", answer.1);
                "stopped"
            } else {
                assert_eq!(api.post(&path, &mode).await.0, 200);
                assert_eq!(api.state(&run).await["state"], "running", "it may finish");
                worker.report(&order, "success", json!({}));
                "success"
            };
            assert_eq!(over(&api, &run).await["state"], expected, "{name}");
            assert_eq!(api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await.1["type"], "/problems/job-disabled");
        }
        let job = job(&api, "neither", json!({ "handler": "h" }), json!({})).await;
        let (status, problem) = api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({ "mode": "now" })).await;
        assert_eq!((status, &problem["field"]), (422, &json!("mode")), "{problem}");
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}")).await.1["isEnabled"], true);
    });
}

/// Row 51: a report in LZ4 frames, as the seed's nodes compress it.
#[test]
fn a_report_may_be_compressed_with_lz4() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Lz4", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..2)).await.0, 200);
        let node = id();
        let block = api.beat(&node, &json!({})).await;
        let results = block["requests"].as_array().expect("requests").iter().map(
            |request| json!({ "requestId": request["requestId"], "status": 200, "tries": 1, "time": 3, "text": "page ".repeat(1_000) }),
        );
        let results: Vec<Value> = results.collect();
        let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node,
            "epoch": block["epoch"], "attempt": block["attempt"], "results": results });
        let mut packed = lz4_flex::frame::FrameEncoder::new(Vec::new());
        packed.write_all(report.to_string().as_bytes()).expect("written");
        let packed = packed.finish().expect("finished");
        assert!(packed.len() < report.to_string().len() / 4);
        let send = |body: Vec<u8>| api.send(api.request(reqwest::Method::POST, "/node/block").header("content-encoding", "lz4").body(body));
        assert_eq!(send(packed[..packed.len() / 2].to_vec()).await.0, 400, "one that is cut short changes nothing");
        assert_eq!(send(packed).await, (200, json!({ "success": 2, "error": 0 })));
        let (_, done) = api.get(&format!("/requestqueue/{run}")).await;
        let page = base64::engine::general_purpose::STANDARD.encode("page ".repeat(1_000));
        assert!(done["results"][1]["content"] == page, "the second result has another content");
    });
}

/// Trap 5: what is later than `StaleAfter` makes no run, what is not makes one, whatever the kind of the job.
#[test]
fn a_stale_fire_makes_no_run_and_a_fresh_one_does() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let stale_after = json!({ "StaleAfter": "10000" });
        let task = job(&api, "task", json!({ "handler": "h", "noWorker": "wait" }), json!({ "properties": stale_after })).await;
        let block = api.job("block", "it.Stale", &stale_after).await;
        let patient = job(&api, "patient", json!({ "handler": "h", "noWorker": "wait" }), json!({})).await;
        for (job, ms_late, is_run) in [
            (&task, 10_500, false),
            (&task, 3_600_000, false),
            (&task, 5_000, true),
            (&task, 0, true),
            // Its clock is ahead of ours.
            (&task, -60_000, true),
            (&block, 10_500, false),
            (&block, 5_000, true),
            // Without the property nothing is stale.
            (&patient, 3_600_000, true),
        ] {
            let planned = Timestamp::now().plus_ms(-ms_late);
            let (status, answer) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({ "fireTime": planned })).await;
            assert_eq!(status, if is_run { 202 } else { 409 }, "{ms_late} ms late: {answer}");
            assert_eq!(answer["type"] == "/problems/stale", !is_run, "{answer}");
            let (_, fires) = api.get(&format!("/api/v1/jobs/{job}/fires?from={planned}&to={planned}")).await;
            let verdict = if is_run { "fired" } else { "skipped" };
            assert_eq!((&fires["items"][0]["verdict"], fires["items"][0]["identity"].is_string()), (&json!(verdict), is_run), "{fires}");
        }
    });
}

/// Trap 8: a job that is disabled while it runs stays so, whoever dies and comes back meanwhile.
#[test]
fn a_job_that_was_disabled_while_it_ran_stays_disabled() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker_id = id();
        let mut worker = watch(&api, &worker_id).await;
        let task = json!({ "beanName": "h", "name": "off", "interval": 3_600_000 });
        let (status, task) = api.post("/task/register", &task).await;
        assert_eq!(status, 200, "{task}");
        let path = format!("/api/v1/jobs/{}", text(&task["taskId"]));
        let (_, log) = api.post("/task/retry", &json!({ "taskId": task["taskId"] })).await;
        let order = worker.order().await;
        worker.report(&order, "running", json!({ "progress": 1 }));
        let run = text(&order["identity"]).to_owned();
        until("the report", || async { (api.state(&run).await["progress"] == 1).then_some(()) }).await;
        assert_eq!(api.post(&format!("{path}/disable"), &json!({})).await.0, 200);
        let is_off = |job: &Value| job["isEnabled"] == false && job.get("nextFire").is_none();
        // The worker is killed and comes back; so is the broker.
        worker.socket.leave();
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let in_hand = json!([{ "identity": order["identity"], "attempt": order["attempt"] }]);
        let mut worker = Raw::watch(&api, &worker_id, &["h"], json!({ "slots": 4 }), in_hand).await;
        worker.report(&order, "success", json!({}));
        assert_eq!(worker.settled().await["identity"], run.as_str());
        assert_eq!(over(&api, &run).await["state"], "success");
        let (_, job) = api.get(&path).await;
        assert!(is_off(&job), "{job}");
        // A client that registers its task again finds it as it is.
        assert_eq!(api.post("/task/register", &json!({ "beanName": "h", "name": "off", "interval": 3_600_000 })).await.0, 409);
        let (_, job) = api.get(&path).await;
        assert!(is_off(&job) && job["activity"]["lastRun"]["identity"] == run.as_str(), "{job} {log}");
        assert!(worker.socket.is_quiet(), "and it is not run");
    });
}
