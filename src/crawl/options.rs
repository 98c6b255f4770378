//! What a crawl is asked for, and the job that this makes.

use crate::domain::ids::JobId;
use clap::Args;
use regex::Regex;
use serde_json::{Value, json};
use std::path::PathBuf;
use url::Url;

/// The class of the crawl worker.
pub const CLASS: &str = "webloom.Crawl";

/// The class of one crawl. Each has its own: what it writes and which links it follows are this program's options, and
/// no other crawl on the same broker may be given its pages.
#[must_use]
pub fn class_of(job: JobId) -> String {
    format!("{CLASS}.{job}")
}

/// Blocks that the agent works on at a time, if there are threads enough.
const BLOCKS: u32 = 4;
/// Characters of a job's name.
const NAME: usize = crate::domain::job::limits::NAME;

/// Crawls a site: follows its links, breadth first, and writes one line of JSON for each page.
#[derive(Debug, Clone, Args)]
pub struct CrawlOptions {
    /// Where to begin. Links to the same host and port are followed; http and https on their own ports count as one.
    #[arg(value_parser = start_url)]
    pub url: Url,

    /// Follow at most this many links from the start
    #[arg(long, value_name = "LINKS")]
    pub depth: Option<u32>,

    /// Download at most this many pages
    #[arg(long, value_name = "PAGES", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,

    /// Follow only links whose URL matches one of these patterns (regular expressions)
    #[arg(long, value_name = "REGEX")]
    pub include: Vec<Regex>,

    /// Follow no links whose URL matches one of these patterns
    #[arg(long, value_name = "REGEX")]
    pub exclude: Vec<Regex>,

    /// Downloads at the same time
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: u32,

    /// Wait this long between two downloads (then one thread is enough)
    #[arg(long, value_name = "MS", default_value_t = 0, value_parser = clap::value_parser!(u64).range(..=3_600_000))]
    pub delay_ms: u64,

    /// Give a download up after this time
    #[arg(long, value_name = "S", default_value_t = 30, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout_s: u64,

    /// Give a page up that has more bytes than this
    #[arg(long, value_name = "BYTES", default_value_t = 16 << 20, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub max_body: u64,

    /// What to call ourselves
    #[arg(long, value_name = "TEXT")]
    pub user_agent: Option<String>,

    /// Write the lines to this file instead of the standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Keep the pages themselves in this file: WARC 1.1, compressed if its name ends in .gz
    #[arg(long, value_name = "FILE")]
    pub warc: Option<PathBuf>,

    /// Where the crawl remembers what it has done [default: .webloom-crawl/ and a number made of the URL]
    #[arg(long, value_name = "DIR")]
    pub state: Option<PathBuf>,

    /// Crawl with the agents of this broker, instead of starting both here
    #[arg(long, value_name = "URL")]
    pub broker: Option<String>,

    /// The token of that broker; it must let jobs be created
    #[arg(long, value_name = "TEXT", env = "WEBLOOM_TOKEN", hide_env_values = true)]
    pub token: Option<String>,

    /// Go on with the crawl that was interrupted
    #[arg(long)]
    pub resume: bool,

    /// Begin anew, even if there is a crawl to go on with
    #[arg(long, conflicts_with = "resume")]
    pub fresh: bool,

    /// Show no progress
    #[arg(long, short)]
    pub quiet: bool,
}

impl CrawlOptions {
    /// The defaults.
    #[must_use]
    pub fn new(url: Url) -> Self {
        Self {
            url,
            depth: None,
            limit: None,
            include: Vec::new(),
            exclude: Vec::new(),
            threads: 16,
            delay_ms: 0,
            timeout_s: 30,
            max_body: 16 << 20,
            user_agent: None,
            output: None,
            warc: None,
            state: None,
            broker: None,
            token: None,
            resume: false,
            fresh: false,
            quiet: false,
        }
    }

    /// Blocks that the agent is to work on at a time (its `maxProcessCount`): with [`CrawlOptions::thread_num`] it gives
    /// the downloads at the same time.
    #[must_use]
    pub fn max_process_count(&self) -> u32 {
        self.threads.min(BLOCKS)
    }

    /// Downloads at the same time in one block.
    #[must_use]
    pub fn thread_num(&self) -> u32 {
        self.threads.div_ceil(self.max_process_count())
    }
}

/// The body of `POST /api/v1/jobs`.
#[must_use]
pub fn job(options: &CrawlOptions, id: JobId) -> Value {
    // Names of jobs are unique; a broker may serve several crawls.
    let mark = &id.to_string()[..8];
    let host: String = options.url.host_str().unwrap_or_default().chars().take(NAME - "crawl  ".len() - mark.len()).collect();
    let name = format!("crawl {host} {mark}");
    let mut properties = json!({
        "FullClassName": class_of(id),
        "ThreadNum": options.thread_num().to_string(),
        // Small enough to be back soon, large enough that its threads do not wait for the slowest page of each block.
        "BlockSize": (options.thread_num() * 4).clamp(8, 100).to_string(),
        "Timeout": (options.timeout_s * 1000).to_string(),
        "MaxBody": options.max_body.to_string(),
        "SleepTime": options.delay_ms.to_string(),
    });
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            properties[key] = Value::String(value);
        }
    };
    add("DepthLimit", options.depth.map(|n| n.to_string()));
    add("MaxRequests", options.limit.map(|n| n.to_string()));
    add("Site", options.user_agent.as_ref().map(|name| json!({ "userAgent": name }).to_string()));
    json!({ "id": id, "name": name, "jobType": "block", "properties": properties })
}

fn start_url(text: &str) -> Result<Url, String> {
    // `example.com` is what people type.
    let text = if text.contains("://") { text.to_owned() } else { format!("http://{text}") };
    crate::protocol::push::check_url(&text).map_err(|problem| problem.detail)
}

#[cfg(test)]
mod tests {
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
        let options =
            parse("Example.com --depth 3 --limit 10 --threads 6 --delay-ms 5 --timeout-s 2 --user-agent me -o x").expect("options");
        assert_eq!(options.url.as_str(), "http://example.com/");
        let id = JobId::random();
        let job = job(&options, id);
        let properties = Properties(serde_json::from_value(job["properties"].clone()).expect("texts"));
        let (download, queue) = (properties.download().expect("download"), properties.queue().expect("queue"));
        assert_eq!((download.thread_num, options.max_process_count(), download.sleep_time, download.timeout), (2, 4, 5, 2_000));
        assert_eq!((queue.depth_limit, queue.max_requests), (Some(3), Some(10)));
        assert_eq!(download.site.user_agent.as_deref(), Some("me"));
        let name = format!("crawl example.com {}", &id.to_string()[..8]);
        assert_eq!((properties.class_name(), &job["name"]), (Some(class_of(id).as_str()), &json!(name)));
        serde_json::from_value::<crate::protocol::api::JobInput>(job).expect("an input of the API");
    }

    #[test]
    fn the_defaults_are_the_same_both_ways() {
        let parsed = parse("http://a/").expect("options");
        assert_eq!(format!("{parsed:?}"), format!("{:?}", CrawlOptions::new(parsed.url.clone())));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["ftp://a/", "http://", "a --limit 0", "a --threads 0", "a --include (", "a --resume --fresh", "a --depth -1"] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
