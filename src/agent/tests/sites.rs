//! One client for each host of each run: connections, cookies, pace.

use super::site::{Hit, Site, answer};
use super::{config, get, rules};
use crate::agent::download::Downloader;
use crate::config::agent::AgentConfig;
use crate::domain::settings::{CookieMode, DownloadSettings};
use futures_util::future::join_all;
use reqwest::Url;
use reqwest::header::{HeaderValue, SET_COOKIE};
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

fn cookies(hit: &Hit) -> BTreeSet<String> {
    hit.header("cookie").into_iter().flat_map(|text| text.split("; ")).map(str::to_owned).collect()
}

fn set<const N: usize>(pairs: [&str; N]) -> BTreeSet<String> {
    pairs.into_iter().map(str::to_owned).collect()
}

fn login(cookie_mode: CookieMode) -> DownloadSettings {
    DownloadSettings { cookies: Some("who=me; old=1;".to_owned()), cookie_mode, ..DownloadSettings::default() }
}

#[actix_rt::test]
async fn initial_cookies_are_a_beginning() {
    let site =
        Site::new(
            |hit| if hit.nth == 0 { answer(200, "Set-Cookie: old=2; Path=/\r\nSet-Cookie: new=3\r\n", "") } else { answer(200, "", "") },
        );
    let (downloader, rules) = (Downloader::new(&config()), rules(login(CookieMode::Initial)));
    for path in ["/deep/first", "/deep/second"] {
        downloader.fetch(&rules, &get(&site.url(path))).await;
    }
    let hits = site.hits();
    assert_eq!(cookies(&hits[0]), set(["who=me", "old=1"]));
    assert_eq!(cookies(&hits[1]), set(["who=me", "old=2", "new=3"]));
}

#[actix_rt::test]
async fn a_site_can_set_a_limited_number_of_cookies() {
    let (downloader, rules) = (Downloader::new(&config()), rules(DownloadSettings::default()));
    let url = |path: &str| Url::parse(&format!("http://a.test{path}")).expect("a URL");
    let site = downloader.clients.site(rules.identity, &rules.settings, &url("/"));
    let keep = |path: &str, line: &str| {
        site.keep_cookies(&url(path), &[(SET_COOKIE, HeaderValue::from_str(line).expect("a header"))].into_iter().collect());
    };
    let sent = |path: &str| site.cookies(&url(path), None, true).map_or(String::new(), |value| value.to_str().expect("text").to_owned());
    keep("/", "who=1; Path=/");
    keep("/", &format!("long={}; Path=/", "x".repeat(9_000)));
    // Without a path, each folder has a cookie of its own.
    for folder in 0..1_000 {
        keep(&format!("/{folder}/page"), "here=1");
    }
    keep("/", "who=2; path=/");
    let with = (0..1_000).filter(|folder| sent(&format!("/{folder}/")).contains("here=1")).count();
    assert_eq!((sent("/").as_str(), with), ("who=2", 179), "a known cookie may change");
}

#[actix_rt::test]
async fn fixed_cookies_stay_whatever_happens() {
    let site = Site::new(|_| answer(200, "Set-Cookie: old=2; Path=/\r\n", ""));
    let (downloader, rules) = (Downloader::new(&config()), rules(login(CookieMode::Fixed)));
    downloader.fetch(&rules, &get(&site.url("/1"))).await;
    let own = serde_json::json!({ "url": site.url("/2"), "headers": { "Cookie": "own=1" } }).to_string();
    downloader.fetch(&rules, &own).await;
    for hit in site.hits() {
        assert_eq!(hit.header("cookie"), Some("who=me; old=1;"));
    }
}

#[actix_rt::test]
async fn runs_share_neither_connections_nor_cookies() {
    let site = Site::new(|hit| answer(200, &format!("Set-Cookie: c={}\r\n", hit.connection), ""));
    let downloader = Downloader::new(&config());
    let (one, two) = (rules(DownloadSettings::default()), rules(DownloadSettings::default()));
    for rules in [&one, &two, &one, &two] {
        downloader.fetch(rules, &get(&site.url("/"))).await;
    }
    let hits = site.hits();
    assert_eq!(hits.iter().map(|hit| hit.connection).collect::<Vec<_>>(), [0, 1, 0, 1], "a connection for each run, used again");
    assert_eq!(hits.iter().map(|hit| hit.header("cookie")).collect::<Vec<_>>(), [None, None, Some("c=0"), Some("c=1")]);
    assert_eq!(downloader.clients.len(), 2);
    let elsewhere = format!("http://localhost:{}/", site.address.port());
    downloader.fetch(&one, &get(&elsewhere)).await;
    assert_eq!(downloader.clients.len(), 3, "another host of the same run");
}

#[actix_rt::test]
async fn a_client_that_nobody_uses_goes() {
    let site = Site::new(|_| answer(200, "", ""));
    let downloader = Downloader::new(&config());
    downloader.fetch(&rules(DownloadSettings::default()), &get(&site.url("/"))).await;
    let now = tokio::time::Instant::now();
    downloader.clients.evict_idle(now);
    assert_eq!(downloader.clients.len(), 1);
    downloader.clients.evict_idle(now + Duration::from_secs(601));
    assert_eq!(downloader.clients.len(), 0);
}

#[actix_rt::test]
async fn connections_of_sites_that_were_used_long_ago_are_closed() {
    let site = Site::new(|_| answer(200, "", ""));
    let downloader = Downloader::new(&AgentConfig { max_sites: 1, ..config() });
    let (clients, rules) = (&downloader.clients, rules(DownloadSettings::default()));
    let connect = |host: &str| {
        let url = Url::parse(host).expect("a URL");
        let site = clients.site(rules.identity, &rules.settings, &url);
        (clients.connect(rules.identity, &url, &site), site)
    };
    downloader.fetch(&rules, &get(&site.url("/"))).await;
    let (_busy, busy) = connect("http://busy.test/");
    let (_, early) = connect("http://early.test/");
    // 1,024 and one for each site with a pace.
    for n in 4..=1_025 {
        connect(&format!("http://{n}.test/"));
        assert_eq!(clients.open(), n);
    }
    downloader.fetch(&rules, &get(&site.url("/"))).await;
    assert_eq!(site.hits()[1].connection, 0, "it is still open");
    for n in 1..=1_024 {
        connect(&format!("http://other{n}.test/"));
        assert_eq!(clients.open(), 1_025);
    }
    assert_eq!((busy.connections(), early.connections()), (1, 0), "what is in use stays");
    downloader.fetch(&rules, &get(&site.url("/"))).await;
    assert_eq!(site.hits()[2].connection, 1, "it was closed");
    clients.evict_idle(tokio::time::Instant::now() + Duration::from_secs(31));
    assert_eq!(clients.open(), 1, "idle ones go");
}

#[actix_rt::test]
async fn starts_keep_their_distance_within_a_run() {
    const SLEEP: u64 = 60;
    let site = Site::new(|_| answer(200, "", ""));
    let (downloader, rules) = (Downloader::new(&config()), rules(DownloadSettings { sleep_time: SLEEP, ..DownloadSettings::default() }));
    let url = get(&site.url("/"));
    let begin = Instant::now();
    join_all((0..4).map(|_| downloader.fetch(&rules, &url))).await;
    let fourth = site.hits()[3].at - begin;
    assert!(fourth >= Duration::from_millis(3 * SLEEP), "{fourth:?}");
}
