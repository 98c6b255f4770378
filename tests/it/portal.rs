//! The portal in a real browser: what a person does there, and that it harms nobody.

use crate::support::api::{Api, id};
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};

/// The only job whose name contains this.
async fn named(api: &Api, name: &str) -> Value {
    let (status, jobs) = api.get("/api/v1/jobs?limit=100").await;
    assert_eq!(status, 200, "{jobs}");
    let found = jobs["items"].as_array().expect("items").iter().find(|job| job["name"] == name);
    found.unwrap_or_else(|| panic!("no job {name} in {jobs}")).clone()
}

/// Carries out the next task that this worker gets, and says so in its log.
async fn work(api: &Api, worker: &str, log: &str) -> Value {
    let orders = api.heard(worker, "tasks").await.expect("an order");
    let order = orders[0].clone();
    let report = json!([{ "identity": order["identity"], "attempt": order["attempt"], "state": "success",
        "result": { "greeted": order["arguments"]["who"] }, "logs": [{ "text": log }] }]);
    let (status, settled) = api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await;
    assert_eq!(status, 200, "{settled}");
    order
}

#[test]
fn a_person_makes_a_job_runs_it_changes_it_and_deletes_it() {
    journey(async {
        // A worker without a socket is heard of only when it calls, and a browser may be slow.
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        browser.sees("Nothing has run yet").await;
        browser.click("Jobs").await;
        browser.sees("No jobs yet").await;
        browser.click("Create the first one").await;

        // A mistake is told beside the field, and nothing is stored.
        browser.fill("Name", "greet").await;
        browser.fill("Name that workers watch", "it.greet").await;
        browser.fill("Arguments", r#"{"who":"Ada"}"#).await;
        browser.click("Add a trigger").await;
        browser.fill("Cron expression", "99 2 * * *").await;
        browser.click("Create the job").await;
        browser.sees("must be 0 to 59, not 99").await;
        let marked = "const e = document.activeElement; return e.getAttribute('aria-invalid') && e.value;";
        assert_eq!(browser.gives("the marked field", marked, json!([])).await, "99 2 * * *");
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]), "nothing is stored");

        // What would come is shown while it is typed.
        browser.fill("Cron expression", "30 2 * * MON-FRI").await;
        browser.fill("Time zone", "Europe/Berlin").await;
        browser.sees("In the job's zone, Europe/Berlin").await;
        browser.click("Create the job").await;
        browser.sees("Fire history").await;
        let job = named(&api, "greet").await;
        assert_eq!(job["task"], json!({ "handler": "it.greet", "arguments": { "who": "Ada" } }));
        assert_eq!(job["schedule"]["triggers"], json!([{ "cron": "30 2 * * MON-FRI" }]));
        assert_eq!(job["schedule"]["zone"], "Europe/Berlin");

        // It is triggered, once however often one clicks, and its run is watched to its end.
        let worker = api.worker("it.greet").await;
        browser.click("Trigger …").await;
        browser.fill("Arguments, as JSON", "{\"who\":").await;
        browser.click("Trigger").await;
        browser.sees("This is not JSON").await;
        browser.fill("Arguments, as JSON", "{\"who\":\"Grace\"}").await;
        browser.click("Trigger").await;
        browser.sees("Run of greet").await;
        let order = work(&api, &worker, "<b>hello</b> & <script>document.title='harm'</script>").await;
        assert_eq!(order["arguments"], json!({ "who": "Grace" }));
        browser.sees("\"greeted\": \"Grace\"").await;
        browser.sees("<b>hello</b> & <script>document.title='harm'</script>").await;
        browser.sees("the run is over").await;
        browser.sees("success").await;

        // A change that somebody else was faster with is shown and overwrites nothing.
        let path = format!("/api/v1/jobs/{}", job["id"].as_str().expect("an id"));
        browser.click("greet").await;
        browser.click("Edit").await;
        browser.sees("Save").await;
        browser.fill("Description", "mine").await;
        assert_eq!(api.put(&path, &json!({ "description": "theirs" })).await.0, 200);
        browser.click("Save").await;
        browser.sees("Another change of this job came first").await;
        browser.sees("\"theirs\"").await;
        assert_eq!(named(&api, "greet").await["description"], "theirs");
        browser.click("Begin anew with theirs").await;
        until("their description", || async { (browser.value("Description").await == "theirs").then_some(()) }).await;
        browser.fill("Description", "both").await;
        browser.click("Save").await;
        browser.sees("Fire history").await;
        let changed = named(&api, "greet").await;
        assert_eq!((&changed["description"], &changed["task"], &changed["schedule"]), (&json!("both"), &job["task"], &job["schedule"]));

        browser.click("Disable …").await;
        browser.fill("Reason", "a holiday").await;
        browser.click("Disable").await;
        browser.sees("This job is disabled: a holiday").await;
        assert_eq!(named(&api, "greet").await["isEnabled"], false);

        // A deletion takes the name; another change in between is not deleted unseen.
        browser.click("Delete …").await;
        browser.fill("To confirm", "great").await;
        let open = "return document.querySelector('dialog[open] button.danger').disabled;";
        assert_eq!(browser.run(open, json!([])).await, true, "another name deletes nothing");
        browser.fill("To confirm", "greet").await;
        browser.click("Delete").await;
        browser.sees("No jobs yet").await;
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]));
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// Whatever a name, a text or a value says, it is shown and never executed.
#[test]
fn what_others_wrote_does_no_harm() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let evil = "<img src=x onerror=\"document.title='harm'\">";
        let script = "<script>document.title='harm'</script>";
        let job = json!({ "name": evil, "jobType": "callback", "description": script, "group": evil,
            "properties": { "<b>": script }, "callback": { "url": "http://127.0.0.1:9/?a=<b>" } });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let worker = json!({ "classNames": [evil], "worker": { "name": script, "tags": [evil] } });
        assert_eq!(api.post("/api/v1/workers", &worker).await.0, 200);
        assert_eq!(api.post("/node/heartbeat", &json!({ "nodeId": id(), "os": evil, "group": script })).await.0, 204);
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        let browser = Browser::start().await;
        let job = job["id"].as_str().expect("an id");
        for (page, text) in [
            ("/jobs".to_owned(), evil),
            (format!("/jobs/{job}"), script),
            (format!("/jobs/{job}/edit"), evil),
            ("/runs".to_owned(), evil),
            (format!("/runs/{run}"), evil),
            ("/workers".to_owned(), script),
            ("/nodes".to_owned(), script),
            ("/groups".to_owned(), evil),
            ("/".to_owned(), evil),
        ] {
            browser.open(&format!("{}/#{page}", broker.url)).await;
            browser.sees(text).await;
            let parts = "return [document.querySelectorAll('main img, main script').length, document.title];";
            let found = browser.run(parts, json!([])).await;
            assert_eq!(found[0], 0, "{page}");
            assert_ne!(found[1], "harm", "{page}");
        }
        // And if a page forgot itself, the policy that it came with would not let it.
        let forgets = "try { document.body.insertAdjacentHTML('beforeend', '<b>x</b>'); return 'done'; } catch (e) { return e.name; }";
        assert_eq!(browser.run(forgets, json!([])).await, "TypeError");
    });
}

