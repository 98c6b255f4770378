//! Tasks on workers: run once, somewhere, and told how it went; and what becomes of them when somebody dies.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::socket::Socket;
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::HashMap;
use webloom::sdk::{TaskContext, TaskFailure, TaskResult, Worker};

/// A worker that is written here, word by word.
pub struct Raw {
    pub id: String,
    pub socket: Socket,
}

impl Raw {
    pub async fn watch(api: &Api, id: &str, names: &[&str], worker: Value, tasks: Value) -> Self {
        let socket = Socket::open(&api.url, &format!("/worker?workerid={id}"), None).await;
        let mut raw = Self { id: id.to_owned(), socket };
        raw.socket.first("welcome").await;
        raw.socket.say("watch", &json!({ "classNames": names, "worker": worker, "tasks": tasks }));
        raw.socket.find("watching").await;
        raw
    }

    /// The next order, of one task.
    pub async fn order(&mut self) -> Value {
        let orders = self.socket.find("tasks").await;
        assert_eq!(orders.as_array().map(Vec::len), Some(1), "{orders}");
        orders[0].clone()
    }

    pub fn report(&self, order: &Value, state: &str, more: Value) {
        self.socket.say("reports", &json!([report(order, state, more)]));
    }

    pub async fn settled(&mut self) -> Value {
        self.socket.find("settled").await[0].clone()
    }
}

fn report(order: &Value, state: &str, more: Value) -> Value {
    let mut report = json!({ "identity": order["identity"], "attempt": order["attempt"], "state": state });
    if !order["instance"].is_null() {
        report["instance"] = order["instance"].clone();
    }
    for (key, value) in more.as_object().expect("an object") {
        report[key] = value.clone();
    }
    report
}

fn task(order: &Value) -> Value {
    json!({ "identity": order["identity"], "attempt": order["attempt"] })
}

