//! The target of a redirect that is a request of the run obeys what every request obeys: the limit per site, the pace, and the rule on
//! private addresses.

use crate::support::access_log::{Allowed, check};
use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Web, host};
use crate::support::{journey, until};
use serde_json::{Value, json};

/// Hosts 1 to 9 redirect everything to host 0, which has pages.
fn web() -> Web {
    Web::serve(|asked| {
        let port = asked.headers.iter().find(|(name, _)| name == "host").and_then(|(_, at)| at.split(':').nth(1)).unwrap_or_default();
        if asked.host == host(0) {
            Answer::html("<p>page")
        } else {
            Answer::status(302).with("location", format!("http://{}:{port}{}", host(0), asked.path))
        }
    })
    .expect("a web")
}

/// Results of a run until this many are there.
async fn results(api: &Api, run: &str, count: usize) -> Vec<Value> {
    let mut all: Vec<Value> = Vec::new();
    while all.len() < count {
        let (status, block) = api.get(&format!("/requestqueue/{run}?wait=10")).await;
        if status == 200 {
            all.extend(block["results"].as_array().expect("results").clone());
            assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
        }
    }
    all
}

async fn run(api: &Api, class: &str, web: &Web, hosts: std::ops::RangeInclusive<u32>, more: &Value) -> String {
    let mut properties = json!({ "Redirects": "request", "BlockSize": "1", "Robots": "ignore" });
    for (key, value) in more.as_object().expect("an object") {
        properties[key] = value.clone();
    }
    let (run, _) = api.run(class, &properties).await;
    let pushed: Vec<Value> = hosts.map(|n| json!({ "url": web.url(n, &format!("/{n}")) })).collect();
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &Value::from(pushed)).await.0, 200);
    run
}

async fn ended(api: &Api, run: &str) -> Value {
    assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
    until("the end", || async { Some(api.state(run).await).filter(|run| run["finishTime"].is_string()) }).await
}

const ALL: [&str; 4] = ["--heartbeat", "1", "--download-allow", "127.0.0.0/8"];

#[test]
fn targets_count_for_the_limit_of_their_site() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &ALL);
        let run = run(&api, "it.TargetLimit", &web, 1..=5, &json!({ "MaxPerSite": "2" })).await;
        let all = results(&api, &run, 7).await;
        let end = ended(&api, &run).await;
        assert_eq!((&end["total"], &end["success"]), (&json!(7), &json!(7)), "five redirects and two of their targets: {end}");
        assert_eq!(all.iter().filter(|result| result["status"] == 302).count(), 5, "a redirect is reported even if its target is dropped");
        assert_eq!(web.log().iter().filter(|entry| entry.host == host(0)).count(), 2);
    });
}

#[test]
fn targets_wait_for_the_pace_of_their_site() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folders = [tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder")];
        let _agents = folders.each_ref().map(|folder| agent(&broker.url, folder.path(), &ALL));
        let run = run(&api, "it.TargetPace", &web, 1..=6, &json!({ "Delay": "300", "PerSite": "1" })).await;
        results(&api, &run, 12).await;
        ended(&api, &run).await;
        let log = web.log();
        assert_eq!(log.iter().filter(|entry| entry.host == host(0)).count(), 6);
        // What reaches the server late makes the gap to the next one smaller.
        let found = check(&log, 50_000, |_| Allowed { delay_ms: 300, connections: 1, disallowed: Vec::new() });
        assert!(found.breaches.is_empty(), "{found}");
    });
}

#[test]
fn targets_at_private_addresses_are_refused_unless_the_run_began_there() {
    journey(async {
        let web = web();
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        let refused = |all: &[Value]| {
            let of = all.iter().filter(|result| result["request"]["url"].as_str().is_some_and(|url| url.contains(&host(0))));
            of.map(|result| result["error"]["kind"].clone()).collect::<Vec<_>>()
        };
        let run_id = run(&api, "it.TargetPrivate", &web, 1..=2, &json!({})).await;
        assert_eq!(refused(&results(&api, &run_id, 4).await), [json!("refused"), json!("refused")]);
        ended(&api, &run_id).await;
        // Queued again, too: the new run began where the first one did.
        let (status, done) = api.post(&format!("/api/v1/runs/{run_id}/requests/requeue"), &json!({})).await;
        assert_eq!((status, &done["queued"]), (200, &json!(2)), "{done}");
        let again = done["identity"].as_str().expect("a new run");
        assert_eq!(refused(&results(&api, again, 2).await), [json!("refused"), json!("refused")]);
        assert_eq!(web.log().iter().filter(|entry| entry.host == host(0)).count(), 0, "it was never asked");

        let inside = run(&api, "it.TargetInside", &web, 0..=1, &json!({})).await;
        assert_eq!(refused(&results(&api, &inside, 3).await), [Value::Null, Value::Null]);
    });
}
