//! Buttons of the portal that no other journey clicks: each does what it says.

use crate::portal_run::{KEEP_SAVED, saved};
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, tar_gz, until};
use flate2::Compression;
use reqwest::Method;
use serde_json::{Value, json};

async fn open(broker: &Broker, browser: &Browser, page: &str) {
    browser.open(&format!("{}/#{page}", broker.url)).await;
}

async fn job(api: &Api, job: Value) -> String {
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

/// Waits until a member of what the API answers has this value.
async fn becomes(api: &Api, path: &str, member: &str, value: Value) {
    until(&format!("{path} with {member} {value}"), || async { (api.get(path).await.1[member] == value).then_some(()) }).await;
}

#[test]
fn groups_deleted_jobs_and_peers_that_are_gone_are_managed() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "1500", "--node-offline", "1500", "--node-heartbeat", "200"], "");
        let api = Api::new(&broker.url);
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": id(), "name": "gone" })).await.0, 204);
        api.worker("it.gone").await;
        let browser = Browser::start().await;

        open(&broker, &browser, "/groups").await;
        browser.click("New group …").await;
        browser.fill("Name", "day").await;
        browser.click("Create").await;
        browser.sees("The group day is there.").await;
        let job = job(&api, json!({ "name": "old", "jobType": "task", "group": "day", "task": { "handler": "it.none" } })).await;
        let path = format!("/api/v1/jobs/{job}");
        browser.click("Disable all …").await;
        browser.fill("Reason", "a pause").await;
        browser.click("Disable all").await;
        becomes(&api, &path, "disabledReason", json!("a pause")).await;
        browser.click("Enable all …").await;
        browser.click("Enable all").await;
        becomes(&api, &path, "isEnabled", json!(true)).await;

        open(&broker, &browser, "/jobs").await;
        let choose = "const box = document.querySelector('main input.choose'); box?.click(); return Boolean(box);";
        browser.gives("a row", choose, json!([])).await;
        browser.sees("1 job chosen:").await;
        browser.click("None").await;
        let none = "return document.querySelector('.several').hidden && !document.querySelector('input.choose:checked');";
        browser.gives("nothing chosen", none, json!([])).await;
        assert_eq!(api.delete(&path).await.0, 204);
        open(&broker, &browser, "/jobs?enabled=deleted").await;
        browser.click("Restore").await;
        browser.sees("The deletion is taken back.").await;
        browser.click("Restore").await;
        browser.sees("old is there again, and disabled.").await;
        assert_eq!(api.delete(&path).await.0, 204);
        open(&broker, &browser, "/jobs").await;
        open(&broker, &browser, "/jobs?enabled=deleted").await;
        browser.click("Purge …").await;
        browser.fill("To confirm", "old").await;
        browser.click("Purge").await;
        browser.sees("old is gone.").await;
        assert_eq!(api.get("/api/v1/jobs?deleted=true").await.1["items"], json!([]));

        open(&broker, &browser, "/nodes").await;
        browser.click("Remove …").await;
        browser.click("Remove").await;
        browser.sees("is removed.").await;
        assert_eq!(api.get("/api/v1/nodes").await.1["items"], json!([]));
        open(&broker, &browser, "/workers").await;
        browser.click("Forget …").await;
        browser.click("Forget").await;
        browser.sees("is forgotten.").await;
        assert_eq!(api.get("/api/v1/workers").await.1["items"], json!([]));

        assert_eq!(api.post("/api/v1/sites/shop.test/hold", &json!({ "for": 600_000 })).await.0, 200);
        open(&broker, &browser, "/sites").await;
        browser.click("Hold longer …").await;
        browser.choose("For how long").await;
        browser.fill_in("For how long", "1 week").await;
        browser.click("Hold").await;
        browser.sees("The site shop.test is held.").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn fires_are_explained_actors_unfolded_and_changes_saved_over_others() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let often = json!({ "name": "often", "jobType": "task", "task": { "handler": "it.none", "noWorker": "wait" },
            "policies": { "overlap": "allow" }, "schedule": { "triggers": [{ "every": 100 }], "maxFires": 20 } });
        let job = job(&api, often).await;
        let browser = Browser::start().await;
        let path = format!("/api/v1/jobs/{job}");
        until("twenty fires", || async { (api.get(&path).await.1["nextFire"].is_null()).then_some(()) }).await;

        open(&broker, &browser, "/jobs/new").await;
        browser.sees("Create the job").await;
        assert!(!browser.text().await.contains("undefined"));
        let lines = "return document.querySelectorAll('main .line-item').length;";
        let before = browser.run(lines, json!([])).await.as_u64().expect("a number");
        browser.click("Add a trigger").await;
        assert_eq!(browser.run(lines, json!([])).await, json!(before + 1));
        browser.click("Remove").await;
        assert_eq!(browser.run(lines, json!([])).await, json!(before));
        // The form has changed, so leaving it is asked for.
        browser.run("window.confirm = () => true;", json!([])).await;
        open(&broker, &browser, &format!("/jobs/{job}")).await;
        browser.click("Older").await;
        let rows =
            "const rows = document.querySelectorAll('table[aria-label=\"Fire history\"] tbody tr').length; return rows > 15 && rows;";
        let rows = browser.gives("more than a page", rows, json!([])).await;
        browser.click("Why?").await;
        let asked = "return [...document.querySelectorAll('table[aria-label=\"Fire history\"] button')].length === arguments[0] - 1;";
        browser.gives("a reason in place of a button", asked, json!([rows])).await;

        open(&broker, &browser, "/actors").await;
        // Those of jobs go when they are idle.
        let fold = "const folds = [...document.querySelectorAll('main button[aria-expanded=\"false\"]')]; \
            const fold = folds.find((fold) => fold.textContent.includes('runs of tasks')); fold?.click(); return Boolean(fold);";
        browser.gives("the folded runs of tasks", fold, json!([])).await;
        let unfolded = "return Boolean(document.querySelector('main button[aria-expanded=\"true\"]')) && document.querySelectorAll('main tr.grandchild').length;";
        browser.gives("its actors", unfolded, json!([])).await;
        browser.run("document.querySelector('main button[aria-expanded=\"true\"]').click();", json!([])).await;
        let folded =
            "return !document.querySelector('main button[aria-expanded=\"true\"]') && !document.querySelector('main tr.grandchild');";
        browser.gives("no actors of it", folded, json!([])).await;

        open(&broker, &browser, &format!("/jobs/{job}/edit")).await;
        browser.fill("Description", "mine").await;
        assert_eq!(api.put(&path, &json!({ "description": "theirs" })).await.0, 200);
        browser.click("Save").await;
        browser.sees("Another change of this job came first").await;
        assert_eq!(api.get(&path).await.1["description"], "theirs");
        browser.click("Save mine over it").await;
        becomes(&api, &path, "description", json!("mine")).await;

        let parts = json!({ "name": "parts", "jobType": "task", "task": { "handler": "it.part", "strategy": "shard", "shards": 2 } });
        let parts = self::job(&api, parts).await;
        let worker = api.worker("it.part").await;
        let run = api.trigger(&parts).await;
        let mut done = 0;
        while done < 2 {
            for order in api.heard(&worker, "tasks").await.expect("orders").as_array().expect("a list") {
                let mut report = json!({ "state": "success", "result": { "part": done } });
                for member in ["identity", "attempt", "instance"].into_iter().filter(|member| order.get(member).is_some()) {
                    report[member] = order[member].clone();
                }
                assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &json!([report])).await.0, 200);
                done += 1;
            }
        }
        becomes(&api, &format!("/api/v1/runs/{run}"), "state", json!("success")).await;
        open(&broker, &browser, &format!("/runs/{run}")).await;
        browser.sees("Save as JSON").await;
        browser.run(KEEP_SAVED, json!([])).await;
        let lines = saved(&browser, "Save the results of the instances as JSON Lines").await;
        let results: Vec<Value> =
            lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON")["result"]["part"].clone()).collect();
        assert_eq!(results.len(), 2, "{lines}");
        assert!(results.contains(&json!(0)) && results.contains(&json!(1)), "{lines}");

        let package = api.request(Method::POST, "/api/v1/packages?name=a.tar.gz").body(tar_gz("run", b"true", Compression::fast()));
        assert_eq!(api.send(package).await.0, 200);
        open(&broker, &browser, "/packages").await;
        browser.click("Copy SHA-256").await;
        let told =
            "const text = document.getElementById('told').textContent; return text.includes('copied') || text.includes('does not allow');";
        browser.gives("what became of it", told, json!([])).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
