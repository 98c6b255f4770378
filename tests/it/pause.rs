//! A person pauses a block run and resumes it.

use crate::support::api::{Api, id, requests};
use crate::support::browser::Browser;
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::{journey, until};
use serde_json::{Value, json};

async fn steer(api: &Api, run: &str, word: &str) -> (u16, Value) {
    api.post(&format!("/api/v1/runs/{run}/{word}"), &json!({})).await
}

fn shell(broker: &Broker, args: &[&str]) -> String {
    let mut command = std::process::Command::new(WEBLOOM);
    let done = command.arg("run").arg("--broker").arg(&broker.url).args(args).output().expect("it runs");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8_lossy(&done.stdout).trim().to_owned()
}

async fn finished(api: &Api, run: &str, blocks: usize) {
    for _ in 0..blocks {
        let (status, block) = api.get(&format!("/requestqueue/{run}?wait=20")).await;
        assert_eq!(status, 200, "{block}");
        assert_eq!(api.post(&format!("/requestqueue/{run}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0, 200);
    }
}

#[test]
fn a_paused_run_hands_out_nothing_and_stays_paused_over_a_crash() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Paused", &json!({ "BlockSize": "2" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=6)).await.0, 200);
        let node = id();
        let out = until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;

        let (status, paused) = steer(&api, &run, "pause").await;
        assert_eq!((status, paused["pausedAt"].is_string(), &paused["blocks"]["using"]), (200, true, &json!(1)), "{paused}");
        let (_, again) = steer(&api, &run, "pause").await;
        assert_eq!(again["pausedAt"], paused["pausedAt"], "twice is as once");
        let other = id();
        assert_eq!(api.beat(&other, &json!({})).await, Value::Null);
        // What was out comes back and is delivered; requests come in all the same.
        assert_eq!(api.report(&node, &out, 200).await.0, 200);
        finished(&api, &run, 1).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(7..=8)).await.0, 200);
        assert_eq!(api.beat(&other, &json!({})).await, Value::Null);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);

        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let now = until("the run", || async { Some(api.state(&run).await).filter(|run| run["consuming"].is_number()) }).await;
        assert_eq!((&now["pausedAt"], &now["state"]), (&paused["pausedAt"], &json!("running")), "{now}");
        assert_eq!(api.beat(&other, &json!({})).await, Value::Null);
        let (_, why) = api.get(&format!("/api/v1/runs/{run}/why")).await;
        assert!(why["verdict"] == "paused" && why["because"].to_string().contains("paused since"), "{why}");
        let (_, list) = api.get("/api/v1/runs").await;
        assert_eq!(list["items"][0]["pausedAt"], paused["pausedAt"], "{list}");
        assert!(shell(&broker, &["list"]).contains("running, paused"));
        assert!(shell(&broker, &["show", &run]).contains("paused"));

        assert_eq!(shell(&broker, &["resume", &run]), format!("run {run} goes on"));
        let (status, resumed) = steer(&api, &run, "resume").await;
        assert_eq!((status, resumed.get("pausedAt")), (200, None), "twice is as once: {resumed}");
        for _ in 0..3 {
            let block = until("a block", || async { Some(api.beat(&other, &json!({})).await).filter(|block| !block.is_null()) }).await;
            // It does not end while it is paused, unless everything is through.
            steer(&api, &run, "pause").await;
            assert_eq!(api.report(&other, &block, 200).await.0, 200);
            steer(&api, &run, "resume").await;
        }
        assert!(shell(&broker, &["pause", &run]).starts_with(&format!("run {run} is paused since ")));
        finished(&api, &run, 3).await;
        let over = until("the end", || async { Some(api.state(&run).await).filter(|run| run["state"] == "success") }).await;
        assert_eq!((&over["success"], over.get("pausedAt")), (&json!(8), None), "{over}");
        let (status, problem) = steer(&api, &run, "pause").await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/run-over")), "{problem}");
    });
}

