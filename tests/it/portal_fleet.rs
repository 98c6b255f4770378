//! The portal with a large store and many peers: 10,000 jobs, 100,000 runs, 50 nodes and 20 workers. All texts that others write are HTML.
//! With `WEBLOOM_SCREENSHOTS=FOLDER` it saves a picture of each page: light, dark and on a phone.

use crate::portal_refresh::LOOKS;
use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::{Broker, database, server};
use crate::support::socket::Node;
use crate::support::until;
use crate::tasks::Raw;
use base64::Engine as _;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";
const JOBS: u32 = 10_000;
const RUNS: u32 = 100_000;
const NODES: usize = 50;
const WORKERS: usize = 20;
const BUSY: usize = 12;

/// Executes statements on the database of a broker that has ended.
fn execute(folder: &Path, statements: &str) {
    let store = database(folder);
    let mut command = if server().is_some() {
        let mut psql = Command::new("psql");
        psql.arg(&store).args(["-q", "-v", "ON_ERROR_STOP=1"]);
        psql
    } else {
        let mut python = Command::new("python3");
        let script = "import sqlite3, sys\nwith sqlite3.connect(sys.argv[1]) as store:\n    store.executescript(sys.stdin.read())";
        python.args(["-c", script]).arg(&store);
        python
    };
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("it starts");
    child.stdin.take().expect("piped").write_all(statements.as_bytes()).expect("written");
    assert!(child.wait().expect("it ends").success());
}

/// Copies of a job and of its runs: the runs are spread over two weeks, and some have failed or were stopped.
fn copies(job: &str, run: &str, now: i64) -> String {
    let hex = |number: &str| match server() {
        Some(_) => format!("lpad(to_hex({number}), 32, '0')"),
        None => format!("printf('%032x', {number})"),
    };
    let padded = |number: &str| match server() {
        Some(_) => format!("lpad(({number})::text, 5, '0')"),
        None => format!("printf('%05d', {number})"),
    };
    // The name of every tenth job is HTML.
    let name = |number: &str| {
        let evil = EVIL.replace('\'', "''");
        format!("CASE WHEN ({number}) % 10 = 3 THEN 'load {evil} ' ELSE 'load ' END || {}", padded(number))
    };
    let evil = EVIL.replace('\'', "''");
    let numbers = |count: u32| format!("WITH RECURSIVE number(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM number WHERE n < {count})");
    // Jobs get the ids from 2^40 on, runs those from 2^41 on.
    let job_id = |number: &str| hex(&format!("1099511627776 + {number}"));
    let began = format!("{now} - (CAST({RUNS} - n AS BIGINT) * 12000)");
    format!(
        "{numbers_of_jobs} INSERT INTO job (id, name, job_type, description, is_enabled, is_deleted, priority, version, create_by, creation_time, \
            update_time, schedule, policies, task, group_name) \
         SELECT {id}, {name}, job_type, description, is_enabled, is_deleted, priority, version, create_by, creation_time, update_time, schedule, policies, \
            task, CASE WHEN n % 3 = 0 THEN group_name END FROM job, number WHERE id = '{job}' ORDER BY n;\n\
         {numbers_of_jobs} INSERT INTO plan (job_id, decided_until, next_at, rest_from, fires, failures) \
         SELECT {id}, decided_until, next_at, rest_from, fires, failures FROM plan, number WHERE job_id = '{job}';\n\
         {numbers_of_runs} INSERT INTO run (identity, job_id, job_name, class_name, arguments, state, reason, priority, download, queue, start_returned, \
            epoch, block_times, success, error, total, creation_time, start_time, finish_time, kind, rules, attempt, result) \
         SELECT {run_id}, {job_of_run}, {name_of_run}, class_name, arguments, \
            CASE WHEN n % 7 = 0 THEN 'failed' WHEN n % 50 = 1 THEN 'stopped' ELSE state END, CASE WHEN n % 7 = 0 THEN '{evil}' END, priority, download, queue, \
            start_returned, epoch, block_times, success, error, total, {began}, {began} + 40, {began} + 2000 + n % 9000, kind, rules, attempt, result \
         FROM run, number WHERE identity = '{run}' ORDER BY n;\n",
        numbers_of_jobs = numbers(JOBS),
        numbers_of_runs = numbers(RUNS),
        id = job_id("n"),
        name = name("n"),
        run_id = hex("2199023255552 + n"),
        job_of_run = job_id(&format!("(1 + n % {JOBS})")),
        name_of_run = name(&format!("(1 + n % {JOBS})")),
    )
}

