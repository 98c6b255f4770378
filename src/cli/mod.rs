//! The command line: reads flags, environment and files, and starts the programs.

mod agent;
mod alert;
mod allocator;
mod audit;
mod backup;
mod broker;
mod brokers;
mod client;
mod connect;
mod crawl;
mod examples;
mod failure;
mod find;
mod group;
mod job;
mod local_broker;
mod look;
mod migrate;
mod node;
mod package;
mod remote;
mod run;
mod settings;
mod site;
mod status;
mod store;
mod table;
mod telemetry;
mod times;
mod token;
mod value;
mod verify_history;
mod version;
mod words;
mod worker;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{ArgMatches, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use failure::Failure;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// Schedules work and carries it out on a fleet of machines.
#[derive(Debug, Parser)]
#[command(name = "webloom", version = version::text(), about, max_term_width = 100)]
struct Cli {
    /// Certificates (PEM) of authorities that are trusted in addition to the usual ones, in all TLS connections
    #[arg(long, env = "WEBLOOM_CA_FILE", global = true, value_name = "FILE", help_heading = remote::CONNECTION)]
    ca_file: Option<PathBuf>,
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the server: it keeps the queues, dispatches work and stores the results
    Broker(broker::Args),
    /// List the brokers of a database: the leader and the standbys
    Brokers(brokers::Args),
    /// Run a node: it downloads blocks for a broker
    Agent(agent::Args),
    /// The launcher of an agent's programs
    #[command(hide = true)]
    Launch(agent::LaunchArgs),
    /// Crawl a site with a broker, an agent and a worker in one process
    Crawl(crawl::CrawlArgs),
    /// Crawl a small site that is generated locally; needs no network
    Demo(crawl::DemoArgs),
    /// Create, change, trigger and explain jobs
    Job(job::Args),
    /// Show, follow, stop and repeat runs
    Run(run::Args),
    /// Groups: named groups of jobs and nodes
    Group(group::Args),
    /// The machines that do the work
    Node(node::NodeArgs),
    /// The sites that runs request: list, hold and release them
    Site(site::Args),
    /// Packages: programs that nodes fetch from the broker
    Package(package::Args),
    /// The programs that produce requests and handle tasks
    Worker(worker::Args),
    /// Alerts: notifications when a job fails, is missed, late or silent
    Alert(alert::Args),
    /// Tokens with a name, a role and groups: created and revoked while the broker runs
    Token(token::Args),
    /// List who changed what: calls that change something, newest first
    Audit(audit::Args),
    /// Show on one screen the leader, nodes, workers, runs, failures, and what needs attention
    Status(status::Args),
    /// Copy a store to a folder while its broker works
    Backup(backup::BackupArgs),
    /// Verify a backup, and restore it to a new store file
    Restore(backup::RestoreArgs),
    /// Bring the tables of a store to this version, or list what is pending
    Migrate(migrate::Args),
    /// Copy a whole store to another database
    Store(store::Args),
    /// Verify from a store file that the ledger has every scheduled time, and nothing else
    VerifyHistory(verify_history::Args),
    /// Print a script for your shell that completes commands and flags
    Completions {
        /// Which shell
        shell: clap_complete::Shell,
    },
    /// Write a manual page (roff) for each command into a folder
    Man {
        /// The folder; it is made if it is missing
        folder: PathBuf,
    },
    /// Print version, commit and date of the commit, target, and the version of SQLite
    Version,
}

/// A number of items, at least one.
fn limit() -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(1..=1_000_000)
}

/// The whole command line, with its examples.
fn command() -> clap::Command {
    settings::add(examples::add(Cli::command(), ""))
}

/// The innermost command that was given, with its arguments: for `webloom job list` that of `list`.
fn leaf<'a>(root: &'a clap::Command, matches: &'a ArgMatches) -> (&'a clap::Command, &'a ArgMatches) {
    let (mut command, mut matches) = (root, matches);
    while let Some((name, below)) = matches.subcommand() {
        let Some(found) = command.find_subcommand(name) else { break };
        (command, matches) = (found, below);
    }
    (command, matches)
}

