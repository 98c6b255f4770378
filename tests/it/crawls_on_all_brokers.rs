//! Crawls on all brokers of a PostgreSQL database: agents, sites and `webloom crawl` are as with one broker, whichever broker executes a run, and whichever dies.

use crate::postgres::verify;
use crate::support::access_log::{Allowed, check};
use crate::support::api::Api;
use crate::support::brokers::Brokers;
use crate::support::crawl::{Crawl, urls};
use crate::support::process::{Process, agent};
use crate::support::shell::webloom;
use crate::support::web::{Answer, Web, host};
use crate::support::{journey, until};
use serde_json::{Value, json};
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Pages of each host.
const PAGES: usize = 60;
const TIMES: [&str; 4] = ["--grace", "300", "--node-heartbeat", "300"];

/// Hosts with pages that link to each other. Some pages answer only when the test allows it.
struct Hosts {
    web: Web,
    release: watch::Sender<bool>,
}

impl Hosts {
    fn serve(is_held: fn(usize) -> bool) -> Self {
        let (release, released) = watch::channel(false);
        let web = Web::serve(move |asked| {
            let Some(page) = asked.path.trim_start_matches('/').parse().ok().filter(|page| *page < PAGES) else {
                return Answer::status(404);
            };
            let links = (1..=3).map(|n| page * 3 + n).filter(|n| *n < PAGES).chain([page / 2, (page * 7 + 1) % PAGES]);
            let answer = Answer::html(links.map(|n| format!("<a href=/{n}>x</a>")).collect::<String>());
            if is_held(page) { answer.until(&released) } else { answer }
        })
        .expect("a port");
        Self { web, release }
    }

    fn release(&self) {
        self.release.send_replace(true);
    }

    /// Waits until one of the hosts was asked so often.
    async fn asked(&self, times: u64) {
        until("requests", || async { (self.web.hosts_asked(times) > 0).then_some(()) }).await;
    }

    /// How often each page of a host was asked for.
    fn requests(&self, number: u32) -> HashMap<String, usize> {
        let mut pages = HashMap::new();
        for entry in self.web.log().into_iter().filter(|entry| entry.host == host(number) && entry.path != "/robots.txt") {
            *pages.entry(entry.path).or_default() += 1;
        }
        pages
    }

    /// Requests for pages that were asked for already.
    fn repeated(&self, number: u32) -> usize {
        let requests = self.requests(number);
        assert_eq!(requests.len(), PAGES, "{requests:?}");
        requests.values().sum::<usize>() - PAGES
    }
}

/// A crawl of a host, with agents, and its run.
struct Crawled {
    crawl: Crawl,
    number: u32,
    run: String,
    _folder: tempfile::TempDir,
}

impl Crawled {
    /// Begins at these brokers, and waits for the run. Downloads go by an agent that is there already.
    async fn start(api: &Api, addresses: &str, hosts: &Hosts, number: u32) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let crawl = Crawl::start(&hosts.web.url(number, "/0"), folder.path(), &["--broker", addresses]);
        let name = format!("crawl {} ", host(number));
        let run = until("the run of the crawl", || async {
            let (_, runs) = api.get("/api/v1/runs").await;
            let mut runs = runs["items"].as_array()?.iter();
            let found = runs.find(|run| run["jobName"].as_str().is_some_and(|job| job.starts_with(&name)))?;
            Some(found["identity"].as_str().expect("an id").to_owned())
        })
        .await;
        Self { crawl, number, run, _folder: folder }
    }

    /// It ends well, and has each page once.
    async fn complete(&mut self, api: &Api, hosts: &Hosts) {
        self.crawl.succeeds().await;
        let mut all: Vec<String> = (0..PAGES).map(|n| hosts.web.url(self.number, &format!("/{n}"))).collect();
        all.sort();
        assert_eq!(urls(&self.crawl.lines()), all, "each page once");
        let state =
            until("the end of the run", || async { Some(api.state(&self.run).await).filter(|run| run["state"] != "running") }).await;
        assert_eq!((&state["state"], &state["success"]), (&json!("success"), &json!(PAGES)), "{state}");
    }
}

