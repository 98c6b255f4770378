//! A real browser without a window, driven by WebDriver (<https://www.w3.org/TR/webdriver2/>): JSON over HTTP to chromedriver.
//! It does what a person does: opens addresses, finds things by what stands on them, types and clicks.

use super::process::Process;
use reqwest::Method;
use serde_json::{Value, json};
use std::future::Future;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The member under which WebDriver names an element.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
/// A field, by its label or the beginning of it. What is in an open dialog goes before the page behind it.
const FIND_FIELD: &str = "const root = document.querySelector('dialog[open]') ?? document; \
    const all = [...root.querySelectorAll('label')].filter(e => e.checkVisibility()).map(e => [e.textContent.trim(), e]); \
    const found = all.find(([text]) => text === arguments[0]) ?? all.find(([text]) => text.startsWith(arguments[0])); \
    return found ? document.getElementById(found[1].htmlFor) ?? found[1].querySelector('input') : null;";
/// What can be clicked, by its text; in an open dialog as well.
const FIND_BUTTON: &str = "const root = document.querySelector('dialog[open]') ?? document; \
    const all = [...root.querySelectorAll('button, a, summary')].filter(e => e.checkVisibility() && !e.disabled); \
    return all.find(e => e.textContent.trim() === arguments[0]) ?? null;";

/// Notes whether the next click meets something that can be clicked. A page that the click opens knows nothing of it.
const LISTEN: &str = "window.clicked = false; document.addEventListener('click', event => { \
    window.clicked = event.target.closest('button, a, summary, input, select, textarea, label, svg') !== null; }, { capture: true, once: true });";

/// A browser with one page; it ends with its test.
pub struct Browser {
    client: reqwest::Client,
    session: String,
    // In this order: the driver goes before the folder in which its browser writes.
    _driver: Process,
    profile: TempDir,
}

impl Browser {
    /// Starts one.
    ///
    /// # Panics
    /// It is not installed: the Debian packages `chromium` and `chromium-driver`.
    pub async fn start() -> Self {
        let profile = tempfile::tempdir().expect("a folder");
        let mut driver = Command::new("chromedriver");
        // With port 0 it takes one that is free for IPv4, and ends if another program has the same one for IPv6.
        driver.arg(format!("--port={}", super::free_port())).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = driver.spawn().unwrap_or_else(|error| {
            panic!("chromedriver does not start ({error}): apt-get install chromium chromium-driver, as tests/run.sh does")
        });
        let out = BufReader::new(child.stdout.take().expect("piped"));
        let driver = Process(child);
        let mut said = String::new();
        let port = out.lines().map_while(Result::ok).find_map(|line| {
            said.push_str(&line);
            said.push('\n');
            let rest = line.split_once("started successfully on port ")?.1;
            Some(rest.trim_end_matches('.').to_owned())
        });
        let url = format!("http://127.0.0.1:{}", port.unwrap_or_else(|| panic!("chromedriver does not listen: {said}")));
        let client = super::api::Api::new(&url).into_client();
        let flags = [
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--no-proxy-server",
            // Two pages of the browser's own that each start would load.
            "--disable-features=WebUIOmniboxPopup,WebUIOmniboxAimPopup",
            "--window-size=1280,1000",
        ];
        let mut args: Vec<String> = flags.map(str::to_owned).to_vec();
        args.push(format!("--user-data-dir={}", profile.path().display()));
        // Instead of the page for a new tab, which takes as long as a page of the portal.
        let start = json!({ "session": { "restore_on_startup": 4, "startup_urls": ["about:blank"] } });
        let options = json!({ "goog:chromeOptions": { "args": args, "prefs": start }, "goog:loggingPrefs": { "browser": "ALL" } });
        let mut browser = Self { client, session: format!("{url}/session"), _driver: driver, profile };
        let made = browser.ask(Method::POST, "", &json!({ "capabilities": { "alwaysMatch": options } })).await;
        let made = made.unwrap_or_else(|problem| panic!("no browser starts: {problem}"));
        browser.session = format!("{url}/session/{}", made["sessionId"].as_str().expect("an id"));
        browser
    }

