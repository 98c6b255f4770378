//! Jobs that begin when others end: with what these brought, once, also if the broker dies in between.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::receiver::{Receiver, Reply};
use crate::support::{journey, until};
use crate::tasks::{self, Raw};
use serde_json::{Value, json};

async fn create(api: &Api, name: &str, url: &str, more: Value) -> (u16, Value) {
    let mut job =
        json!({ "name": name, "jobType": "callback", "callback": { "url": url, "method": "POST", "body": "{\"args\":\"{arguments}\"}" } });
    for (key, value) in more.as_object().expect("an object") {
        job[key] = value.clone();
    }
    api.post("/api/v1/jobs", &job).await
}

async fn job(api: &Api, name: &str, url: &str, more: Value) -> String {
    let (status, job) = create(api, name, url, more).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

async fn runs(api: &Api, job: &str) -> Vec<Value> {
    let (status, page) = api.get(&format!("/api/v1/runs?jobId={job}&limit=1000")).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("items").clone()
}

/// The only run of a job, once it is over.
async fn the_run(api: &Api, job: &str) -> Value {
    let over = |run: &Value| run["finishTime"].is_string();
    until("the end of a run", || async {
        let runs = runs(api, job).await;
        assert!(runs.len() < 2, "{runs:?}");
        runs.into_iter().find(over)
    })
    .await
}

async fn log_of(api: &Api, run: &Value) -> String {
    let (status, page) = api.get(&format!("/api/v1/runs/{}/logs", run["identity"].as_str().expect("an id"))).await;
    assert_eq!(status, 200, "{page}");
    page["items"].as_array().expect("lines").iter().map(|line| line["text"].as_str().unwrap_or_default().to_owned() + "\n").collect()
}

#[test]
fn what_ends_begins_the_next() {
    journey(async {
        let receiver = Receiver::start([Reply::status(200)]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let last = job(&api, "last", &receiver.url, json!({})).await;
        let rescue = job(&api, "rescue", &receiver.url, json!({})).await;
        let idle = job(&api, "idle", &receiver.url, json!({ "isEnabled": false })).await;
        // By its name and by its id: still one run.
        let to = json!([{ "job": "last" }, { "job": last, "on": "always" }, { "job": "rescue", "on": "failure" }, { "job": "idle" }]);
        let first = job(&api, "first", &receiver.url, json!({ "successors": to })).await;
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let trigger = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{first}/trigger"));
        let (status, run) = api.send(trigger.header("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))).await;
        assert_eq!(status, 202, "{run}");
        let begun = the_run(&api, &last).await;
        assert_eq!((&begun["after"], &begun["traceId"], &begun["state"]), (&run["identity"], &json!(trace), &json!("success")), "{begun}");
        let ended = the_run(&api, &first).await;
        // The second request carries what the first run brought.
        let got = receiver.wait_for(2).await;
        let body: Value = serde_json::from_str(&got[1].body).expect("JSON");
        assert_eq!(serde_json::from_str::<Value>(body["args"].as_str().expect("a text")).expect("JSON"), ended["result"]);
        let log = until("both lines", || async { Some(log_of(&api, &ended).await).filter(|log| log.contains("`idle`")) }).await;
        assert!(log.contains("the job `idle` does not begin after this run") && log.contains("disabled"), "{log}");
        assert!(log.contains(begun["identity"].as_str().expect("an id")), "{log}");
        assert!(log_of(&api, &begun).await.contains("made after run"), "it says what began it");
        assert!(runs(&api, &rescue).await.is_empty() && runs(&api, &idle).await.is_empty());
        let shown = std::process::Command::new(WEBLOOM)
            .args(["run", "--broker", &broker.url, "show", begun["identity"].as_str().expect("an id")])
            .output()
            .expect("it runs");
        assert!(String::from_utf8_lossy(&shown.stdout).contains("after run"), "{shown:?}");

        // A failure begins the other one; what is gone is told.
        assert_eq!(api.delete(&format!("/api/v1/jobs/{last}")).await.0, 204);
        receiver.answer([Reply::status(500)]);
        let failed = api.trigger(&first).await;
        let begun = the_run(&api, &rescue).await;
        assert_eq!(begun["after"], failed.as_str());
        let failed = json!({ "identity": failed });
        until("the line", || async { log_of(&api, &failed).await.contains("there is no job").then_some(()) }).await;
        // A job whose successor is gone can be changed all the same.
        let (status, changed) = api.put(&format!("/api/v1/jobs/{first}"), &json!({ "priority": 3 })).await;
        assert_eq!(status, 200, "{changed}");
        receiver.stop().await;
    });
}

#[test]
fn nothing_begins_after_itself() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let url = "http://127.0.0.1:9/";
        let field = |(status, problem): (u16, Value)| (status, problem["field"].as_str().unwrap_or_default().to_owned());
        let refused = |place: &str| (422, place.to_owned());
        let c = job(&api, "c", url, json!({})).await;
        let b = job(&api, "b", url, json!({ "successors": [{ "job": c }] })).await;
        job(&api, "a", url, json!({ "successors": [{ "job": "b" }] })).await;
        assert_eq!(
            field(create(&api, "d", url, json!({ "successors": [{ "job": "c" }, { "job": "nobody" }] })).await),
            refused("successors[1].job")
        );
        assert_eq!(field(create(&api, "d", url, json!({ "successors": [{ "job": "d" }] })).await), refused("successors"));
        assert_eq!(field(create(&api, "d", url, json!({ "successors": vec![json!({ "job": "c" }); 51] })).await), refused("successors"));
        assert_eq!(field(create(&api, "d", url, json!({ "successors": [{ "job": "" }] })).await), refused("successors[0].job"));
        assert_eq!(create(&api, "d", url, json!({ "successors": [{ "job": "c", "on": "sometimes" }] })).await.0, 400);
        let (status, problem) = api.put(&format!("/api/v1/jobs/{c}"), &json!({ "successors": [{ "job": "a" }] })).await;
        assert_eq!(status, 422);
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains("`c` > `a` > `b` > `c`")), "{problem}");
        // Nor by a name that is taken over.
        assert_eq!(api.delete(&format!("/api/v1/jobs/{b}")).await.0, 204);
        assert_eq!(field(create(&api, "b", url, json!({ "successors": [{ "job": "a" }] })).await), refused("successors"));
        let x = job(&api, "x", url, json!({ "successors": [{ "job": "a" }] })).await;
        assert_eq!(field(api.put(&format!("/api/v1/jobs/{x}"), &json!({ "name": "b" })).await), refused("successors"));
        assert_eq!(
            field(
                api.post(
                    "/api/v1/jobs?dryRun=true",
                    &json!({ "name": "n", "properties": { "FullClassName": "a.B" }, "successors": [{ "job": "m" }] })
                )
                .await
            ),
            refused("successors[0].job")
        );

        // A file may name what comes later in it, and is refused whole.
        let in_file = |name: &str, to: &[&str]| {
            let to: Vec<Value> = to.iter().map(|job| json!({ "job": job })).collect();
            json!({ "name": name, "jobType": "callback", "callback": { "url": url }, "successors": to })
        };
        let (status, problem) = api.post("/api/v1/jobs/import", &json!([in_file("p", &["q"]), in_file("q", &["p"])])).await;
        assert_eq!((status, &problem["field"]), (422, &json!("jobs[0].successors")), "{problem}");
        let (status, done) = api.post("/api/v1/jobs/import", &json!([in_file("p", &["q"]), in_file("q", &["r"]), in_file("r", &[])])).await;
        assert_eq!(status, 200, "{done}");
        assert_eq!(done[0]["name"], "p");
        // Turned round, in whatever order it stands.
        let (status, done) = api.post("/api/v1/jobs/import", &json!([in_file("p", &[]), in_file("q", &["p"]), in_file("r", &["q"])])).await;
        assert_eq!(status, 200, "{done}");
    });
}

