//! Traces, metrics and logs reach an OpenTelemetry collector.

use crate::support::api::{Api, id};
use crate::support::brokers::Brokers;
use crate::support::process::{Broker, Process, agent};
use crate::support::protobuf::Fields;
use crate::support::receiver::{Got, Receiver, Reply};
use crate::support::{journey, until};
use crate::tasks::{Raw, job, over};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const CALLER: &str = "b7ad6b7169203331";

/// Attributes (`KeyValue`) as text.
fn attributes(of: &Fields, number: u64) -> BTreeMap<String, String> {
    let value = |value: Fields| if value.text(1).is_empty() { value.number(3).to_string() } else { value.text(1) };
    of.all(number).iter().map(|pair| (pair.text(1), value(pair.one(2)))).collect()
}

/// The items of all requests to a path, and the resources that sent them.
fn items(got: &[Got], path: &str) -> (Vec<Fields>, Vec<BTreeMap<String, String>>) {
    let requests = got.iter().filter(|got| got.path == path);
    let (mut items, mut resources) = (Vec::new(), Vec::new());
    for part in requests.flat_map(|got| Fields::read(&got.bytes).all(1)) {
        resources.push(attributes(&part.one(1), 1));
        items.extend(part.all(2).iter().flat_map(|scope| scope.all(2)));
    }
    (items, resources)
}

