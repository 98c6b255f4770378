//! Brokers and sockets die while tasks are at work.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::{journey, until};
use crate::tasks::{crew, job, over};
use serde_json::{Value, json};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::time::Duration;
use webloom::sdk::{TaskContext, TaskResult, Worker};

/// Which attempts of each task are at work now, and how often each has ended.
#[derive(Default)]
struct Watched {
    at_work: HashMap<String, u32>,
    most: u32,
    done: HashMap<String, u32>,
}

#[test]
fn brokers_and_sockets_die_and_no_task_is_lost_or_at_work_twice() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let watched = Rc::new(RefCell::new(Watched::default()));
        let works = {
            let watched = Rc::clone(&watched);
            move |task: TaskContext| {
                let watched = Rc::clone(&watched);
                async move {
                    struct AtWork(Rc<RefCell<Watched>>, String);
                    impl Drop for AtWork {
                        fn drop(&mut self) {
                            *self.0.borrow_mut().at_work.get_mut(&self.1).expect("it is at work") -= 1;
                        }
                    }
                    let key = task.identity().to_string();
                    {
                        let mut watched = watched.borrow_mut();
                        let count = watched.at_work.entry(key.clone()).or_default();
                        *count += 1;
                        let count = *count;
                        watched.most = watched.most.max(count);
                    }
                    let _at_work = AtWork(Rc::clone(&watched), key.clone());
                    tokio::time::sleep(Duration::from_millis(u64::from(key.as_bytes()[31]) % 40)).await;
                    *watched.borrow_mut().done.entry(key).or_default() += 1;
                    TaskResult::Ok(())
                }
            }
        };
        let worker = || Worker::new(&broker.url).slots(10).task("h", works.clone());
        let _crew = crew([worker(), worker(), worker()]).await;
        let job = job(&api, "j", json!({ "handler": "h", "lease": 1_000, "lostAttempts": 50, "noWorker": "wait" }), json!({})).await;
        let mut made = Vec::new();
        for round in 0..5 {
            let trigger = |n: u32| json!({ "arguments": [round, n], "idempotencyKey": format!("{round}-{n}") });
            let triggers: Vec<Value> = (0..60).map(trigger).collect();
            let path = format!("/api/v1/jobs/{job}/trigger/batch");
            let runs = until("it is taken", || async {
                let (status, runs) = api.post(&path, &json!(triggers)).await;
                (status == 202).then_some(runs)
            })
            .await;
            made.extend(runs.as_array().expect("a list").iter().map(|run| run["identity"].as_str().expect("an id").to_owned()));
            // In the middle of it.
            until("some of them", || async { (watched.borrow().done.len() > round * 40).then_some(()) }).await;
            broker.kill_and_restart();
        }
        for run in &made {
            let run = over(&api, run).await;
            assert_eq!(run["state"], "success", "{run}");
        }
        {
            let watched = watched.borrow();
            assert_eq!(watched.most, 1, "a task was at work twice at once");
            assert!(made.iter().all(|run| watched.done.contains_key(run)), "each was carried out");
        }
        let (_, runs) = api.get(&format!("/api/v1/runs?jobId={job}&limit=1000")).await;
        assert_eq!(runs["items"].as_array().map(Vec::len), Some(made.len()), "none is doubled");
    });
}
