//! The lists of the portal: sorted by a column, filtered, walked through by keys, and changed several rows at a time.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";
/// The first words of the rows.
const NAMES: &str = "return [...document.querySelectorAll('main tbody tr')].map(row => row.querySelector('a')?.textContent);";
/// Presses a key where the focus is.
const PRESS: &str = "(document.activeElement ?? document.body).dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], bubbles: true, cancelable: true }));";

/// Waits until the rows are these.
async fn lists(browser: &Browser, wanted: &[&str]) {
    let same = format!("return JSON.stringify((() => {{ {NAMES} }})()) === JSON.stringify(arguments[0]);");
    browser.gives(&format!("the rows {wanted:?}"), &same, json!([wanted])).await;
}

/// Chooses a row by the text of its link.
async fn choose(browser: &Browser, name: &str) {
    let box_of = "const row = [...document.querySelectorAll('main tbody tr')].find(row => row.querySelector('a')?.textContent === arguments[0]); \
        row?.querySelector('input.choose').click(); return Boolean(row);";
    browser.gives(&format!("the row {name}"), box_of, json!([name])).await;
}

/// The results of what was done, by name.
async fn results(browser: &Browser) -> Vec<[String; 2]> {
    let rows = "const rows = [...document.querySelectorAll('dialog.results tbody tr')]; \
        return rows.length > 0 && rows.map(row => [...row.cells].map(cell => cell.textContent));";
    let found = browser.gives("results", rows, json!([])).await;
    browser.click("Close").await;
    serde_json::from_value(found).expect("rows of two cells")
}

