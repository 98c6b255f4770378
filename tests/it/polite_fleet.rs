//! A fleet on a web of a thousand hosts: three agents, two runs that share the hosts, and processes that are killed. The log of the
//! web says whether each host was asked politely, and whether hosts that hang held up the others.

use crate::support::access_log::{Entry, check};
use crate::support::api::Api;
use crate::support::process::{Broker, agent};
use crate::support::web::{Answer, Kind, Mixed, Web};
use crate::support::{journey_within, until};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::sync::watch;

const WEB: Mixed = Mixed { hosts: 1_120, pages: 4, slow: Duration::from_secs(3), rest_s: 3 };
const DELAY_MS: u64 = 1_000;
/// The delay counts from the answer, so what reaches the server late makes no gap smaller. Clocks are read in milliseconds.
const SLACK_US: u64 = 50_000;
/// Sites and connections of each agent: those of two agents are more than the hosts that hang. The hosts are more than a run
/// may begin at, so the agents' owner allows them.
const ROOM: [&str; 6] = ["--max-sites", "96", "--max-connections", "96", "--download-allow", "127.0.0.0/8"];

fn hosts() -> impl Iterator<Item = u32> {
    (0..WEB.hosts).filter(|number| !matches!(Mixed::kind(*number), Kind::Broken | Kind::Hanging)).take(1_000)
}

/// Half of the slow hosts answer for their pages only when the test allows it: with the other half every fifth host.
fn is_held(number: u32) -> bool {
    Mixed::kind(number) == Kind::Slow && number.is_multiple_of(2)
}

fn is_fast(number: u32) -> bool {
    Mixed::kind(number) != Kind::Slow
}

fn is_of(entry: &Entry, kind: fn(u32) -> bool) -> bool {
    Mixed::number(&entry.host).is_some_and(kind)
}

/// The paths that a run wants of a host. Only the first run asks the hosts that hang: they would be left alone for as long
/// as their answers took.
fn paths(number: u32, run: usize) -> &'static [&'static str] {
    match Mixed::kind(number) {
        Kind::Slow if is_held(number) && run > 0 => &[],
        Kind::Slow => &["/1"],
        Kind::Robots => &["/1", "/private/x", "/2"],
        _ => &["/1", "/2"],
    }
}

/// A run, as its worker sees it.
struct Run {
    identity: String,
    pages: usize,
    /// Pages of fast hosts.
    fast: usize,
    /// The URLs that came back, each with its status or why it failed.
    seen: BTreeSet<String>,
    fast_seen: usize,
    is_over: bool,
}

impl Run {
    async fn start(api: &Api, web: &Web, place: usize) -> Self {
        let of = |number| paths(number, place).iter().map(move |path| (number, *path));
        let urls: Vec<(u32, &str)> = hosts().flat_map(of).collect();
        let settings =
            json!({ "Delay": DELAY_MS.to_string(), "PerSite": "1", "Robots": "obey", "RetryDownload": "5", "Timeout": "200000" });
        let (identity, _) = api.run(&format!("it.Fleet{place}"), &settings).await;
        let requests: Value = urls.iter().map(|(number, path)| json!({ "url": web.url(*number, path) })).collect();
        assert_eq!(api.post(&format!("/requestqueue/{identity}"), &requests).await.0, 200);
        assert_eq!(api.post(&format!("/api/v1/runs/{identity}/start-returned"), &json!({})).await.0, 204);
        let fast = urls.iter().filter(|(number, _)| is_fast(*number)).count();
        Self { identity, pages: urls.len(), fast, seen: BTreeSet::new(), fast_seen: 0, is_over: false }
    }

    /// Takes what is finished and acknowledges it.
    async fn take(&mut self, api: &Api) {
        let queue = format!("/requestqueue/{}", self.identity);
        loop {
            let (status, block) = api.get(&format!("{queue}?wait=0")).await;
            if status != 200 {
                break;
            }
            for result in block["results"].as_array().into_iter().flatten() {
                let how = result["error"]["kind"].as_str().map_or_else(|| result["status"].to_string(), str::to_owned);
                let url = result["request"]["url"].as_str().and_then(|url| url.strip_prefix("http://")).expect("a URL");
                let number = url.split_once(':').and_then(|(host, _)| Mixed::number(host)).expect("a host of the web");
                self.fast_seen += usize::from(self.seen.insert(format!("{how} {url}")) && is_fast(number));
            }
            if api.post(&format!("{queue}/ack"), &json!({ "blocks": [block["blockId"]] })).await.0 != 200 {
                break;
            }
        }
        self.is_over = api.state(&self.identity).await["state"] == "success";
    }
}

