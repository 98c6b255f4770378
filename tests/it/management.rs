//! The management of jobs by HTTP: previews, the ledger, reasons, changes, logs, groups, files.

use crate::support::api::{Api, requests};
use crate::support::process::Broker;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// A block job with this schedule; its id.
async fn scheduled(api: &Api, name: &str, more: Value) -> String {
    let mut job = json!({ "name": name, "jobType": "block", "properties": { "FullClassName": "it.Managed" } });
    for (key, value) in more.as_object().expect("an object") {
        job[key] = value.clone();
    }
    let (status, job) = api.post("/api/v1/jobs", &job).await;
    assert_eq!(status, 201, "{job}");
    job["id"].as_str().expect("an id").to_owned()
}

fn texts(why: &Value) -> String {
    let because = why["because"].as_array().expect("sentences");
    assert!(!because.is_empty(), "{why}");
    because.iter().map(|text| text.as_str().expect("a text")).collect::<Vec<_>>().join(" ")
}

async fn why(api: &Api, job: &str, at: &Value) -> (String, String, String) {
    let (status, why) = api.get(&format!("/api/v1/jobs/{job}/why?at={}", at.as_str().expect("an instant"))).await;
    assert_eq!(status, 200, "{why}");
    let word = |key: &str| why[key].as_str().expect("a word").to_owned();
    (word("verdict"), word("rule"), texts(&why))
}

/// Stops a run, if its actor is there.
async fn stop(api: &Api, run: &str) -> Option<()> {
    let (status, answer) = api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await;
    assert!(status == 200 || status == 503, "{answer}");
    (status == 200).then_some(())
}

#[test]
fn previews() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let ask = json!({ "cron": "*/10 * * * *", "after": "2030-01-01T00:00:00Z", "count": 3 });
        let (status, out) = api.post("/api/v1/jobs/preview", &ask).await;
        assert_eq!(status, 200, "{out}");
        let at: Vec<_> = out["fires"].as_array().expect("fires").iter().map(|fire| fire["at"].as_str().expect("an instant")).collect();
        assert_eq!(at, ["2030-01-01T00:10:00.000Z", "2030-01-01T00:20:00.000Z", "2030-01-01T00:30:00.000Z"]);
        assert_eq!((&out["zone"], &out["fires"][0]["local"]), (&json!("UTC"), &json!("2030-01-01T00:10:00+00:00")));
        assert_eq!(out["understood"].as_array().map(Vec::len), Some(1));
        for (body, status, field) in [
            (json!({ "cron": "every day" }), 422, "cron"),
            (json!({ "schedule": { "triggers": [{ "cron": "nonsense" }] } }), 422, "schedule.triggers[0].cron"),
            (json!({ "schedule": { "zone": "Mars/Olympus" } }), 422, "schedule.zone"),
            (json!({ "cron": "*/5 * * * *", "count": 1001 }), 422, "count"),
            (json!({ "after": "soon" }), 400, "after"),
        ] {
            let (got, problem) = api.post("/api/v1/jobs/preview", &body).await;
            assert_eq!((got, problem["field"].as_str()), (status, Some(field)), "{body}: {problem}");
        }

        let schedule = json!({ "triggers": [{ "every": 3_600_000, "anchor": "2030-01-01T00:30:00Z" }], "maxFires": 2,
            "startAt": "2030-01-01T00:00:00Z",
            "blackouts": [{ "name": "quiet", "from": "2030-01-01T01:00:00Z", "to": "2030-01-01T02:00:00Z" }] });
        let job = scheduled(&api, "previewed", json!({ "schedule": schedule })).await;
        let (status, out) = api.get(&format!("/api/v1/jobs/{job}/next?count=9")).await;
        assert_eq!(status, 200, "{out}");
        let marks: Vec<_> = out["fires"].as_array().expect("fires").iter().map(|fire| fire["blackout"].as_str()).collect();
        assert_eq!(marks, [None, Some("quiet"), None], "{out}");
        assert!(out["remarks"][0].as_str().is_some_and(|text| text.contains("2 runs")), "{out}");
        let (_, later) = api.get(&format!("/api/v1/jobs/{job}/next?after=2030-01-01T01:30:00Z&count=1")).await;
        assert_eq!(later["fires"][0]["at"], "2030-01-01T02:30:00.000Z");
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({ "reason": "holidays" })).await.0, 200);
        let (_, out) = api.get(&format!("/api/v1/jobs/{job}/next")).await;
        assert!(out["remarks"][0].as_str().is_some_and(|text| text.contains("disabled (holidays)")), "{out}");
        let often = scheduled(&api, "often", json!({ "schedule": { "triggers": [{ "every": 100 }] } })).await;
        assert_eq!(api.post(&format!("/api/v1/jobs/{often}/disable"), &json!({})).await.0, 200);
        let next = async || api.get(&format!("/api/v1/jobs/{often}/next?count=1")).await.1["fires"][0]["at"].clone();
        let first = next().await;
        until("a later time: past ones of a disabled job never come", || async { (next().await != first).then_some(()) }).await;
        for (query, status) in [("count=0", 422), ("count=x", 400), ("after=yesterday", 400)] {
            assert_eq!(api.get(&format!("/api/v1/jobs/{job}/next?{query}")).await.0, status, "{query}");
        }
    });
}

