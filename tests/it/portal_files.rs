//! What the portal does with a job as a whole: a copy, a file, the graph of what follows. And how it shows times: in which zone, by which keys.

use crate::support::api::Api;
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use serde_json::{Value, json};

/// The page keeps what it saves, so that it can be looked at.
const KEEP_SAVED: &str = "const make = URL.createObjectURL; \
    URL.createObjectURL = blob => { blob.text().then(text => { window.saved = text; }); return make.call(URL, blob); };";

async fn create(api: &Api, name: &str, more: Value) -> String {
    let mut job =
        json!({ "name": name, "jobType": "task", "task": { "handler": "it.sum", "arguments": { "big": 9_007_199_254_740_993_i64 } } });
    for (key, value) in more.as_object().expect("an object") {
        job[key] = value.clone();
    }
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

async fn named(api: &Api, name: &str) -> Option<Value> {
    let (_, jobs) = api.get("/api/v1/jobs?limit=100").await;
    jobs["items"].as_array().expect("items").iter().find(|job| job["name"] == name).cloned()
}

#[test]
fn a_job_is_copied_saved_as_a_file_and_read_from_one() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let last = create(&api, "last", json!({})).await;
        let middle = create(&api, "<b>middle</b>", json!({ "successors": [{ "job": last, "on": "always" }] })).await;
        let schedule = json!({ "zone": "Europe/Berlin", "triggers": [{ "cron": "30 2 * * *" }] });
        let more = json!({ "description": "sums", "schedule": schedule, "successors": [{ "job": middle, "on": "success" }, { "job": "last", "on": "failure" }] });
        let first = create(&api, "first", more).await;

        // The graph has a box for each job, and a line for each way.
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{first}", broker.url)).await;
        browser.sees("Jobs that follow").await;
        let graph = "const root = document.querySelector('.graph'); return [root.querySelectorAll('rect').length, \
            [...root.querySelectorAll('svg > path')].map(e => e.getAttribute('class')).sort(), [...root.querySelectorAll('a')].map(e => e.getAttribute('href')).sort()];";
        let mut links = [format!("#/jobs/{last}"), format!("#/jobs/{middle}")];
        links.sort();
        assert_eq!(browser.run(graph, json!([])).await, json!([3, ["always", "failure", "success"], links]));

        // A copy has all but the name, and does not run by itself.
        browser.click("Clone").await;
        browser.sees("A copy of first").await;
        assert_eq!(browser.value("Name").await, "first copy");
        browser.click("Create the job").await;
        browser.sees("This job is disabled").await;
        let (old, copy) = (named(&api, "first").await.expect("a job"), named(&api, "first copy").await.expect("a copy"));
        for member in ["task", "schedule", "successors", "description"] {
            assert_eq!(old[member], copy[member], "{member}");
        }
        assert_eq!(copy["isEnabled"], false);

        // The file is what the export gives; read again, it changes what differs.
        browser.run(KEEP_SAVED, json!([])).await;
        browser.click("Save as JSON").await;
        let file = browser.gives("a file", "return window.saved ?? null;", json!([])).await;
        let mut file: Value = serde_json::from_str(file.as_str().expect("a text")).expect("JSON");
        let export = api.request(reqwest::Method::GET, "/api/v1/jobs/export?name=copy").header("Accept", "application/json");
        let (_, exported) = api.send(export).await;
        for member in ["name", "jobType", "task", "schedule", "successors", "description", "isEnabled"] {
            assert_eq!(file[0][member], exported[0][member], "{member}");
        }
        file[0]["description"] = json!("from a file");
        file.as_array_mut().expect("jobs").push(json!({ "name": "<i>new</i>", "jobType": "task", "task": { "handler": "it.sum" } }));
        let path = broker.folder.join("jobs.json");
        std::fs::write(&path, file.to_string()).expect("written");
        browser.open(&format!("{}/#/jobs", broker.url)).await;
        browser.click("Import …").await;
        browser.fill_in("File", path.to_str().expect("a path")).await;
        browser.sees("would be updated").await;
        browser.sees("would be created").await;
        assert_eq!(named(&api, "first copy").await.expect("a job")["description"], "sums", "only looked at");
        browser.click("Import").await;
        browser.sees("2 of 2 jobs were changed.").await;
        assert_eq!(named(&api, "first copy").await.expect("a job")["description"], "from a file");
        assert!(named(&api, "<i>new</i>").await.is_some());
        // A file that is wrong says where, and changes nothing.
        std::fs::write(&path, json!([{ "name": "x", "jobType": "task", "shedule": {} }]).to_string()).expect("written");
        browser.fill_in("File", path.to_str().expect("a path")).await;
        browser.sees("shedule").await;
        assert_eq!(named(&api, "x").await, None);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn times_are_shown_in_the_zone_that_was_chosen_and_plots_are_read_by_keys() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = create(&api, "sum", json!({})).await;
        let worker = api.worker("it.sum").await;
        let run = api.trigger(&job).await;
        let order = api.heard(&worker, "tasks").await.expect("an order")[0].clone();
        let report =
            json!([{ "identity": order["identity"], "attempt": order["attempt"], "state": "success", "logs": [{ "text": "one line" }] }]);
        assert_eq!(api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await.0, 200);
        let done = until("the end", || async { Some(api.state(&run).await).filter(|run| run["state"] == "success") }).await;
        let created = chrono::DateTime::parse_from_rfc3339(done["creationTime"].as_str().expect("a time")).expect("a time");
        let shown = |hours: i32| {
            let zone = chrono::FixedOffset::east_opt(hours * 3600).expect("a zone");
            created.with_timezone(&zone).format("%Y-%m-%d %H:%M:%S").to_string()
        };
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/runs/{run}", broker.url)).await;
        // Tokyo and Bogotá know no summer time, so their offsets are the same all year.
        for (zone, hours) in [("Asia/Tokyo", 9), ("America/Bogota", -5), ("UTC", 0)] {
            browser.click("Change the zone …").await;
            browser.fill_in("Zone", zone).await;
            browser.click("Use it").await;
            browser.sees(&format!("Times are in the zone that you chose, {zone}")).await;
            browser.sees(&format!("It was created at {}", shown(hours))).await;
        }
        // A line of the log to the millisecond, and copied.
        browser.sees("one line").await;
        let exact = "const line = [...document.querySelectorAll('.log .line')].find(e => e.textContent.includes('one line')); return line?.innerText;";
        let before = browser.run(exact, json!([])).await;
        browser.choose("Milliseconds").await;
        let after = browser.run(exact, json!([])).await;
        assert_eq!(after.as_str().map(str::len), before.as_str().map(|text| text.len() + 4), "{before} {after}");
        browser.click("Copy the lines").await;
        browser.sees("lines are copied.").await;

        // The plots of the overview: from one step to another, and read out.
        until("a run in the series", || async {
            let (_, series) = api.get("/api/v1/series").await;
            let sum: f64 = series["values"]["runs.success"].as_array().expect("a column").iter().filter_map(Value::as_f64).sum();
            (sum == 1.0).then_some(())
        })
        .await;
        browser.open(&format!("{}/#/", broker.url)).await;
        browser.sees("success 1").await;
        // In one turn of the page: a refresh that makes the plot again would put the pointer away.
        let press = "const plot = document.querySelector('.plot .canvas'); plot.focus(); const times = []; \
            for (const key of ['Home', 'ArrowRight', 'Enter']) { \
                plot.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true })); \
                times.push([...document.querySelectorAll('.plot figcaption .soft')].map(e => e.textContent)); \
            } return [times, document.getElementById('told').textContent];";
        let shown = browser.run(press, json!([])).await;
        let (first, second) = (&shown[0][0], &shown[0][1]);
        let times: Vec<&str> = [first, second].iter().map(|all| all[0].as_str().expect("a time")).collect();
        assert!(times[0] < times[1] && times[0].len() == 16, "{times:?}");
        assert!(second.as_array().expect("plots").iter().all(|time| time == times[1]), "all plots show the same time: {second}");
        let told = shown[1].as_str().expect("a text");
        assert!(told.starts_with(&format!("Runs that ended, {}: success", times[1])), "{told}");
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
