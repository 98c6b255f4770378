//! Seed 003's own addresses, as a client speaks them that knows nothing else; its worker is a program that asks by HTTP.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

/// What is done well; in this dialect always 200.
async fn done(api: &Api, path: &str, body: Value) -> Value {
    let (status, answer) = api.post(path, &body).await;
    assert_eq!(status, 200, "{path} {body}: {answer}");
    answer
}

fn text<'a>(thing: &'a Value, key: &str) -> &'a str {
    thing[key].as_str().unwrap_or_else(|| panic!("{key} in {thing}"))
}

/// Carries out what is there for a work, as a worker without a socket does; the order.
async fn carry_out(api: &Api, work: &str, state: &str) -> Value {
    let orders = api.heard(work, "tasks").await.expect("the work is there");
    assert_eq!(orders.as_array().map(Vec::len), Some(1), "{orders}");
    let report =
        json!([{ "identity": orders[0]["identity"], "attempt": orders[0]["attempt"], "state": state, "error": { "message": "no" } }]);
    let (status, settled) = api.post(&format!("/api/v1/workers/{work}/reports"), &report).await;
    assert_eq!((status, settled.as_array().map(Vec::len)), (200, Some(1)), "{settled}");
    orders[0].clone()
}

/// A group, a work of it with one bean, and both of their ids.
async fn staffed(api: &Api) -> (String, String) {
    let group = done(api, "/group/insert", json!({ "groupName": "nightly" })).await;
    let group = text(&group, "groupId").to_owned();
    let work = json!({ "ip": "10.0.0.7", "port": 9_191, "name": "first", "groupId": group, "beanNames": ["reportBean"] });
    let work = done(api, "/work/register", work).await;
    (group, text(&work, "workId").to_owned())
}

#[test]
fn groups_works_and_tasks_live_by_its_addresses() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (group, work) = staffed(&api).await;
        let (_, groups) = api.get("/group/query").await;
        assert_eq!((&groups[0]["groupId"], &groups[0]["groupName"]), (&json!(group), &json!("nightly")), "{groups}");
        assert_eq!(api.get(&format!("/group/query?group_id={group}")).await.1, groups);

        // The same address again is the same work; ids may be numbers, and members spelt as in the tables.
        let again = json!({ "ip": "10.0.0.7", "port": 9_191, "name": "second", "group_id": group.parse::<u64>().expect("digits"),
            "bean_names": ["reportBean"] });
        let again = done(&api, "/worker/insert", again).await;
        assert_eq!((&again["workId"], &again["name"], &again["disable"]), (&json!(work), &json!("second"), &json!(0)), "{again}");
        assert_eq!((&again["ip"], &again["port"], &again["groupId"]), (&json!("10.0.0.7"), &json!(9_191), &json!(group)), "{again}");

        // With an interval of 0 it runs once, now, and is disabled after that.
        let once = json!({ "bean_name": "reportBean", "name": "once", "group_id": group, "interval": 0, "retry": 0, "disable": 0 });
        let once = done(&api, "/task/register", once).await;
        assert_eq!((&once["disable"], &once["interval"], &once["retry"]), (&json!(0), &json!(0), &json!(0)), "{once}");
        assert_eq!((&once["beanName"], &once["groupId"]), (&json!("reportBean"), &json!(group)));
        assert_eq!(carry_out(&api, &work, "success").await["handler"], "reportBean");
        let path = format!("/api/v1/jobs/{}", text(&once, "taskId"));
        until("the end of its only run", || async { (api.get(&path).await.1["isEnabled"] == false).then_some(()) }).await;

        // One with an interval; by hand it runs beside its plan, and is tried again.
        let task = json!({ "beanName": "reportBean", "name": "hourly", "groupId": group, "interval": 3_600_000, "retry": 1 });
        let task = done(&api, "/task/register", task).await;
        assert_eq!((&task["disable"], &task["interval"], &task["retry"]), (&json!(0), &json!(3_600_000), &json!(1)), "{task}");
        let task = text(&task, "taskId").to_owned();
        let log = done(&api, &format!("/task/retry?taskId={task}"), json!({})).await;
        assert_eq!(log["taskId"], json!(task), "{log}");
        let order = carry_out(&api, &work, "failed").await;
        let next = carry_out(&api, &work, "success").await;
        assert_eq!((&next["identity"], &next["attempt"], &order["attempt"]), (&order["identity"], &json!(2), &json!(1)));
        let (_, run) = api.get(&format!("/api/v1/runs/{}", text(&log, "logId"))).await;
        assert_eq!((&run["identity"], &run["state"], &run["traceId"]), (&order["identity"], &json!("success"), &log["traceId"]), "{run}");

        // Disabled it does not run, enabled again it does. Its plan is as if it had gone.
        assert_eq!(done(&api, "/task/disable", json!({ "task_id": task })).await["disable"], 1);
        assert_eq!(api.post("/task/retry", &json!({ "taskId": task })).await.0, 409);
        assert!(api.get(&format!("/api/v1/jobs/{task}")).await.1.get("nextFire").is_none());
        assert_eq!(done(&api, &format!("/task/enable?task_id={task}"), json!({})).await["disable"], 0);
        done(&api, "/task/retry", json!({ "taskId": task })).await;
        carry_out(&api, &work, "success").await;

        // A disabled work gets nothing until it is enabled.
        assert_eq!(done(&api, "/work/disable", json!({ "workId": work })).await["disable"], 1);
        let log = done(&api, "/task/retry", json!({ "taskId": task })).await;
        assert_eq!((&log["taskStatus"], &log["taskEndTime"]), (&json!("pending"), &Value::Null), "{log}");
        assert_eq!(done(&api, &format!("/worker/enable?id={work}"), json!({})).await["disable"], 0);
        carry_out(&api, &work, "success").await;
    });
}

