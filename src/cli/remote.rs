//! What the commands that ask a broker have in common: where it is, how its answers are shown, how the program ends.

use super::client::Client;
use crate::config::addresses::Addresses;
use clap::Args as ClapArgs;
use serde_json::Value;
use std::future::Future;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;

/// Flags of every command that asks a broker.
#[derive(ClapArgs)]
pub struct Remote {
    /// Where the broker is; of several brokers on one database all, with commas between them
    #[arg(
        long,
        env = "WEBLOOM_BROKER",
        default_value = "http://127.0.0.1:55626",
        global = true,
        value_name = "URL",
        help_heading = "The broker"
    )]
    broker: Addresses,
    /// The token to show it, if it asks for one; of several (`admin:…,agent:…`) the admin's
    #[arg(long, env = "WEBLOOM_TOKEN", global = true, hide_env_values = true, help_heading = "The broker")]
    token: Option<String>,
    /// Print the broker's answer as JSON, one document, instead of a table
    #[arg(long, global = true, help_heading = "The broker")]
    pub(super) json: bool,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the token.
        f.debug_struct("Remote").field("broker", &self.broker).field("json", &self.json).finish_non_exhaustive()
    }
}

/// Why a command ends before its end.
#[derive(Debug)]
pub enum Failure {
    /// The broker refused it or could not be reached, or there is nothing of that name: exit code 1.
    Refused(String),
    /// The command line, or a file that it names, cannot be understood: exit code 2.
    Usage(String),
    /// Nobody reads what is printed any more (`| head`): that is no fault.
    Unread,
}

impl Failure {
    /// Tells the person at the terminal, and says how the program ends.
    pub fn tell(&self) -> ExitCode {
        match self {
            Self::Refused(why) => {
                super::say_error(why);
                ExitCode::FAILURE
            }
            Self::Usage(why) => {
                super::say_error(why);
                ExitCode::from(2)
            }
            Self::Unread => ExitCode::SUCCESS,
        }
    }
}

/// A broker that can be asked, and how its answers are to be shown.
#[derive(Debug)]
pub struct Shell {
    /// The broker.
    pub client: Client,
    /// As JSON.
    pub json: bool,
}

impl Remote {
    /// Runs a command against the broker.
    ///
    /// # Errors
    /// What the command says.
    pub fn run<F: Future<Output = Result<ExitCode, Failure>>>(self, command: impl FnOnce(Shell) -> F) -> Result<ExitCode, Failure> {
        let client = Client::new(self.broker, self.token.as_deref().map(own_token))?;
        actix_rt::System::new().block_on(command(Shell { client, json: self.json }))
    }
}

/// The token that may do the most: a shell that runs a broker has all of its tokens in the same variable.
fn own_token(text: &str) -> String {
    let rank = |role: &str| ["admin", "readonly", "read-only", "worker", "agent"].iter().position(|name| *name == role);
    let split = |entry: &str| match entry.split_once(':') {
        Some((role, token)) if rank(role).is_some() => (rank(role).unwrap_or(usize::MAX), token.to_owned()),
        _ => (0, entry.to_owned()),
    };
    text.split(',').map(|entry| split(entry.trim())).min_by_key(|(rank, _)| *rank).map(|(_, token)| token).unwrap_or_default()
}

impl Shell {
    /// Prints an answer: as it came, or as `show` has it.
    ///
    /// # Errors
    /// It is not JSON, or nobody reads.
    pub fn show(&self, answer: &super::client::Answer, show: impl FnOnce(&Value) -> String) -> Result<ExitCode, Failure> {
        if self.json {
            print(answer.text.trim_end())?;
        } else {
            print(&show(&answer.value()?))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Prints lines on standard output; of an empty text nothing.
///
/// # Errors
/// Nobody reads, or they cannot be written.
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

#[cfg(test)]
mod tests {
    use super::own_token;

    #[test]
    fn of_several_tokens_the_admin_s_is_taken() {
        for (text, token) in [
            ("secret", "secret"),
            ("admin:secret", "secret"),
            ("agent:a,admin:b,worker:c", "b"),
            ("agent:a, readonly:b", "b"),
            ("with:colon", "with:colon"),
        ] {
            assert_eq!(own_token(text), token, "{text}");
        }
    }
}
