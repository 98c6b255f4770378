//! Windows that watch answers of the API: each gets the answer, and then what changes in it.

use crate::named_tokens::{job, token};
use crate::portal_refresh::LOOKS;
use crate::support::api::Api;
use crate::support::browser::Browser;
use crate::support::process::Broker;
use crate::support::socket::Socket;
use crate::support::{journey, until};
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use serde_json::{Value, json};

const JOBS: &str = "/api/v1/jobs?limit=10&sort=name";

/// A window, with the answers that it has by their numbers.
struct Window {
    socket: Socket,
    answers: [Value; 8],
    patches: usize,
}

impl Window {
    async fn open(broker: &str, token: Option<&str>) -> Self {
        let coded = token.map(|token| format!("webloom.token.{}", BASE64_URL_SAFE_NO_PAD.encode(token)));
        let protocols: Vec<&str> = ["webloom.live"].into_iter().chain(coded.as_deref()).collect();
        let socket = Socket::open_with(broker, "/live", None, &protocols).await;
        Self { socket, answers: Default::default(), patches: 0 }
    }

    fn watch(&self, id: usize, path: &str) {
        self.socket.say("watch", &json!({ "id": id, "path": path }));
    }

    /// Takes messages until the answer of this number is as wanted. A problem counts as the answer.
    async fn until(&mut self, id: usize, is_wanted: impl Fn(&Value) -> bool) -> &Value {
        while !is_wanted(&self.answers[id]) {
            let message = self.socket.next().await.unwrap_or_else(|| panic!("closed with {}", self.answers[id]));
            let body = &message["v"];
            let nth = body["id"].as_u64().unwrap_or_default() as usize;
            match message["t"].as_str().expect("a name") {
                "value" => self.answers[nth] = body["value"].clone(),
                "patch" => {
                    let patch: json_patch::Patch = serde_json::from_value(body["patch"].clone()).expect("a patch");
                    json_patch::patch(&mut self.answers[nth], &patch).expect("it applies");
                    self.patches += 1;
                }
                "problem" => self.answers[nth] = body["problem"].clone(),
                "beat" => {}
                other => panic!("{other}: {message}"),
            }
        }
        &self.answers[id]
    }

    /// The first answer to a path, or its problem.
    async fn first(&mut self, id: usize, path: &str) -> Value {
        self.watch(id, path);
        self.until(id, |answer| !answer.is_null()).await.clone()
    }
}

fn names(answer: &Value) -> Vec<&str> {
    answer["items"].as_array().into_iter().flatten().filter_map(|job| job["name"].as_str()).collect()
}

#[test]
fn six_windows_share_one_look_at_a_path_and_get_its_differences() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        let broker = Broker::start_in(folder.path(), "127.0.0.1:0", &[], "");
        let api = Api::new(&broker.url);
        let (status, made) = job(&api, "first", None).await;
        assert_eq!(status, 201, "{made}");
        let path = format!("/api/v1/jobs/{}", made["id"].as_str().expect("an id"));
        let mut windows = Vec::new();
        for _ in 0..6 {
            let mut window = Window::open(&broker.url, None).await;
            let answer = window.first(1, JOBS).await;
            assert_eq!(answer, api.get(JOBS).await.1);
            windows.push(window);
        }
        let counts = [api.metric("webloom_live_windows").await, api.metric("webloom_live_paths").await];
        assert_eq!(counts, [6.0, 1.0]);
        assert_eq!(api.put(&path, &json!({ "description": "changed" })).await.0, 200);
        assert_eq!(job(&api, "second", None).await.0, 201);
        for window in &mut windows {
            window.until(1, |jobs| jobs["items"][0]["description"] == "changed" && names(jobs) == ["first", "second"]).await;
            assert!(window.patches > 0, "it got the difference only");
            assert_eq!(window.answers[1], api.get(JOBS).await.1);
        }

        // Only what the table marks can be watched: a GET may do something.
        let window = &mut windows[0];
        for (path, status) in [
            (format!("{path}/trigger"), 422),
            ("/api/v1/jobs/export".to_owned(), 422),
            ("/metrics".to_owned(), 422),
            (format!("{path}x"), 400),
            ("/nothing".to_owned(), 404),
            ("http://127.0.0.1/".to_owned(), 422),
        ] {
            let problem = window.first(2, &path).await;
            assert_eq!(problem["status"], status, "{path}: {problem}");
            window.answers[2] = Value::Null;
        }
        assert_eq!(api.get("/api/v1/runs").await.1["items"], json!([]));

        // A standby shows what is stored, and asks the leader for the rest.
        let standby = Broker::start_in(folder.path(), "127.0.0.1:0", &[], "");
        let there = Api::new(&standby.url);
        until("a standby that reads", || async { (there.get(JOBS).await.0 == 200).then_some(()) }).await;
        let mut window = Window::open(&standby.url, None).await;
        assert_eq!(names(&window.first(1, JOBS).await), ["first", "second"]);
        assert!(window.first(2, "/api/v1/actors/kinds").await["items"].as_array().is_some_and(|kinds| !kinds.is_empty()));
        assert_eq!(job(&api, "third", None).await.0, 201);
        window.until(1, |jobs| names(jobs) == ["first", "second", "third"]).await;

        drop((window, windows));
        until("no window", || async {
            (api.metric("webloom_live_windows").await + api.metric("webloom_live_paths").await == 0.0).then_some(())
        })
        .await;
    });
}

