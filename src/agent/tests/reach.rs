//! The targets that the agent may reach, and what it sends to each.

use super::site::{Hit, Site, answer};
use super::{config, get, kind, rules};
use crate::agent::download::{Downloader, Outcome, Rules};
use crate::config::agent::AgentConfig;
use crate::domain::origin::Origin;
use crate::domain::settings::{CookieMode, DownloadSettings};
use crate::protocol::node::FetchErrorKind as Kind;
use reqwest::Url;

fn origins<const N: usize>(urls: [&str; N]) -> DownloadSettings {
    let origins = urls.map(|url| Origin::of(&Url::parse(url).expect("a url")).expect("an origin"));
    DownloadSettings { start_origins: Some(origins.into()), ..DownloadSettings::default() }
}

fn downloader(allow: &[&str], deny: &[&str]) -> Downloader {
    let list = |texts: &[&str]| texts.iter().map(|text| text.parse().expect("a rule")).collect();
    let mut config: AgentConfig = config();
    (config.targets.allow, config.targets.deny) = (list(allow), list(deny));
    Downloader::new(&config)
}

fn why(outcome: &Outcome) -> &str {
    outcome.answer.error.as_ref().map_or("", |error| &error.message)
}

/// A site whose pages under `/to/` redirect to what follows.
fn redirecting() -> Site {
    Site::new(|hit| match hit.path.strip_prefix("/to/") {
        Some(target) => answer(302, &format!("Location: {target}\r\n"), ""),
        None => answer(200, "", "a page"),
    })
}

fn port(site: &Site) -> u16 {
    site.address.port()
}

#[actix_rt::test]
async fn a_run_reaches_what_is_not_public_only_where_it_began() {
    let (site, inner) = (redirecting(), redirecting());
    let rules = rules(origins([&site.url("/")]));
    let agent = downloader(&[], &[]);
    let (own, other) = (port(&site), port(&inner));
    for url in [
        site.url("/"),
        format!("http://localhost:{own}/"),
        format!("http://2130706433:{own}/"),
        format!("http://[::ffff:127.0.0.1]:{own}/"),
    ] {
        let outcome = agent.fetch(&rules, &get(&url)).await;
        assert_eq!((kind(&outcome), outcome.answer.status), (None, 200), "{url}: {}", why(&outcome));
    }
    for host in ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "x.localhost"] {
        let url = format!("http://{host}:{other}/");
        let direct = agent.fetch(&rules, &get(&url)).await;
        assert_eq!((kind(&direct), direct.tries), (Some(Kind::Refused), 0), "{url}: {:?}", direct.answer);
        assert!(why(&direct).contains("--download-allow"), "{}", why(&direct));
        let redirected = agent.fetch(&rules, &get(&site.url(&format!("/to/{url}")))).await;
        assert_eq!((kind(&redirected), redirected.tries, redirected.answer.status), (Some(Kind::Refused), 1, 302), "{url}");
    }
    assert!(inner.hits().is_empty(), "nothing was sent there: {:?}", inner.hits());
    // A redirect to the origin of the run is followed.
    let back = agent.fetch(&rules, &get(&site.url(&format!("/to/http://localhost:{own}/x")))).await;
    assert_eq!((kind(&back), back.answer.head.target_url), (None, Some(format!("http://localhost:{own}/x"))));
}

#[actix_rt::test]
async fn the_owner_of_the_agent_allows_and_denies() {
    let (site, inner) = (redirecting(), redirecting());
    let rules = rules(origins([&site.url("/")]));
    let allowed = format!("127.0.0.1:{}", port(&inner));
    let agent = downloader(&["10.0.0.0/8", &allowed], &[]);
    assert_eq!(agent.fetch(&rules, &get(&site.url(&format!("/to/{}", inner.url("/"))))).await.answer.status, 200);
    assert_eq!(agent.fetch(&rules, &get(&format!("http://localhost:{}/", port(&inner)))).await.answer.status, 200);
    let denying = downloader(&["127.0.0.0/8"], &["127.0.0.0/8"]);
    let outcome = denying.fetch(&rules, &get(&site.url("/"))).await;
    assert_eq!(kind(&outcome), Some(Kind::Refused), "even where the run began");
    assert!(why(&outcome).contains("--download-deny"), "{}", why(&outcome));
}