#[test]
fn the_ledger_and_its_reasons() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let _worker = api.worker("it.Managed").await;
        // The run is never ended, so what follows is skipped.
        let job =
            scheduled(&api, "explained", json!({ "schedule": { "triggers": [{ "every": 100, "anchor": "2020-01-01T00:00:00Z" }] } })).await;
        let path = format!("/api/v1/jobs/{job}/fires");
        let rows = until("four rows", || async {
            let (status, page) = api.get(&path).await;
            assert_eq!(status, 200, "{page}");
            Some(page["items"].as_array().expect("rows").clone()).filter(|rows| rows.len() >= 4)
        })
        .await;
        let (first, second) = (&rows[rows.len() - 1], &rows[rows.len() - 2]);
        assert_eq!((&first["verdict"], &first["rule"], &second["verdict"]), (&json!("fired"), &json!("due"), &json!("skipped")));
        let (verdict, rule, text) = why(&api, &job, &first["plannedAt"]).await;
        assert_eq!((verdict.as_str(), rule.as_str()), ("fired", "due"));
        assert!(text.contains(first["identity"].as_str().expect("a run")), "{text}");
        let (verdict, rule, text) = why(&api, &job, &second["plannedAt"]).await;
        assert_eq!((verdict.as_str(), rule.as_str()), ("skipped", "overlap"));
        assert!(text.contains("not over"), "{text}");

        // Pages go on where the one before ended.
        let (_, page) = api.get(&format!("{path}?limit=2")).await;
        let cursor = page["nextCursor"].as_str().expect("there is more");
        let (_, following) = api.get(&format!("{path}?limit=1&cursor={cursor}")).await;
        assert!(following["items"][0]["plannedAt"].as_str() < page["items"][1]["plannedAt"].as_str());
        let (_, fired) = api.get(&format!("{path}?verdict=fired")).await;
        assert_eq!(fired["items"].as_array().map(Vec::len), Some(1));
        let at = first["plannedAt"].as_str().expect("an instant");
        let (_, one) = api.get(&format!("{path}?from={at}&to={at}")).await;
        assert_eq!(one["items"].as_array().map(Vec::len), Some(1), "{one}");
        for (query, status) in [("verdict=lost", 422), ("cursor=x", 422), ("limit=0", 422), ("from=now", 400)] {
            assert_eq!(api.get(&format!("{path}?{query}")).await.0, status, "{query}");
        }
        let swapped = "from=2031-01-01T00:00:00Z&to=2030-01-01T00:00:00Z";
        assert_eq!(api.get(&format!("{path}?{swapped}")).await.1["field"], "to");

        // What is not in the ledger.
        assert_eq!(why(&api, &job, &json!("2001-01-01T00:00:00Z")).await.1, "before");
        assert_eq!(why(&api, &job, &json!("2040-01-01T00:00:00.100Z")).await.0, "planned");
        let (verdict, _, text) = why(&api, &job, &json!("2040-01-01T00:00:00.150Z")).await;
        assert_eq!(verdict, "notPlanned");
        assert!(text.contains("before it is 2040-01-01T00:00:00.100Z") && text.contains("after it is 2040-01-01T00:00:00.200Z"), "{text}");
        assert_eq!(api.post(&format!("/api/v1/jobs/{job}/disable"), &json!({ "reason": "too loud" })).await.0, 200);
        let (verdict, rule, text) = why(&api, &job, &json!("2040-01-01T00:00:00Z")).await;
        assert_eq!((verdict.as_str(), rule.as_str()), ("disabled", "disabled"));
        assert!(text.contains("too loud"), "{text}");
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}/why")).await.0, 422);
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}/why?at=noon")).await.0, 400);

        // Who changed what.
        let (status, page) = api.get(&format!("/api/v1/jobs/{job}/history")).await;
        let told: Vec<_> = page["items"].as_array().expect("changes").iter().map(|change| change["action"].as_str()).collect();
        assert_eq!((status, told), (200, vec![Some("disabled"), Some("created")]));
        assert_eq!(page["items"][0]["job"]["disabledReason"], "too loud");
        let (_, all) = api.get("/api/v1/changes?limit=1").await;
        let cursor = all["nextCursor"].as_str().expect("there is more");
        let (_, rest) = api.get(&format!("/api/v1/changes?cursor={cursor}")).await;
        assert_eq!(rest["items"][0]["action"], "created");
        let unknown = crate::support::api::id();
        for path in ["fires", "history", "next", "why?at=2030-01-01T00:00:00Z"] {
            assert_eq!(api.get(&format!("/api/v1/jobs/{unknown}/{path}")).await.0, 404, "{path}");
        }
    });
}