#[test]
fn sites_of_a_paused_run_go_to_others() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.PausedSite", &json!({ "Delay": "100" })).await;
        assert_eq!(steer(&api, &run, "pause").await.0, 200);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=2)).await.0, 200);
        let (other, _) = api.run("it.OtherSite", &json!({ "Delay": "100" })).await;
        assert_eq!(api.post(&format!("/requestqueue/{other}"), &requests(1..=2)).await.0, 200);
        let node = id();
        let next =
            || async { until("a block", || async { Some(api.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await };
        for _ in 0..2 {
            let block = next().await;
            assert_eq!(block["identity"], json!(other));
            assert_eq!(api.report(&node, &block, 200).await.0, 200);
        }
        assert_eq!(steer(&api, &run, "resume").await.0, 200);
        assert_eq!(next().await["identity"], json!(run));
    });
}

/// Requests that are refused at once: nobody listens there.
fn refused(pages: std::ops::Range<usize>) -> Value {
    pages.map(|n| json!({ "url": format!("http://127.0.0.1:9/{n}") })).collect()
}

#[test]
fn a_connected_agent_gets_nothing_and_another_broker_keeps_the_pause() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let start = || Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "1000"], "");
        let (mut leader, standby) = (start(), start());
        let api = Api::new(&leader.url);
        let properties = json!({ "RetryDownload": "0", "BlockSize": "1" });
        let (run, _) = api.run("it.PausedFirst", &properties).await;
        assert_eq!(steer(&api, &run, "pause").await.0, 200);
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &refused(0..3)).await.0, 200);
        let (other, _) = api.run("it.NotPaused", &properties).await;
        assert_eq!(api.post(&format!("/requestqueue/{other}"), &refused(0..3)).await.0, 200);
        let _agent = agent(&format!("{},{}", leader.url, standby.url), &folder.path().join("agent"), &[]);
        let failed = |api: Api, run: String| async move { Some(api.state(&run).await).filter(|run| run["error"] == 3) };
        until("the run that is not paused", || failed(api.clone(), other.clone())).await;
        let state = api.state(&run).await;
        assert_eq!((&state["blockTimes"], &state["left"]), (&json!(0), &json!(3)), "{state}");
        assert_eq!(Api::new(&standby.url).state(&run).await["pausedAt"], state["pausedAt"]);

        leader.process.kill();
        let api = Api::new(&standby.url);
        until("the other broker", || async { (api.get("/readyz").await.0 == 200).then_some(()) }).await;
        let loaded = until("the run", || async { Some(api.state(&run).await).filter(|run| run["consuming"].is_number()) }).await;
        assert_eq!((&loaded["pausedAt"], &loaded["blockTimes"]), (&state["pausedAt"], &json!(0)), "{loaded}");
        assert_eq!(steer(&api, &run, "resume").await.0, 200);
        until("the run that was paused", || failed(api.clone(), run.clone())).await;
    });
}

#[test]
fn only_block_runs_are_paused() {
    journey(async {
        let broker = Broker::start(&["--callback-allow", "127.0.0.1"], "");
        let api = Api::new(&broker.url);
        api.worker("it.steered").await;
        let job = json!({ "name": "t", "jobType": "task", "task": { "handler": "it.steered" } });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        for word in ["pause", "resume"] {
            let (status, problem) =
                until("its actor", || async { Some(steer(&api, &run, word).await).filter(|(status, _)| *status != 503) }).await;
            assert_eq!((status, &problem["type"]), (409, &json!("/problems/no-queue")), "{problem}");
            assert!(problem["detail"].as_str().is_some_and(|text| text.contains("only block runs can be paused")), "{problem}");
            assert_eq!(steer(&api, &id(), word).await.0, 404);
        }
    });
}

#[test]
fn the_page_of_a_run_pauses_it_and_finds_a_url() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.PausedByHand", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(1..=2)).await.0, 200);
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/runs/{run}", broker.url)).await;
        browser.click("Pause").await;
        browser.sees("It is paused since").await;
        assert!(api.state(&run).await["pausedAt"].is_string());
        browser.fill("URL", "http://EXAMPLE.test/2").await;
        browser.click("Find").await;
        browser.sees("Its canonical form is http://example.test/2.").await;
        browser.sees("waiting (paused)").await;
        browser.click("Resume").await;
        until("the run to go on", || async { api.state(&run).await.get("pausedAt").is_none().then_some(()) }).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
