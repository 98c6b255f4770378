//! The operator's word on workers: it is heeded at once, and outlives connections and the broker.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::socket::{Socket, Worker};
use crate::support::{journey, until};
use serde_json::{Value, json};

async fn order(api: &Api, worker: &str, word: &str, body: Value) -> (u16, Value) {
    api.post(&format!("/api/v1/workers/{worker}/{word}"), &body).await
}

async fn shown(api: &Api, worker: &str) -> Value {
    let (status, worker) = api.get(&format!("/api/v1/workers/{worker}")).await;
    assert_eq!(status, 200, "{worker}");
    worker
}

/// Ids of the workers of a list.
async fn listed(api: &Api, query: &str) -> Vec<String> {
    let (status, page) = api.get(&format!("/api/v1/workers?{query}")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").iter().map(|worker| worker["id"].as_str().expect("an id").to_owned()).collect()
}

async fn end(api: &Api, run: &Value) {
    let (status, answer) = api.post(&format!("/api/v1/runs/{}/start-returned", run.as_str().expect("an id")), &json!({})).await;
    assert_eq!(status, 204, "{answer}");
}

/// A worker with a name and all that.
async fn introduce(api: &Api, worker: &str) -> Socket {
    let mut socket = Socket::open(&api.url, &format!("/worker?workerid={worker}"), Some(json!({ "t": "heartbeat", "v": {} }))).await;
    socket.first("welcome").await;
    let facts = json!({ "name": "alpha", "group": "g", "version": "1.2", "tags": ["big"], "slots": 4 });
    socket.say("watch", &json!({ "classNames": ["it.Op"], "worker": facts }));
    socket
}

#[test]
fn a_disabled_worker_finishes_what_it_has() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let one = id();
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        let worker = shown(&api, &one).await;
        for (key, value) in [("name", "alpha"), ("group", "g"), ("version", "1.2"), ("state", "enabled")] {
            assert_eq!(worker[key], value, "{worker}");
        }
        assert_eq!((&worker["tags"], &worker["slots"], &worker["classNames"]), (&json!(["big"]), &json!(4), &json!(["it.Op"])));
        assert_eq!((&worker["isOnline"], &worker["hasSocket"]), (&json!(true), &json!(true)));

        let job = api.job("op", "it.Op", &json!({})).await;
        let first = api.trigger(&job).await;
        assert_eq!(socket.find("start").await["identity"], first.as_str());
        let (status, worker) = order(&api, &one, "disable", json!({ "reason": "it smells" })).await;
        assert_eq!((status, &worker["state"], &worker["reason"]), (200, &json!("disabled"), &json!("it smells")), "{worker}");
        // A new one is not for it; another worker gets it, and what it had it may finish.
        let mut other = Worker::watch(&api, &id(), &["it.Op"]).await;
        for _ in 0..2 {
            let second = api.trigger(&job).await;
            assert_eq!(other.socket.find("start").await["identity"], second.as_str());
            end(&api, &json!(second)).await;
        }
        end(&api, &json!(first)).await;
        until("the first to end", || async { (api.state(&first).await["state"] == "success").then_some(()) }).await;
        drop(other);

        // The word outlives the broker, and what the worker says of itself does not change it.
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        assert_eq!(shown(&api, &one).await["reason"], "it smells");
        until("the other to be forgotten", || async { (listed(&api, "online=true").await == [one.clone()]).then_some(()) }).await;
        let third = api.trigger(&job).await;
        let reason = until("nobody to be found", || async {
            let run = api.state(&third).await;
            (run["state"] == "failed").then(|| run["reason"].as_str().expect("a reason").to_owned())
        })
        .await;
        let says_why = |text: &str| text.contains("is disabled") && text.contains(&one) && text.contains("`webloom worker enable WORKER`");
        assert!(says_why(&reason), "{reason}");
        let waiting = api.job("waits", "it.Op", &json!({ "NoWorker": "wait" })).await;
        let waiting = api.trigger(&waiting).await;
        let state = until("the reason", || async { Some(api.state(&waiting).await).filter(|run| run["reason"].is_string()) }).await;
        assert!(state["state"] == "pending" && says_why(state["reason"].as_str().expect("a text")), "{state}");
        let (_, why) = api.get(&format!("/api/v1/runs/{waiting}/why")).await;
        assert!(why["rule"] == "noWorker" && says_why(&why["because"].to_string()), "{why}");
        assert!(why["because"].to_string().contains("it is disabled by an operator: it smells"), "{why}");
        let task = json!({ "name": "a task", "jobType": "task", "task": { "handler": "it.Op" } });
        let (_, task) = api.post("/api/v1/jobs", &task).await;
        let task = api.trigger(task["id"].as_str().expect("an id")).await;
        let state = until("the end of the task", || async { Some(api.state(&task).await).filter(|run| run["state"] == "failed") }).await;
        assert!(says_why(state["reason"].as_str().expect("a text")), "{state}");
        let (status, worker) = order(&api, &one, "enable", json!({})).await;
        assert_eq!((status, &worker["state"], &worker["reason"]), (200, &json!("enabled"), &Value::Null), "{worker}");
        assert_eq!(socket.find("start").await["identity"], waiting.as_str(), "it had heard of no other");
        end(&api, &json!(waiting)).await;
        let fourth = api.trigger(&job).await;
        assert_eq!(socket.find("start").await["identity"], fourth.as_str());
        assert_eq!(listed(&api, "online=true&group=g&state=enabled").await, [one.as_str()]);
        assert!(listed(&api, "state=draining").await.is_empty());
        assert_eq!(listed(&api, "online=false").await.len(), 1);
        assert_eq!(api.delete(&format!("/api/v1/workers/{one}")).await.0, 409, "it is there");
        assert_eq!(order(&api, &one, "disable", json!({ "reason": "x".repeat(501) })).await.0, 422);
        assert_eq!(order(&api, &id(), "disable", json!({})).await.0, 404);
    });
}

