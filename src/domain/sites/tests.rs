use super::state::MOST_RETRY_AFTER_MS;
use super::*;
use crate::domain::time::Timestamp;
use std::net::IpAddr;
use url::Url;

const T: Timestamp = Timestamp(1_800_000_000_000);
const POLITE: Pace = Pace { connections: 1, delay_ms: 1_000 };

fn url(text: &str) -> Url {
    Url::parse(text).expect("a url")
}

fn at(ms: i64) -> Timestamp {
    T.plus_ms(ms)
}

fn answered(status: u16, elapsed_ms: u32) -> Outcome {
    Outcome { ended: Ended::Answered(status), elapsed_ms, retry_after_ms: None }
}

fn asked(status: u16, retry_after_ms: u32) -> Outcome {
    Outcome { retry_after_ms: Some(retry_after_ms), ..answered(status, 5) }
}

#[test]
fn a_site_is_a_host_a_domain_or_an_address() {
    let address: IpAddr = "93.184.215.14".parse().expect("an address");
    let mapped: IpAddr = "::ffff:93.184.215.14".parse().expect("an address");
    for (text, host, domain) in [
        ("http://www.Example.co.uk:81/x", "www.example.co.uk", "example.co.uk"),
        ("https://example.com./", "example.com", "example.com"),
        ("http://a.b.github.io/", "a.b.github.io", "b.github.io"),
        ("http://co.uk/", "co.uk", "co.uk"),
        ("http://a.b.unknown/", "a.b.unknown", "b.unknown"),
        ("http://intranet/", "intranet", "intranet"),
        ("http://www.食狮.公司.cn/", "www.xn--85x722f.xn--55qx5d.cn", "xn--85x722f.xn--55qx5d.cn"),
        ("http://city.kawasaki.jp/", "city.kawasaki.jp", "city.kawasaki.jp"),
        ("http://x.y.localhost/", "x.y.localhost", "x.y.localhost"),
        ("http://10.1.2.3:8080/", "10.1.2.3", "10.1.2.3"),
        ("http://[::1]/", "::1", "::1"),
    ] {
        assert_eq!(site_key(&url(text), SiteBy::Host, Some(address)), host, "{text}");
        assert_eq!(site_key(&url(text), SiteBy::Domain, Some(address)), domain, "{text}");
        assert_eq!(site_key(&url(text), SiteBy::Ip, None), host, "{text}");
    }
    for known in [address, mapped] {
        assert_eq!(site_key(&url("http://example.com/"), SiteBy::Ip, Some(known)), "93.184.215.14");
    }
    assert_eq!(site_key(&url("http://10.1.2.3/"), SiteBy::Ip, Some(address)), "10.1.2.3");
    assert_eq!("Domain".parse(), Ok(SiteBy::Domain));
    assert!("tld".parse::<SiteBy>().is_err());
}

#[test]
fn private_sites_are_known_by_their_addresses() {
    for text in
        ["http://127.9.8.7/", "http://[::1]/", "http://localhost:1/", "http://a.LOCALHOST./", "http://192.168.0.1/", "http://0.0.0.0/"]
    {
        assert!(is_private(&url(text), None), "{text}");
    }
    let inside: IpAddr = "10.0.0.1".parse().expect("an address");
    let outside: IpAddr = "93.184.215.14".parse().expect("an address");
    let site = url("http://example.com/");
    assert_eq!([None, Some(inside), Some(outside)].map(|address| is_private(&site, address)), [false, true, false]);
    assert!(!is_private(&url("http://8.8.8.8/"), Some(inside)));
}

#[test]
fn the_slowest_rule_wins() {
    let rule = |connections, delay_ms| Limits { connections, delay_ms };
    assert_eq!(slowest(false, []), Pace { connections: 1, delay_ms: 1_000 });
    assert_eq!(slowest(true, []), Pace::FREE);
    let job = rule(Some(4), Some(200));
    assert_eq!(slowest(false, [job]), Pace { connections: 4, delay_ms: 200 });
    assert_eq!(slowest(true, [job]), Pace { connections: 4, delay_ms: 200 }, "it was asked for");
    assert_eq!(slowest(false, [job, rule(None, Some(5_000)), rule(Some(2), None)]), Pace { connections: 2, delay_ms: 5_000 });
    assert_eq!(slowest(false, [job, rule(None, Some(10_000))]).delay_ms, 10_000);
    assert_eq!(slowest(false, [job, rule(None, Some(1))]).delay_ms, 200);
    assert_eq!(slowest(false, [rule(Some(0), Some(u32::MAX))]), Pace { connections: 1, delay_ms: MOST_DELAY_MS });
}

