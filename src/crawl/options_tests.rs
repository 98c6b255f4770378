use super::*;
use crate::domain::job::Properties;
use clap::Parser;

#[derive(Parser)]
struct Program {
    #[command(flatten)]
    crawl: CrawlOptions,
}

fn parse(line: &str) -> Result<CrawlOptions, clap::Error> {
    Program::try_parse_from(std::iter::once("crawl").chain(line.split(' '))).map(|program| program.crawl)
}

#[test]
fn a_command_line_becomes_a_job_that_the_broker_understands() {
    let options = parse("Example.com --depth 3 --limit 10 --threads 6 --delay 5 --timeout-s 2 --user-agent me -o x").expect("options");
    assert_eq!(options.urls, [Start::Url(Url::parse("http://example.com/").expect("a url"))]);
    let mut options = options;
    options.read_starts().expect("a start");
    let id = JobId::random();
    let job = job(&options, id);
    let properties = Properties(serde_json::from_value(job["properties"].clone()).expect("texts"));
    let (download, queue) = (properties.download().expect("download"), properties.queue().expect("queue"));
    assert_eq!((download.thread_num, options.max_process_count(), download.sleep_time, download.timeout), (2, 4, 0, 2_000));
    assert_eq!((queue.depth_limit, queue.max_requests), (Some(3), Some(10)));
    assert_eq!((queue.sites.limits.delay_ms, queue.sites.robots), (Some(5), Some(true)));
    assert_eq!(download.site.user_agent.as_deref(), Some("me"));
    let name = format!("crawl example.com {}", &id.to_string()[..8]);
    assert_eq!((properties.class_name(), &job["name"]), (Some(class_of(id).as_str()), &json!(name)));
    serde_json::from_value::<crate::protocol::api::JobInput>(job).expect("an input of the API");
}

#[test]
fn the_defaults_are_the_same_both_ways() {
    let mut parsed = parse("http://a/").expect("options");
    parsed.read_starts().expect("a start");
    assert_eq!(format!("{parsed:?}"), format!("{:?}", CrawlOptions::new(Url::parse("http://a/").expect("a url"))));
}

#[test]
fn what_sites_are_sent_becomes_a_property_of_the_job() {
    let words = [
        "crawl",
        "a",
        "--header",
        "X-Key: 1:2",
        "--header",
        "Accept-Language: de",
        "--cookie",
        "a=b; c=d;",
        "--cookie",
        "e=",
        "--proxy",
        "socks5h://127.0.0.1:9050",
        "--contact",
        "https://example.com/bot",
        "--site-by",
        "domain",
        "--hosts",
        "a,*.b.example",
        "--hosts",
        "any",
        "--sitemap",
        "a/s.xml",
        "--max-per-site",
        "7",
        "--max-bytes",
        "9",
        "--sort-query",
        "--drop-parameter",
        "sid,utm_*",
    ];
    let mut options = Program::try_parse_from(words).expect("options").crawl;
    options.read_starts().expect("a start");
    let job = job(&options, JobId::random());
    let properties = Properties(serde_json::from_value(job["properties"].clone()).expect("texts"));
    let download = properties.download().expect("download");
    let queue = properties.queue().expect("a queue");
    assert_eq!((queue.max_per_site, queue.max_bytes, queue.canonicalisation.sort_query), (Some(7), Some(9), true));
    assert_eq!(queue.canonicalisation.drop_parameters, ["sid", "utm_*"]);
    let agent = format!("webloom/{} (+https://example.com/bot)", env!("CARGO_PKG_VERSION"));
    assert_eq!(download.site.user_agent, Some(agent));
    let headers: Vec<(&str, &str)> = download.site.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
    assert_eq!(headers, [("Accept-Language", "de"), ("X-Key", "1:2")]);
    assert_eq!((download.cookies.as_deref(), download.site.proxy.as_deref()), (Some("a=b; c=d; e="), Some("socks5h://127.0.0.1:9050")));
    assert_eq!((job["properties"]["SiteBy"].as_str(), options.hosts.len()), (Some("domain"), 3));
    assert_eq!(options.begins_at().count(), 2);
}

#[test]
fn what_makes_no_sense_is_refused() {
    for line in [
        "ftp://a/",
        "http://",
        "a --limit 0",
        "a --max-per-site 0",
        "a --max-bytes 0",
        "a --threads 0",
        "a --include (",
        "a --resume --fresh",
        "a --resume --overwrite",
        "a --depth -1",
        "",
        "--hosts any",
        "a --hosts http://b/",
        "a --start-timeout-s 0",
        "a --download-allow 10.0.0.0/33",
        "a --download-allow 10.0.0.0/8 --broker http://b/",
        "a --hosts",
        "a --header X",
        "a --header X:",
        "a --header =:1",
        "a --cookie x",
        "a --proxy gopher://x",
        "a --contact me",
        "a --contact javascript:x",
        "a --contact http://a/ --user-agent b",
        "a --site-by net",
        "a --sitemap ftp://b/",
        "a --header Content-Length:5",
        "a --header transfer-encoding:chunked",
        "a --broker x",
        "mailto:me@a",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn options_that_would_replace_each_other_or_are_too_long_are_refused() {
    let long = "x".repeat(5_000);
    for (line, says) in [
        ("a --header X:1 --header x:2", Some("`x` is given twice")),
        ("a --header cookie:a=1 --cookie b=2", Some("--cookie")),
        ("a --header User-Agent:me --contact me@a.example", Some("--contact")),
        ("a --header user-agent:me --user-agent you", Some("--user-agent")),
        ("a --header X:1 --header Y:2 --cookie b=2 --contact me@a.example", None),
        // A property of the job has the headers together, and one the cookies.
        (&format!("a --header X:{long} --cookie b={long}"), None),
        (&format!("a --header X:{long} --header Y:{long}"), Some("--header, --user-agent, --contact and --proxy: all values together")),
        (&format!("a --cookie a={long} --cookie b={long}"), Some("--cookie: all values together")),
    ] {
        let checked = parse(line).expect(line).check_headers();
        assert_eq!(checked.is_ok(), says.is_none(), "{line}");
        assert!(checked.err().is_none_or(|why| says.is_some_and(|says| why.contains(says))), "{line}");
    }
}

#[test]
fn options_that_a_resumed_crawl_cannot_change_are_named() {
    let properties = |line: &str| {
        let mut options = parse(line).expect("options");
        options.read_starts().expect("a start");
        job(&options, JobId::random())["properties"].take()
    };
    let begun = properties("http://a.test --depth 4 --delay 100 --threads 8");
    assert_eq!(changed_options(&begun, &properties("http://a.test --depth 4 --delay 100 --threads 2")), [""; 0]);
    assert_eq!(changed_options(&begun, &properties("http://a.test --depth 1 --limit 5")), ["--depth", "--delay", "--limit"]);
}
