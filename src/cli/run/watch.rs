//! `webloom run watch`: follows a run until it ends.

use super::logs::line;
use super::look::describe;
use crate::cli::failure::Failure;
use crate::cli::remote::{Shell, print, print_document};
use crate::cli::table::{cell, items, plain, some};
use crate::cli::times::exact;
use crate::domain::time::Timestamp;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::Value;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::time::Duration;
use tokio::time::Instant;

/// The first poll interval: short, because most runs are short.
const SOONEST: Duration = Duration::from_millis(100);
const LATEST: Duration = Duration::from_secs(1);
/// How long a restarting broker is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

/// Follows a run to its end: prints its log, and on a terminal a progress bar, otherwise a line for each change.
///
/// # Errors
/// There is no such run, or the broker is unreachable for long.
pub async fn follow(shell: &Shell, id: &str) -> Result<ExitCode, Failure> {
    let is_quiet = shell.is_document || !std::io::stderr().is_terminal() || !std::io::stdout().is_terminal();
    let bar = if is_quiet { ProgressBar::hidden() } else { ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()) };
    bar.enable_steady_tick(Duration::from_millis(200));
    let (mut pause, mut last, mut heard) = (SOONEST, String::new(), Instant::now());
    let (mut log, path) = (Log { after: None }, ["runs", id]);
    let mut is_known = false;
    loop {
        let answer = match shell.client.get(&path, &[]).await {
            Ok(answer) => answer,
            Err(Failure::Refused(why)) if is_known && heard.elapsed() < PATIENCE => {
                bar.set_message(why);
                tokio::time::sleep(LATEST).await;
                continue;
            }
            Err(failure) => return Err(failure),
        };
        (is_known, heard) = (true, Instant::now());
        let run = answer.value()?;
        let is_over = matches!(run["state"].as_str(), Some("success" | "failed" | "stopped"));
        let text = progress(&run);
        let mut show = || {
            if !is_quiet {
                draw(&bar, &run);
            } else if !shell.is_document && text != last {
                print(&format!("{} {text}", exact(&Timestamp::now().to_string())))?;
                last.clone_from(&text);
            }
            Ok::<(), Failure>(())
        };
        // The lines of the log may be of a later time than the state.
        if !is_over {
            show()?;
        }
        if !shell.is_document && run["state"] != "pending" {
            let lines = log.news(shell, id).await;
            bar.suspend(|| lines.iter().try_for_each(|entry| print(&line(entry))))?;
        }
        if is_over {
            show()?;
            bar.finish_and_clear();
            if shell.is_document {
                print_document(&run)?;
            } else if !is_quiet {
                print(&describe(&run))?;
            }
            return Ok(ExitCode::from(code(&run)));
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LATEST);
    }
}

/// The log of a run, as far as it was printed.
struct Log {
    after: Option<i64>,
}

impl Log {
    /// The new log lines. An unreadable log does not stop the command: the next call will show more.
    async fn news(&mut self, shell: &Shell, id: &str) -> Vec<Value> {
        let mut lines = Vec::new();
        loop {
            let query = [("after", self.after.map(|id| id.to_string())), ("limit", Some("1000".to_owned()))];
            let Ok(answer) = shell.client.get(&["runs", id, "logs"], &query).await.and_then(|answer| answer.value()) else { return lines };
            let found = items(&answer);
            let next = answer["next"].as_i64().or_else(|| found.last().and_then(|line| line["id"].as_i64()));
            lines.extend_from_slice(found);
            if found.is_empty() || next.is_none() || next == self.after {
                return lines;
            }
            self.after = next;
        }
    }
}

/// The exit code of `run watch`.
fn code(run: &Value) -> u8 {
    match run["state"].as_str() {
        Some("success") => 0,
        Some("stopped") => 4,
        _ => 3,
    }
}

/// One line of progress.
fn progress(run: &Value) -> String {
    let mut line = cell(run, "state");
    if run["kind"] == "block" {
        line += &format!(" success={} error={} left={} total={}", run["success"], run["error"], run["left"], run["total"]);
    }
    if let Some(percent) = run["progress"].as_u64() {
        let text = some(run, "progressText").map(|text| format!(" {text}")).unwrap_or_default();
        line += &format!(" progress={percent} %{text}");
    }
    if run["attempt"].as_u64().is_some_and(|attempt| attempt > 1) {
        line += &format!(" attempt={}", run["attempt"]);
    }
    line += &some(run, "reason").map(|reason| format!(" reason={reason}")).unwrap_or_default();
    line + &run.get("result").map(|result| format!(" result={}", plain(&result.to_string()))).unwrap_or_default()
}

fn draw(bar: &ProgressBar, run: &Value) {
    let number = |key: &str| run[key].as_u64().unwrap_or(0);
    let template = if number("total") > 0 { "{spinner} {wide_bar} {pos}/{len} {msg}" } else { "{spinner} {msg}" };
    bar.set_style(ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_length(number("total"));
    bar.set_position(number("success") + number("error"));
    bar.set_message(progress(run));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_end_of_a_run_is_the_exit_code() {
        for (state, expected) in [("success", 0), ("failed", 3), ("stopped", 4)] {
            assert_eq!(code(&json!({ "state": state })), expected);
        }
    }

    #[test]
    fn progress_is_one_line() {
        let run = json!({ "state": "running", "kind": "block", "success": 1, "error": 0, "left": 2, "total": 3, "attempt": 1 });
        assert_eq!(progress(&run), "running success=1 error=0 left=2 total=3");
        let task = json!({ "state": "running", "kind": "task", "progress": 40, "progressText": "2 of 5", "attempt": 1 });
        assert_eq!(progress(&task), "running progress=40 % 2 of 5");
        let call = json!({ "state": "failed", "kind": "callback", "attempt": 2, "reason": "status\n500" });
        assert_eq!(progress(&call), "failed attempt=2 reason=status 500");
        assert_eq!(progress(&json!({ "state": "success", "attempt": 1, "result": [1, "a"] })), "success result=[1,\"a\"]");
    }
}
