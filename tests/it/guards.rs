//! What a run does not take: traps, too much of one site, too much at once; and which URLs it takes for one page.

use crate::support::api::{Api, id};
use crate::support::crawl::Crawl;
use crate::support::process::Broker;
use crate::support::web::{Answer, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};

fn pages<'a>(urls: impl IntoIterator<Item = &'a str>) -> Value {
    urls.into_iter().map(|url| json!({ "url": url, "depth": 1 })).collect()
}

fn counts(pushed: &Value) -> [u64; 4] {
    ["accepted", "duplicates", "overLimit", "trapped"].map(|key| pushed[key].as_u64().unwrap_or_else(|| panic!("{key} in {pushed}")))
}

#[test]
fn traps_are_not_taken_unless_the_job_says_so() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let long = format!("http://a.test/{}", "x".repeat(3_000));
        let urls = ["http://a.test/x", "http://a.test/c/d/c/d/c/d/c/d", long.as_str()];
        for (class, properties, expected) in
            [("it.Usual", json!({}), [1, 0, 0, 2]), ("it.Open", json!({ "MaxUrlLength": "0", "MaxRepeatedSegments": "0" }), [3, 0, 0, 0])]
        {
            let (run, _) = api.run(class, &properties).await;
            let (status, pushed) = api.post(&format!("/requestqueue/{run}"), &pages(urls)).await;
            assert_eq!((status, counts(&pushed)), (200, expected), "{class}: {pushed}");
        }
        // What was asked for itself is no trap.
        let (run, _) = api.run("it.Start", &json!({})).await;
        let (_, pushed) = api.post(&format!("/requestqueue/{run}"), &json!([{ "url": urls[1] }])).await;
        assert_eq!(counts(&pushed), [1, 0, 0, 0]);
        // A site led to the target of a redirect.
        let (_, pushed) = api.post(&format!("/requestqueue/{run}"), &json!([{ "url": long, "redirectedFrom": ["http://a.test/"] }])).await;
        assert_eq!(counts(&pushed), [0, 0, 0, 1]);
    });
}

#[test]
fn spellings_of_one_page_are_taken_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let rules = json!({ "SortQuery": "true", "DropParameters": "sid, utm_*", "TrailingSlash": "drop" });
        let (run, _) = api.run("it.One", &rules).await;
        let urls = ["http://a.test/x/?b=1&a=2&SID=3", "http://a.test/x?a=2&b=1&utm_source=mail", "http://a.test/x?a=2"];
        let (_, pushed) = api.post(&format!("/requestqueue/{run}"), &pages(urls)).await;
        assert_eq!(counts(&pushed), [2, 1, 0, 0], "{pushed}");
        let (_, pushed) = api.post(&format!("/requestqueue/{run}"), &pages(["http://a.test/x/?a=2"])).await;
        assert_eq!(counts(&pushed), [0, 1, 0, 0], "{pushed}");
        let block = api.beat(&id(), &json!({})).await;
        assert_eq!(block["requests"][0]["url"], urls[0], "a page is asked for by the URL that came first");
        let body = json!({ "name": "bad", "jobType": "block", "properties": { "FullClassName": "a.B", "TrailingSlash": "maybe" } });
        let (status, problem) = api.post("/api/v1/jobs", &body).await;
        assert_eq!((status, &problem["field"]), (422, &json!("properties.TrailingSlash")), "{problem}");
    });
}

#[test]
fn a_run_takes_so_much_of_a_site_and_no_more_after_a_crash() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Site", &json!({ "MaxPerSite": "3", "BlockSize": "2" })).await;
        let push = async |from: usize| {
            let urls: Vec<String> =
                ["a.test", "b.example.org"].iter().flat_map(|host| (from..from + 2).map(move |n| format!("http://{host}/{n}"))).collect();
            api.post(&format!("/requestqueue/{run}"), &pages(urls.iter().map(String::as_str))).await
        };
        // One has a pace, the other has none.
        assert_eq!(counts(&push(0).await.1), [4, 0, 0, 0]);
        broker.kill_and_restart();
        until("the broker", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
        let queue = format!("/requestqueue/{run}?wait=0");
        until("the run to be loaded", || async { (api.get(&queue).await.0 != 503).then_some(()) }).await;
        assert_eq!(counts(&push(2).await.1), [2, 0, 2, 0]);
        assert_eq!(counts(&push(0).await.1), [0, 4, 0, 0], "what was taken is a duplicate still");
        assert_eq!(api.state(&run).await["total"], 6);
    });
}

