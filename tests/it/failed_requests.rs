//! Requests of a run: those that failed listed and queued once more, those that are pending listed and discarded; found by their URL.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::{journey, until};
use serde_json::{Value, json};

pub async fn next_block(api: &Api, node: &str) -> Value {
    until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| !block.is_null()) }).await
}

/// Reports a block: what a page's path says is what becomes of it.
pub async fn report(api: &Api, node: &str, block: &Value) {
    let results: Vec<Value> = block["requests"]
        .as_array()
        .expect("requests")
        .iter()
        .map(|request| {
            let url = request["url"].as_str().expect("a URL");
            match url.rsplit('/').next().expect("a path") {
                "slow" => {
                    json!({ "requestId": request["requestId"], "tries": 3, "error": { "kind": "timeout", "message": "no answer in 5 s" } })
                }
                page => {
                    let status = page.split('-').next().and_then(|word| word.parse().ok()).unwrap_or(200_u16);
                    json!({ "requestId": request["requestId"], "status": status, "tries": 1, "text": "x" })
                }
            }
        })
        .collect();
    let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "attempt": block["attempt"], "results": results });
    let (status, done) = api.post("/node/block", &report).await;
    assert_eq!(status, 200, "{done}");
}

/// Takes and acknowledges all that is delivered: how many results.
pub async fn drain(api: &Api, run: &str) -> usize {
    let mut results = 0;
    loop {
        // A poll that meets the end of the run is to come again (503).
        let path = format!("/requestqueue/{run}");
        let poll = || async { Some(api.get(&path).await).filter(|(status, _)| *status != 503) };
        let (status, block) = until("an answer of the queue", poll).await;
        if status == 204 {
            return results;
        }
        assert_eq!(status, 200, "{block}");
        results += block["results"].as_array().map_or(0, Vec::len);
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
    }
}

pub async fn push(api: &Api, run: &str, urls: &[&str]) {
    let requests: Vec<Value> = urls.iter().map(|url| json!({ "url": url, "meta": { "keep": "me" } })).collect();
    let (status, pushed) = api.post(&format!("/requestqueue/{run}"), &json!(requests)).await;
    assert_eq!((status, &pushed["accepted"]), (200, &json!(urls.len())), "{pushed}");
}

pub async fn failed(api: &Api, run: &str, query: &str) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let (status, page) = api.get(&format!("/api/v1/runs/{run}/requests?state=failed{query}{cursor}")).await;
        assert_eq!(status, 200, "{page}");
        all.extend(page["items"].as_array().expect("items").clone());
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return all,
        }
    }
}

pub fn urls(rows: &[Value]) -> Vec<&str> {
    rows.iter().map(|row| row["url"].as_str().expect("a URL").split_once("//").expect("a scheme").1).collect()
}

async fn requeue(api: &Api, run: &str, input: Value) -> Value {
    let (status, done) = api.post(&format!("/api/v1/runs/{run}/requests/requeue"), &input).await;
    assert_eq!(status, 200, "{done}");
    done
}

async fn why(api: &Api, run: &str, url: &str) -> (String, String) {
    let (status, why) = api.get(&format!("/api/v1/runs/{run}/why-url?url={}", url.replace('#', "%23"))).await;
    assert_eq!(status, 200, "{why}");
    (why["verdict"].as_str().expect("a verdict").to_owned(), why["because"].to_string())
}