pub async fn job(api: &Api, name: &str, task: Value, more: Value) -> String {
    let mut job = json!({ "name": name, "jobType": "task", "task": task });
    for (key, value) in more.as_object().expect("an object") {
        job[key] = value.clone();
    }
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

pub async fn over(api: &Api, run: &str) -> Value {
    until("the end of a run", || async {
        // A broker that was started just now may still be loading it.
        let (status, run) = api.get(&format!("/api/v1/runs/{run}")).await;
        (status == 200 && run["finishTime"].is_string()).then_some(run)
    })
    .await
}

/// SDK workers in this process, until they are dropped.
pub struct Crew(Vec<tokio::task::JoinHandle<()>>);

impl Drop for Crew {
    fn drop(&mut self) {
        self.0.iter().for_each(tokio::task::JoinHandle::abort);
    }
}

pub async fn crew(workers: impl IntoIterator<Item = Worker>) -> Crew {
    let mut hands = Vec::new();
    for worker in workers {
        let (told, ready) = tokio::sync::oneshot::channel();
        hands.push(actix_rt::spawn(async move {
            worker.ready(told).run(std::future::pending()).await.expect("the worker goes on");
        }));
        ready.await.expect("it watches");
    }
    Crew(hands)
}

#[test]
fn a_function_is_run_and_what_it_says_is_kept() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        async fn adds(task: TaskContext) -> TaskResult<Value> {
            let numbers: Vec<i64> = task.arguments()?;
            let before: Option<i64> = task.data().unwrap_or(None);
            task.log(log::Level::Warn, format!("adding {} numbers, trace {}", numbers.len(), task.trace_id().unwrap_or_default()));
            task.progress(50, "half");
            let sum = numbers.iter().sum::<i64>();
            task.set_data(&(before.unwrap_or(0) + sum))?;
            Ok(json!({ "sum": sum, "before": before }))
        }
        async fn fails(task: TaskContext) -> TaskResult<()> {
            match task.attempt() {
                1 => {
                    task.set_data("of a failed attempt")?;
                    task.log(log::Level::Info, "said before");
                    Err(TaskFailure::new("not yet").with_stack(format!("here\n{}\nthere", "long ".repeat(2_000))))
                }
                2 => panic!("worse"),
                _ => Ok(()),
            }
        }
        let _crew = crew([Worker::new(&broker.url).slots(4).task("adds", adds).task("fails", fails)]).await;
        let sums = job(&api, "sums", json!({ "handler": "adds", "arguments": [1, 2] }), json!({})).await;
        let trigger = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{sums}/trigger"));
        let trigger = trigger.header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
        let (status, first) = api.send(trigger).await;
        assert_eq!((status, &first["traceId"]), (202, &json!("0af7651916cd43dd8448eb211c80319c")), "{first}");
        let first = over(&api, first["identity"].as_str().expect("an id")).await;
        assert_eq!((&first["state"], &first["result"]), (&json!("success"), &json!({ "sum": 3, "before": null })), "{first}");
        let (_, log) = api.get(&format!("/api/v1/runs/{}/logs", first["identity"].as_str().expect("an id"))).await;
        let said = "adding 2 numbers, trace 0af7651916cd43dd8448eb211c80319c";
        assert!(log["items"].as_array().expect("lines").iter().any(|l| l["text"] == said && l["level"] == "warning"), "{log}");
        // What it left is there for the next one, whose arguments the trigger brings.
        let (_, run) = api.post(&format!("/api/v1/jobs/{sums}/trigger"), &json!({ "arguments": [10] })).await;
        let path = format!("/api/v1/runs/{}", run["identity"].as_str().expect("an id"));
        assert_eq!(api.get(&path).await.1["arguments"], json!([10]), "of its trigger");
        let second = over(&api, run["identity"].as_str().expect("an id")).await;
        assert_eq!(second["result"], json!({ "sum": 10, "before": 3 }), "{second}");
        assert_eq!((&first["arguments"], &second["arguments"]), (&json!([1, 2]), &json!([10])));
        let listed = api.get("/api/v1/runs").await.1;
        assert!(listed["items"].as_array().is_some_and(|runs| runs.len() == 2 && runs.iter().all(|run| run.get("arguments").is_none())));
        // Failures are tried again by the policy; a panic is one of them.
        let policies = json!({ "policies": { "retry": { "limit": 3, "delay": 10 } } });
        let again = job(&api, "again", json!({ "handler": "fails" }), policies).await;
        let run = over(&api, &api.trigger(&again).await).await;
        assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(3)), "{run}");
        let (_, log) = api.get(&format!("/api/v1/runs/{}/logs", run["identity"].as_str().expect("an id"))).await;
        let text =
            log["items"].as_array().expect("lines").iter().map(|l| l["text"].as_str().unwrap_or_default()).collect::<Vec<_>>().join("\n");
        for part in ["attempt 1 failed: not yet", "said before", "here", "long long", "there", "attempt 2 failed", "worse"] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert_eq!(api.get(&format!("/api/v1/jobs/{again}/data")).await.0, 404, "a failed attempt leaves nothing");
    });
}

#[test]
fn a_lost_worker_is_followed_by_another_and_comes_too_late() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 600 }), json!({})).await;
        let mut first = Raw::watch(&api, &id(), &["h"], json!({ "slots": 1 }), json!([])).await;
        let run = api.trigger(&job).await;
        let order = first.order().await;
        first.report(&order, "running", json!({ "progress": 30, "text": "a third" }));
        until("its progress", || async {
            Some(api.state(&run).await).filter(|run| run["progress"] == 30 && run["progressText"] == "a third")
        })
        .await;
        let mut second = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        // Nothing is heard of it for its lease: another one has it, under the next attempt.
        let next = second.order().await;
        assert_eq!((&next["identity"], &next["attempt"]), (&order["identity"], &json!(2)));
        first.report(&order, "success", json!({ "result": "late" }));
        assert!(first.settled().await["refused"].is_string());
        assert_ne!(api.state(&run).await["state"], "success");
        second.report(&next, "success", json!({ "result": "right" }));
        let settled = second.settled().await;
        assert_eq!((&settled["attempt"], &settled["refused"]), (&json!(2), &Value::Null));
        let run = over(&api, &run).await;
        assert_eq!((&run["state"], &run["result"], &run["attempt"]), (&json!("success"), &json!("right"), &json!(2)), "{run}");
        // Said again, it changes nothing.
        second.report(&next, "failed", json!({ "error": { "message": "no" } }));
        assert!(second.settled().await["refused"].is_string());
        assert_eq!(api.state(run["identity"].as_str().expect("an id")).await["state"], "success");
    });
}

