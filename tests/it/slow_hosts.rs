//! Hosts without a pace that answer slowly: the others do not wait for them.

use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Mixed, Web};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const HOSTS: u32 = 100;

fn hangs(number: u32) -> bool {
    number.is_multiple_of(5)
}

/// Takes what is finished and acknowledges it: the numbers of the hosts.
async fn take(api: &Api, run: &str, seen: &mut BTreeSet<u32>) {
    let queue = format!("/requestqueue/{run}");
    loop {
        let (status, block) = api.get(&format!("{queue}?wait=1")).await;
        if status != 200 {
            return;
        }
        for result in block["results"].as_array().expect("results") {
            assert_eq!(result["status"], 200, "{result}");
            let url = url::Url::parse(result["request"]["url"].as_str().expect("a URL")).expect("a URL");
            assert!(seen.insert(Mixed::number(url.host_str().expect("a host")).expect("a host of the web")), "{url} came twice");
        }
        assert_eq!(api.post(&format!("{queue}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
    }
}

/// Every fifth host hangs. They are more than the agent has slots, and each block has some.
#[test]
fn hosts_that_hang_hold_up_no_others() {
    journey(async {
        let (release, released) = watch::channel(false);
        let web = Web::serve(move |asked| match Mixed::number(&asked.host) {
            Some(number) if hangs(number) => Answer::html("<p>at last").until(&released),
            _ => Answer::html("<p>text"),
        })
        .expect("a port");
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = agent(&broker.url, folder.path(), &["--max-process-count", "2", "--download-allow", "127.0.0.0/8"]);
        let (run, _) = api.run("it.SlowHosts", &json!({ "ThreadNum": "4", "BlockSize": "25", "Timeout": "120000" })).await;
        let requests: Value = (0..HOSTS).map(|number| json!({ "url": web.url(number, "/1") })).collect();
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);

        let fast: BTreeSet<u32> = (0..HOSTS).filter(|number| !hangs(*number)).collect();
        let mut seen = BTreeSet::new();
        until("all hosts are asked", || async { (web.hosts_asked(1) == HOSTS as usize).then_some(()) }).await;
        let deadline = Instant::now() + Duration::from_secs(120);
        while seen != fast {
            take(&api, &run, &mut seen).await;
            assert!(seen.is_subset(&fast) && Instant::now() < deadline, "{seen:?}");
        }
        release.send_replace(true);
        while api.state(&run).await["state"] != "success" {
            take(&api, &run, &mut seen).await;
            assert!(Instant::now() < deadline + Duration::from_secs(60), "{seen:?}");
        }
        assert_eq!(seen.len(), HOSTS as usize);
    });
}

/// A host without a pace asks for a pause: no run asks it again, from no agent, before that time is over. One run obeys robots.txt, so its
/// blocks belong to sites; those of the other do not.
#[test]
fn a_host_without_a_pace_gets_its_pause_from_the_whole_fleet() {
    const REST_S: u64 = 3;
    const PAGES: usize = 20;
    journey(async {
        let web = Web::serve(|asked| match (Mixed::number(&asked.host), asked.before) {
            (Some(0), 0) => Answer::status(429).with("retry-after", REST_S.to_string()),
            _ => Answer::html("<p>text"),
        })
        .expect("a port");
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let folders = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let _agents = folders.each_ref().map(|folder| agent(&broker.url, folder.path(), &["--download-allow", "127.0.0.0/8"]));
        let settings = json!({ "ThreadNum": "4", "BlockSize": "5" });
        let mut runs = vec![api.run("it.Paused", &settings).await.0];
        let obeys = json!({ "ThreadNum": "4", "BlockSize": "5", "Robots": "obey" });
        runs.push(api.run("it.PausedObeys", &obeys).await.0);
        let push = async |run: &str, urls: Vec<String>| {
            let requests: Value = urls.into_iter().map(|url| json!({ "url": url })).collect();
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests).await.0, 200);
        };
        push(&runs[0], vec![web.url(0, "/first")]).await;
        let held = until("the hold", || async { api.get("/api/v1/sites?held=true").await.1["items"].get(0).cloned() }).await;
        assert_eq!((&held["name"], &held["held"]["why"]), (&json!(web.url(0, "")), &json!("retryAfter")), "{held}");
        for run in &runs {
            push(
                run,
                (0..2)
                    .flat_map(|host| (0..PAGES).map(move |page| (host, page)))
                    .map(|(host, page)| web.url(host, &format!("/{page}")))
                    .collect(),
            )
            .await;
            assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        }
        for (run, pages) in runs.iter().zip([2 * PAGES + 1, 2 * PAGES]) {
            let (queue, mut came) = (format!("/requestqueue/{run}"), BTreeSet::new());
            let deadline = Instant::now() + Duration::from_secs(120);
            while api.state(run).await["state"] != "success" {
                let (status, block) = api.get(&format!("{queue}?wait=1")).await;
                if status != 200 {
                    assert!(Instant::now() < deadline, "{came:?}");
                    continue;
                }
                for result in block["results"].as_array().expect("results") {
                    assert_eq!(result["status"], 200, "{result}");
                    came.insert(result["request"]["url"].as_str().expect("a URL").to_owned());
                }
                assert_eq!(api.post(&format!("{queue}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
            }
            assert_eq!(came.len(), pages);
        }
        let mut log: Vec<_> = web.log().into_iter().filter(|entry| Mixed::number(&entry.host) == Some(0)).collect();
        log.sort_by_key(|entry| entry.begin);
        assert_eq!(log[0].status, 429);
        let gap = log[1].begin - log[0].begin;
        assert!(gap >= REST_S * 1_000_000, "asked again after {gap} us: {:?}", &log[..2]);
        let (_, sites) = api.get("/api/v1/sites?held=true").await;
        assert_eq!(sites["items"], json!([]), "it has answered");
    });
}
