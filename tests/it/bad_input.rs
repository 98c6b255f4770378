//! Bad input gets a clear 4xx that names the field, and changes nothing.

use crate::support::api::{Api, id, requests};
use crate::support::journey;
use crate::support::process::Broker;
use reqwest::Method;
use serde_json::{Value, json};

#[test]
fn jobs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        api.job("taken", "a.B", &json!({})).await;
        let job = api.job("mine", "a.B", &json!({})).await;
        let before = api.get("/api/v1/jobs").await;
        let class = |more: Value| {
            let mut job = json!({ "name": "n", "jobType": "block", "properties": { "FullClassName": "a.B" } });
            for (key, value) in more.as_object().expect("an object") {
                job[key] = value.clone();
            }
            job
        };
        let cases = [
            (class(json!({ "name": "" })), 422, "name"),
            (class(json!({ "name": "x".repeat(51) })), 422, "name"),
            (class(json!({ "name": 5 })), 400, "name"),
            (class(json!({ "name": "taken" })), 409, "name"),
            (class(json!({ "id": "no" })), 400, "id"),
            (class(json!({ "id": job })), 409, "id"),
            (class(json!({ "jobType": 7 })), 422, "jobType"),
            (class(json!({ "jobType": "crawl" })), 422, "jobType"),
            (class(json!({ "cron": "61 * * * *" })), 422, "cron"),
            (class(json!({ "description": "x".repeat(501) })), 422, "description"),
            (class(json!({ "priority": 1.5 })), 400, "priority"),
            (class(json!({ "properties": { "FullClassName": "x".repeat(101) } })), 422, "properties.FullClassName"),
            (class(json!({ "properties": { "FullClassName": "a", "ThreadNum": "many" } })), 422, "properties.ThreadNum"),
            (class(json!({ "properties": { "FullClassName": "a", "K": "x".repeat(8_193) } })), 422, "properties.K"),
            (class(json!({ "properties": { "FullClassName": 1 } })), 400, "properties.FullClassName"),
        ];
        for (body, expected, field) in &cases {
            let (status, problem) = api.post("/api/v1/jobs", body).await;
            assert_eq!((status, problem["field"].as_str()), (*expected, Some(*field)), "{body}: {problem}");
            // Its own id is no conflict for a job that is changed.
            if body["id"] != json!(job) {
                let (status, problem) = api.put(&format!("/api/v1/jobs/{job}"), body).await;
                assert_eq!((status, problem["field"].as_str()), (*expected, Some(*field)), "PUT {body}: {problem}");
            }
        }
        let (status, problem) = api.put(&format!("/api/v1/jobs/{job}"), &json!({ "version": 99, "name": "x" })).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/version")));
        assert_eq!(api.get("/api/v1/jobs").await, before, "nothing has changed");
        for text in ["", "{", "5", "{\"name\":\"a\"} x", "\u{0}"] {
            let (status, problem) = api.send(api.request(Method::POST, "/api/v1/jobs").body(text)).await;
            assert_eq!(status, 400, "{text:?}: {problem}");
        }
        let unknown = id();
        for (method, path) in [
            (Method::GET, format!("/api/v1/jobs/{unknown}")),
            (Method::DELETE, format!("/api/v1/jobs/{unknown}")),
            (Method::POST, format!("/api/v1/jobs/{unknown}/trigger")),
            (Method::POST, format!("/api/v1/jobs/{unknown}/enable")),
            (Method::GET, format!("/api/v1/runs/{unknown}")),
            (Method::POST, format!("/api/v1/runs/{unknown}/stop")),
            (Method::GET, format!("/api/v1/nodes/{unknown}")),
            (Method::GET, format!("/api/v1/workers/{unknown}/messages")),
            (Method::GET, format!("/requestqueue/{unknown}")),
            (Method::GET, "/nowhere".to_owned()),
        ] {
            assert_eq!(api.send(api.request(method, &path)).await.0, 404, "{path}");
        }
        assert_eq!(api.get("/api/v1/jobs/xyz").await.0, 400);
        assert_eq!(api.get("/api/v1/jobs?limit=0").await.1["field"], "limit");
        assert_eq!(api.get("/api/v1/jobs?cursor=x").await.1["field"], "cursor");
        assert_eq!(api.get("/api/v1/jobs?limit=x").await.0, 400);
        assert_eq!(api.delete("/api/v1/jobs").await.0, 405);
    });
}

