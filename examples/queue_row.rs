//! The worker of the row `rust` in python/benches/task_queues.py: its task `work` does what the functions of the other rows do.
//! After the last of the tasks it writes the time into the file `JOURNAL`; a single one (`of` is 0) writes when it started.

use serde::Deserialize;
use std::fs::OpenOptions;
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;
use webloom::sdk::{Error, TaskContext, TaskResult, Worker};

#[derive(Deserialize)]
struct Work {
    number: i64,
    of: u64,
}

#[expect(clippy::disallowed_methods, reason = "the other rows write this clock, too")]
fn work(task: &TaskContext, seen: &AtomicU64) -> TaskResult {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let Work { number, of } = task.arguments()?;
    let line = if of == 0 {
        format!("single {number} {now}\n")
    } else if seen.fetch_add(1, Ordering::Relaxed) + 1 < of {
        return Ok(());
    } else {
        seen.store(0, Ordering::Relaxed);
        format!("all {now}\n")
    };
    let journal = std::env::var_os("JOURNAL").unwrap_or_else(|| "/dev/null".into());
    OpenOptions::new().create(true).append(true).open(journal)?.write_all(line.as_bytes())?;
    Ok(())
}

fn main() -> Result<(), Error> {
    let seen = Arc::new(AtomicU64::new(0));
    Worker::from_env()
        .slots(8)
        .task("work", move |task: TaskContext| {
            let done = work(&task, &seen);
            std::future::ready(done)
        })
        .run_blocking()
}
