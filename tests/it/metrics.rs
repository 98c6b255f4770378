//! `/metrics` is what Prometheus reads, and says what happened.

use crate::support::api::{Api, id};
use crate::support::process::Broker;
use crate::support::{journey, until};
use reqwest::Method;
use serde_json::json;
use std::collections::{BTreeMap, BTreeSet};

/// Metrics by name: type, and samples by name and labels.
type Page = BTreeMap<String, (String, BTreeMap<String, f64>)>;

fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Labels in braces, read from the left; the rest of the line.
fn labels(mut rest: &str) -> (Vec<(String, String)>, &str) {
    let mut found = Vec::new();
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label and its value");
        assert!(is_name(name), "{name}");
        let mut value = String::new();
        let mut chars = after.char_indices();
        let end = loop {
            match chars.next().expect("the value ends") {
                (_, '\\') => match chars.next().expect("something is escaped").1 {
                    'n' => value.push('\n'),
                    c @ ('"' | '\\') => value.push(c),
                    c => panic!("`\\{c}` is no escape"),
                },
                (at, '"') => break at,
                (_, c) => value.push(c),
            }
        };
        found.push((name.to_owned(), value));
        rest = &after[end + 1..];
        match rest.split_at(1) {
            (",", more) => rest = more,
            ("}", more) => return (found, more),
            other => panic!("{other:?}"),
        }
    }
}

/// Reads a page as the format's description says it, and fails on what is not in it.
fn read(text: &str) -> Page {
    assert!(text.ends_with('\n'));
    let (mut page, mut current) = (Page::new(), String::new());
    let mut helped = BTreeSet::new();
    for line in text.lines() {
        if let Some(help) = line.strip_prefix("# HELP ") {
            let name = help.split(' ').next().expect("a name");
            assert!(helped.insert(name.to_owned()), "{name} is helped twice");
        } else if let Some(kind) = line.strip_prefix("# TYPE ") {
            let (name, kind) = kind.split_once(' ').expect("a name and a type");
            assert!(is_name(name) && ["counter", "gauge", "histogram"].contains(&kind), "{line}");
            assert!(page.insert(name.to_owned(), (kind.to_owned(), BTreeMap::new())).is_none(), "{name} comes twice");
            current = name.to_owned();
        } else {
            let at = line.find(['{', ' ']).expect("a value");
            let (name, rest) = line.split_at(at);
            let (kind, samples) = page.get_mut(&current).expect("a type before the samples");
            let suffix = name.strip_prefix(current.as_str()).unwrap_or_else(|| panic!("{name} stands with {current}"));
            let suffixes: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(suffixes.contains(&suffix), "{line}");
            let (mut found, rest) = if let Some(rest) = rest.strip_prefix('{') { labels(rest) } else { (Vec::new(), rest) };
            let value: f64 = rest.strip_prefix(' ').expect("a space before the value").parse().expect("a number");
            assert!(kind == "gauge" || value >= 0.0, "{line}");
            found.sort();
            let key = format!("{name}{}", found.iter().map(|(label, value)| format!(" {label}={value}")).collect::<String>());
            assert!(samples.insert(key, value).is_none(), "twice: {line}");
        }
    }
    for (name, (kind, samples)) in &page {
        if kind == "histogram" {
            let count = samples[&format!("{name}_count")];
            assert_eq!(samples[&format!("{name}_bucket le=+Inf")], count);
            let mut buckets: Vec<(f64, f64)> = samples
                .iter()
                .filter_map(|(key, value)| Some((key.split_once(" le=")?.1.replace("+Inf", "inf").parse().expect("a bound"), *value)))
                .collect();
            buckets.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            assert!(buckets.len() > 10 && buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1), "{name} {buckets:?}");
        }
    }
    page
}

async fn page(api: &Api) -> Page {
    let answer = api.request(Method::GET, "/metrics").send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let kind = answer.headers()["content-type"].to_str().expect("a text").to_owned();
    assert!(kind.starts_with("text/plain; version=0.0.4"), "{kind}");
    read(&answer.text().await.expect("a text"))
}

fn value(page: &Page, name: &str, key: &str) -> f64 {
    let (_, samples) = page.get(name).unwrap_or_else(|| panic!("no {name}"));
    *samples.get(key).unwrap_or_else(|| panic!("no {key} in {samples:?}"))
}