/// Log filter unless `RUST_LOG` is set. Requests that are not HTTP are the sender's fault, and actix-http logs each as an error.
const QUIET: &str = "warn,actix_http::h1=off";
const LOUD: &str = "info,actix_server=warn,actix_http::h1=off";

/// Runs the program. Errors go to standard error, with exit code 1 (2 for a wrong command line).
#[must_use]
pub fn main() -> ExitCode {
    allocator::set_up();
    let mut root = command();
    let mut read = root.try_get_matches_from_mut(std::env::args_os());
    let mut file = None;
    if let Ok(matches) = &read {
        match settings::read(command(), &root, matches) {
            Ok(None) => {}
            Ok(Some((with_file, of))) => {
                (root, file) = (with_file, Some(of));
                read = root.try_get_matches_from_mut(std::env::args_os());
            }
            Err(why) => return Failure::Usage(why).tell(None),
        }
    }
    let read = read.and_then(|matches| Ok((Cli::from_arg_matches(&matches).map_err(|error| error.format(&mut root))?, matches)));
    let (cli, matches) = match read {
        Ok(read) => read,
        Err(error) => return misread(&without_secret(error)),
    };
    let quiet = !matches!(cli.command, Command::Broker(_) | Command::Agent(_));
    let mut logger = env_logger::Builder::from_env(env_logger::Env::default().default_filter_or(if quiet { QUIET } else { LOUD }));
    logger.format_timestamp_millis();
    match &cli.command {
        Command::Broker(args) if args.sends_logs() => telemetry::log_to_both(logger.build()),
        Command::Agent(args) if args.sends_logs() => telemetry::log_to_both(logger.build()),
        _ => logger.init(),
    }
    if let Some(file) = file {
        file.warn_if_open();
    }
    if let Some(file) = &cli.ca_file
        && let Err(why) = crate::tls::trust(file)
    {
        return Failure::Usage(format!("--ca-file: {why}")).tell(None);
    }
    let done = |ended: Result<(), String>| ended.map(|()| ExitCode::SUCCESS).map_err(Failure::from);
    let result = match cli.command {
        Command::Broker(args) => broker::run(args),
        Command::Brokers(args) => brokers::run(args),
        Command::Agent(args) => done(agent::run(args)),
        Command::Launch(args) => Ok(agent::launch(&args)),
        Command::Crawl(args) => crawl::crawl(args),
        Command::Demo(args) => done(crawl::demo(args)),
        Command::Job(args) => job::run(args),
        Command::Run(args) => run::run(args),
        Command::Group(args) => group::run(args),
        Command::Node(args) => node::run(args),
        Command::Site(args) => site::run(args),
        Command::Package(args) => package::run(args),
        Command::Worker(args) => worker::run(args),
        Command::Alert(args) => alert::run(args),
        Command::Audit(args) => audit::run(args),
        Command::Token(args) => token::run(args),
        Command::Status(args) => status::run(args),
        Command::Backup(args) => backup::back_up(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Store(args) => store::run(&args),
        Command::VerifyHistory(args) => verify_history::run(&args),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut root, "webloom", &mut script);
            remote::print(String::from_utf8_lossy(&script).trim_end()).map(|()| ExitCode::SUCCESS)
        }
        Command::Man { folder } => std::fs::create_dir_all(&folder)
            .and_then(|()| clap_mangen::generate_to(command(), &folder))
            .map(|()| ExitCode::SUCCESS)
            .map_err(|error| Failure::Refused(format!("{}: {error}", folder.display()))),
        Command::Version => remote::print(&format!("webloom {}", version::text())).map(|()| ExitCode::SUCCESS),
    };
    result.unwrap_or_else(|failure| failure.tell(Some(leaf(&root, &matches))))
}

