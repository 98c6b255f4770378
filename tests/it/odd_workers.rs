//! Workers as they are in the field: two with one id, one whose clock is wrong, and more tasks at once than there are hands.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use crate::tasks::{Raw, crew, job, over};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use webloom::sdk::{TaskContext, TaskResult, Worker};

#[test]
fn of_two_with_one_id_the_later_has_the_line_and_no_task_is_at_work_twice() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let lease = 1_500;
        let job = job(&api, "j", json!({ "handler": "h", "lease": lease }), json!({})).await;
        let name = id();
        let mut first = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        let run = api.trigger(&job).await;
        let order = first.order().await;
        first.report(&order, "running", json!({ "progress": 1 }));
        until("it runs", || async { (api.state(&run).await["progress"] == 1).then_some(()) }).await;
        let heard = std::time::Instant::now();
        // Somebody copied the settings of the first one: the broker takes it for the same program, started anew.
        let mut second = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        while first.socket.next().await.is_some() {}
        // It does not say that it has the task, so the first may still be at it: nobody gets it before the lease is over.
        let next = second.order().await;
        assert!(heard.elapsed().as_millis() >= lease, "after {:?}", heard.elapsed());
        assert_eq!((&next["identity"], &next["attempt"]), (&order["identity"], &json!(2)));
        // The first one comes back, takes the line over in its turn, and learns that it was too late.
        let mut first = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        while second.socket.next().await.is_some() {}
        first.report(&order, "success", json!({ "result": "first" }));
        assert!(first.settled().await["refused"].is_string());
        assert!(api.state(&run).await["finishTime"].is_null());
        let mut second = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        second.report(&next, "success", json!({ "result": "second" }));
        assert!(second.settled().await["refused"].is_null());
        let run = over(&api, &run).await;
        assert_eq!((&run["result"], &run["attempt"]), (&json!("second"), &json!(2)), "{run}");
        let (_, workers) = api.get("/api/v1/workers").await;
        assert_eq!(workers["items"].as_array().map(Vec::len), Some(1), "{workers}");
    });
}

#[test]
fn a_clock_that_is_wrong_by_an_hour_moves_only_what_the_worker_itself_says() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 60_000 }), json!({})).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        for wrong in [chrono::TimeDelta::hours(1), chrono::TimeDelta::hours(-1)] {
            let before = chrono::Utc::now();
            let run = api.trigger(&job).await;
            let order = worker.order().await;
            let its = |at: chrono::DateTime<chrono::Utc>| (at + wrong).to_rfc3339_opts(chrono::SecondsFormat::Millis, true);
            let said = its(before);
            worker.report(&order, "running", json!({ "progress": 9, "logs": [{ "text": "at my time", "at": said }] }));
            until("it runs", || async { (api.state(&run).await["progress"] == 9).then_some(()) }).await;
            worker.report(&order, "success", json!({}));
            assert!(worker.settled().await["refused"].is_null(), "its lease does not hang on its clock");
            let run = over(&api, &run).await;
            let after = chrono::Utc::now();
            for key in ["startTime", "finishTime"] {
                let at: chrono::DateTime<chrono::Utc> = run[key].as_str().expect("a time").parse().expect("RFC 3339");
                assert!((before - chrono::TimeDelta::milliseconds(1)..=after).contains(&at), "{key} is the broker's: {run}");
            }
            assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(1)), "{run}");
            let (_, log) = api.get(&format!("/api/v1/runs/{}/logs", run["identity"].as_str().expect("an id"))).await;
            let line = log["items"].as_array().expect("lines").iter().find(|line| line["text"] == "at my time");
            assert_eq!(line.map(|line| &line["at"]), Some(&json!(said)), "{log}");
        }
    });
}

#[test]
fn ten_thousand_at_once_are_each_carried_out_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let done: Rc<RefCell<HashMap<String, u32>>> = Rc::default();
        let works = {
            let done = Rc::clone(&done);
            move |task: TaskContext| {
                *done.borrow_mut().entry(task.identity().to_string()).or_default() += 1;
                async { TaskResult::Ok(()) }
            }
        };
        let worker = || Worker::new(&broker.url).slots(200).task("h", works.clone());
        let _crew = crew([worker(), worker()]).await;
        let job = job(&api, "j", json!({ "handler": "h" }), json!({})).await;
        let path = format!("/api/v1/jobs/{job}/trigger/batch");
        let triggers = json!(vec![json!({}); 1_000]);
        let calls = (0..10).map(|_| async { api.post(&path, &triggers).await });
        let mut made = Vec::new();
        for (status, runs) in futures_util::future::join_all(calls).await {
            assert_eq!(status, 202, "{runs}");
            made.extend(runs.as_array().expect("a list").iter().map(|run| run["identity"].as_str().expect("an id").to_owned()));
        }
        assert_eq!(made.len(), 10_000);
        until("the last one is over", || async {
            let (_, open) = api.get(&format!("/api/v1/runs?jobId={job}&state=success&limit=1")).await;
            (open["items"].as_array().is_some_and(|runs| !runs.is_empty()) && done.borrow().len() == made.len()).then_some(())
        })
        .await;
        for run in made.iter().rev().step_by(100) {
            assert_eq!(over(&api, run).await["state"], "success");
        }
        let done = done.borrow();
        assert!(made.iter().all(|run| done.get(run) == Some(&1)), "each of them once");
        assert!(done.values().sum::<u32>() == 10_000, "and nothing else");
    });
}

#[test]
fn names_are_for_people_and_two_may_have_the_same() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h" }), json!({})).await;
        let mut a = Raw::watch(&api, &id(), &["h"], json!({ "name": "same", "slots": 1 }), json!([])).await;
        let mut b = Raw::watch(&api, &id(), &["h"], json!({ "name": "same", "slots": 1 }), json!([])).await;
        let runs = [api.trigger(&job).await, api.trigger(&job).await];
        let orders: [Value; 2] = [a.order().await, b.order().await];
        assert_ne!(orders[0]["identity"], orders[1]["identity"]);
        // What one has is nothing that the other may speak of.
        b.report(&orders[0], "success", json!({ "result": "not mine" }));
        assert!(b.settled().await["refused"].is_string());
        a.report(&orders[0], "success", json!({ "result": "a" }));
        b.report(&orders[1], "success", json!({ "result": "b" }));
        assert!(a.settled().await["refused"].is_null() && b.settled().await["refused"].is_null());
        for (order, result) in orders.iter().zip(["a", "b"]) {
            let run = over(&api, order["identity"].as_str().expect("an id")).await;
            assert_eq!(run["result"], result, "{run}");
            assert!(runs.iter().any(|id| run["identity"] == id.as_str()));
        }
    });
}
