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
