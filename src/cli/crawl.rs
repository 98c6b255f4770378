//! `webloom crawl` and `webloom demo`: broker, agent and worker in one process.

use super::failure::Failure;
use super::local_broker::LocalBroker;
use super::say;
use super::value::unreadable;
use crate::config::agent::AgentConfig;
use crate::config::broker::{BrokerConfig, IDS_PER_TOKEN, IN_FLIGHT_BYTES, SchedulerNet, Times};
use crate::config::connections::ConnectionLimits;
use crate::config::lease::LeaseConfig;
use crate::config::tokens::Tokens;
use crate::crawl::{CrawlError, CrawlOptions, Outcome, Site, State, Summary, check_outputs, drive, serve};
use crate::domain::name_servers::NameServers;
use crate::sdk::stop_signal;
use clap::Args as ClapArgs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// Time for downloads in progress to finish when the crawl is stopped.
const DRAIN: Duration = Duration::from_secs(1);
/// Exit code of an interrupted crawl: 128 and the number of SIGINT, as in shells.
const INTERRUPTED: u8 = 130;

/// Flags of `webloom crawl`.
#[derive(Debug, ClapArgs)]
pub struct CrawlArgs {
    #[command(flatten)]
    options: CrawlOptions,
}

/// Flags of `webloom demo`.
#[derive(Debug, ClapArgs)]
pub struct DemoArgs {
    /// Exit when the crawl has ended, instead of keeping the broker for inspection
    #[arg(long)]
    exit: bool,
    /// Address and port of the broker; port 0 takes a free one
    #[arg(long, default_value = "127.0.0.1:55626")]
    listen: SocketAddr,
    /// Write the lines to this file [default: they are not kept]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
}

fn broker_config(listen: SocketAddr, database: PathBuf) -> Result<BrokerConfig, String> {
    let (alerts, keep) = Default::default();
    let config = BrokerConfig {
        listen,
        database: database.into(),
        accept_lost_data: false,
        tls: None,
        tokens: Tokens::default(),
        threads: 1,
        in_flight_bytes: IN_FLIGHT_BYTES,
        connections: ConnectionLimits::default(),
        ids_per_token: IDS_PER_TOKEN,
        times: Times::default(),
        alerts,
        keep,
        callback_allow: Vec::new(),
        site_rules: Vec::new(),
        name_servers: NameServers::default(),
        scheduler_net: SchedulerNet::default(),
        // Two crawls of one folder would each take pages of the other.
        lease: LeaseConfig { stands_by: false, ..LeaseConfig::default() },
    };
    config.validate().map_err(|e| e.to_string())
}

/// Starts the local broker, crawls, and returns the local broker for further use.
async fn crawl_in_house(options: &CrawlOptions, listen: SocketAddr) -> Result<(LocalBroker, Summary), String> {
    let mut state = State::prepare(options).map_err(|e| e.to_string())?;
    let driven = crawl_with(options, listen, &mut state).await;
    if driven.is_err() {
        state.forget_unless_begun();
    }
    driven
}

async fn crawl_with(options: &CrawlOptions, listen: SocketAddr, state: &mut State) -> Result<(LocalBroker, Summary), String> {
    let mut local_broker = LocalBroker::start(broker_config(listen, state.database())?).await?;
    let mut agent = AgentConfig { max_process_count: options.max_process_count(), ..AgentConfig::default() };
    // --resume downloads aborted requests again, and the user who pressed Ctrl-C waits.
    agent.waits.drain = DRAIN;
    agent.targets.allow.clone_from(&options.download_allow);
    let driven = match local_broker.start_agent(agent) {
        Ok(()) => drive(&local_broker.url(), None, options, state, stop_signal()).await.map_err(|e| e.to_string()),
        Err(error) => Err(error),
    };
    match driven {
        Ok(summary) => Ok((local_broker, summary)),
        Err(error) => {
            local_broker.end().await;
            Err(error)
        }
    }
}