/// A job whose run has succeeded, with lines of HTML in its log.
async fn template(api: &Api) -> (String, String) {
    let job = json!({ "name": "template", "jobType": "task", "group": EVIL, "description": EVIL, "task": { "handler": "it.load", "lease": 600_000 },
        "policies": { "overlap": "allow" }, "schedule": { "triggers": [{ "cron": "0 3 1 1 *" }] } });
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    let job = job["id"].as_str().expect("an id").to_owned();
    let worker = api.worker("it.load").await;
    let run = api.trigger(&job).await;
    let order = api.heard(&worker, "tasks").await.expect("an order")[0].clone();
    let report = json!([{ "identity": order["identity"], "attempt": order["attempt"], "state": "success", "result": { "said": EVIL },
        "logs": [{ "text": EVIL, "level": "error" }, { "text": "<script>document.title='harm'</script>" }] }]);
    assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await.0, 200);
    until("a run that succeeded", || async { (api.state(&run).await["state"] == "success").then_some(()) }).await;
    (job, run)
}

/// Nodes and workers that hold their sockets open, and workers that have a task each.
struct Fleet {
    nodes: Vec<Node>,
    workers: Vec<Raw>,
    runs: Vec<String>,
}

impl Fleet {
    async fn connect(api: &Api, job: &str) -> Self {
        let mut nodes = Vec::new();
        for i in 0..NODES {
            let mut facts = url::form_urlencoded::Serializer::new("&maxprocesscount=4".to_owned());
            facts.append_pair("name", &format!("{EVIL} {i:02}")).append_pair("group", if i % 2 == 0 { EVIL } else { "default" });
            nodes.push(Node::connect(api, &id(), &facts.finish()).await);
        }
        let mut workers = Vec::new();
        for i in 0..WORKERS {
            let about = json!({ "name": format!("{EVIL} {i:02}"), "group": EVIL, "tags": [EVIL], "version": EVIL, "slots": 1 });
            workers.push(Raw::watch(api, &id(), &["it.load", EVIL], about, json!([])).await);
        }
        let mut runs = Vec::new();
        for _ in 0..BUSY {
            runs.push(api.trigger(job).await);
        }
        Self { nodes, workers, runs }
    }

    /// Reports on all tasks that have come, until each run is at work.
    async fn begin(&mut self, api: &Api) {
        let workers = std::cell::RefCell::new(&mut self.workers);
        until("runs at work", || async {
            for worker in workers.borrow_mut().iter_mut() {
                while let Some(message) = worker.socket.try_next() {
                    for order in message["v"].as_array().filter(|_| message["t"] == "tasks").into_iter().flatten() {
                        worker.report(
                            order,
                            "running",
                            json!({ "progress": 40, "text": EVIL, "logs": [{ "text": EVIL, "level": "warning" }] }),
                        );
                    }
                }
            }
            let (_, running) = api.get("/api/v1/runs?state=running&limit=100").await;
            running["items"].as_array().is_some_and(|items| items.len() == BUSY).then_some(())
        })
        .await;
    }
}

/// The sizes of a window, and what a person prefers.
const SIZES: [(&str, u32, &str); 3] = [("light", 1280, "light"), ("dark", 1280, "dark"), ("phone", 390, "light")];

/// Saves pictures of what is open now.
async fn pictures(browser: &Browser, folder: &Path, name: &str) {
    for (look, width, scheme) in SIZES {
        let feature = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        browser.devtools("Emulation.setEmulatedMedia", feature).await;
        let size = |height: u64| json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": look == "phone" });
        browser.devtools("Emulation.setDeviceMetricsOverride", size(900)).await;
        // Plots are drawn again in the new size and colors at the next refresh.
        let before = browser.run(LOOKS, json!([])).await;
        let more = format!("return (() => {{ {LOOKS} }})() > arguments[0] + 1 || !document.querySelector('canvas');");
        browser.gives("a refresh", &more, json!([before])).await;
        let height = browser.run("return document.documentElement.scrollHeight;", json!([])).await.as_u64().expect("a height");
        let clip = json!({ "x": 0, "y": 0, "width": width, "height": height.clamp(900, 3000), "scale": 1 });
        let shot =
            browser.devtools("Page.captureScreenshot", json!({ "format": "png", "captureBeyondViewport": true, "clip": clip })).await;
        let bytes = base64::engine::general_purpose::STANDARD.decode(shot["data"].as_str().expect("a picture")).expect("base64");
        std::fs::write(folder.join(format!("{name}-{look}.png")), bytes).expect("written");
    }
    browser.devtools("Emulation.clearDeviceMetricsOverride", json!({})).await;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "features": [] })).await;
}

/// Milliseconds to the first paint; 0 if the browser does not tell.
const PAINT: &str =
    "return Math.round(performance.getEntriesByType('paint').find(e => e.name === 'first-contentful-paint')?.startTime ?? 0);";
const INJECTED: &str =
    "return [document.querySelectorAll('main img, main script, header img:not(.brand img)').length, document.title === 'harm'];";
