//! Common parts of the commands that call a broker: its address, the output format, the exit code.

use super::client::{Answer, Client};
use super::failure::Failure;
use super::look::{Format, Look};
use super::table::names;
use crate::config::addresses::Addresses;
use crate::protocol::token::own;
use clap::Args as ClapArgs;
use serde_json::Value;
use std::future::Future;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

/// If there are several tokens, the role whose token is used: the one with the most permissions.
const CALLERS: [&str; 6] = ["admin", "editor", "operator", "readonly", "worker", "agent"];

/// Flags of every command that calls a broker.
#[derive(ClapArgs)]
pub struct Remote {
    /// The broker's URL; for several brokers on one database all URLs, separated by commas
    #[arg(
        long,
        env = "WEBLOOM_BROKER",
        default_value = "http://127.0.0.1:55626",
        global = true,
        value_name = "URL",
        help_heading = CONNECTION
    )]
    broker: Addresses,
    /// The token for the broker, if it needs one; of several (`admin:…,agent:…`) the admin's
    #[arg(long, env = "WEBLOOM_TOKEN", global = true, hide_env_values = true, help_heading = CONNECTION)]
    token: Option<String>,
    /// The output format [default: table]
    #[arg(long, short, global = true, value_name = "FORMAT", help_heading = OUTPUT)]
    output: Option<Format>,
    /// The same as --output json
    #[arg(long, global = true, conflicts_with = "output", help_heading = OUTPUT)]
    json: bool,
    /// Tables without a header line
    #[arg(long, global = true, help_heading = OUTPUT)]
    no_headers: bool,
    /// Exact times in UTC, instead of `3 min ago`
    #[arg(long, global = true, help_heading = OUTPUT)]
    utc: bool,
}

/// Help heading of flags that many commands have.
pub const CONNECTION: &str = "Connection";
const OUTPUT: &str = "Output";

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Remote").field("broker", &self.broker).field("output", &self.output).finish_non_exhaustive()
    }
}

/// A broker to call, and the output format.
#[derive(Debug)]
pub struct Shell {
    /// The broker.
    pub client: Client,
    /// As a document for programs.
    pub is_document: bool,
}

impl Remote {
    /// Sets the output format and returns it.
    pub fn look(&self) -> Look {
        let format = if self.json { Format::Json } else { self.output.unwrap_or_default() };
        let look = Look { format, no_headers: self.no_headers, utc: self.utc };
        look.set();
        look
    }

    /// Runs a command against the broker.
    ///
    /// # Errors
    /// The errors of the command.
    pub fn run<F: Future<Output = Result<ExitCode, Failure>>>(self, command: impl FnOnce(Shell) -> F) -> Result<ExitCode, Failure> {
        let is_document = self.look().is_document();
        let client = Client::new(self.broker, self.token.as_deref().map(|text| own(text, &CALLERS).1.to_owned()))?;
        actix_rt::System::new().block_on(command(Shell { client, is_document }))
    }
}

impl Shell {
    /// Prints a response: unchanged, or formatted by `show`.
    ///
    /// # Errors
    /// It is not JSON, or the reader closed the pipe.
    pub fn show(&self, answer: &Answer, show: impl FnOnce(&Value) -> String) -> Result<ExitCode, Failure> {
        let value = answer.value()?;
        match Look::get().format {
            // Unchanged, with all digits of its numbers.
            Format::Json => print(answer.text.trim_end())?,
            Format::Yaml => print_document(&value)?,
            Format::Name => print(&names(&value))?,
            Format::Table | Format::Wide => print(&show(&value))?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints a value as JSON or as YAML.
///
/// # Errors
/// The reader closed the pipe, or the value cannot be written.
pub fn print_document(value: &Value) -> Result<(), Failure> {
    if Look::get().format != Format::Yaml {
        return print(&value.to_string());
    }
    let text = serde_saphyr::to_string(value).map_err(|e| Failure::Refused(format!("cannot write the response as YAML: {e}")))?;
    print(text.trim_end())
}

/// Prints lines on standard output; an empty text prints nothing.
///
/// # Errors
/// The reader closed the pipe, or the lines cannot be written.
pub fn print(text: &str) -> Result<(), Failure> {
    if text.is_empty() {
        return Ok(());
    }
    let mut out = std::io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.write_all(b"\n")).and_then(|()| out.flush());
    written.map_err(|error| match error.kind() {
        ErrorKind::BrokenPipe => Failure::Unread,
        _ => Failure::Refused(format!("standard output: {error}")),
    })
}
