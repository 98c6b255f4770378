//! Pages of the portal on which the broker itself is managed: alerts, packages, brokers; and the command palette.

use crate::support::api::Api;
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::receiver::Receiver;
use crate::support::{journey, tar_gz, until};
use flate2::Compression;
use serde_json::json;

const EVIL: &str = "<img src=x onerror=\"document.title='harm'\">";

async fn is_harmless(browser: &Browser, title: &str) {
    let parts = "return [document.querySelectorAll('main img, main script, dialog img').length, document.title];";
    assert_eq!(browser.run(parts, json!([])).await, json!([0, format!("{title} · Webloom")]));
}

#[test]
fn a_channel_is_made_tested_changed_and_deleted() {
    journey(async {
        let receiver = Receiver::start([]);
        let broker = Broker::start(&["--callback-allow", "127.0.0.0/8"], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": EVIL, "jobType": "task", "task": { "handler": "it.nobody" } });
        let (_, job) = api.post("/api/v1/jobs", &job).await;
        api.trigger(job["id"].as_str().expect("an id")).await;
        let browser = Browser::start().await;
        browser.open(&broker.url).await;
        browser.click("Alerts").await;
        browser.sees("No channel yet").await;
        browser.click("New channel …").await;
        browser.fill("Name", EVIL).await;
        browser.fill("URL or mail address", "http://").await;
        browser.click("Create").await;
        browser.gives("a problem", "return document.querySelector('dialog .error')?.hidden === false;", json!([])).await;
        browser.fill("URL or mail address", &receiver.url).await;
        browser.fill("Events", "failed, late").await;
        browser.click("Create").await;
        browser.sees("failed, late").await;
        is_harmless(&browser, "Alerts").await;
        browser.click("Send a test").await;
        browser.sees("accepted the test message").await;
        let (_, channels) = api.get("/api/v1/alerts").await;
        assert_eq!(channels["items"][0]["filter"]["events"], json!(["failed", "late"]), "{channels}");
        // The failure of the job is listed, although it was before the channel.
        browser.sees("no worker watches it.nobody").await;
        browser.click("Change …").await;
        browser.fill("Events", "").await;
        browser.click("Save").await;
        browser.sees("all events").await;
        browser.click("Disable …").await;
        browser.click("Disable").await;
        until("a disabled channel", || async { (api.get("/api/v1/alerts").await.1["items"][0]["isEnabled"] == false).then_some(()) }).await;
        browser.click("Delete …").await;
        browser.click("Delete").await;
        browser.sees("No channel yet").await;
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn a_package_is_dropped_and_the_brokers_and_settings_are_listed() {
    journey(async {
        let broker = Broker::start(&["--keep-runs", "77"], "");
        let api = Api::new(&broker.url);
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/packages", broker.url)).await;
        browser.sees("No package yet").await;
        let dropped = "const data = new DataTransfer(); data.items.add(new File([new Uint8Array(arguments[1])], arguments[0])); \
            document.querySelector('.drop').dispatchEvent(new DragEvent('drop', { dataTransfer: data, bubbles: true, cancelable: true }));";
        browser.run(dropped, json!(["notes.txt", []])).await;
        browser.sees("notes.txt is neither a .zip nor a .tar.gz").await;
        browser.run(dropped, json!(["broken.tar.gz", [1, 2, 3]])).await;
        browser.sees("neither a zip nor a tar.gz").await;
        let name = format!("{EVIL}.tar.gz");
        let bytes = tar_gz("run", b"true", Compression::fast());
        browser.run(dropped, json!([name, bytes])).await;
        browser.sees(&format!("{name} is stored.")).await;
        browser.sees(&name).await;
        is_harmless(&browser, "Packages").await;
        let (_, packages) = api.get("/api/v1/packages").await;
        assert_eq!((&packages["items"][0]["size"], &packages["items"][0]["name"]), (&json!(bytes.len()), &json!(name)));
        browser.click("Delete …").await;
        browser.click("Delete").await;
        browser.sees("No package yet").await;

        browser.click("Brokers").await;
        browser.sees("(this one)").await;
        browser.sees("leader").await;
        browser.sees("--keep-runs").await;
        browser.sees("77").await;
        let (_, settings) = api.get("/api/v1/settings").await;
        let found = settings["items"].as_array().expect("items").iter().find(|one| one["name"] == "--node-offline").expect("a setting");
        assert_eq!(found["value"], "30 s");
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}

#[test]
fn the_palette_goes_to_pages_jobs_and_runs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = json!({ "name": "<img src=x> nightly", "jobType": "task", "task": { "handler": "it.nobody" } });
        let (_, job) = api.post("/api/v1/jobs", &job).await;
        let run = api.trigger(job["id"].as_str().expect("an id")).await;
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/jobs", broker.url)).await;
        browser.sees("nightly").await;
        // In a field `/` is itself.
        browser.fill("Name", "a/b").await;
        let is_open = "return Boolean(document.querySelector('dialog.palette[open]'));";
        assert_eq!(browser.run(is_open, json!([])).await, false);
        let press = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: arguments[0], ctrlKey: arguments[1], bubbles: true, cancelable: true }));";
        let enter = "const field = document.getElementById('palette'); \
            field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true, cancelable: true }));";
        let has = "return [...document.querySelectorAll('#palette-list li')].some(e => e.textContent.includes(arguments[0]));";
        let write =
            "const field = document.getElementById('palette'); field.value = arguments[0]; field.dispatchEvent(new Event('input'));";
        for (key, ctrl, text, found, shown) in [
            ("/", false, "pack".to_owned(), "Packages".to_owned(), "Upload a package"),
            ("k", true, "NIGHTLY".to_owned(), "nightly".to_owned(), "Fire history"),
            ("/", false, run.clone(), run.clone(), "Run of"),
        ] {
            browser.run(press, json!([key, ctrl])).await;
            browser.gives("the palette", is_open, json!([])).await;
            browser.run(write, json!([text])).await;
            browser.gives(&found, has, json!([found])).await;
            let harm = browser.run("return document.querySelectorAll('dialog img').length;", json!([])).await;
            assert_eq!(harm, 0);
            browser.run(enter, json!([])).await;
            browser.sees(shown).await;
        }
        assert_eq!(browser.complaints().await, Vec::<String>::new());
    });
}
