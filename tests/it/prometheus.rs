//! A real Prometheus (Debian's package) reads the metrics of a broker, the rules and what the dashboard asks for.

use crate::support::api::Api;
use crate::support::process::{Broker, Process};
use crate::support::{free_port, journey, until};
use serde_json::Value;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use url::form_urlencoded::Serializer;

const RULES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/deploy/alert-rules.yaml");

/// Checks a file or an input with promtool.
fn promtool(arguments: &[&str], input: &str) {
    let mut tool = Command::new("promtool");
    let tool = tool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = tool.spawn().expect("promtool runs");
    child.stdin.take().expect("piped").write_all(input.as_bytes()).expect("it is read");
    let output = child.wait_with_output().expect("it ends");
    let said = [output.stdout, output.stderr].concat();
    // It lists names that are against the conventions, with exit code 3.
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&said));
}

/// Starts a Prometheus that reads this broker; its address.
fn start(folder: &Path, broker: &str) -> (Process, String) {
    let target = broker.trim_start_matches("http://");
    let settings = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}}\nrule_files: ['{RULES}']\n\
        scrape_configs: [{{job_name: webloom, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    let file = folder.join("prometheus.yaml");
    std::fs::write(&file, settings).expect("written");
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new("prometheus");
    command.current_dir(folder).arg("--config.file").arg(&file).arg("--storage.tsdb.path").arg(folder.join("data"));
    command.arg(format!("--web.listen-address={address}")).arg("--log.level=error").stdin(Stdio::null());
    (Process(command.spawn().expect("Prometheus starts")), format!("http://{address}"))
}

/// What Prometheus answers; none while it starts.
async fn ask(client: &reqwest::Client, url: &str) -> Option<Value> {
    let answer = client.get(url).send().await.ok().filter(|answer| answer.status() != 503)?;
    serde_json::from_str(&answer.text().await.ok()?).ok()
}

/// The values of an expression now.
async fn values(client: &reqwest::Client, prometheus: &str, expression: &str) -> Option<Vec<Value>> {
    let query = Serializer::new(String::new()).append_pair("query", expression).finish();
    let answer = ask(client, &format!("{prometheus}/api/v1/query?{query}")).await?;
    assert_eq!(answer["status"], "success", "{expression}: {answer}");
    answer["data"]["result"].as_array().cloned()
}

#[test]
fn prometheus_reads_the_metrics_the_rules_and_the_dashboard() {
    if Command::new("promtool").arg("--version").output().is_err() {
        println!("SKIPPED: there is no promtool: apt-get install prometheus, as tests/run.sh does");
        return;
    }
    journey(async {
        let mut broker = Broker::start(&[], "");
        let api = Api::new(&broker.url);
        let page = api.metrics().await;
        promtool(&["check", "metrics"], &page);
        promtool(&["check", "rules", RULES], "");

        let folder = tempfile::tempdir().expect("a folder");
        let (_process, prometheus) = start(folder.path(), &broker.url);
        let client = api.into_client();
        // A rate needs two values.
        until("two reads of the metrics", || async {
            let found = values(&client, &prometheus, "count_over_time(webloom_leader[5m]) > 1").await?;
            (!found.is_empty()).then_some(())
        })
        .await;
        let text = std::fs::read_to_string("deploy/grafana/webloom.json").expect("a dashboard");
        let dashboard: Value = serde_json::from_str(&text).expect("JSON");
        let mut empty = Vec::new();
        for target in dashboard["panels"].as_array().expect("panels").iter().flat_map(|panel| panel["targets"].as_array().expect("targets"))
        {
            let expression = target["expr"].as_str().expect("an expression");
            let found = values(&client, &prometheus, &expression.replace("$__rate_interval", "5m")).await;
            if found.expect("an answer").is_empty() {
                empty.push(expression);
            }
        }
        // No request has failed yet, so there are no kinds of errors.
        assert_eq!(empty, ["sum by (kind) (rate(webloom_request_errors_total[$__rate_interval]))"]);

        let rules = || async {
            let answer = ask(&client, &format!("{prometheus}/api/v1/rules")).await?;
            answer["data"]["groups"][0]["rules"].as_array().cloned()
        };
        // A read of the metrics that comes too late makes a rule pending for a moment.
        let is_quiet = |rule: &Value| rule["health"] == "ok" && rule["state"] == "inactive";
        let quiet = until("rules that report nothing", || async { rules().await.filter(|rules| rules.iter().all(is_quiet)) }).await;
        assert!(quiet.len() > 5, "{quiet:?}");
        broker.process.kill();
        until("a rule that sees the end of the broker", || async {
            rules().await?.iter().any(|rule| rule["name"] == "WebloomDown" && rule["state"] == "pending").then_some(())
        })
        .await;
    });
}