async fn job(api: &Api, name: &str, group: &str) -> String {
    let job =
        json!({ "name": name, "jobType": "task", "group": group, "task": { "handler": "it.wait", "lease": 600_000, "cancelGrace": 200 } });
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

#[test]
fn several_jobs_are_changed_at_once_with_a_result_for_each() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        for name in ["a", "b", EVIL] {
            job(&api, name, "night").await;
        }
        let last = job(&api, "d", "night").await;
        let enabled = async || -> Vec<String> {
            let (_, jobs) = api.get("/api/v1/jobs?enabled=true&sort=name").await;
            jobs["items"].as_array().expect("items").iter().map(|job| job["name"].as_str().expect("a name").to_owned()).collect()
        };
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs", broker.url)).await;
        lists(&browser, &[EVIL, "a", "b", "d"]).await;
        browser.click("Name ▲").await;
        lists(&browser, &["d", "b", "a", EVIL]).await;
        assert_eq!(browser.run("return location.hash;", json!([])).await, "#/jobs?sort=-name");

        // By keys: to the second row, choose it, to the third, choose it, and open it.
        for key in ["j", "j", "x", "j", "x"] {
            browser.run(PRESS, json!([key])).await;
        }
        browser.sees("2 jobs chosen:").await;
        browser.click("Disable …").await;
        browser.fill("Reason", "a holiday").await;
        browser.click("Disable").await;
        assert_eq!(results(&browser).await, [["b", "done"], ["a", "done"]]);
        assert_eq!(enabled().await, [EVIL, "d"]);
        let none = "return document.querySelector('.several').hidden && !document.querySelector('input.choose:checked');";
        browser.gives("nothing chosen", none, json!([])).await;
        // What is deleted is told with the version that the list shows.
        let fresh = "return document.querySelectorAll('main .state.disabled').length === 2;";
        browser.gives("two disabled jobs", fresh, json!([])).await;

        // One of two cannot be done, and says why; the other is done. What failed stays chosen.
        choose(&browser, "a").await;
        choose(&browser, EVIL).await;
        choose(&browser, "d").await;
        browser.click("Delete …").await;
        let path = format!("/api/v1/jobs/{last}");
        assert_eq!(api.put(&path, &json!({ "description": "changed meanwhile" })).await.0, 200);
        let locked = "return document.querySelector('dialog[open] button.danger').disabled;";
        assert_eq!(browser.run(locked, json!([])).await, true, "the number is to be typed first");
        browser.fill("To confirm", "3").await;
        browser.click("Delete").await;
        let told = results(&browser).await;
        assert_eq!((&told[1], &told[2]), (&["a".to_owned(), "done".to_owned()], &[EVIL.to_owned(), "done".to_owned()]), "{told:?}");
        assert!(told[0][0] == "d" && told[0][1].contains("version"), "{told:?}");
        lists(&browser, &["d", "b"]).await;
        browser.sees("1 job chosen:").await;
        let harm = "return [document.querySelectorAll('main img, dialog img').length, document.title];";
        assert_eq!(browser.run(harm, json!([])).await, json!([0, "Jobs · Webloom"]));
        browser.run(PRESS, json!(["?"])).await;
        browser.sees("The next and the previous row of a list").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn runs_nodes_and_workers_are_sorted_filtered_and_ordered_together() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        for (node, cpu) in [("oslo", 40), ("bern", 90), ("rome", 5)] {
            let beat = json!({ "nodeId": id(), "name": node, "cpu": cpu, "freeMemory": 100, "memory": 4000, "processorCount": 2, "maxProcessCount": 4 });
            assert_eq!(api.post("/node/heartbeat", &beat).await.0, 204);
        }
        for (name, class, slots) in [("w-10", "it.none", 1), ("w-9", "it.none", 3), ("other", "it.wait", 2)] {
            let worker = json!({ "classNames": [class], "worker": { "name": name, "slots": slots, "tags": [name] } });
            assert_eq!(api.post("/api/v1/workers", &worker).await.0, 200);
        }
        let (day, night) = (job(&api, "day", "day").await, job(&api, "night", "night").await);
        let runs = [api.trigger(&day).await, api.trigger(&night).await];
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/nodes?sort=-cpu", broker.url)).await;
        lists(&browser, &["bern", "oslo", "rome"]).await;
        browser.click("Node").await;
        lists(&browser, &["bern", "oslo", "rome"]).await;
        browser.click("Node ▲").await;
        lists(&browser, &["rome", "oslo", "bern"]).await;
        // A filter keeps the order.
        browser.fill_in("State", "online").await;
        browser.gives("both in the address", "return location.hash === '#/nodes?sort=-name&state=online';", json!([])).await;
        lists(&browser, &["rome", "oslo", "bern"]).await;
        choose(&browser, "bern").await;
        choose(&browser, "rome").await;
        browser.click("Drain …").await;
        browser.click("Drain").await;
        assert_eq!(results(&browser).await, [["rome", "done"], ["bern", "done"]]);
        let (_, nodes) = api.get("/api/v1/nodes").await;
        let drained = nodes["items"].as_array().expect("items").iter().filter(|node| node["isDraining"] == true).count();
        assert_eq!(drained, 2, "{nodes}");

        // Numbers in names sort as numbers.
        browser.open(&format!("{}/#/workers?sort=name", broker.url)).await;
        lists(&browser, &["other", "w-9", "w-10"]).await;
        browser.click("Slots").await;
        lists(&browser, &["w-10", "other", "w-9"]).await;
        browser.fill("Part of name", "W-").await;
        browser.click("Filter").await;
        lists(&browser, &["w-10", "w-9"]).await;
        let all = "const all = document.querySelector('input.choose-all'); all?.click(); return Boolean(all);";
        browser.gives("the box of the head", all, json!([])).await;
        browser.sees("2 workers chosen:").await;
        browser.click("Disable …").await;
        browser.click("Disable").await;
        assert_eq!(results(&browser).await.len(), 2);
        until("two disabled workers", || async {
            let (_, workers) = api.get("/api/v1/workers?state=disabled").await;
            (workers["items"].as_array().map(Vec::len) == Some(2)).then_some(())
        })
        .await;

        browser.open(&format!("{}/#/runs?sort=creationTime", broker.url)).await;
        let keys = "return JSON.stringify([...document.querySelectorAll('main tbody tr')].map(row => row.dataset.key)) === JSON.stringify(arguments[0]);";
        browser.gives("the oldest first", keys, json!([runs])).await;
        browser.fill_in("Group", "night").await;
        browser.gives("the runs of one group", keys, json!([[&runs[1]]])).await;
        browser.gives("the box of the head", all, json!([])).await;
        browser.click("Stop …").await;
        browser.fill("To confirm", "1").await;
        browser.click("Stop").await;
        assert_eq!(results(&browser).await[0][1], "done");
        until("a stopped run", || async { (api.state(&runs[1]).await["state"] == "stopped").then_some(()) }).await;
        assert_ne!(api.state(&runs[0]).await["state"], "stopped");
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// `Cancel` of what is done with several: calls that were sent are carried out, the others are not, and the page shows both.
#[test]
fn what_is_done_with_several_jobs_can_be_cancelled() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let names = ["a", "b", "c", "d", "e", "f"];
        for name in names {
            job(&api, name, "night").await;
        }
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs", broker.url)).await;
        lists(&browser, &names).await;
        for name in names {
            choose(&browser, name).await;
        }
        let hold = "const real = window.fetch; window.held = []; window.fetch = async (path, options) => { \
            if (String(path).endsWith('/disable')) await new Promise(go => window.held.push(go)); \
            return real(path, options); };";
        browser.run(hold, json!([])).await;
        browser.click("Disable …").await;
        browser.click("Disable").await;
        browser.gives("four calls", "return window.held.length === 4;", json!([])).await;
        browser.click("Cancel").await;
        browser.run("window.held.forEach(go => go());", json!([])).await;
        browser.sees("4 of 6 done, 2 failed.").await;
        let told = results(&browser).await;
        assert!(told[4][1].contains("cancelled") && told[5][1].contains("cancelled"), "{told:?}");
        let (_, jobs) = api.get("/api/v1/jobs?enabled=true&sort=name").await;
        assert_eq!(jobs["items"].as_array().map(Vec::len), Some(2), "{jobs}");
    });
}

