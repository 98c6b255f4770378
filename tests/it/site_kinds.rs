//! Runs that count sites in different ways, or have no pace, share the hosts that they ask. The node of this test knows nothing of pace.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const DELAY_MS: u64 = 300;

async fn next_block(api: &Api, node: &str) -> Value {
    until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| !block.is_null()) }).await
}

async fn run(api: &Api, class: &str, properties: Value, urls: &[&str]) -> String {
    let (run, _) = api.run(class, &properties).await;
    let pages: Value = urls.iter().map(|url| json!({ "url": format!("http://{url}") })).collect();
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages).await.0, 200);
    run
}

async fn site(api: &Api, run: &str, name: &str) -> Value {
    let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
    let found = sites["items"].as_array().into_iter().flatten().find(|site| site["name"] == name);
    found.unwrap_or_else(|| panic!("{name} in {sites}")).clone()
}

#[test]
fn runs_that_count_sites_in_different_ways_share_their_hosts() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (api, node) = (Api::new(&broker.url), id());
        let (delay, hosts) = (DELAY_MS.to_string(), ["www.shop.test/1", "www.shop.test/2"]);
        let by_domain = run(&api, "it.ByDomain", json!({ "Delay": delay, "SiteBy": "domain" }), &hosts).await;
        let first = next_block(&api, &node).await;
        let by_host = run(&api, "it.ByHost", json!({ "Delay": delay }), &["www.shop.test/3", "img.shop.test/4"]).await;
        let other = next_block(&api, &node).await;
        assert_eq!((&other["identity"], &other["pace"]["site"]), (&json!(by_host), &json!("img.shop.test")), "only this host is free");
        assert_eq!(api.report(&node, &other, 200).await.0, 200);
        for _ in 0..20 {
            assert_eq!(api.beat(&node, &json!({})).await, Value::Null, "a node has a block of the host, and of the domain");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The least gap at the host, whichever run asks next.
        assert_eq!(first["pace"]["site"], "shop.test");
        let mut block = first;
        for _ in 0..2 {
            let ended = Instant::now();
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
            block = next_block(&api, &node).await;
            assert!(block["requests"][0]["url"].as_str().is_some_and(|url| url.starts_with("http://www.shop.test/")), "{block}");
            assert!(ended.elapsed() >= Duration::from_millis(DELAY_MS - 5), "{:?} after the last answer: {block}", ended.elapsed());
        }
        // Both runs have asked the host; the last one learns that it is to be left alone.
        let back = json!([{ "requestId": block["requests"][0]["requestId"], "tries": 1 }]);
        let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "attempt": block["attempt"],
            "back": back, "site": { "retryAfter": 600_000, "lastBegan": 0 } });
        assert_eq!(api.post("/node/block", &report).await.0, 200);
        let hosts = ["www.shop.test/5", "img.shop.test/6"];
        let third = run(&api, "it.ThirdByHost", json!({ "Delay": delay }), &hosts).await;
        let unpaced = run(&api, "it.Unpaced", json!({}), &hosts).await;
        let domain = run(&api, "it.ThirdByDomain", json!({ "Delay": delay, "SiteBy": "domain" }), &hosts[..1]).await;
        let mut served = Vec::new();
        while served.len() < 2 {
            let block = next_block(&api, &node).await;
            assert_eq!(block["requests"].as_array().map(Vec::len), Some(1), "{block}");
            assert_eq!(block["requests"][0]["url"], "http://img.shop.test/6", "the other host is held: {block}");
            served.push(block["identity"].as_str().expect("a run").to_owned());
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        served.sort_unstable();
        let mut expected = [third.clone(), unpaced.clone()];
        expected.sort_unstable();
        assert_eq!(served, expected);
        for (run, name) in
            [(&third, "www.shop.test"), (&unpaced, "http://www.shop.test"), (&domain, "shop.test"), (&by_domain, "shop.test")]
        {
            let site = site(&api, run, name).await;
            assert_eq!(site["held"]["why"], "retryAfter", "{run}: {site}");
            let (_, why) = api.get(&format!("/api/v1/runs/{third}/why-url?url=http://www.shop.test/5")).await;
            assert!(why["because"].to_string().contains("held until"), "{why}");
        }
        // A release of the domain releases its hosts.
        let (status, text) = api.post("/api/v1/sites/shop.test/release", &json!({})).await;
        assert_eq!(status, 200, "{text}");
        let mut left = vec![third, unpaced, domain];
        while !left.is_empty() {
            let block = next_block(&api, &node).await;
            left.retain(|run| block["identity"] != json!(run));
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
    });
}
