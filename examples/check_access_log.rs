//! Finds breaches of politeness in the access log of a site: requests that are too close, too many at once, forbidden by
//! robots.txt, or made while the site had asked to be left alone.
//!
//! `cargo run --example check_access_log -- LOG [--delay MS] [--connections N] [--disallow PREFIX] [--slack MS] [--client ADDRESS]
//! [--user-agent TEXT]`
//!
//! The log is a file of JSON lines: `{"host":"a","path":"/x","begin":0,"end":900,"status":200,"retryAfter":2}` with times in
//! microseconds; or a log of nginx or Apache in the format common or combined, of which `--client` and `--user-agent` choose the lines.
//! Ends with 1 if there is a breach. See docs/operations.md.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "what was found is what it is for")]

#[path = "../tests/it/support/access_log.rs"]
mod access_log;

use access_log::{Allowed, Only, check, read};
use std::process::ExitCode;

struct Asked {
    log: String,
    slack_ms: u64,
    only: Only,
    allowed: Allowed,
}

fn arguments() -> Result<Asked, String> {
    let mut asked = Asked { log: String::new(), slack_ms: 0, only: Only::default(), allowed: Allowed::default() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        if !word.starts_with("--") {
            asked.log = word;
            continue;
        }
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{word} {value}: {e}"));
        match word.as_str() {
            "--delay" => asked.allowed.delay_ms = number()?,
            "--connections" => asked.allowed.connections = number()? as usize,
            "--slack" => asked.slack_ms = number()?,
            "--client" => asked.only.client = value,
            "--user-agent" => asked.only.user_agent = value,
            "--disallow" => asked.allowed.disallowed.push(value),
            _ => return Err(format!("{word} is not known: --delay, --connections, --disallow, --slack, --client and --user-agent are")),
        }
    }
    if asked.log.is_empty() { Err("the path of a log is expected".to_owned()) } else { Ok(asked) }
}

fn run() -> Result<bool, String> {
    let asked = arguments()?;
    let text = std::fs::read_to_string(&asked.log).map_err(|e| format!("{}: {e}", asked.log))?;
    let entries = read(&text, &asked.only).map_err(|e| format!("{}, {e}", asked.log))?;
    let found = check(&entries, asked.slack_ms * 1_000, |_| asked.allowed.clone());
    println!("{found}");
    Ok(found.breaches.is_empty())
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::from(2)
        }
    }
}
