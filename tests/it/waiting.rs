//! Runs that wait for a worker or a node, and what they say of it.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::socket::{Node, Worker};
use crate::support::{journey, until};
use crate::tasks::{Raw, job, over};
use serde_json::{Value, json};

/// Verdict, rule, and the text of an answer.
async fn why(api: &Api, run: &str) -> (String, String, String) {
    let (status, why) = api.get(&format!("/api/v1/runs/{run}/why")).await;
    assert_eq!(status, 200, "{why}");
    let word = |key: &str| why[key].as_str().expect("a word").to_owned();
    let text: Vec<&str> = why["because"].as_array().expect("sentences").iter().filter_map(Value::as_str).collect();
    (word("verdict"), word("rule"), text.join(" "))
}

#[test]
fn a_task_says_where_it_is() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let asks = json!({ "handler": "h", "group": "red", "noWorker": "wait" });
        let job = job(&api, "told", asks, json!({ "policies": { "overlap": "allow" } })).await;
        let run = api.trigger(&job).await;
        let rule = |rule: &'static str| {
            let (api, run) = (&api, &run);
            move || async move { Some(why(api, run).await).filter(|(_, is, _)| is == rule) }
        };
        let (verdict, _, text) = until("no worker", rule("noWorker")).await;
        assert!(verdict == "waiting" && text.contains("no worker is connected"), "{text}");
        let blue = Raw::watch(&api, &id(), &["h"], json!({ "name": "b", "group": "blue", "slots": 1 }), json!([])).await;
        let _other = Raw::watch(&api, &id(), &["x"], json!({ "name": "x", "group": "red", "slots": 1 }), json!([])).await;
        let (_, _, text) = why(&api, &run).await;
        assert!(text.contains("(b): its group is blue, and red is required."), "{text}");
        assert!(text.contains("(x): it does not watch h."), "{text}");
        drop(blue);
        let mut red = Raw::watch(&api, &id(), &["h"], json!({ "name": "r", "group": "red", "slots": 1 }), json!([])).await;
        let order = red.order().await;
        let (verdict, _, text) = until("the order", rule("startTold")).await;
        assert!(verdict == "scheduled" && text.contains(&red.id), "{text}");
        red.report(&order, "running", json!({ "progress": 76, "text": "step 76" }));
        let (verdict, _, text) = until("its work", rule("running")).await;
        assert_eq!(verdict, "running");
        assert!(text.contains(&format!("at worker {}", red.id)) && text.contains("progress 76 %: step 76"), "{text}");
        // The next one finds no free place, and then nobody who is let.
        let second = api.trigger(&job).await;
        let (_, _, text) =
            until("the queue", || async { Some(why(&api, &second).await).filter(|(_, rule, _)| rule == "workersFull") }).await;
        assert!(text.contains("(r): it is full: 1 of 1 slots are used."), "{text}");
        assert_eq!(api.post(&format!("/api/v1/workers/{}/disable", red.id), &json!({})).await.0, 200);
        let (_, _, text) =
            until("the order to be heard", || async { Some(why(&api, &second).await).filter(|(_, rule, _)| rule == "noWorker") }).await;
        assert!(text.contains("(r): it is disabled by an operator."), "{text}");
    });
}

