//! Who made and who changed what, and when: on everything that people make or change.

use crate::support::api::{Api, id};
use crate::support::process::{Broker, WEBLOOM};
use crate::support::{journey, until};
use crate::tasks::{self, Raw};
use serde_json::{Value, json};

pub const TOKENS: &[&str] = &["--token", "boss-token", "--token", "agent:node-token", "--token", "worker:work-token"];

/// Who made it and who changed it; its times make sense.
fn by(thing: &Value) -> (Option<&str>, Option<&str>) {
    let time = |key: &str| thing[key].as_str().unwrap_or_else(|| panic!("{key} in {thing}")).to_owned();
    assert!(time("creationTime") <= time("updateTime"), "{thing}");
    (thing["createBy"].as_str(), thing["updateBy"].as_str())
}

async fn ask(api: &Api, path: &str) -> Value {
    let (status, answer) = api.get(path).await;
    assert_eq!(status, 200, "{path}: {answer}");
    answer
}

#[test]
fn everything_says_who_made_and_who_changed_it() {
    journey(async {
        let mut broker = Broker::start(TOKENS, "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let (node, worker) = (id(), id());
        let agents = api.with_token("node-token");
        agents.beat(&node, &json!({})).await;
        let input = json!({ "workerId": worker, "classNames": ["it.Audit"] });
        assert_eq!(api.with_token("work-token").post("/api/v1/workers", &input).await.0, 200);
        assert_eq!(by(&ask(&api, &format!("/api/v1/nodes/{node}")).await), (Some("agent"), None));
        assert_eq!(by(&ask(&api, &format!("/api/v1/workers/{worker}")).await), (Some("worker"), None));
        let (_, disabled) = api.post(&format!("/api/v1/nodes/{node}/disable"), &json!({ "reason": "loud" })).await;
        assert_eq!(by(&disabled), (Some("agent"), Some("admin")));
        let (_, disabled) = api.post(&format!("/api/v1/workers/{worker}/disable"), &json!({})).await;
        assert_eq!(by(&disabled), (Some("worker"), Some("admin")));
        // What they say of themselves later changes nothing of it.
        agents.beat(&node, &json!({})).await;
        assert_eq!(by(&ask(&api, &format!("/api/v1/nodes/{node}")).await), (Some("agent"), Some("admin")));

        let (_, group) = api.post("/api/v1/groups", &json!({ "name": "audited" })).await;
        assert_eq!(by(&group), (Some("admin"), Some("admin")));
        // Its runs are begun, and go on.
        api.worker("it.Wait").await;
        let next = api.job("next", "it.Wait", &json!({})).await;
        let job = json!({ "name": "first", "jobType": "block", "properties": { "FullClassName": "it.Wait" },
            "successors": [{ "job": next, "on": "always" }] });
        let (_, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(by(&job), (Some("admin"), Some("admin")));
        let first = job["id"].as_str().expect("an id");
        assert_eq!(api.put(&format!("/api/v1/jobs/{first}/data"), &json!({ "data": 1 })).await.0, 204);
        let data = ask(&api, &format!("/api/v1/jobs/{first}/data")).await;
        assert_eq!((&data["updateBy"], &data["identity"]), (&json!("admin"), &json!(null)));

        // A run by hand, ended by hand; what it begins is nobody's.
        let run = api.trigger(first).await;
        assert_eq!(by(&api.state(&run).await), (Some("admin"), None));
        let (status, stopped) = api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await;
        assert_eq!((status, by(&stopped)), (200, (Some("admin"), Some("admin"))), "{stopped}");
        let begun =
            until("the successor", || async { ask(&api, &format!("/api/v1/runs?jobId={next}")).await["items"].get(0).cloned() }).await;
        assert_eq!(by(&begun), (Some("workflow"), None));

        // A run of the plan; one that is over keeps its word.
        let once = json!({ "name": "once", "jobType": "block", "properties": { "FullClassName": "it.Wait" }, "interval": 0 });
        let (_, once) = api.post("/api/v1/jobs", &once).await;
        let path = format!("/api/v1/runs?jobId={}", once["id"].as_str().expect("an id"));
        let planned = until("the planned run", || async { ask(&api, &path).await["items"].get(0).cloned() }).await;
        assert_eq!(by(&planned), (Some("scheduler"), None));
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 409);

        // All of it is stored.
        broker.kill_and_restart();
        let api = Api::new(&broker.url).with_token("boss-token");
        assert_eq!(by(&api.state(&run).await), (Some("admin"), Some("admin")));
        assert_eq!(by(&ask(&api, &format!("/api/v1/nodes/{node}")).await), (Some("agent"), Some("admin")));
        let shown = std::process::Command::new(WEBLOOM)
            .args(["run", "show", &run, "--broker", &broker.url, "--token", "boss-token"])
            .output()
            .expect("the command line");
        let text = String::from_utf8_lossy(&shown.stdout);
        assert_eq!(text.matches(" by admin").count(), 3, "made, changed, and why: {text}");
    });
}

#[test]
fn only_who_ended_a_run_has_the_last_word_on_it() {
    journey(async {
        let broker = Broker::start(TOKENS, "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let mut worker = Raw::watch(&api, &format!("{}&token=work-token", id()), &["h"], json!({}), json!([])).await;
        let job = tasks::job(&api, "graceful", json!({ "handler": "h", "cancelGrace": 60_000 }), json!({})).await;
        for (said, state, last) in [("success", "success", None), ("cancelled", "stopped", Some("admin"))] {
            let run = api.trigger(&job).await;
            let order = worker.order().await;
            let path = format!("/api/v1/runs/{run}");
            assert_eq!(by(&ask(&api, &path).await), (Some("admin"), None));
            let stop = async { api.post(&format!("{path}/stop"), &json!({})).await };
            let end = async {
                worker.socket.find("cancel").await;
                assert_eq!(by(&ask(&api, &path).await), (Some("admin"), Some("admin")), "it is to end");
                worker.report(&order, said, json!({}));
            };
            let ((status, ended), ()) = futures_util::join!(stop, end);
            // It is answered as it stands, if that takes long.
            let shown = if ended["state"] == "success" { None } else { Some("admin") };
            assert_eq!((status, by(&ended)), (200, (Some("admin"), shown)), "{ended}");
            let stored = tasks::over(&api, &run).await;
            assert_eq!((&stored["state"], by(&stored)), (&json!(state), (Some("admin"), last)), "{stored}");
            assert_eq!(api.post(&format!("{path}/stop"), &json!({})).await.0, 409);
            assert_eq!(by(&ask(&api, &path).await), (Some("admin"), last));
        }
    });
}