#[test]
fn why_a_run_is_where_it_is() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let worker = api.worker("it.Managed").await;
        let why = async |run: &str| {
            let (status, why) = api.get(&format!("/api/v1/runs/{run}/why")).await;
            assert_eq!(status, 200, "{why}");
            (why["rule"].as_str().expect("a rule").to_owned(), texts(&why))
        };
        let policies = json!({ "overlap": "queueAll", "retry": { "limit": 1, "delay": 600_000 } });
        let job = scheduled(&api, "asked about", json!({ "policies": policies, "group": "asked" })).await;
        let (first, second) = (api.trigger(&job).await, api.trigger(&job).await);
        let waits_for = async |run: &str| api.state(run).await["waitsFor"].clone();
        let (rule, text) = until("the start to be told", || async { Some(why(&first).await).filter(|(rule, _)| rule != "starting") }).await;
        assert!(rule == "startTold" && text.contains(&worker), "{rule}: {text}");
        let (rule, text) = why(&second).await;
        assert!(rule == "queued" && text.contains(&format!("behind run {first}")), "{rule}: {text}");
        assert_eq!((waits_for(&first).await, waits_for(&second).await), (Value::Null, json!("queue")));
        assert_eq!(api.post(&format!("/api/v1/runs/{first}/start-returned"), &json!({ "error": "no luck" })).await.0, 204);
        let (rule, text) = why(&first).await;
        assert!(rule == "retry" && text.contains("for attempt 2") && text.contains("no luck"), "{rule}: {text}");
        assert_eq!(waits_for(&first).await, "retry");
        // Its actor is being built for the next attempt.
        until("the stop", || stop(&api, &first)).await;
        assert_eq!(why(&first).await.0, "stopped");
        let lonely = api.job("lonely", "it.Nobody", &json!({})).await;
        let lonely = api.trigger(&lonely).await;
        let (rule, text) = until("the end", || async { Some(why(&lonely).await).filter(|(rule, _)| rule == "failed") }).await;
        assert!(rule == "failed" && text.contains("no worker watches the class it.Nobody"), "{text}");

        // Lists of runs.
        let list = async |query: &str| {
            let (status, page) = api.get(&format!("/api/v1/runs?{query}")).await;
            assert_eq!(status, 200, "{page}");
            page["items"]
                .as_array()
                .expect("runs")
                .iter()
                .map(|run| run["identity"].as_str().expect("an id").to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(list("group=asked").await, [second.clone(), first.clone()]);
        assert_eq!(list("group=asked&sort=creationTime").await, [first.clone(), second.clone()]);
        assert_eq!(list("kind=callback").await.len() + list("from=2090-01-01T00:00:00Z").await.len(), 0);
        assert_eq!(list("to=2090-01-01T00:00:00Z&kind=block").await.len(), 3);
        let (_, page) = api.get("/api/v1/runs?limit=1&sort=creationTime").await;
        let cursor = page["nextCursor"].as_str().expect("there is more");
        assert_eq!(list(&format!("limit=1&sort=creationTime&cursor={cursor}")).await, [second]);
        for query in ["sort=state", "from=2031-01-01T00:00:00Z&to=2030-01-01T00:00:00Z"] {
            assert_eq!(api.get(&format!("/api/v1/runs?{query}")).await.0, 422, "{query}");
        }
    });
}

