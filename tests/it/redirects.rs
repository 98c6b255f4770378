//! Redirects: their targets are new requests of the run, stored with the results that name them.

use crate::support::api::{Api, id};
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SITE: &str = "http://site.test";

/// All results of a run that are there now, with the numbers of their blocks.
async fn results(api: &Api, run: &str) -> Vec<Value> {
    let mut all = Vec::new();
    loop {
        let (status, block) = api.get(&format!("/requestqueue/{run}")).await;
        if status != 200 {
            return all;
        }
        all.extend(block["results"].as_array().expect("results").clone());
        let (status, _) = api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await;
        assert_eq!(status, 200);
    }
}

/// A node without a socket downloads one block of a site where `/from/N` redirects to `/to/N`; false if there was none.
async fn download(api: &Api, node: &str, asked: &mut Vec<String>) -> bool {
    let block = api.beat(node, &json!({ "holding": [] })).await;
    let Some(requests) = block["requests"].as_array() else { return false };
    assert_eq!(block["maxRedirects"], 0, "the node is to report redirects");
    let result = |request: &Value| {
        let url = request["url"].as_str().expect("a url");
        let moved = url.contains("/from/").then(|| url.replace("/from/", "/to/").replace(SITE, ""));
        let headers = moved.iter().map(|to| json!(["Location", to])).collect::<Vec<_>>();
        json!({ "requestId": request["requestId"], "status": if moved.is_some() { 301 } else { 200 }, "headers": headers, "text": "x" })
    };
    asked.extend(requests.iter().map(|request| request["url"].as_str().expect("a url").to_owned()));
    let report = json!({ "blockId": block["blockId"], "identity": block["identity"], "nodeId": node, "epoch": block["epoch"],
        "attempt": block["attempt"], "results": requests.iter().map(result).collect::<Vec<_>>() });
    // Reported until it is accepted, as nodes do: the broker may be killed in between.
    until("an accepted report", || async { matches!(api.post("/node/block", &report).await.0, 200 | 409).then_some(()) }).await;
    true
}

#[test]
fn targets_are_requests_of_the_run_and_survive_the_death_of_the_broker() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let properties = json!({ "Redirects": "request", "BlockSize": "2", "MaxRequests": "100", "Robots": "ignore" });
        let (run, _worker) = api.run("it.Redirects", &properties).await;
        // One of the targets is pushed by the worker too; another is the target of two redirects.
        let mut pushed: Vec<Value> =
            (0..10).map(|n| json!({ "url": format!("{SITE}/from/{n}"), "depth": 1, "meta": { "n": n } })).collect();
        pushed.push(json!({ "url": format!("{SITE}/to/3") }));
        pushed.push(json!({ "url": format!("{SITE}/from/4"), "method": "POST", "body": "x=1" }));
        let (status, answer) = api.post(&format!("/requestqueue/{run}"), &Value::from(pushed)).await;
        assert_eq!((status, &answer["accepted"]), (200, &json!(12)), "{answer}");
        let (node, mut asked, mut all, mut rounds) = (id(), Vec::new(), Vec::new(), 0);
        while all.len() < 21 {
            rounds += 1;
            assert!(rounds < 200, "{} results of 21", all.len());
            download(&api, &node, &mut asked).await;
            // Between a report and its delivery: the targets were stored with the report, or it is made again.
            broker.kill_and_restart();
            until("the run", || async { (api.get(&format!("/api/v1/runs/{run}")).await.0 == 200).then_some(()) }).await;
            all.extend(results(&api, &run).await);
        }
        assert!(!download(&api, &node, &mut asked).await, "nothing is left");
        let state = api.state(&run).await;
        assert_eq!(state["total"], 21, "{state}");
        let mut by_url = BTreeMap::<String, Vec<&Value>>::new();
        for result in &all {
            by_url.entry(result["request"]["url"].as_str().expect("a url").to_owned()).or_default().push(result);
        }
        for n in 0..10 {
            let (from, to) = (format!("{SITE}/from/{n}"), format!("{SITE}/to/{n}"));
            assert_eq!(by_url[&from].len(), if n == 4 { 2 } else { 1 }, "{from}");
            assert!(by_url[&from].iter().all(|result| result["status"] == 301), "the redirect itself is reported");
            assert_eq!(by_url[&to].len(), 1, "{to} is requested once");
            let target = &by_url[&to][0]["request"];
            match n {
                3 => assert_eq!(target["redirectedFrom"], Value::Null, "it was known"),
                4 => assert_eq!((&target["method"], &target["body"]), (&Value::Null, &Value::Null)),
                _ => {
                    assert_eq!((&target["redirectedFrom"], &target["depth"], &target["meta"]["n"]), (&json!([from]), &json!(1), &json!(n)))
                }
            }
        }
    });
}

