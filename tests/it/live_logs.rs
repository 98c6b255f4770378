//! The log of a run while it grows: every line once, from wherever one comes in, and nothing left of who has gone.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// An event: its name, its id, its data.
type Event = (String, Option<i64>, Value);

/// One who follows.
struct Follower {
    answer: reqwest::Response,
    read: String,
}

impl Follower {
    async fn open(api: &Api, run: &str, query: &str, last: Option<i64>) -> Self {
        let request = api.request(Method::GET, &format!("/api/v1/runs/{run}/logs/stream?{query}"));
        let request = if let Some(last) = last { request.header("Last-Event-ID", last) } else { request };
        let answer = request.send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.headers()["content-type"], "text/event-stream");
        Self { answer, read: String::new() }
    }

    /// The next event; none: the answer is over.
    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (mut name, mut id, mut data) = (String::new(), None, Value::Null);
                for line in event.lines() {
                    match line.split_once(": ") {
                        Some(("event", value)) => name = value.to_owned(),
                        Some(("id", value)) => id = value.parse().ok(),
                        Some(("data", value)) => data = serde_json::from_str(value).expect("JSON"),
                        _ => assert!(line.starts_with(':'), "{line}"),
                    }
                }
                let event = (name, id, data);
                self.read = rest.to_owned();
                return Some(event);
            }
            let more = tokio::time::timeout(Duration::from_secs(20), self.answer.chunk()).await.expect("more, or the end");
            self.read.push_str(std::str::from_utf8(&more.ok()??).expect("text"));
        }
    }

    /// The next line; other events are passed over.
    async fn line(&mut self) -> (i64, String) {
        loop {
            let (name, id, data) = self.next().await.expect("a line");
            if name == "line" {
                return (id.expect("an id"), data["text"].as_str().expect("a text").to_owned());
            }
        }
    }

    async fn rest(&mut self) -> Vec<Event> {
        let mut all = Vec::new();
        while let Some(event) = self.next().await {
            all.push(event);
        }
        all
    }
}

async fn say(api: &Api, run: &str, level: &str, texts: impl IntoIterator<Item = String>) {
    let lines: Vec<Value> = texts.into_iter().map(|text| json!({ "text": text, "level": level })).collect();
    let (status, answer) = api.post(&format!("/api/v1/runs/{run}/logs"), &json!(lines)).await;
    assert_eq!(status, 200, "{answer}");
}

/// Streams that the broker knows of.
async fn streams(api: &Api) -> usize {
    let (_, actors) = api.get("/api/v1/actors").await;
    let actors = actors.as_array().expect("actors");
    actors.iter().filter(|actor| actor["name"].as_str().is_some_and(|name| name.starts_with("log of "))).count()
}

async fn end(api: &Api, run: &str) {
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
}

#[test]
fn every_line_comes_once_and_then_the_end() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Live", &json!({})).await;
        say(&api, &run, "info", ["a".to_owned()]).await;
        let mut follower = Follower::open(&api, &run, "", None).await;
        let (_, made) = follower.line().await;
        assert!(made.starts_with("triggered"), "{made}");
        let mut last = loop {
            let (id, text) = follower.line().await;
            if text == "a" {
                break id;
            }
        };
        // More than a page, written while one follows.
        let texts = |from: usize| (from..from + 400).map(|i| format!("line {i}\nof two"));
        say(&api, &run, "debug", texts(0)).await;
        say(&api, &run, "warn", texts(400)).await;
        let mut ids = Vec::new();
        for expected in texts(0).chain(texts(400)) {
            let (id, text) = loop {
                let line = follower.line().await;
                if line.0 > 0 {
                    break line;
                }
            };
            assert!(id > last && text == expected, "{id} {text} after {last}");
            last = id;
            ids.push(id);
        }
        // One who comes again goes on where it was.
        let mut again = Follower::open(&api, &run, "after=1", Some(ids[797])).await;
        assert_eq!((again.line().await.0, again.line().await.0), (ids[798], ids[799]));
        let mut loud = Follower::open(&api, &run, "level=warning&text=LINE%2079", None).await;
        let first = loud.line().await;
        assert_eq!(first.1, "line 790\nof two");
        end(&api, &run).await;
        let rest = follower.rest().await;
        let names: Vec<&str> = rest.iter().map(|event| event.0.as_str()).filter(|name| *name != "state").collect();
        assert_eq!(names.last(), Some(&"end"), "{rest:?}");
        assert_eq!(rest.last().expect("events").2["state"], "success");
        let ended = rest.iter().rev().find(|event| event.0 == "line").expect("the last line");
        assert!(ended.2["text"].as_str().is_some_and(|text| text.starts_with("ended: success")), "{ended:?}");
        assert_eq!(rest.iter().filter(|event| event.0 == "line" && event.1 > Some(0)).count(), 1, "{rest:?}");
        let lines = loud.rest().await.iter().filter(|event| event.0 == "line").count();
        assert_eq!(lines, 9, "791 to 799, and not the news of the end");
        // After the end there is nothing but that.
        let mut late = Follower::open(&api, &run, "", ended.1).await;
        let names: Vec<String> = late.rest().await.into_iter().map(|event| event.0).collect();
        assert_eq!(names, ["state", "end"]);
        // All of it again, from the beginning: what one of a page has, too.
        let all = Follower::open(&api, &run, "", None).await.rest().await;
        let (_, page) = api.get(&format!("/api/v1/runs/{run}/logs?limit=1000")).await;
        let lines: Vec<Value> = all.into_iter().filter(|event| event.0 == "line").map(|event| event.2).collect();
        assert_eq!(json!(lines), page["items"]);
        until("all to be gone", || async { (streams(&api).await == 0).then_some(()) }).await;
    });
}

#[test]
fn nothing_is_left_of_one_who_hangs_up() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Live", &json!({})).await;
        let mut followers = Vec::new();
        for _ in 0..20 {
            let mut follower = Follower::open(&api, &run, "", None).await;
            follower.line().await;
            followers.push(follower);
        }
        // One that never reads is no reason to keep anything in memory, nor for others to wait.
        say(&api, &run, "info", (0..900).map(|i| format!("{i} {}", "x".repeat(4_000)))).await;
        let reads = followers.pop().expect("one");
        assert_eq!(streams(&api).await, 20);
        drop(followers);
        until("the others to be gone", || async { (streams(&api).await == 1).then_some(()) }).await;
        drop(reads);
        until("the last to be gone", || async { (streams(&api).await == 0).then_some(()) }).await;

        assert_eq!(api.get(&format!("/api/v1/runs/{}/logs/stream", id())).await.0, 404);
        for query in ["level=loud", "wait=-1", "wait=86401"] {
            assert_eq!(api.get(&format!("/api/v1/runs/{run}/logs/stream?{query}")).await.0, 422, "{query}");
        }
        let short = Follower::open(&api, &run, "wait=0", None).await.rest().await;
        assert_eq!(short.iter().filter(|event| event.0 == "line" && event.1 > Some(0)).count(), 900);
        assert!(short.iter().all(|event| event.0 != "end"), "the run is not over");

        // A broker that goes down does not wait for who follows.
        let mut follower = Follower::open(&api, &run, &format!("after={}", i64::MAX), None).await;
        follower.next().await;
        let begin = Instant::now();
        assert!(broker.process.terminate().success());
        assert!(begin.elapsed() < Duration::from_secs(4), "{:?}", begin.elapsed());
        assert!(follower.rest().await.iter().all(|event| event.0 != "end"));
    });
}
