//! What happens to jobs is told to those who want to hear of it: once, signed, again if it did not arrive, and not in a
//! flood.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::{journey, until};
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicU16, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

/// What a webhook got.
#[derive(Clone)]
struct Got {
    event: String,
    signature: Option<String>,
    raw: Vec<u8>,
    body: Value,
}

/// A receiver of webhooks that keeps what it gets.
struct Hook {
    url: String,
    got: Arc<Mutex<Vec<Got>>>,
    answers: Arc<AtomicU16>,
    server: actix_web::dev::ServerHandle,
}

#[derive(Clone)]
struct Shared {
    got: Arc<Mutex<Vec<Got>>>,
    answers: Arc<AtomicU16>,
}

async fn take(shared: web::Data<Shared>, request: HttpRequest, raw: web::Bytes) -> HttpResponse {
    let header = |name: &str| request.headers().get(name).map(|v| v.to_str().expect("a text").to_owned());
    assert_eq!(header("content-type").as_deref(), Some("application/json"));
    let body = serde_json::from_slice(&raw).expect("JSON");
    let got = Got { event: header("Webloom-Event").expect("an event"), signature: header("Webloom-Signature"), raw: raw.to_vec(), body };
    shared.got.lock().expect("nobody panicked").push(got);
    HttpResponse::build(actix_web::http::StatusCode::from_u16(shared.answers.load(SeqCst)).expect("a status"))
        .insert_header(("Location", "/elsewhere"))
        .finish()
}

impl Hook {
    fn serve() -> Self {
        let shared = Shared { got: Arc::default(), answers: Arc::new(AtomicU16::new(204)) };
        let (got, answers) = (Arc::clone(&shared.got), Arc::clone(&shared.answers));
        let server = HttpServer::new(move || App::new().app_data(web::Data::new(shared.clone())).route("/hook", web::post().to(take)))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(0)
            .bind("127.0.0.1:0")
            .expect("a free port");
        let url = format!("http://{}/hook", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        Self { url, got, answers, server: handle }
    }

    fn all(&self) -> Vec<Got> {
        self.got.lock().expect("nobody panicked").clone()
    }

    /// Waits until it has so many of an event.
    async fn wait(&self, event: &str, count: usize) -> Vec<Got> {
        until(&format!("{count} of {event}"), || async {
            let got: Vec<Got> = self.all().into_iter().filter(|got| got.event == event).collect();
            (got.len() >= count).then_some(got)
        })
        .await
    }
}

async fn channel(api: &Api, hook: &Hook, more: &Value) -> String {
    let mut input = json!({ "name": "hook", "kind": "webhook", "target": hook.url });
    more.as_object().expect("an object").iter().for_each(|(key, value)| input[key] = value.clone());
    let (status, channel) = api.post("/api/v1/alerts", &input).await;
    assert_eq!(status, 201, "{channel}");
    channel["id"].as_str().expect("an id").to_owned()
}

/// A job for a worker that is registered, and its id.
pub async fn job(api: &Api, name: &str, more: &Value) -> String {
    api.worker("it.Alerts").await;
    let mut input = json!({ "name": name, "properties": { "FullClassName": "it.Alerts" } });
    more.as_object().expect("an object").iter().for_each(|(key, value)| input[key] = value.clone());
    let (status, job) = api.post("/api/v1/jobs", &input).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// A run of the job that ends at once: badly with a reason, or well.
pub async fn run(api: &Api, job: &str, error: Option<&str>) -> String {
    let run = api.trigger(job).await;
    let body = error.map_or(json!({}), |error| json!({ "error": error }));
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &body).await.0, 204);
    until("the run to end", || async { api.state(&run).await["finishTime"].as_str().map(drop) }).await;
    run
}

