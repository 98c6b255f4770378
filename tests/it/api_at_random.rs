//! Schemathesis (<https://schemathesis.readthedocs.io>) makes thousands of calls of the OpenAPI document. No journey takes longer. Tests
//! begin in the order of their names, so the name of this one makes it begin early.

use crate::openapi::{document, operations};
use crate::support::api::{Api, id, requests};
use crate::support::journey_within;
use crate::support::process::Broker;
use serde_json::json;
use std::time::Duration;

/// Runs only where `tests/run.sh` has put Schemathesis; that it is missing is said there.
#[test]
fn schemathesis_finds_nothing() {
    let Some(program) = std::env::var_os("WEBLOOM_SCHEMATHESIS") else { return };
    // Alone it takes two minutes; a busy machine takes several times as long.
    journey_within(Duration::from_secs(1_800), async {
        let token = "the-admin-token";
        let broker = Broker::start(&["--token", &format!("admin:{token}"), "--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url).with_token(token);
        let (run, worker, node) = world(&api).await;
        let config = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/schemathesis.toml");
        let mut schemathesis = tokio::process::Command::new(program);
        schemathesis.arg("--config-file").arg(config).arg("run").arg(format!("{}/api/v1/openapi.json", broker.url));
        schemathesis.args(["--no-color", "--header", &format!("Token: {token}")]);
        // What it leaves behind goes with the broker's folder.
        schemathesis.current_dir(&broker.folder).env("RUN", &run).env("WORKER", &worker).env("NODE", &node).kill_on_drop(true);
        let done = schemathesis.output().await.expect("it runs");
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success(), "{said}\n{}", String::from_utf8_lossy(&done.stderr));
        // All but the document itself, which it reads anyway.
        let all = operations(&document(&api).await).len() - 1;
        assert!(said.contains(&format!("{all} selected / {all} total")), "{said}");
        assert_eq!(api.state(&run).await["identity"], json!(run), "the broker is well");
    });
}

/// Something to find: a run with blocks in all states, its worker and a node; their ids.
async fn world(api: &Api) -> (String, String, String) {
    let (run, worker) = api.run("it.World", &json!({ "BlockSize": "2", "AckWait": "1000" })).await;
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..20)).await.0, 200);
    let node = id();
    for _ in 0..5 {
        let block = api.beat(&node, &json!({ "cpu": 5 })).await;
        assert_eq!(api.report(&node, &block, 200).await.0, 200);
    }
    (run, worker, node)
}