#[test]
fn a_token_is_asked_for_and_kept_in_the_tab() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token", "--token", "readonly:look-token"], "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let job = api.job("titles", "it.Titles", &json!({})).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{job}", broker.url)).await;
        browser.sees("This broker needs a token").await;
        browser.fill("Token", "nobodys-token").await;
        browser.click("Sign in").await;
        browser.sees("The broker did not accept this token").await;
        // Who may only look sees it, and is told so when doing more.
        browser.fill("Token", "look-token").await;
        browser.click("Sign in").await;
        browser.sees("it.Titles").await;
        browser.click("Trigger …").await;
        browser.click("Trigger").await;
        browser.sees("the role readonly is not enough for this call").await;
        browser.click("Cancel").await;
        browser.click("Forget the token").await;
        browser.sees("This broker needs a token").await;
        browser.fill("Token", "boss-token").await;
        browser.click("Sign in").await;
        browser.sees("it.Titles").await;
        browser.click("Disable …").await;
        browser.click("Disable").await;
        browser.sees("This job is disabled").await;
        // It is neither in an address nor where another tab or a later day finds it.
        let places = "return [location.href, document.cookie, JSON.stringify(localStorage), sessionStorage.getItem('token')];";
        let found = browser.run(places, json!([])).await;
        assert_eq!(found[3], "boss-token");
        assert!(!found[0].as_str().expect("an address").contains("boss"), "{found}");
        assert_eq!((&found[1], &found[2]), (&json!(""), &json!("{}")));
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// An operator's word on runs, workers and nodes, each after a question.
#[test]
fn runs_are_stopped_workers_put_out_and_nodes_drained() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000", "--node-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let (status, worker) = api.post("/api/v1/workers", &json!({ "classNames": ["it.slow"], "worker": { "name": "sloth" } })).await;
        assert_eq!(status, 200, "{worker}");
        let worker = format!("/api/v1/workers/{}", worker["workerId"].as_str().expect("an id"));
        let node = id();
        api.beat(&node, &json!({})).await;
        let job = json!({ "name": "slow", "jobType": "task", "task": { "handler": "it.slow", "lease": 600_000, "cancelGrace": 200 } });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        let browser = Browser::start().await;

        browser.open(&format!("{}/#/runs/{run}", broker.url)).await;
        browser.click("Stop …").await;
        browser.click("Cancel").await;
        browser.click("Stop …").await;
        assert_ne!(api.state(&run).await["state"], "stopped", "it is asked first");
        browser.click("Stop the run").await;
        browser.sees("the run is over").await;
        assert_eq!(api.state(&run).await["state"], "stopped");
        browser.click("Run again …").await;
        browser.click("Run again").await;
        browser.sees("Repeats").await;

        let state = |path: String| {
            let api = api.clone();
            async move { api.get(&path).await.1 }
        };
        browser.click("Workers").await;
        browser.sees("sloth").await;
        browser.click("Kick …").await;
        browser.fill("Reason", "it runs wild").await;
        browser.click("Kick").await;
        // The word `kicked` is on the page already: in the filter.
        browser.sees("Allow …").await;
        let told = state(worker.clone()).await;
        assert_eq!((&told["state"], &told["reason"]), (&json!("kicked"), &json!("it runs wild")));
        browser.click("Allow …").await;
        browser.click("Allow").await;
        until("a worker that may come", || async { (state(worker.clone()).await["state"] == "enabled").then_some(()) }).await;

        browser.click("Nodes").await;
        // The page before has such a button too.
        browser.gives("the page of nodes", "return document.querySelector('main h1')?.textContent === 'Nodes';", json!([])).await;
        browser.click("Drain …").await;
        browser.click("Drain").await;
        // The page says the word in its legend, too.
        let path = format!("/api/v1/nodes/{node}");
        until("a node that drains", || async { (state(path.clone()).await["isDraining"] == true).then_some(()) }).await;
        browser.click("Enable …").await;
        browser.click("Enable").await;
        until("a node that works", || async { (state(path.clone()).await["isDraining"] == false).then_some(()) }).await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// What was down when a page was opened, and came back.