#[test]
fn a_task_waits_for_a_work_that_is_not_there_yet() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        // Known, and nothing more: it has no bean.
        let known = done(&api, "/work/insert", json!({ "ip": "10.0.0.8", "name": "later", "disable": 1 })).await;
        assert_eq!((&known["port"], &known["disable"]), (&json!(9_090), &json!(1)), "{known}");
        let task = done(&api, "/task/register", json!({ "beanName": "lateBean", "name": "waits" })).await;
        let there = json!({ "ip": "10.0.0.8", "name": "there", "beanNames": ["lateBean"] });
        let there = done(&api, "/work/register", there).await;
        assert_eq!((&there["workId"], &there["disable"]), (&known["workId"], &json!(1)), "what was said of it stays: {there}");
        done(&api, "/work/enable", json!({ "workId": known["workId"] })).await;
        let order = carry_out(&api, text(&known, "workId"), "success").await;
        let (_, job) = api.get(&format!("/api/v1/jobs/{}", text(&task, "taskId"))).await;
        assert_eq!(order["jobId"], job["id"]);
    });
}

#[test]
fn a_work_that_registers_disabled_gets_nothing_first() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        done(&api, "/task/register", json!({ "beanName": "lateBean", "name": "waits" })).await;
        let off = json!({ "ip": "10.0.0.8", "name": "off", "disable": 1, "beanNames": ["lateBean"] });
        assert_eq!(done(&api, "/work/register", off.clone()).await["disable"], 1);
        // Nor when it says it again.
        assert_eq!(done(&api, "/work/register", off).await["disable"], 1);
        let on = json!({ "ip": "h".repeat(100), "port": 65_535, "name": "on", "beanNames": ["lateBean"] });
        let on = done(&api, "/work/register", on).await;
        assert_eq!(on["ip"], "h".repeat(100));
        // Its first attempt: the other one did not have it before.
        assert_eq!(carry_out(&api, text(&on, "workId"), "success").await["attempt"], 1);
    });
}