fn agents<const N: usize>(brokers: &Brokers) -> [(Process, tempfile::TempDir); N] {
    [(); N].map(|()| {
        let folder = tempfile::tempdir().expect("a folder");
        (agent(&brokers.addresses(), folder.path(), &["--download-allow", "127.0.0.0/8"]), folder)
    })
}

/// A queue of requests for these pages of a host, which its worker has pushed.
async fn queue(api: &Api, hosts: &Hosts, class: &str, properties: Value, pages: std::ops::Range<usize>) -> String {
    let (run, _) = api.run(class, &properties).await;
    let pages: Value = pages.map(|n| json!({ "url": hosts.web.url(0, &format!("/{n}")) })).collect();
    assert_eq!(api.post(&format!("/requestqueue/{run}"), &pages).await.0, 200);
    run
}

async fn downloaded(api: &Api, run: &str, count: usize) {
    until(&format!("{count} pages"), || async { (api.state(run).await["success"] == count).then_some(()) }).await;
}

#[test]
fn two_crawls_are_executed_by_two_brokers() {
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
        let hosts = Hosts::serve(|page| page == 5);
        let _agents: [_; 1] = agents(&brokers);
        let (leader, other) = (brokers.api(0), brokers.api(1));
        let addresses = brokers.addresses();
        let (one, two) = addresses.split_once(',').expect("two");
        let mut first = Crawled::start(&leader, one, &hosts, 0).await;
        let mut second = Crawled::start(&other, two, &hosts, 1).await;
        until("both", || async { (hosts.web.hosts_asked(10) == 2).then_some(()) }).await;
        brokers.have_runs(0, &[1, 1]).await;
        for api in [&leader, &other] {
            both_are_shown(api, &brokers.id(1).await).await;
        }
        hosts.release();
        for crawled in [&mut first, &mut second] {
            crawled.complete(&leader, &hosts).await;
            assert_eq!(hosts.repeated(crawled.number), 0, "{:?}", hosts.requests(crawled.number));
        }
        for api in [&leader, &other] {
            let by = [api.state(&first.run).await["brokerId"].clone(), api.state(&second.run).await["brokerId"].clone()];
            assert_eq!(by, [brokers.id(1).await, Value::Null], "the first run went to the broker that does not lead");
        }
        for (api, count) in [(&leader, PAGES), (&other, PAGES)] {
            let page = api.metrics().await;
            assert!(page.lines().any(|line| line == format!("webloom_requests_total{{result=\"success\"}} {count}")), "{page}");
            assert!(page.lines().any(|line| line == "webloom_runs_ended_total{state=\"success\"} 1"), "{page}");
        }
        // The time series are one for all brokers, and each broker shows them.
        until("the counts of both", || async {
            for api in [&leader, &other] {
                let all = (sum(api, "requests.success").await, sum(api, "runs.success").await);
                if all != (2.0 * PAGES as f64, 2.0) {
                    return None;
                }
            }
            Some(())
        })
        .await;
        verify(&brokers.url);
    });
}

/// The sum of a value of the time series in the last hour.
async fn sum(api: &Api, name: &str) -> f64 {
    let (_, series) = api.get("/api/v1/series").await;
    series["values"][name].as_array().map_or(0.0, |values| values.iter().filter_map(Value::as_f64).sum())
}

