//! People hold sites and release them, whatever their pace: no run begins a request there, before and after a crash.

use crate::support::api::{Api, id, requests};
use crate::support::browser::Browser;
use crate::support::process::{Broker, agent, server};
use crate::support::shell::webloom;
use crate::support::socket::Socket;
use crate::support::web::{Answer, Web, host};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

async fn next_block(api: &Api, node: &str) -> Value {
    until("a block", || async { Some(api.beat(node, &json!({})).await).filter(|block| !block.is_null()) }).await
}

/// A node calls again and again, and gets nothing.
async fn nothing_comes(api: &Api, node: &str) {
    for _ in 0..30 {
        assert_eq!(api.beat(node, &json!({})).await, Value::Null);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn urls(block: &Value) -> Vec<&str> {
    block["requests"].as_array().into_iter().flatten().filter_map(|request| request["url"].as_str()).collect()
}

fn pages(urls: &[&str]) -> Value {
    urls.iter().map(|url| json!({ "url": format!("http://{url}") })).collect()
}

async fn push(api: &Api, run: &str, urls: &[&str]) {
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages(urls)).await.0, 200);
}

async fn said(api: &Api, site: &str, word: &str, body: Value) -> Value {
    let (status, site) = api.post(&format!("/api/v1/sites/{site}/{word}"), &body).await;
    assert_eq!(status, 200, "{site}");
    site
}

async fn held(api: &Api) -> Vec<String> {
    let (status, page) = api.get("/api/v1/sites?held=true").await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").iter().map(|site| site["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_hold_stops_all_runs_survives_a_crash_and_ends_at_once() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let api = Api::new(&broker.url);
        let (node, mut runs) = (id(), Vec::new());
        for name in ["it.First", "it.Second"] {
            let (run, _) = api.run(name, &json!({ "Delay": "200" })).await;
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=3)).await.0, 200);
            runs.push(run);
        }
        let block = next_block(&api, &node).await;
        let (_, known) = api.get("/api/v1/sites").await;
        assert_eq!(known["items"][0]["run"], block["identity"], "{known}");
        assert_eq!((&known["items"][0]["name"], &known["items"][0]["delay"]), (&json!("example.test"), &json!(200)));
        let (_, of_run) = api.get(&format!("/api/v1/runs/{}/sites", block["identity"].as_str().expect("a run"))).await;
        let site = &of_run["items"][0];
        assert_eq!(
            (&site["name"], &site["pending"], &site["atNodes"], &site["connections"]),
            (&json!("example.test"), &json!(1), &json!(1), &json!(1024)),
            "{of_run}"
        );
        assert_eq!((&site["delayBy"], &site["left"], &site["success"]), (&json!("job"), &json!(3), &json!(0)), "{of_run}");

        let site = said(&api, "Example.TEST", "hold", json!({ "for": 600_000 })).await;
        assert_eq!((&site["name"], &site["held"]["why"]), (&json!("example.test"), &json!("operator")));
        assert_eq!(api.report(&node, &block, 200).await.0, 200, "what a node has done counts");
        nothing_comes(&api, &node).await;
        // What a report shows of a site is stored too, so one that nobody has asked shows that the hold itself is.
        said(&api, "other.test", "hold", json!({ "for": 600_000 })).await;
        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        assert_eq!(held(&api).await, ["example.test", "other.test"]);
        said(&api, "other.test", "release", json!({})).await;
        let (_, of_run) =
            until("the run", || async { Some(api.get(&format!("/api/v1/runs/{}/sites", runs[0])).await).filter(|got| got.0 == 200) }).await;
        assert_eq!(of_run["items"][0]["held"]["why"], "operator", "{of_run}");
        // No turn is given away for ten seconds after the start, and with PostgreSQL for a lease more: the last leader might live.
        let lease_ms = if server().is_some() { 5_000 } else { 0 };
        tokio::time::sleep(Duration::from_millis(10_500 + lease_ms)).await;
        nothing_comes(&api, &node).await;

        let since = Instant::now();
        let site = said(&api, "example.test", "release", json!({})).await;
        assert_eq!(site["held"], Value::Null);
        let block = next_block(&api, &node).await;
        assert!(since.elapsed() < Duration::from_secs(1), "{:?}", since.elapsed());
        assert_eq!((urls(&block).len(), held(&api).await.len()), (1, 0));
        broker.process.kill();
        broker.restart("");
        assert!(held(&Api::new(&broker.url)).await.is_empty(), "it is not held again");
    });
}

