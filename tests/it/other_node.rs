//! What one node finds no way to, another node tries. What the only node refuses ends as refused.

use crate::support::api::Api;
use crate::support::process::{Broker, Process, agent};
use crate::support::web::{Answer, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::path::Path;

fn web() -> Web {
    Web::serve(|asked| match asked.path.as_str() {
        "/robots.txt" => Answer::text("User-agent: *\nDisallow: /private\n"),
        _ => Answer::html("<p>text"),
    })
    .expect("a web")
}

/// An agent that may download from the first hosts of the web, except the denied ones. It has room for more than others.
fn refusing(api: &Api, web: &Web, folder: &Path) -> Process {
    let allow = (1..=9).map(|host| format!("127.1.0.{host}:{}", web.port)).collect::<Vec<_>>().join(",");
    let room = ["--group", "mine", "--heartbeat", "1", "--max-process-count", "9", "--max-sites", "900", "--download-allow", &allow];
    agent(&api.url, folder, &[&room[..], &["--download-deny", "127.1.0.2/31,127.1.0.4/32"]].concat())
}

/// An agent of this group that may download from all hosts of the web.
fn permitted(api: &Api, folder: &Path, group: &str) -> Process {
    agent(&api.url, folder, &["--group", group, "--heartbeat", "1", "--max-process-count", "1", "--download-allow", "127.0.0.0/8"])
}

async fn nodes_online(api: &Api, count: usize) {
    until("the nodes", || async {
        let (_, nodes) = api.get("/api/v1/nodes").await;
        (nodes["items"].as_array()?.iter().filter(|node| node["isOnline"] == true).count() == count).then_some(())
    })
    .await;
}

/// Pushes requests to a run and waits for their results: path, status, kind of the error.
async fn crawl(api: &Api, web: &Web, run: &str, host: u32, paths: &[&str]) -> Vec<(String, Value, Value)> {
    let urls: Vec<Value> = paths.iter().map(|path| json!({ "url": web.url(host, path) })).collect();
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &Value::from(urls)).await.0, 200);
    let mut all = Vec::new();
    while all.len() < paths.len() {
        let block = until("results", || async {
            let (status, block) = api.get(&format!("/requestqueue/{run}")).await;
            (status == 200).then_some(block)
        })
        .await;
        for result in block["results"].as_array().expect("results") {
            let url = result["request"]["url"].as_str().expect("a url");
            let path = paths.iter().find(|path| url.ends_with(**path)).expect("a pushed path");
            all.push(((*path).to_owned(), result["status"].clone(), result["error"]["kind"].clone()));
        }
        let (status, _) = api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await;
        assert_eq!(status, 200);
    }
    all.sort_by(|one, other| one.0.cmp(&other.0));
    all
}

#[test]
fn what_one_node_cannot_reach_another_one_does() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let _refusing = refusing(&api, &web, folders[0].path());
        nodes_online(&api, 1).await;
        let properties = |delay: &str| json!({ "Delay": delay, "BlockSize": "10", "RetryDownload": "0", "Robots": "ignore" });
        let (unpaced, _first) = api.run("it.Unpaced", &properties("0")).await;
        let alone = crawl(&api, &web, &unpaced, 1, &["/alone"]).await;
        assert_eq!(alone, [("/alone".to_owned(), json!(0), json!("refused"))], "there is only one node");
        let _permitted = permitted(&api, folders[1].path(), "mine");
        nodes_online(&api, 2).await;
        let (paced, _second) = api.run("it.Paced", &properties("20")).await;
        for run in [unpaced, paced] {
            let all = crawl(&api, &web, &run, 1, &["/1", "/2", "/3"]).await;
            assert_eq!(all, ["/1", "/2", "/3"].map(|path| (path.to_owned(), json!(200), Value::Null)), "{run}");
        }
    });
}

/// The node that fetches robots.txt is refused by its owner's settings.
#[test]
fn a_refused_robots_txt_is_fetched_by_another_node_or_ends_the_requests_as_refused() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let _refusing = refusing(&api, &web, folders[0].path());
        let _of_another_group = permitted(&api, folders[2].path(), "others");
        nodes_online(&api, 2).await;
        let (run, _worker) = api.run("it.Refused", &json!({ "Robots": "obey", "Delay": "20", "NodeGroup": "mine" })).await;
        let of_one = crawl(&api, &web, &run, 2, &["/open", "/private"]).await;
        assert_eq!(
            of_one,
            ["/open", "/private"].map(|path| (path.to_owned(), json!(0), json!("refused"))),
            "there is only one node of the group"
        );
        let _permitted = permitted(&api, folders[1].path(), "mine");
        nodes_online(&api, 3).await;
        let of_two = crawl(&api, &web, &run, 3, &["/open", "/private"]).await;
        let expected = [("/open".to_owned(), json!(200), Value::Null), ("/private".to_owned(), json!(0), json!("robots"))];
        assert_eq!(of_two, expected);
        let asked: Vec<(String, String)> = web.log().into_iter().map(|entry| (entry.host, entry.path)).collect();
        assert_eq!(asked, ["/robots.txt", "/open"].map(|path| ("127.1.0.4".to_owned(), path.to_owned())));
    });
}
