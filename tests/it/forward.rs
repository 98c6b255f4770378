//! A standby passes calls on to the leader: a client that knows one address works.

use crate::support::api::{Api, id, requests};
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Broker, agent};
use crate::support::raw;
use crate::support::site::Site;
use crate::support::socket::Worker;
use crate::support::{free_port, journey, tar_gz, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::io::Write as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

const ADMIN: &str = "admin-token-of-this-test";
const READER: &str = "reader-token-of-this-test";
const LONG: [&str; 6] =
    ["--lease-ms", "600000", "--token", "admin:admin-token-of-this-test", "--token", "readonly:reader-token-of-this-test"];

/// A leader and a standby of one database.
fn pair(folder: &std::path::Path, leader: &[&str], standby: &[&str]) -> (Broker, Broker) {
    (Broker::start_in(folder, "127.0.0.1:0", leader, ""), Broker::start_in(folder, "127.0.0.1:0", standby, ""))
}

async fn stands_by(api: &Api) {
    until("it stands by", || async { (api.get("/api/v1/jobs").await.0 == 200).then_some(()) }).await;
    assert_eq!(api.get("/readyz").await.0, 503);
}

#[test]
fn a_client_that_knows_the_standby_alone_works() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (leader, standby) = pair(folder.path(), &LONG, &LONG);
        let first = Api::new(&leader.url).with_token(ADMIN);
        let second = Api::new(&standby.url).with_token(ADMIN);
        stands_by(&second).await;
        // All by way of the standby: a job, a worker that waits for its order, a node that waits for blocks, results, their acknowledgement.
        let (run, worker) = second.run("it.Passed", &json!({ "BlockSize": "2" })).await;
        second.heard(&worker, "start").await.expect("it begins");
        assert_eq!(second.post(&format!("/requestqueue/{run}"), &requests(0..2)).await.1["accepted"], 2);
        let waits = async {
            let (status, page) = second.get(&format!("/requestqueue/{run}?worker={worker}&wait=20")).await;
            assert_eq!(status, 200, "{page}");
            page
        };
        let works = async {
            let node = id();
            let block = until("a block", || async { Some(second.beat(&node, &json!({})).await).filter(|block| !block.is_null()) }).await;
            assert_eq!(second.report(&node, &block, 200).await.0, 200);
        };
        let (page, ()) = tokio::join!(waits, works);
        assert_eq!((page["results"].as_array().map(Vec::len), &page["results"][0]["status"]), (Some(2), &json!(200)), "{page}");
        let ack = json!({ "blocks": [page["blockId"]] });
        assert_eq!(second.post(&format!("/requestqueue/{run}/ack"), &ack).await.0, 200);
        // A large body, and one without a length.
        let bytes = tar_gz("hello", &vec![7; 3 << 20], flate2::Compression::none());
        let (status, stored) = second.send(second.request(Method::POST, "/api/v1/packages").body(bytes.clone())).await;
        assert_eq!((status, &stored["size"]), (200, &json!(bytes.len())), "{stored}");
        let got = first.request(Method::GET, stored["url"].as_str().expect("a URL")).send().await.expect("an answer");
        assert_eq!(got.bytes().await.expect("its bytes"), bytes);
        let mut chunked = raw::connect(&standby.url);
        let head = format!("POST /api/v1/groups HTTP/1.1\r\nHost: {}\r\nToken: {ADMIN}\r\n", standby.url.trim_start_matches("http://"));
        let body = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n8\r\n{\"name\":\r\n4\r\n\"g\"}\r\n0\r\n\r\n";
        chunked.write_all(format!("{head}{body}").as_bytes()).expect("sent");
        let head = actix_rt::task::spawn_blocking(move || raw::head(&mut chunked)).await.expect("an answer");
        assert_eq!(raw::status(&head), 201, "{head}");
        // A stream, and an answer without a body.
        let events = second.request(Method::GET, &format!("/api/v1/runs/{run}/logs/stream?wait=0")).send().await.expect("an answer");
        assert_eq!((events.status().as_u16(), &events.headers()["content-type"]), (200, &"text/event-stream".parse().expect("a type")));
        assert_eq!(second.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        // The caller's token is passed on, and so are the leader's problems.
        let job = json!({ "name": "j", "jobType": "block", "properties": { "FullClassName": "a.B" } });
        for (api, status) in
            [(second.with_token(READER), 403), (second.with_token("of-somebody-else-1"), 401), (Api::new(&standby.url), 401)]
        {
            assert_eq!(api.post("/api/v1/jobs", &job).await.0, status);
        }
        assert_eq!(second.post("/api/v1/jobs", &json!({ "name": 7 })).await.0, 400);
        assert_eq!(second.post("/api/v1/jobs", &job).await.0, 201);
        let (status, problem) = second.post("/api/v1/jobs", &job).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/name-taken")), "{problem}");
        assert_eq!(first.get("/api/v1/jobs").await.1["items"].as_array().map(Vec::len), Some(2));
        // Its own state is its own.
        let metrics = second.metrics().await;
        assert!(metrics.contains("webloom_leader 0"), "{metrics}");
        // A page of another site may not write by way of it either.
        let foreign = second.request(Method::POST, "/api/v1/jobs").header("origin", "http://evil.example").body(job.to_string());
        assert_eq!(second.send(foreign).await.0, 403);
    });
}