#[test]
fn a_draining_worker_is_told() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let one = id();
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        assert_eq!(order(&api, &one, "drain", json!({ "reason": "new version" })).await.0, 200);
        assert_eq!(socket.find("drain").await["reason"], "new version");
        // Also one that comes back.
        drop(socket);
        let mut socket = introduce(&api, &one).await;
        assert_eq!(socket.find("drain").await["reason"], "new version");
        assert_eq!(shown(&api, &one).await["state"], "draining");
    });
}

#[test]
fn a_kicked_worker_stays_away_until_it_is_allowed() {
    journey(async {
        let mut broker = Broker::start(&["--grace", "300"], "");
        let api = Api::new(&broker.url);
        let one = id();
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        let job = api.job("op", "it.Op", &json!({})).await;
        let run = api.trigger(&job).await;
        socket.find("start").await;
        let mut heir = Worker::watch(&api, &id(), &["it.Op"]).await;
        let (status, worker) = order(&api, &one, "kick", json!({ "reason": "runs wild" })).await;
        assert_eq!((status, &worker["state"]), (200, &json!("kicked")), "{worker}");
        assert_eq!(socket.find("kicked").await["reason"], "runs wild");
        assert!(socket.next().await.is_none(), "the socket is closed");
        // What it had is another one's.
        assert_eq!(heir.socket.find("start").await["identity"], run.as_str());

        for round in 0..2 {
            let api = Api::new(&broker.url);
            let (status, problem) = api.post("/api/v1/workers", &json!({ "workerId": one, "classNames": ["it.Op"] })).await;
            assert_eq!(status, 403, "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|text| text.contains("runs wild")), "{problem}");
            assert_eq!(api.get(&format!("/api/v1/workers/{one}/messages")).await.0, 403);
            let upgrade = api.request(reqwest::Method::GET, &format!("/worker?workerid={one}"));
            let upgrade = upgrade.header("upgrade", "websocket").header("connection", "upgrade");
            let upgrade = upgrade.header("sec-websocket-version", "13").header("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZQ==");
            assert_eq!(api.send(upgrade).await.0, 403);
            for word in ["enable", "disable", "drain"] {
                let (status, problem) = order(&api, &one, word, json!({})).await;
                assert_eq!((status, &problem["type"]), (409, &json!("/problems/worker-kicked")), "{problem}");
            }
            if round == 0 {
                broker.kill_and_restart();
            }
        }
        let api = Api::new(&broker.url);
        let (status, worker) = order(&api, &one, "allow", json!({})).await;
        assert_eq!((status, &worker["state"]), (200, &json!("enabled")), "{worker}");
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        // One without a socket is told as well.
        let by_http = api.worker("it.Http").await;
        let waits = actix_rt::spawn({
            let (api, by_http) = (api.clone(), by_http.clone());
            async move { api.heard(&by_http, "kicked").await }
        });
        until("it to call", || async { (shown(&api, &by_http).await["isOnline"] == true).then_some(()) }).await;
        assert_eq!(order(&api, &by_http, "kick", json!({})).await.0, 200);
        let heard = waits.await.expect("an answer");
        assert!(matches!(heard, Ok(_) | Err(403)), "{heard:?}");
        until("it to be gone", || async { (shown(&api, &by_http).await["isOnline"] == false).then_some(()) }).await;
        assert_eq!(api.delete(&format!("/api/v1/workers/{by_http}")).await.0, 204);
        assert_eq!(api.get(&format!("/api/v1/workers/{by_http}")).await.0, 404);
    });
}

#[test]
fn what_a_worker_says_of_itself_is_checked() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut socket = Socket::open(&api.url, &format!("/worker?workerid={}", id()), None).await;
        socket.first("welcome").await;
        let long = "x".repeat(51);
        for (facts, field) in [
            (json!({ "name": long }), "worker.name"),
            (json!({ "group": "" }), "worker.group"),
            (json!({ "tags": vec!["t"; 21] }), "worker.tags"),
            (json!({ "slots": 100_001 }), "worker.slots"),
        ] {
            socket.say("watch", &json!({ "classNames": ["it.Op"], "worker": facts }));
            assert_eq!(socket.find("error").await["field"], field);
        }
        assert!(listed(&api, "").await.is_empty());
    });
}

