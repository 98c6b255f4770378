//! The page of a run: its time line, how far it is, its failures by kind, its results, its log.

use crate::failed_requests::{drain, next_block, push, report};
use crate::portal_refresh::{outline, refreshes};
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::{Broker, WEBLOOM};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::process::Command;

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";

/// The page keeps what it saves, so that it can be looked at.
pub const KEEP_SAVED: &str = "const make = URL.createObjectURL; \
    URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return make.call(URL, blob); };";
const SAVED: &str = "const text = window.saved; window.saved = undefined; return text ?? null;";

pub async fn saved(browser: &Browser, button: &str) -> String {
    browser.click(button).await;
    browser.gives("a saved file", SAVED, json!([])).await.as_str().expect("a text").to_owned()
}

async fn is_harmless(browser: &Browser) {
    let parts = "return [document.querySelectorAll('main img, main script').length, document.title.includes('harm')];";
    assert_eq!(browser.run(parts, json!([])).await, json!([0, false]));
}

/// Reports an attempt of the only task of a worker.
async fn attempt(api: &Api, worker: &str, state: &str, lines: &[&str]) -> Value {
    let order = api.heard(worker, "tasks").await.expect("an order")[0].clone();
    let logs: Vec<Value> = lines.iter().map(|text| json!({ "text": text, "level": "warning" })).collect();
    let mut report = json!({ "identity": order["identity"], "attempt": order["attempt"], "state": state, "logs": logs });
    match state {
        "failed" => report["error"] = json!({ "message": EVIL }),
        _ => report["result"] = json!({ "sum": 7 }),
    }
    let (status, done) = api.post(&format!("/api/v1/workers/{worker}/reports"), &json!([report])).await;
    assert_eq!(status, 200, "{done}");
    order
}

