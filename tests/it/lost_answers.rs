//! Answers of polls that do not arrive: their blocks are delivered again at once, not after AckWait.

use crate::support::api::{Api, id, requests};
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, agent};
use crate::support::site::Site;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};

/// A poll that says which blocks the worker has.
async fn poll(api: &Api, path: &str, holds: &str) -> (u16, Value) {
    api.send(api.request(Method::GET, path).header("webloom-holds", holds)).await
}

#[test]
fn a_worker_that_says_what_it_holds_gets_lost_blocks_again() {
    journey(async {
        let broker = Broker::start(&[], "edge.poll.lost=fail");
        let api = Api::new(&broker.url);
        let (run, worker) = api.run("it.Lost", &json!({ "BlockSize": "1" })).await;
        api.heard(&worker, "start").await.expect("it begins");
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..2)).await.0, 200);
        let node = id();
        for _ in 0..2 {
            let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        let path = format!("/requestqueue/{run}?worker={worker}");
        let (status, answer) = poll(&api, &path, "").await;
        assert_eq!(status, 500, "this answer is lost: {answer}");
        let (status, first) = poll(&api, &path, "").await;
        assert_eq!(status, 200, "its block comes again: {first}");
        let held = first["blockId"].as_str().expect("an id");
        let (status, second) = poll(&api, &path, held).await;
        assert!(status == 200 && second["blockId"] != first["blockId"], "{second}");
        assert_eq!(api.get(&path).await.0, 204, "a poll without the header changes nothing");
        // A poll that waits, and whose caller does not read its answer any more.
        let waiting = {
            let (api, path, both) =
                (api.clone(), format!("{path}&wait=60"), format!("{held}, {}", second["blockId"].as_str().expect("an id")));
            actix_rt::spawn(async move { poll(&api, &path, &both).await.0 })
        };
        until("the poll waits", || async {
            // It ends the other one, if that one is there already, and gets what the worker does not hold.
            let (status, again) = poll(&api, &path, held).await;
            assert_eq!((status, &again["blockId"]), (200, &second["blockId"]));
            waiting.is_finished().then_some(())
        })
        .await;
        assert_eq!(waiting.await.expect("answered"), 204);
        let (status, problem) = poll(&api, &path, "what").await;
        assert!(status == 400 && problem["field"] == "webloom-holds", "{problem}");
        let (status, problem) = poll(&api, &format!("/requestqueue/{run}"), held).await;
        assert!(status == 400 && problem["field"] == "webloom-holds", "it belongs to a worker: {problem}");
    });
}

#[test]
fn a_crawl_goes_on_after_lost_answers() {
    const PAGES: usize = 40;
    journey(async {
        let site = Site::serve(PAGES);
        let broker = Broker::start(&[], "edge.poll.lost=fail@2");
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("agent")).expect("a folder");
        let _agent = agent(&broker.url, &home.path().join("agent"), &[]);
        let mut crawl = Crawl::start(&site.url, home.path(), &["--broker", &broker.url]);
        // AckWait is 5 minutes, and a test waits for one.
        crawl.succeeds().await;
        assert_eq!(urls(&crawl.lines()), site.all().into_iter().collect::<Vec<_>>(), "each page once");
        site.stop().await;
    });
}