/// Whether the page shows its content: its heading, and no error.
const CONTENT: &str = "return Boolean(document.querySelector('main h1')) && performance.now();";
/// The page is wider than the window.
const TOO_WIDE: &str =
    "return document.documentElement.scrollWidth > document.documentElement.clientWidth + 1 ? document.documentElement.scrollWidth : 0;";

#[test]
#[ignore = "needs both processors: tests/run.sh runs it alone"]
fn every_page_of_a_large_fleet_opens_and_executes_nothing_that_others_wrote() {
    crate::support::journey_within(Duration::from_secs(400), async {
        let pictures_folder = std::env::var_os("WEBLOOM_SCREENSHOTS").map(PathBuf::from);
        let mut broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let (job, run) = template(&api).await;
        assert!(broker.process.terminate().success());
        let began = Instant::now();
        execute(&broker.folder, &copies(&job, &run, chrono::Utc::now().timestamp_millis()));
        println!("{JOBS} jobs and {RUNS} runs stored in {:?}", began.elapsed());
        broker.restart("");
        let api = Api::new(&broker.url);
        let mut fleet = Fleet::connect(&api, &job).await;
        assert_eq!(api.post("/api/v1/sites/shop.test/hold", &json!({ "for": 600_000 })).await.0, 200);
        fleet.begin(&api).await;
        let (node, worker, active) = (&fleet.nodes[0].id, &fleet.workers[0].id, &fleet.runs[0]);
        let failed = api.get("/api/v1/runs?state=failed&limit=1").await.1["items"][0].clone();
        let failed_run = failed["identity"].as_str().expect("an id");
        let failed_job = failed["jobId"].as_str().expect("an id");

        let browser = Browser::start().await;
        for (name, page, text) in [
            ("overview", "/".to_owned(), "Runs that ended"),
            ("jobs", "/jobs".to_owned(), EVIL),
            ("job", format!("/jobs/{failed_job}"), "Fire history"),
            ("job-form", format!("/jobs/{failed_job}/edit"), "Save"),
            ("new-job", "/jobs/new".to_owned(), "Create the job"),
            ("runs", "/runs".to_owned(), EVIL),
            ("runs-failed", "/runs?state=failed".to_owned(), EVIL),
            ("run", format!("/runs/{run}"), EVIL),
            ("run-failed", format!("/runs/{failed_run}"), EVIL),
            ("run-active", format!("/runs/{active}"), "Status explained"),
            ("workers", "/workers".to_owned(), EVIL),
            ("worker", format!("/workers/{worker}"), EVIL),
            ("nodes", "/nodes".to_owned(), EVIL),
            ("node", format!("/nodes/{node}"), EVIL),
            ("sites", "/sites".to_owned(), "shop.test"),
            ("groups", "/groups".to_owned(), EVIL),
            ("alerts", "/alerts".to_owned(), "Channels"),
            ("packages", "/packages".to_owned(), "Packages"),
            ("brokers", "/brokers".to_owned(), "Settings in force"),
            ("actors", "/actors".to_owned(), "20 workers"),
            ("actors-of-workers", "/actors?kind=worker".to_owned(), EVIL),
            ("actor", format!("/actors/worker/{worker}"), EVIL),
        ] {
            browser.open_anew(&broker.url, &page).await;
            let content = browser.gives(&format!("the heading of {page}"), CONTENT, json!([])).await;
            browser.sees(text).await;
            let paint = browser.run(PAINT, json!([])).await;
            println!("{name}: first paint after {paint} ms, content after {:.0} ms", content.as_f64().unwrap_or_default());
            assert_eq!(browser.run(INJECTED, json!([])).await, json!([0, false]), "{page}");
            assert_eq!(browser.run(TOO_WIDE, json!([])).await, json!(0), "{page} is wider than the window");
            assert_eq!(browser.complaints().await, Vec::<String>::new(), "{page}");
            if let Some(folder) = &pictures_folder {
                pictures(&browser, folder, name).await;
            }
        }
        // Each page of a list has other rows.
        for page in ["/jobs", "/runs"] {
            let rows = "return [...document.querySelectorAll('main tbody tr')].map(e => e.dataset.key);";
            browser.open(&format!("{}/#{page}", broker.url)).await;
            browser.sees("Next page").await;
            let first: Vec<Value> = browser.run(rows, json!([])).await.as_array().expect("rows").clone();
            assert!(first.len() >= 25, "{page}: {first:?}");
            browser.click("Next page").await;
            let others = "const rows = [...document.querySelectorAll('main tbody tr')].map(e => e.dataset.key); \
                return location.hash.includes('=') && rows.length > 9 && !rows.includes(arguments[0]) && rows;";
            browser.gives(&format!("the second page of {page}"), others, json!([first[0]])).await;
            browser.click("First page").await;
            let again = "return document.querySelector('main tbody tr')?.dataset.key === arguments[0];";
            browser.gives(&format!("the first page of {page}"), again, json!([first[0]])).await;
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