/// The broker dies between the trigger of the successor and the note that the end was dealt with.
#[test]
fn a_death_in_between_begins_it_once() {
    journey(async {
        let receiver = Receiver::start([]);
        let mut broker = Broker::start(&[], "job.successors_begun=die");
        let api = Api::new(&broker.url);
        let last = job(&api, "last", &receiver.url, json!({})).await;
        let first = job(&api, "first", &receiver.url, json!({ "successors": [{ "job": "last" }] })).await;
        api.trigger(&first).await;
        broker.process.0.wait().expect("it dies");
        broker.restart("");
        let api = Api::new(&broker.url);
        let begun = the_run(&api, &last).await;
        let ended = the_run(&api, &first).await;
        assert_eq!(begun["after"], ended["identity"]);
        until("the line", || async { log_of(&api, &ended).await.contains("begins after this one").then_some(()) }).await;
        assert_eq!(runs(&api, &last).await.len(), 1);
        receiver.stop().await;
    });
}

/// The successor waits until its run is stopped, which the worker does not say: the job before it goes on meanwhile.
#[test]
fn a_job_goes_on_while_its_successor_is_busy() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let mut worker = Raw::watch(&api, &id(), &["slow", "quick"], json!({ "slots": 4 }), json!([])).await;
        let replace = json!({ "policies": { "overlap": "replace" } });
        let after = tasks::job(&api, "after", json!({ "handler": "slow", "lease": 60_000 }), replace).await;
        let first = tasks::job(&api, "first", json!({ "handler": "quick" }), json!({ "successors": [{ "job": "after" }] })).await;
        api.trigger(&after).await;
        let stuck = worker.order().await;
        let meanwhile = async {
            worker.socket.find("cancel").await;
            let run = api.trigger(&first).await;
            let order = worker.order().await;
            worker.report(&order, "success", json!({}));
            worker.settled().await;
            let again = tokio::time::timeout(std::time::Duration::from_secs(4), api.trigger(&first)).await.expect("the job is not held up");
            let order = worker.order().await;
            assert_eq!(order["identity"], again.as_str());
            worker.report(&stuck, "cancelled", json!({}));
            worker.report(&order, "success", json!({}));
            [run, again]
        };
        let (_, ended) = futures_util::join!(api.trigger(&after), meanwhile);
        for ended in ended {
            until("the successor", || async {
                let begun = runs(&api, &after).await;
                begun.iter().any(|run| run["after"] == ended.as_str()).then_some(())
            })
            .await;
        }
    });
}

