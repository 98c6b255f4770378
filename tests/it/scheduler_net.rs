//! Scheduler.NET's dialect, as its clients speak it.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::receiver::Receiver;
use crate::support::socket::Worker;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};

/// A client of Scheduler.NET: every answer is 200 or 206, and which member tells depends on its age.
struct Client {
    api: Api,
    token: Option<&'static str>,
}

impl Client {
    async fn call(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let mut request = self.api.request(method, &format!("/api/v1.0/{path}"));
        if let Some(token) = self.token {
            request = request.header("SchedulerNET", token);
        }
        if !body.is_null() {
            request = request.header("content-type", "application/json").body(body.to_string());
        }
        self.api.send(request).await
    }

    /// What went well; its data.
    async fn done(&self, method: Method, path: &str, body: &Value) -> Value {
        let (status, answer) = self.call(method, path, body).await;
        assert_eq!((status, &answer["code"], &answer["success"]), (200, &json!(100), &json!(true)), "{answer}");
        assert_eq!(answer["status"], "Success");
        assert!(answer["message"].is_string() && answer.get("data").is_some(), "{answer}");
        answer["data"].clone()
    }

    /// What did not; its message.
    async fn refused(&self, method: Method, path: &str, body: &Value) -> String {
        let (status, answer) = self.call(method, path, body).await;
        assert_eq!((status, &answer["Code"], &answer["Success"]), (206, &json!(101), &json!(false)), "{answer}");
        assert_eq!(answer["Status"], "Error", "the clients' default is Success");
        answer["Message"].as_str().expect("a message").to_owned()
    }
}

#[test]
fn a_callback_job_lives_by_its_routes() {
    journey(async {
        let receiver = Receiver::start([]);
        let broker = Broker::start(&["--scheduler-net-ignore", "* * * * *", "--scheduler-net-zone", "UTC"], "");
        let api = Api::new(&broker.url);
        let client = Client { api: api.clone(), token: None };
        let hook = format!("{}/hook", receiver.url);
        let mut job = json!({ "NAME": "job", "group": "G", "Cron": "*/5 * * * *", "content": "{\"TaskId\":7}", "Url": hook, "Method": { "Method": "POST" } });
        let id = client.done(Method::POST, "callbackjob", &job).await;
        let id = id.as_str().expect("an id").to_owned();
        assert!(id.len() == 32 && id.bytes().all(|b| b.is_ascii_hexdigit()), "{id}");
        let (_, stored) = api.get(&format!("/api/v1/jobs/{id}")).await;
        assert_eq!(
            (&stored["jobType"], &stored["cron"], &stored["group"]),
            (&json!("callback"), &json!("*/5 * * * *"), &json!("G")),
            "{stored}"
        );
        assert!(stored["nextFire"].is_string());

        // GET fires, and tells the receiver what it was given.
        client.done(Method::GET, &format!("callbackjob/{id}"), &Value::Null).await;
        let got = &receiver.wait_for(1).await[0];
        assert_eq!((got.method.as_str(), got.path.as_str(), got.body.as_str()), ("POST", "/hook", "{\"TaskId\":7}"));
        assert_eq!(got.headers["content-type"], "application/json");

        // The same name again is another job.
        let other = client.done(Method::POST, "callbackjob", &job).await;
        let (_, second) = api.get(&format!("/api/v1/jobs/{}", other.as_str().expect("an id"))).await;
        assert_ne!(second["name"], stored["name"]);
        assert_eq!(second["properties"]["SchedulerNetName"], "job");

        // An update; the older generation names no method and gets a GET without a body.
        job["Id"] = json!(id);
        job.as_object_mut().expect("an object").remove("Method");
        job["Cron"] = json!("*/7 * * * *");
        assert_eq!(client.done(Method::PUT, "callbackjob", &job).await, id);
        let (_, changed) = api.get(&format!("/api/v1/jobs/{id}")).await;
        assert_eq!((&changed["cron"], &changed["name"]), (&json!("*/7 * * * *"), &stored["name"]));
        client.done(Method::GET, &format!("callbackjob/{id}"), &Value::Null).await;
        let got = &receiver.wait_for(2).await[1];
        assert_eq!((got.method.as_str(), got.body.as_str()), ("GET", ""));

        // A cron expression on the list takes it off, another brings it back.
        job["Cron"] = json!("* * * * *");
        client.done(Method::PUT, "callbackjob", &job).await;
        assert_eq!(api.get(&format!("/api/v1/jobs/{id}")).await.0, 404);
        job["Cron"] = json!("99 * * * *");
        client.refused(Method::PUT, "callbackjob", &job).await;
        assert_eq!(api.get(&format!("/api/v1/jobs/{id}")).await.0, 404, "what is refused brings nothing back");
        job["Cron"] = json!("*/9 * * * *");
        client.done(Method::PUT, "callbackjob", &job).await;
        let (_, back) = api.get(&format!("/api/v1/jobs/{id}")).await;
        assert_eq!((&back["cron"], &back["isEnabled"]), (&json!("*/9 * * * *"), &json!(true)));
        job["Cron"] = json!("* * * * *");
        job["Id"] = Value::Null;
        assert_eq!(client.done(Method::POST, "callbackjob", &job).await, Value::Null, "accepted, and not scheduled");

        // Deleted, twice; and made again under its own id.
        for _ in 0..2 {
            client.done(Method::DELETE, &format!("callbackjob/{id}"), &Value::Null).await;
        }
        job["Cron"] = json!("*/5 * * * *");
        job["Id"] = json!(id);
        assert_eq!(client.done(Method::POST, "callbackjob", &job).await, id);
        assert!(client.refused(Method::POST, "callbackjob", &job).await.contains("exists"));
        // Any text may be an id there.
        job["Id"] = json!("my-own-id");
        assert_eq!(client.done(Method::POST, "callbackjob", &job).await, "my-own-id");
        client.done(Method::GET, "callbackjob/my-own-id", &Value::Null).await;
        receiver.wait_for(3).await;
        client.done(Method::DELETE, "callbackjob/my-own-id", &Value::Null).await;
        client.refused(Method::GET, "callbackjob/my-own-id", &Value::Null).await;
        receiver.stop().await;
    });
}