pub fn shell(broker: &Broker, args: &[&str]) -> String {
    let mut command = std::process::Command::new(WEBLOOM);
    let done = command.arg("run").arg("--broker").arg(&broker.url).args(args).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

pub const PAGES: [&str; 6] = [
    "http://a.test/200-1",
    "http://a.test/404-1",
    "http://b.test/slow",
    "http://b.test/200-2",
    "http://b.test/503-1",
    "http://a.test/404-2",
];

#[test]
fn failures_are_listed_and_queued_again_once() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Failures", &json!({ "BlockSize": "2" })).await;
        push(&api, &run, &PAGES).await;
        let node = id();
        for _ in 0..3 {
            let block = next_block(&api, &node).await;
            report(&api, &node, &block).await;
        }
        assert_eq!(drain(&api, &run).await, 6);
        // Their results are gone with the acknowledgement; the failures stay, over a crash, too.
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let all = failed(&api, &run, "").await;
        assert_eq!(urls(&all), ["a.test/404-1", "b.test/slow", "b.test/503-1", "a.test/404-2"]);
        let slow = &all[1];
        assert_eq!(
            (&slow["kind"], &slow["message"], &slow["status"]),
            (&json!("timeout"), &json!("no answer in 5 s"), &json!(0)),
            "{slow}"
        );
        assert_eq!((&slow["tries"], &slow["nodeId"], slow.get("requeuedAs")), (&json!(3), &json!(node), None), "{slow}");
        assert!(slow["blockId"].is_string() && slow["finishTime"].is_string(), "{slow}");
        assert_eq!((all[0].get("kind"), &all[0]["status"]), (None, &json!(404)));
        assert_eq!(urls(&failed(&api, &run, "&limit=1").await), urls(&all), "page by page");
        assert_eq!(urls(&failed(&api, &run, "&site=B.test").await), ["b.test/slow", "b.test/503-1"]);
        assert_eq!(urls(&failed(&api, &run, "&kind=timeout").await), ["b.test/slow"]);
        assert_eq!(urls(&failed(&api, &run, "&status=404&limit=1").await), ["a.test/404-1", "a.test/404-2"]);
        let list = shell(&broker, &["requests", &run, "--failed", "--status", "503"]);
        assert!(list.contains("http://b.test/503-1") && list.lines().count() == 2, "{list}");
        for (bad, status) in [("state=done", 400), ("kind=bad", 400), ("status=1000", 422), ("cursor=7", 422), ("limit=0", 422)] {
            assert_eq!(api.get(&format!("/api/v1/runs/{run}/requests?{bad}")).await.0, status, "{bad}");
        }

        let none = json!({ "found": 1, "queued": 0, "overLimit": 0, "more": false });
        until("the run", || async { (api.post(&format!("/api/v1/runs/{run}/pause"), &json!({})).await.0 == 200).then_some(()) }).await;
        assert_eq!(requeue(&api, &run, json!({ "kind": "timeout", "dryRun": true })).await, none);
        assert_eq!(api.state(&run).await["total"], 6);
        let again = json!({ "site": "b.test" });
        let path = format!("/api/v1/runs/{run}/requests/requeue");
        let (one, two) = tokio::join!(api.post(&path, &again), api.post(&path, &again));
        let queued = |(_, done): &(u16, Value)| done["queued"].as_u64().unwrap_or(0);
        assert_eq!(queued(&one) + queued(&two), 2, "{one:?} {two:?}");
        assert_eq!(requeue(&api, &run, again).await["found"], 0, "each at most once");
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/requests/requeue"), &json!({ "sites": "b" })).await.0, 422);

        // What was queued again is on disk, with all its members but an id of its own.
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        assert_eq!(requeue_later(&api, &run).await["queued"], 0);
        let marked = failed(&api, &run, "&site=b.test").await;
        assert!(marked.iter().all(|row| row["requeuedAs"].is_string()), "{marked:?}");
        let (_, waits) = why(&api, &run, "http://b.test/slow").await;
        assert!(
            waits.contains("timeout: no answer in 5 s")
                && waits.contains("That request was queued again")
                && waits.contains("is paused since")
        );
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/resume"), &json!({})).await.0, 200);
        let block = next_block(&api, &node).await;
        let requests = block["requests"].as_array().expect("requests");
        assert_eq!(urls(requests), ["b.test/slow", "b.test/503-1"]);
        assert!(requests.iter().all(|request| request["meta"]["keep"] == "me" && request.get("tries").is_none()), "{block}");
        let ids = |rows: &[Value], key: &str| rows.iter().map(|row| row[key].clone()).collect::<Vec<_>>();
        assert_eq!(ids(requests, "requestId"), ids(&marked, "requeuedAs"));
        report(&api, &node, &block).await;
        assert_eq!(drain(&api, &run).await, 2);
        let state = api.state(&run).await;
        assert_eq!((&state["total"], &state["error"], &state["success"]), (&json!(8), &json!(6), &json!(2)), "{state}");
        // A repetition that fails is a failure as any.
        assert_eq!(requeue(&api, &run, json!({ "site": "b.test", "dryRun": true })).await["found"], 2);
        assert_eq!(shell(&broker, &["requeue", &run, "--status", "404"]), "2 of 2 failed requests are queued again");
        let block = next_block(&api, &node).await;
        report(&api, &node, &block).await;
        drain(&api, &run).await;

        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        until("the end", || async { Some(api.state(&run).await).filter(|run| run["state"] == "success") }).await;
        assert_eq!(failed(&api, &run, "").await.len(), 8, "after the end, too");
        assert_eq!(api.get(&format!("/api/v1/runs/{}/requests", id())).await.0, 404);
    });
}

/// Once the run is loaded.
async fn requeue_later(api: &Api, run: &str) -> Value {
    let path = format!("/api/v1/runs/{run}/requests/requeue");
    until("the run", || async { Some(api.post(&path, &json!({ "site": "b.test" })).await).filter(|(status, _)| *status == 200) }).await.1
}

