//! The options of a crawl, and the job that they make.

use super::starts::{Start, start_url};
use crate::config::addresses::Addresses;
use crate::domain::ids::JobId;
use crate::domain::settings::{check_contact, check_proxy, user_agent};
use crate::domain::sites::SiteBy;
use crate::domain::targets::Rule;
use clap::{Args, ValueEnum};
use regex::Regex;
use serde_json::{Map, Value, json};
use std::path::PathBuf;
use std::str::FromStr;
use url::Url;

/// The class of the crawl worker.
pub const CLASS: &str = "webloom.Crawl";

/// The class of one crawl. Each crawl has its own class: its outputs and its rules for links are options of this program, and no other
/// crawl on the same broker may get its pages.
#[must_use]
pub fn class_of(job: JobId) -> String {
    format!("{CLASS}.{job}")
}

/// Concurrent blocks of the agent, if there are enough threads.
const BLOCKS: u32 = 4;
/// Maximum characters of a job's name.
const NAME: usize = crate::domain::job::limits::NAME;
/// Maximum characters of a property of a job.
const MOST_PROPERTY: usize = crate::domain::job::limits::VALUE;

/// Hosts whose pages a crawl may follow links to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hosts {
    /// All hosts.
    Any,
    /// Hosts that match a pattern.
    Like(Rule),
}

impl FromStr for Hosts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "any" | "*" => Ok(Self::Any),
            text => text.parse().map(Self::Like).map_err(|_| {
                format!(
                    "`{}` is not a host: example.com, *.example.com, host:port or any is expected",
                    text.chars().take(80).collect::<String>()
                )
            }),
        }
    }
}

/// Whether robots.txt is obeyed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RobotsPolicy {
    /// Pages that it forbids are not downloaded
    Obey,
    /// It is not requested
    Ignore,
}

impl RobotsPolicy {
    const fn name(self) -> &'static str {
        match self {
            Self::Obey => "obey",
            Self::Ignore => "ignore",
        }
    }
}

/// Crawls sites: follows their links, breadth first, and writes one line of JSON for each page.
#[derive(Debug, Clone, Args)]
pub struct CrawlOptions {
    /// The start URLs; `-` reads more URLs from standard input. Without --hosts, links to the hosts and ports of the starts are followed;
    /// http and https on their default ports count as one.
    #[arg(value_name = "URL", required_unless_present_any = ["urls_file", "sitemap"])]
    pub urls: Vec<Start>,

    /// Also begin at the URLs in this file, one on each line; - for standard input
    #[arg(long, value_name = "FILE")]
    pub urls_file: Option<PathBuf>,

    /// Also begin at the pages of this sitemap: XML, text, compressed, or a list of sitemaps. Their depth is 1
    #[arg(long, value_name = "URL", value_parser = start_url)]
    pub sitemap: Vec<Url>,

    /// All starts: filled by [`CrawlOptions::read_starts`].
    #[arg(skip)]
    pub starts: Vec<Url>,

    /// Follow links only to these hosts: example.com, *.example.org (its subdomains), host:port, any [default: those of the starts]
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub hosts: Vec<Hosts>,

    /// Follow at most this many links from the start, by the shortest path
    #[arg(long, value_name = "LINKS")]
    pub depth: Option<u32>,

    /// Download at most this many pages
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Download at most this many pages of each site
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_per_site: Option<u64>,

    /// End after this many bytes of pages, decompressed; pages that are being downloaded then are finished, and those that wait fail
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub max_bytes: Option<u64>,

    /// Treat URLs that differ only in the order of their parameters as one page
    #[arg(long)]
    pub sort_query: bool,

    /// Treat URLs that differ only in this parameter as one page: PHPSESSID, utm_*
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub drop_parameter: Vec<String>,

    /// Follow only links whose URL matches one of these patterns (regular expressions)
    #[arg(long, value_name = "REGEX")]
    pub include: Vec<Regex>,

