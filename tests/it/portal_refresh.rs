//! The portal's pages refresh themselves. What a page shows when it opens must still be there after several refreshes.

use crate::support::api::{Api, id};
use crate::support::axe::Axe;
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{hourly, journey, journey_within, tar_gz};
use flate2::Compression;
use reqwest::Method;
use serde_json::{Value, json};
use std::time::Duration;

/// Refreshes that a page must survive.
const REFRESHES: u64 = 3;
/// The headings, the tables and the number of rows of each, in the order of the page. Text and numbers may change, these may not.
const OUTLINE: &str = "return [...document.querySelectorAll('main h1, main h2, main table, main dl')].map(e => \
    e.tagName === 'TABLE' ? `${e.getAttribute('aria-label')}: ${e.tBodies[0].rows.length} rows` : \
    e.tagName === 'DL' ? `${e.children.length > 0 ? 'facts' : 'no facts'}` : e.textContent);";
/// How often the page has read what it shows, from the broker or from the live connection.
pub const LOOKS: &str = "return Number(document.getElementById('note').dataset.looks ?? 0);";

/// Shortens the pauses between refreshes, so that a page with long pauses is looked at as often in less time.
const HURRY: &str =
    "const usual = window.setTimeout; window.setTimeout = (work, ms, ...more) => usual(work, ms > 900 && ms < 5000 ? 200 : ms, ...more);";
/// The addresses of the menu.
const MENU: &str = "return [...document.querySelectorAll('#menu a')].map(e => e.getAttribute('href').slice(1));";

pub async fn outline(browser: &Browser) -> Value {
    browser.run(OUTLINE, json!([])).await
}

/// Waits until the page has refreshed itself as often as it must survive. One more than that: its answer shows that the one before it was drawn.
pub async fn refreshes(browser: &Browser) {
    let start = browser.run(LOOKS, json!([])).await.as_u64().expect("a number");
    let later = format!("return (() => {{ {LOOKS} }})() > arguments[0];");
    browser.gives(&format!("{REFRESHES} refreshes"), &later, json!([start + REFRESHES])).await;
}

#[test]
fn every_page_keeps_what_it_shows_when_it_refreshes() {
    // It opens more than twenty pages, three times each.
    journey_within(Duration::from_secs(480), async {
        let broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "hourly", "jobType": "task", "group": "night", "task": { "handler": "it.sum", "lease": 600_000 },
            "schedule": { "triggers": [{ "cron": hourly() }] } });
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

        let worker = api.get("/api/v1/workers").await.1["items"][0]["id"].as_str().expect("an id").to_owned();
        let node = api.get("/api/v1/nodes").await.1["items"][0]["nodeId"].as_str().expect("an id").to_owned();
        assert_eq!(api.post("/api/v1/sites/shop.test/hold", &json!({ "for": 600_000 })).await.0, 200);

        let (browser, axe) = (Browser::start().await, Axe::find());
        for (page, heading) in [
            ("/".to_owned(), "Runs"),
            ("/jobs".to_owned(), "Jobs"),
            (format!("/jobs/{job}"), "Versions"),
            ("/runs".to_owned(), "Runs"),
            (format!("/runs/{run}"), "Status explained"),
            ("/workers".to_owned(), "Workers"),
            (format!("/workers/{worker}"), "Connections"),
            ("/nodes".to_owned(), "Nodes"),
            (format!("/nodes/{node}"), "Connections"),
            ("/sites".to_owned(), "Sites"),
            ("/groups".to_owned(), "Groups"),
            ("/alerts".to_owned(), "Channels"),
            ("/packages".to_owned(), "Packages"),
            ("/brokers".to_owned(), "Settings in force"),
            ("/actors".to_owned(), "Actors"),
            ("/actors/scheduler/scheduler".to_owned(), "Restarts"),
        ] {
            browser.open_anew(&broker.url, &page).await;
            browser.run(HURRY, json!([])).await;
            let opened = "return [...document.querySelectorAll('main h1, main h2')].some(e => e.textContent === arguments[0]);";
            browser.gives(&format!("the heading {heading}"), opened, json!([heading])).await;
            let before = outline(&browser).await;
            assert!(before.as_array().is_some_and(|parts| parts.len() > 1), "{page} shows nothing: {before}");
            refreshes(&browser).await;
            assert_eq!(outline(&browser).await, before, "{page}");
            if let Some(axe) = &axe {
                axe.check(&browser, &page).await;
            }
        }
        // What does not refresh itself, or is seen by other journeys.
        if let Some(axe) = &axe {
            for (page, text) in [
                ("/jobs/new".to_owned(), "Create the job"),
                (format!("/jobs/{job}/edit"), "It would run next"),
                ("/tokens".to_owned(), "Tokens"),
                ("/audit".to_owned(), "Audit"),
                ("/actors?kind=worker".to_owned(), "Actors"),
                ("/nothing".to_owned(), "Nothing is at this address"),
            ] {
                browser.open_anew(&broker.url, &page).await;
                let shown = "return document.querySelector('main').innerText.includes(arguments[0]);";
                browser.gives(text, shown, json!([text])).await;
                axe.check(&browser, &page).await;
            }
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// The menu is read from the page, so that a page that is added to it is opened here as well.
#[test]
fn every_page_of_the_menu_opens_without_an_error() {
    journey(async {
        let broker = Broker::start(&[], "");
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        let menu = browser.gives("the menu", MENU, json!([])).await;
        let menu = menu.as_array().expect("addresses").clone();
        assert!(menu.len() > 10, "{menu:?}");
        let mut titles = Vec::new();
        for page in &menu {
            let page = page.as_str().expect("an address");
            browser.open_anew(&broker.url, page).await;
            browser.run(HURRY, json!([])).await;
            browser.gives(&format!("a heading on {page}"), "return document.querySelector('main h1')?.textContent;", json!([])).await;
            let first = browser.run(LOOKS, json!([])).await;
            let more = format!("return (() => {{ {LOOKS} }})() > arguments[0];");
            browser.gives(&format!("a refresh of {page}"), &more, json!([first])).await;
            let state = "return [document.title, document.querySelector('#menu a[aria-current]')?.getAttribute('href'), \
                document.querySelector('main .error:not([hidden])')?.textContent ?? ''];";
            let found = browser.run(state, json!([])).await;
            assert_eq!((&found[1], &found[2]), (&json!(format!("#{page}")), &json!("")), "{page}: {found}");
            let title = found[0].as_str().expect("a title").to_owned();
            assert!(!title.contains("Not found") && !titles.contains(&title), "{page}: {title}");
            titles.push(title);
            assert_eq!(browser.complaints().await, Vec::<String>::new(), "{page}");
        }
    });
}