/// Who is connected, only the leader knows.
#[test]
fn a_read_of_which_the_leader_knows_more_is_answered_by_it_or_from_what_is_stored() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (leader, standby) = pair(folder.path(), &LONG, &LONG);
        let second = Api::new(&standby.url).with_token(ADMIN);
        stands_by(&second).await;
        let worker = Api::new(&leader.url).with_token(ADMIN).worker("a.B").await;
        let is_online = async || {
            let (status, workers) = second.get("/api/v1/workers").await;
            assert_eq!((status, &workers["items"][0]["id"]), (200, &json!(worker)), "{workers}");
            workers["items"][0]["isOnline"].as_bool()
        };
        assert_eq!(is_online().await, Some(true));
        let refused = second.with_token("of-somebody-else-1").get("/api/v1/workers").await;
        assert_eq!(refused.0, 401, "{}", refused.1);
        // Its system still accepts the connection and the call.
        signal(&leader, "-STOP");
        assert_eq!(is_online().await, Some(false));
        signal(&leader, "-CONT");
        until("the leader's answer", || async { is_online().await.filter(|is_online| *is_online) }).await;
    });
}

fn signal(broker: &Broker, name: &str) {
    let status = Command::new("kill").arg(name).arg(broker.process.0.id().to_string()).status().expect("kill runs");
    assert!(status.success());
}

#[test]
fn a_leader_that_cannot_be_reached_is_named_and_no_call_goes_in_circles() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let port = free_port();
        let itself = format!("http://127.0.0.1:{port}");
        let unreachable = "the broker at http://127.0.0.1:1 leads, and this one cannot reach it at that address; retry later".to_owned();
        for (advertised, why) in [("http://127.0.0.1:1", unreachable), (itself.as_str(), format!("the broker at {itself} leads"))] {
            let leader = Broker::start_in(folder.path(), "127.0.0.1:0", &["--lease-ms", "600000", "--advertise", advertised], "");
            let standby = Broker::start_in(folder.path(), &format!("127.0.0.1:{port}"), &["--lease-ms", "600000"], "");
            let api = Api::new(&standby.url);
            stands_by(&api).await;
            let answer = api.request(Method::POST, "/api/v1/jobs").body("{}").send().await.expect("an answer");
            assert_eq!((answer.status().as_u16(), &answer.headers()["retry-after"]), (503, &"1".parse().expect("a number")));
            let problem: Value = serde_json::from_str(&answer.text().await.expect("a text")).expect("JSON");
            assert_eq!((&problem["type"], &problem["detail"]), (&json!("/problems/standby"), &json!(why)));
            drop((standby, leader));
        }
    });
}

