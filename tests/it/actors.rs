//! The actors of the broker, by the API and on their pages.

use crate::portal_refresh::refreshes;
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

const RUNS: usize = 2_000;

async fn detail(api: &Api, path: &str) -> Value {
    let (status, actor) = api.get(&format!("/api/v1/actors/{path}")).await;
    assert_eq!(status, 200, "{actor}");
    actor
}

/// A task job of this name that runs many times, with a worker that never fetches an order.
async fn many(api: &Api, name: &str, runs: usize) {
    api.worker("it.wait").await;
    let job = json!({ "name": name, "jobType": "task", "task": { "handler": "it.wait" }, "policies": { "overlap": "allow" } });
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    let path = format!("/api/v1/jobs/{}/trigger/batch", job["id"].as_str().expect("an id"));
    for _ in 0..runs / 1_000 {
        assert_eq!(api.post(&path, &json!(vec![json!({}); 1_000])).await.0, 202);
    }
}

#[test]
fn thousands_of_actors_are_folded_searched_and_paged() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let evil = "<img src=x onerror=\"document.title='harm'\">";
        many(&api, evil, RUNS).await;
        let kinds = until("all runs", || async {
            let (_, kinds) = api.get("/api/v1/actors/kinds").await;
            let tasks = kinds["items"].as_array()?.iter().find(|kind| kind["kind"] == "task")?.clone();
            (tasks["count"] == RUNS).then_some(tasks)
        })
        .await;
        assert_eq!(kinds["parent"], "registry");
        let (_, all) = api.get("/api/v1/actors/kinds").await;
        for kind in ["job", "task"] {
            let one = all["items"].as_array().expect("kinds").iter().find(|one| one["kind"] == kind).expect("a kind");
            assert!(one["timePerMessage"].as_f64().is_some_and(|micros| micros > 0.0), "{one}");
        }

        // Each actor is on one page, by name.
        let (mut after, mut found) = (String::new(), Vec::new());
        loop {
            let (_, page) = api.get(&format!("/api/v1/actors?kind=task&limit=900{after}")).await;
            let page = page.as_array().expect("actors").clone();
            let Some(last) = page.last() else { break };
            assert_eq!(last["label"], evil);
            after = format!("&after=task/{}", last["name"].as_str().expect("a name"));
            found.extend(page.iter().map(|actor| actor["name"].to_string()));
        }
        let count = found.len();
        found.dedup();
        assert_eq!((count, found.len()), (RUNS, RUNS));
        let (_, named) = api.get("/api/v1/actors?text=ONERROR&kind=job").await;
        assert_eq!(named.as_array().map(Vec::len), Some(1), "{named}");
        assert_eq!(api.get("/api/v1/actors?after=task").await.0, 422);

        let browser = Browser::start().await;
        browser.open(&format!("{}/#/actors", broker.url)).await;
        let rows = "return document.querySelectorAll('main tbody tr').length;";
        browser.sees("▸ 2,000 runs of tasks").await;
        assert!(browser.run(rows, json!([])).await.as_u64().is_some_and(|rows| rows < 30), "they are folded");
        browser.click("▸ 2,000 runs of tasks").await;
        browser.sees(evil).await;
        browser.click("Show more of 2,000").await;
        browser.sees("All 2,000, page by page").await;
        assert!(browser.run(rows, json!([])).await.as_u64().is_some_and(|rows| (200..250).contains(&rows)), "not all are drawn");
        refreshes(&browser).await;
        assert!(browser.run(rows, json!([])).await.as_u64().is_some_and(|rows| (200..250).contains(&rows)), "it stays open");
        browser.click("All 2,000, page by page").await;
        browser.click("Next page").await;
        browser.sees("First page").await;
        let parts = "return [document.querySelectorAll('main img, main script').length, document.title];";
        assert_eq!(browser.run(parts, json!([])).await, json!([0, "Actors · Webloom"]));
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn an_actor_shows_why_it_was_restarted() {
    journey(async {
        let broker = Broker::start(&["--node-offline", "600000"], "node.pull=panic@2");
        let api = Api::new(&broker.url);
        let node = id();
        let path = format!("node/{node}");
        let actor = until("a restart", || async {
            // While its actor is being rebuilt, a beat is answered 503.
            api.post("/node/heartbeat", &json!({ "nodeId": node })).await;
            let (status, actor) = api.get(&format!("/api/v1/actors/{path}")).await;
            (status == 200 && actor["restarts"] == 1).then_some(actor)
        })
        .await;
        let reason = actor["crashes"][0]["reason"].as_str().expect("a reason").to_owned();
        assert!(reason.contains("node.pull"), "{actor}");
        let actor = until("a message that was timed", || async {
            api.post("/node/heartbeat", &json!({ "nodeId": node })).await;
            let actor = detail(&api, &path).await;
            actor["messages"][0]["time"].is_number().then_some(actor)
        })
        .await;
        assert!(actor["messages"][0]["type"].as_str().is_some_and(|name| name.starts_with("node.")), "{actor}");
        assert!(actor["messages"][0]["time"].as_f64().is_some_and(|micros| micros > 0.0), "{actor}");

        let browser = Browser::start().await;
        browser.open(&format!("{}/#/actors?errors=true", broker.url)).await;
        let name = actor["label"].as_str().expect("a name");
        browser.click(name).await;
        browser.sees(&format!("Actor: node {name}")).await;
        browser.sees(&reason).await;
        browser.sees("Messages by type").await;
        browser.sees("Last messages").await;
        browser.sees("up to 1").await;
        assert_eq!(api.get("/api/v1/actors/node/unknown").await.0, 404);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