    /// Follow no links whose URL matches one of these patterns
    #[arg(long, value_name = "REGEX")]
    pub exclude: Vec<Regex>,

    /// Concurrent downloads
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// Delay between an answer of a site and the next request to it [default: 1000 at public hosts, 0 at private ones]
    #[arg(long, value_name = "MS", alias = "delay-ms", value_parser = clap::value_parser!(u32).range(..=86_400_000))]
    pub delay: Option<u32>,

    /// Concurrent downloads from one site; all ports of a host are one site [default: 1 at public hosts, no limit at private ones]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub per_site: Option<u16>,

    /// Whether to obey robots.txt, and `nofollow` in pages
    #[arg(long, value_name = "HOW", default_value = "obey")]
    pub robots: RobotsPolicy,

    /// Abort a download after this time
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout_s: u64,

    /// End with exit code 1 if no page has come after this time, and each start has failed at least once
    #[arg(long, value_name = "S", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub start_timeout_s: u64,

    /// Abort a page that is larger than this, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_body: u64,

    /// Send this User-Agent [default: webloom, its version and --contact]
    #[arg(long, value_name = "TEXT", value_parser = header_value)]
    pub user_agent: Option<String>,

    /// Add this page or mail address to the User-Agent, so that owners of sites can contact you
    #[arg(long, value_name = "URL", value_parser = check_contact, conflicts_with = "user_agent")]
    pub contact: Option<String>,

    /// Send this header with each request to the origins of the starts
    #[arg(long, value_name = "NAME: VALUE", value_parser = header)]
    pub header: Vec<(String, String)>,

    /// Send these cookies to the origins of the starts, until a site changes them: name=value; name=value
    #[arg(long, value_name = "COOKIES", value_parser = cookies)]
    pub cookie: Vec<String>,

    /// Send all requests through this proxy: http://, https://, socks5:// or socks5h://
    #[arg(long, value_name = "URL", value_parser = proxy)]
    pub proxy: Option<String>,

    /// Private, loopback and link-local targets that downloads may go to, besides the origins of the starts: networks like 10.0.0.0/8,
    /// addresses, host, host:port, *.suffix
    #[arg(long, value_name = "TARGET", value_delimiter = ',', conflicts_with = "broker")]
    pub download_allow: Vec<Rule>,

    /// What counts as one site for limits: host (with all its ports), or domain (example.co.uk with all its
    /// subdomains), or ip (all hosts with one address)
    #[arg(long, value_name = "KIND", default_value = "host", value_parser = site_by)]
    pub site_by: SiteBy,

    /// Write the lines to this file instead of standard output; an existing file is not replaced without --overwrite
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Store the pages in this file: WARC 1.1, compressed if its name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub warc: Option<PathBuf>,

    /// The folder of the crawl's state [default: .webloom-crawl/ and a number computed from the URL]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Crawl with the agents of this broker, instead of starting both locally
    #[arg(long, value_name = "URL", value_parser = broker)]
    pub broker: Option<String>,

    /// A token of the role admin for that broker: the crawl creates a job, and is also its worker
    #[arg(long, value_name = "TEXT", env = "WEBLOOM_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// Resume an interrupted crawl
    #[arg(long)]
    pub resume: bool,

    /// Start again, even if there is a crawl to resume
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,