#[test]
fn a_result_survives_the_broker_and_the_socket() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 20_000 }), json!({})).await;
        let name = id();
        let mut worker = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        let run = api.trigger(&job).await;
        let order = worker.order().await;
        broker.kill_and_restart();
        // The result is said to the next broker: it is the one of the first attempt, since the worker says it has it.
        let mut worker = Raw::watch(&api, &name, &["h"], json!({}), json!([task(&order)])).await;
        worker.report(&order, "success", json!({ "result": 7 }));
        assert!(worker.settled().await["refused"].is_null());
        let ended = over(&api, &run).await;
        assert_eq!((&ended["state"], &ended["attempt"], &ended["result"]), (&json!("success"), &json!(1), &json!(7)), "{ended}");
        // The broker dies when the result is on disk and the worker has not heard of it: it says it again, and is let go.
        broker.kill_and_restart();
        let mut worker = Raw::watch(&api, &name, &["h"], json!({}), json!([task(&order)])).await;
        worker.report(&order, "success", json!({ "result": 8 }));
        assert!(worker.settled().await["refused"].is_string());
        assert_eq!(api.state(&run).await["result"], 7);
    });
}

#[test]
fn what_was_not_sent_when_the_broker_died_is_sent_by_the_next() {
    journey(async {
        // It dies between the store and the sending.
        let mut broker = Broker::start(&[], "task.granted=die");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 400 }), json!({})).await;
        let name = id();
        let _first = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        let (client, path) = (reqwest::Client::new(), format!("{}/api/v1/jobs/{job}/trigger", broker.url));
        let _ = client.post(path).send().await;
        broker.process.0.wait().expect("it ends");
        broker.restart("");
        let mut worker = Raw::watch(&api, &name, &["h"], json!({}), json!([])).await;
        let order = worker.order().await;
        worker.report(&order, "success", json!({}));
        worker.settled().await;
        let (_, runs) = api.get(&format!("/api/v1/runs?jobId={job}")).await;
        assert_eq!((runs["items"].as_array().map(Vec::len), &runs["items"][0]["state"]), (Some(1), &json!("success")), "{runs}");
    });
}

#[test]
fn all_of_them_or_so_many_parts() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        async fn part(task: TaskContext) -> TaskResult<Value> {
            Ok(json!([task.instance(), task.instances()]))
        }
        let worker = |name: &str| Worker::new(&broker.url).name(name).group("g").slots(2).task("part", part);
        let _crew = crew([worker("a"), worker("b"), worker("c")]).await;
        let all = job(&api, "all", json!({ "handler": "part", "strategy": "broadcast" }), json!({})).await;
        let run = over(&api, &api.trigger(&all).await).await;
        let results = run["result"].as_array().expect("a list");
        assert_eq!((results.len(), &run["state"]), (3, &json!("success")), "{run}");
        let workers: std::collections::BTreeSet<_> = results.iter().map(|part| part["worker"].as_str().expect("a worker")).collect();
        assert_eq!(workers.len(), 3, "each of them once: {run}");
        let parts = job(&api, "parts", json!({ "handler": "part", "strategy": "shard", "shards": 5 }), json!({})).await;
        let run = over(&api, &api.trigger(&parts).await).await;
        let results: Vec<&Value> = run["result"].as_array().expect("a list").iter().map(|part| &part["result"]).collect();
        assert_eq!(results, [&json!([0, 5]), &json!([1, 5]), &json!([2, 5]), &json!([3, 5]), &json!([4, 5])]);
        let (status, instances) = api.get(&format!("/api/v1/runs/{}/instances", run["identity"].as_str().expect("an id"))).await;
        assert_eq!((status, instances["items"].as_array().map(Vec::len)), (200, Some(5)), "{instances}");
    });
}