#[test]
fn a_work_stays_who_it_is_and_takes_another_group_while_it_is_there() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (_, first) = staffed(&api).await;
        let day = done(&api, "/group/insert", json!({ "groupName": "day" })).await;
        let day = text(&day, "groupId");
        done(&api, "/task/register", json!({ "beanName": "reportBean", "name": "of the day", "groupId": day })).await;
        // It is there, and says nothing but its new group: what waits for that comes to it.
        let moved = json!({ "ip": "10.0.0.7", "port": 9_191, "name": "moved", "groupId": day });
        let moved = done(&api, "/work/register", moved).await;
        assert_eq!((&moved["workId"], &moved["groupId"], &moved["beanNames"]), (&json!(first), &json!(day), &json!(["reportBean"])));
        carry_out(&api, &first, "success").await;

        // One that is only known says later what it has, under its number, and nothing else of itself.
        done(&api, "/work/disable", json!({ "workId": first })).await;
        let known = done(&api, "/work/register", json!({ "ip": "10.0.0.8", "name": "later", "groupId": day })).await;
        let number: u64 = text(&known, "workId").parse().expect("digits");
        let watch = json!({ "workerId": number, "classNames": ["reportBean"], "worker": { "tags": ["gpu"] } });
        assert_eq!(done(&api, "/api/v1/workers", watch).await["number"], known["workId"]);
        let (_, worker) = api.get(&format!("/api/v1/workers/{number}")).await;
        assert_eq!((&worker["name"], &worker["group"]), (&json!("later"), &json!("day")), "{worker}");
        assert_eq!(worker["tags"], json!(["gpu", "address=10.0.0.8:9090"]));
        done(&api, "/task/register", json!({ "beanName": "reportBean", "name": "of the next day", "groupId": day })).await;
        carry_out(&api, text(&known, "workId"), "success").await;
        let (status, problem) = api.post("/api/v1/workers", &json!({ "workerId": 12, "classNames": ["a"] })).await;
        assert_eq!((status, &problem["field"]), (404, &json!("workerId")), "{problem}");
    });
}

#[test]
fn a_group_that_is_renamed_keeps_its_works_and_its_tasks() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (group, work) = staffed(&api).await;
        let task = json!({ "beanName": "reportBean", "name": "hourly", "groupId": group, "interval": 3_600_000, "disable": 1 });
        let task = done(&api, "/task/register", task).await;
        let path = format!("/api/v1/jobs/{}", text(&task, "taskId"));
        let before = api.get(&path).await.1;
        let (status, renamed) = api.put(&format!("/api/v1/groups/{group}"), &json!({ "name": "evening" })).await;
        assert_eq!((status, &renamed["name"]), (200, &json!("evening")), "{renamed}");
        let job = api.get(&path).await.1;
        assert_eq!((&job["group"], &job["task"]["group"]), (&json!("evening"), &json!("evening")), "{job}");
        assert_eq!(job["version"].as_i64(), before["version"].as_i64().map(|version| version + 1));
        assert_eq!(api.get(&format!("/api/v1/workers/{work}")).await.1["group"], "evening");
        done(&api, "/task/enable", json!({ "taskId": task["taskId"] })).await;
        done(&api, "/task/retry", json!({ "taskId": task["taskId"] })).await;
        carry_out(&api, &work, "success").await;
    });
}