#[test]
fn a_collector_gets_the_trace_of_a_run_with_metrics_and_logs() {
    journey(async {
        // A collector that is not ready gets the first request again.
        let collector = Receiver::start([Reply::status(503)]);
        let mut broker = Broker::start(&["--otlp-endpoint", &collector.url, "--otlp-header", "x-key=k 1"], "");
        let api = Api::new(&broker.url);
        let policies = json!({ "policies": { "retry": { "limit": 1, "delay": 10 } } });
        let job = job(&api, "traced", json!({ "handler": "h" }), policies).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        let trigger = api.request(reqwest::Method::POST, &format!("/api/v1/jobs/{job}/trigger"));
        let (status, run) = api.send(trigger.header("traceparent", format!("00-{TRACE}-{CALLER}-01"))).await;
        assert_eq!(status, 202, "{run}");
        let first = worker.order().await;
        worker.report(&first, "failed", json!({ "error": { "message": "not yet" } }));
        let second = worker.order().await;
        worker.report(&second, "success", json!({ "result": 1 }));
        let run = over(&api, run["identity"].as_str().expect("an id")).await;
        assert_eq!((&run["state"], &run["attempt"]), (&json!("success"), &json!(2)), "{run}");
        let (mut agent, on_node, traceparent) = work_of_an_agent(&api, &collector.url).await;
        // A program that stops sends what is left.
        assert!(agent.terminate().success());
        assert!(broker.process.terminate().success());

        let got = collector.got();
        let (refused, got) = got.split_first().expect("a request");
        assert!(got.iter().any(|again| again.path == refused.path && again.bytes == refused.bytes), "it is sent again");
        check_agent(got, &on_node, &traceparent);
        let of_broker =
            |got: &&Got| Fields::read(&got.bytes).all(1).iter().all(|part| attributes(&part.one(1), 1)["service.name"] == "webloom-broker");
        let got: Vec<Got> = got.iter().filter(of_broker).cloned().collect();
        let got = got.as_slice();
        assert!(got.iter().all(|got| got.headers["content-type"] == "application/x-protobuf" && got.headers["x-key"] == "k 1"));
        let (mut spans, mut resources) = items(got, "/v1/traces");
        spans.retain(|span| span.hex(1) == TRACE);
        let named = |name: &str| spans.iter().filter(|span| span.text(5) == name).collect::<Vec<_>>();
        let (roots, dispatches, attempts) = (named("run traced"), named("dispatch"), named("attempt"));
        let ([root], [dispatch], [failed, done]) = (roots.as_slice(), dispatches.as_slice(), attempts.as_slice()) else {
            panic!("{spans:?}")
        };
        assert_eq!((root.hex(1), root.hex(4), root.one(15).number(3)), (TRACE.to_owned(), CALLER.to_owned(), 1), "{root:?}");
        for span in [dispatch, failed, done] {
            assert_eq!((span.hex(1), span.hex(4)), (TRACE.to_owned(), root.hex(2)), "{span:?}");
            assert!(root.number(7) <= span.number(7) && span.number(7) <= span.number(8) && span.number(8) <= root.number(8), "{span:?}");
        }
        // What the worker does for an attempt belongs to its span.
        let told = |order: &Value| order["spanId"].as_str().expect("a span").to_owned();
        assert_eq!((failed.hex(2), done.hex(2)), (told(&first), told(&second)));
        assert_eq!((failed.one(15).number(3), done.one(15).number(3)), (2, 1));
        assert!(failed.one(15).text(2).contains("not yet"), "{failed:?}");
        let about = attributes(done, 9);
        for (key, expected) in [
            ("webloom.run.id", run["identity"].as_str().expect("an id")),
            ("webloom.job.name", "traced"),
            ("webloom.attempt", "2"),
            ("webloom.worker.id", &worker.id.replace('-', "")),
        ] {
            assert_eq!(about.get(key).map(String::as_str), Some(expected), "{key} in {about:?}");
        }

        let (metrics, of_metrics) = items(got, "/v1/metrics");
        // One that is sent again may arrive after a newer one.
        let time = |metric: &&Fields| metric.one(7).all(1).iter().map(|point| point.number(3)).max();
        let newest = |name: &str| metrics.iter().filter(|metric| metric.text(1) == name).max_by_key(time).expect("a counter");
        let ended = newest("webloom_runs_ended_total");
        let points = ended.one(7).all(1);
        let success = points.iter().find(|point| attributes(point, 7)["state"] == "success").expect("a value");
        assert_eq!(f64::from_bits(success.number(4)), 1.0, "{ended:?}");
        let tasks = newest("webloom_tasks_ended_total");
        let handlers: Vec<_> = tasks.one(7).all(1).iter().map(|point| attributes(point, 7)["handler"].clone()).collect();
        assert_eq!(handlers, ["h"; 3], "one for each state");
        let commits = metrics.iter().rfind(|metric| metric.text(1) == "webloom_store_transaction_seconds").expect("a histogram");
        assert!(commits.one(9).one(1).number(4) > 3, "{commits:?}");
        let (lines, of_lines) = items(got, "/v1/logs");
        let warns = |line: &&Fields| line.number(2) == 13 && line.one(5).text(1).starts_with("task attempt ended");
        assert_eq!(lines.iter().filter(warns).count(), 1, "{lines:?}");
        resources.extend(of_metrics.into_iter().chain(of_lines));
        assert!(resources.len() > 2 && resources.iter().all(|resource| *resource == resources[0]), "{resources:?}");
        assert_eq!(resources[0]["service.name"], "webloom-broker");
        collector.stop().await;
    });
}

#[test]
fn each_broker_of_a_cluster_sends_its_metrics() {
    journey(async {
        let collector = Receiver::start([]);
        let endpoint: &'static str = Box::leak(collector.url.clone().into_boxed_str());
        let brokers = Brokers::start_on(2, &[], &["--otlp-endpoint", endpoint], None).await;
        let expected: BTreeSet<String> =
            [brokers.id(0).await, brokers.id(1).await].iter().filter_map(Value::as_str).map(str::to_owned).collect();
        until("metrics of both", || async {
            let (_, resources) = items(&collector.got(), "/v1/metrics");
            let senders: BTreeSet<String> = resources.iter().map(|resource| resource["service.instance.id"].clone()).collect();
            (senders == expected).then_some(())
        })
        .await;
    });
}

