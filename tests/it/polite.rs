//! Sites are asked within their pace and their robots.txt, whatever nodes know of pace. Here a node that knows nothing of it.

use crate::support::api::{Api, id, requests};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::socket::Socket;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::process::Command;
use std::time::{Duration, Instant};

async fn next_block(api: &Api, node: &str) -> Value {
    until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| !block.is_null()) }).await
}

async fn report(api: &Api, node: &str, block: &Value, more: Value) -> (u16, Value) {
    let mut report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "attempt": block["attempt"] });
    for (name, value) in more.as_object().expect("members") {
        report[name] = value.clone();
    }
    api.post("/node/block", &report).await
}

fn urls(block: &Value) -> Vec<&str> {
    block["requests"].as_array().into_iter().flatten().filter_map(|request| request["url"].as_str()).collect()
}

#[test]
fn two_runs_and_two_nodes_keep_the_pace_of_a_site() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let pace = json!({ "Delay": "400" });
        let mut runs = Vec::new();
        for name in ["it.Polite", "it.Other"] {
            let (run, _) = api.run(name, &pace).await;
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=3)).await.0, 200);
            runs.push(run);
        }
        let nodes = [id(), id()];
        let (mut begun, mut served) = (Vec::new(), Vec::new());
        while begun.len() < 6 {
            let node = &nodes[begun.len() % 2];
            let block = next_block(&api, node).await;
            begun.push(Instant::now());
            assert_eq!(urls(&block).len(), 1, "it knows nothing of pace: {block}");
            assert_eq!((&block["pace"]["site"], &block["pace"]["delay"]), (&json!("example.test"), &json!(400)));
            served.push(block["identity"].clone());
            assert_eq!(api.beat(&nodes[(begun.len()) % 2], &json!({})).await, Value::Null, "the site is taken");
            assert_eq!(api.report(node, &block, 200).await.0, 200);
        }
        for (before, next) in begun.iter().zip(&begun[1..]) {
            // The broker counts from the report, or from what it says of the last request.
            assert!(next.duration_since(*before) >= Duration::from_millis(395), "{:?}", next.duration_since(*before));
        }
        assert!(begun[5].duration_since(begun[0]) < Duration::from_secs(20), "the pace is used");
        assert_eq!(served.iter().filter(|run| **run == json!(runs[0])).count(), 3);
        assert_ne!(served[..3], [served[0].clone(), served[0].clone(), served[0].clone()], "they take turns: {served:?}");
    });
}

#[test]
fn the_operator_s_limit_counts_for_every_job() {
    journey(async {
        let broker = Broker::start(&["--site", "*.test delay=300, nowhere.org delay=9000"], "");
        let api = Api::new(&broker.url);
        let (mut begun, node) = (Vec::new(), id());
        for (name, asks_for) in [("it.Free", json!({})), ("it.Quick", json!({ "Delay": "5" })), ("it.Slow", json!({ "Delay": "700" }))] {
            let (run, _) = api.run(name, &asks_for).await;
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=2)).await.0, 200);
            for _ in 0..2 {
                let block = next_block(&api, &node).await;
                let delay = if name == "it.Slow" { 700 } else { 300 };
                assert_eq!((&block["pace"]["delay"], urls(&block).len()), (&json!(delay), 1), "{name}: {block}");
                begun.push((Instant::now(), delay));
                assert_eq!(api.report(&node, &block, 200).await.0, 200);
            }
        }
        for pair in begun.windows(2) {
            let (gap, least) = (pair[1].0.duration_since(pair[0].0), Duration::from_millis(pair[0].1 - 5));
            assert!(gap >= least, "{gap:?} and not {least:?}");
        }
    });
}

#[test]
fn a_rule_for_sites_that_makes_no_sense_is_refused_at_the_start() {
    for (rule, says) in [
        ("example.test", "it has neither `delay` nor `connections`"),
        ("example.test delay=soon", "`delay` is a number of milliseconds"),
        ("exa_mple/x delay=1", "is not a host, host:port, *.suffix"),
        ("*.org delay=1, *.com connections=0", "`*.com connections=0` is not a rule for sites: `connections` is a number from 1 to 1024"),
    ] {
        let by_flag = Command::new(WEBLOOM).args(["broker", "--site", rule]).output().expect("it runs");
        let by_variable = Command::new(WEBLOOM).arg("broker").env("WEBLOOM_SITE", rule).output().expect("it runs");
        for refused in [by_flag, by_variable] {
            let error = String::from_utf8_lossy(&refused.stderr).into_owned();
            assert_eq!(refused.status.code(), Some(2), "{error}");
            assert!(error.contains(says) && error.contains("--site") && error.contains("Write for example"), "{error}");
        }
    }
}