/// While two crawls are executed, one by the broker that does not lead, each broker shows both, with what only their actors know.
async fn both_are_shown(api: &Api, other: &Value) {
    let (_, runs) = api.get("/api/v1/runs").await;
    let runs = runs["items"].as_array().expect("runs");
    assert_eq!(runs.len(), 2, "{runs:?}");
    for run in runs {
        assert!(run["crawling"].is_object(), "it is not what its actor says: {run}");
    }
    let (_, actors) = api.get("/api/v1/actors?kind=run").await;
    let brokers: HashSet<&Value> = actors.as_array().expect("actors").iter().map(|actor| &actor["brokerId"]).collect();
    assert_eq!(brokers, HashSet::from([&Value::Null, other]), "{actors}");
    for actor in actors.as_array().expect("actors") {
        let (status, detail) = api.get(&format!("/api/v1/actors/run/{}", actor["name"].as_str().expect("a name"))).await;
        assert_eq!((status, &detail["brokerId"], &detail["label"]), (200, &actor["brokerId"], &actor["label"]), "{detail}");
        assert!(detail["messages"].as_array().is_some_and(|messages| !messages.is_empty()), "{detail}");
    }
    let (_, kinds) = api.get("/api/v1/actors/kinds").await;
    let count =
        |kind: &str| kinds["items"].as_array().and_then(|kinds| kinds.iter().find(|sums| sums["kind"] == kind)).map(|sums| &sums["count"]);
    assert_eq!((count("run"), count("registry")), (Some(&json!(2)), Some(&json!(2))), "{kinds}");
    // Each broker has an actor of this name.
    let path = format!("/api/v1/actors/registry/registry?brokerId={}", other.as_str().expect("an id"));
    assert_eq!(api.get(&path).await.1["brokerId"], *other);
    assert_eq!(api.get("/api/v1/actors/registry/registry").await.1["brokerId"], Value::Null);
    let status = webloom(&api.url, &["status"]).ok();
    assert!(status.contains("1 online, 1 in all") && status.contains("2 online, 2 in all"), "a node and two workers: {status}");
    let nowhere = format!("/api/v1/actors/registry/registry?brokerId={}", crate::support::api::id());
    assert_eq!(api.get(&nowhere).await.0, 404);
}

#[test]
fn a_site_is_asked_politely_by_two_brokers_in_turns() {
    const DELAY_MS: u64 = 200;
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
        let hosts = Hosts::serve(|_| false);
        let _agents: [_; 2] = agents(&brokers);
        let api = brokers.api(0);
        let pace = json!({ "Delay": DELAY_MS.to_string(), "PerSite": "1", "BlockSize": "2" });
        let one = queue(&api, &hosts, "it.One", pace.clone(), 0..10).await;
        let two = queue(&api, &hosts, "it.Two", pace, 30..40).await;
        brokers.have_runs(0, &[1, 1]).await;
        downloaded(&api, &one, 10).await;
        downloaded(&api, &two, 10).await;
        let mut log = hosts.web.log();
        let found = check(&log, 5_000, |_| Allowed { delay_ms: DELAY_MS, connections: 1, disallowed: Vec::new() });
        assert!(found.breaches.is_empty() && found.requests == 20, "{found}");
        log.sort_by_key(|entry| entry.begin);
        // Two requests of one run, then two of the other, until one has no more.
        let of_one: Vec<bool> = log.iter().map(|entry| entry.path.len() == 2).collect();
        let both = of_one.iter().rposition(|is_one| *is_one).min(of_one.iter().rposition(|is_one| !is_one)).expect("requests");
        let begun = of_one.iter().position(|is_one| *is_one).max(of_one.iter().position(|is_one| !is_one)).expect("requests");
        let longest = of_one[begun..=both].chunk_by(|one, next| one == next).map(<[bool]>::len).max();
        assert!(longest <= Some(4), "they take turns: {of_one:?}");
        let took = log.last().expect("requests").begin - log[0].begin;
        assert!(took < 20_000_000, "{took} us");
    });
}