    /// Replace the files of --output and --warc
    #[arg(long, conflicts_with = "resume")]
    pub overwrite: bool,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl CrawlOptions {
    /// The defaults.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            urls: vec![Start::Url(url.clone())],
            urls_file: None,
            sitemap: Vec::new(),
            starts: vec![url],
            hosts: Vec::new(),
            depth: None,
            limit: None,
            max_per_site: None,
            max_bytes: None,
            sort_query: false,
            drop_parameter: Vec::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            threads: 16,
            delay: None,
            per_site: None,
            robots: RobotsPolicy::Obey,
            timeout_s: 30,
            start_timeout_s: 20,
            max_body: 16 << 20,
            user_agent: None,
            contact: None,
            header: Vec::new(),
            cookie: Vec::new(),
            proxy: None,
            download_allow: Vec::new(),
            site_by: SiteBy::Host,
            output: None,
            warc: None,
            state: None,
            broker: None,
            token: None,
            resume: false,
            fresh: false,
            overwrite: false,
            quiet: false,
        }
    }

    /// Checks that no option would silently replace another one (of several values of one header only one is sent), and that the
    /// properties of the job can hold all of them.
    ///
    /// # Errors
    /// Names the options.
    pub fn check_headers(&self) -> Result<(), String> {
        let has = |wanted: &str| self.header.iter().any(|(name, _)| name.eq_ignore_ascii_case(wanted));
        let is_again = |i: usize, name: &str| self.header[..i].iter().any(|(before, _)| before.eq_ignore_ascii_case(name));
        if let Some((_, (name, _))) = self.header.iter().enumerate().find(|(i, (name, _))| is_again(*i, name)) {
            return Err(format!("--header: `{name}` is given twice; write its values in one header"));
        }
        if has("Cookie") && !self.cookie.is_empty() {
            return Err("--header: `Cookie` and --cookie exclude each other".to_owned());
        }
        if has("User-Agent") && (self.user_agent.is_some() || self.contact.is_some()) {
            return Err("--header: `User-Agent` excludes --user-agent and --contact".to_owned());
        }
        let site = self.site().map(|site| site.to_string()).unwrap_or_default();
        for (options, text) in [("--header, --user-agent, --contact and --proxy", site), ("--cookie", self.cookies())] {
            let length = text.chars().count();
            if length > MOST_PROPERTY {
                return Err(format!(
                    "{options}: all values together are too long: {length} characters, at most {MOST_PROPERTY} are allowed"
                ));
            }
        }
        Ok(())
    }

    /// Concurrent blocks for the agent (its `maxProcessCount`): with [`CrawlOptions::thread_num`] it determines the number of concurrent
    /// downloads.
    #[must_use]
    pub fn max_process_count(&self) -> u32 {
        self.threads.min(BLOCKS)
    }

    /// Concurrent downloads in one block.
    #[must_use]
    pub fn thread_num(&self) -> u32 {
        self.threads.div_ceil(self.max_process_count())
    }

    /// The `User-Agent`, unless it is the agents' default.
    #[must_use]
    pub fn user_agent(&self) -> Option<String> {
        self.user_agent.clone().or_else(|| self.contact.as_deref().map(|contact| user_agent(Some(contact))))
    }

    /// The property `Cookies`.
    fn cookies(&self) -> String {
        self.cookie.join("; ")
    }

    /// The settings for all sites of the crawl: the property `Site`.
    fn site(&self) -> Option<Value> {
        let mut site = Map::new();
        let mut add = |key: &str, value: Option<Value>| site.extend(value.map(|value| (key.to_owned(), value)));
        add("userAgent", self.user_agent().map(Value::String));
        add("proxy", self.proxy.clone().map(Value::String));
        let headers: Map<String, Value> = self.header.iter().map(|(name, value)| (name.clone(), value.clone().into())).collect();
        add("headers", Some(headers).filter(|headers| !headers.is_empty()).map(Value::Object));
        (!site.is_empty()).then_some(Value::Object(site))
    }
}