#[test]
fn fires_are_counted_and_measured() {
    journey(async {
        let broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let before = page(&api).await;
        assert_eq!(value(&before, "webloom_fires_total", "webloom_fires_total verdict=fired"), 0.0);
        assert!(before["webloom_job_lateness_seconds"].1.is_empty());
        let worker = api.worker("it.Metrics").await;
        let at = (chrono::Utc::now() + chrono::Duration::milliseconds(300)).to_rfc3339();
        let name = "a \"b\"\\";
        let input = json!({ "name": name, "properties": { "FullClassName": "it.Metrics" }, "schedule": { "triggers": [{ "at": at }] } });
        let (status, job) = api.post("/api/v1/jobs", &input).await;
        assert_eq!(status, 201, "{job}");
        let later = json!({ "name": "later", "properties": { "FullClassName": "it.Metrics" },
            "schedule": { "triggers": [{ "every": 3_600_000 }] } });
        assert_eq!(api.post("/api/v1/jobs", &later).await.0, 201);
        let job = job["id"].as_str().expect("an id").to_owned();
        let run = until("its run", || async {
            let (_, runs) = api.get(&format!("/api/v1/runs?jobId={job}")).await;
            runs["items"][0]["startTime"].as_str()?;
            runs["items"][0]["identity"].as_str().map(str::to_owned)
        })
        .await;
        let working = page(&api).await;
        let open: f64 = working["webloom_runs"].1.values().sum();
        assert_eq!(open, 1.0, "{:?}", working["webloom_runs"]);
        assert_eq!(api.get(&format!("/api/v1/workers/{worker}/messages")).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{run}/start-returned"), &json!({})).await.0, 204);
        api.beat(&id(), &json!({})).await;
        let after = until("the run to be counted", || async {
            let after = page(&api).await;
            // The scheduler says once a second how many it has.
            let counted = value(&after, "webloom_runs_ended_total", "webloom_runs_ended_total state=success") == 1.0
                && value(&after, "webloom_agenda_jobs", "webloom_agenda_jobs") == 1.0;
            counted.then_some(after)
        })
        .await;
        for (name, key, expected) in [
            ("webloom_fires_total", "webloom_fires_total verdict=fired", 1.0),
            ("webloom_fires_total", "webloom_fires_total verdict=missed", 0.0),
            ("webloom_fire_to_ledger_seconds", "webloom_fire_to_ledger_seconds_count", 1.0),
            ("webloom_fire_to_sent_seconds", "webloom_fire_to_sent_seconds_count", 1.0),
            ("webloom_runs", "webloom_runs state=running", 0.0),
            ("webloom_workers_online", "webloom_workers_online", 1.0),
            ("webloom_nodes_online", "webloom_nodes_online", 1.0),
            ("webloom_actors", "webloom_actors kind=scheduler", 1.0),
            ("webloom_actors", "webloom_actors kind=alerts", 1.0),
            ("webloom_actors", "webloom_actors kind=janitor", 1.0),
            ("webloom_actors", "webloom_actors kind=recorder", 1.0),
            ("webloom_alerts_waiting", "webloom_alerts_waiting", 0.0),
            ("webloom_store_failures_total", "webloom_store_failures_total", 0.0),
        ] {
            assert_eq!(value(&after, name, key), expected, "{key}");
        }
        assert!(value(&after, "webloom_store_written_total", "webloom_store_written_total") > 3.0);
        #[cfg(target_os = "linux")]
        {
            let rss = value(&after, "process_resident_memory_bytes", "process_resident_memory_bytes");
            assert!((1e6..1e9).contains(&rss), "{rss}");
            assert!(value(&after, "process_cpu_seconds_total", "process_cpu_seconds_total") >= 0.0);
        }

        let (status, late) = api.get(&format!("/api/v1/jobs/{job}/lateness")).await;
        assert_eq!((status, &late["count"], &late["p50"]), (200, &json!(1), &late["max"]));
        let ms = late["max"].as_f64().expect("a number");
        let key = format!("webloom_job_lateness_seconds job={name} job_id={job} quantile=0.99");
        assert_eq!(value(&after, "webloom_job_lateness_seconds", &key), ms / 1_000.0);
        assert_eq!(api.get(&format!("/api/v1/jobs/{}/lateness", id())).await.0, 404);
    });
}

/// Names of metrics in the expressions of a text.
fn names_in(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("webloom_") || word.starts_with("process_")).map(str::to_owned).collect()
}

#[test]
fn the_dashboard_and_the_rules_name_metrics_that_are_there() {
    journey(async {
        let broker = Broker::start(&[], "");
        let page = page(&Api::new(&broker.url)).await;
        for metric in ["webloom_requests_total", "webloom_request_errors_total", "webloom_answer_seconds", "webloom_requests_waiting"] {
            assert!(page.contains_key(metric), "{metric}");
        }
        let text = std::fs::read_to_string("deploy/grafana/webloom.json").expect("a dashboard");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let of_panels = panels.iter().flat_map(|panel| panel["targets"].as_array().expect("targets"));
        let of_panels = of_panels.map(|target| target["expr"].as_str().expect("an expression").to_owned());
        let rules = std::fs::read_to_string("deploy/alert-rules.yaml").expect("rules");
        let of_rules = rules.lines().filter_map(|line| Some(line.trim().strip_prefix("expr: ")?.to_owned()));
        let expressions: Vec<String> = of_panels.chain(of_rules).collect();
        assert!(expressions.len() > 25, "{expressions:?}");
        for expression in expressions {
            for name in names_in(&expression) {
                let base = name.strip_suffix("_bucket").unwrap_or(&name);
                assert!(page.contains_key(base), "{name} in `{expression}` is not in /metrics");
            }
        }
    });
}

#[test]
fn with_tokens_it_is_for_readers() {
    journey(async {
        let broker = Broker::start(&["--token", "boss", "--token", "readonly:look", "--token", "agent:node"], "");
        let api = Api::new(&broker.url);
        let status = |token: Option<&str>| {
            let api = token.map_or_else(|| api.clone(), |token| api.with_token(token));
            async move { api.request(Method::GET, "/metrics").send().await.expect("an answer").status().as_u16() }
        };
        let statuses: [u16; 4] = [status(None).await, status(Some("node")).await, status(Some("look")).await, status(Some("boss")).await];
        assert_eq!(statuses, [401, 403, 200, 200]);
    });
}
