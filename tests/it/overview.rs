//! The time series of the broker, and the overview that plots them.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The sum of a column of the last hour.
async fn sum(api: &Api, name: &str) -> f64 {
    let (status, series) = api.get("/api/v1/series").await;
    assert_eq!((status, &series["step"]), (200, &json!(60_000)), "{series}");
    let column = series["values"][name].as_array().unwrap_or_else(|| panic!("no {name} in {series}")).clone();
    column.iter().filter_map(Value::as_f64).sum()
}

/// The warnings about anything but the disk of the machine that the tests run on, and whether that disk is nearly full.
async fn warnings(api: &Api) -> (Vec<Value>, bool) {
    let (_, found) = api.get("/api/v1/warnings").await;
    let all = found["items"].as_array().expect("items").clone();
    let (disk, others): (Vec<Value>, Vec<Value>) = all.into_iter().partition(|one| one["kind"] == "disk");
    (others, !disk.is_empty())
}

/// A job whose run succeeds at once: it asks the broker itself.
async fn healthy(broker: &Broker, api: &Api, name: &str) -> String {
    let url = format!("{}/healthz", broker.url);
    let (status, job) = api.post("/api/v1/jobs", &json!({ "name": name, "jobType": "callback", "callback": { "url": url } })).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

#[test]
fn what_happened_is_in_the_series_after_a_restart() {
    journey(async {
        let mut broker = Broker::start(&["--callback-allow", "127.0.0.0/8"], "");
        let api = Api::new(&broker.url);
        assert_eq!(sum(&api, "runs.success").await, 0.0);
        let job = healthy(&broker, &api, "health").await;
        for _ in 0..3 {
            api.trigger(&job).await;
        }
        until("three runs in the series", || async { (sum(&api, "runs.success").await == 3.0).then_some(()) }).await;
        assert!(broker.process.terminate().success());
        broker.restart("");
        let api = Api::new(&broker.url);
        assert_eq!(sum(&api, "runs.success").await, 3.0, "they were stored");
        let job = healthy(&broker, &api, "more").await;
        api.trigger(&job).await;
        until("another run in the same step", || async { (sum(&api, "runs.success").await == 4.0).then_some(()) }).await;

        // Longer periods have longer steps, and gaps where there was no broker.
        for (days, step) in [(2, 900_000), (300, 21_600_000)] {
            let from = (chrono::Utc::now() - chrono::Duration::days(days)).to_rfc3339_opts(chrono::SecondsFormat::Secs, true);
            let (_, series) = api.get(&format!("/api/v1/series?from={from}")).await;
            assert_eq!(series["step"], step, "{days} days");
            let column = series["values"]["runs.success"].as_array().expect("a column");
            assert_eq!((&column[0], column.iter().filter_map(Value::as_f64).sum::<f64>()), (&Value::Null, 4.0));
        }
        let (status, problem) = api.get("/api/v1/series?from=2999-01-01T00:00:00Z").await;
        assert_eq!((status, &problem["field"]), (422, &json!("from")), "{problem}");
        assert_eq!(api.get("/api/v1/series?until=2999-01-01T00:00:00Z").await.0, 422);
    });
}

#[test]
fn the_overview_plots_a_period_and_names_what_needs_attention() {
    journey(async {
        let broker = Broker::start(&["--callback-allow", "127.0.0.0/8"], "");
        let api = Api::new(&broker.url);
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        let (_, is_disk_full) = warnings(&api).await;
        browser.sees(if is_disk_full { "Disk nearly full" } else { "Nothing needs attention." }).await;

        let evil = "<img src=x onerror=\"document.title='harm'\">";
        let bad = json!({ "name": evil, "jobType": "task", "task": { "handler": "it.nobody" } });
        let (_, bad) = api.post("/api/v1/jobs", &bad).await;
        let failed = api.trigger(bad["id"].as_str().expect("an id")).await;
        until("a failed run", || async { (api.state(&failed).await["state"] == "failed").then_some(()) }).await;
        assert_eq!(api.post("/api/v1/sites/shop.test/hold", &json!({ "for": 600_000 })).await.0, 200);
        api.trigger(&healthy(&broker, &api, "health").await).await;
        until("a run in the series", || async { (sum(&api, "runs.success").await == 1.0).then_some(()) }).await;
        let (warnings, _) = warnings(&api).await;
        let kinds: Vec<&Value> = warnings.iter().map(|one| &one["kind"]).collect();
        assert_eq!(kinds, ["failed-job", "held-site"], "{warnings:?}");

        browser.open("about:blank").await;
        browser.open(&broker.url).await;
        browser.sees("shop.test").await;
        browser.sees("success 1").await;
        let parts = "return [document.querySelectorAll('main img, main script').length, document.title];";
        assert_eq!(browser.run(parts, json!([])).await, json!([0, "Overview · Webloom"]));
        let plots = "return document.querySelectorAll('figure.plot canvas').length;";
        assert_eq!(browser.run(plots, json!([])).await, 10);

        // The numbers of the step under the pointer, in each plot.
        let point = "const over = document.querySelector('figure.plot .u-over'); const box = over.getBoundingClientRect(); \
            over.dispatchEvent(new MouseEvent('mouseenter', { bubbles: true })); \
            over.dispatchEvent(new MouseEvent('mousemove', { bubbles: true, clientX: box.left + box.width - 1, clientY: box.top + 9 })); \
            return true;";
        browser.gives("a plot", point, json!([])).await;
        let captions = "const all = [...document.querySelectorAll('figure.plot figcaption .soft')].map(e => e.textContent); \
            return all.every(text => /^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d$/.test(text));";
        browser.gives("the time under the pointer in each plot", captions, json!([])).await;

        // To drag over a part shows that part.
        let drag = "const over = document.querySelector('figure.plot .u-over'); const box = over.getBoundingClientRect(); \
            const send = (kind, target, part) => { target.dispatchEvent(new MouseEvent(kind, { bubbles: true, button: 0, movementX: 9, \
                clientX: box.left + box.width * part, clientY: box.top + 9 })); return new Promise(requestAnimationFrame); }; \
            return send('mousemove', over, 0.2).then(() => send('mousedown', over, 0.2)).then(() => send('mousemove', over, 0.6)) \
                .then(() => send('mouseup', document, 0.6)).then(() => true);";
        browser.run(drag, json!([])).await;
        browser.sees("Back to now").await;
        let hours = "const query = new URLSearchParams(location.hash.split('?')[1]); \
            return (Date.parse(query.get('to')) - Date.parse(query.get('from'))) / 3600000;";
        let hours = browser.run(hours, json!([])).await.as_f64().expect("a number");
        assert!((0.3..0.5).contains(&hours), "{hours} hours of one");
        browser.click("30 days").await;
        browser.sees("per 15 minutes").await;
        browser.click(evil).await;
        browser.sees("no worker watches it.nobody").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn a_node_that_is_gone_needs_attention_unless_it_was_sent_away() {
    journey(async {
        let broker = Broker::start(&["--node-heartbeat", "200", "--node-offline", "1500"], "");
        let api = Api::new(&broker.url);
        let (lost, drained) = (id(), id());
        for node in [&lost, &drained] {
            api.beat(node, &json!({})).await;
        }
        assert_eq!(api.post(&format!("/api/v1/nodes/{drained}/drain"), &json!({})).await.0, 200);
        for node in [&lost, &drained] {
            let path = format!("/api/v1/nodes/{node}");
            until("a node that is offline", || async { (api.get(&path).await.1["isOnline"] == false).then_some(()) }).await;
        }
        let found: Vec<Value> = warnings(&api).await.0.iter().map(|one| one["nodeId"].clone()).collect();
        assert_eq!(found, [json!(lost)]);
    });
}