#[test]
fn a_client_job_goes_to_one_worker() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let client = Client { api: api.clone(), token: None };
        let mut worker = Worker::watch(&api, &crate::support::api::id(), &["Shop.Titles"]).await;
        let job = json!({ "name": "Shop.Titles", "group": "spiders", "cron": "*/5 * * * *", "data": "page=1" });
        let id = client.done(Method::POST, "job", &job).await;
        let id = id.as_str().expect("an id");
        client.done(Method::GET, &format!("job/{id}"), &Value::Null).await;
        let start = worker.socket.find("start").await;
        assert_eq!((&start["className"], &start["arguments"]), (&json!("Shop.Titles"), &json!("page=1")));
        // The magic value of the older clients.
        let never = json!({ "name": "x", "cron": "* * * * 2999" });
        assert_eq!(client.done(Method::POST, "job", &never).await, Value::Null);
    });
}

#[test]
fn what_is_wrong_is_206() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token", "--token", "readonly:look-token"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "n", "cron": "*/5 * * * *" });
        for token in [None, Some("wrong-token"), Some("look-token")] {
            let client = Client { api: api.clone(), token };
            for (method, path, body) in [
                (Method::POST, "job", job.clone()),
                (Method::PUT, "callbackjob", job.clone()),
                (Method::DELETE, "job/x", Value::Null),
                (Method::GET, "job/x", Value::Null),
                (Method::GET, "task/x?action=run", Value::Null),
            ] {
                assert_eq!(client.refused(method, path, &body).await, "auth denied", "{path} {token:?}");
            }
        }
        let client = Client { api: api.clone(), token: Some("boss-token") };
        for (method, path, body, part) in [
            (Method::POST, "job", json!({ "cron": "*/5 * * * *" }), "Name"),
            (Method::POST, "job", json!({ "name": "n" }), "Cron"),
            (Method::POST, "job", json!({ "name": "n", "cron": "nonsense" }), "cron"),
            (Method::POST, "job", json!([1]), "job"),
            (Method::POST, "callbackjob", job.clone(), "Url"),
            (Method::POST, "callbackjob", json!({ "name": "n", "cron": "*/5 * * * *", "url": "/x" }), "url"),
            (Method::POST, "callbackjob", json!({ "name": "n", "cron": "*/5 * * * *", "url": "http://127.0.0.1/" }), "refused"),
            (Method::PUT, "job", job.clone(), "Id"),
            (Method::PUT, "job", json!({ "id": "x", "name": "n", "cron": "*/5 * * * *" }), "no job"),
            (Method::GET, "job/x", Value::Null, "no job"),
            (Method::GET, "task/x", Value::Null, "action"),
        ] {
            let message = client.refused(method, path, &body).await;
            assert!(message.contains(part), "{path} {body}: {message}");
        }
        let (_, jobs) = api.with_token("boss-token").get("/api/v1/jobs").await;
        assert_eq!(jobs["items"], json!([]), "nothing was written");
    });
}

/// The hub's contract: such a scheduler calls back, and can send no header.
#[test]
fn an_outside_scheduler_fires_a_job() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let api = Api::new(&broker.url).with_token("boss-token");
        api.worker("a.B").await;
        let job = api.job("j", "a.B", &json!({})).await;
        let outside = Client { api: Api::new(&broker.url), token: None };
        let run = outside.done(Method::GET, &format!("task/{job}?action=run&token=boss-token"), &Value::Null).await;
        let run = run.as_str().expect("a run").to_owned();
        until("the run", || async { (api.state(&run).await["jobId"] == job.as_str()).then_some(()) }).await;
    });
}
