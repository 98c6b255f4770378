//! The requests of a run on its page: pending ones are found and discarded, failed ones are queued again.

use crate::failed_requests::{drain, next_block, push, report};
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

async fn rows(browser: &Browser) -> Vec<String> {
    let script = "return [...document.querySelectorAll('details[open] tbody tr')].map(row => row.cells[0].innerText);";
    let rows = browser.run(script, json!([])).await;
    rows.as_array().expect("rows").iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn a_person_discards_pending_requests_and_queues_them_again_in_a_new_run() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.PortalRequests", &json!({ "BlockSize": "2", "Delay": "0", "Robots": "ignore" })).await;
        push(&api, &run, &["http://a.test/200-1", "http://a.test/cal/1", "http://b.test/cal/2", "http://b.test/200-2"]).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}#/runs/{run}", broker.url)).await;
        browser.click("Pending requests").await;
        browser.sees("http://b.test/200-2").await;
        assert_eq!(rows(&browser).await.len(), 4);
        browser.fill("Part of the URL", "/cal/").await;
        browser.fill("Site", "b.test").await;
        browser.click("Show").await;
        until("one row", || async { (rows(&browser).await == ["http://b.test/cal/2"]).then_some(()) }).await;
        browser.fill("Minimum depth", "1").await;
        browser.click("Show").await;
        browser.sees("No pending request matches.").await;
        // The action is for what the filter says, not for what is shown.
        browser.fill("Minimum depth", "").await;
        browser.fill("Site", "").await;
        browser.click("Discard …").await;
        browser.sees("Those with url /cal/").await;
        browser.click("Discard").await;
        browser.sees("2 of 2 pending requests are discarded.").await;
        browser.sees("No pending request matches.").await;
        assert_eq!(api.state(&run).await["error"], 2);
        browser.click("Pending requests").await;

        // The run ends; then a new one begins with them.
        let node = id();
        for _ in 0..2 {
            let block = next_block(&api, &node).await;
            report(&api, &node, &block).await;
        }
        drain(&api, &run).await;
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        browser.sees("Run again …").await;
        browser.click("Failed requests").await;
        browser.sees("http://a.test/cal/1").await;
        browser.fill_in("Error", "timeout").await;
        browser.click("Show").await;
        browser.sees("No failed request matches.").await;
        browser.fill_in("Error", "discarded").await;
        browser.click("Show").await;
        until("the rows", || async { (rows(&browser).await.len() == 2).then_some(()) }).await;
        browser.click("Queue again …").await;
        browser.sees("a new run of its job begins with them").await;
        browser.click("Queue again").await;
        browser.sees("2 of 2 failed requests are queued again.").await;
        let (_, runs) = api.get("/api/v1/runs?limit=9").await;
        let new = runs["items"].as_array().expect("runs").iter().find(|one| one["retryOf"] == *run).expect("a new run").clone();
        let new = new["identity"].as_str().expect("an identity");
        browser.sees(new).await;
        browser.open(&format!("{}#/runs/{run}", broker.url)).await;
        browser.click("Failed requests").await;
        let link = "return document.querySelector(`details[open] tbody a[href='#/runs/${arguments[0]}']`) !== null;";
        browser.gives("a link to the new run", link, json!([new])).await;
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}
