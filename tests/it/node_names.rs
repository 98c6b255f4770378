//! Nodes have names: their hosts' unless their owners chose others.

use crate::support::api::{Api, id, requests};
use crate::support::process::{Broker, WEBLOOM, agent};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::process::Command;

async fn nodes(api: &Api) -> Vec<Value> {
    api.get("/api/v1/nodes").await.1["items"].as_array().cloned().unwrap_or_default()
}

fn cli(broker: &str, args: &[&str]) -> (bool, String) {
    let out = Command::new(WEBLOOM).args(args).args(["--broker", broker]).env_remove("WEBLOOM_TOKEN").output().expect("it runs");
    (out.status.success(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
}

#[test]
fn a_node_is_known_by_the_name_that_its_owner_or_its_host_has_given() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let _named = agent(&broker.url, one.path(), &["--name", "crawler one"]);
        let _plain = agent(&broker.url, other.path(), &[]);
        let all = until("both nodes", || async { Some(nodes(&api).await).filter(|all| all.len() == 2) }).await;
        let host = String::from_utf8(Command::new("uname").arg("-n").output().unwrap().stdout).unwrap();
        let mut names: Vec<&str> = all.iter().map(|node| node["name"].as_str().unwrap()).collect();
        names.sort_unstable();
        let mut expected = ["crawler one", host.trim()];
        expected.sort_unstable();
        assert_eq!(names, expected);

        // Wherever a node is named by its id, its name does.
        let (status, node) = api.get("/api/v1/nodes/Crawler%20ONE").await;
        assert_eq!((status, &node["name"]), (200, &json!("crawler one")));
        let (status, node) = api.post("/api/v1/nodes/crawler%20one/disable", &json!({ "reason": "repair" })).await;
        assert_eq!((status, &node["isEnabled"]), (200, &json!(false)), "{node}");
        let (is_done, text) = cli(&broker.url, &["node", "enable", "crawler one"]);
        assert!(is_done, "{text}");
        let (_, list) = cli(&broker.url, &["node", "list"]);
        assert!(list.contains("crawler one") && list.contains(host.trim()), "{list}");
        let (_, actors) = api.get("/api/v1/actors").await;
        let labels: Vec<&Value> =
            actors["items"].as_array().unwrap_or_else(|| actors.as_array().expect("actors")).iter().map(|actor| &actor["label"]).collect();
        assert!(labels.contains(&&json!("crawler one")), "{actors}");
        assert_eq!(api.get("/api/v1/nodes/nowhere").await.0, 404);
    });
}

#[test]
fn a_name_of_several_nodes_is_refused_and_a_node_without_one_is_shown_by_its_last_digits() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (a, b, old) = (id(), id(), id());
        for node in [&a, &b] {
            api.beat(node, &json!({ "name": "web" })).await;
        }
        api.beat(&old, &json!({})).await;
        let (status, problem) = api.post("/api/v1/nodes/web/drain", &json!({})).await;
        assert_eq!((status, &problem["type"]), (409, &json!("/problems/ambiguous")), "{problem}");
        assert!(problem["detail"].as_str().is_some_and(|text| text.contains(&a) && text.contains(&b)), "{problem}");
        assert!(nodes(&api).await.iter().all(|node| node["isDraining"] == false), "nothing was changed");
        let (_, node) = api.get(&format!("/api/v1/nodes/{}", &old[24..])).await;
        assert_eq!((&node["nodeId"], &node["name"]), (&json!(old), &json!(&old[24..])));

        // What a node did for a run is told with its name, and is still after the broker came back and the node sent none.
        let (run, _) = api.run("a.B", &json!({})).await;
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..1)).await.0, 200);
        let block = until("a block", || async { Some(api.beat(&a, &json!({})).await).filter(|block| !block.is_null()) }).await;
        assert_eq!(api.report(&a, &block, 200).await.0, 200);
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        api.beat(&a, &json!({})).await;
        let (_, blocks) = api.get(&format!("/api/v1/runs/{run}/blocks")).await;
        assert_eq!(blocks["items"][0]["nodeName"], "web", "{blocks}");
        let (_, status) = api.get(&format!("/api/v1/runs/{run}/status")).await;
        assert!(status.to_string().contains("\"nodeName\":\"web\""), "{status}");
        let too_long = "x".repeat(101);
        let (status, _) = api.post("/node/heartbeat", &json!({ "nodeId": id(), "name": too_long })).await;
        assert_eq!(status, 422);
    });
}