#[test]
fn a_webhook_is_told_and_not_flooded() {
    journey(async {
        let (broker, hook) = (Broker::start(&[], ""), Hook::serve());
        let api = Api::new(&broker.url);
        let id = channel(&api, &hook, &json!({ "secret": "s3cret", "filter": { "events": ["failed", "recovered", "disabled"] } })).await;
        let job = job(&api, "nightly", &json!({ "group": "etl", "policies": { "maxFailures": 5 } })).await;
        let first = run(&api, &job, Some("boom")).await;
        let got = hook.wait("failed", 1).await.remove(0);
        let expected = json!({ "event": "failed", "at": got.body["at"], "jobId": job, "jobName": "nightly", "group": "etl",
            "runId": first, "reason": got.body["reason"], "count": 1, "id": got.body["id"] });
        assert_eq!(got.body, expected);
        assert!(got.body["reason"].as_str().is_some_and(|reason| reason.contains("boom")), "{}", got.body);
        // As docs/operations.md tells receivers to check it.
        let signature = got.signature.expect("it is signed");
        let (t, v1) = signature.strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")).expect("two parts");
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"s3cret").expect("a key");
        mac.update(t.as_bytes());
        mac.update(b".");
        mac.update(&got.raw);
        let hex: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(v1, hex);

        for _ in 0..3 {
            run(&api, &job, Some("boom")).await;
        }
        // The recovery calls what was gathered before its time, and comes after it.
        run(&api, &job, None).await;
        hook.wait("recovered", 1).await;
        let told: Vec<(String, Value)> = hook.all().into_iter().map(|got| (got.event, got.body["count"].clone())).collect();
        let expected = [("failed", 1), ("failed", 3), ("recovered", 1)].map(|(event, count)| (event.to_owned(), json!(count)));
        assert_eq!(told, expected);

        // That it arrived is written down when the receiver has answered.
        let events = until("the last one done", || async {
            let (status, events) = api.get("/api/v1/alerts/events?limit=3").await;
            assert_eq!(status, 200);
            (events["items"][0]["deliveries"][0]["state"] == "done").then_some(events)
        })
        .await;
        let items = events["items"].as_array().expect("a list");
        let states: Vec<&str> = items.iter().map(|item| item["deliveries"][0]["state"].as_str().expect("a state")).collect();
        assert_eq!(states, ["done", "merged", "merged"], "{events}");
        let (_, rest) = api.get(&format!("/api/v1/alerts/events?cursor={}", events["nextCursor"].as_str().expect("more"))).await;
        assert_eq!((&rest["items"][0]["deliveries"][0]["count"], &rest["items"][0]["deliveries"][0]["channelId"]), (&json!(3), &json!(id)));

        // Too often, and the broker disables it by itself; what a person disables is no news.
        for _ in 0..5 {
            run(&api, &job, Some("boom")).await;
        }
        let told = hook.wait("disabled", 1).await.remove(0);
        assert_eq!((&told.body["jobId"], &told.body["runId"]), (&json!(job), &Value::Null));
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}")).await.1["isEnabled"], false);
        hook.server.stop(false).await;
    });
}

#[test]
fn what_did_not_arrive_is_sent_again_after_a_restart_too() {
    journey(async {
        let (mut broker, hook) = (Broker::start(&[], ""), Hook::serve());
        let api = Api::new(&broker.url);
        hook.answers.store(503, SeqCst);
        channel(&api, &hook, &json!({})).await;
        let job = job(&api, "j", &json!({})).await;
        run(&api, &job, Some("boom")).await;
        let tries = hook.wait("failed", 2).await;
        assert_eq!(tries[0].raw, tries[1].raw, "the same words under the same id");
        assert!(tries[0].signature.is_none(), "without a secret there is no signature");
        broker.kill_and_restart();
        hook.answers.store(200, SeqCst);
        let api = Api::new(&broker.url);
        let delivery = until("it to arrive", || async {
            let (_, events) = api.get("/api/v1/alerts/events").await;
            let delivery = events["items"][0]["deliveries"][0].clone();
            (delivery["state"] == "done").then_some(delivery)
        })
        .await;
        assert!(delivery["attempts"].as_u64() >= Some(3) && delivery["finishTime"].is_string(), "{delivery}");
        assert_eq!(hook.all().last().expect("one").raw, tries[0].raw);
        hook.server.stop(false).await;
    });
}

#[test]
fn what_nobody_does_is_noticed() {
    journey(async {
        let (broker, hook) = (Broker::start(&["--alert-gather", "1"], ""), Hook::serve());
        let api = Api::new(&broker.url);
        channel(&api, &hook, &json!({ "filter": { "events": ["late", "silent"] } })).await;
        // A run is at work, and the planned one has to wait behind it, however slow the machine is.
        let late = job(&api, "late", &json!({})).await;
        let first = api.trigger(&late).await;
        until("it to be at work", || async { api.state(&first).await["startTime"].as_str().map(drop) }).await;
        let at = (chrono::Utc::now() + chrono::Duration::milliseconds(1_500)).to_rfc3339();
        let policies = json!({ "lateAfter": 100, "overlap": "queueOne" });
        let planned = json!({ "policies": policies, "schedule": { "triggers": [{ "at": at }] } });
        assert_eq!(api.put(&format!("/api/v1/jobs/{late}"), &planned).await.0, 200);
        let got = hook.wait("late", 1).await.remove(0);
        assert_eq!((&got.body["jobId"], &got.body["jobName"]), (&json!(late), &json!("late")));
        assert!(got.body["runId"].is_string() && got.body["reason"].as_str().expect("why").contains("has not begun"), "{}", got.body);

        let silent = job(&api, "silent", &json!({ "policies": { "silentAfter": 400 } })).await;
        let got = hook.wait("silent", 1).await.remove(0);
        assert_eq!((&got.body["jobId"], &got.body["runId"]), (&json!(silent), &Value::Null));
        // A failure does not break the silence, and it is told once.
        run(&api, &silent, Some("boom")).await;
        // … until a run ends well and none does after it.
        run(&api, &silent, None).await;
        let silences = hook.wait("silent", 2).await;
        assert_eq!(silences.len(), 2);
        // It begins at last: that it was late is said already.
        assert_eq!(api.post(&format!("/api/v1/runs/{first}/start-returned"), &json!({})).await.0, 204);
        let run = got_run(&hook);
        until("it to begin", || async { api.state(&run).await["startTime"].as_str().map(drop) }).await;
        run_again_silent(&api, &hook, &silent).await;
        assert_eq!(hook.all().iter().filter(|got| got.event == "late").count(), 1);
        hook.server.stop(false).await;
    });
}