#[test]
fn a_rule_of_the_configuration_is_read_or_refused() {
    let rule: SiteRule = " *.example.org delay=5000 connections=2 ".parse().expect("a rule");
    assert_eq!(rule.limits, Limits { connections: Some(2), delay_ms: Some(5_000) });
    assert!(rule.is_about("www.Example.org", 80) && rule.is_about("a.b.example.org", 443) && !rule.is_about("example.org", 80));
    assert!("* delay=0".parse::<SiteRule>().expect("a rule").is_about("anything", 1));
    assert!("10.0.0.0/8 connections=1".parse::<SiteRule>().expect("a rule").is_about("10.9.9.9", 1));
    for bad in
        ["", "a", "a delay", "a delay=x", "a delay=-1", "a delay=86400001", "a connections=0", "a delay=1 delay=2", "a/b delay=1", "a x=1"]
    {
        let error = bad.parse::<SiteRule>().expect_err(bad);
        assert!(error.contains("delay=5000"), "{error}");
    }
    let rules: SiteRules = "a.org delay=1,*.b.org connections=2\n\n10.0.0.0/8 delay=3\n".parse().expect("rules");
    assert_eq!(rules.0.iter().map(|rule| rule.limits.delay_ms).collect::<Vec<_>>(), [Some(1), None, Some(3)]);
    assert_eq!("".parse(), Ok(SiteRules(Vec::new())), "a variable of the environment may be empty");
    for (bad, says) in [
        ("a delay=1,b", "`b` is not a rule for sites: it has neither"),
        (" , ", "is not a rule for sites"),
        ("a dela=1", "`dela=1` is not expected"),
    ] {
        let error = bad.parse::<SiteRules>().expect_err(bad);
        assert!(error.contains(says), "{error}");
    }
}

#[test]
fn jitter_only_adds() {
    assert_eq!([0, u32::MAX / 2, u32::MAX].map(|dice| POLITE.jittered_ms(dice)), [1_000, 1_050, 1_100]);
    assert_eq!(Pace { connections: 1, delay_ms: 0 }.jittered_ms(u32::MAX), 0);
    assert_eq!(Pace { connections: 1, delay_ms: 5 }.jittered_ms(u32::MAX), 5);
}

#[test]
fn one_request_at_a_time_with_a_delay() {
    let mut site = SiteState::default();
    assert_eq!(site.may_begin(T, POLITE), Begin::Yes);
    site.begun(T, POLITE, 0);
    assert_eq!(site.may_begin(at(2_000), POLITE), Begin::Full);
    site.ended(at(10), POLITE, answered(200, 10));
    assert_eq!(site.may_begin(at(999), POLITE), Begin::NotBefore(at(1_010), Why::Delay));
    assert_eq!(site.may_begin(at(1_010), POLITE), Begin::Yes);
    assert!(!site.is_forgettable(at(1_010)), "its answers are remembered");
    // A pace that became slower meanwhile applies from the last answer on.
    site.begun(at(1_010), POLITE, 0);
    site.ended(at(1_020), Pace { connections: 1, delay_ms: 5_000 }, answered(200, 10));
    assert_eq!(site.next_at(at(1_020)), at(6_020));
}

#[test]
fn a_slow_site_is_asked_less_often_and_a_quick_one_again_as_before() {
    let mut site = SiteState::default();
    site.begun(T, POLITE, 0);
    site.ended(at(8_000), POLITE, answered(200, 8_000));
    assert_eq!(site.may_begin(at(8_000), POLITE), Begin::NotBefore(at(16_000), Why::SlowAnswers));
    assert_eq!(site.delay_ms(POLITE), 8_000);
    let mut now = at(16_000);
    // An error does not shorten the rest.
    site.begun(now, POLITE, 0);
    site.ended(now, POLITE, answered(404, 0));
    assert_eq!(site.delay_ms(POLITE), 8_000);
    for expected in [4_000, 2_000, 1_000, 1_000] {
        now = site.next_at(now);
        site.begun(now, POLITE, 0);
        site.ended(now, POLITE, answered(200, 0));
        assert_eq!(site.delay_ms(POLITE), expected);
    }
    // Several connections share the time; a site without a pace has no rest.
    let wide = Pace { connections: 4, delay_ms: 100 };
    let mut site = SiteState::default();
    site.begun(T, wide, 0);
    site.ended(at(8_000), wide, answered(200, 8_000));
    assert_eq!(site.delay_ms(wide), 2_000);
    let mut site = SiteState::default();
    site.begun(T, Pace::FREE, 0);
    site.ended(at(8_000), Pace::FREE, answered(200, 8_000));
    assert_eq!(site.may_begin(at(8_000), Pace::FREE), Begin::Yes);
    site.begun(at(8_000), POLITE, 0);
    site.ended(at(900_000), POLITE, answered(200, 892_000));
    assert_eq!(site.delay_ms(POLITE), MOST_REST_MS);
}