#[test]
fn a_hold_off_holds_for_all_and_over_a_restart() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Held", &json!({ "Delay": "100" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=2)).await.0, 200);
        let node = id();
        let block = next_block(&api, &node).await;
        let back = json!([{ "requestId": block["requests"][0]["requestId"], "tries": 1 }]);
        let held = json!({ "back": back, "site": { "retryAfter": 14_000, "lastBegan": 0 } });
        let since = Instant::now();
        assert_eq!(report(&api, &node, &block, held).await.0, 200);
        let (other, _) = api.run("it.HeldToo", &json!({ "Delay": "100" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{other}"), &requests(1..=2)).await.0, 200);
        assert_eq!(api.beat(&node, &json!({})).await, Value::Null, "the site is held off");
        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        let again = next_block(&api, &node).await;
        assert!(since.elapsed() >= Duration::from_millis(13_900), "{:?}", since.elapsed());
        assert_eq!(urls(&again).len(), 1);
    });
}

#[test]
fn robots_txt_is_fetched_once_and_obeyed() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let api = Api::new(&broker.url);
        let obey = json!({ "Robots": "obey", "Site": "{\"userAgent\":\"TestBot/1.0 (+http://example.test/bot)\"}" });
        let (run, _) = api.run("it.Robots", &obey).await;
        let pages = json!([
            { "url": "http://example.test/private/1" }, { "url": "http://example.test/open" }, { "url": "http://example.test/private/2" }
        ]);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages).await.0, 200);
        let node = id();
        let block = next_block(&api, &node).await;
        assert_eq!(urls(&block), ["http://example.test/robots.txt"]);
        let body = "User-agent: *\nDisallow: /\n\nUser-agent: testbot\nDisallow: /private/\n";
        let found = json!({ "results": [{ "requestId": block["requests"][0]["requestId"], "status": 200, "text": body }] });
        assert_eq!(report(&api, &node, &block, found).await, (200, json!({ "success": 1, "error": 0 })));
        let block = next_block(&api, &node).await;
        assert_eq!(urls(&block), ["http://example.test/open"]);
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        let mut seen = Vec::new();
        for _ in 0..2 {
            let (status, done) = api.get(&format!("/requestqueue/{run}?wait=5")).await;
            assert_eq!(status, 200);
            for result in done["results"].as_array().expect("results") {
                seen.push((result["request"]["url"].clone(), result["error"]["kind"].clone()));
                if result["error"].is_object() {
                    assert_eq!(result["error"]["message"], "line 5 of robots.txt forbids it");
                }
            }
            assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [done["blockId"]] })).await.0, 200);
        }
        seen.sort_by_key(|(url, _)| url.to_string());
        let expected = [("open", Value::Null), ("private/1", json!("robots")), ("private/2", json!("robots"))];
        assert_eq!(seen, expected.map(|(path, kind)| (json!(format!("http://example.test/{path}")), kind)));
        let state = api.state(&run).await;
        assert_eq!(
            (&state["total"], &state["success"], &state["error"]),
            (&json!(3), &json!(1), &json!(2)),
            "robots.txt is no page: {state}"
        );

        let (_, why) = api.get(&format!("/api/v1/runs/{run}/why-url?url=http://example.test/private/1")).await;
        assert!(why["verdict"] == "forbidden" && why["because"].to_string().contains("line 5 of robots.txt forbids it"), "{why}");

        // It is known to other runs, and after a restart.
        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        let (next, _) = api.run("it.RobotsAgain", &obey).await;
        assert_eq!(api.post(&format!("/requestqueue/{next}"), &pages).await.0, 200);
        assert_eq!(urls(&next_block(&api, &node).await), ["http://example.test/open"]);
    });
}

/// Only a node that says how many sites it takes keeps the pace of one by itself.
#[test]
fn a_node_that_keeps_the_pace_gets_whole_blocks() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        for (more, expected) in [("&maxsites=4", 3), ("", 1)] {
            let query = format!("/?nodeid={}&operationsystem=linux&proccessorcount=4&memory=8000&sign=5df3fc02{more}", id());
            let mut socket = Socket::open(&api.url, &query, None).await;
            socket.first("welcome").await;
            socket.say("heartbeat", &json!({ "processCount": 0, "cpu": 1, "freeMemory": 1, "holding": [] }));
            let (run, _) = api.run(&format!("it.Whole{expected}"), &json!({ "Delay": "60000" })).await;
            let hosts: Value = (0..3).map(|n| json!({ "url": format!("http://host{expected}.test/{n}") })).collect();
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &hosts).await.0, 200);
            let block = socket.first("block").await;
            assert_eq!((urls(&block).len(), &block["pace"]["delay"]), (expected, &json!(60_000)), "{block}");
        }
    });
}