    async fn ask(&self, method: Method, path: &str, body: &Value) -> Result<Value, Value> {
        let mut request = self.client.request(method.clone(), format!("{}{path}", self.session));
        if method == Method::POST {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.expect("chromedriver answers");
        let is_good = answer.status().is_success();
        let answer: Value = serde_json::from_str(&answer.text().await.expect("a body")).expect("chromedriver answers JSON");
        if is_good { Ok(answer["value"].clone()) } else { Err(answer["value"].clone()) }
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) {
        self.ask(Method::POST, "/url", &json!({ "url": url })).await.expect("it opens");
    }

    /// Opens a page of the portal anew: with another part after the # alone, the browser would keep the document that it has. Another
    /// query makes it load one, in the process that it has.
    pub async fn open_anew(&self, broker: &str, page: &str) {
        self.open(&format!("{broker}/?{}#{page}", super::api::id())).await;
    }

    /// Runs a script in the page; what it returns.
    pub async fn run(&self, script: &str, arguments: Value) -> Value {
        self.ask(Method::POST, "/execute/sync", &json!({ "script": script, "args": arguments })).await.expect("the script runs")
    }

    /// Calls a method of the browser's own protocol (<https://chromedevtools.github.io/devtools-protocol/>); what it returns.
    pub async fn devtools(&self, method: &str, parameters: Value) -> Value {
        let body = json!({ "cmd": method, "params": parameters });
        self.ask(Method::POST, "/goog/cdp/execute", &body).await.unwrap_or_else(|problem| panic!("{method}: {problem}"))
    }

    /// All the text that can be seen.
    pub async fn text(&self) -> String {
        self.run("return document.body.innerText;", json!([])).await.as_str().expect("a text").to_owned()
    }

    /// Waits for something on the page, and says what was there instead if it does not come within a minute.
    async fn wait<T, F: Future<Output = Option<T>>>(&self, what: &str, mut condition: impl FnMut() -> F) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = condition().await {
                return value;
            }
            if start.elapsed() > Duration::from_secs(60) {
                let at = self.run("return location.href + ' ' + (document.activeElement?.outerHTML ?? '');", json!([])).await;
                panic!("waited a minute for {what} at {at}:\n{}\n{:?}", self.text().await, self.complaints().await);
            }
            // Each look costs the browser milliseconds of processor time.
            tokio::time::sleep((start.elapsed() / 5).clamp(Duration::from_millis(20), Duration::from_millis(250))).await;
        }
    }

    /// Waits until a text can be seen.
    pub async fn sees(&self, text: &str) {
        self.wait(&format!("`{text}`"), || async { self.text().await.contains(text).then_some(()) }).await;
    }

    /// Waits until a script returns something else than null or false; what it is.
    pub async fn gives(&self, what: &str, script: &str, arguments: Value) -> Value {
        self.wait(what, || async {
            Some(self.run(script, arguments.clone()).await).filter(|value| !value.is_null() && *value != json!(false))
        })
        .await
    }

    /// Does something with an element once it is there, in the middle of the window, where nothing lies over it. What is drawn
    /// anew in between is looked for again.
    async fn with(&self, what: &str, find: &str, action: &str, body: &Value) {
        self.wait(&format!("{action} of `{what}`"), || async {
            let script = format!("const it = (() => {{ {find} }})(); it?.scrollIntoView({{ block: 'center' }}); return it;");
            let found = self.run(&script, json!([what])).await;
            let element = found[ELEMENT].as_str()?;
            if action == "click" {
                self.run(LISTEN, json!([])).await;
            }
            let done = self.ask(Method::POST, &format!("/element/{element}/{action}"), body).await.ok()?;
            // A page that was drawn anew at that moment may have moved the element away: nothing was clicked, so it is clicked again.
            let is_missed = action == "click" && self.run("return window.clicked ?? null;", json!([])).await == json!(false);
            (!is_missed).then_some(done)
        })
        .await;
    }

    /// Clicks what has this text.
    pub async fn click(&self, text: &str) {
        self.with(text, FIND_BUTTON, "click", &json!({})).await;
    }

    /// Types into the field of this label, in place of what is there.
    pub async fn fill(&self, label: &str, text: &str) {
        self.with(label, FIND_FIELD, "clear", &json!({})).await;
        self.with(label, FIND_FIELD, "value", &json!({ "text": text })).await;
    }

    /// Types into the field of this label, as it is: a choice takes what begins so, a date takes its parts one by one.
    pub async fn fill_in(&self, label: &str, text: &str) {
        self.with(label, FIND_FIELD, "value", &json!({ "text": text })).await;
    }

    /// Clicks the field of this label: a box, a choice.
    pub async fn choose(&self, label: &str) {
        self.with(label, FIND_FIELD, "click", &json!({})).await;
    }

    /// What stands in the field of this label.
    pub async fn value(&self, label: &str) -> Value {
        // An arrow takes the arguments of the function around it.
        let script = format!("const found = (() => {{ {FIND_FIELD} }})(); return found && found.value;");
        self.run(&script, json!([label])).await
    }

    /// What the page complained about: errors of scripts, and what its policy refused. Answers of 4xx are none, nor what the browser's own
    /// pages log (`chrome://`).
    pub async fn complaints(&self) -> Vec<String> {
        let log = self.ask(Method::POST, "/se/log", &json!({ "type": "browser" })).await.expect("a log");
        let entries = log.as_array().expect("entries").iter().filter_map(|entry| entry["message"].as_str().map(str::to_owned));
        let is_of_page = |text: &String| {
            !text.starts_with("chrome://") && !text.contains("Failed to load resource: the server responded with a status of 4")
        };
        entries.filter(is_of_page).collect()
    }
}

impl Drop for Browser {
    /// The driver is killed as all processes here are, and would leave its browser behind: that is found by its folder.
    fn drop(&mut self) {
        let folder = self.profile.path().to_string_lossy().into_owned();
        for entry in std::fs::read_dir("/proc").into_iter().flatten().flatten() {
            let arguments = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
            let process: Option<u32> = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(process) = process.filter(|_| String::from_utf8_lossy(&arguments).contains(&folder)) {
                // It may have ended by itself.
                let _ = Command::new("kill").arg("-KILL").arg(process.to_string()).stderr(Stdio::null()).status();
            }
        }
    }
}