#[test]
fn a_full_queue_asks_to_come_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Full", &json!({ "MaxPending": "2" })).await;
        let path = format!("/requestqueue/{run}");
        assert_eq!(api.post(&path, &pages(["http://a.test/1", "http://a.test/2"])).await.0, 200);
        let (status, problem) = api.post(&path, &pages(["http://a.test/3"])).await;
        assert_eq!((status, &problem["type"]), (429, &json!("/problems/too-many")), "{problem}");
        let answer =
            api.request(reqwest::Method::POST, &path).body(pages(["http://a.test/3"]).to_string()).send().await.expect("an answer");
        assert!(answer.headers().contains_key("retry-after"));
        assert_eq!(api.state(&run).await["total"], 2);
        let node = id();
        let block = api.beat(&node, &json!({})).await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        assert_eq!(counts(&api.post(&path, &pages(["http://a.test/3"])).await.1), [1, 0, 0, 0]);
        // Pushes that come at the same time: one of them may pass the bound, and those after it see what it has added.
        let many =
            |from: u32| pages((from..from + 50).map(|n| format!("http://a.test/{n}")).collect::<Vec<_>>().iter().map(String::as_str));
        let pushes = (0..8).map(|i| {
            let (api, path, pages) = (&api, &path, many(100 + 50 * i));
            async move { api.post(path, &pages).await.0 }
        });
        let statuses = futures_util::future::join_all(pushes).await;
        assert_eq!(statuses.iter().filter(|status| **status == 200).count(), 1, "{statuses:?}");
    });
}

#[test]
fn a_run_ends_once_it_has_downloaded_so_many_bytes_over_a_crash() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        assert_eq!(api.post("/api/v1/sites/b.example.org/hold", &json!({ "for": 600_000 })).await.0, 200);
        let (run, _) = api.run("it.Bytes", &json!({ "MaxBytes": "60", "BlockSize": "2" })).await;
        let path = format!("/requestqueue/{run}");
        let mut urls: Vec<String> = (0..8).map(|n| format!("http://a.test/{n}")).collect();
        urls.push("http://b.example.org/".to_owned());
        assert_eq!(counts(&api.post(&path, &pages(urls.iter().map(String::as_str))).await.1), [9, 0, 0, 0]);
        let (node, other) = (id(), id());
        let next = async |api: &Api, node: &str| {
            until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| !block.is_null()) }).await
        };
        // A page of this node has 22 bytes.
        let block = next(&api, &node).await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        assert_eq!((&api.state(&run).await["bytes"], &api.state(&run).await["left"]), (&json!(44), &json!(7)));
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let (second, third) = (next(&api, &node).await, next(&api, &other).await);
        assert_eq!(api.report(&node, &second, 200).await.0, 200);
        // What waited is discarded, also what waits for its site; what a node has is finished.
        let state = until("the discards", || async { Some(api.state(&run).await).filter(|run| run["left"] == 2) }).await;
        assert_eq!((&state["bytes"], &state["error"], &state["success"]), (&json!(88), &json!(3), &json!(4)), "{state}");
        assert_eq!(api.beat(&id(), &json!({})).await, Value::Null, "no node gets anything");
        assert_eq!(counts(&api.post(&path, &pages(["http://a.test/new"])).await.1), [0, 0, 1, 0]);
        assert_eq!(api.report(&other, &third, 200).await.0, 200);

        let mut discarded = Vec::new();
        loop {
            let (status, block) = api.get(&path).await;
            if status != 200 {
                break;
            }
            let failed = block["results"].as_array().expect("results").iter().filter(|result| result["error"].is_object());
            discarded.extend(failed.map(|result| result["error"].clone()));
            assert_eq!(api.post(&format!("{path}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
        }
        assert_eq!(discarded.len(), 3, "{discarded:?}");
        let why = "the run has downloaded 88 bytes, and the job's MaxBytes is 60";
        assert!(discarded.iter().all(|error| error["kind"] == "discarded" && error["message"] == why), "{discarded:?}");
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        let end = until("the end", || async { Some(api.state(&run).await).filter(|run| run["finishTime"].is_string()) }).await;
        let why = "the run has downloaded 132 bytes, and the job's MaxBytes is 60";
        assert_eq!((&end["state"], &end["reason"], &end["bytes"]), (&json!("success"), &json!(why), &json!(132)), "{end}");
    });
}

#[test]
fn a_crawl_ends_after_so_many_bytes_and_says_which_pages_it_left_out() {
    journey(async {
        let web = Web::serve(|asked| match asked.path.as_str() {
            "/" => Answer::html((0..300).map(|n| format!("<a href=/{n}>{n}</a>")).collect::<String>()),
            _ => Answer::html("x".repeat(1_000)),
        })
        .expect("a web");
        let folder = tempfile::tempdir().expect("a folder");
        let mut crawl = Crawl::start(&web.url(0, "/"), folder.path(), &["--threads", "1", "--max-bytes", "15000"]);
        crawl.succeeds().await;
        let lines = crawl.lines();
        let is_left_out = |line: &&Value| line["error"].as_str().is_some_and(|why| why.ends_with("and the job's MaxBytes is 15000"));
        let (left_out, fetched) = (lines.iter().filter(is_left_out).count(), lines.iter().filter(|line| line["status"] == 200).count());
        assert_eq!((lines.len(), left_out + fetched), (301, 301), "each page has its line");
        // The links alone have less than 6,000 bytes.
        assert!(left_out > 0 && fetched > 10, "{left_out} left out, {fetched} fetched");
        assert_eq!(web.log().iter().filter(|entry| entry.path != "/robots.txt").count(), fetched);
    });
}