/// A node has places for blocks and places for sites. What a fetch of robots.txt takes up is given back as what it was.
#[test]
fn a_fetch_of_robots_txt_frees_no_place_for_a_block() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let node = id();
        let query =
            format!("/?nodeid={node}&operationsystem=linux&proccessorcount=4&memory=8000&sign=5df3fc02&maxprocesscount=1&maxsites=4");
        let mut socket = Socket::open(&api.url, &query, None).await;
        socket.first("welcome").await;
        socket.say("heartbeat", &json!({ "processCount": 0, "cpu": 1, "freeMemory": 1, "holding": [] }));
        let (plain, _) = api.run("it.Plain", &json!({ "BlockSize": "1" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{plain}"), &requests(1..=3)).await.0, 200);
        let block = socket.first("block").await;
        assert_eq!(block["identity"], json!(plain));
        let (obeys, _) = api.run("it.Obeys", &json!({ "Robots": "obey" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{obeys}"), &requests(1..=3)).await.0, 200);
        let probe = socket.first("block").await;
        assert_eq!(urls(&probe), ["http://example.test/robots.txt"]);
        assert_eq!(api.report(&node, &probe, 404).await.0, 200);
        for _ in 0..50 {
            let (_, nodes) = api.get("/api/v1/nodes").await;
            assert_eq!(nodes["items"][0]["holding"], 1, "it takes one block at a time");
        }
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        socket.first("block").await;
    });
}

/// Without a pace two runs could fetch it at the same time.
#[test]
fn a_robots_txt_is_fetched_by_one_run_at_a_time() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (first, second) = (id(), id());
        let mut runs = Vec::new();
        for name in ["it.Fetches", "it.FetchesToo"] {
            let (run, _) = api.run(name, &json!({ "Robots": "obey" })).await;
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=2)).await.0, 200);
            runs.push(run);
        }
        let probe = next_block(&api, &first).await;
        assert_eq!(urls(&probe), ["http://example.test/robots.txt"]);
        for _ in 0..20 {
            assert_eq!(api.beat(&second, &json!({})).await, Value::Null, "the other run waits");
        }
        assert_eq!(api.report(&first, &probe, 404).await.0, 200);
        let mut served = Vec::new();
        for _ in 0..2 {
            let block = next_block(&api, &second).await;
            assert_eq!(urls(&block).len(), 2, "{block}");
            assert_eq!(api.report(&second, &block, 200).await.0, 200);
            served.push(block["identity"].as_str().expect("a run").to_owned());
        }
        served.sort_unstable();
        runs.sort_unstable();
        assert_eq!(served, runs);
    });
}

/// The broker has forgotten the file, and reads it from its store.
#[test]
fn a_block_that_is_sent_again_after_a_restart_has_the_delay_of_robots_txt() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Again", &json!({ "Robots": "obey", "Delay": "100" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=1)).await.0, 200);
        let node = id();
        let probe = next_block(&api, &node).await;
        let text = "User-agent: *\nCrawl-delay: 2\n";
        let found = json!({ "results": [{ "requestId": probe["requests"][0]["requestId"], "status": 200, "text": text }] });
        assert_eq!(report(&api, &node, &probe, found).await.0, 200);
        let block = next_block(&api, &node).await;
        assert_eq!((urls(&block), &block["pace"]["delay"]), (vec!["http://example.test/1"], &json!(2_000)), "{block}");
        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        let holding = json!({ "holding": [{ "identity": run, "blockId": block["blockId"], "attempt": 1, "epoch": block["epoch"] }] });
        until("the broker knows that the node has it", || async {
            assert_eq!(api.beat(&node, &holding).await, Value::Null);
            let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
            (sites["items"][0]["atNodes"] == 1).then_some(())
        })
        .await;
        // The node loses it.
        let again =
            until("it to come again", || async { Some(api.beat(&node, &json!({ "holding": [] })).await).filter(|block| !block.is_null()) })
                .await;
        assert_eq!(
            (&again["blockId"], &again["attempt"], &again["pace"]["delay"]),
            (&block["blockId"], &json!(1), &json!(2_000)),
            "{again}"
        );
    });
}

/// One host of a domain asks for a delay. It counts for the whole domain, also in a run that uses only another host of it.
#[test]
fn the_slowest_host_sets_the_pace_of_its_domain() {
    journey(async {
        let broker = Broker::start(&["--site", "slow.shop.test connections=1"], "");
        let (api, node) = (Api::new(&broker.url), id());
        let settings = json!({ "Robots": "obey", "Delay": "100", "PerSite": "4", "SiteBy": "domain" });
        for (class, host, text) in
            [("it.SlowHost", "slow", "User-agent: *\nCrawl-delay: 1\n"), ("it.QuickHost", "quick", "User-agent: *\nDisallow:\n")]
        {
            let (run, _) = api.run(class, &settings).await;
            let page = format!("http://{host}.shop.test/1");
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &json!([{ "url": page }])).await.0, 200);
            let probe = next_block(&api, &node).await;
            assert_eq!(urls(&probe), [format!("http://{host}.shop.test/robots.txt")]);
            let found = json!({ "results": [{ "requestId": probe["requests"][0]["requestId"], "status": 200, "text": text }] });
            assert_eq!(report(&api, &node, &probe, found).await.0, 200);
            let block = next_block(&api, &node).await;
            let pace = &block["pace"];
            assert_eq!((urls(&block), &pace["site"], &pace["delay"]), (vec![page.as_str()], &json!("shop.test"), &json!(1_000)), "{block}");
            let connections = if host == "slow" { 1 } else { 4 };
            assert_eq!(pace["connections"], connections, "the rule is about the other host: {block}");
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
            let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
            let site = &sites["items"][0];
            assert_eq!((&site["delay"], &site["delayBy"], &site["success"]), (&json!(1_000), &json!("robots"), &json!(1)), "{sites}");
        }
    });
}
