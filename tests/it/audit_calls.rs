//! The audit: every call that changes something, with who made it, on what, and its result; nothing secret.

use crate::support::api::Api;
use crate::support::browser::Browser;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::shell::{command, ended};
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The audited calls of this query, once there are so many with a result.
async fn calls(boss: &Api, query: &str, count: usize) -> Vec<Value> {
    until("audited calls", || async {
        let (status, page) = boss.get(&format!("/api/v1/audit?{query}")).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().expect("items").clone();
        (items.len() == count && items.iter().all(|item| !item["status"].is_null())).then_some(items)
    })
    .await
}

#[test]
fn every_change_says_who_made_it_and_how_it_ended() {
    journey(async {
        let mut broker = Broker::start(&["--token", "boss-token", "--token", "worker:work-token"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let (_, made) = boss.post("/api/v1/tokens", &json!({ "name": "ed", "role": "editor" })).await;
        let editor = boss.with_token(made["text"].as_str().expect("a text"));
        let job = json!({ "name": "audited", "jobType": "task", "task": { "handler": "it.nobody" }, "description": "the-value" });
        let (_, job) = editor.post("/api/v1/jobs", &job).await;
        let id = job["id"].as_str().expect("an id");
        let path = format!("/api/v1/jobs/{id}");
        assert_eq!(editor.post(&format!("{path}/trigger"), &json!({ "arguments": "the-value" })).await.0, 202);
        assert_eq!(editor.get(&format!("{path}/trigger")).await.0, 202);
        assert_eq!(editor.put(&path, &json!({ "cron": "nonsense" })).await.0, 422);
        // Not audited: what reads, what a worker does for its work, what was not admitted.
        assert_eq!(editor.get(&path).await.0, 200);
        assert_eq!(boss.with_token("work-token").post("/api/v1/workers", &json!({ "classNames": ["a.B"] })).await.0, 200);
        assert_eq!(editor.delete("/api/v1/tokens/ed").await.0, 403);
        assert_eq!(boss.delete("/api/v1/tokens/ed").await.0, 204);

        // Nor what makes a run, which says who made it.
        let all = calls(&boss, "", 4).await;
        let of = |call: &Value| {
            (call["operation"].as_str().map(str::to_owned), call["caller"].as_str().map(str::to_owned), call["status"].as_u64())
        };
        let expected = [("revokeToken", "admin", 204), ("updateJob", "ed", 422), ("createJob", "ed", 201), ("createToken", "admin", 201)];
        let expected = expected.map(|(operation, caller, status)| (Some(operation.to_owned()), Some(caller.to_owned()), Some(status)));
        assert_eq!(all.iter().map(of).collect::<Vec<_>>(), expected);
        let created = &all[2];
        assert_eq!((&created["kind"], &created["object"], &created["role"]), (&json!("job"), &json!(id), &json!("editor")), "{created}");
        assert_eq!((&created["members"], &created["address"]), (&json!("description, jobType, name, task"), &json!("127.0.0.1")));
        assert_eq!((&all[0]["object"], &all[0]["kind"]), (&json!("ed"), &json!("token")));
        let text = serde_json::to_string(&all).expect("JSON");
        assert!(!text.contains("the-value") && !text.contains("wl_") && !text.contains("boss-token"), "{text}");

        // Filters and pages.
        for (query, count) in [
            ("caller=ed", 2),
            ("kind=token", 2),
            ("operation=createJob", 1),
            ("kind=job&object=nothing", 0),
            ("to=2020-01-01T00:00:00Z", 0),
            ("from=2020-01-01T00:00:00Z&to=2120-01-01T00:00:00Z", 4),
            ("from=2120-01-01T00:00:00Z", 0),
        ] {
            calls(&boss, query, count).await;
        }
        let (_, first) = boss.get("/api/v1/audit?limit=3").await;
        let next = first["nextCursor"].as_str().expect("a cursor");
        assert_eq!(calls(&boss, &format!("limit=3&cursor={next}"), 1).await[..], all[3..]);
        let (status, _) = boss.with_token("work-token").get("/api/v1/audit").await;
        assert_eq!(status, 403);

        // It is stored, and the command line shows it.
        broker.kill_and_restart();
        let boss = Api::new(&broker.url).with_token("boss-token");
        assert_eq!(calls(&boss, "", 4).await, all);
        let args = ["audit", "--kind", "job", "--caller", "ed", "--broker", &broker.url, "--token", "boss-token"];
        let shown = std::process::Command::new(WEBLOOM).args(args).output().expect("the command line");
        let text = String::from_utf8_lossy(&shown.stdout);
        assert_eq!(text.lines().filter(|line| line.contains("Job")).count(), 2, "{text}");
        // An object goes by its name, its id, or a part of it.
        for object in ["audited", id, &id[24..], &id[..10]] {
            let mut command = command(&broker.url, &["audit", "--object", object, "-o", "wide", "--no-headers"]);
            let shown = ended({
                command.env("WEBLOOM_TOKEN", "boss-token");
                command
            })
            .ok();
            assert!(shown.lines().count() == 2 && shown.lines().all(|line| line.contains(id)), "{object}: {shown}");
        }
    });
}

#[test]
fn the_page_lists_and_filters_them() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        assert_eq!(api.post("/api/v1/groups", &json!({ "name": "<i>evil" })).await.0, 201);
        assert_eq!(api.delete("/api/v1/groups/%3Ci%3Eevil").await.0, 204);
        calls(&api, "", 2).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/audit", broker.url)).await;
        browser.sees("createGroup").await;
        browser.sees("<i>evil").await;
        browser.fill("Operation", "deleteGroup").await;
        browser.click("Filter").await;
        browser.gives("one call", "return document.querySelectorAll('tbody tr').length === 1;", json!([])).await;
        browser.open(&format!("{}/#/audit?from=2099-01-01T00:00:00", broker.url)).await;
        browser.sees("No call matches").await;
        browser.open(&format!("{}/#/audit?from=2020-01-01T00:00:00&to=2099-01-01T00:00:00", broker.url)).await;
        browser.gives("both calls", "return document.querySelectorAll('tbody tr').length === 2;", json!([])).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
