//! A run of a block job at a broker that does not lead, as its worker and its operators see it: it begins in its time, a worker of the SDK
//! carries it out, and it is paused, resumed, stopped and repeated through each broker.

use crate::ahead::{ahead, now, once};
use crate::failed_requests::{drain, next_block, push, report};
use crate::postgres::verify;
use crate::run_owners::over;
use crate::schedule::{end, millis, runs};
use crate::support::api::id;
use crate::support::brokers::Brokers;
use crate::support::socket::Worker as Watcher;
use crate::support::web::{Answer, Web};
use crate::support::{journey, process, until};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use tokio::sync::watch;
use webloom::sdk::{Follow, Page, Request, RunContext, RunState, Spider, Worker};

const TIMES: [&str; 4] = ["--grace", "300", "--node-heartbeat", "300"];

/// A run of a job that the second of two brokers executes. The leader gets the next run that is triggered.
async fn run_elsewhere(brokers: &Brokers, class: &str, properties: &Value) -> String {
    let (api, owner) = (brokers.api(0), brokers.id(1).await);
    let job = api.job(class, class, properties).await;
    loop {
        let run = api.trigger(&job).await;
        if api.state(&run).await["brokerId"] == owner {
            return run;
        }
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
    }
}

#[test]
fn a_run_that_was_made_ahead_for_another_broker_is_withdrawn() {
    journey(async {
        let brokers = Brokers::start(2).await;
        let (api, owner) = (brokers.api(0), brokers.id(1).await);
        let mut worker = Watcher::watch(&brokers.api(1), &id(), &["it.Gone", "it.Last"]).await;
        // It is seen only if it is done before the time comes.
        let mut left = vec!["disable", "delete", "change"];
        while let Some(what) = left.last().copied() {
            let job = once(&api, "it.Gone", 2_500).await;
            let run = ahead(&api, &job).await;
            let path = format!("/api/v1/jobs/{job}");
            let done = match what {
                "disable" => api.post(&format!("{path}/disable"), &json!({})).await,
                "delete" => api.delete(&path).await,
                _ => api.put(&path, &json!({ "schedule": { "triggers": [{ "at": "2099-01-01T00:00:00Z" }] } })).await,
            };
            let is_in_time = now() < millis(&run["plannedAt"]) && run["brokerId"] == owner;
            if is_in_time {
                assert!(done.0 < 300, "{what}: {}", done.1);
                brokers.have_runs(0, &[0, 0]).await;
                assert_eq!(api.get(&format!("/api/v1/runs/{}", run["identity"].as_str().expect("an id"))).await.0, 404, "{what}");
                assert!(runs(&api, &job).await.is_empty(), "{what}");
                left.pop();
            }
            // What comes after its time is the next that begins.
            let last = once(&api, "it.Last", 2_500).await;
            let start = worker.socket.find("start").await;
            assert!(!is_in_time || start["className"] == "it.Last", "{what}: {start}");
            end(&api, &start["identity"]).await;
            if start["className"] == "it.Gone" {
                let start = worker.socket.find("start").await;
                end(&api, &start["identity"]).await;
            }
            brokers.have_runs(0, &[0, 0]).await;
            for job in [&job, &last] {
                let (_, was) = api.get(&format!("/api/v1/jobs/{job}")).await;
                if !was["id"].is_null() {
                    api.delete(&format!("/api/v1/jobs/{job}")).await;
                }
            }
        }
        verify(&brokers.url);
    });
}

fn is_held(number: usize) -> bool {
    number >= 7
}

/// Reads the counters of a site, and keeps the last ones.
struct Numbers {
    name: &'static str,
    first: String,
    noted: Rc<RefCell<Vec<(&'static str, String)>>>,
    /// It processes the later pages only when the test allows it.
    goes_on: watch::Receiver<bool>,
}

impl Spider for Numbers {
    fn class_name(&self) -> &'static str {
        "it.Numbers"
    }
    async fn start(&self, _: &RunContext) -> webloom::sdk::Result<Vec<Request>> {
        self.noted.borrow_mut().push((self.name, "start".into()));
        Ok(vec![Request::get(self.first.clone())])
    }
    async fn page(&self, page: &Page, follow: &mut Follow<'_>) -> webloom::sdk::Result {
        let (host, number) = page.url().rsplit_once('/').expect("a path");
        let number: usize = number.parse()?;
        self.noted.borrow_mut().push((self.name, number.to_string()));
        if is_held(number) {
            self.goes_on.clone().wait_for(|goes_on| *goes_on).await?;
        }
        for next in [number * 2 + 1, number * 2 + 2].into_iter().filter(|next| *next < 60) {
            follow.push(Request::get(format!("{host}/{next}")));
        }
        Ok(())
    }
    fn ended(&self, _: &RunContext, state: RunState) {
        self.noted.borrow_mut().push((self.name, state.name().into()));
    }
}