#[test]
fn what_is_past_the_most_requests_of_a_run_is_not_queued_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.FullRun", &json!({ "MaxRequests": "3" })).await;
        push(&api, &run, &["http://a.test/500-1", "http://a.test/500-2"]).await;
        let node = id();
        let block = next_block(&api, &node).await;
        report(&api, &node, &block).await;
        assert_eq!(requeue(&api, &run, json!({})).await, json!({ "found": 2, "queued": 1, "overLimit": 1, "more": false }));
        assert_eq!(requeue(&api, &run, json!({})).await, json!({ "found": 1, "queued": 0, "overLimit": 1, "more": false }));
        assert_eq!(requeue(&api, &run, json!({ "limit": 1, "dryRun": true })).await["more"], false);
    });
}

#[test]
fn a_url_is_found_wherever_its_request_is() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Find", &json!({ "BlockSize": "2", "Delay": "600000" })).await;
        push(&api, &run, &["http://a.test/200-1", "http://a.test/404-1", "http://a.test/200-3", "http://b.test/200-4"]).await;
        let (verdict, text) = why(&api, &run, "http://nowhere.test/").await;
        assert!(verdict == "unknown" && text.contains("was never pushed"), "{text}");
        let (verdict, text) = why(&api, &run, "HTTP://B.test:80/200-4#x").await;
        assert!(
            verdict == "waiting" && text.contains("canonical form is http://b.test/200-4.") && text.contains("its site b.test"),
            "{text}"
        );
        let node = id();
        // A node that knows nothing of pace gets one request.
        let block = next_block(&api, &node).await;
        let first = block["requests"][0]["url"].as_str().expect("a URL").to_owned();
        let (verdict, text) = why(&api, &run, &first).await;
        assert!(verdict == "atNode" && text.contains(&node) && text.contains("in attempt 1"), "{text}");
        let (verdict, text) = why(&api, &run, "http://a.test/200-3").await;
        assert!(verdict == "waiting" && text.contains("which another block is using"), "{text}");
        report(&api, &node, &block).await;
        assert_eq!(first, "http://a.test/200-1");
        let (verdict, text) = why(&api, &run, &first).await;
        assert!(verdict == "done" && text.contains("with status 200, and no worker has acknowledged it yet"), "{text}");
        let (_, text) = why(&api, &run, "http://a.test/200-3").await;
        assert!(text.contains("its site a.test, which may not be used before 20"), "{text}");
        drain(&api, &run).await;
        let (verdict, text) = why(&api, &run, &first).await;
        assert!(verdict == "done" && text.contains("after that the status is not kept"), "{text}");
        let said = shell(&broker, &["why-url", &run, "http://b.test/200-4"]);
        assert!(said.starts_with("http://b.test/200-4: ") && said.contains("b.test"), "{said}");
        let (status, problem) = api.get(&format!("/api/v1/runs/{run}/why-url?url=mailto:x")).await;
        assert_eq!((status, &problem["field"]), (422, &json!("url")), "{problem}");
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        let (verdict, text) = why(&api, &run, "http://a.test/404-1").await;
        assert!(verdict == "givenUp" && text.contains("the run ended first, as stopped"), "{text}");
    });
}