#[test]
fn a_run_is_stopped_whether_its_worker_listens_or_not() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "cancelGrace": 300 }), json!({})).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({ "slots": 2 }), json!([])).await;
        for listens in [true, false] {
            let run = api.trigger(&job).await;
            let order = worker.order().await;
            let stop = async { api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await };
            let obey = async {
                let cancel = worker.socket.find("cancel").await;
                assert_eq!((&cancel["task"]["identity"], &cancel["task"]["attempt"]), (&order["identity"], &json!(1)));
                if listens {
                    worker.report(&order, "cancelled", json!({}));
                }
            };
            let ((status, stopped), ()) = futures_util::join!(stop, obey);
            assert_eq!((status, &stopped["state"]), (200, &json!("stopped")), "{stopped}");
            if !listens {
                worker.report(&order, "success", json!({ "result": 1 }));
                // The one of the run before, and this one.
            }
            let settled = worker.settled().await;
            assert_eq!(settled["refused"].is_string(), !listens, "{settled}");
            assert_eq!(api.state(&run).await["state"], "stopped");
        }
    });
}

#[test]
fn a_bad_report_does_not_block_the_others_of_its_message() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let retry = json!({ "policies": { "retry": { "limit": 3, "delay": 600_000 } } });
        let job = job(&api, "j", json!({ "handler": "h" }), retry).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({ "slots": 4 }), json!([])).await;
        let mut orders = Vec::new();
        for _ in 0..4 {
            let run = api.trigger(&job).await;
            let order = worker.order().await;
            assert_eq!(order["identity"], run.as_str());
            orders.push(order);
        }
        let [good, too_long, wrong_type, at_work] = [0, 1, 2, 3].map(|i| &orders[i]);
        let unknown = json!({ "identity": id(), "attempt": 1 });
        worker.socket.say(
            "reports",
            &json!([
                report(at_work, "running", json!({ "progress": "half" })),
                report(too_long, "success", json!({ "result": "x".repeat(300_000) })),
                report(wrong_type, "success", json!({ "nextAt": "tomorrow" })),
                report(&unknown, "success", json!({})),
                "no report",
                report(good, "success", json!({ "result": 7 })),
            ]),
        );
        let error = worker.socket.find_and_keep_others("error").await;
        assert_eq!(error["field"], "[0].progress", "{error}");
        let detail = error["detail"].as_str().expect("a text");
        for order in [at_work, too_long, wrong_type] {
            assert!(detail.contains(order["identity"].as_str().expect("an id")), "{detail}");
        }
        assert!(detail.contains("report [4]") && !detail.contains(good["identity"].as_str().expect("an id")), "{detail}");
        let mut settled = HashMap::new();
        while settled.len() < 4 {
            for each in worker.socket.find("settled").await.as_array().expect("a list") {
                settled.insert(each["identity"].as_str().expect("an id").to_owned(), each["refused"].is_string());
            }
        }
        let is_refused = |of: &Value| settled[of["identity"].as_str().expect("an id")];
        assert_eq!([good, too_long, wrong_type, &unknown].map(is_refused), [false, false, false, true]);
        let state = async |order: &Value| api.state(order["identity"].as_str().expect("an id")).await;
        let run = state(good).await;
        assert_eq!((&run["state"], &run["result"]), (&json!("success"), &json!(7)));
        for (order, field) in [(too_long, "`result`: must be at most 262144 bytes"), (wrong_type, "`nextAt`: ")] {
            let run = state(order).await;
            assert!(run["state"] == "failed" && run["attempt"] == 1, "it would fail again: {run}");
            let reason = run["reason"].as_str().expect("a reason");
            assert!(reason.contains("the broker refused the worker's last report") && reason.contains(field), "{reason}");
        }
        worker.report(at_work, "success", json!({}));
        assert!(worker.settled().await["refused"].is_null());
    });
}

