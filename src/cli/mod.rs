//! The command line: reads flags, environment and files, puts the programs together.

mod agent;
mod broker;
mod crawl;
mod house;
mod job;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

/// Schedules work and carries it out on a fleet of machines.
#[derive(Debug, Parser)]
#[command(name = "webloom", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server: it keeps the queues, hands out work and stores what comes back
    Broker(broker::Args),
    /// Run a node: it downloads what a broker hands it
    Agent(agent::Args),
    /// Crawl a site with a broker, an agent and a worker in this one process
    Crawl(crawl::CrawlArgs),
    /// Crawl a small site that is generated on the spot; needs no network
    Demo(crawl::DemoArgs),
    /// Ask about jobs
    Job(job::Args),
}

/// Runs the program. What goes wrong is told on standard error, with exit code 1 (2 for a wrong command line).
#[must_use]
pub fn main() -> ExitCode {
    let cli = Cli::parse();
    let quiet = matches!(cli.command, Command::Crawl(_) | Command::Demo(_));
    env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(if quiet { "warn" } else { "info,actix_server=warn" }))
        .format_timestamp_millis()
        .init();
    let result = match cli.command {
        Command::Broker(args) => broker::run(args),
        Command::Agent(args) => agent::run(args),
        Command::Crawl(args) => crawl::crawl(args),
        Command::Demo(args) => crawl::demo(args),
        Command::Job(args) => return job::run(args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            say_error(&error);
            ExitCode::FAILURE
        }
    }
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