async fn pending(api: &Api, run: &str, query: &str) -> Vec<Value> {
    let (status, page) = api.get(&format!("/api/v1/runs/{run}/requests/pending?limit=1000{query}")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").clone()
}

#[test]
fn pending_requests_are_listed_and_discarded() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Pending", &json!({ "BlockSize": "3", "Delay": "0", "Robots": "ignore" })).await;
        // What is null is absent.
        let of = |url: &str, depth: u32| json!({ "url": format!("http://{url}"), "depth": depth, "priority": -1, "headers": null, "tries": null });
        let pages = ["a.test/1", "a.test/2?sort=1", "a.test/3", "b.test/cal/1", "b.test/cal/2", "b.test/x", "a.test/4"];
        let batch: Value = pages.iter().zip(0..).map(|(url, depth)| of(url, depth)).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &batch).await.0, 200);
        let node = id();
        let out = next_block(&api, &node).await;
        assert_eq!(urls(out["requests"].as_array().expect("requests")), pages[..3]);

        let all = pending(&api, &run, "").await;
        assert_eq!(urls(&all), pages);
        assert_eq!((&all[3]["depth"], &all[3]["priority"]), (&json!(3), &json!(-1)), "{all:?}");
        assert_eq!(urls(&pending(&api, &run, "&site=b.test").await), pages[3..6]);
        assert_eq!(urls(&pending(&api, &run, "&url=/cal/*2$").await), ["b.test/cal/2"]);
        assert_eq!(urls(&pending(&api, &run, "&minDepth=2&maxDepth=4&url=sort").await), Vec::<&str>::new());
        assert_eq!(urls(&pending(&api, &run, "&minDepth=2&maxDepth=3").await), pages[2..4]);
        let (_, first) = api.get(&format!("/api/v1/runs/{run}/requests/pending?limit=4")).await;
        let rest = pending(&api, &run, &format!("&cursor={}", first["nextCursor"].as_str().expect("more"))).await;
        assert_eq!(urls(&rest), pages[4..]);
        assert!(shell(&broker, &["requests", &run, "--pending", "--site", "b.test"]).contains("http://b.test/cal/1"));

        // Without a condition nothing is discarded.
        let path = format!("/api/v1/runs/{run}/requests/discard");
        for bad in [
            json!({}),
            json!({ "url": "" }),
            json!({ "url": "*$" }),
            json!({ "minDepth": 0 }),
            json!({ "all": true, "site": "b.test" }),
            json!({ "site": "b.test", "limit": 0 }),
            json!({ "sites": "b" }),
            json!({ "site": "a b" }),
            json!({ "minDepth": 3, "maxDepth": 2 }),
        ] {
            let (status, problem) = api.post(&path, &bad).await;
            assert_eq!(status, 422, "{bad} {problem}");
        }
        for (list, field) in [("/pending?minDepth=3&maxDepth=2", "maxDepth"), ("/pending?site=a%20b", "site"), ("?site=*.test", "site")] {
            let (status, problem) = api.get(&format!("/api/v1/runs/{run}/requests{list}")).await;
            assert_eq!((status, &problem["field"]), (422, &json!(field)), "{list} {problem}");
        }
        let (status, problem) = api.post(&format!("/api/v1/runs/{run}/requests/requeue"), &json!({ "site": "a/b" })).await;
        assert_eq!((status, &problem["field"]), (422, &json!("site")), "{problem}");
        let (status, problem) = api.get(&format!("/api/v1/runs/{run}/sites?limit=-1")).await;
        assert_eq!((status, &problem["detail"]), (400, &json!("cannot read the query `limit=-1`: a whole number from 0 is expected")));
        assert_eq!(shell(&broker, &["discard", &run, "--url", "/cal/", "--dry-run"]), "2 pending requests are found");
        assert_eq!(shell(&broker, &["discard", &run, "--url", "/cal/"]), "2 of 2 pending requests are discarded");
        // The first page is at a node and stays there; the last one makes a whole block.
        let (status, done) = api.post(&path, &json!({ "site": "a.test", "limit": 1 })).await;
        assert_eq!((status, &done), (200, &json!({ "found": 4, "discarded": 1, "more": false })));

        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        assert_eq!(urls(&pending(&api, &run, "").await), [&pages[..3], &pages[5..6]].concat());
        let discarded = failed(&api, &run, "&kind=discarded").await;
        assert_eq!(discarded.len(), 3, "{discarded:?}");
        let (verdict, because) = why(&api, &run, "http://b.test/cal/1").await;
        assert!(verdict == "failed" && because.contains("discarded"), "{verdict}: {because}");
        // A node that still has a block of which a request was discarded learns that it is finished; the others go out again.
        let path = format!("/api/v1/runs/{run}/requests/discard");
        let (status, done) = until("the run's actor", async || {
            let answer = api.post(&path, &json!({ "url": "sort=1$" })).await;
            (answer.0 != 503).then_some(answer)
        })
        .await;
        assert_eq!((status, &done), (200, &json!({ "found": 1, "discarded": 1, "more": false })));
        let (status, problem) = api.report(&node, &out, 200).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/block-finished")), "{problem}");
        let mut left = [next_block(&api, &node).await, next_block(&api, &node).await];
        left.sort_by_key(|block| block["requests"].as_array().map(Vec::len));
        let left = left.each_ref().map(|block| urls(block["requests"].as_array().expect("requests")));
        assert_eq!(left, [vec!["b.test/x"], vec![pages[0], pages[2]]]);
        // The worker receives the discarded ones as failures, and they can be queued again.
        assert_eq!(drain(&api, &run).await, 4);
        let found = shell(&broker, &["requeue", &run, "--kind", "discarded", "--site", "b.test", "--dry-run"]);
        assert_eq!(found, "2 failed requests are found");
        assert_eq!(requeue(&api, &run, json!({ "kind": "discarded", "site": "b.test" })).await["queued"], 2);
        assert_eq!(pending(&api, &run, "&url=/cal/").await.len(), 2);
        let now = api.state(&run).await;
        assert_eq!((&now["total"], &now["error"], &now["left"]), (&json!(9), &json!(4), &json!(5)), "{now}");
    });
}
