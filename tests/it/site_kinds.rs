//! Runs that count sites in different ways, or have no pace, share the hosts that they ask. The node of this test knows nothing of pace.

use crate::support::api::{Api, id};
use crate::support::dns::NameServer;
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
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
        // A release of the domain releases its hosts, but none that an operator holds.
        assert_eq!(api.post("/api/v1/sites/mail.shop.test/hold", &json!({ "for": 600_000 })).await.0, 200);
        let (status, text) = api.post("/api/v1/sites/shop.test/release", &json!({})).await;
        assert_eq!(status, 200, "{text}");
        let mut left = vec![third, unpaced, domain];
        while !left.is_empty() {
            let block = next_block(&api, &node).await;
            left.retain(|run| block["identity"] != json!(run));
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        let (_, sites) = api.get("/api/v1/sites?held=true").await;
        let held = sites["items"].as_array().expect("sites").iter().map(|site| &site["name"]);
        assert_eq!(held.collect::<Vec<_>>(), ["mail.shop.test"]);
    });
}

/// How many grants of the dispatcher the run's actor has handled.
async fn grants(api: &Api, run: &str) -> u64 {
    let (status, actor) = api.get(&format!("/api/v1/actors/run/{run}")).await;
    assert_eq!(status, 200, "{actor}");
    let of_type = actor["messages"].as_array().into_iter().flatten().find(|messages| messages["type"] == "run.grant");
    of_type.map_or(0, |messages| messages["count"].as_u64().expect("a count"))
}

#[test]
fn a_run_without_a_pace_rests_while_its_hosts_are_held_and_goes_on_when_they_are_released() {
    journey(async {
        let web = Web::serve(|_| Answer::text("a page")).expect("a port");
        let names = NameServer::start(|_| Some((Ipv4Addr::LOCALHOST, 60)));
        let server = names.address.to_string();
        let broker = Broker::start(&["--name-servers", &server], "");
        let (api, folder) = (Api::new(&broker.url), tempfile::tempdir().expect("a folder"));
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1", "--name-servers", &server, "--download-allow", "127.0.0.0/8"]);
        let [domain, host] = ["shop.test", "www.shop.test"];
        for (by, held) in [("host", host), ("ip", host), ("domain", host), ("domain", domain)] {
            let hold = |word| format!("/api/v1/sites/{held}/{word}");
            assert_eq!(api.post(&hold("hold"), &json!({ "for": 600_000 })).await.0, 200);
            let page = format!("{host}:{}/{by}/{held}", web.port);
            let run = run(&api, &format!("it.Unpaced.{by}.{held}"), json!({ "SiteBy": by }), &[&page]).await;
            let origin = format!("http://{host}:{}", web.port);
            let site = until("a held site", || async {
                let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
                sites["items"].as_array()?.iter().find(|site| site["name"] == origin.as_str()).filter(|site| site["pending"] == 1).cloned()
            })
            .await;
            let before = grants(&api, &run).await;
            assert!(before > 0, "{by} {held}: without a grant it would not have been found held");
            let beats = || async {
                let (_, nodes) = api.get("/api/v1/actors?kind=node").await;
                nodes[0]["messagesHandled"].as_u64().expect("a count")
            };
            let first = beats().await;
            until("two heartbeats", || async { (beats().await >= first + 2).then_some(()) }).await;
            let after = grants(&api, &run).await;
            assert!(after <= before + 5, "{by} {held}: {} grants while the host is held", after - before);
            assert_eq!(site["held"]["why"], "operator", "{by} {held}: {site}");
            let (_, why) = api.get(&format!("/api/v1/runs/{run}/why-url?url=http://{page}")).await;
            assert!(why["because"].to_string().contains("held until"), "{by} {held}: {why}");
            assert_eq!(api.post(&hold("release"), &json!({})).await.0, 200);
            until("the page", || async { (api.state(&run).await["success"] == 1).then_some(()) }).await;
        }
    });
}

#[test]
fn a_node_keeps_its_block_of_a_domain_when_the_broker_restarts() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let (api, node) = (Api::new(&broker.url), id());
        let run = run(&api, "it.Kept", json!({ "Delay": "300", "SiteBy": "domain" }), &["www.shop.test/1", "img.shop.test/2"]).await;
        let block = next_block(&api, &node).await;
        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        // The run is built again, and reads the requests of the block.
        until("the block at its node", || async {
            let held = json!({ "identity": run, "blockId": block["blockId"], "attempt": block["attempt"], "epoch": block["epoch"] });
            assert_eq!(api.beat(&node, &json!({ "holding": [held] })).await, Value::Null);
            let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
            (sites["items"][0]["atNodes"] == 1).then_some(())
        })
        .await;
        let (_, sites) = api.get("/api/v1/sites").await;
        for name in ["shop.test", "www.shop.test"] {
            let site = sites["items"].as_array().into_iter().flatten().find(|site| site["name"] == name);
            assert_eq!(site.map(|site| &site["run"]), Some(&json!(run)), "its turn goes on: {sites}");
        }
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        assert_eq!(api.state(&run).await["success"], 1);
    });
}
