//! A worker with a few tasks. It finds the broker by `WEBLOOM_BROKER` and its token by `WEBLOOM_TOKEN`.
//!
//! ```text
//! cargo run --example tasks --no-default-features --features sdk
//! webloom job create --name sum --handler demo.sum --payload '[1, 2, 3]'
//! webloom job trigger sum --watch
//! ```

use serde::Deserialize;
use std::cell::Cell;
use std::time::Duration;
use webloom::sdk::{Error, Level, TaskContext, TaskFailure, TaskHandler, TaskResult, Worker};

/// `[1, 2, 3]` brings 6. Arguments of another form fail the task for good.
async fn sum(task: TaskContext) -> TaskResult<i64> {
    let numbers: Vec<i64> = task.arguments()?;
    Ok(numbers.iter().sum())
}

#[derive(Deserialize)]
struct Walk {
    steps: u32,
}

/// `{"steps": 60}` takes a minute, says where it is, and stops when it is told to.
async fn walk(task: TaskContext) -> TaskResult {
    let Walk { steps } = task.arguments()?;
    for step in 1..=steps {
        tokio::select! {
            reason = task.cancelled() => {
                task.log(Level::Warn, format!("stopped after {} steps: {reason}", step - 1));
                return Err(TaskFailure::new("not all the way"));
            }
            () = tokio::time::sleep(Duration::from_secs(1)) => {}
        }
        task.progress((step * 100 / steps) as u8, format!("step {step} of {steps}"));
    }
    Ok(())
}

/// Counts its runs in the data of the job, and wants to be run again in ten seconds, five times in all.
async fn chain(task: TaskContext) -> TaskResult<u32> {
    let runs = task.data::<Option<u32>>()?.unwrap_or(0) + 1;
    task.set_data(&runs)?;
    if runs < 5 {
        task.next_in(Duration::from_secs(10));
    }
    Ok(runs)
}

/// Reads a file: a missing one fails, and is tried again if the job's policies say so.
async fn lines(task: TaskContext) -> TaskResult<usize> {
    let path: String = task.arguments()?;
    Ok(std::fs::read_to_string(path)?.lines().count())
}

/// Every third call panics: that fails the task, and the worker goes on.
#[derive(Default)]
struct Moody {
    calls: Cell<u32>,
}

impl TaskHandler for Moody {
    type Output = String;

    fn name(&self) -> &str {
        "demo.moody"
    }

    async fn run(&self, task: TaskContext) -> TaskResult<String> {
        self.calls.set(self.calls.get() + 1);
        assert!(!self.calls.get().is_multiple_of(3), "not the third time");
        Ok(format!("attempt {} of part {} of {}", task.attempt(), task.instance(), task.instances()))
    }
}

fn main() -> Result<(), Error> {
    let worker = Worker::from_env().name("demo").version("1").tags(["demo"]).slots(32);
    worker
        .task("demo.sum", sum)
        .task("demo.walk", walk)
        .task("demo.chain", chain)
        .task("demo.lines", lines)
        .handler(Moody::default())
        .run_blocking()
}