fn got_run(hook: &Hook) -> String {
    let late = hook.all().into_iter().find(|got| got.event == "late").expect("it was late");
    late.body["runId"].as_str().expect("a run").to_owned()
}

/// Another round of the watch has passed when the job has been silent once more.
async fn run_again_silent(api: &Api, hook: &Hook, job: &str) {
    run(api, job, None).await;
    assert_eq!(hook.wait("silent", 3).await.len(), 3);
}

#[test]
fn a_channel_is_checked_tested_and_keeps_its_secret() {
    journey(async {
        let (broker, hook) = (Broker::start(&[], ""), Hook::serve());
        let api = Api::new(&broker.url);
        let good = json!({ "name": "a", "kind": "webhook", "target": hook.url });
        for (key, value, field) in [
            ("name", json!(""), "name"),
            ("name", json!("x".repeat(51)), "name"),
            ("target", json!("ftp://x.test/"), "target"),
            ("target", json!(format!("http://x.test/{}", "y".repeat(2_000))), "target"),
            ("secret", json!("s".repeat(501)), "secret"),
            ("filter", json!({ "events": ["exploded"] }), "filter.events"),
            ("filter", json!({ "jobs": [""] }), "filter.jobs"),
            ("kind", json!("mail"), "kind"),
        ] {
            let mut input = good.clone();
            input[key] = value;
            let (status, problem) = api.post("/api/v1/alerts", &input).await;
            assert_eq!((status, &problem["field"]), (422, &json!(field)), "{problem}");
        }
        assert_eq!(api.post("/api/v1/alerts", &json!({ "name": "a", "kind": "webhook", "target": hook.url, "colour": 1 })).await.0, 422);
        assert_eq!(api.post("/api/v1/alerts", &json!({ "name": "a", "kind": "pigeon", "target": "x" })).await.0, 400);
        assert_eq!(api.get("/api/v1/alerts").await.1["items"], json!([]), "nothing of that was written");

        let id = channel(&api, &hook, &json!({ "name": "a", "secret": "s3cret" })).await;
        assert_eq!(api.post("/api/v1/alerts", &good).await.1["type"], "/problems/name-taken");
        let path = format!("/api/v1/alerts/{id}");
        let (_, shown) = api.get(&path).await;
        assert_eq!((&shown["hasSecret"], &shown["version"]), (&json!(true), &json!(1)));
        assert!(!shown.to_string().contains("s3cret"));
        let (status, changed) = api.put(&path, &json!({ "name": "b", "secret": "", "version": 1 })).await;
        assert_eq!(
            (status, &changed["name"], &changed["hasSecret"], &changed["target"]),
            (200, &json!("b"), &json!(true), &json!(hook.url))
        );
        assert_eq!(api.put(&path, &json!({ "name": "c", "version": 1 })).await.0, 409);

        let (status, tested) = api.post(&format!("{path}/test"), &json!({})).await;
        assert_eq!((status, &tested["ok"]), (200, &json!(true)), "{tested}");
        let got = hook.wait("test", 1).await.remove(0);
        assert!(got.signature.is_some() && got.body["id"] == tested["id"] && got.body["jobId"].is_null(), "{}", got.body);
        for (answer, error) in [(500, "500"), (302, "302")] {
            hook.answers.store(answer, SeqCst);
            let (status, tested) = api.post(&format!("{path}/test"), &json!({})).await;
            assert_eq!((status, &tested["ok"]), (200, &json!(false)));
            assert!(tested["error"].as_str().expect("why").contains(error), "{tested}");
        }
        assert_eq!(hook.all().len(), 3, "a test is tried once");
        let (_, events) = api.get("/api/v1/alerts/events").await;
        let states: Vec<&Value> = events["items"].as_array().expect("a list").iter().map(|e| &e["deliveries"][0]["state"]).collect();
        assert_eq!(states, ["failed", "failed", "done"]);

        assert_eq!(api.delete(&path).await.0, 204);
        for (status, _) in [api.get(&path).await, api.delete(&path).await, api.post(&format!("{path}/test"), &json!({})).await] {
            assert_eq!(status, 404);
        }
        assert_eq!(api.get("/api/v1/alerts/events?cursor=x").await.0, 422);
        hook.server.stop(false).await;
    });
}