#[test]
fn who_holds_a_site_is_shown_and_stored() {
    journey(async {
        let mut broker = Broker::start(&["--token", "admin:the-admins-token", "--token", "readonly:another-token"], "");
        let api = Api::new(&broker.url).with_token("the-admins-token");
        let (status, site) = api.post("/api/v1/sites/example.test/hold", &json!({ "for": 600_000 })).await;
        assert_eq!((status, &site["held"]["by"]), (200, &json!("admin")), "{site}");
        broker.kill_and_restart();
        let api = Api::new(&broker.url).with_token("another-token");
        let (status, page) = api.get("/api/v1/sites?held=true").await;
        assert_eq!((status, &page["items"][0]["held"]["by"]), (200, &json!("admin")), "{page}");
        let api = api.with_token("the-admins-token");
        let (status, site) = api.post("/api/v1/sites/example.test/release", &json!({})).await;
        assert_eq!((status, &site["held"]), (200, &Value::Null), "{site}");
    });
}

#[test]
fn nodes_drop_what_they_have_of_a_site_that_is_held() {
    journey(async {
        let web = Web::serve(|_| Answer::text("a page")).expect("a port");
        let broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let (api, folder) = (Api::new(&broker.url), tempfile::tempdir().expect("a folder"));
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        let (run, _) = api.run("it.Recalled", &json!({ "Delay": "300" })).await;
        let all: Vec<String> = (0..12).map(|n| web.url(1, &format!("/{n}"))).collect();
        let pushed: Value = all.iter().map(|url| json!({ "url": url })).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &pushed).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        until("some pages", || async { (web.log().len() >= 3).then_some(()) }).await;
        let host = host(1);
        let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
        assert_eq!(
            (&sites["items"][0]["pending"], &sites["items"][0]["atNodes"]),
            (&json!(0), &json!(1)),
            "the node has all of it: {sites}"
        );
        said(&api, &host, "hold", json!({ "for": 600_000 })).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let asked = web.log().len();
        assert!(asked < 8, "{asked}");
        let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
        assert_eq!((&sites["items"][0]["pending"], &sites["items"][0]["atNodes"]), (&json!(1), &json!(0)), "{sites}");
        // Longer than a few heartbeats, in which the node lists what it has.
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(web.log().len(), asked, "no request is begun");
        said(&api, &host, "release", json!({})).await;
        let mut came = BTreeSet::new();
        while came.len() < all.len() {
            let (status, block) = api.get(&format!("/requestqueue/{run}?wait=30")).await;
            assert_eq!(status, 200, "{block}");
            for result in block["results"].as_array().into_iter().flatten() {
                assert_eq!(result["status"], 200, "{result}");
                assert!(came.insert(result["request"]["url"].to_string()), "twice: {result}");
            }
            assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
        }
    });
}

#[test]
fn a_node_that_still_lists_a_block_of_a_held_site_is_told_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (api, node) = (Api::new(&broker.url), id());
        let query =
            format!("/?nodeid={node}&operationsystem=linux&proccessorcount=4&memory=8000&sign=5df3fc02&maxprocesscount=1&maxsites=4");
        let mut socket = Socket::open(&api.url, &query, None).await;
        socket.first("welcome").await;
        let lists = |holding: Value| json!({ "processCount": 0, "cpu": 1, "freeMemory": 1, "holding": holding });
        socket.say("heartbeat", &lists(json!([])));
        let (run, _) = api.run("it.Listed", &json!({ "Delay": "100" })).await;
        push(&api, &run, &["a.test/1", "a.test/2"]).await;
        let block = socket.first("block").await;
        assert_eq!(api.state(&run).await["sites"], json!({ "total": 1, "active": 1, "held": 0 }));
        said(&api, "a.test", "hold", json!({ "for": 600_000 })).await;
        assert_eq!(api.state(&run).await["sites"], json!({ "total": 1, "active": 0, "held": 1 }));
        let told = json!({ "blockId": block["blockId"], "attempt": block["attempt"] });
        assert_eq!(socket.first("drop").await, told);
        let listed = json!({ "identity": run, "blockId": block["blockId"], "attempt": block["attempt"], "epoch": block["epoch"] });
        socket.say("heartbeat", &lists(json!([listed])));
        assert_eq!(socket.first("drop").await, told);
        let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
        assert_eq!((&sites["items"][0]["pending"], &sites["items"][0]["atNodes"]), (&json!(1), &json!(0)), "{sites}");
        // Its results count all the same.
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        assert_eq!(api.state(&run).await["success"], 2);
    });
}