#[test]
fn no_host_is_asked_impolitely_whoever_dies() {
    journey_within(Duration::from_secs(600), async {
        let (release, released) = watch::channel(false);
        let web = Web::serve(move |asked| match Mixed::number(&asked.host) {
            Some(number) if is_held(number) && asked.path != "/robots.txt" => Answer::html("<p>at last").until(&released),
            Some(number) if Mixed::kind(number) == Kind::Busy && asked.before == 2 => {
                Answer::status(429).with("retry-after", WEB.rest_s.to_string())
            }
            _ => WEB.answer(asked),
        })
        .expect("a port");
        let mut broker = Broker::start(&["--node-heartbeat", "1000"], "");
        let mut api = Api::new(&broker.url);
        let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
        let args = [["--heartbeat", "1"].as_slice(), &ROOM].concat();
        let start = |broker: &Broker, n: usize| agent(&broker.url, folders[n].path(), &args);
        let mut agents = [start(&broker, 0), start(&broker, 1), start(&broker, 2)];
        let mut runs = [Run::start(&api, &web, 0).await, Run::start(&api, &web, 1).await];

        let dice = uuid::Uuid::new_v4().as_u128() as usize;
        let (victim, first, second) = (dice % 3, 200 + dice / 3 % 600, 100 + dice / 1_800 % 600);
        eprintln!("agent {victim} dies after {first} requests, the broker after {second} more");
        let asked = |count: usize| web.requests() >= count;
        until("some pages", || async { asked(first).then_some(()) }).await;
        agents[victim].kill();
        until("more pages", || async { asked(first + second).then_some(()) }).await;
        broker.process.kill();
        broker.restart("");
        api = Api::new(&broker.url);
        agents[victim] = start(&broker, victim);

        let deadline = Instant::now() + Duration::from_secs(500);
        while !runs.iter().all(|run| run.is_over) {
            let [one, other] = &mut runs;
            futures_util::future::join(one.take(&api), other.take(&api)).await;
            if runs.iter().all(|run| run.fast_seen == run.fast) {
                release.send_replace(true);
            }
            let come = runs
                .each_ref()
                .map(|run| format!("{} of {} fast, {} of {}, over: {}", run.fast_seen, run.fast, run.seen.len(), run.pages, run.is_over));
            assert!(Instant::now() < deadline, "{come:?}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }

        let log = web.log();
        let found = check(&log, SLACK_US, |host| Mixed::allowed(host, DELAY_MS));
        assert!(found.breaches.is_empty(), "{found}");
        for run in &runs {
            let of = |how: &str| run.seen.iter().filter(|line| line.starts_with(how)).count();
            let forbidden = hosts().filter(|host| Mixed::kind(*host) == Kind::Robots).count();
            assert_eq!((of("robots "), of("200 ") + of("robots ")), (forbidden, run.pages), "{}: {:?}", run.identity, run.seen);
        }
        let robots = log.iter().filter(|entry| entry.path == "/robots.txt" && entry.status != 0).count();
        assert!(robots < 2 * hosts().count(), "robots.txt is fetched once for both runs, but for what was lost: {robots}");

        // The web let go of the hosts that hang after the worker had all pages of the fast ones.
        let let_go = log.iter().filter(|entry| entry.path == "/1" && entry.status == 200 && is_of(entry, is_held));
        let let_go = let_go.map(|entry| entry.end).min().expect("they answered at last");
        let last_fast = log.iter().filter(|entry| is_of(entry, is_fast)).map(|entry| entry.end).max().expect("there are many");
        assert!(last_fast < let_go, "{last_fast} {let_go}");
        let hung = log.iter().filter(|entry| entry.begin < last_fast && entry.end >= let_go && is_of(entry, is_held)).count();
        let held = hosts().filter(|number| is_held(*number)).count();
        assert!(hung > held / 2, "{hung} of {held} hung while the others were asked");
    });
}