#[test]
fn what_takes_too_long_is_told_to_end_and_tried_again() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let policies = json!({ "policies": { "timeout": 200, "retry": { "limit": 1, "delay": 10 } } });
        let job = job(&api, "j", json!({ "handler": "h", "lease": 300, "cancelGrace": 100 }), policies).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        let run = api.trigger(&job).await;
        let order = worker.order().await;
        worker.socket.find("cancel").await;
        worker.report(&order, "cancelled", json!({}));
        let next = worker.order().await;
        assert_eq!(next["attempt"], 2);
        // It does not listen: the run is over after its lease all the same.
        let run = over(&api, &run).await;
        assert_eq!(run["state"], "failed");
        assert!(run["reason"].as_str().is_some_and(|why| why.contains("200 ms")), "{run}");
    });
}

#[test]
fn refused_it_goes_elsewhere() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "strategy": "failover" }), json!({})).await;
        let mut a = Raw::watch(&api, &id(), &["h"], json!({ "name": "a" }), json!([])).await;
        let mut b = Raw::watch(&api, &id(), &["h"], json!({ "name": "b" }), json!([])).await;
        let run = api.trigger(&job).await;
        let order = a.order().await;
        a.report(&order, "refused", json!({ "error": { "message": "full" } }));
        let order = b.order().await;
        assert_eq!(order["attempt"], 2);
        b.report(&order, "failed", json!({ "error": { "message": "no", "permanent": true } }));
        let run = over(&api, &run).await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("failed"), &json!("no")), "{run}");
    });
}

#[test]
fn what_is_wrong_is_said_and_changes_nothing() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let nobody = job(&api, "nobody", json!({ "handler": "nobody" }), json!({})).await;
        let run = over(&api, &api.trigger(&nobody).await).await;
        assert_eq!((&run["state"], &run["reason"]), (&json!("failed"), &json!("no worker watches nobody")));
        let waits = job(&api, "waits", json!({ "handler": "later", "noWorker": "wait" }), json!({})).await;
        let run = api.trigger(&waits).await;
        until("its reason", || async { Some(api.state(&run).await).filter(|run| run["reason"] == "no worker watches later") }).await;
        let mut worker = Raw::watch(&api, &id(), &["later", "h"], json!({ "slots": 9 }), json!([])).await;
        let order = worker.order().await;
        assert_eq!(order["identity"], run.as_str());
        // A progress of 400, someone else's task, an attempt that never was.
        worker.report(&order, "running", json!({ "progress": 200 }));
        assert_eq!(worker.socket.find("error").await["status"], 422);
        worker.socket.say("reports", &json!([{ "identity": order["identity"], "attempt": 1, "state": "running", "progress": 400 }]));
        assert_eq!(worker.socket.find("error").await["status"], 400);
        let mut other = Raw::watch(&api, &id(), &["x"], json!({}), json!([])).await;
        other.report(&order, "success", json!({ "result": "mine" }));
        assert!(other.settled().await["refused"].is_string());
        worker.socket.say("reports", &json!([{ "identity": order["identity"], "attempt": 2, "state": "success" }]));
        assert!(worker.settled().await["refused"].is_string());
        let now = api.state(&run).await;
        assert!(now["progress"].is_null() && now["finishTime"].is_null(), "{now}");
        // Arguments that are too long, settings that make no sense.
        let long = json!({ "arguments": "x".repeat(300_000) });
        assert_eq!(api.post(&format!("/api/v1/jobs/{waits}/trigger"), &long).await.0, 422);
        for (task, field) in [
            (json!({}), "task.handler"),
            (json!({ "handler": "h", "lease": 1 }), "task.lease"),
            (json!({ "handler": "h", "strategy": "hash", "key": "x" }), "task.key"),
        ] {
            let (status, problem) = api.post("/api/v1/jobs", &json!({ "name": "x", "jobType": "task", "task": task })).await;
            assert_eq!((status, &problem["field"]), (422, &json!(field)), "{problem}");
        }
        let unknown = json!({ "name": "x", "jobType": "task", "task": { "handler": "h", "shard": 1 } });
        let (status, problem) = api.post("/api/v1/jobs", &unknown).await;
        assert_eq!((status, &problem["field"]), (422, &json!("task.shard")), "{problem}");
    });
}