#[test]
fn a_page_that_was_opened_while_the_broker_was_down_appears() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let job = Api::new(&broker.url).job("titles", "it.Titles", &json!({})).await;
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        browser.sees("Nothing has run yet").await;
        for (page, text) in
            [("/workers".to_owned(), "No worker has connected yet"), ("/jobs".to_owned(), "titles"), (format!("/jobs/{job}/edit"), "Save")]
        {
            broker.process.kill();
            browser.run("location.hash = arguments[0];", json!([page])).await;
            let error = "return document.querySelector('main p.error')?.textContent ?? null;";
            assert_eq!(browser.gives("an error", error, json!([])).await, "The broker does not answer.");
            broker.restart("");
            browser.sees(text).await;
        }
    });
}

/// JSON that is other people's goes through the pages as it was written.
#[test]
fn numbers_stay_as_they_were_written() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let body = r#"{"name":"sum","jobType":"task","task":{"handler":"it.sum","arguments":{"big":9007199254740993123,"one":1.0}}}"#;
        let (status, job) = api.send(api.request(Method::POST, "/api/v1/jobs").body(body)).await;
        assert_eq!(status, 201, "{job}");
        let worker = api.worker("it.sum").await;
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/{}/edit", broker.url, job["id"].as_str().expect("an id"))).await;
        // Once with the arguments as they are, beside a change; and once with them typed anew.
        browser.fill("Name that workers watch", "it.other").await;
        browser.click("Save").await;
        browser.sees("Fire history").await;
        assert_eq!(named(&api, "sum").await["task"]["arguments"].to_string(), r#"{"big":9007199254740993123,"one":1.0}"#);
        browser.click("Edit").await;
        browser.fill("Name that workers watch", "it.sum").await;
        browser.fill("Arguments", r#"{"big":9007199254740993125,"one":2.0}"#).await;
        browser.click("Save").await;
        browser.sees("Fire history").await;
        let typed = r#"{"big":9007199254740993125,"one":2.0}"#;
        assert_eq!(named(&api, "sum").await["task"]["arguments"].to_string(), typed);
        browser.click("Trigger …").await;
        browser.click("Trigger").await;
        browser.sees("Run of sum").await;
        assert_eq!(work(&api, &worker, "done").await["arguments"].to_string(), typed);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// A long log is shown at once, its end is kept, and a page that nobody sees does not hold a connection.
#[test]
fn a_long_log_is_shown_and_not_followed_unseen() {
    journey(async {
        let broker = Broker::start(&["--worker-offline", "600000"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "long", "jobType": "task", "task": { "handler": "it.long", "lease": 600_000 } });
        let (status, job) = api.post("/api/v1/jobs", &job).await;
        assert_eq!(status, 201, "{job}");
        let worker = api.worker("it.long").await;
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        let order = api.heard(&worker, "tasks").await.expect("an order")[0].clone();
        let say = |texts: Vec<String>, state: &'static str| {
            let (api, worker, order) = (api.clone(), worker.clone(), order.clone());
            async move {
                let logs: Vec<Value> = texts.iter().map(|text| json!({ "text": text })).collect();
                let mut report = json!([{ "identity": order["identity"], "attempt": order["attempt"], "state": state, "logs": logs }]);
                if state == "running" {
                    report[0]["progress"] = json!(40);
                }
                let (status, settled) = api.post(&format!("/api/v1/workers/{worker}/reports"), &report).await;
                assert_eq!(status, 200, "{settled}");
            }
        };
        for part in 0..5 {
            say((0..500).map(|i| format!("line {}.", part * 500 + i)).collect(), "running").await;
        }
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/runs/{run}", broker.url)).await;
        // The run's own lines, that it was made and began, are among them.
        browser.sees("the last 2,000 of 2,502 lines; following").await;
        browser.sees("line 2499.").await;
        browser.sees("left at this rate").await;
        let shown = "return [document.querySelectorAll('.log .line').length, document.querySelector('.log .line').textContent.includes('line 500.')];";
        assert_eq!(browser.run(shown, json!([])).await, json!([2000, true]));

        let hide = "Object.defineProperty(document, 'hidden', { value: arguments[0], configurable: true }); document.dispatchEvent(new Event('visibilitychange'));";
        browser.run(hide, json!([true])).await;
        say(vec!["said unseen".into()], "success").await;
        // The rest of the page is looked at all the same, and says that it is over; the log does not.
        browser.run("return document.dispatchEvent(new Event('visibilitychange'));", json!([])).await;
        browser.sees("Run again").await;
        assert!(!browser.text().await.contains("said unseen"));
        browser.run(hide, json!([false])).await;
        browser.sees("said unseen").await;
        browser.sees("lines; the run is over; the log is complete").await;
        let twice =
            "const all = [...document.querySelectorAll('.log .line')].map(e => e.textContent); return all.length - new Set(all).size;";
        assert_eq!(browser.run(twice, json!([])).await, 0);
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// What is typed in a form is neither lost nor read as something else.
#[test]
fn a_form_keeps_what_is_typed_and_says_what_is_wrong_with_it() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let api = Api::new(&broker.url).with_token("boss-token");
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs/new?kind=application", broker.url)).await;
        browser.sees("This broker needs a token").await;
        browser.fill("Name", "walk").await;
        browser.fill("Program", "echo").await;
        browser.fill("Arguments", "--who {arguments}").await;
        browser.fill("Token", "boss-token").await;
        browser.click("Sign in").await;
        assert_eq!(browser.value("Name").await, "walk");
        // To go elsewhere is asked for first.
        browser.run("window.confirm = () => false; location.hash = '/runs';", json!([])).await;
        browser.gives("the address of the form", "return location.hash.startsWith('#/jobs/new');", json!([])).await;
        assert_eq!(browser.value("Name").await, "walk");

        let marked = "const e = document.activeElement; return e.getAttribute('aria-invalid') && e.checkVisibility() && document.getElementById(e.id + '-error').textContent;";
        browser.click("Add a trigger").await;
        browser.fill_in("Runs", "at intervals").await;
        browser.click("Create the job").await;
        assert_eq!(browser.gives("the marked field", marked, json!([])).await, "a value is expected");
        // The broker's answer about the schedule comes late: after the form has said what is wrong.
        let delay = "const real = window.fetch; window.fetch = async (path, options) => { \
            const answer = await real(path, options); \
            if (String(path).endsWith('/jobs/preview')) await new Promise(go => { window.letGo = go; }); \
            return answer; }; window.undelay = () => { window.fetch = real; };";
        browser.run(delay, json!([])).await;
        browser.fill("Every", "1h").await;
        browser.gives("an answer to hold back", "return Boolean(window.letGo);", json!([])).await;
        browser.click("Bounds, daylight saving, blackouts").await;
        browser.fill_in("Not after", "12").await;
        browser.click("Create the job").await;
        browser.sees("the date is not complete").await;
        let let_go = "window.undelay(); window.letGo(); return new Promise(done => setTimeout(done, 100));";
        browser.run(let_go, json!([])).await;
        assert!(browser.text().await.contains("the date is not complete"), "a late answer took it away");
        assert_eq!(api.get("/api/v1/jobs").await.1["items"], json!([]), "nothing is stored");
        let end = "const label = [...document.querySelectorAll('label')].find(e => e.textContent === 'Not after'); \
            document.getElementById(label.htmlFor).value = '2099-12-31T12:00';";
        browser.run(end, json!([])).await;
        browser.click("What follows, other properties").await;
        for value in ["1", "2"] {
            browser.click("Add a property").await;
            let last = "const all = [...document.querySelectorAll('.pair input')].slice(-2); [all[0].value, all[1].value] = ['Mine', arguments[0]];";
            browser.run(last, json!([value])).await;
        }
        browser.click("Create the job").await;
        browser.sees("“Mine” is named twice").await;
        browser.run("[...document.querySelectorAll('.pair input')].at(-2).value = 'Other';", json!([])).await;
        browser.click("Create the job").await;
        browser.sees("Fire history").await;
        let job = named(&api, "walk").await;
        assert!(job["schedule"]["endAt"].is_string(), "{job}");
        let properties = job["properties"].clone();
        assert_eq!((&properties["Mine"], &properties["Other"]), (&json!("1"), &json!("2")));

        browser.click("Trigger …").await;
        browser.sees("The line of the job: --who {arguments}").await;
        assert_eq!(browser.value("What {arguments} stands for").await, "");
        browser.click("Cancel").await;
        browser.run("location.hash = '/jobs/%';", json!([])).await;
        browser.sees("Nothing is at this address").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

/// Files, and what they come with: fresh but not fetched twice, and nothing but their own.
#[test]
fn its_files_are_served() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let api = Api::new(&broker.url);
        for (path, kind) in [
            ("/", "text/html"),
            ("/portal/main.js", "text/javascript"),
            ("/portal/style.css", "text/css"),
            ("/portal/icon.svg", "image/svg+xml"),
        ] {
            let answer = api.request(Method::GET, path).send().await.expect("an answer");
            let header = |name: &str| answer.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
            assert_eq!(answer.status(), 200, "{path}");
            assert!(header("content-type").starts_with(kind), "{path}: {}", header("content-type"));
            assert!(header("content-security-policy").contains("default-src 'self'"), "{path}");
            assert!(!header("content-security-policy").contains("unsafe"), "{path}");
            assert_eq!(header("x-content-type-options"), "nosniff");
            let etag = header("etag");
            let again = api.request(Method::GET, path).header("If-None-Match", &etag).send().await.expect("an answer");
            assert_eq!((again.status().as_u16(), again.headers().get("etag").and_then(|v| v.to_str().ok())), (304, Some(etag.as_str())));
            let other = api.request(Method::GET, path).header("If-None-Match", "\"other\"").send().await.expect("an answer");
            assert_eq!(other.status(), 200);
        }
        for path in ["/portal/nothing.js", "/portal/..%2findex.html", "/portal/", "/portal"] {
            assert_eq!(api.get(path).await.0, 404, "{path}");
        }
        assert_eq!(api.send(api.request(Method::POST, "/portal/main.js")).await.0, 405);
    });
}