#[test]
fn retry_after_is_obeyed_grows_when_repeated_and_is_bounded() {
    for status in [429, 503] {
        let mut site = SiteState::default();
        site.begun(T, POLITE, 0);
        site.ended(at(5), POLITE, asked(status, 120_000));
        assert_eq!(site.may_begin(at(5), POLITE), Begin::NotBefore(at(120_005), Why::RetryAfter));
        assert_eq!(site.may_begin(at(120_004), POLITE), Begin::NotBefore(at(120_005), Why::RetryAfter));
        assert_eq!(site.may_begin(at(120_005), POLITE), Begin::Yes);
    }
    let mut site = SiteState::default();
    let mut now = T;
    let mut holds = Vec::new();
    for _ in 0..12 {
        site.begun(now, POLITE, 0);
        site.ended(now, POLITE, asked(429, 2_000));
        let (until, _) = site.held_until(now).expect("held");
        holds.push(until.since_ms(now) / 1_000);
        now = site.next_at(now);
    }
    assert_eq!(holds, [2, 10, 20, 40, 80, 160, 320, 640, 1_280, 2_560, 3_600, 3_600]);
    site.ended(now, POLITE, asked(429, u32::MAX));
    assert_eq!(site.held_until(now), Some((now.plus_ms(MOST_RETRY_AFTER_MS.into()), Why::RetryAfter)));
}

#[test]
fn too_many_requests_without_a_time_hold_at_once_and_slow_down() {
    for pace in [POLITE, Pace::FREE] {
        let mut site = SiteState::default();
        site.begun(T, pace, 0);
        site.ended(T, pace, answered(429, 1));
        assert_eq!(site.may_begin(T, pace), Begin::NotBefore(at(10_000), Why::TooManyRequests));
        assert!(site.delay_ms(pace) > pace.delay_ms);
    }
}

#[test]
fn failures_hold_a_site_off_when_they_come_in_a_row() {
    let bad = |ended| Outcome { ended, elapsed_ms: 1, retry_after_ms: None };
    for (ended, why) in [
        (Ended::TimedOut, Why::Timeouts),
        (Ended::Refused, Why::Refused),
        (Ended::Dns, Why::Dns),
        (Ended::Tls, Why::Tls),
        (Ended::Answered(500), Why::ServerErrors),
        (Ended::Answered(503), Why::ServerErrors),
    ] {
        let (mut site, mut now) = (SiteState::default(), T);
        for _ in 0..2 {
            site.begun(now, POLITE, 0);
            site.ended(now, POLITE, bad(ended));
            assert_eq!(site.held_until(now), None, "{ended:?}");
            now = site.next_at(now);
        }
        for seconds in [10, 20, 40] {
            site.begun(now, POLITE, 0);
            site.ended(now, POLITE, bad(ended));
            assert_eq!(site.held_until(now), Some((now.plus_ms(seconds * 1_000), why)));
            now = site.next_at(now);
        }
        // One success ends the single probes, and halves the failure count.
        site.begun(now, POLITE, 0);
        site.ended(now, POLITE, answered(200, 1));
        assert_eq!((site.failures(), site.held_until(now)), (2, None));
    }
    let mut site = SiteState::default();
    for _ in 0..9 {
        for outcome in [bad(Ended::TimedOut), answered(200, 1), answered(404, 1)] {
            site.begun(T, POLITE, 0);
            site.ended(T, POLITE, outcome);
        }
    }
    assert_eq!(site.held_until(T), None, "single failures are not a row");
    site.ended(T, POLITE, bad(Ended::Unknown));
    assert_eq!(site.failures(), 0);
}

#[test]
fn what_fails_together_counts_once_and_one_request_finds_out_whether_the_site_is_well() {
    let wide = Pace { connections: 16, delay_ms: 0 };
    let mut site = SiteState::default();
    for _ in 0..16 {
        site.begun(T, wide, 0);
    }
    for _ in 0..16 {
        site.ended(T, wide, Outcome { ended: Ended::Refused, elapsed_ms: 1, retry_after_ms: None });
    }
    assert_eq!((site.failures(), site.connections()), (3, 0));
    let (until, why) = site.held_until(T).expect("held");
    assert_eq!((until, why), (at(10_000), Why::Refused));
    assert_eq!(site.may_begin(until, wide), Begin::Yes);
    site.begun(until, wide, 0);
    assert_eq!(site.may_begin(until, wide), Begin::Full, "one alone");
    site.ended(until, wide, answered(200, 1));
    for _ in 0..16 {
        assert_eq!(site.may_begin(until, wide), Begin::Yes);
        site.begun(until, wide, 0);
    }
    assert_eq!(site.may_begin(until, wide), Begin::Full);
}