#[test]
fn what_it_refuses_changes_nothing() {
    journey(async {
        let tokens = ["--token", "boss-token", "--token", "worker:work-token", "--token", "readonly:look-token"];
        let broker = Broker::start(&tokens, "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let (group, work) = staffed(&api).await;
        let block = api.job("block", "it.Block", &json!({})).await;
        let before = api.get("/api/v1/jobs").await.1;
        for (path, body, expected, field) in [
            ("/group/insert", json!({}), 422, "groupName"),
            ("/group/insert", json!({ "groupName": "nightly" }), 409, "groupName"),
            ("/work/register", json!({ "name": "n" }), 422, "ip"),
            ("/work/register", json!({ "ip": "10.0.0.9" }), 422, "name"),
            ("/work/register", json!({ "ip": "h".repeat(101), "name": "n" }), 422, "ip"),
            ("/work/register", json!({ "ip": "10.0.0.9", "name": "n", "disable": 1, "beanNames": [""] }), 422, "classNames[0]"),
            ("/work/register", json!({ "ip": "10.0.0.9", "name": "n", "port": 70_000 }), 400, ""),
            ("/work/register", json!({ "ip": "10.0.0.9", "name": "n", "groupId": "12" }), 404, "groupId"),
            ("/work/register", json!({ "ip": "10.0.0.9", "name": "n", "disable": 2 }), 400, ""),
            ("/work/disable", json!({}), 422, "workId"),
            ("/work/disable", json!({ "workId": 12 }), 404, ""),
            ("/work/enable", json!({ "workId": "me" }), 400, ""),
            ("/task/register", json!({ "name": "n" }), 422, "beanName"),
            ("/task/register", json!({ "beanName": "b" }), 422, "name"),
            ("/task/register", json!({ "beanName": "b", "name": "n", "interval": -1 }), 400, ""),
            ("/task/register", json!({ "beanName": "b", "name": "n", "retry": "yes" }), 400, ""),
            ("/task/register", json!({ "beanName": "b", "name": "n", "groupId": 12 }), 404, "groupId"),
            ("/task/register", json!({ "beanName": "b", "bean_name": "c", "name": "n" }), 400, ""),
            ("/task/register", json!({ "beanName": "b", "name": "block" }), 409, "name"),
            ("/task/retry", json!({ "taskId": block }), 404, ""),
            ("/task/disable", json!([]), 400, ""),
            ("/task/enable?taskId=x", json!({}), 400, ""),
        ] {
            let (status, problem) = api.post(path, &body).await;
            assert_eq!(status, expected, "{path} {body}: {problem}");
            assert!(field.is_empty() || problem["field"] == field, "{path} {body}: {problem}");
        }
        assert_eq!(api.get("/api/v1/jobs").await.1, before);
        assert_eq!(api.get("/api/v1/workers").await.1["items"].as_array().map(Vec::len), Some(1));

        // A work registers itself; what becomes of it, and of tasks, is for an admin.
        let (worker, reader) = (api.with_token("work-token"), api.with_token("look-token"));
        let itself = json!({ "ip": "10.0.0.10", "name": "itself", "groupId": group });
        assert_eq!(done(&worker, "/work/register", itself.clone()).await["createBy"], "worker");
        assert_eq!(reader.post("/work/register", &itself).await.0, 403);
        let mut switched = itself;
        switched["disable"] = json!(1);
        assert_eq!(worker.post("/work/register", &switched).await.0, 403);
        // 0 is what a client sends that has nothing to say: it changes nothing here.
        let disabled = done(&api, "/work/register", switched.clone()).await;
        switched["disable"] = json!(0);
        assert_eq!((&disabled["disable"], &done(&worker, "/work/register", switched.clone()).await["disable"]), (&json!(1), &json!(1)));
        assert_eq!(done(&api, "/work/register", switched).await["disable"], 0);
        assert_eq!(worker.post("/work/disable", &json!({ "workId": work })).await.0, 403);
        assert_eq!(worker.post("/task/register", &json!({ "beanName": "b", "name": "n" })).await.0, 403);
        assert_eq!(reader.get("/group/query").await.0, 200);
        assert_eq!(Api::new(&broker.url).get("/group/query").await.0, 401);
        assert_eq!(api.post(&format!("/api/v1/workers/{work}/kick"), &json!({})).await.0, 200);
        let address = json!({ "ip": "10.0.0.7", "port": 9_191, "name": "again" });
        assert_eq!(api.post("/work/register", &address).await.0, 403, "it was put out");
    });
}
