//! Callback jobs against a receiver: what it gets, and what becomes of the run.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::receiver::{Receiver, Reply};
use crate::support::{journey, until};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};

/// Creates a callback job; its id.
async fn job(api: &Api, name: &str, callback: &Value, policies: &Value) -> String {
    let input = json!({ "name": name, "jobType": "callback", "callback": callback, "policies": policies });
    let (status, job) = api.post("/api/v1/jobs", &input).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// The run, once it is over.
async fn over(api: &Api, run: &str) -> Value {
    let states = ["success", "failed", "stopped"];
    until("the end of the run", || async { Some(api.state(run).await).filter(|run| states.iter().any(|s| run["state"] == *s)) }).await
}

#[test]
fn a_run_is_a_request_and_its_answer() {
    journey(async {
        let receiver = Receiver::start([Reply::status(202)]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let callback = json!({
            "url": format!("{}/hook/{{jobId}}?a={{arguments}}#part", receiver.url), "method": "put", "secret": "whsec",
            "headers": { "X-Job": "{jobName}" }, "body": "{\"run\":\"{runId}\",\"args\":\"{arguments}\",\"n\":{attempt}}",
        });
        let job = job(&api, "hook", &callback, &json!({})).await;
        let (_, shown) = api.get(&format!("/api/v1/jobs/{job}")).await;
        assert_eq!(shown["callback"]["secret"], "", "{shown}");
        assert!(!shown.to_string().contains("whsec"));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let trigger = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{job}/trigger"));
        let trigger = trigger.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"));
        let (status, run) = api.send(trigger.body(json!({ "arguments": "x\"&y" }).to_string())).await;
        assert_eq!(status, 202, "{run}");
        let run = over(&api, run["identity"].as_str().expect("an identity")).await;
        let identity = run["identity"].as_str().expect("an identity");
        assert_eq!((&run["state"], &run["kind"], &run["attempt"]), (&json!("success"), &json!("callback"), &json!(1)), "{run}");
        assert_eq!(run["result"]["status"], 202);
        assert_eq!((&run["result"]["body"], &run["result"]["headers"]["x-request-id"]), (&json!("done"), &json!("r-1")));
        assert!(run["result"]["durationMs"].as_i64() >= Some(0) && !run.to_string().contains("whsec"), "{run}");

        let got = receiver.got();
        assert_eq!(got.len(), 1);
        let got = &got[0];
        assert_eq!((got.method.as_str(), got.path.as_str()), ("PUT", format!("/hook/{job}?a=x%22%26y").as_str()));
        assert_eq!(serde_json::from_str::<Value>(&got.body).expect("JSON"), json!({ "run": identity, "args": "x\"&y", "n": 1 }));
        let header = |name: &str| got.headers.get(name).map(String::as_str).unwrap_or_default();
        assert_eq!((header("x-job"), header("content-type")), ("hook", "application/json"));
        assert_eq!([header("webloom-run"), header("idempotency-key"), header("webloom-attempt")], [identity, identity, "1"]);
        let parts: Vec<_> = header("traceparent").split('-').collect();
        assert!(matches!(parts[..], ["00", t, span, "01"] if t == trace && span.len() == 16), "{parts:?}");
        // As a receiver would check it.
        let (t, v1) = header("webloom-signature").strip_prefix("t=").and_then(|rest| rest.split_once(",v1=")).expect("a signature");
        let mut mac = Hmac::<sha2::Sha256>::new_from_slice(b"whsec").expect("a key");
        mac.update(format!("{t}.{}", got.body).as_bytes());
        let expected: String = mac.finalize().into_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(v1, expected);
        let now = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_millis() as i64;
        assert!((now - t.parse::<i64>().expect("milliseconds")).abs() < 60_000);

        // The secret that is shown as nothing is kept when it is sent back, and signs on.
        let mut input = json!({ "callback": shown["callback"] });
        input["callback"]["body"] = Value::Null;
        let (status, changed) = api.put(&format!("/api/v1/jobs/{job}"), &input).await;
        assert_eq!(status, 200, "{changed}");
        over(&api, &api.trigger(&job).await).await;
        assert!(receiver.got()[1].headers.contains_key("webloom-signature"));
        let (_, changes) = api.get("/api/v1/jobs").await;
        assert!(!changes.to_string().contains("whsec"));
        receiver.stop().await;
    });
}

#[test]
fn the_status_decides() {
    journey(async {
        let receiver = Receiver::start([404, 200, 500].map(Reply::status));
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "gone", &json!({ "url": receiver.url, "expect": [404, 410] }), &json!({})).await;
        let mut ends = Vec::new();
        for _ in 0..3 {
            let run = over(&api, &api.trigger(&job).await).await;
            ends.push((run["state"].clone(), run["reason"].clone(), run["result"]["status"].clone()));
        }
        assert_eq!(ends[0], (json!("success"), Value::Null, json!(404)));
        assert_eq!(ends[1], (json!("failed"), json!("the answer is 200"), json!(200)));
        assert_eq!(ends[2], (json!("failed"), json!("the answer is 500"), json!(500)));
        assert_eq!(receiver.got()[0].method, "GET", "without a body");
        receiver.stop().await;
    });
}

#[test]
fn a_failed_attempt_is_made_again() {
    journey(async {
        let receiver = Receiver::start([Reply::status(503), Reply::Never]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let retry = json!({ "retry": { "limit": 2, "delay": 1, "jitter": 0.0 }, "timeout": 300 });
        let job = job(&api, "again", &json!({ "url": receiver.url, "body": "{}" }), &retry).await;
        let run = over(&api, &api.trigger(&job).await).await;
        assert_eq!((&run["state"], &run["attempt"], &run["result"]["attempt"]), (&json!("success"), &json!(3), &json!(3)), "{run}");
        let attempts: Vec<_> = receiver.got().iter().map(|got| (got.method.clone(), got.headers["webloom-attempt"].clone())).collect();
        assert_eq!(attempts, ["1", "2", "3"].map(|n| ("POST".to_owned(), n.to_owned())));
        let runs: std::collections::BTreeSet<_> = receiver.got().iter().map(|got| got.headers["idempotency-key"].clone()).collect();
        assert_eq!(runs.len(), 1);
        receiver.stop().await;
    });
}

#[test]
fn what_takes_too_long_or_is_not_there_fails() {
    journey(async {
        let receiver = Receiver::start([Reply::Never]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let slow = job(&api, "slow", &json!({ "url": receiver.url }), &json!({ "timeout": 200 })).await;
        let run = over(&api, &api.trigger(&slow).await).await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("failed"), &json!("it took longer than 200 ms")), "{run}");
        assert!(run["result"]["durationMs"].as_i64().is_some_and(|ms| (200..10_000).contains(&ms)), "{run}");
        until("the request to be dropped", || async { (receiver.open() == 0).then_some(()) }).await;
        let url = receiver.url.clone();
        receiver.stop().await;
        let nobody = job(&api, "nobody", &json!({ "url": url }), &json!({})).await;
        let run = over(&api, &api.trigger(&nobody).await).await;
        assert_eq!(run["state"], "failed");
        assert!(run["reason"].as_str().is_some_and(|why| why.starts_with("no connection to 127.0.0.1:")), "{run}");
    });
}

#[test]
fn a_stop_drops_the_request() {
    journey(async {
        let receiver = Receiver::start([Reply::Never, Reply::status(500)]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let retry = json!({ "retry": { "limit": 5, "delay": 3_600_000 } });
        let job = job(&api, "hangs", &json!({ "url": receiver.url }), &retry).await;
        let run = api.trigger(&job).await;
        receiver.wait_for(1).await;
        assert_eq!(api.state(&run).await["state"], "running");
        // Nothing of a callback is a queue.
        let (status, problem) = api.get(&format!("/requestqueue/{run}?wait=0")).await;
        assert_eq!((status, problem["type"].as_str()), (409, Some("/problems/no-queue")));
        let (status, stopped) = api.post(&format!("/api/v1/runs/{run}/stop"), &json!(null)).await;
        assert_eq!((status, &stopped["state"]), (200, &json!("stopped")), "{stopped}");
        until("the request to be dropped", || async { (receiver.open() == 0).then_some(()) }).await;
        // One that waits for its next attempt can be stopped as well.
        let run = api.trigger(&job).await;
        until("the second attempt to wait", || async { (api.state(&run).await["attempt"] == 2).then_some(()) }).await;
        let stopped = until("its actor", || async {
            let (status, stopped) = api.post(&format!("/api/v1/runs/{run}/stop"), &json!(null)).await;
            (status != 503).then_some(stopped)
        });
        assert_eq!(stopped.await["state"], "stopped");
        assert_eq!(receiver.got().len(), 2);
        receiver.stop().await;
    });
}

#[test]
fn redirects_are_followed_within_the_rules() {
    journey(async {
        let other = Receiver::start([]);
        let receiver = Receiver::start([]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let callback = json!({ "url": format!("{}/a", receiver.url), "body": "{}", "secret": "s3cret", "headers": { "X-Key": "k" } });
        let job = job(&api, "moves", &callback, &json!({})).await;
        let there = format!("{}/there", other.url);
        for (replies, state) in [
            (vec![Reply::to(307, "/b"), Reply::to(302, "c")], "success"),
            (vec![Reply::to(308, &there)], "success"),
            (vec![Reply::to(302, "http://10.1.2.3/")], "failed"),
            (vec![Reply::to(302, "/loop"); 6], "failed"),
            (vec![Reply::to(302, "ftp://127.0.0.1/")], "failed"),
        ] {
            let count = receiver.got().len();
            receiver.answer(replies.clone());
            let run = over(&api, &api.trigger(&job).await).await;
            assert_eq!(run["state"], state, "{replies:?} {run}");
            assert!(receiver.got().len() > count);
        }
        let got: Vec<_> = receiver.got().iter().take(3).map(|got| (got.method.clone(), got.path.clone())).collect();
        assert_eq!(got, [("POST", "/a"), ("POST", "/b"), ("GET", "/c")].map(|(m, p)| (m.to_owned(), p.to_owned())));
        let moved = &other.got()[0];
        assert_eq!((moved.method.as_str(), moved.body.as_str()), ("POST", "{}"));
        assert!(!moved.headers.contains_key("x-key") && !moved.headers.contains_key("webloom-signature"), "another's: {moved:?}");
        receiver.stop().await;
        other.stop().await;
    });
}

#[test]
fn targets_that_are_not_listed_are_refused() {
    journey(async {
        let receiver = Receiver::start([]);
        let port = receiver.url.rsplit(':').next().expect("a port").to_owned();
        let create = |api: Api, name: &'static str, url: String| async move {
            let input = json!({ "name": name, "jobType": "callback", "callback": { "url": url } });
            api.post("/api/v1/jobs", &input).await
        };
        // With a token, what is inside is out of reach.
        let broker = Broker::start(&["--token", "boss-token"], "");
        let api = Api::new(&broker.url).with_token("boss-token");
        for url in [
            "http://127.0.0.1:1/",
            "http://localhost/",
            "http://[::1]/",
            "http://169.254.169.254/latest",
            "http://0x7f.1/",
            "http://10.0.0.1/",
        ] {
            let (status, problem) = create(api.clone(), "x", url.to_owned()).await;
            assert_eq!((status, problem["field"].as_str()), (422, Some("callback.url")), "{url} {problem}");
        }
        // With a list, only what it names: by the name that is asked for, or by the address that it leads to.
        for (list, url, state) in [
            ("127.0.0.0/8", format!("http://localhost:{port}/"), "success"),
            ("localhost", format!("http://localhost:{port}/"), "success"),
            ("127.0.0.1:1", String::new(), "none"),
            ("hooks.example", String::new(), "none"),
        ] {
            let broker = Broker::start(&["--callback-allow", list], "");
            let api = Api::new(&broker.url);
            let (status, job) = create(api.clone(), "x", if url.is_empty() { receiver.url.clone() } else { url }).await;
            if state == "none" {
                assert_eq!(status, 422, "{list} {job}");
                continue;
            }
            let run = over(&api, &api.trigger(job["id"].as_str().expect("an id")).await).await;
            assert_eq!(run["state"], state, "{list} {run}");
        }
        // A name whose address is judged only when it is known: a visible failed run. No machine has one of this network.
        let broker = Broker::start(&["--callback-allow", "203.0.113.0/24"], "");
        let api = Api::new(&broker.url);
        let name = std::process::Command::new("hostname").output().ok().map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
        let (status, job) = create(
            api.clone(),
            "x",
            format!("http://{}:{port}/", name.filter(|n| !n.is_empty()).unwrap_or_else(|| "nowhere.invalid".to_owned())),
        )
        .await;
        assert_eq!(status, 201, "{job}");
        let run = over(&api, &api.trigger(job["id"].as_str().expect("an id")).await).await;
        assert_eq!(run["state"], "failed", "{run}");
        let why = run["reason"].as_str().unwrap_or_default();
        assert!(why.contains("are refused") || why.contains("cannot be resolved"), "{why}");
        assert_eq!(receiver.got().len(), 2);
        receiver.stop().await;
    });
}

#[test]
fn a_killed_broker_makes_the_attempt_again() {
    journey(async {
        let receiver = Receiver::start([Reply::Never]);
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "killed", &json!({ "url": receiver.url }), &json!({})).await;
        let run = api.trigger(&job).await;
        receiver.wait_for(1).await;
        broker.kill_and_restart();
        // The connections of the old one are dead.
        let api = Api::new(&broker.url);
        let run = over(&api, &run).await;
        assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(1)), "{run}");
        let got = receiver.got();
        assert_eq!(got.len(), 2);
        for name in ["webloom-run", "webloom-attempt", "idempotency-key"] {
            assert_eq!(got[0].headers[name], got[1].headers[name], "{name}");
        }
        receiver.stop().await;
    });
}