/// Error texts of libraries, and their replacements.
const PLAIN: [(&str, &str); 7] = [
    ("relative URL without a base", "a URL is expected, for example http://broker.example:55626"),
    ("invalid digit found in string", "a whole number is expected, for example 3"),
    ("cannot parse integer from empty string", "a whole number is expected, for example 3"),
    ("number too large to fit in target type", "the number is too large"),
    ("number too small to fit in target type", "the number is too small"),
    ("invalid float literal", "a number is expected, for example 1.5"),
    ("invalid socket address syntax", "an IP address and a port are expected, for example 127.0.0.1:55626"),
];

fn plain(text: String) -> String {
    PLAIN.iter().fold(text, |text, (theirs, ours)| text.replace(theirs, ours))
}

/// Replaces a value that is not accepted and may be a secret.
fn without_secret(mut error: clap::Error) -> clap::Error {
    let is_secret = matches!(error.get(ContextKind::InvalidArg), Some(ContextValue::String(arg)) if arg.starts_with("--otlp-header"));
    if is_secret {
        error.insert(ContextKind::InvalidValue, ContextValue::String("(not shown)".to_owned()));
    }
    error
}

/// Handles a command line that cannot be parsed, or that asks for help.
fn misread(error: &clap::Error) -> ExitCode {
    let written = if error.kind() == ErrorKind::ValueValidation {
        let mut stderr = std::io::stderr().lock();
        let text = if stderr.is_terminal() { error.render().ansi().to_string() } else { error.render().to_string() };
        stderr.write_all(plain(text).as_bytes())
    } else {
        error.print()
    };
    match written {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Failure::Unread.tell(None),
        _ => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
    }
}

/// Prints an error on standard error.
fn say_error(error: &str) {
    // If that cannot be written, there is nothing left to do.
    let _ = writeln!(std::io::stderr(), "webloom: {error}");
}

/// Prints a text on standard output.
fn say(text: &str) {
    // A closed pipe does not end the program.
    let _ = writeln!(std::io::stdout(), "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn values_that_may_be_secret_are_not_shown() {
        let line = ["webloom", "agent", "--otlp-header", "authorization: Bearer hunter2"];
        let text = without_secret(command().try_get_matches_from(line).expect_err("no header")).render().to_string();
        assert!(text.contains("--otlp-header") && text.contains("authorization=Bearer TOKEN") && !text.contains("hunter2"), "{text}");
        let secret = ["WEBLOOM_DATABASE", "WEBLOOM_TOKEN", "WEBLOOM_OTLP_HEADERS"];
        let mut commands = vec![command()];
        while let Some(command) = commands.pop() {
            commands.extend(command.get_subcommands().cloned());
            for arg in command.get_arguments() {
                let is_secret = arg.get_env().is_some_and(|name| secret.iter().any(|secret| name == *secret));
                assert!(!is_secret || arg.is_hide_env_values_set(), "{} {}", command.get_name(), arg.get_id());
            }
        }
    }

    /// The names of the manual pages of a command and of those below it.
    fn pages(command: &clap::Command, name: &str, found: &mut Vec<String>) {
        found.push(format!("{name}.1"));
        for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
            pages(below, &format!("{name}-{}", below.get_name()), found);
        }
    }

    #[test]
    fn each_command_has_a_manual_page() {
        let folder = tempfile::tempdir().expect("a folder");
        clap_mangen::generate_to(command(), folder.path()).expect("written");
        let mut expected = Vec::new();
        pages(&command(), "webloom", &mut expected);
        let mut found: Vec<String> = folder
            .path()
            .read_dir()
            .expect("a folder")
            .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
            .collect();
        expected.sort();
        found.sort();
        assert_eq!(found, expected);
        assert!(found.len() > 50 && found.contains(&"webloom-job-data-set.1".to_owned()), "{found:?}");
        let broker = std::fs::read_to_string(folder.path().join("webloom-broker.1")).expect("a page");
        for text in ["token\\-file", "WEBLOOM_TOKEN_FILE", "webloom broker \\-\\-database /var/lib/webloom/webloom.db"] {
            assert!(broker.contains(text), "{text} is not in {broker}");
        }
    }
}