/// A web of one host: `/a` and `/b` lead to `/page`, `/shop` sets a cookie and leads back, `/out` leads to another host.
fn web() -> Web {
    Web::serve(|asked| {
        let to = |target: &str| Answer::status(302).with("location", target);
        let has_cookie = asked.headers.iter().any(|(name, value)| name == "cookie" && value.contains("seen=1"));
        let port = asked.headers.iter().find(|(name, _)| name == "host").and_then(|(_, host)| host.split(':').nth(1)).unwrap_or_default();
        match asked.path.as_str() {
            "/" => Answer::html(
                "<a href=/a>a</a><a href=/b>b</a><a href=/page>p</a><a href=/shop>s</a><a href=/out>o</a><a href=/long/0>l</a>",
            ),
            "/a" | "/b" => to("/page"),
            "/shop" if has_cookie => Answer::html("<title>Shop</title>"),
            "/shop" => to("/welcome"),
            "/welcome" => to("/shop").with("set-cookie", "seen=1"),
            "/out" => to(&format!("http://127.1.0.2:{port}/elsewhere")),
            "/gone" => to(&format!("http://127.1.0.3:{port}/")),
            path if path.starts_with("/long/") => to(&format!("/long/{}", path[6..].parse::<u32>().unwrap_or(0) + 1)),
            "/page" => Answer::html("<title>Page</title>"),
            _ => Answer::status(404),
        }
    })
    .expect("a web")
}

#[test]
fn a_crawl_reports_redirects_and_fetches_each_target_once() {
    journey(async {
        let web = web();
        let folder = tempfile::tempdir().expect("a folder");
        let mut crawl = Crawl::start(&web.url(0, "/"), folder.path(), &["--depth", "1", &web.url(0, "/gone")]);
        crawl.succeeds().await;
        let lines = crawl.lines();
        let of = |path: &str| lines.iter().filter(|line| line["url"] == web.url(0, path)).collect::<Vec<_>>();
        for path in ["/a", "/b"] {
            assert_eq!((of(path).len(), &of(path)[0]["status"], &of(path)[0]["location"]), (1, &json!(302), &json!(web.url(0, "/page"))));
        }
        assert_eq!((of("/page").len(), &of("/page")[0]["title"]), (1, &json!("Page")));
        let shop: Vec<_> = of("/shop").iter().map(|line| line["status"].clone()).collect();
        assert_eq!(shop, [302, 200], "the page behind the cookie is reached: {lines:?}");
        assert_eq!(of("/shop")[1]["redirectedFrom"], json!([web.url(0, "/shop"), web.url(0, "/welcome")]));
        assert_eq!((of("/out").len(), &of("/out")[0]["location"]), (1, &json!(web.url(1, "/elsewhere"))));
        let gone = of("/gone");
        assert!(gone.len() == 1 && gone[0]["error"].as_str().is_some_and(|text| text.contains("outside of the crawl")), "{gone:?}");
        assert!(web.log().iter().all(|entry| entry.host != "127.1.0.3"), "a start is redirected like any other page");
        let last = of("/long/10");
        assert!(last.len() == 1 && last[0]["error"].as_str().is_some_and(|text| text.contains("too many redirects")), "{last:?}");
        assert!(of("/long/11").is_empty(), "{:?}", urls(&lines));
        let asked = |host: &str, path: &str| web.log().iter().filter(|entry| entry.host == host && entry.path == path).count();
        assert_eq!((asked("127.1.0.1", "/page"), asked("127.1.0.2", "/elsewhere")), (1, 0), "once, and nothing out of scope");
    });
}