#[test]
fn a_receiver_names_its_next_time() {
    journey(async {
        let receiver = Receiver::start([Reply::json(&json!({ "nextIn": 50 })), Reply::json(&json!({ "nextAt": "2999-01-01T00:00:00Z" }))]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "next", &json!({ "url": receiver.url }), &json!({})).await;
        api.trigger(&job).await;
        receiver.wait_for(2).await;
        let path = format!("/api/v1/jobs/{job}");
        let next = until("the next fire", || async {
            let (_, job) = api.get(&path).await;
            job["nextFire"].as_str().filter(|at| at.starts_with("2999")).map(str::to_owned)
        });
        assert_eq!(next.await, "2999-01-01T00:00:00.000Z");
        receiver.stop().await;
    });
}

#[test]
fn an_actor_that_panics_is_built_anew() {
    journey(async {
        let receiver = Receiver::start([]);
        let broker = Broker::start(&[], "callback.send=panic@1");
        let api = Api::new(&broker.url);
        let job = job(&api, "panics", &json!({ "url": receiver.url }), &json!({})).await;
        let run = over(&api, &api.trigger(&job).await).await;
        assert_eq!(run["state"], "success", "{run}");
        assert_eq!(receiver.got().len(), 1);
        receiver.stop().await;
    });
}

#[test]
fn a_broker_that_dies_before_the_request_makes_it_once() {
    journey(async {
        let receiver = Receiver::start([]);
        let mut broker = Broker::start(&[], "callback.send=die@1");
        let api = Api::new(&broker.url);
        let job = job(&api, "dies", &json!({ "url": receiver.url }), &json!({})).await;
        // The answer may get out before it dies, or not.
        api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        until("its death", || {
            let ended = broker.process.0.try_wait().ok().flatten();
            async move { ended }
        })
        .await;
        assert_eq!(receiver.got().len(), 0);
        broker.restart("");
        let api = Api::new(&broker.url);
        let (_, runs) = api.get("/api/v1/runs").await;
        let run = over(&api, runs["items"][0]["identity"].as_str().expect("a run")).await;
        assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(1)), "{run}");
        assert_eq!(receiver.got().len(), 1);
        receiver.stop().await;
    });
}
