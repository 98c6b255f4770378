//! Flags that say what the task of a job is.

use crate::cli::value::duration_ms;
use crate::cli::words::words;
use crate::domain::task::Strategy;
use clap::Args as ClapArgs;
use serde_json::{Map, Value, json};

/// Arguments as JSON.
pub fn json_value(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|e| format!("it is not JSON ({e}); [1, 2], \"text\" or {{\"key\": 1}} are"))
}

/// See the module's text.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The task of a task job")]
pub struct TaskFlags {
    /// The name that workers watch; makes it a task job
    #[arg(long, value_name = "NAME", conflicts_with_all = ["class", "url"])]
    pub handler: Option<String>,
    /// What the function gets, as JSON
    #[arg(long, value_name = "JSON", value_parser = json_value, allow_hyphen_values = true)]
    payload: Option<Value>,
    /// Which worker gets it [default: round-robin]
    #[arg(long, value_parser = words::<Strategy>())]
    strategy: Option<String>,
    /// What is hashed: a JSON pointer into the arguments
    #[arg(long, value_name = "POINTER")]
    key: Option<String>,
    /// Parts of the strategy shard; 0: one for each worker
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
    /// Without a word of it for so long, an attempt counts as lost [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    lease: Option<u64>,
    /// Where nobody watches its name, a run waits instead of failing
    #[arg(long)]
    wait_for_worker: bool,
}

impl TaskFlags {
    /// Puts what is said into the task.
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