#[test]
fn a_block_job_waits_for_a_worker_if_it_is_to() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let wrong = json!({ "name": "w", "jobType": "block", "properties": { "FullClassName": "it.W", "NoWorker": "perhaps" } });
        let (status, problem) = api.post("/api/v1/jobs", &wrong).await;
        assert_eq!((status, &problem["field"]), (422, &json!("properties.NoWorker")), "{problem}");
        let misspelt = json!({ "name": "w", "jobType": "block", "properties": { "FullClassName": "it.W", "WorkerTag": "gpu" } });
        let (status, problem) = api.post("/api/v1/jobs", &misspelt).await;
        assert!(status == 422 && problem.to_string().contains("Did you mean `WorkerTags`?"), "{problem}");
        let job = api.job("waits", "it.Waits", &json!({ "NoWorker": "wait" })).await;
        let run = api.trigger(&job).await;
        until("its reason", || async { Some(api.state(&run).await).filter(|run| run["reason"].is_string()) }).await;
        let (verdict, rule, text) = why(&api, &run).await;
        assert_eq!((verdict.as_str(), rule.as_str()), ("waiting", "noWorker"), "{text}");
        let mut worker = Worker::watch(&api, &id(), &["it.Waits"]).await;
        assert_eq!(worker.socket.find("start").await["identity"], run.as_str());
        // Only a worker of the group and with the tag gets the next one.
        let properties = json!({ "NoWorker": "wait", "WorkerGroup": "red", "WorkerTags": "gpu", "WorkerStrategy": "leastLoaded" });
        let job = api.job("red", "it.Waits", &properties).await;
        let run = api.trigger(&job).await;
        let reason = until("its reason", || async { Some(api.state(&run).await["reason"].clone()).filter(Value::is_string) }).await;
        assert!(reason.to_string().contains("group, version and tags must match"), "{reason}");
        let (_, rule, text) = why(&api, &run).await;
        assert!(rule == "noWorker" && text.contains("its group is not set, and red is required."), "{text}");
        let red = json!({ "name": "r", "group": "RED", "tags": ["gpu"], "slots": 0 });
        let mut red = Raw::watch(&api, &id(), &["it.Waits"], red, json!([])).await;
        assert_eq!(red.socket.find("start").await["identity"], run.as_str());
        // Others fail at once, as ever.
        let job = api.job("fails", "it.Fails", &json!({})).await;
        assert_eq!(over(&api, &api.trigger(&job).await).await["state"], "failed");
    });
}

/// A run that is made just after a broker came up waits for those who were there before it.
#[test]
fn a_broker_that_came_up_waits_for_workers_and_nodes() {
    journey(async {
        let mut broker = Broker::start(&["--worker-offline", "20000"], "");
        let api = Api::new(&broker.url);
        let (worker_id, node_id) = (id(), id());
        let worker = Worker::watch(&api, &worker_id, &["it.Back"]).await;
        let tasks = Raw::watch(&api, &id(), &["back"], json!({ "slots": 1 }), json!([])).await;
        let node = Node::connect(&api, &node_id, "&applications=true").await;
        let block = api.job("block", "it.Back", &json!({})).await;
        let task = job(&api, "task", json!({ "handler": "back" }), json!({})).await;
        let program = json!({ "name": "program", "jobType": "application",
            "properties": { "Application": "sh", "MaxCpu": "101", "MinFreeMemory": "0" } });
        let (status, program) = api.post("/api/v1/jobs", &program).await;
        assert_eq!(status, 201, "{program}");
        broker.kill_and_restart();
        drop((worker, node));
        let task_worker = tasks.id.clone();
        drop(tasks);
        let api = Api::new(&broker.url);
        let (block, task) = (api.trigger(&block).await, api.trigger(&task).await);
        let program = api.trigger(program["id"].as_str().expect("an id")).await;
        for run in [&block, &task, &program] {
            until("its reason", || async { Some(api.state(run).await).filter(|run| run["reason"].is_string()) }).await;
            let now = api.state(run).await;
            assert!(now["finishTime"].is_null(), "{now}");
        }
        let (verdict, _, text) = why(&api, &program).await;
        assert!(verdict == "waiting" && text.contains("waits for nodes that are about to connect"), "{text}");
        let mut worker = Worker::watch(&api, &worker_id, &["it.Back"]).await;
        assert_eq!(worker.socket.find("start").await["identity"], block.as_str());
        let mut tasks = Raw::watch(&api, &task_worker, &["back"], json!({ "slots": 1 }), json!([])).await;
        assert_eq!(tasks.order().await["identity"], task.as_str());
        let mut node = Node::connect(&api, &node_id, "&applications=true").await;
        assert_eq!(node.socket.find("start").await["program"]["identity"], program.as_str());
    });
}