#[test]
fn workers_from_a_shell() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let one = id();
        let mut socket = introduce(&api, &one).await;
        socket.find("watching").await;
        let shell = |args: &[&str]| {
            let out = std::process::Command::new(WEBLOOM).arg("worker").args(["--broker", &broker.url]).args(args).output();
            let out = out.expect("it runs");
            let all = format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr));
            (out.status.code(), all)
        };
        let (code, text) = shell(&["list", "--online"]);
        assert!(code == Some(0) && text.contains("alpha") && text.contains("enabled") && text.contains("it.Op"), "{text}");
        let (code, text) = shell(&["kick", "alpha", "--reason", "bad day"]);
        assert!(code == Some(0) && text.contains("is kicked"), "{text}");
        let (code, text) = shell(&["show", "alpha"]);
        assert!(code == Some(0) && text.contains("kicked since") && text.contains("bad day"), "{text}");
        let (code, text) = shell(&["enable", &one]);
        assert!(code == Some(1) && text.contains("allow it first"), "{text}");
        assert_eq!(shell(&["allow", &one]).0, Some(0));
        let (code, text) = shell(&["list", "--json", "--offline"]);
        let list: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!((code, &list["items"][0]["id"]), (Some(0), &json!(one)), "{text}");
        assert_eq!(shell(&["forget", "alpha"]).0, Some(0));
        let (code, text) = shell(&["show", "alpha"]);
        assert!(code == Some(1) && text.contains("no worker `alpha`"), "{text}");
        assert!(shell(&["watches"]).1.contains("it.Op"));
    });
}