/// A successor that is at work takes them one after the other.
#[test]
fn a_busy_successor_waits_for_its_turn() {
    journey(async {
        let receiver = Receiver::start([Reply::status(200), Reply::status(200), Reply::status(200)]);
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Slow").await;
        let slow = json!({ "name": "slow", "properties": { "FullClassName": "it.Slow" }, "policies": { "overlap": "skip" } });
        let (status, slow) = api.post("/api/v1/jobs", &slow).await;
        assert_eq!(status, 201, "{slow}");
        let slow = slow["id"].as_str().expect("an id").to_owned();
        let first = job(&api, "first", &receiver.url, json!({ "successors": [{ "job": "slow" }] })).await;
        for _ in 0..3 {
            api.trigger(&first).await;
        }
        let mut told: Vec<String> = Vec::new();
        for ended in 0..3 {
            let (id, made) = until("a run at work", || async {
                let runs = runs(&api, &slow).await;
                // One that was told is over before long, and may still be seen.
                let is_new = |run: &&Value| !told.iter().any(|id| run["identity"] == id.as_str());
                let run = runs.iter().filter(is_new).find(|run| run["state"] == "scheduled")?;
                Some((run["identity"].as_str()?.to_owned(), runs.len()))
            })
            .await;
            assert!(made > ended);
            let (status, _) = api.post(&format!("/api/v1/runs/{id}/start-returned"), &json!({})).await;
            assert_eq!(status, 204);
            told.push(id);
        }
        until("all three", || async {
            (runs(&api, &slow).await.iter().filter(|run| run["state"] == "success").count() == 3).then_some(())
        })
        .await;
        assert!(!worker.is_empty());
        receiver.stop().await;
    });
}