#[test]
fn the_attempts_of_a_run_are_drawn_and_its_log_is_searched_and_saved() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "sum", "jobType": "task", "task": { "handler": "it.sum", "lease": 600_000 }, "policies": { "retry": { "limit": 3, "delay": 100 } } });
        let (_, job) = api.post("/api/v1/jobs", &job).await;
        let worker = json!({ "classNames": ["it.sum"], "worker": { "name": EVIL } });
        let (_, worker) = api.post("/api/v1/workers", &worker).await;
        let worker = worker["workerId"].as_str().expect("an id");
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        assert_eq!(api.get(&format!("/api/v1/runs/{run}/attempts")).await.1["items"], json!([]), "its row says all of the first one");
        attempt(&api, worker, "failed", &["first try"]).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}#/runs/{run}", broker.url)).await;
        let order = attempt(&api, worker, "success", &["second try", "needle"]).await;
        assert_eq!(order["attempt"], 2);
        until("the end", || async { (api.state(&run).await["state"] == "success").then_some(()) }).await;

        let (status, attempts) = api.get(&format!("/api/v1/runs/{run}/attempts")).await;
        let items = attempts["items"].as_array().expect("items");
        assert_eq!((status, items.len()), (200, 2), "{attempts}");
        for (item, state) in items.iter().zip(["failed", "success"]) {
            assert_eq!((&item["state"], &item["peer"], &item["peerName"]), (&json!(state), &json!(worker), &json!(EVIL)), "{item}");
            assert!(item["startTime"].as_str().expect("a begin") <= item["finishTime"].as_str().expect("an end"), "{item}");
        }
        assert!(items[0]["finishTime"].as_str() <= items[1]["startTime"].as_str(), "{attempts}");
        let (_, page) = api.get(&format!("/api/v1/runs/{run}/attempts?limit=1")).await;
        let (_, next) =
            api.get(&format!("/api/v1/runs/{run}/attempts?limit=1&cursor={}", page["nextCursor"].as_str().expect("a cursor"))).await;
        assert_eq!([&page["items"][0], &next["items"][0]], [&items[0], &items[1]]);
        assert_eq!(api.get(&format!("/api/v1/runs/{run}/attempts?cursor=7")).await.0, 422);

        // The run and its worker are lanes; each attempt is a bar, and tells its times under the pointer.
        let bars = "const bars = [...document.querySelectorAll('.timeline .lane')].map(lane => \
            [...lane.querySelectorAll('.bar')].map(bar => bar.getAttribute('class'))); \
            return bars.length === 2 && bars[1].length === 2 && bars[1][1] === 'bar success' && bars;";
        let bars = browser.gives("two bars", bars, json!([])).await;
        assert_eq!(bars[1], json!(["bar failed", "bar success"]));
        let name = "return document.querySelector(`main a[href='#/workers/${arguments[0]}']`)?.textContent;";
        assert_eq!(browser.gives("the name of the worker", name, json!([worker])).await, EVIL);
        let point = "const bar = document.querySelector('.timeline .lane:last-of-type .bar.failed'); const box = bar.getBoundingClientRect(); \
            bar.dispatchEvent(new PointerEvent('pointermove', { bubbles: true, clientX: box.left, clientY: box.top })); \
            return document.querySelector('.timeline .told').textContent;";
        let told = browser.run(point, json!([])).await;
        let told = told.as_str().expect("a text");
        assert!(told.starts_with(&format!("attempt 1 at {EVIL}: failed")) && told.contains("pointer at"), "{told}");
        browser.sees("Attempts").await;
        browser.sees(&format!("attempt 1 failed: {EVIL}")).await;
        is_harmless(&browser).await;

        browser.run(KEEP_SAVED, json!([])).await;
        assert_eq!(serde_json::from_str::<Value>(&saved(&browser, "Save as JSON").await).expect("JSON"), json!({ "sum": 7 }));
        let log = saved(&browser, "Save the log").await;
        assert!(log.contains("warning worker first try\n") && log.contains("needle"), "{log}");
        browser.fill("Containing", "NEEDLE").await;
        browser.choose("Wrap lines").await;
        let lines = "const log = document.querySelector('.log'); return log.children.length === 1 && log.classList.contains('nowrap');";
        browser.gives("the line", lines, json!([])).await;
        let log = saved(&browser, "Save the log").await;
        assert_eq!(log.lines().count(), 1, "{log}");
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}

