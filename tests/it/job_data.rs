//! What runs of a job hand on, read and mended by hand.

use crate::support::api::{Api, id};
use crate::support::journey;
use crate::support::process::{Broker, WEBLOOM};
use serde_json::{Value, json};

#[test]
fn the_data_of_a_job_is_read_and_mended() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = api.job("keeper", "it.Keeper", &json!({})).await;
        let path = format!("/api/v1/jobs/{job}/data");
        assert_eq!(api.get(&path).await.0, 404);
        let data = json!({ "seen": 7, "cursor": "a\u{0}b\"ü", "deep": [[null, 1.5]] });
        assert_eq!(api.put(&path, &json!({ "data": data })).await.0, 204);
        broker.kill_and_restart();
        let api = Api::new(&broker.url);
        let (status, found) = api.get(&path).await;
        assert_eq!((status, &found["data"], &found["identity"]), (200, &data, &Value::Null), "{found}");
        assert!(found["updateTime"].is_string());
        // 256 KiB of JSON and no byte more, and what is refused changes nothing.
        let (status, problem) = api.put(&path, &json!({ "data": "x".repeat(256 * 1024 - 1) })).await;
        assert_eq!((status, &problem["field"]), (422, &json!("data")), "{problem}");
        assert_eq!(api.put(&path, &json!({})).await.0, 400);
        assert_eq!(api.get(&path).await.1["data"], data);
        assert_eq!(api.put(&path, &json!({ "data": "x".repeat(256 * 1024 - 2) })).await.0, 204);
        assert_eq!(api.put(&path, &json!({ "data": null })).await.0, 204);
        assert_eq!(api.get(&path).await, (200, json!({ "data": null, "updateTime": api.get(&path).await.1["updateTime"] })));

        let shell = |args: &[&str]| {
            let out =
                std::process::Command::new(WEBLOOM).args(["job", "--broker", &broker.url, "data"]).args(args).output().expect("it runs");
            (out.status.code(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
        };
        assert_eq!(shell(&["set", "keeper", "[1,2]"]).0, Some(0));
        let (code, text) = shell(&["get", "keeper"]);
        assert!(code == Some(0) && text.contains("[1,2]") && text.contains("by hand"), "{text}");
        assert_eq!(shell(&["set", "keeper", "{"]).0, Some(2));
        assert_eq!(shell(&["clear", "keeper"]).0, Some(0));
        assert_eq!(shell(&["get", "keeper"]).0, Some(1));

        let gone = format!("/api/v1/jobs/{}/data", id());
        assert_eq!((api.get(&gone).await.0, api.put(&gone, &json!({ "data": 1 })).await.0, api.delete(&gone).await.0), (404, 404, 404));
        // With the job it goes.
        assert_eq!(api.put(&path, &json!({ "data": 1 })).await.0, 204);
        assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        assert_eq!(api.get(&path).await.0, 404);
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/purge"), &json!({})).await.0, 204);
        let again = json!({ "id": job, "name": "keeper", "properties": { "FullClassName": "it.Keeper" } });
        assert_eq!(api.post("/api/v1/jobs", &again).await.0, 201);
        assert_eq!(api.get(&path).await.0, 404, "nothing of the old one");
    });
}