/// Crawls a site. The exit code is 130 if it was interrupted.
///
/// # Errors
/// It could not begin, or ended early.
pub fn crawl(args: CrawlArgs) -> Result<ExitCode, Failure> {
    let mut options = args.options;
    options.check_headers().map_err(Failure::Usage)?;
    options.read_starts().map_err(|error| match error {
        CrawlError::File { path, source } => unreadable(&path, &source),
        other => Failure::Usage(other.to_string()),
    })?;
    let options = &options;
    let ended: Result<ExitCode, String> = actix_rt::System::new().block_on(async move {
        // Before any file of an earlier crawl is changed.
        check_outputs(options).map_err(|e| e.to_string())?;
        let summary = if let Some(broker) = &options.broker {
            let mut state = State::prepare(options).map_err(|e| e.to_string())?;
            let driven = drive(broker, options.token.as_deref(), options, &mut state, stop_signal()).await;
            if driven.is_err() {
                state.forget_unless_begun();
            }
            driven.map_err(|e| e.to_string())?
        } else {
            let (local_broker, summary) = crawl_in_house(options, SocketAddr::from(([127, 0, 0, 1], 0))).await?;
            local_broker.end().await;
            summary
        };
        match summary.outcome {
            Outcome::Finished if summary.pages == 0 && summary.failed > 0 => {
                let why = summary.first_failure.map_or(String::new(), |why| format!(": {why}"));
                Err(format!("not one page could be downloaded{why}"))
            }
            Outcome::Finished => Ok(ExitCode::SUCCESS),
            Outcome::Interrupted => Ok(ExitCode::from(INTERRUPTED)),
            Outcome::Failed(reason) => Err(reason),
        }
    });
    ended.map_err(Failure::from)
}

/// Crawls the demo site, and keeps the broker running for inspection.
///
/// # Errors
/// It could not begin, or the result does not match the site.
pub fn demo(args: DemoArgs) -> Result<(), String> {
    actix_rt::System::new().block_on(async move {
        let (site, server) = serve().map_err(|e| format!("cannot serve the demo site: {e}"))?;
        let stop_site = server.handle();
        actix_rt::spawn(server);
        let folder = std::env::temp_dir().join(format!("webloom-demo-{}", std::process::id()));
        let shown = show(&args, site, &folder).await;
        stop_site.stop(false).await;
        let removed = std::fs::remove_dir_all(&folder);
        if let Err(error) = removed.as_ref().or_else(|e| if e.kind() == std::io::ErrorKind::NotFound { Ok(&()) } else { Err(e) }) {
            log::warn!("cannot remove the demo's folder: {error}");
        }
        shown
    })
}

async fn show(args: &DemoArgs, site: Site, folder: &std::path::Path) -> Result<(), String> {
    let url = site.url().parse().map_err(|e| format!("the address of the demo site: {e}"))?;
    let output = args.output.clone().or_else(|| Some(folder.join("pages.jsonl")));
    let options = CrawlOptions { output, state: Some(folder.to_owned()), fresh: true, ..CrawlOptions::new(url) };
    crate::private::make_folder(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    say(&format!("a small site was generated and is served at {}: crawling it", site.url()));
    let (local_broker, summary) = crawl_in_house(&options, args.listen).await?;
    let done = match &summary.outcome {
        Outcome::Finished if (summary.pages, summary.failed) == (Site::PAGES, Site::MISSING) => {
            say(&format!("all {} pages were found, and the {} links that lead nowhere", summary.pages, summary.failed));
            Ok(())
        }
        Outcome::Finished => Err(format!(
            "the site has {} pages and {} dead links, but {} and {} were found",
            Site::PAGES,
            Site::MISSING,
            summary.pages,
            summary.failed
        )),
        Outcome::Interrupted => Ok(()),
        Outcome::Failed(reason) => Err(reason.clone()),
    };
    if done.is_ok() && !args.exit && summary.outcome == Outcome::Finished {
        say(&format!("open {} in a browser to see the crawl: its run, its pages and its log; press Ctrl-C to end", local_broker.url()));
        stop_signal().await;
    }
    local_broker.end().await;
    done
}