#[test]
fn a_call_whose_outcome_is_not_known_is_not_repeated() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let brief = ["--lease-ms", "1000"];
        let (mut leader, standby) = pair(folder.path(), &brief, &brief);
        let second = Api::new(&standby.url);
        stands_by(&second).await;
        signal(&leader, "-STOP");
        // Its system still accepts the connection and the call.
        let job = json!({ "name": "once", "jobType": "block", "properties": { "FullClassName": "a.B" } });
        let (status, problem) = second.post("/api/v1/jobs", &job).await;
        assert_eq!((status, &problem["type"]), (502, &json!("/problems/answer-lost")), "{problem}");
        until("the standby leads", || async { (second.get("/readyz").await.0 == 200).then_some(()) }).await;
        assert_eq!(second.get("/api/v1/jobs").await.1["items"], json!([]), "the standby did not do it itself");
        signal(&leader, "-CONT");
        // If it was stopped in the middle of a write, the standby has killed it.
        let ended = leader.process.0.wait().expect("it ends");
        assert!(ended.code() == Some(75) || ended.signal() == Some(9), "{ended}");
        assert_eq!(second.post("/api/v1/jobs", &job).await.0, 201);
    });
}

#[test]
fn agents_and_workers_that_know_the_standby_alone_have_sockets_and_stay_when_it_leads() {
    const PAGES: usize = 150;
    journey(async {
        let site = Site::serve(PAGES);
        let folder = tempfile::tempdir().expect("a folder");
        let brief = ["--grace", "200", "--lease-ms", "1000"];
        let (mut leader, standby) = pair(folder.path(), &brief, &brief);
        let (first, second) = (Api::new(&leader.url), Api::new(&standby.url));
        stands_by(&second).await;
        let home = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(home.path().join("agent")).expect("a folder");
        let _agent = agent(&standby.url, &home.path().join("agent"), &["--max-process-count", "3"]);
        let mut crawl = Crawl::start(&site.url, home.path(), &["--broker", &standby.url, "--threads", "4"]);
        until("some pages", || {
            let there = crawl.count() >= PAGES / 4;
            async move { there.then_some(()) }
        })
        .await;
        // The socket of a worker of its own, and that of the agent: the leader has both.
        let worker = id();
        let open = Worker::watch(&second, &worker, &["it.Other"]).await;
        for path in ["/api/v1/nodes".to_owned(), format!("/api/v1/workers/{worker}")] {
            let (_, answer) = first.get(&path).await;
            let one = if path.ends_with("nodes") { &answer["items"][0] } else { &answer };
            assert_eq!(one["isOnline"], true, "{answer}");
        }
        // The leader learns that a client has left.
        drop(open);
        let path = format!("/api/v1/workers/{worker}");
        until("the worker to be offline", || async { (first.get(&path).await.1["isOnline"] == false).then_some(()) }).await;
        // A client with several addresses is to go to the leader.
        let upgrade = |call: reqwest::RequestBuilder, to: &str| call.header("connection", "upgrade").header("upgrade", to);
        let direct = second.request(Method::GET, &format!("/worker?workerid={}&direct=true", id()));
        assert_eq!(second.send(upgrade(direct, "websocket")).await.1["type"], "/problems/standby");
        // A client that would rather speak HTTP/2 wants no socket.
        let group = second.request(Method::POST, "/api/v1/groups").body(json!({ "name": "g" }).to_string());
        assert_eq!(second.send(upgrade(group, "h2c")).await.0, 201);
        leader.process.kill();
        until("the standby leads", || async { (second.get("/readyz").await.0 == 200).then_some(()) }).await;
        crawl.succeeds().await;
        assert_eq!(urls(&crawl.lines()), site.all().into_iter().collect::<Vec<_>>(), "each page once");
        site.stop().await;
    });
}

#[test]
fn a_socket_that_is_passed_on_ends_with_its_client_although_the_leader_hangs() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let (leader, standby) = pair(folder.path(), &["--lease-ms", "600000"], &["--lease-ms", "600000"]);
        let second = Api::new(&standby.url);
        stands_by(&second).await;
        let sockets: Vec<_> =
            futures_util::future::join_all((0..20).map(async |_| Worker::watch(&second, &id(), &["it.Left"]).await)).await;
        assert!(second.metric("webloom_connections").await >= 20.0);
        signal(&leader, "-STOP");
        drop(sockets);
        until("the connections end", || async { (second.metric("webloom_connections").await < 10.0).then_some(()) }).await;
        signal(&leader, "-CONT");
    });
}
