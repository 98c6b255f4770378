//! The past goes: by count, and with its job. What is not over stays.

use crate::support::api::Api;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

async fn job(api: &Api, name: &str, more: &Value) -> String {
    let mut input = json!({ "name": name, "properties": { "FullClassName": "it.Past" } });
    more.as_object().expect("an object").iter().for_each(|(key, value)| input[key] = value.clone());
    let (status, job) = api.post("/api/v1/jobs", &input).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// So many runs of the job that ended, the oldest first.
async fn runs(api: &Api, job: &str, count: usize) -> Vec<String> {
    let mut runs = Vec::new();
    for _ in 0..count {
        let run = api.trigger(job).await;
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        runs.push(run);
    }
    runs
}

/// The runs that are left, the oldest first, when there are so many.
async fn left(api: &Api, job: &str, count: usize) -> Vec<String> {
    until(&format!("{count} runs to be left"), || async {
        let (status, page) = api.get(&format!("/api/v1/runs?jobId={job}")).await;
        assert_eq!(status, 200);
        let mut runs: Vec<String> =
            page["items"].as_array()?.iter().map(|run| run["identity"].as_str().expect("an id").to_owned()).collect();
        runs.reverse();
        (runs.len() == count).then_some(runs)
    })
    .await
}

#[test]
fn each_job_keeps_its_newest_runs() {
    journey(async {
        // Everything is kept while the runs are made, so that what goes is not a question of timing.
        let mut broker = Broker::start(&["--clean-every", "3600000"], "");
        let api = Api::new(&broker.url);
        api.worker("it.Past").await;
        let (usual, own) =
            (job(&api, "usual", &json!({})).await, job(&api, "own", &json!({ "policies": { "keep": { "runs": 1 } } })).await);
        let purged = job(&api, "purged", &json!({})).await;
        let open = api.trigger(&usual).await;
        let (usual_runs, own_runs) = (runs(&api, &usual, 5).await, runs(&api, &own, 3).await);
        runs(&api, &purged, 2).await;
        assert_eq!((left(&api, &usual, 6).await.len(), left(&api, &purged, 2).await.len()), (6, 2));
        assert_eq!(api.delete(&format!("/api/v1/jobs/{purged}")).await.0, 204);
        assert_eq!(api.post(&format!("/api/v1/jobs/{purged}/purge"), &json!({})).await.0, 204);
        assert!(broker.process.terminate().success());

        let again = Broker::start_in(&broker.folder, "127.0.0.1:0", &["--keep-runs", "2", "--clean-every", "50"], "");
        let api = Api::new(&again.url);
        // The one that is not over is the oldest, and stays.
        let expected = [vec![open.clone()], usual_runs[3..].to_vec()].concat();
        assert_eq!(left(&api, &usual, 3).await, expected);
        assert_eq!(left(&api, &own, 1).await, own_runs[2..]);
        assert_eq!(left(&api, &purged, 0).await, Vec::<String>::new());
        assert_eq!(api.get(&format!("/api/v1/runs/{}", usual_runs[0])).await.0, 404);
        // A later round finds what has become too much since.
        api.worker("it.Past").await;
        let newer = runs(&api, &own, 2).await;
        until("the next round", || async { (left(&api, &own, 1).await == newer[1..]).then_some(()) }).await;
    });
}