#[test]
fn an_operator_holds_and_releases() {
    let mut site = SiteState::default();
    site.hold(T, at(3_600_000));
    assert_eq!(site.may_begin(T, POLITE), Begin::NotBefore(at(3_600_000), Why::Operator));
    site.ended(T, POLITE, answered(200, 1));
    assert_eq!(site.held_until(T), Some((at(3_600_000), Why::Operator)), "an answer changes nothing");
    site.release(at(5_000));
    assert_eq!(site.may_begin(at(5_000), POLITE), Begin::Yes);
}

#[test]
fn the_own_delay_of_a_site_is_known_without_a_turn() {
    let mut board = Board::new(0);
    let granted = |delay_ms| Granted { delay_ms, jitter_ms: 100, connections: 1 };
    assert_eq!(board.granted("a.org", POLITE), granted(1_000));
    board.learn("a.org", POLITE, &[answered(200, 8_000)], T, T);
    assert_eq!((board.granted("a.org", POLITE), board.granted("b.org", POLITE)), (granted(8_000), granted(1_000)));
}

#[test]
fn a_clock_that_goes_back_makes_no_wait_longer() {
    let mut site = SiteState::default();
    site.begun(T, POLITE, 0);
    site.ended(T, POLITE, asked(429, 60_000));
    let before = at(-86_400_000);
    assert_eq!(site.may_begin(before, POLITE), Begin::NotBefore(before.plus_ms(60_000), Why::RetryAfter));
    assert_eq!(site.may_begin(before.plus_ms(59_999), POLITE), Begin::NotBefore(before.plus_ms(60_000), Why::RetryAfter));
    assert_eq!(site.may_begin(before.plus_ms(60_000), POLITE), Begin::Yes);
}

#[test]
fn a_state_is_small_and_survives_a_restart() {
    assert_eq!(size_of::<SiteState>(), 24);
    let mut site = SiteState::default();
    site.begun(T, POLITE, 0);
    site.begun(T, POLITE, 0);
    site.ended(T, POLITE, asked(503, 60_000));
    let again = SiteState::of_row(&site.to_row()).expect("a row");
    assert_eq!((again.connections(), again.failures()), (0, 1));
    assert_eq!((again.held_until(T), again.next_at(T)), (site.held_until(T), site.next_at(T)));
    assert_eq!(again.held_until(at(60_000)), None);
    let mut row = site.to_row();
    row[21] = 99;
    assert_eq!((SiteState::of_row(&row), SiteState::of_row(&row[1..])), (None, None));
    assert!(SiteState::default().is_forgettable(T));
}

#[test]
fn reasons_have_the_names_that_the_api_shows() {
    for why in [Why::Delay, Why::SlowAnswers, Why::RetryAfter, Why::TooManyRequests, Why::ServerErrors, Why::Operator] {
        assert_eq!(serde_json::to_value(why).expect("a text"), why.name());
    }
    assert_eq!(serde_json::to_value(SiteBy::Domain).expect("a text"), SiteBy::Domain.name());
}

#[test]
fn a_site_is_named_by_a_host_an_address_or_an_origin() {
    for (text, name) in [
        (" Example.ORG. ", "example.org"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("localhost", "localhost"),
        ("http://Example.org:80", "http://example.org"),
        ("https://127.0.0.1:8000/", "https://127.0.0.1:8000"),
    ] {
        assert_eq!(site_name(text), Ok(name.to_owned()));
        assert_eq!(site_name(name), Ok(name.to_owned()), "a name is its own");
    }
    let (longest, part) = ([["a"; 63].concat().as_str(); 3].join("."), ["a"; 64].concat());
    assert_eq!(site_name(&format!("{longest}.{}", &longest[..61])), Ok(format!("{longest}.{}", &longest[..61])));
    assert!(site_name(&format!("{longest}.{}", &longest[..62])).is_err());
    for bad in [
        part.as_str(),
        "",
        "a b",
        "example.org/x",
        "example.org:80",
        "http://example.org/x",
        "http://a@b",
        "ftp://x",
        "http://",
        "*.org",
        "a..b",
        "a?b",
        "x://y",
        "%",
    ] {
        let why = site_name(bad).expect_err(bad);
        assert!(why.starts_with(&format!("`{bad}` is not a site: ")) && why.ends_with("is expected"), "{why}");
    }
    assert_eq!(["http://[::1]:8000", "https://a.org", "a.org"].map(host_of_name), ["::1", "a.org", "a.org"]);
}
