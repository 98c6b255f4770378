//! An id belongs to the token that brought it first: nothing is done in its name by another one.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::json;

const FIRST: &str = "admin:boss-token\nworker:work-one\nworker:work-two\nagent:node-one\nagent:node-two\n";

/// What a socket's upgrade is answered.
async fn upgrade(url: String) -> u16 {
    match awc::Client::default().ws(url.replace("http://", "ws://")).connect().await {
        Ok(_) => 101,
        Err(awc::error::WsClientError::InvalidResponseStatus(status)) => status.as_u16(),
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn nobody_speaks_in_the_name_of_anothers_id() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("tokens");
        std::fs::write(&file, FIRST).expect("a file");
        let mut broker = Broker::start(&["--token-file", file.to_str().expect("a name")], "");
        // A client of its own for each call: connections do not outlive the broker that is killed.
        let url = broker.url.clone();
        let as_token = |token: &str| Api::new(&url).with_token(token);
        let (worker, node) = (id(), id());
        let register = json!({ "workerId": worker, "classNames": ["a.B"] });
        let beat = json!({ "nodeId": node });
        let report = json!({ "nodeId": node, "identity": id(), "blockId": id(), "attempt": 1, "results": [] });
        assert_eq!(as_token("work-one").post("/api/v1/workers", &register).await.0, 200);
        assert!(matches!(as_token("node-one").post("/node/heartbeat", &beat).await.0, 200 | 204));
        let (_, job) = as_token("boss-token").post("/api/v1/jobs", &json!({ "name": "x", "properties": { "FullClassName": "a.B" } })).await;
        let trigger = format!("/api/v1/jobs/{}/trigger", job["id"].as_str().expect("an id"));
        let (status, run) = as_token("boss-token").post(&trigger, &json!({})).await;
        assert_eq!(status, 202, "{run}");
        let run = run["identity"].as_str().expect("an id").to_owned();
        let boss = as_token("boss-token");
        let has_worker = || async {
            let (_, now) = boss.get(&format!("/api/v1/runs/{run}")).await;
            (now["workerId"] == worker.as_str()).then_some(())
        };
        until("the run to have its worker", has_worker).await;
        let started = format!("/api/v1/runs/{run}/start-returned");
        for is_restarted in [false, true] {
            if is_restarted {
                broker.kill_and_restart();
                // Until its worker is back, a run is bound to no token.
                assert_eq!(as_token("work-one").post("/api/v1/workers", &register).await.0, 200);
                until("the run to have its worker again", || async {
                    let (_, now) = as_token("boss-token").get(&format!("/api/v1/runs/{run}")).await;
                    (now["workerId"] == worker.as_str()).then_some(())
                })
                .await;
            }
            let of_worker = |rest: &str| format!("/api/v1/workers/{worker}/{rest}");
            let other = as_token("work-two");
            let answers = [
                other.post("/api/v1/workers", &register).await,
                other.get(&of_worker("messages")).await,
                other.post(&of_worker("reports"), &json!([])).await,
                other.post(&of_worker("heartbeat"), &json!({ "tasks": [] })).await,
                other.get(&format!("/requestqueue/{run}?worker={worker}")).await,
                other.post(&started, &json!({ "error": "forged" })).await,
                other.post("/work/register", &json!({ "workId": worker, "ip": "10.0.0.1", "name": "w", "beanNames": ["a.B"] })).await,
                as_token("node-two").post("/node/heartbeat", &beat).await,
                as_token("node-two").post("/node/block", &report).await,
            ];
            for (i, (status, answer)) in answers.iter().enumerate() {
                assert_eq!(*status, 403, "{i}: {answer}");
                assert!(answer["detail"].as_str().is_some_and(|detail| detail.contains("belongs to another token")), "{i}: {answer}");
            }
            assert_eq!(upgrade(format!("{}/worker?workerid={worker}&token=work-two", broker.url)).await, 403);
            assert_eq!(upgrade(format!("{}/?nodeid={node}&token=node-two", broker.url)).await, 403);
            // Its own token goes on.
            assert_eq!(as_token("work-one").post("/api/v1/workers", &register).await.0, 200);
            assert_eq!(upgrade(format!("{}/worker?workerid={worker}&token=work-one", broker.url)).await, 101);
            assert!(matches!(as_token("node-one").post("/node/heartbeat", &beat).await.0, 200 | 204));
            assert_eq!(as_token("node-one").post("/node/block", &report).await.0, 404, "there is no such run");
        }
        assert_eq!(as_token("work-one").post(&started, &json!({ "error": "none" })).await.0, 204);

        // What an admin removes is free, and what belongs to a token that is gone.
        assert_eq!(as_token("boss-token").delete(&format!("/api/v1/nodes/{node}?force=true")).await.0, 204);
        assert!(matches!(as_token("node-two").post("/node/heartbeat", &beat).await.0, 200 | 204));
        assert_eq!(as_token("node-one").post("/node/heartbeat", &beat).await.0, 403);
        std::fs::write(&file, FIRST.replace("worker:work-one", "worker:work-new")).expect("a file");
        broker.kill_and_restart();
        assert_eq!(as_token("work-one").post("/api/v1/workers", &register).await.0, 401);
        assert_eq!(as_token("work-new").post("/api/v1/workers", &register).await.0, 200);
        assert_eq!(as_token("work-two").post("/api/v1/workers", &register).await.0, 403);
        assert_eq!(as_token("boss-token").post("/api/v1/workers", &register).await.0, 200, "an admin may");
    });
}