#[test]
fn a_window_sees_what_its_token_sees_and_ends_with_it() {
    journey(async {
        let broker = Broker::start(&["--token", "boss-token"], "");
        let boss = Api::new(&broker.url).with_token("boss-token");
        for (name, group) in [("mine", "red"), ("theirs", "blue")] {
            assert_eq!(job(&boss, name, Some(group)).await.0, 201);
        }
        let theirs = boss.get(JOBS).await.1["items"][1]["id"].as_str().expect("an id").to_owned();
        let viewer = token(&boss, "vi", "viewer", json!({ "groups": ["red"] })).await;
        let mut all = Window::open(&broker.url, Some("boss-token")).await;
        let mut limited = Window::open(&broker.url, viewer.token.as_deref()).await;
        assert_eq!(names(&all.first(1, JOBS).await), ["mine", "theirs"]);
        assert_eq!(names(&limited.first(1, JOBS).await), ["mine"]);
        assert_eq!(limited.first(2, "/api/v1/nodes").await["status"], 403);
        assert_eq!(limited.first(3, &format!("/api/v1/jobs/{theirs}")).await["status"], 404);
        assert_eq!(limited.first(4, "/api/v1/tokens").await["status"], 403);
        assert_eq!(job(&boss, "more", Some("red")).await.0, 201);
        limited.until(1, |jobs| names(jobs) == ["mine", "more"]).await;
        let anyone = Api::new(&broker.url);
        assert_eq!((anyone.get("/live").await.0, boss.get("/live").await.0), (401, 400));

        assert_eq!(boss.delete("/api/v1/tokens/vi").await.0, 204);
        while limited.socket.next().await.is_some() {}
        assert_eq!(job(&boss, "last", Some("red")).await.0, 201);
        all.until(1, |jobs| names(jobs) == ["last", "mine", "more", "theirs"]).await;
    });
}

/// Differences as the page makes them: paths with `~`, lists, the whole answer, and names that JavaScript knows.
const APPLIED: &str = r#"
    const { applied } = await import("/portal/live.js");
    const all = [
        [{ "a/b": { "m~n": 1 } }, [{ op: "replace", path: "/a~1b/m~0n", value: 2 }]],
        [[1, 2, 3], [{ op: "remove", path: "/1" }, { op: "add", path: "/2", value: 4 }]],
        [{ a: 1 }, [{ op: "replace", path: "", value: [] }]],
        [JSON.parse('{"__proto__":{"x":1}}'), [{ op: "add", path: "/__proto__/harm", value: 1 }, { op: "replace", path: "/__proto__", value: { harm: 2 } }]],
        [{}, [{ op: "add", path: "/__proto__", value: { harm: 3 } }]],
    ].map(([value, patch]) => JSON.stringify(applied(value, patch)));
    let refused = false;
    try { applied({}, [{ op: "add", path: "/__proto__/harm", value: 4 }]); } catch { refused = true; }
    return [...all, refused, {}.harm === undefined];
"#;
/// What the page says of its state.
const NOTE: &str = "return document.getElementById('note').textContent;";
/// The rows, and how often the page has requested the list.
const RUNS: &str = "return [document.querySelectorAll('table[aria-label=Runs] tbody tr').length, \
    performance.getEntriesByType('resource').filter(e => new URL(e.name).pathname === '/api/v1/runs').length];";

#[test]
fn a_page_is_live_and_outlives_its_broker() {
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (status, made) = job(&api, "watched", None).await;
        assert_eq!(status, 201, "{made}");
        let job = made["id"].as_str().expect("an id").to_owned();
        let browser = Browser::start().await;
        browser.open(&format!("{}/#/runs", broker.url)).await;
        let is_live = format!("return (() => {{ {NOTE} }})().endsWith(', live');");
        browser.gives("a live page", &is_live, json!([])).await;
        let script = format!("return (async () => {{ {APPLIED} }})();");
        let expected =
            json!([r#"{"a/b":{"m~n":2}}"#, "[1,3,4]", "[]", r#"{"__proto__":{"harm":2}}"#, r#"{"__proto__":{"harm":3}}"#, true, true]);
        assert_eq!(browser.run(&script, json!([])).await, expected);

        let before = browser.run(RUNS, json!([])).await;
        assert_eq!(before[0], 0);
        api.trigger(&job).await;
        let more = format!("const [rows, calls] = (() => {{ {RUNS} }})(); return rows === arguments[0] && [rows, calls];");
        let after = browser.gives("the run", &more, json!([1])).await;
        assert_eq!(after, json!([1, before[1]]), "it came without a request");
        assert_eq!(browser.complaints().await, [""; 0]);

        broker.process.kill();
        let is_lost = format!("return (() => {{ {NOTE} }})() === 'The broker does not answer.';");
        browser.gives("a page that says so", &is_lost, json!([])).await;
        assert_eq!(browser.run(RUNS, json!([])).await[0], 1, "what it shows stays");
        broker.restart("");
        browser.gives("a live page again", &is_live, json!([])).await;
        let before = browser.run(RUNS, json!([])).await;
        api.trigger(&job).await;
        let after = browser.gives("the other run", &more, json!([2])).await;
        assert_eq!(after, json!([2, before[1]]), "it came without a request again");
        let looks = browser.run(LOOKS, json!([])).await;
        assert!(looks.as_u64().is_some_and(|looks| looks > 1), "{looks}");
    });
}