#[test]
fn logs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (run, _) = api.run("it.Logged", &json!({})).await;
        let path = format!("/api/v1/runs/{run}/logs");
        let lines = json!([{ "text": "begin 100%", "level": "debug" }, { "text": "Odd", "level": 3 }, { "text": "bad", "level": "error", "source": "stderr" }]);
        assert_eq!(api.post(&path, &lines).await, (200, json!({ "accepted": 3, "dropped": 0 })));
        let read = async |query: &str| {
            let (status, page) = api.get(&format!("{path}?{query}")).await;
            assert_eq!(status, 200, "{page}");
            let lines = page["items"].as_array().expect("lines").iter();
            (
                lines
                    .filter(|line| line["source"] != "broker")
                    .map(|line| line["text"].as_str().expect("a text").to_owned())
                    .collect::<Vec<_>>(),
                page,
            )
        };
        let (all, page) = read("").await;
        assert_eq!(all, ["begin 100%", "Odd", "bad"]);
        assert!(page["items"][0]["text"].as_str().is_some_and(|text| text.starts_with("triggered")), "{page}");
        assert_eq!(read("level=warning").await.0, ["Odd", "bad"]);
        assert_eq!(read("level=4").await.0, ["bad"]);
        assert_eq!(read("text=ODD").await.0, ["Odd"]);
        assert_eq!(read("text=%25").await.0, ["begin 100%"], "no wildcard");
        assert_eq!(read("until=2001-01-01T00:00:00Z").await.0.len() + read("since=2090-01-01T00:00:00Z").await.0.len(), 0);
        let (_, page) = read("limit=1").await;
        assert_eq!(
            (&page["more"], page["items"].as_array().and_then(|items| items.last()).map(|line| line["text"].clone())),
            (&json!(true), Some(json!("begin 100%")))
        );
        assert_eq!(read(&format!("after={}&limit=1", page["next"])).await.0, ["Odd"]);

        // A reader that goes on after any line misses none.
        assert_eq!(api.post(&format!("/requestqueue/{run}"), &requests(0..1)).await.0, 200);
        let all = until("the run to begin", || async {
            let all = api.get(&format!("{path}?limit=1000")).await.1["items"].as_array().expect("lines").clone();
            (all.iter().filter(|line| line["source"] == "broker").count() == 2).then_some(all)
        })
        .await;
        for (nth, line) in all.iter().enumerate() {
            let rest = api.get(&format!("{path}?limit=1000&after={}", line["id"])).await.1["items"].clone();
            assert_eq!(rest.as_array().expect("lines"), &all[nth + 1..], "after {line}");
        }

        // A follower is woken by a line, and by the end; otherwise it waits.
        let (_, page) = read("").await;
        let follow = |after: Value| {
            let (api, path) = (api.clone(), path.clone());
            actix_rt::spawn(async move { api.get(&format!("{path}?after={after}&wait=30")).await })
        };
        let began = Instant::now();
        let waiting = follow(page["next"].clone());
        assert_eq!(api.post(&path, &json!([{ "text": "late" }])).await.0, 200);
        let (_, woken) = waiting.await.expect("an answer");
        assert_eq!(woken["items"][0]["text"], "late");
        let waiting = follow(woken["next"].clone());
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/stop"), &json!({})).await.0, 200);
        let (_, ended) = waiting.await.expect("an answer");
        assert_eq!(ended["state"], "stopped");
        assert!(ended["items"][0]["text"].as_str().is_some_and(|text| text.contains("stopped by hand")), "{ended}");
        assert!(began.elapsed() < Duration::from_secs(25), "nobody waited for the time to run out");
        assert_eq!(api.get(&format!("{path}?after={}&wait=30", ended["next"])).await.1["items"], json!([]));
        assert_eq!(api.post(&path, &json!([{ "text": "after the end" }])).await.0, 200, "what was under way is kept");

        for (body, status, field) in [
            (json!([{ "text": "x".repeat(8_193) }]), 422, "[0].text"),
            (json!([{ "text": "a" }, { "text": "b", "level": "loud" }]), 422, "[1].level"),
            (json!(vec![json!({ "text": "a" }); 1_001]), 422, "lines"),
            (json!([{ "level": 1 }]), 400, "[0].text"),
        ] {
            let (got, problem) = api.post(&path, &body).await;
            assert_eq!((got, problem["field"].as_str()), (status, Some(field)), "{problem}");
        }
        for (query, status) in [("wait=31", 422), ("wait=-1", 422), ("level=loud", 422), ("after=x", 400), ("limit=0", 422)] {
            assert_eq!(api.get(&format!("{path}?{query}")).await.0, status, "{query}");
        }
        assert_eq!(api.get(&format!("/api/v1/runs/{}/logs", crate::support::api::id())).await.0, 404);
        // Ten thousand lines are kept, and one that says so.
        let many = json!(vec![json!({ "text": "again" }); 1_000]);
        let mut accepted = 5;
        for _ in 0..11 {
            let (_, taken) = api.post(&path, &many).await;
            accepted += taken["accepted"].as_u64().expect("a number");
        }
        assert_eq!(accepted, 10_000);
        let (_, page) = api.get(&format!("{path}?text=is%20full")).await;
        assert_eq!(page["items"].as_array().map(Vec::len), Some(1), "{page}");
    });
}

