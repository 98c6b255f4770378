//! Agents reach what is not public only where a run began, or where their owner allows it.

use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The next finished block of a run, which is acknowledged with these requests.
async fn next(api: &Api, run: &str, follow: &Value) -> Value {
    let done = until("a finished block", || async {
        let (status, done) = api.get(&format!("/requestqueue/{run}?wait=10")).await;
        (status == 200).then_some(done)
    })
    .await;
    let ack = json!({ "blocks": [done["blockId"]], "requests": follow });
    assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &ack).await.0, 200);
    done["results"][0].clone()
}

#[test]
fn where_a_run_began_is_kept_over_the_death_of_the_broker() {
    journey(async {
        let inner = Receiver::start([]);
        let inside = format!("{}/inner", inner.url);
        let site = Receiver::start([Reply::status(200), Reply::to(302, &inside)]);
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let site_settings = json!({ "headers": { "X-Api-Key": "key" } }).to_string();
        // The node follows the redirect, so that it must look at the target itself.
        let properties = json!({ "Site": site_settings, "Cookies": "session=secret", "Redirects": "follow" });
        let (run, _worker) = api.run("it.Targets", &properties).await;
        let (status, pushed) = api.post(&format!("/requestqueue/{run}"), &json!([{ "url": format!("{}/first", site.url) }])).await;
        assert_eq!(status, 200, "{pushed}");
        broker.kill_and_restart();

        let folder = tempfile::tempdir().expect("a folder");
        let usual = agent(&broker.url, folder.path(), &["--heartbeat", "1"]);
        let first = next(&api, &run, &json!([{ "url": inside, "depth": 1 }])).await;
        assert_eq!(first["status"], 200, "the run began there: {first}");
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        let refused = next(&api, &run, &json!([{ "url": format!("{}/away", site.url), "depth": 1 }])).await;
        assert_eq!((&refused["error"]["kind"], &refused["status"]), (&json!("refused"), &json!(0)), "{refused}");
        assert!(refused["error"]["message"].as_str().is_some_and(|text| text.contains("--download-allow")), "{refused}");
        // A redirect leads there no more than a link does.
        let away = next(&api, &run, &json!([])).await;
        assert_eq!((&away["error"]["kind"], &away["status"]), (&json!("refused"), &json!(302)), "{away}");
        assert!(inner.got().is_empty(), "{:?}", inner.got());
        drop(usual);

        // An agent whose owner allows it goes there, and takes none of the job's secrets along.
        let port = inner.url.rsplit(':').next().expect("a port");
        let (run, _worker) = api.run("it.Allowed", &json!({ "Site": site_settings, "Cookies": "session=secret" })).await;
        let folder = tempfile::tempdir().expect("a folder");
        let _allowing =
            agent(&broker.url, folder.path(), &["--heartbeat", "1", "--download-allow", &format!("10.0.0.0/8,127.0.0.1:{port}")]);
        api.post(&format!("/requestqueue/{run}"), &json!([{ "url": format!("{}/first", site.url) }])).await;
        next(&api, &run, &json!([{ "url": inside, "depth": 1 }])).await;
        assert_eq!(next(&api, &run, &json!([])).await["status"], 200);
        let secrets = |got: &crate::support::receiver::Got| (got.headers.contains_key("x-api-key"), got.headers.contains_key("cookie"));
        assert_eq!(inner.got().iter().map(secrets).collect::<Vec<_>>(), [(false, false)]);
        assert_eq!(site.got().last().map(secrets), Some((true, true)));
    });
}

#[test]
fn proxies_and_hosts_that_mean_nothing_are_refused() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = |name: &str, site: Value| json!({ "name": name, "jobType": "block", "properties": { "FullClassName": "it.Proxy", "Site": site.to_string() } });
        for proxy in ["gopher://x", "tor://127.0.0.1:9050", "socks://127.0.0.1:9050", "socks4://x", "ftp://x", "http://"] {
            let (status, problem) = api.post("/api/v1/jobs", &job("bad", json!({ "proxy": proxy }))).await;
            assert_eq!((status, &problem["field"]), (422, &json!("properties.Site")), "{proxy}: {problem}");
        }
        let (status, problem) = api.post("/api/v1/jobs", &job("bad", json!({ "hosts": ["http://x/"] }))).await;
        assert_eq!((status, &problem["field"]), (422, &json!("properties.Site")), "{problem}");
        for (i, proxy) in ["http://p:1", "https://p", "socks5://u:p@p:1080", "socks5h://p", "p:3128"].iter().enumerate() {
            let (status, answer) = api.post("/api/v1/jobs", &job(&format!("good {i}"), json!({ "proxy": proxy }))).await;
            assert_eq!(status, 201, "{proxy}: {answer}");
        }
        let (run, _worker) = api.run("it.ProxyOfARequest", &json!({})).await;
        let push = |proxy: &str| json!([{ "url": "http://far.example/", "proxy": proxy }]);
        let (status, problem) = api.post(&format!("/requestqueue/{run}"), &push("tor://x")).await;
        assert_eq!((status, &problem["field"]), (422, &json!("requests[0].proxy")), "{problem}");
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &push("socks5h://p:1")).await.0, 200);
    });
}