#[test]
fn an_operator_holds_and_releases_a_site_of_a_run_elsewhere() {
    journey(async {
        let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
        let hosts = Hosts::serve(|page| page == 2);
        let _agents: [_; 1] = agents(&brokers);
        let (leader, owner) = (brokers.api(0), brokers.api(1));
        let run = queue(&leader, &hosts, "it.Held", json!({ "Delay": "50", "BlockSize": "1" }), 0..10).await;
        brokers.have_runs(0, &[0, 1]).await;
        hosts.asked(3).await;
        let name = host(0);
        let site = async |api: &Api| {
            let (status, sites) = api.get("/api/v1/sites").await;
            assert_eq!(status, 200, "{sites}");
            sites["items"].as_array().expect("sites").iter().find(|site| site["name"] == *name).cloned()
        };
        for api in [&leader, &owner] {
            until("its turn", || async { site(api).await.filter(|site| site["run"] == *run) }).await;
        }
        let (status, held) = owner.post(&format!("/api/v1/sites/{name}/hold"), &json!({ "for": 600_000 })).await;
        assert_eq!(status, 200, "{held}");
        // The node gives the page up that it downloads.
        let of_run = async || {
            let (_, sites) = leader.get(&format!("/api/v1/runs/{run}/sites")).await;
            sites["items"].as_array().expect("sites").iter().find(|site| site["name"] == *name).cloned().unwrap_or_default()
        };
        until("the rest waits", || async {
            let site = of_run().await;
            (site["held"]["why"] == "operator" && site["atNodes"] == 0 && site["pending"] == 8).then_some(())
        })
        .await;
        let beats = async || leader.get("/api/v1/actors?kind=node").await.1[0]["messagesHandled"].as_u64().expect("a count");
        let before = beats().await;
        until("heartbeats", || async { (beats().await >= before + 5).then_some(()) }).await;
        assert_eq!((hosts.web.requests(), leader.state(&run).await["success"].clone()), (3, json!(2)));
        hosts.release();
        for (nth, api) in [&leader, &owner].into_iter().enumerate() {
            assert_eq!(site(api).await.expect("the site")["held"]["why"], "operator");
            assert_eq!(api.post(&format!("/api/v1/sites/{name}/release"), &json!({})).await.0, 200);
            downloaded(api, &run, 10 + nth).await;
            // Nothing is at a node when it is held again, so nothing is waited for when it is released.
            assert_eq!(leader.post(&format!("/api/v1/sites/{name}/hold"), &json!({ "for": 600_000 })).await.0, 200);
            until("the owner knows it", || async { (of_run().await["held"]["why"] == "operator").then_some(()) }).await;
            let page = json!([{ "url": hosts.web.url(0, &format!("/{}", 20 + nth)) }]);
            assert_eq!(api.post(&format!("/requestqueue/{run}"), &page).await.0, 200);
            until("the page waits", || async { (of_run().await["pending"] == 1).then_some(()) }).await;
        }
        let released = Instant::now();
        assert_eq!(owner.post(&format!("/api/v1/sites/{name}/release"), &json!({})).await.0, 200);
        downloaded(&owner, &run, 12).await;
        assert!(released.elapsed() < Duration::from_secs(3), "{:?}", released.elapsed());
    });
}

/// Pages that are downloaded twice when a run moves: on a busy machine it may begin before the nodes have listed its blocks.
const MOST_REPEATED: usize = 15;

/// Pages whose downloads are in progress when a broker dies.
fn is_held(page: usize) -> bool {
    matches!(page, 3 | 11 | 14)
}

#[test]
fn a_crawl_outlives_its_broker() {
    journey(async {
        let (mut brokers, hosts, _agents, mut crawled) = crawl_elsewhere().await;
        let leader = brokers.api(0);
        brokers.kill(1);
        brokers.have_runs(0, &[1, 0]).await;
        hosts.release();
        crawled.complete(&leader, &hosts).await;
        let repeated = hosts.repeated(0);
        // Most blocks stay at their nodes: without that, about 25 pages are repeated.
        assert!(repeated <= MOST_REPEATED, "{repeated}: {:?}", hosts.requests(0));
        assert_eq!(leader.state(&crawled.run).await["brokerId"], Value::Null);
        verify(&brokers.url);
    });
}