#[test]
fn a_site_without_pace_is_held_too() {
    journey(async {
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let api = Api::new(&broker.url);
        let (node, mut came) = (id(), BTreeSet::new());
        let (run, _) = api.run("it.Free", &json!({})).await;
        let all = ["a.test/1", "b.test/1", "a.test/2", "c.test/1", "a.test:8080/1"];
        push(&api, &run, &all).await;
        said(&api, "a.test", "hold", json!({ "for": 600_000 })).await;
        said(&api, "http:%2F%2Fc.test", "hold", json!({ "for": 600_000 })).await;
        // A block of several hosts parts: what may be asked goes out.
        let block = next_block(&api, &node).await;
        assert_eq!(urls(&block), ["http://b.test/1"]);
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        nothing_comes(&api, &node).await;
        // Another run, and more of the first, whose blocks have nothing else in them.
        let (later, _) = api.run("it.Later", &json!({})).await;
        push(&api, &later, &["a.test/3", "a.test/4"]).await;
        push(&api, &run, &["a.test/5"]).await;
        nothing_comes(&api, &node).await;
        let (_, sites) = api.get(&format!("/api/v1/runs/{run}/sites")).await;
        let waits: Vec<_> = sites["items"]
            .as_array()
            .expect("items")
            .iter()
            .map(|site| (site["name"].as_str(), site["pending"].as_u64(), site["delay"].as_u64()))
            .collect();
        let origin = |name, pending| (Some(name), Some(pending), Some(0));
        assert_eq!(waits, [origin("http://a.test", 2), origin("http://c.test", 1), origin("http://a.test:8080", 1)], "{sites}");

        broker.process.kill();
        broker.restart("");
        let api = Api::new(&broker.url);
        let pushed = pages(&["b.test/2"]);
        until("the run", || async { (api.post(&format!("/requestqueue/{run}"), &pushed).await.0 == 200).then_some(()) }).await;
        let block = next_block(&api, &node).await;
        assert_eq!(urls(&block), ["http://b.test/2"]);
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
        nothing_comes(&api, &node).await;

        // One origin of a host is no site of its own while the host is held.
        let (status, problem) = api.post("/api/v1/sites/http:%2F%2Fa.test/release", &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/held-elsewhere")));
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("release `a.test`")), "{problem}");
        for (site, expected) in [("http:%2F%2Fc.test", 1), ("a.test", 6)] {
            let since = Instant::now();
            said(&api, site, "release", json!({})).await;
            let mut requests = 0;
            while requests < expected {
                let block = next_block(&api, &node).await;
                assert_eq!(block["pace"], Value::Null, "it has no pace: {block}");
                requests += urls(&block).len();
                for url in urls(&block) {
                    assert!(came.insert((block["identity"].to_string(), url.to_owned())), "{url} came twice");
                }
                assert_eq!(api.report(&node, &block, 200).await.0, 200);
            }
            // Without the release the hold would last for minutes.
            assert!(since.elapsed() < Duration::from_secs(20) && requests == expected, "{:?} {came:?}", since.elapsed());
        }
        nothing_comes(&api, &node).await;
        let (mine, other) = (api.state(&run).await, api.state(&later).await);
        assert_eq!((&mine["success"], &mine["left"], &other["success"]), (&json!(7), &json!(0), &json!(2)), "{mine}");
    });
}

#[test]
fn a_hold_ends_by_itself() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (node, until_time) = (id(), chrono::Utc::now() + chrono::Duration::milliseconds(3_000));
        let site = said(&api, "a.test", "hold", json!({ "until": until_time.to_rfc3339() })).await;
        // Each is converted from the steady clock by itself, so they may differ by the rounding.
        let time = |value: &Value| value.as_str().and_then(|text| chrono::DateTime::parse_from_rfc3339(text).ok()).expect("a time");
        let apart = (time(&site["held"]["until"]) - time(&site["nextAt"])).num_milliseconds().abs();
        assert!(apart <= 2, "{site}");
        let (run, _) = api.run("it.Waits", &json!({})).await;
        push(&api, &run, &["a.test/1"]).await;
        next_block(&api, &node).await;
        let late = (chrono::Utc::now() - until_time).num_milliseconds();
        assert!((-20..3_000).contains(&late), "{late} ms");
    });
}

