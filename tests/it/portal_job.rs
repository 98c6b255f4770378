//! The page of a job: its calendar, what its runs brought, why a time made no run, repairs with a rehearsal, versions, successors.

use crate::portal_refresh::{outline, refreshes};
use crate::support::api::Api;
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{hourly, journey, until};
use serde_json::{Value, json};

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";

async fn runs(api: &Api, job: &str) -> usize {
    api.get(&format!("/api/v1/runs?jobId={job}&limit=1000")).await.1["items"].as_array().expect("runs").len()
}

/// The first cells of the rows of a table.
async fn column(browser: &Browser, table: &str, cell: usize) -> Vec<String> {
    let script = "return [...document.querySelectorAll(`table[aria-label='${arguments[0]}'] tbody tr`)].map(row => row.cells[arguments[1]].innerText);";
    let cells = browser.run(script, json!([table, cell])).await;
    cells.as_array().expect("cells").iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn a_job_shows_its_calendar_its_results_its_versions_and_what_a_repair_would_do() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let made = api
            .post("/api/v1/jobs", &json!({ "name": EVIL, "jobType": "task", "task": { "handler": "it.after" }, "isEnabled": false }))
            .await;
        assert_eq!(made.0, 201, "{}", made.1);
        let job = json!({ "name": "hourly", "jobType": "task", "task": { "handler": "it.sum" }, "schedule": { "triggers": [{ "cron": hourly() }] },
            "successors": [{ "job": EVIL, "on": "always" }] });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let job = job["id"].as_str().expect("an id");
        let worker = api.worker("it.sum").await;
        for state in ["success", "success", "failed"] {
            let run = api.trigger(job).await;
            let order = api.heard(&worker, "tasks").await.expect("an order")[0].clone();
            let report = json!([{ "identity": run, "attempt": order["attempt"], "state": state }]);
            assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await.0, 200);
            until("the end", || async { (api.state(&run).await["state"] == state).then_some(()) }).await;
        }
        assert_eq!(api.put(&format!("/api/v1/jobs/{job}"), &json!({ "description": EVIL })).await.0, 200);

        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{job}", broker.url)).await;
        browser.click("The same as a list").await;
        browser.sees("however it ends").await;
        let tree = browser.run("return document.querySelector('.tree li a').textContent;", json!([])).await;
        assert_eq!(tree, EVIL);

        // The next full day has a time for each hour; one day of a year has 23 or 25.
        let day = "const cell = [...document.querySelectorAll('.calendar td')].find(td => td.previousSibling?.className.includes('today') \
            || (td.parentElement.previousSibling?.lastChild.className.includes('today') && !td.previousSibling)); cell?.querySelector('button').click(); \
            return cell ? cell.querySelector('b').textContent : null;";
        let count = browser.gives("the next day", day, json!([])).await;
        let count: usize = count.as_str().expect("a text").parse().expect("a number");
        assert!((23..=25).contains(&count), "{count}");
        let times = browser.gives("its times", "return document.querySelectorAll('.times time').length || null;", json!([])).await;
        assert_eq!(times, count);

        // What its runs brought, as a drawing, in words and as plots.
        let heat =
            "return document.querySelectorAll('.heat.bad').length === 1 && document.querySelectorAll('.heatmap .failed').length === 1;";
        browser.gives("an hour with a failure", heat, json!([])).await;
        browser.click("The same by day, in numbers").await;
        browser.sees("2 succeeded, 1 failed").await;
        browser.gives("a plot", "return Boolean(document.querySelector(\"figure[aria-label=Duration] canvas\"));", json!([])).await;

        browser.click("Explain this time").await;
        browser.sees("notPlanned").await;
        browser.sees("No trigger of version 2 of the job names").await;

        // Two versions differ in what was changed.
        assert_eq!(column(&browser, "Differences", 0).await, ["description"]);
        assert_eq!(column(&browser, "Differences", 2).await, [serde_json::to_string(EVIL).expect("JSON")]);

        // A repair first says what it would do, and does nothing.
        browser.click("Repeat failed runs (redrive)").await;
        browser.click("Show what it would repeat").await;
        browser.sees("Repeat this run").await;
        assert_eq!((column(&browser, "Runs that it would repeat", 0).await.len(), runs(&api, job).await), (1, 3));
        browser.click("Repeat this run").await;
        browser.sees("1 run is repeated.").await;
        assert_eq!(runs(&api, job).await, 4);
        browser.click("Make missing runs of a past time (backfill)").await;
        browser.click("Show what it would make").await;
        browser.sees("Make these").await;
        let would = column(&browser, "Runs that it would make", 0).await.len();
        assert!((23..=25).contains(&would), "{would}");
        assert_eq!(runs(&api, job).await, 4, "a rehearsal makes no run");
        // What is changed after the rehearsal must be rehearsed again.
        browser.fill("At most", "2").await;
        let is_offered = "return [...document.querySelectorAll('button')].some(button => button.textContent.startsWith('Make these'));";
        browser.gives("no offer", &is_offered.replace("return", "return !"), json!([])).await;
        browser.click("Show what it would make").await;
        browser.click("Make these 2 runs").await;
        browser.sees("2 runs are made.").await;
        assert_eq!(runs(&api, job).await, 6);

        let parts = "return [document.querySelectorAll('main img, main script').length, document.title];";
        assert_eq!(browser.run(parts, json!([])).await, json!([0, "hourly · Webloom"]));
        browser.gives("all six runs", "return document.querySelectorAll('table[aria-label=Runs] tbody tr').length === 6;", json!([])).await;
        let before = outline(&browser).await;
        refreshes(&browser).await;
        assert_eq!(outline(&browser).await, before);
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}