/// A crawl that the second of two brokers executes, with its agents.
async fn crawl_elsewhere() -> (Brokers, Hosts, [(Process, tempfile::TempDir); 2], Crawled) {
    let brokers = Brokers::start_on(2, &[], &TIMES, None).await;
    let hosts = Hosts::serve(is_held);
    let agents = agents(&brokers);
    let crawled = Crawled::start(&brokers.api(0), &brokers.addresses(), &hosts, 0).await;
    brokers.have_runs(0, &[0, 1]).await;
    hosts.asked(15).await;
    (brokers, hosts, agents, crawled)
}

#[test]
fn a_crawl_outlives_the_leader() {
    journey(async {
        // The nodes have time to come to the next leader, also on a busy machine.
        let brokers = Brokers::start_on(3, &[], &["--grace", "20000", "--node-heartbeat", "300"], None).await;
        let hosts = Hosts::serve(is_held);
        let _agents: [_; 2] = agents(&brokers);
        let mut first = Crawled::start(&brokers.api(0), &brokers.addresses(), &hosts, 0).await;
        let mut second = Crawled::start(&brokers.api(0), &brokers.addresses(), &hosts, 1).await;
        brokers.have_runs(0, &[0, 1, 1]).await;
        until("both", || async { (hosts.web.hosts_asked(15) == 2).then_some(()) }).await;
        let of = async |api: &Api, run: &str| {
            let row = brokers.sql(&format!("SELECT epoch FROM run WHERE identity = '{run}'"));
            (api.state(run).await["brokerId"].clone(), row)
        };
        let before = [of(&brokers.api(2), &first.run).await, of(&brokers.api(2), &second.run).await];
        let ids = [brokers.id(1).await, brokers.id(2).await];
        brokers.signal(0, "-KILL");
        let leads = until("another leader", || async {
            let ready = async |nth| brokers.api(nth).get("/readyz").await.0 == 200;
            if ready(1).await { Some(1) } else { ready(2).await.then_some(2) }
        })
        .await;
        let (leader, stays) = (brokers.api(leads), 3 - leads);
        brokers.have_runs(stays, &[0, 1, 1]).await;
        hosts.release();
        for (crawled, before) in [&mut first, &mut second].into_iter().zip(before) {
            crawled.complete(&leader, &hosts).await;
            let repeated = hosts.repeated(crawled.number);
            let after = of(&leader, &crawled.run).await;
            if before.0 == ids[stays - 1] {
                assert_eq!((after, repeated), (before, 0), "it stays");
            } else {
                assert_eq!((&after.0, after.1 > before.1), (&Value::Null, true), "{after:?} {before:?}");
            }
        }
        verify(&brokers.url);
    });
}

#[test]
fn a_crawl_leaves_a_broker_that_is_drained() {
    journey(async {
        let (brokers, hosts, _agents, mut crawled) = crawl_elsewhere().await;
        let leader = brokers.api(0);
        let text = webloom(&leader.url, &["brokers", "drain", &brokers.all[1].0.url]).ok();
        assert!(text.contains("has no runs any more"), "{text}");
        brokers.have_runs(0, &[1, 0]).await;
        let mut others = Vec::new();
        for class in ["it.After", "it.AfterThat"] {
            others.push(queue(&leader, &hosts, class, json!({}), 0..1).await);
        }
        brokers.have_runs(0, &[3, 0]).await;
        hosts.release();
        crawled.complete(&leader, &hosts).await;
        for run in &others {
            downloaded(&leader, run, 1).await;
            assert_eq!(leader.state(run).await["brokerId"], Value::Null);
        }
        assert_eq!(leader.state(&crawled.run).await["brokerId"], Value::Null);
        // What was counted before is not lost. A broker without runs has no actors to list.
        until("all counts", || async { (sum(&leader, "requests.success").await >= (PAGES + 2) as f64).then_some(()) }).await;
        let (_, actors) = leader.get("/api/v1/actors").await;
        assert!(actors.as_array().is_some_and(|actors| actors.iter().all(|actor| actor["brokerId"].is_null())), "{actors}");
        // Two by the other runs.
        assert!(hosts.repeated(0) <= 2 + MOST_REPEATED, "{:?}", hosts.requests(0));
        verify(&brokers.url);
    });
}