/// A block and a program at an agent that sends its spans. Returns it with the runs of both, and the `TRACEPARENT` of the program.
async fn work_of_an_agent(api: &Api, collector: &str) -> (Process, [String; 2], String) {
    let folder = tempfile::tempdir().expect("a folder");
    let room = ["--heartbeat", "1", "--download-allow", "127.0.0.0/8", "--applications", "--application-users", "root"];
    let agent = agent(&api.url, folder.path(), &[&room[..], &["--otlp-endpoint", collector]].concat());
    let site = Receiver::start([Reply::status(200), Reply::status(404)]);
    let (crawl, _worker) = api.run("spans", &json!({})).await;
    let pages = json!([{ "url": format!("{}/one", site.url) }, { "url": format!("{}/two", site.url) }]);
    assert_eq!(api.post(&format!("/requestqueue/{crawl}"), &pages).await.0, 200);
    let properties = json!({ "Application": "sh", "Arguments": json!(["-c", "echo $TRACEPARENT; exit 3"]).to_string(), "MaxCpu": "101",
        "MinFreeMemory": "0" });
    let (status, job) = api.post("/api/v1/jobs", &json!({ "name": "p", "jobType": "application", "properties": properties })).await;
    assert_eq!(status, 201, "{job}");
    until("a node", || async { Some(api.get("/api/v1/nodes").await.1).filter(|nodes| nodes["items"][0]["load"].is_object()) }).await;
    let program = api.trigger(job["id"].as_str().expect("an id")).await;
    assert_eq!(over(api, &program).await["state"], "failed");
    // What the program itself sends belongs to its span.
    let (_, logs) = api.get(&format!("/api/v1/runs/{program}/logs")).await;
    let lines = logs["items"].as_array().expect("lines").iter().filter_map(|line| line["text"].as_str());
    let told: Vec<String> = lines.filter(|text| text.starts_with("00-")).map(str::to_owned).collect();
    let [traceparent] = <[String; 1]>::try_from(told).unwrap_or_else(|_| panic!("{logs}"));
    until("the pages", || async { Some(api.state(&crawl).await).filter(|run| run["success"] == 1 && run["error"] == 1) }).await;
    site.stop().await;
    (agent, [crawl, program], traceparent)
}

/// What the agent did belongs to the spans of the broker.
fn check_agent(got: &[Got], runs: &[String; 2], traceparent: &str) {
    let (spans, _) = items(got, "/v1/traces");
    let of = |name: &str, kind: u64, run: &str| {
        let is_it = |span: &&Fields| span.text(5) == name && span.number(6) == kind && attributes(span, 9)["webloom.run.id"] == *run;
        spans.iter().find(is_it).unwrap_or_else(|| panic!("no span {name} of kind {kind} in {spans:?}"))
    };
    let [crawl, program] = runs.each_ref().map(|run| run.replace('-', ""));
    let (dispatched, block) = (of("block", 3, &crawl), of("block", 2, &crawl));
    let (attempt, program) = (of("attempt", 3, &program), of("program", 2, &program));
    for (parent, span) in [(dispatched, block), (attempt, program)] {
        assert_eq!((span.hex(1), span.hex(4)), (parent.hex(1), parent.hex(2)), "{span:?}");
    }
    // Two processes round the time to milliseconds, each from a clock of its own.
    assert!(dispatched.number(7) <= block.number(7) + 1_000_000, "{block:?} in {dispatched:?}");
    assert_eq!(traceparent, format!("00-{}-{}-01", program.hex(1), program.hex(2)));
    let about = attributes(block, 9);
    let counts = ["success", "failed", "given_back"].map(|kind| about[&format!("webloom.requests.{kind}")].as_str());
    assert_eq!((counts, block.one(15).number(3)), (["1", "1", "0"], 1), "{about:?}");
    assert_eq!((attributes(program, 9)["webloom.program.exit_code"].as_str(), program.one(15).number(3)), ("3", 2), "{program:?}");
}

#[test]
fn without_an_endpoint_no_span_is_made() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let job = job(&api, "j", json!({ "handler": "h" }), json!({})).await;
        let mut worker = Raw::watch(&api, &id(), &["h"], json!({}), json!([])).await;
        api.trigger(&job).await;
        assert!(worker.order().await["spanId"].is_null());
    });
}