#[test]
fn a_disabled_worker_gets_nothing_new_and_may_still_report() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h", "lease": 3_000 }), json!({})).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({ "slots": 5 }), json!([])).await;
        let first = api.trigger(&job).await;
        let order = worker.order().await;
        let (status, answer) = api.post(&format!("/api/v1/workers/{}/disable", worker.id), &json!({ "reason": "look" })).await;
        assert_eq!(status, 200, "{answer}");
        let second = over(&api, &api.trigger(&job).await).await;
        assert_eq!(second["state"], "failed");
        assert!(second["reason"].as_str().is_some_and(|why| why.contains("disabled")), "{second}");
        worker.report(&order, "success", json!({}));
        assert_eq!(over(&api, &first).await["state"], "success");
        assert_eq!(api.post(&format!("/api/v1/workers/{}/enable", worker.id), &json!({})).await.0, 200);
        api.trigger(&job).await;
        worker.order().await;
        // Kicked, it is put out and refused; its task goes to another one.
        let mut other = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        assert_eq!(api.post(&format!("/api/v1/workers/{}/kick", worker.id), &json!({ "reason": "out" })).await.0, 200);
        worker.socket.find("kicked").await;
        assert_eq!(other.order().await["attempt"], 2);
    });
}

#[test]
fn many_at_once_by_http() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h" }), json!({})).await;
        let facts = json!({ "classNames": ["h"], "worker": { "slots": 100 } });
        let (_, worker) = api.post("/api/v1/workers", &facts).await;
        let worker = worker["workerId"].as_str().expect("an id");
        let triggers: Vec<Value> = (0..100).map(|n| json!({ "arguments": n, "idempotencyKey": format!("k{}", n % 90) })).collect();
        let (status, made) = api.post(&format!("/api/v1/jobs/{job}/trigger/batch"), &json!(triggers)).await;
        assert_eq!(status, 202, "{made}");
        let made: std::collections::BTreeSet<_> = made.as_array().expect("a list").iter().map(|run| run["identity"].to_string()).collect();
        assert_eq!(made.len(), 90, "a key makes one run");
        let mut orders: HashMap<String, Value> = HashMap::new();
        while orders.len() < 90 {
            let (_, messages) = api.get(&format!("/api/v1/workers/{worker}/messages?wait=5")).await;
            for message in messages.as_array().into_iter().flatten().filter(|message| message["t"] == "tasks") {
                orders.extend(message["v"].as_array().expect("orders").iter().map(|o| (o["identity"].to_string(), o.clone())));
            }
        }
        let held: Vec<Value> = orders.values().map(task).collect();
        assert_eq!(api.post(&format!("/api/v1/workers/{worker}/heartbeat"), &json!({ "tasks": held })).await.0, 204);
        let reports: Vec<Value> = orders.values().map(|o| report(o, "success", json!({ "result": o["arguments"] }))).collect();
        let (status, settled) = api.post(&format!("/api/v1/workers/{worker}/reports"), &json!(reports)).await;
        assert_eq!((status, settled.as_array().map(Vec::len)), (200, Some(90)), "{settled}");
        assert!(settled.as_array().expect("a list").iter().all(|settled| settled["refused"].is_null()), "{settled}");
        let (_, runs) = api.get(&format!("/api/v1/runs?jobId={job}&state=success&limit=200")).await;
        assert_eq!(runs["items"].as_array().map(Vec::len), Some(90));
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/trigger/batch"), &json!([])).await.0, 422);
        assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &json!([{ "state": "success" }])).await.0, 422);
        assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &json!([[]])).await.0, 422);
    });
}