#[actix_rt::test]
async fn a_name_is_judged_by_where_it_leads() {
    // A name that certainly resolves to an internal address and is not `localhost`: this machine's.
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned();
    let inside = std::net::ToSocketAddrs::to_socket_addrs(&(name.as_str(), 1)).map(|mut found| found.next()).ok().flatten();
    let Some(inside) = inside.filter(|address| !crate::domain::download_targets::is_public(address.ip())) else { return };
    let outcome = downloader(&[], &[]).fetch(&rules(origins(["http://127.0.0.9/"])), &get(&format!("http://{name}:1/"))).await;
    assert_eq!((kind(&outcome), outcome.tries), (Some(Kind::Refused), 1), "{name} {inside}: {:?}", outcome.answer);
    // Only errors that may pass are retried; a rejection is not.
    let began_there = rules(origins([&format!("http://{name}:1/")]));
    let outcome = downloader(&[], &[]).fetch(&began_there, &get(&format!("http://{name}:1/"))).await;
    assert_eq!(kind(&outcome), Some(Kind::Connect), "there is nobody, but it is asked: {:?}", outcome.answer);
}

#[actix_rt::test]
async fn metadata_services_are_refused_wherever_the_run_began() {
    let agent = downloader(&["0.0.0.0/0", "::/0", "169.254.7.7"], &[]);
    for host in ["169.254.169.254", "[::ffff:169.254.169.254]", "2852039166", "[fd00:ec2::254]", "100.100.100.200", "[fe80::1]"] {
        let url = format!("http://{host}/latest/meta-data/");
        for settings in [origins([&url]), DownloadSettings::default()] {
            let outcome = agent.fetch(&rules(settings), &get(&url)).await;
            assert!(matches!(kind(&outcome), Some(Kind::Refused | Kind::Invalid)), "{url}: {:?}", outcome.answer);
            assert_eq!(outcome.tries, 0);
        }
    }
}

#[actix_rt::test]
async fn a_proxy_that_is_not_public_needs_the_owners_word() {
    let proxy = Site::new(|hit| answer(200, "", hit.path.clone()));
    let mut settings = origins(["http://far.example/"]);
    settings.site.proxy = Some(proxy.url("/"));
    let page = get("http://far.example/page");
    let refused = downloader(&[], &[]).fetch(&rules(settings.clone()), &page).await;
    assert_eq!((kind(&refused), refused.tries, proxy.hits().len()), (Some(Kind::Refused), 0, 0));
    settings.site.proxy = Some(format!("http://localhost:{}", port(&proxy)));
    let refused = downloader(&[], &[]).fetch(&rules(settings.clone()), &page).await;
    assert_eq!((kind(&refused), proxy.hits().len()), (Some(Kind::Refused), 0), "by name as well");
    let agent = downloader(&["127.0.0.0/8"], &["*.bad.example"]);
    assert_eq!(&agent.fetch(&rules(settings.clone()), &page).await.answer.body[..], b"http://far.example/page");
    for url in ["http://10.0.0.1/", "http://169.254.169.254/", "http://x.bad.example/"] {
        let outcome = agent.fetch(&rules(settings.clone()), &get(url)).await;
        assert_eq!(kind(&outcome), Some(Kind::Refused), "what can be seen without a resolver is judged: {url}");
    }
    // A request may have its own proxy; an unreachable proxy is never bypassed.
    let own = serde_json::json!({ "url": "http://far.example/own", "proxy": proxy.url("") }).to_string();
    let plain = Rules { settings: origins(["http://far.example/"]), ..rules(DownloadSettings::default()) };
    assert_eq!(&agent.fetch(&plain, &own).await.answer.body[..], b"http://far.example/own");
    for bad in ["tor://127.0.0.1:1", "socks://127.0.0.1:1", "gopher://x", "ftp://x"] {
        let site = redirecting();
        let mut settings = origins([&site.url("/")]);
        settings.site.proxy = Some(bad.to_owned());
        let outcome = agent.fetch(&rules(settings), &get(&site.url("/"))).await;
        assert_eq!((kind(&outcome), site.hits().len()), (Some(Kind::Invalid), 0), "{bad}");
        assert!(why(&outcome).contains("site.proxy"), "{}", why(&outcome));
    }
}