/// The body of `POST /api/v1/jobs`.
#[must_use]
pub fn job(options: &CrawlOptions, id: JobId) -> Value {
    // Names of jobs are unique; a broker may serve several crawls.
    let mark = &id.to_string()[..8];
    let host: String =
        options.begins_at().next().and_then(Url::host_str).unwrap_or_default().chars().take(NAME - "crawl  ".len() - mark.len()).collect();
    let name = format!("crawl {host} {mark}");
    let mut properties = json!({
        "FullClassName": class_of(id),
        "ThreadNum": options.thread_num().to_string(),
        // Small enough to be reported soon, large enough that its threads do not wait for the slowest page of each block.
        "BlockSize": (options.thread_num() * 4).clamp(8, 100).to_string(),
        "Timeout": (options.timeout_s * 1000).to_string(),
        "MaxBody": options.max_body.to_string(),
        "Robots": options.robots.name(),
        // The worker requests their targets, within the scope of the crawl.
        "MaxRedirects": "0",
    });
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            properties[key] = Value::String(value);
        }
    };
    add("DepthLimit", options.depth.map(|n| n.to_string()));
    add("Delay", options.delay.map(|ms| ms.to_string()));
    add("PerSite", options.per_site.map(|n| n.to_string()));
    add("MaxRequests", options.limit.map(|n| n.to_string()));
    add("MaxPerSite", options.max_per_site.map(|n| n.to_string()));
    add("MaxBytes", options.max_bytes.map(|n| n.to_string()));
    add("SortQuery", options.sort_query.then(|| "true".to_owned()));
    add("DropParameters", Some(options.drop_parameter.join(",")).filter(|names| !names.is_empty()));
    add("Site", options.site().map(|site| site.to_string()));
    add("Cookies", Some(options.cookies()).filter(|cookies| !cookies.is_empty()));
    add("SiteBy", Some(options.site_by).filter(|by| *by != SiteBy::Host).map(|by| by.name().to_owned()));
    json!({ "id": id, "name": name, "jobType": "block", "properties": properties })
}

/// The options whose values differ between two jobs of a crawl. What the broker may mask is not compared.
pub fn changed_options(one: &Value, other: &Value) -> Vec<&'static str> {
    let options = [
        ("DepthLimit", "--depth"),
        ("Delay", "--delay"),
        ("PerSite", "--per-site"),
        ("SiteBy", "--site-by"),
        ("MaxRequests", "--limit"),
        ("MaxPerSite", "--max-per-site"),
        ("MaxBytes", "--max-bytes"),
        ("MaxBody", "--max-body"),
        ("Timeout", "--timeout-s"),
        ("Robots", "--robots"),
        ("SortQuery", "--sort-query"),
        ("DropParameters", "--drop-parameter"),
    ];
    options.into_iter().filter(|(property, _)| one[property] != other[property]).map(|(_, option)| option).collect()
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once(':').ok_or("`Name: value` is expected")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b));
    if !is_name {
        return Err("the name of a header has letters, digits and `-`: `Name: value` is expected".to_owned());
    }
    if ["Content-Length", "Transfer-Encoding"].iter().any(|own| name.eq_ignore_ascii_case(own)) {
        return Err(format!("the agent sets `{name}` itself"));
    }
    Ok((name.to_owned(), header_value(value)?))
}

fn header_value(text: &str) -> Result<String, String> {
    let value = text.trim();
    if value.is_empty() || value.chars().any(char::is_control) {
        return Err("a text without control characters is expected".to_owned());
    }
    Ok(value.to_owned())
}

fn cookies(text: &str) -> Result<String, String> {
    let text = header_value(text)?.trim_end_matches(';').to_owned();
    let is_pair = |pair: &str| pair.split_once('=').is_some_and(|(name, _)| !name.trim().is_empty());
    if text.split(';').all(is_pair) { Ok(text) } else { Err("name=value; name=value is expected".to_owned()) }
}

fn proxy(text: &str) -> Result<String, String> {
    check_proxy(text).map(|_| text.trim().to_owned())
}

fn broker(text: &str) -> Result<String, String> {
    text.parse::<Addresses>().map(|_| text.to_owned())
}

fn site_by(text: &str) -> Result<SiteBy, String> {
    match text {
        "host" => Ok(SiteBy::Host),
        "domain" => Ok(SiteBy::Domain),
        "ip" => Ok(SiteBy::Ip),
        _ => Err("host, domain or ip is expected".to_owned()),
    }
}

#[cfg(test)]
#[path = "options_tests.rs"]
mod tests;
