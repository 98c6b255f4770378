//! The program as it is run from a shell: what it prints, and how it ends.

use super::process::WEBLOOM;
use serde_json::Value;
use std::process::{Command, Stdio};

/// What a command printed, and its exit code.
#[derive(Debug)]
pub struct Ended {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ended {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|e| panic!("{e}: {self:?}"))
    }

    /// It went well; what it printed.
    pub fn ok(self) -> String {
        // On a busy machine a command may report that the broker is slow.
        let complaints: Vec<_> = self.err.lines().filter(|line| !line.contains(" has not answered for ")).collect();
        assert_eq!((self.code, complaints), (Some(0), vec![]), "{}", self.out);
        self.out
    }

    /// It did not go well: nothing on standard output, the reason on the other.
    pub fn refused(&self, code: i32, reason: &str) {
        assert_eq!((self.code, self.out.as_str()), (Some(code), ""), "{}", self.err);
        assert!(self.err.contains(reason), "`{reason}` in {}", self.err);
    }
}

/// A command against this broker.
pub fn command(broker: &str, args: &[&str]) -> Command {
    let mut command = Command::new(WEBLOOM);
    command.args(args).env("WEBLOOM_BROKER", broker).env_remove("WEBLOOM_TOKEN").env_remove("RUST_LOG").stdin(Stdio::null());
    command
}

/// Runs a command to its end.
pub fn ended(mut command: Command) -> Ended {
    let output = command.output().expect("it runs");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("text");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

/// Runs a command against this broker to its end.
pub fn webloom(broker: &str, args: &[&str]) -> Ended {
    ended(command(broker, args))
}