/// A job that says nothing of redirects: their targets are requests, so each is fetched once.
#[test]
fn the_agent_reports_redirects_unless_the_job_says_follow() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        let (run, _worker) = api.run("it.AgentRedirects", &json!({ "MaxRedirects": "3" })).await;
        let pushed = json!([{ "url": web.url(0, "/a") }, { "url": web.url(0, "/b") }, { "url": web.url(0, "/long/0") }, { "url": web.url(0, "/shop") }]);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &pushed).await.0, 200);
        let mut all = Vec::new();
        while all.len() < 10 {
            let more = until("results", || async { Some(results(&api, &run).await).filter(|more| !more.is_empty()) }).await;
            all.extend(more);
        }
        let of = |path: &str| all.iter().filter(|result| result["request"]["url"] == web.url(0, path)).collect::<Vec<_>>();
        assert_eq!((of("/page").len(), &of("/page")[0]["status"]), (1, &json!(200)));
        assert_eq!(of("/long/3")[0]["error"]["kind"], "redirect", "{all:?}");
        assert_eq!(of("/shop").iter().map(|result| result["status"].clone()).collect::<Vec<_>>(), [302, 200]);
        let fetches = |path: &str| web.log().iter().filter(|entry| entry.path == path).count();
        assert_eq!((fetches("/a"), fetches("/b"), fetches("/page")), (1, 1, 1), "two redirects lead to one page");
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        until("the end of the run", || async { (api.state(&run).await["state"] == "success").then_some(()) }).await;

        let (run, _worker) = api.run("it.FollowsRedirects", &json!({ "Redirects": "follow" })).await;
        assert_eq!(
            api.post(&format!("/requestqueue/{run}"), &json!([{ "url": web.url(0, "/a") }, { "url": web.url(0, "/b") }])).await.0,
            200
        );
        let mut all = Vec::new();
        while all.len() < 2 {
            all.extend(until("results", || async { Some(results(&api, &run).await).filter(|more| !more.is_empty()) }).await);
        }
        assert!(
            all.iter().all(|result| (&result["status"], &result["targetUrl"]) == (&json!(200), &json!(web.url(0, "/page")))),
            "{all:?}"
        );
        assert_eq!(fetches("/page"), 3, "each request has led to its page");
    });
}

/// The robots.txt of one host is at another one; a third one redirects for ever.
#[test]
fn a_robots_txt_that_is_at_another_host_is_found_there() {
    journey(async {
        let web = Web::serve(|asked| {
            let port =
                asked.headers.iter().find(|(name, _)| name == "host").and_then(|(_, host)| host.split(':').nth(1)).unwrap_or_default();
            let to = |host: &str, path: &str| Answer::status(301).with("location", format!("http://{host}:{port}{path}"));
            match (asked.host.as_str(), asked.path.as_str()) {
                ("127.1.0.1", "/robots.txt") => to("127.1.0.2", "/robots.txt"),
                ("127.1.0.2", "/robots.txt") => to("127.1.0.2", "/rules"),
                ("127.1.0.2", "/rules") => to("127.1.0.3", "/rules"),
                ("127.1.0.3", "/rules") => Answer::text("User-agent: *\nDisallow: /private\n"),
                ("127.1.0.4", "/robots.txt") => to("127.1.0.5", "/robots.txt"),
                ("127.1.0.5", "/robots.txt") => to("127.1.0.4", "/robots.txt"),
                (_, "/robots.txt") => Answer::status(404),
                _ => Answer::html("<p>text"),
            }
        })
        .expect("a web");
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1", "--download-allow", "127.0.0.0/8"]);
        let (run, _worker) = api.run("it.MovedRobots", &json!({ "Robots": "obey", "Delay": "20" })).await;
        let urls = [(0, "/private/x"), (0, "/open"), (1, "/private/x"), (2, "/private/x"), (3, "/x")];
        let pushed: Vec<Value> = urls.iter().map(|(host, path)| json!({ "url": web.url(*host, path) })).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &Value::from(pushed)).await.0, 200);
        let mut all = Vec::new();
        while all.len() < urls.len() {
            all.extend(until("results", || async { Some(results(&api, &run).await).filter(|more| !more.is_empty()) }).await);
        }
        let of = |host: u32, path: &str| {
            let result = all.iter().find(|result| result["request"]["url"] == web.url(host, path)).expect("a result");
            (result["status"].clone(), result["error"]["message"].clone())
        };
        assert_eq!(
            of(0, "/private/x"),
            (json!(0), json!("line 2 of robots.txt forbids it")),
            "the rules of the other host count for this one"
        );
        assert_eq!(of(0, "/open").0, 200);
        assert_eq!(of(1, "/private/x"), (json!(0), json!("line 2 of robots.txt forbids it")), "it is redirected, too");
        assert_eq!(of(2, "/private/x").0, 200, "the third host has no robots.txt of its own");
        assert_eq!(of(3, "/x").0, 200, "too many redirects: as if there was none");
        let log = web.log();
        let fetches = |host: &str| log.iter().filter(|entry| entry.host == host && entry.path == "/robots.txt").count();
        assert_eq!((fetches("127.1.0.4"), fetches("127.1.0.5")), (3, 3), "five redirects");
    });
}
