//! The portal's pages refresh themselves. What a page shows when it opens must still be there after several refreshes.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, tar_gz};
use flate2::Compression;
use reqwest::Method;
use serde_json::{Value, json};

/// Refreshes that a page must survive.
const REFRESHES: u64 = 3;
/// The headings, the tables and the number of rows of each, in the order of the page. Text and numbers may change, these may not.
const OUTLINE: &str = "return [...document.querySelectorAll('main h1, main h2, main table, main dl')].map(e => \
    e.tagName === 'TABLE' ? `${e.getAttribute('aria-label')}: ${e.tBodies[0].rows.length} rows` : \
    e.tagName === 'DL' ? `${e.children.length > 0 ? 'facts' : 'no facts'}` : e.textContent);";
/// Whether the page has fetched this path at least this often: a count, once it has.
const FETCHED: &str = "const [path, least] = arguments; \
    const count = performance.getEntriesByType('resource').filter(e => new URL(e.name).pathname === path).length; \
    return count >= least ? count : null;";

pub async fn outline(browser: &Browser) -> Value {
    browser.run(OUTLINE, json!([])).await
}

/// Waits until the page has refreshed itself as often as it must survive. One more than that: its answer shows that the one before it was drawn.
pub async fn refreshes(browser: &Browser, path: &str) {
    let start = browser.run(FETCHED, json!([path, 0])).await.as_u64().expect("a number");
    browser.gives(&format!("{REFRESHES} refreshes of {path}"), FETCHED, json!([path, start + REFRESHES + 1])).await;
}

#[test]
fn every_page_keeps_what_it_shows_when_it_refreshes() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "hourly", "jobType": "task", "group": "night", "task": { "handler": "it.sum", "lease": 600_000 },
            "schedule": { "triggers": [{ "cron": "0 * * * *" }] } });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let job = job["id"].as_str().expect("an id").to_owned();
        api.worker("it.sum").await;
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": id() })).await.0, 204);
        let run = api.trigger(&job).await;
        // A second version, so that the table of changes has rows.
        assert_eq!(api.put(&format!("/api/v1/jobs/{job}"), &json!({ "description": "changed" })).await.0, 200);

        let package = api.request(Method::POST, "/api/v1/packages?name=a.tar.gz").body(tar_gz("run", b"true", Compression::fast()));
        assert_eq!(api.send(package).await.0, 200);

        let browser = Browser::start().await;
        for (page, heading, fetched) in [
            ("/".to_owned(), "Runs", "/api/v1/runs".to_owned()),
            ("/jobs".to_owned(), "Jobs", "/api/v1/jobs".to_owned()),
            (format!("/jobs/{job}"), "Versions", format!("/api/v1/jobs/{job}/next")),
            ("/runs".to_owned(), "Runs", "/api/v1/runs".to_owned()),
            (format!("/runs/{run}"), "Status explained", format!("/api/v1/runs/{run}/why")),
            ("/workers".to_owned(), "Workers", "/api/v1/workers".to_owned()),
            ("/nodes".to_owned(), "Nodes", "/api/v1/nodes".to_owned()),
            ("/groups".to_owned(), "Groups", "/api/v1/groups".to_owned()),
            ("/alerts".to_owned(), "Channels", "/api/v1/alerts".to_owned()),
            ("/packages".to_owned(), "Packages", "/api/v1/packages".to_owned()),
            ("/brokers".to_owned(), "Settings in force", "/api/v1/brokers".to_owned()),
        ] {
            browser.open("about:blank").await;
            browser.open(&format!("{}/#{page}", broker.url)).await;
            let opened = "return [...document.querySelectorAll('main h1, main h2')].some(e => e.textContent === arguments[0]);";
            browser.gives(&format!("the heading {heading}"), opened, json!([heading])).await;
            let before = outline(&browser).await;
            assert!(before.as_array().is_some_and(|parts| parts.len() > 1), "{page} shows nothing: {before}");
            refreshes(&browser, &fetched).await;
            assert_eq!(outline(&browser).await, before, "{page}");
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