#[test]
fn what_makes_no_sense_is_refused_and_changes_nothing() {
    journey(async {
        let broker = Broker::start(&["--token", "boss", "--token", "readonly:look", "--token", "agent:node"], "");
        let api = Api::new(&broker.url).with_token("boss");
        for (site, word, body, status, field, says) in [
            ("a.test", "hold", json!({}), 422, "until", "`until` with an instant or `for` with milliseconds"),
            ("a.test", "hold", json!({ "for": 5, "until": "2999-01-01T00:00:00Z" }), 422, "for", "exclude each other"),
            ("a.test", "hold", json!({ "until": "2020-01-01T00:00:00Z" }), 422, "until", "is over"),
            ("a.test", "hold", json!({ "until": "2999-01-01T00:00:00Z" }), 422, "until", "at most 49 days"),
            ("a.test", "hold", json!({ "until": "soon" }), 400, "until", ""),
            ("a.test", "hold", json!({ "for": "10m" }), 400, "for", ""),
            ("a.test", "hold", json!({ "for": 0 }), 422, "for", "from 1"),
            ("a.test", "hold", json!({ "length": 1 }), 422, "length", "unknown member"),
            ("a.test:80", "hold", json!({ "for": 1_000 }), 422, "name", "a port is allowed in an origin only"),
            ("a%20b", "hold", json!({ "for": 1_000 }), 422, "name", "is not a site"),
            ("http:%2F%2Fa.test%2Fx", "hold", json!({ "for": 1_000 }), 422, "name", "nothing may follow"),
            ("*.test", "release", json!({}), 422, "name", "is not a site"),
        ] {
            let (got, problem) = api.post(&format!("/api/v1/sites/{site}/{word}"), &body).await;
            assert_eq!((got, problem["field"].as_str()), (status, Some(field)), "{site} {body}: {problem}");
            assert!(problem["detail"].as_str().is_some_and(|text| text.contains(says)), "{problem}");
        }
        let (status, problem) = api.post("/api/v1/sites/a.test/release", &json!({})).await;
        assert_eq!(status, 404, "{problem}");
        assert_eq!(api.get("/api/v1/sites").await.1, json!({ "items": [] }));
        assert_eq!(api.get(&format!("/api/v1/runs/{}/sites", id())).await.0, 404);

        let hold = json!({ "for": 600_000 });
        for (token, may_read) in [("look", 200), ("node", 403)] {
            let other = api.with_token(token);
            assert_eq!(other.post("/api/v1/sites/a.test/hold", &hold).await.0, 403);
            assert_eq!(other.get("/api/v1/sites").await.0, may_read);
        }
        assert_eq!(held(&api).await, [""; 0]);
        for name in ["c.test", "a.test", "b.test", "a.example"] {
            said(&api, name, "hold", hold.clone()).await;
        }
        let (_, page) = api.get("/api/v1/sites?name=.TEST&limit=2").await;
        let names = |page: &Value| page["items"].as_array().expect("items").iter().map(|site| site["name"].to_string()).collect::<Vec<_>>();
        assert_eq!(names(&page), ["\"a.test\"", "\"b.test\""]);
        let cursor = page["nextCursor"].as_str().expect("there is more");
        let (_, page) = api.get(&format!("/api/v1/sites?name=.test&limit=2&cursor={cursor}")).await;
        assert_eq!((names(&page), &page["nextCursor"]), (vec!["\"c.test\"".to_owned()], &Value::Null));
        let metrics = api.metrics().await;
        for line in [
            "webloom_sites{state=\"known\"} 4",
            "webloom_sites{state=\"active\"} 0",
            "webloom_sites{state=\"held\"} 4",
            "webloom_site_requests_total{outcome=\"answered\"} 0",
        ] {
            assert!(metrics.lines().any(|other| other == line), "{line} in {metrics}");
        }
    });
}