#[test]
fn a_block_run_shows_its_rate_its_failures_by_kind_and_results_that_it_does_not_take() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.PortalRun", &json!({ "BlockSize": "2", "Delay": "0", "Robots": "ignore", "Retry": "0" })).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}#/runs/{run}", broker.url)).await;
        browser.sees("Its worker has pushed no request yet.").await;
        browser.sees("No request has failed.").await;
        push(
            &api,
            &run,
            &[
                "http://a.test/200-1",
                "http://a.test/404-1",
                "http://b.test/slow",
                "http://b.test/503-1",
                "http://a.test/404-2",
                "http://a.test/200-2",
            ],
        )
        .await;
        let node = id();
        for _ in 0..2 {
            let block = next_block(&api, &node).await;
            report(&api, &node, &block).await;
        }
        browser.sees("4 of 6 requests (66 %)").await;
        browser.sees("answered, not yet acknowledged 2").await;
        browser.sees("requests/s").await;
        let (_, counts) = api.get(&format!("/api/v1/runs/{run}/requests/counts")).await;
        let count = |kind: &str| {
            counts["items"]
                .as_array()
                .expect("items")
                .iter()
                .find(|one| one["kind"] == kind || one["status"] == json!(kind.parse::<u16>().ok()))
                .cloned()
        };
        assert_eq!(count("timeout"), Some(json!({ "kind": "timeout", "failed": 1, "requeued": 0 })), "{counts}");
        assert_eq!(counts["more"], false);

        // Who looks at the results takes nothing from the worker.
        let path = format!("/api/v1/runs/{run}/results");
        let (status, first) = api.get(&format!("{path}?limit=1")).await;
        assert_eq!((status, first["items"][0]["results"].as_array().map(Vec::len)), (200, Some(2)), "{first}");
        let (_, second) = api.get(&format!("{path}?limit=1&cursor={}", first["nextCursor"].as_str().expect("a cursor"))).await;
        assert_eq!(second.get("nextCursor"), None, "{second}");
        assert_eq!((api.get(&format!("{path}?limit=65")).await.0, api.get(&format!("{path}?cursor=x")).await.0), (422, 422));
        let all = api.request(reqwest::Method::GET, &path).header("Accept", "application/jsonl").send().await.expect("an answer");
        assert_eq!(all.headers()["content-type"], "application/jsonl");
        let all = all.text().await.expect("lines");
        let all: Vec<Value> = all.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!((all.len(), &all[0]["blockId"]), (4, &first["items"][0]["blockId"]));
        let printed = Command::new(WEBLOOM).args(["run", "results", &run, "--broker", &broker.url]).output().expect("it runs");
        let printed = String::from_utf8(printed.stdout).expect("a text");
        let printed: Vec<Value> = printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(printed, all, "the command prints the same");
        browser.click("Results that wait for the worker").await;
        browser.sees("http://b.test/slow").await;
        browser.click("headers and body").await;
        browser.sees("x").await;
        browser.run(KEEP_SAVED, json!([])).await;
        let lines = saved(&browser, "Save as JSON Lines").await;
        let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(lines, all, "the page saves the same");
        let archive = saved(&browser, "Save as WARC").await;
        let records: Vec<&str> = archive.split("WARC/1.1\r\n").collect();
        let of = |kind: &str| records.iter().filter(|record| record.starts_with(&format!("WARC-Type: {kind}\r\n"))).count();
        assert_eq!((records[0], of("warcinfo"), of("response") + of("metadata")), ("", 1, 4), "{archive}");
        for record in &records[1..] {
            let (head, block) = record.split_once("\r\n\r\n").expect("a head");
            let length = head.lines().find_map(|line| line.strip_prefix("Content-Length: ")).expect("a length");
            assert_eq!(block.len() - 4, length.parse::<usize>().expect("a number"), "{record}");
        }
        assert!(archive.contains("WARC-Target-URI: http://b.test/slow\r\n") && archive.contains("error: "), "{archive}");
        // The node of the blocks is a lane.
        browser.gives("a lane of the node", "return document.querySelectorAll('.timeline .tick.failed').length === 2;", json!([])).await;

        // One kind is queued again; the button asks first.
        let button = "const row = [...document.querySelectorAll('table[aria-label=\"Failed requests by kind\"] tbody tr')]\
            .find(row => row.dataset.key === 'timeout'); row?.querySelector('button')?.click(); return Boolean(row);";
        browser.gives("the row", button, json!([])).await;
        browser.sees("Those with kind timeout").await;
        browser.click("Queue again").await;
        browser.sees("1 of 1 failed requests are queued again.").await;
        until("a new request", || async { (api.state(&run).await["total"] == 7).then_some(()) }).await;
        let again = "const row = document.querySelector('tr[data-key=timeout]'); return row?.cells[2].textContent === '1' && !row.querySelector('button');";
        browser.gives("no button", again, json!([])).await;
        browser.click("Queue all again …").await;
        browser.sees("All of them, at most 1,000 at a time").await;
        browser.click("Queue again").await;
        browser.sees("2 of 2 failed requests are queued again.").await;
        until("new requests", || async { (api.state(&run).await["total"] == 9).then_some(()) }).await;

        let before = outline(&browser).await;
        refreshes(&browser).await;
        assert_eq!(outline(&browser).await, before);
        assert_eq!(drain(&api, &run).await, 4, "all results are still the worker's");
        assert_eq!(api.get(&path).await.1["items"], json!([]));
        browser.click("Refresh").await;
        browser.sees("There is no result that its worker has not acknowledged").await;
        assert_eq!(browser.complaints().await, [""; 0]);
    });
}
