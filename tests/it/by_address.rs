//! Hosts with one address are one site, if the job counts sites by address: judged by the log of the server that all of them lead to.

use crate::support::api::{Api, id};
use crate::support::dns::NameServer;
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

const DELAY_MS: u64 = 300;

#[test]
fn hosts_with_one_address_are_asked_one_after_the_other() {
    journey(async {
        let names = NameServer::start(|name| name.ends_with(".example").then_some((Ipv4Addr::LOCALHOST, 60)));
        let server = names.address.to_string();
        let web =
            Web::serve(|asked| if asked.path == "/robots.txt" { Answer::status(404) } else { Answer::html("<p>text") }).expect("a port");
        let broker = Broker::start(&["--name-servers", &server], "");
        let (api, folders) = (Api::new(&broker.url), [(); 2].map(|()| tempfile::tempdir().expect("a folder")));
        let args = ["--name-servers", &server, "--download-allow", "127.0.0.0/8"];
        let _agents = folders.each_ref().map(|folder| agent(&broker.url, folder.path(), &args));
        let (run, _) = api.run("it.ByAddress", &json!({ "SiteBy": "ip", "Delay": DELAY_MS.to_string() })).await;
        let hosts = ["a.example", "b.example", "www.c.example"];
        let url = |host: &str, page: u32| format!("http://{host}:{}/{page}", web.port);
        let pages: Value = hosts.iter().flat_map(|host| (0..2).map(|page| json!({ "url": url(host, page) }))).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages).await.0, 200);
        until("all pages", || async { (api.state(&run).await["success"] == 6).then_some(()) }).await;

        let (_, sites) = api.get("/api/v1/sites").await;
        let has = |name: &str| sites["items"].as_array().expect("sites").iter().any(|site| site["name"] == name);
        assert!(has("127.0.0.1") && hosts.iter().all(|host| has(host)), "the turns of the hosts are taken too: {sites}");
        // A hold of the address holds its hosts, and is what they wait for.
        assert_eq!(api.post("/api/v1/sites/127.0.0.1/hold", &json!({ "for": 600_000 })).await.0, 200);
        let page = url("a.example", 9);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &json!([{ "url": page }])).await.0, 200);
        let (_, why) = api.get(&format!("/api/v1/runs/{run}/why-url?url={page}")).await;
        let text = why["because"].to_string();
        assert!(text.contains("its site a.example (address 127.0.0.1), which is held until"), "{why}");
        let mut log = web.log();
        log.sort_by_key(|entry| entry.begin);
        assert_eq!(log.len(), 9, "six pages and three robots.txt: {log:?}");
        // The delay counts from the end of the answer, in whole milliseconds.
        for two in log.windows(2) {
            let gap = two[1].begin.saturating_sub(two[0].begin);
            assert!(gap >= (DELAY_MS - 5) * 1_000, "{gap} us between two requests to one address: {two:?}");
        }
    });
}

#[test]
fn another_address_after_a_restart_is_no_way_out_of_a_hold() {
    journey(async {
        let has_moved = Arc::new(AtomicBool::new(false));
        let moved = Arc::clone(&has_moved);
        let names = NameServer::start(move |_| Some((Ipv4Addr::new(127, 0, 0, 1 + u8::from(moved.load(Ordering::Relaxed))), 60)));
        let mut broker = Broker::start(&["--name-servers", &names.address.to_string()], "");
        let (api, node) = (Api::new(&broker.url), id());
        let (run, _) = api.run("it.Moves", &json!({ "SiteBy": "ip", "Robots": "ignore" })).await;
        let pages = json!([{ "url": "http://a.example/1" }, { "url": "http://a.example/2" }]);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages).await.0, 200);
        let block = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
        assert_eq!(block["pace"]["site"], "127.0.0.1");
        let back = json!([{ "requestId": block["requests"][0]["requestId"], "tries": 1 }]);
        let report = json!({ "blockId": block["blockId"], "identity": run, "nodeId": node, "attempt": block["attempt"],
            "back": back, "site": { "retryAfter": 600_000, "lastBegan": 0 } });
        assert_eq!(api.post("/node/block", &report).await.0, 200);
        broker.process.kill();
        has_moved.store(true, Ordering::Relaxed);
        broker.restart("");
        let api = Api::new(&broker.url);
        let held = async || {
            let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
            let site = sites["items"].as_array()?.iter().find(|site| site["name"] == "a.example")?.clone();
            (site["held"]["why"] == "retryAfter").then_some(())
        };
        until("the hold of the host", held).await;
    });
}