#[test]
fn groups() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let (status, group) = api.post("/api/v1/groups", &json!({ "name": "Night", "description": "at night" })).await;
        assert_eq!((status, &group["jobs"], &group["nodes"]), (201, &json!(0), &json!(0)));
        let path = format!("/api/v1/groups/{}", group["id"].as_str().expect("an id"));
        let job = scheduled(&api, "sleepy", json!({ "group": "Night", "interval": 3_600_000 })).await;
        scheduled(&api, "other", json!({ "group": "Day" })).await;
        api.beat(&crate::support::api::id(), &json!({ "group": "NIGHT" })).await;
        let (_, group) = api.get("/api/v1/groups/Night").await;
        assert_eq!((&group["jobs"], &group["nodes"]), (&json!(1), &json!(1)), "{group}");
        let (_, page) = api.get("/api/v1/groups?limit=1").await;
        assert_eq!((&page["items"][0]["name"], &page["nextCursor"]), (&json!("Day"), &json!("Day")));
        assert_eq!(api.get("/api/v1/groups?cursor=Day").await.1["items"][0]["name"], "Night");

        // A new name is the jobs' new name as well, and stands in their history. Their actors, here one that has just
        // triggered its job, hear of it.
        api.trigger(&job).await;
        let (status, group) = api.put(&path, &json!({ "name": "Late" })).await;
        assert_eq!((status, &group["name"], &group["description"], &group["jobs"]), (200, &json!("Late"), &json!("at night"), &json!(1)));
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}")).await.1["group"], "Late");
        let (_, history) = api.get(&format!("/api/v1/jobs/{job}/history")).await;
        assert_eq!((&history["items"][0]["action"], &history["items"][0]["job"]["group"]), (&json!("updated"), &json!("Late")));
        assert_eq!(api.put(&format!("/api/v1/jobs/{job}"), &json!({ "isEnabled": false })).await.0, 200);
        assert_eq!(api.post(&format!("{path}/enable"), &json!({})).await, (200, json!({ "jobs": 1, "changed": 1 })));
        assert_eq!(api.post(&format!("{path}/enable"), &json!({})).await, (200, json!({ "jobs": 1, "changed": 0 })));
        assert_eq!(api.post(&format!("{path}/disable"), &json!({ "reason": "moving" })).await.1["changed"], 1);
        assert_eq!(api.get(&format!("/api/v1/jobs/{job}")).await.1["disabledReason"], "moving");
        assert_eq!(api.delete(&path).await.1["type"], "/problems/group-in-use");
        assert_eq!(api.delete(&format!("/api/v1/jobs/{job}")).await.0, 204);
        assert_eq!(api.delete(&path).await.0, 204);
        assert_eq!(api.get(&path).await.0, 404);
        assert_eq!(api.post("/api/v1/groups", &json!({ "name": "Empty" })).await.0, 201);
        let (status, problem) = api.post("/api/v1/groups/Empty/disable", &json!({ "mode": "hard" })).await;
        assert_eq!((status, &problem["field"]), (422, &json!("mode")), "also without a job: {problem}");

        let before = api.get("/api/v1/groups").await;
        for (body, status, field) in [
            (json!({}), 422, "name"),
            (json!({ "name": " " }), 422, "name"),
            (json!({ "name": "x".repeat(51) }), 422, "name"),
            (json!({ "name": "n", "description": "x".repeat(501) }), 422, "description"),
            (json!({ "name": "Day" }), 409, "name"),
            (json!({ "name": 5 }), 400, "name"),
        ] {
            let (got, problem) = api.post("/api/v1/groups", &body).await;
            assert_eq!((got, problem["field"].as_str()), (status, Some(field)), "{problem}");
        }
        for (method, path) in [(Method::DELETE, "/api/v1/groups/no"), (Method::POST, "/api/v1/groups/no/enable")] {
            assert_eq!(api.send(api.request(method, path)).await.0, 404, "{path}");
        }
        assert_eq!(api.get("/api/v1/groups").await, before, "nothing has changed");
    });
}

