//! Flags for the task of a task job.

use crate::cli::value::duration_ms;
use crate::cli::words::words;
use crate::domain::task::Strategy;
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};

/// Parses an argument as JSON.
pub fn json_value(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("it is not JSON ({e}); expected for example [1, 2], \"text\" or {{\"key\": 1}}"))
}

/// See the module documentation.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The task of a task job")]
pub struct TaskFlags {
    /// The handler name, which workers watch; makes it a task job
    #[arg(long, value_name = "NAME", conflicts_with_all = ["class", "url"])]
    pub handler: Option<String>,
    /// The arguments of the function, as JSON
    #[arg(long, value_name = "JSON", value_parser = json_value, allow_hyphen_values = true)]
    payload: Option<Value>,
    /// How a worker is chosen [default: round-robin]
    #[arg(long, value_parser = words::<Strategy>())]
    strategy: Option<String>,
    /// The value to hash: a JSON pointer into the arguments
    #[arg(long, value_name = "POINTER")]
    key: Option<String>,
    /// Number of shards of the strategy shard; 0: one for each worker
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// Only workers of this group
    #[arg(long, value_name = "GROUP")]
    worker_group: Option<String>,
    /// Only workers of this version
    #[arg(long, value_name = "VERSION")]
    worker_version: Option<String>,
    /// Only workers with this tag. May be repeated
    #[arg(long = "worker-tag", value_name = "TAG")]
    worker_tags: Vec<String>,
    /// An attempt without any sign of life for this long counts as lost [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    lease: Option<u64>,
    /// If no worker watches the handler, let a run wait instead of failing
    #[arg(long)]
    wait_for_worker: bool,
}

impl TaskFlags {
    /// Applies the flags to the task.
    pub fn apply(&self, task: &mut Map<String, Value>) {
        let said = [
            ("handler", self.handler.as_ref().map(|name| json!(name))),
            ("arguments", self.payload.clone()),
            ("strategy", self.strategy.as_ref().map(|strategy| json!(strategy))),
            ("key", self.key.as_ref().map(|key| json!(key))),
            ("shards", self.shards.map(|shards| json!(shards))),
            ("group", self.worker_group.as_ref().map(|group| json!(group))),
            ("version", self.worker_version.as_ref().map(|version| json!(version))),
            ("tags", (!self.worker_tags.is_empty()).then(|| json!(self.worker_tags))),
            ("lease", self.lease.map(|lease| json!(lease))),
            ("noWorker", self.wait_for_worker.then(|| json!("wait"))),
        ];
        for (key, value) in said {
            if let Some(value) = value {
                task.insert(key.to_owned(), value);
            }
        }
    }
}