#[test]
fn a_worker_of_the_sdk_carries_out_a_run_elsewhere_and_another_one_continues_it() {
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
        let web = Web::serve(|_| Answer::text("a page")).expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let _agent = process::agent(&brokers.addresses(), folder.path(), &["--download-allow", "127.0.0.0/8"]);
        let api = brokers.api(0);
        let noted = Rc::default();
        let (release, goes_on) = watch::channel(false);
        let worker = |name: &'static str, addresses: String| {
            let spider = Numbers { name, first: web.url(0, "/0"), noted: Rc::clone(&noted), goes_on: goes_on.clone() };
            let work = Worker::new(addresses).name(name).in_flight(2).watch(spider);
            actix_rt::spawn(work.run(std::future::pending()))
        };
        let are_online = async |names: &[&str]| {
            until("the workers", || async {
                let (_, workers) = api.get("/api/v1/workers?online=true").await;
                let online: Vec<_> = workers["items"].as_array()?.iter().filter_map(|worker| worker["name"].as_str()).collect();
                (names.len() == online.len() && names.iter().all(|name| online.contains(name))).then_some(())
            })
            .await;
        };
        let first = worker("first", brokers.all[1].0.url.clone());
        are_online(&["first"]).await;
        let run = run_elsewhere(&brokers, "it.Numbers", &json!({ "BlockSize": "4" })).await;
        // It has a page that it processes only when the test allows it.
        let works = |name| noted.borrow().iter().any(|(by, what): &(&str, String)| *by == name && what.parse().is_ok_and(is_held));
        until("a page that it works on", || async { works("first").then_some(()) }).await;
        let second = worker("second", brokers.addresses());
        are_online(&["first", "second"]).await;
        // It dies while it has pages.
        first.abort();
        are_online(&["second"]).await;
        until("pages at the other worker", || async { works("second").then_some(()) }).await;
        release.send_replace(true);
        let state = over(&api, &run).await;
        assert_eq!((&state["state"], &state["success"], &state["total"]), (&json!("success"), &json!(60), &json!(60)), "{state}");
        until("it knows the end", || async { noted.borrow().contains(&("second", "success".to_owned())).then_some(()) }).await;
        let mut pages: HashMap<String, Vec<&str>> = HashMap::new();
        for (by, what) in noted.borrow().iter() {
            pages.entry(what.clone()).or_default().push(by);
        }
        assert_eq!((&pages["start"], pages.len()), (&vec!["first"], 62), "start, end and each page: {pages:?}");
        // What the first had not acknowledged comes again: at most two blocks of four pages.
        let twice: Vec<_> = pages.values().filter(|by| by.len() > 1).collect();
        assert!(twice.len() <= 8 && twice.iter().all(|by| **by == ["first", "second"]), "{twice:?}");
        assert_eq!(api.state(&run).await["brokerId"], brokers.id(1).await);
        second.abort();
        verify(&brokers.url);
    });
}

#[test]
fn a_run_elsewhere_is_paused_resumed_repeated_and_stopped_through_each_broker() {
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
        for (nth, api) in [brokers.api(0), brokers.api(1)].into_iter().enumerate() {
            let (class, node) = (format!("it.Steered{nth}"), id());
            api.worker(&class).await;
            let run = run_elsewhere(&brokers, &class, &json!({ "BlockSize": "2" })).await;
            let steer = async |word: &str| {
                let (status, answer) = api.post(&format!("/api/v1/runs/{run}/{word}"), &json!({})).await;
                assert_eq!(status, 200, "{word}: {answer}");
                answer
            };
            // Hosts of its own, because failures have effects on the other runs at their host.
            let pages = ["200-1", "404-1", "slow", "200-2", "404-2", "404-3"].map(|page| format!("http://steered{nth}.test/{page}"));
            push(&api, &run, &pages.each_ref().map(String::as_str)).await;
            let block = next_block(&api, &node).await;
            assert!(steer("pause").await["pausedAt"].is_string());
            let other = id();
            for _ in 0..3 {
                assert_eq!(api.beat(&other, &json!({})).await, Value::Null, "it is paused");
            }
            report(&api, &node, &block).await;
            assert_eq!(drain(&api, &run).await, 2, "what was at a node comes back");
            assert!(steer("resume").await["pausedAt"].is_null());
            for _ in 0..2 {
                let block = next_block(&api, &node).await;
                report(&api, &node, &block).await;
            }
            assert_eq!(drain(&api, &run).await, 4);
            let again = steer("requests/requeue").await;
            assert_eq!((&again["found"], &again["queued"]), (&json!(4), &json!(4)), "{again}");
            let block = next_block(&api, &node).await;
            report(&api, &node, &block).await;
            assert_eq!(drain(&api, &run).await, 2);
            let last = next_block(&api, &node).await;
            let stopped = steer("stop").await;
            assert_eq!((&stopped["state"], &stopped["success"], &stopped["error"]), (&json!("stopped"), &json!(2), &json!(6)), "{stopped}");
            brokers.have_runs(0, &[0, 0]).await;
            let (status, problem) = api.report(&node, &last, 200).await;
            assert_eq!(status, 409, "{problem}");
            for asked in [brokers.api(0), brokers.api(1)] {
                let state = asked.state(&run).await;
                assert_eq!((&state["state"], &state["brokerId"]), (&json!("stopped"), &brokers.id(1).await), "{state}");
                assert_eq!(asked.beat(&node, &json!({})).await, Value::Null);
            }
        }
        verify(&brokers.url);
    });
}
