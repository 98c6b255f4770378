//! What a broker does when PostgreSQL or the network before it fails: commits whose answers are lost, servers that are silent, and servers that
//! lack what another one had confirmed.

use crate::postgres::{broker, verify};
use crate::support::api::Api;
use crate::support::postgres::Cluster;
use crate::support::process::Broker;
use crate::support::proxy::{Lost, Proxy};
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The exit code of a broker that must not lead any more.
const NO_LONGER_LEADS: i32 = 75;
/// The lease of most of these brokers.
const LEASE: [&str; 2] = ["--lease-ms", "1500"];

async fn create(api: &Api, name: &str) -> (u16, Value) {
    api.post("/api/v1/jobs", &json!({ "name": name, "jobType": "block", "properties": { "FullClassName": "it.None" } })).await
}

/// As [`create`], again and again while the database is away.
async fn create_at_last(api: &Api, name: &str) -> u16 {
    until("an answer", || async { Some(create(api, name).await.0).filter(|status| *status != 503) }).await
}

async fn names(api: &Api) -> Vec<String> {
    let (status, jobs) = api.get("/api/v1/jobs?limit=100").await;
    assert_eq!(status, 200, "{jobs}");
    let mut names: Vec<String> =
        jobs["items"].as_array().expect("a list").iter().map(|job| job["name"].as_str().expect("a name").to_owned()).collect();
    names.sort();
    names
}

async fn is_ready(api: &Api, expected: u16) {
    until("it to be ready, or not", || async { (api.get("/readyz").await.0 == expected).then_some(()) }).await;
}

/// Waits for its end.
async fn exit_code(broker: &mut Broker) -> Option<i32> {
    let mut ended = None;
    until("the broker to end", || {
        ended = broker.process.0.try_wait().expect("asked");
        std::future::ready(ended.map(drop))
    })
    .await;
    ended.and_then(|status| status.code())
}

#[test]
fn a_commit_whose_answer_is_lost_is_neither_lost_nor_repeated() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let (folder, proxy) = (tempfile::tempdir().expect("a folder"), Proxy::start(cluster.address()));
        let mut broker = broker(folder.path(), &proxy.url(""), &LEASE);
        let api = Api::new(&broker.url);
        let begin = |name: &'static str, lost| {
            proxy.lose(name, lost);
            let api = api.clone();
            actix_rt::spawn(async move {
                // 0 if the broker ends before it answers.
                create(&api, name).await.0
            })
        };
        for (name, lost) in [("answer-lost", Lost::Answer), ("commit-lost", Lost::Commit)] {
            let call = begin(name, lost);
            // The outcome is looked up until it is known.
            until("lookups", || std::future::ready(proxy.has_refused(3).then_some(()))).await;
            assert!(!call.is_finished(), "nothing is answered before: {name}");
            proxy.open();
            assert_eq!(call.await.expect("it ends"), 201, "{name}");
            assert_eq!(create(&api, name).await.0, 409, "it is there once");
        }
        is_ready(&api, 200).await;
        assert_eq!(cluster.sql("webloom", "SELECT term FROM leader"), "1", "the broker has led all the time");

        // Meanwhile the database is set back: the broker cannot know, so it ends and does not repeat anything.
        let call = begin("unknown", Lost::Commit);
        until("lookups", || std::future::ready(proxy.has_refused(1).then_some(()))).await;
        cluster.sql("webloom", "UPDATE leader SET batch = batch - 2");
        proxy.open();
        assert_eq!(exit_code(&mut broker).await, Some(NO_LONGER_LEADS));
        assert_ne!(call.await.expect("it ends"), 201);
        broker.restart("");
        is_ready(&api, 200).await;
        assert_eq!(names(&api).await, ["answer-lost", "commit-lost"]);
    });
}

#[test]
fn a_server_that_does_not_answer_is_given_up_and_comes_back() {
    journey(async {
        let cluster = Cluster::start(&[]);
        cluster.sql("postgres", "CREATE DATABASE other");
        let homes = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let proxy = Proxy::start(cluster.address());
        let impatient = broker(homes[0].path(), &proxy.url("&answer_timeout=3"), &LEASE);
        let api = Api::new(&impatient.url);
        assert_eq!(create_at_last(&api, "before").await, 201);
        // Connections that nothing comes through any more are replaced. Without a limit the broker would wait for ever.
        proxy.silence();
        assert_eq!(create_at_last(&api, "after").await, 201);
        is_ready(&api, 200).await;
        assert_eq!(names(&api).await, ["after", "before"]);

        // The server hangs: a broker that would wait for long says so soon.
        let patient = broker(homes[1].path(), &format!("postgres://webloom@{}/other", cluster.address()), &LEASE);
        let patient_api = Api::new(&patient.url);
        is_ready(&patient_api, 200).await;
        cluster.pause();
        for api in [&api, &patient_api] {
            until("it not to be ready", || async {
                let (status, problem) = api.get("/readyz").await;
                (status == 503).then(|| assert_eq!(problem["type"], "/problems/busy", "{problem}"))
            })
            .await;
        }
        let calls = [&api, &patient_api].map(|api| {
            let api = api.clone();
            actix_rt::spawn(async move { create(&api, "meanwhile").await.0 })
        });
        cluster.resume();
        for ((api, mut broker), call) in [(&api, impatient), (&patient_api, patient)].into_iter().zip(calls) {
            is_ready(api, 200).await;
            let status = call.await.expect("it ends");
            assert!([201, 503].contains(&status), "{status}");
            let again = create_at_last(api, "meanwhile").await;
            assert_eq!(again, if status == 201 { 409 } else { 201 }, "what was refused was not done");
            assert!(broker.process.0.try_wait().expect("asked").is_none(), "it goes on");
        }
    });
}

#[test]
fn a_broker_finds_the_server_that_works_and_ends_if_it_lacks_what_was_confirmed() {
    journey(async {
        let (primary, behind) = (Cluster::start(&[]), Cluster::empty());
        let folder = tempfile::tempdir().expect("a folder");
        let servers = format!("{},{}", behind.address(), primary.address());
        // The first server of the list does not run.
        let url = format!("postgres://webloom@{servers}/webloom?target_session_attrs=read-write");
        let mut standing = broker(folder.path(), &url, &LEASE);
        let api = Api::new(&standing.url);
        assert_eq!(create(&api, "kept").await.0, 201);
        behind.copy(&primary);
        assert_eq!(create(&api, "confirmed by the primary only").await.0, 201);
        primary.stop("immediate");
        behind.begin();
        assert_eq!(exit_code(&mut standing).await, Some(NO_LONGER_LEADS));
        assert_eq!(behind.sql("webloom", "SELECT term FROM leader"), "1", "it has written nothing");
        standing.restart("");
        is_ready(&api, 200).await;
        assert_eq!(names(&api).await, ["kept"], "it works with what is stored");
        assert_eq!(create(&api, "confirmed by the primary only").await.0, 201);
        drop(standing);
        verify(&behind.url("webloom", ""));
    });
}