#[test]
fn files_of_jobs() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        scheduled(&api, "b", json!({ "interval": 3_600_000, "group": "g", "policies": { "retry": { "limit": 2 } } })).await;
        let hook = json!({ "url": "http://127.0.0.1:9/", "secret": "hush" });
        let (status, _) = api.post("/api/v1/jobs", &json!({ "name": "a", "jobType": "callback", "callback": hook })).await;
        assert_eq!(status, 201);
        let text = async |path: &str| {
            let answer = api.request(Method::GET, path).send().await.expect("an answer");
            assert_eq!(answer.headers()["content-type"], "application/yaml");
            answer.text().await.expect("a text")
        };
        let yaml = text("/api/v1/jobs/export").await;
        assert!(!yaml.contains("hush"), "{yaml}");
        assert!(yaml.find("name: a") < yaml.find("name: b"), "in the order of names: {yaml}");
        assert!(!text("/api/v1/jobs/export?group=g").await.contains("name: a"));
        let (_, list) = api.send(api.request(Method::GET, "/api/v1/jobs/export").header("accept", "application/json")).await;
        assert_eq!((&list[1]["name"], &list[1]["policies"]["retry"]["limit"]), (&json!("b"), &json!(2)));

        let import =
            async |query: &str, body: String| api.send(api.request(Method::POST, &format!("/api/v1/jobs/import{query}")).body(body)).await;
        let actions = |(status, done): (u16, Value)| {
            assert_eq!(status, 200, "{done}");
            let of = |job: &Value| format!("{} {}", job["name"].as_str().expect("a name"), job["action"].as_str().expect("a word"));
            done.as_array().expect("jobs").iter().map(of).collect::<Vec<_>>()
        };
        assert_eq!(actions(import("", yaml.clone()).await), ["a unchanged", "b unchanged"], "{yaml}");
        assert_eq!(actions(import("", list.to_string()).await), ["a unchanged", "b unchanged"]);
        let more = format!("{yaml}- name: c\n  priority: 7\n  properties:\n    FullClassName: a.B\n").replace("limit: 2", "limit: 3");
        let long = format!("{}{yaml}", "# a comment\n".repeat(200_000));
        assert_eq!(actions(import("", long).await), ["a unchanged", "b unchanged"], "over the limit of other calls");
        let before = api.get("/api/v1/changes").await;
        let id = crate::support::api::id();
        let twins = format!(
            "{more}- name: d\n  id: {id}\n  properties: {{ FullClassName: a.B }}\n- name: e\n  id: {id}\n  properties: {{ FullClassName: a.B }}\n"
        );
        let inside = format!("{more}- name: d\n  jobType: callback\n  callback:\n    url: http://10.0.0.1/\n");
        assert_eq!(actions(import("?dryRun=true", more.clone()).await), ["a unchanged", "b updated", "c created"]);
        assert_eq!(api.get("/api/v1/changes").await, before, "a dry run writes nothing");
        for (file, status, field) in [
            (format!("{more}- name: d\n  schedule:\n    triggers:\n    - cron: never ever\n"), 422, "jobs[3].schedule.triggers[0].cron"),
            (format!("{more}- name: c\n"), 422, "jobs[3].name"),
            (format!("{more}- priority: 1\n"), 422, "jobs[3].name"),
            (format!("{more}- name: d\n  priority: high\n"), 400, "jobs[3].priority"),
            ("name: a".to_owned(), 400, "jobs"),
            (twins, 422, "jobs[4].id"),
            (inside, 422, "jobs[3].callback.url"),
        ] {
            let (got, problem) = import("", file).await;
            assert_eq!((got, problem["field"].as_str()), (status, Some(field)), "{problem}");
        }
        assert_eq!(import("", "- [".to_owned()).await.0, 400);
        assert_eq!(api.get("/api/v1/changes").await, before, "all or nothing");
        assert_eq!(actions(import("", more.clone()).await), ["a unchanged", "b updated", "c created"]);
        assert_eq!(actions(import("", more).await), ["a unchanged", "b unchanged", "c unchanged"]);
        let (_, jobs) = api.get("/api/v1/jobs?name=b").await;
        assert_eq!(jobs["items"][0]["policies"]["retry"]["limit"], 3);
    });
}