fn secrets(mut settings: DownloadSettings, cookie_mode: CookieMode) -> DownloadSettings {
    settings.cookies = Some("session=secret; more=1".to_owned());
    settings.cookie_mode = cookie_mode;
    settings.site.headers = [("X-Api-Key", "key"), ("Accept-Language", "is")].map(|(k, v)| (k.to_owned(), v.to_owned())).into();
    settings
}

fn got(hit: &Hit) -> (Option<&str>, bool, Option<&str>) {
    (hit.header("x-api-key"), hit.header("cookie").is_some_and(|text| text.contains("session=secret")), hit.header("accept-language"))
}

#[actix_rt::test]
async fn cookies_and_headers_of_a_job_go_where_it_began() {
    for mode in [CookieMode::Initial, CookieMode::Fixed] {
        let (site, other) = (redirecting(), redirecting());
        let settings = secrets(origins([&site.url("/")]), mode);
        let agent = downloader(&["127.0.0.0/8"], &[]);
        let run = rules(settings.clone());
        let stranger = format!("http://localhost:{}/", port(&other));
        for url in
            [site.url("/"), other.url("/direct"), stranger, site.url(&format!("/to/{}", other.url("/redirected"))), site.url("/again")]
        {
            assert_eq!(agent.fetch(&run, &get(&url)).await.answer.status, 200, "{url}");
        }
        let (own, others) = (site.hits(), other.hits());
        assert_eq!((own.len(), others.len()), (3, 3));
        for hit in &own {
            assert_eq!(got(hit), (Some("key"), true, Some("is")), "{mode:?} {}", hit.path);
        }
        for hit in &others {
            assert_eq!(got(hit), (None, false, Some("is")), "{mode:?} {}: a language is no secret", hit.path);
        }
        // The job may list the hosts.
        let listed = |hosts: &[&str]| {
            let mut settings = settings.clone();
            settings.site.hosts = Some(hosts.iter().map(|host| (*host).to_owned()).collect());
            rules(settings)
        };
        agent.fetch(&listed(&[&format!("127.0.0.1:{}", port(&other))]), &get(&site.url(&format!("/to/{}", other.url("/listed"))))).await;
        assert_eq!(got(&site.hits()[3]).0, None, "the list is the whole list");
        assert_eq!(got(&other.hits()[3]), (Some("key"), true, Some("is")));
        agent.fetch(&listed(&["*"]), &get(&other.url("/all"))).await;
        assert_eq!(got(&other.hits()[4]), (Some("key"), true, Some("is")));
    }
}

#[actix_rt::test]
async fn what_a_request_carries_stays_with_its_origin() {
    let (site, other) = (redirecting(), redirecting());
    let agent = downloader(&["127.0.0.0/8"], &[]);
    // Also with a broker that does not send the origins of the run.
    for settings in [origins([&site.url("/")]), DownloadSettings::default()] {
        let (before, there) = (site.hits().len(), other.hits().len());
        let back = format!("/to/{}", other.url(&format!("/to/{}", site.url("/end"))));
        let json = serde_json::json!({ "url": site.url(&format!("/to{back}").replacen("/to/to/", "/to/", 1)), "headers": {
            "Authorization": "Bearer secret", "Cookie": "own=1", "X-Token": "secret", "Accept": "text/html" } });
        let outcome = agent.fetch(&rules(settings), &json.to_string()).await;
        assert_eq!(outcome.answer.status, 200, "{:?}", outcome.answer);
        let (own, others) = (site.hits().split_off(before), other.hits().split_off(there));
        let secrets = |hit: &Hit| ["authorization", "cookie", "x-token"].iter().filter(|name| hit.header(name).is_some()).count();
        assert_eq!((secrets(&own[0]), secrets(&others[0])), (3, 0));
        assert_eq!(secrets(&own[1]), 0, "nor does another site send them back");
        assert_eq!(others[0].header("accept"), Some("text/html"));
    }
    // Within an origin they are sent along.
    let json = serde_json::json!({ "url": site.url("/to/next"), "headers": { "Authorization": "Bearer secret" } });
    agent.fetch(&rules(origins([&site.url("/")])), &json.to_string()).await;
    assert_eq!(site.hits().last().and_then(|hit| hit.header("authorization")), Some("Bearer secret"));
}