/// The overview of a token that is limited to groups: its runs, and a word on what it does not see.
#[test]
fn a_limited_token_has_an_overview() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        let night = job(&boss, "nightly", "night").await;
        boss.post(&format!("/api/v1/jobs/{night}/trigger"), &json!({})).await;
        let (status, token) = boss.post("/api/v1/tokens", &json!({ "name": "n", "role": "readonly", "groups": ["night"] })).await;
        assert_eq!(status, 201, "{token}");
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        browser.sees("This broker needs a token").await;
        browser.fill("Token", token["text"].as_str().expect("a text")).await;
        browser.click("Sign in").await;
        browser.sees("This token is limited to groups of jobs.").await;
        lists(&browser, &[&short(&boss).await]).await;
    });
}

/// The only run, as the lists write its id.
async fn short(api: &Api) -> String {
    let (_, runs) = api.get("/api/v1/runs").await;
    let identity = runs["items"][0]["identity"].as_str().expect("an identity");
    format!("{}…{}", &identity[..4], &identity[26..])
}

/// A line that is removed from a form is something that is not saved.
#[test]
fn a_form_without_one_of_its_lines_is_not_left_unasked() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let id = job(&api, "walk", "night").await;
        let path = format!("/api/v1/jobs/{id}");
        let plan: Value = json!({ "schedule": { "triggers": [{ "every": 3_600_000 }] } });
        assert_eq!(api.put(&path, &plan).await.0, 200);
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{id}/edit", broker.url)).await;
        browser.sees("It would run next").await;
        browser.click("Remove").await;
        browser.sees("By hand only, until you add a trigger.").await;
        let asked = "window.asked = 0; window.confirm = () => { window.asked += 1; return false; }; location.hash = '/runs';";
        browser.run(asked, json!([])).await;
        browser.gives("a question", "return window.asked === 1 && location.hash.endsWith('/edit');", json!([])).await;
    });
}