/// Brokers die over a task more often than attempts may be lost.
#[test]
fn the_death_of_a_broker_is_no_lost_attempt() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({ "slots": 1 }), json!([])).await;
        let job = job(&api, "often", json!({ "handler": "h", "lease": 1_000, "lostAttempts": 1, "noWorker": "wait" }), json!({})).await;
        let run = api.trigger(&job).await;
        let mut order = worker.order().await;
        for death in 1..=4 {
            broker.kill_and_restart();
            let api = Api::new(&broker.url);
            // The worker has dropped it, and says nothing of it.
            worker = Raw::watch(&api, &worker.id, &["h"], json!({ "slots": 1 }), json!([])).await;
            order = worker.order().await;
            assert_eq!((&order["identity"], &order["attempt"]), (&json!(run), &json!(death + 1)));
        }
        worker.report(&order, "success", json!({ "result": 1 }));
        let api = Api::new(&broker.url);
        assert_eq!(over(&api, &run).await["state"], "success");
    });
}

/// Number of messages of this type that an actor has handled.
async fn handled(api: &Api, actor: &str, message: &str) -> u64 {
    let (status, detail) = api.get(&format!("/api/v1/actors/{actor}")).await;
    assert_eq!(status, 200, "{detail}");
    let of_type = detail["messages"].as_array().into_iter().flatten().find(|one| one["type"] == message);
    of_type.map_or(0, |one| one["count"].as_u64().expect("a number"))
}

/// Also after a restart: runs of every kind begin when their peer comes, and do not search before.
#[test]
fn what_waits_is_woken_by_the_peer_that_comes() {
    journey(async {
        let mut broker = Broker::start(&["--worker-offline", "3000"], "");
        let api = Api::new(&broker.url);
        let block = api.job("block", "it.Wakes", &json!({ "NoWorker": "wait" })).await;
        let task = job(&api, "task", json!({ "handler": "h", "strategy": "broadcast", "noWorker": "wait" }), json!({})).await;
        let program = json!({ "name": "program", "jobType": "application",
            "properties": { "Application": "sh", "MaxCpu": "101", "MinFreeMemory": "0", "NoNode": "wait" } });
        let (status, program) = api.post("/api/v1/jobs", &program).await;
        assert_eq!(status, 201, "{program}");
        let often = json!({ "schedule": { "triggers": [{ "every": 200 }] } });
        let clock = job(&api, "clock", json!({ "handler": "nobody" }), often).await;
        let (block, task) = (api.trigger(&block).await, api.trigger(&task).await);
        let program = api.trigger(program["id"].as_str().expect("an id")).await;
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let reason = async |run: &str, wanted: &str| {
            until(wanted, || async { api.state(run).await["reason"].as_str().is_some_and(|why| why.contains(wanted)).then_some(()) }).await;
        };
        // The time in which workers of the broker before may come back is over.
        reason(&block, "waits for a worker: no worker watches").await;
        reason(&task, "no worker watches h").await;
        reason(&program, "waits for a node: no node for the program: no other node is known").await;
        let searches = async || {
            (
                handled(&api, "allocator/allocator", "allocator.find_worker").await,
                handled(&api, "allocator/allocator", "allocator.list").await,
            )
        };
        let before = searches().await;
        assert!(before.0 > 0 && before.1 > 0, "each has searched once: {before:?}");
        let fires = async || api.get(&format!("/api/v1/jobs/{clock}")).await.1["fires"].as_u64().expect("a number");
        let seen = fires().await;
        until("some time", || async { (fires().await > seen + 8).then_some(()) }).await;
        assert_eq!(searches().await, before, "a run searches again only if something has changed");

        let mut worker = Worker::watch(&api, &id(), &["it.Wakes"]).await;
        assert_eq!(worker.socket.find("start").await["identity"], block.as_str());
        let mut tasks = Raw::watch(&api, &id(), &["h"], json!({ "slots": 1 }), json!([])).await;
        assert_eq!(tasks.order().await["identity"], task.as_str());
        let mut node = Node::connect(&api, &id(), "&applications=true").await;
        assert_eq!(node.socket.find("start").await["program"]["identity"], program.as_str());
    });
}
