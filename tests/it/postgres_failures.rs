//! What a broker does when PostgreSQL or the network before it fails: commits whose answers are lost, servers that are silent, and servers that
//! lack what another one had confirmed.

use crate::postgres::{broker, verify};
use crate::support::api::{Api, id};
use crate::support::postgres::Cluster;
use crate::support::process::Broker;
use crate::support::proxy::{Lost, Proxy};
use crate::support::socket::Socket;
use crate::support::{journey, until};
use crate::tasks::{crew, job, over};
use serde_json::{Value, json};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;
use webloom::sdk::{TaskContext, TaskResult, Worker};

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

/// Attempts of a task: how many have begun, how many are at work, and how many were at once.
#[derive(Default)]
struct Attempts {
    begun: Cell<u32>,
    at_work: Cell<u32>,
    most_at_once: Cell<u32>,
    may_end: Cell<bool>,
}

struct Attempt(Rc<Attempts>);

impl Attempt {
    fn begin(attempts: &Rc<Attempts>) -> Self {
        attempts.begun.update(|count| count + 1);
        attempts.at_work.update(|count| count + 1);
        attempts.most_at_once.set(attempts.most_at_once.get().max(attempts.at_work.get()));
        Self(Rc::clone(attempts))
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        self.0.at_work.update(|count| count - 1);
    }
}

#[test]
fn a_leader_that_loses_the_database_keeps_no_task_that_the_next_one_gives_to_another_worker() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let homes = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
        let proxies = [(); 2].map(|()| Proxy::start(cluster.address()));
        let [mut old, next] = [0, 1].map(|n| broker(homes[n].path(), &proxies[n].url("&answer_timeout=3"), &LEASE));
        let (first, second) = (Api::new(&old.url), Api::new(&next.url));
        is_ready(&first, 200).await;
        let ask = |query: &str| cluster.sql("webloom", query).parse::<u32>().expect("a number");
        until("the other one stands by", || std::future::ready((ask("SELECT count(*) FROM broker") == 2).then_some(()))).await;
        // The leader learns of it with a renewal that begins after that.
        let renewals = ask("SELECT renewals FROM leader");
        until("two renewals", || std::future::ready((ask("SELECT renewals FROM leader") > renewals + 1).then_some(()))).await;
        let attempts = Rc::<Attempts>::default();
        let works = {
            let attempts = Rc::clone(&attempts);
            move |_: TaskContext| {
                let attempts = Rc::clone(&attempts);
                async move {
                    let _attempt = Attempt::begin(&attempts);
                    while !attempts.may_end.get() {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    TaskResult::Ok(())
                }
            }
        };
        // Each worker knows one broker.
        let _keeps = crew([Worker::new(&old.url).task("h", works.clone())]).await;
        let task = json!({ "handler": "h", "lease": 1_000, "lostAttempts": 9, "noWorker": "wait" });
        let job = job(&first, "long", task, json!({})).await;
        let run = first.trigger(&job).await;
        until("the task is at work", || std::future::ready((attempts.begun.get() == 1).then_some(()))).await;
        let _takes = crew([Worker::new(&next.url).task("h", works)]).await;
        proxies[0].cut();
        is_ready(&second, 200).await;
        until("the task is at work again", || std::future::ready((attempts.begun.get() == 2).then_some(()))).await;
        assert_eq!(attempts.most_at_once.get(), 1);
        let (status, problem) = first.post("/api/v1/workers", &json!({ "classNames": ["a.B"] })).await;
        assert_eq!((status, &problem["type"]), (503, &json!("/problems/standby")), "{problem}");
        attempts.may_end.set(true);
        let run = over(&second, &run).await;
        assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(2)), "{run}");
        proxies[0].open();
        assert_eq!(exit_code(&mut old).await, Some(NO_LONGER_LEADS));
    });
}

#[test]
fn a_worker_whose_classes_were_not_stored_connects_again() {
    journey(async {
        let cluster = Cluster::start(&[]);
        let (folder, proxy) = (tempfile::tempdir().expect("a folder"), Proxy::start(cluster.address()));
        let broker = broker(folder.path(), &proxy.url(""), &LEASE);
        let api = Api::new(&broker.url);
        let mut socket = Socket::open(&broker.url, &format!("/worker?workerid={}", id()), None).await;
        socket.first("welcome").await;
        proxy.cut();
        is_ready(&api, 503).await;
        socket.say("watch", &json!({ "classNames": ["a.B"] }));
        // The broker closes the socket: the worker would wait for ever.
        while let Some(message) = socket.next().await {
            assert_eq!((&message["t"], &message["v"]["status"]), (&json!("error"), &json!(503)), "{message}");
        }
    });
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