/// A class that nobody watches: a failed run that can be seen, not silence. A disabled job: no run, and a clear answer.
#[test]
fn triggers_that_cannot_be() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = api.job("lonely", "nobody.Watches", &json!({})).await;
        let run = api.trigger(&job).await;
        let state = crate::support::until("the failure", || async { Some(api.state(&run).await).filter(|s| s["state"] == "failed") }).await;
        assert!(state["reason"].as_str().expect("a reason").contains("nobody.Watches"), "{state}");
        api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({})).await;
        let (status, problem) = api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/job-disabled")));
        assert_eq!(api.get("/api/v1/runs").await.1["items"].as_array().map(Vec::len), Some(1));
        assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/trigger"), &json!({})).await.0, 404);
        assert_eq!(api.state(&run).await["jobId"], json!(job), "its history stays");
        // One planned instant makes one run, however often it is told.
        let (_, _) = api.run("it.Fire", &json!({})).await;
        let fire = api.get("/api/v1/jobs?name=it.Fire").await.1["items"][0]["id"].as_str().expect("an id").to_owned();
        let at = json!({ "fireTime": "2026-11-21T10:00:00Z" });
        let one = api.post(&format!("/api/v1/jobs/{fire}/trigger"), &at).await;
        let two = api.post(&format!("/api/v1/jobs/{fire}/trigger"), &at).await;
        assert_eq!((one.0, two.0), (202, 202));
        assert_eq!(one.1["identity"], two.1["identity"]);
    });
}

/// Traps 5 and 6, and the switch that forbids overlap: what makes no run is told and does not come back.
#[test]
fn triggers_that_are_skipped() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        api.worker("it.Skip").await;
        let job = api.job("skip", "it.Skip", &json!({ "Overlap": "skip", "StaleAfter": "10000" })).await;
        let path = format!("/api/v1/jobs/{job}/trigger");
        let fire = |ms_ago: i64| {
            let planned = webloom::for_tests::time::Timestamp::now().plus_ms(-ms_ago);
            json!({ "fireTime": planned })
        };
        let (stale, fresh) = (fire(60_000), fire(1_000));
        for _ in 0..2 {
            assert_eq!(api.post(&path, &stale).await.0, 409, "what is stale makes no run, told once or twice");
        }
        let (status, run) = api.post(&path, &fresh).await;
        assert_eq!(status, 202, "what is fresh does: {run}");
        let (status, problem) = api.post(&path, &fire(0)).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/still-running")));
        assert_eq!(api.post(&path, &fresh).await.1["identity"], run["identity"], "its own instant is no overlap");
        let identity = run["identity"].as_str().expect("an identity");
        assert_eq!(api.post(&format!("/api/v1/runs/{identity}/stop"), &json!({})).await.0, 200);
        assert_eq!(api.post(&path, &fire(0)).await.0, 202);
        assert_eq!(api.get("/api/v1/runs").await.1["items"].as_array().map(Vec::len), Some(2));
        for (key, value) in [("Overlap", "maybe"), ("StaleAfter", "-1")] {
            let body = json!({ "properties": { "FullClassName": "it.Skip", key: value } });
            let (status, problem) = api.put(&format!("/api/v1/jobs/{job}"), &body).await;
            assert_eq!((status, problem["field"].as_str()), (422, Some(format!("properties.{key}").as_str())));
        }
    });
}