#[actix_rt::test]
async fn redirects_change_methods_as_browsers_do_and_lead_to_http_only() {
    let site = Site::new(|hit| match hit.path.as_str() {
        "/301" | "/302" | "/303" | "/307" | "/308" => answer(hit.path[1..].parse().expect("a status"), "Location: /end\r\n", ""),
        "/script" => answer(302, "Location: javascript:alert(1)\r\nX-A: b\r\n", ""),
        "/file" => answer(302, "Location: file:///etc/passwd\r\n", ""),
        "/bad" => answer(302, "Location: http://[bad/\r\n", ""),
        "/nowhere" => answer(302, "", "no location"),
        "/words" => answer(302, "Location: /caf\u{e9}\r\n", ""),
        "/set" => answer(302, "Location: /end\r\nSet-Cookie: seen=1\r\n", ""),
        _ => answer(200, "", "end"),
    });
    let agent = downloader(&[], &[]);
    let run = rules(origins([&site.url("/")]));
    for (status, method, body) in [(301, "GET", ""), (302, "GET", ""), (303, "GET", ""), (307, "POST", "q"), (308, "POST", "q")] {
        let json = serde_json::json!({ "url": site.url(&format!("/{status}")), "method": "POST", "body": "q", "headers": { "Content-Type": "text/x" } });
        agent.fetch(&run, &json.to_string()).await;
        let hits = site.hits();
        let hit = hits.last().expect("a hit");
        assert!(hit.head.starts_with(&format!("{method} /end ")), "{status}: {}", hit.head);
        assert_eq!(
            (hit.body.as_slice(), hit.header("content-type")),
            (body.as_bytes(), (!body.is_empty()).then_some("text/x")),
            "{status}"
        );
    }
    for path in ["/script", "/file", "/bad"] {
        let outcome = agent.fetch(&run, &get(&site.url(path))).await;
        assert_eq!((kind(&outcome), outcome.answer.status, outcome.tries), (Some(Kind::Redirect), 302, 1), "{path}: {:?}", outcome.answer);
    }
    assert_eq!(&agent.fetch(&run, &get(&site.url("/nowhere"))).await.answer.body[..], b"no location");
    let words = agent.fetch(&run, &get(&site.url("/words"))).await.answer;
    assert_eq!(words.head.target_url, Some(site.url("/caf%C3%A9")));
    agent.fetch(&run, &get(&site.url("/set"))).await;
    assert_eq!(site.hits().last().and_then(|hit| hit.header("cookie")), Some("seen=1"), "a cookie that a redirect sets is sent on");
}

/// What was sent may have had an effect, so it is not for another node; what never left this node is.
#[actix_rt::test]
async fn only_what_was_not_sent_and_what_may_be_repeated_goes_to_another_node() {
    let site = Site::new(|_| answer(307, "Location: http://a..b/\r\n", ""));
    let rules = Rules { elsewhere: true, ..rules(DownloadSettings { retry_download: Some(0), ..origins([&site.url("/")]) }) };
    let asked =
        |method: &str, url: &str| serde_json::json!({ "requestId": "0123456789abcdef01234567", "method": method, "url": url }).to_string();
    for (method, url, expected) in [
        ("GET", "http://a..b/", true),
        ("POST", "http://a..b/", true),
        ("POST", "http://10.0.0.1/", true),
        ("GET", &site.url("/"), true),
        ("POST", &site.url("/"), false),
    ] {
        let outcome = Downloader::new(&config()).fetch(&rules, &asked(method, url)).await;
        assert_eq!(outcome.is_for_another, expected, "{method} {url}: {:?}", outcome.answer);
    }
}
