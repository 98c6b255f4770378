//! Dead runs of many jobs are run again, each once.

use crate::support::api::Api;
use crate::support::journey;
use crate::support::process::{Broker, WEBLOOM};
use serde_json::{Value, json};
use std::collections::BTreeSet;

async fn redrive(api: &Api, input: Value) -> Value {
    let (status, done) = api.post("/api/v1/runs/redrive", &input).await;
    assert_eq!(status, 200, "{done}");
    done
}

#[test]
fn dead_runs_of_many_jobs_are_run_again_once() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        // Nobody watches their class: each run fails at once.
        let (mut jobs, mut dead) = (Vec::new(), BTreeSet::new());
        for name in ["one", "two", "off"] {
            let job = api.job(name, "it.Nobody", &json!({})).await;
            assert_eq!(api.put(&format!("/api/v1/jobs/{job}"), &json!({ "group": if name == "one" { "g" } else { "h" } })).await.0, 200);
            for _ in 0..2 {
                let run = api.trigger(&job).await;
                crate::support::until("the failure", || async { (api.state(&run).await["state"] == "failed").then_some(()) }).await;
                dead.insert(run);
            }
            jobs.push(job);
        }
        assert_eq!(api.post(&format!("/api/v1/jobs/{}/disable", jobs[2]), &json!({})).await.0, 200);
        // By its job alone, all of its runs are refused.
        let off = format!("/api/v1/jobs/{}/redrive", jobs[2]);
        let (status, problem) = api.post(&off, &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/job-disabled")), "{problem}");
        let (status, dry) = api.post(&off, &json!({ "dryRun": true })).await;
        assert_eq!((status, dry["dead"].as_array().map(Vec::len), &dry["runs"]), (200, Some(2), &json!([])), "{dry}");
        let of = |done: &Value| -> BTreeSet<String> {
            done["runs"].as_array().expect("runs").iter().map(|run| run["retryOf"].as_str().expect("an id").to_owned()).collect()
        };
        let dry = redrive(&api, json!({ "dryRun": true })).await;
        assert_eq!((&dry["found"], &dry["redriven"], &dry["more"], of(&dry)), (&json!(6), &json!(0), &json!(false), dead.clone()), "{dry}");
        let dry = redrive(&api, json!({ "dryRun": true, "group": "g" })).await;
        assert_eq!((&dry["found"], &dry["runs"][0]["jobId"]), (&json!(2), &json!(jobs[0])), "{dry}");
        assert_eq!(redrive(&api, json!({ "dryRun": true, "limit": 5 })).await["more"], true);
        assert_eq!(redrive(&api, json!({ "dryRun": true, "from": "2099-01-01T00:00:00Z" })).await["found"], 0);
        assert_eq!(redrive(&api, json!({ "dryRun": true, "to": "2001-01-01T00:00:00Z" })).await["found"], 0);

        // A worker watches now: what is run again is at work. Two calls at once make one run of each, whichever comes first.
        api.worker("it.Nobody").await;
        let (one, two) = tokio::join!(redrive(&api, json!({ "jobId": jobs[0] })), redrive(&api, json!({ "jobId": jobs[0] })));
        let all = format!("{one} {two}");
        let one = [one, two].into_iter().find(|done| done["redriven"] == 2).expect(&all);
        let (_, runs) = api.get(&format!("/api/v1/runs?jobId={}", jobs[0])).await;
        assert_eq!(runs["items"].as_array().map(Vec::len), Some(4), "{runs}");
        let again = api.state(one["runs"][0]["identity"].as_str().expect("an id")).await;
        assert_eq!((&again["retryOf"], &again["jobName"]), (&one["runs"][0]["retryOf"], &json!("one")));

        // The others; one that is disabled says so.
        let rest = redrive(&api, json!({})).await;
        assert_eq!((&rest["found"], &rest["redriven"]), (&json!(4), &json!(2)), "{rest}");
        let refused = rest["runs"].as_array().expect("runs").iter().filter(|run| run["refused"].is_string());
        assert!(refused.clone().all(|run| run["jobId"] == jobs[2].as_str()) && refused.count() == 2, "{rest}");
        assert_eq!(api.delete(&format!("/api/v1/jobs/{}", jobs[2])).await.0, 204);
        assert_eq!(redrive(&api, json!({})).await["found"], 0);

        let shell = std::process::Command::new(WEBLOOM).args(["run", "--broker", &broker.url, "redrive", "--job", "two"]).output();
        let shell = shell.expect("it runs");
        assert!(shell.status.success() && String::from_utf8_lossy(&shell.stdout).trim() == "there are no dead runs", "{shell:?}");
        for (input, status) in [
            (json!({ "limit": 0 }), 422),
            (json!({ "limit": 1_001 }), 422),
            (json!({ "from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z" }), 422),
            (json!({ "jobId": crate::support::api::id() }), 404),
            (json!({ "all": true }), 422),
        ] {
            assert_eq!(api.post("/api/v1/runs/redrive", &input).await.0, status, "{input}");
        }
    });
}