#[test]
fn requests_and_results() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Bad", &json!({})).await;
        let (other, _) = api.run("it.Other", &json!({})).await;
        let push = format!("/requestqueue/{run}");
        let url = |u: &str| json!([{ "url": "http://good.test/" }, { "url": u }]);
        for (body, expected, field) in [
            (url("nothing"), 422, "requests[1].url"),
            (url("ftp://a/"), 422, "requests[1].url"),
            (url("javascript:alert(1)"), 422, "requests[1].url"),
            (url(&format!("http://a/{}", "x".repeat(9_000))), 422, "requests[1].url"),
            (json!([{ "url": 1 }]), 400, "requests[0].url"),
            (json!([{ "url": "http://a/", "depth": "deep" }]), 400, "requests[0].depth"),
        ] {
            let (status, problem) = api.post(&push, &body).await;
            assert_eq!((status, problem["field"].as_str()), (expected, Some(field)), "{problem}");
        }
        assert_eq!(api.send(api.request(Method::POST, &push).body("{")).await.0, 400);
        assert_eq!(api.send(api.request(Method::POST, &push).body(vec![b' '; 33 << 20])).await.0, 413);
        let bomb = zstd::bulk::compress(&vec![b' '; 64 << 20], 1).expect("a bomb");
        assert_eq!(api.send(api.request(Method::POST, &push).header("content-encoding", "zstd").body(bomb)).await.0, 413);
        assert_eq!(api.send(api.request(Method::POST, &push).header("content-encoding", "zstd").body("x")).await.0, 400);
        assert_eq!(api.send(api.request(Method::POST, &push).header("content-encoding", "br").body("[]")).await.0, 415);
        assert_eq!(api.state(&run).await["total"], 0, "nothing was taken");

        api.post(&push, &requests([1, 2])).await;
        let node = id();
        let block = api.beat(&node, &json!({})).await;
        let block_id = block["blockId"].as_str().expect("an id");
        // A node of another name, a run of another name, a block that never was, requests that are not its own.
        assert_eq!(api.report(&id(), &block, 200).await.1["type"], "/problems/late-report");
        let with = |key: &str, value: Value| {
            let mut changed = block.clone();
            changed[key] = value;
            changed
        };
        assert_eq!(api.report(&node, &with("identity", json!(other)), 200).await.0, 404);
        assert_eq!(api.report(&node, &with("identity", json!(id())), 200).await.0, 404);
        assert_eq!(api.report(&node, &with("blockId", json!(format!("{}00000000000000ff", &block_id[..16]))), 200).await.0, 404);
        let (status, problem) = api.report(&node, &with("requests", json!([{ "requestId": "0".repeat(24), "url": "x" }])), 200).await;
        assert_eq!((status, problem["field"].as_str()), (422, Some("results[0].requestId")));
        let first = block["requests"][0].clone();
        let (status, problem) = api.report(&node, &with("requests", json!([first, first])), 200).await;
        assert_eq!((status, problem["field"].as_str()), (422, Some("results[1].requestId")));
        let bulk = api.request(Method::POST, "/node/block").header("content-type", "application/x-webloom").body("WLP1nonsense");
        assert_eq!(api.send(bulk).await.0, 400);
        assert_eq!(api.post(&format!("{push}/ack"), &json!({ "blocks": [block_id] })).await.1["type"], "/problems/not-answered");
        assert_eq!(api.post(&format!("{push}/ack"), &json!({ "blocks": [id()] })).await.0, 404);
        let state = api.state(&run).await;
        assert_eq!((&state["success"], &state["error"], &state["left"]), (&json!(0), &json!(0), &json!(2)), "nothing has changed");
        assert_eq!(api.report(&node, &block, 200).await.0, 200, "and the block can still be reported");
        for query in ["wait=-1", "wait=61", "max=0", "max=65", "worker=x", "ack=x"] {
            assert_eq!(api.get(&format!("{push}?{query}")).await.0 / 100, 4, "{query}");
        }
        for (body, field) in [(json!({ "classNames": [] }), "classNames"), (json!({ "classNames": ["x".repeat(101)] }), "classNames[0]")] {
            assert_eq!(api.post("/api/v1/workers", &body).await.1["field"], field);
        }
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": "x" })).await.0, 400);
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": id(), "group": "x".repeat(51) })).await.1["field"], "group");
    });
}
