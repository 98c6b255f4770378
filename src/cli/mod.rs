//! The command line: reads flags, environment and files, puts the programs together.

mod agent;
mod alert;
mod broker;
mod brokers;
mod client;
mod crawl;
mod group;
mod house;
mod job;
mod node;
mod package;
mod remote;
mod run;
mod table;
mod value;
mod verify_history;
mod worker;

use clap::{Parser, Subcommand};
use remote::Failure;
use std::path::PathBuf;
use std::process::ExitCode;

/// Schedules work and carries it out on a fleet of machines.
#[derive(Debug, Parser)]
#[command(name = "webloom", version, about, max_term_width = 100)]
struct Cli {
    /// Certificates (PEM) of authorities that are trusted beside the usual ones, in all connections by TLS
    #[arg(long, env = "WEBLOOM_CA_FILE", global = true, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server: it keeps the queues, hands out work and stores what comes back
    Broker(broker::Args),
    /// The brokers of a database: who leads, and who stands by
    Brokers(brokers::Args),
    /// Run a node: it downloads what a broker hands it
    Agent(agent::Args),
    /// What an agent starts programs with
    #[command(hide = true)]
    Launch(agent::LaunchArgs),
    /// Crawl a site with a broker, an agent and a worker in this one process
    Crawl(crawl::CrawlArgs),
    /// Crawl a small site that is generated on the spot; needs no network
    Demo(crawl::DemoArgs),
    /// Create, change, trigger and explain jobs
    Job(job::Args),
    /// Look at runs, follow, stop and repeat them
    Run(run::Args),
    /// Groups: names that jobs and nodes go by
    Group(group::Args),
    /// The machines that carry work out
    Node(node::NodeArgs),
    /// Packages: programs that nodes fetch from the broker
    Package(package::Args),
    /// The programs that say what is to be done
    Worker(worker::Args),
    /// Alerts: who is told when a job fails, is missed, late or silent
    Alert(alert::Args),
    /// Prove from a store file that every planned instant stands in the ledger, and nothing else
    VerifyHistory(verify_history::Args),
}

/// A number of items, at least one.
fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

/// Runs the program. What goes wrong is told on standard error, with exit code 1 (2 for a wrong command line).
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let quiet = !matches!(cli.command, Command::Broker(_) | Command::Agent(_));
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(if quiet { "warn" } else { "info,actix_server=warn" }))
        .format_timestamp_millis()
        .init();
    if let Some(file) = &cli.ca_file
        && let Err(why) = crate::tls::trust(file)
    {
        return Failure::Usage(format!("--ca-file: {why}")).tell();
    }
    let done = |ended: Result<(), String>| ended.map(|()| ExitCode::SUCCESS).map_err(Failure::Refused);
    let result = match cli.command {
        Command::Broker(args) => broker::run(args),
        Command::Brokers(args) => brokers::run(args),
        Command::Agent(args) => done(agent::run(args)),
        Command::Launch(args) => Ok(agent::launch(&args)),
        Command::Crawl(args) => done(crawl::crawl(args)),
        Command::Demo(args) => done(crawl::demo(args)),
        Command::Job(args) => job::run(args),
        Command::Run(args) => run::run(args),
        Command::Group(args) => group::run(args),
        Command::Node(args) => node::run(args),
        Command::Package(args) => package::run(args),
        Command::Worker(args) => worker::run(args),
        Command::Alert(args) => alert::run(args),
        Command::VerifyHistory(args) => verify_history::run(&args),
    };
    result.unwrap_or_else(|failure| failure.tell())
}

#[expect(clippy::print_stderr, reason = "the one place that tells a person why the program ends")]
fn say_error(error: &str) {
    eprintln!("webloom: {error}");
}

/// Tells the person at the terminal, on standard output.
#[expect(clippy::print_stdout, reason = "the one place that speaks to the person at the terminal")]
fn say(text: &str) {
    println!("{text}");
}
