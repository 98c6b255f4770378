//! A fleet on a web of many hosts: three agents, two runs that share the hosts, and processes that are killed. The log of the
//! web says whether each host was asked politely.

use crate::support::access_log::check;
use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::web::{Kind, Mixed, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

const WEB: Mixed = Mixed { hosts: 1_000, pages: 4, slow: Duration::from_millis(120), rest_s: 2 };
const DELAY_MS: u64 = 500;
/// What reaches the server late makes the gap to the next one smaller.
const SLACK_US: u64 = 300_000;

fn hosts() -> impl Iterator<Item = u32> {
    (0..40).filter(|number| !matches!(Mixed::kind(*number), Kind::Broken | Kind::Hanging))
}

/// Takes what is finished and acknowledges it: the URLs, each with its status or why it failed.
async fn take(api: &Api, run: &str, seen: &mut BTreeSet<String>) -> bool {
    let (status, block) = api.get(&format!("/requestqueue/{run}?wait=0")).await;
    if status != 200 {
        return false;
    }
    for result in block["results"].as_array().into_iter().flatten() {
        let url = result["request"]["url"].as_str().expect("a URL");
        let how = result["error"]["kind"].as_str().map_or_else(|| result["status"].to_string(), str::to_owned);
        seen.insert(format!("{how} {}", url.split_once("127.1.").expect("a host of the web").1));
    }
    api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0 == 200
}

#[test]
fn no_host_is_asked_impolitely_whoever_dies() {
    journey(async {
        let web = Web::serve(move |asked| WEB.answer(asked)).expect("a port");
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let mut api = Api::new(&broker.url);
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let start = |broker: &Broker, n: usize| agent(&broker.url, folders[n].path(), &["--heartbeat", "1"]);
        let mut agents = [start(&broker, 0), start(&broker, 1), start(&broker, 2)];
        let pages: Vec<Value> = hosts()
            .flat_map(|host| [web.url(host, "/1"), web.url(host, "/private/x"), web.url(host, "/2")])
            .map(|url| json!({ "url": url }))
            .collect();
        let mut runs = Vec::new();
        for name in ["it.Fleet", "it.FleetToo"] {
            let settings = json!({ "Delay": DELAY_MS.to_string(), "Robots": "obey", "RetryDownload": "5" });
            let (run, _) = api.run(name, &settings).await;
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &json!(pages)).await.0, 200);
            assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
            runs.push((run, BTreeSet::new()));
        }
        let asked = |count: usize| web.log().len() >= count;
        until("some pages", || async { asked(40).then_some(()) }).await;
        agents[1].kill();
        until("more pages", || async { asked(60).then_some(()) }).await;
        broker.process.kill();
        broker.restart("");
        api = Api::new(&broker.url);
        agents[1] = start(&broker, 1);
        let deadline = Instant::now() + Duration::from_secs(150);
        loop {
            let mut over = 0;
            for (run, seen) in &mut runs {
                while take(&api, run, seen).await {}
                over += usize::from(api.state(run).await["state"] == "success");
            }
            if over == runs.len() {
                break;
            }
            assert!(Instant::now() < deadline, "{:?}", runs.iter().map(|(_, seen)| seen.len()).collect::<Vec<_>>());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let found = check(&web.log(), SLACK_US, |host| Mixed::allowed(host, DELAY_MS));
        assert!(found.breaches.is_empty(), "{found}");
        for (run, seen) in &runs {
            let of = |how: &str| seen.iter().filter(|line| line.starts_with(how)).count();
            let forbidden = hosts().filter(|host| Mixed::kind(*host) == Kind::Robots).count();
            assert_eq!((of("robots "), of("200 ") + of("robots ")), (forbidden, pages.len()), "{run}: {seen:?}");
        }
        let robots = web.log().iter().filter(|entry| entry.path == "/robots.txt" && entry.status != 0).count();
        assert!(robots < 2 * hosts().count(), "robots.txt is fetched once for both runs, but for what was lost: {robots}");
    });
}