#[test]
fn the_command_line_lists_holds_and_releases() {
    journey(async {
        let broker = Broker::start(&[], "");
        let (api, run) = (Api::new(&broker.url), |args: &[&str]| webloom(&broker.url, args));
        assert_eq!(run(&["site", "list"]).ok(), "there are no such sites\n");
        assert!(run(&["site", "hold", "http://a.test:8080", "--for", "10m"]).ok().starts_with("site http://a.test:8080 is held until 2"));
        run(&["site", "hold", "b.test", "--until", "+2h"]).ok();
        let table = run(&["site", "list", "--held"]).ok();
        assert!(
            table.contains("http://a.test:8080  operator  in 9 min") || table.contains("http://a.test:8080  operator  in 10 min"),
            "{table}"
        );
        assert_eq!(run(&["site", "list", "--name", "b.", "-o", "json"]).json()["items"][0]["held"]["why"], "operator");
        assert_eq!(run(&["site", "release", "b.test"]).ok(), "site b.test is released\n");
        run(&["site", "release", "http://a.test:8080"]).ok();
        assert_eq!(run(&["site", "list", "--held"]).ok(), "no site is held\n");
        run(&["site", "hold", "b.test"]).refused(2, "--for <TIME>|--until <INSTANT>");
        run(&["site", "hold", "b.test", "--for", "10"]).refused(2, "it needs a unit");
        run(&["site", "hold", "b.test/x", "--for", "10m"]).refused(2, "`b.test/x` is not a site");

        let (identity, _) = api.run("it.Sites", &json!({ "Delay": "5000" })).await;
        push(&api, &identity, &["a.test/1", "b.test/1", "b.test/2"]).await;
        let node = id();
        let block = next_block(&api, &node).await;
        assert_eq!(urls(&block).len(), 1);
        assert_eq!(api.report(&id(), &block, 200).await.0, 409, "it is another node's");
        let table = run(&["run", "sites", &identity]).ok();
        let begin = "NAME    LEFT  OK  ERRORS  BY KIND  AT NODES  NEXT  DELAY MS  HELD\na.test  1     0   0       -        1         -     5000 job  -\nb.test  2     0   0       -        0 ";
        assert!(table.starts_with(begin), "{table}");
        assert_eq!(run(&["run", "sites", &identity, "-o", "json"]).json()["items"][1]["name"], "b.test");
        // What failed, and by kind; also when the run is over.
        assert_eq!(api.report(&node, &block, 404).await.0, 200);
        let a_failed = |table: &str| table.lines().any(|line| line.starts_with("a.test  0     0   1       http 404 1  0 "));
        let table = run(&["run", "sites", &identity]).ok();
        assert!(a_failed(&table), "{table}");
        let (_, page) = api.get(&format!("/api/v1/runs/{identity}/sites")).await;
        assert_eq!((&page["items"][0]["error"], &page["items"][0]["errors"]), (&json!(1), &Value::Null), "{page}");
        run(&["run", "stop", &identity]).ok();
        until("the end", || async { Some(api.state(&identity).await).filter(|run| run["state"] == "stopped") }).await;
        let table = run(&["run", "sites", &identity]).ok();
        assert!(a_failed(&table) && table.lines().all(|line| line.len() <= 100), "{table}");
        let path = format!("/api/v1/runs/{identity}/sites?limit=1&cursor=");
        assert_eq!(api.get(&format!("{path}1")).await.0, 422, "a cursor of the active run");
        let (_, page) = api.get(path.trim_end_matches("&cursor=")).await;
        let cursor: String = page["nextCursor"].as_str().expect("there is more").replace('=', "%3D");
        let (_, page) = api.get(&format!("{path}{cursor}")).await;
        assert_eq!((&page["items"][0]["name"], &page["items"][0]["left"]), (&json!("b.test"), &json!(2)), "{page}");
    });
}

#[test]
fn a_person_holds_and_releases_a_site_in_the_portal() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (identity, _) = api.run("it.Portal", &json!({ "Delay": "60000" })).await;
        push(&api, &identity, &["a.test/1", "a.test/2"]).await;
        next_block(&api, &id()).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}#/sites", broker.url)).await;
        browser.sees("a.test").await;
        browser.click("Hold a site …").await;
        browser.fill("Site", "b.test/x").await;
        browser.click("Hold").await;
        browser.sees("`b.test/x` is not a site").await;
        browser.fill("Site", "http://b.test:8080").await;
        browser.click("Hold").await;
        browser.sees("The site http://b.test:8080 is held.").await;
        browser.sees("operator, until").await;
        assert_eq!(held(&api).await, ["http://b.test:8080"]);
        browser.click("Release …").await;
        browser.click("Release").await;
        browser.sees("is released.").await;
        assert!(held(&api).await.is_empty());
        browser.open(&format!("{}#/runs/{identity}", broker.url)).await;
        browser.sees("Delay from").await;
        browser.click("Hold …").await;
        browser.click("Hold").await;
        browser.sees("The site a.test is held.").await;
        assert_eq!(held(&api).await, ["a.test"]);
        let (unpaced, _) = api.run("it.PortalUnpaced", &json!({})).await;
        push(&api, &unpaced, &["c.test/1"]).await;
        browser.open(&format!("{}#/runs/{unpaced}", broker.url)).await;
        browser.sees("A host without a pace is listed only if").await;
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}
