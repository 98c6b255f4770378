//! Flags for the task of a task job, and for the choice of the worker of a task or a block run.

use crate::cli::value::duration_ms;
use crate::cli::words::words;
use crate::domain::job::same_key;
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
    /// Number of shards of the strategy shard; 0: one for each worker
    #[arg(long, value_name = "N")]
    shards: Option<u32>,
    /// An attempt without any sign of life for this long counts as lost [default: 10s]
    #[arg(long, value_name = "DURATION", value_parser = duration_ms)]
    lease: Option<u64>,
    #[command(flatten)]
    worker: WorkerFlags,
}

/// How a run of a task job or a block job gets its worker.
#[derive(Debug, Default, ClapArgs)]
#[command(next_help_heading = "The worker of a task or a block job")]
struct WorkerFlags {
    /// How a worker is chosen; a block job has no broadcast and no shards [default: round-robin, for a block job least-recently-used]
    #[arg(long, value_parser = words::<Strategy>())]
    strategy: Option<String>,
    /// The value to hash: a JSON pointer into the arguments
    #[arg(long, value_name = "POINTER")]
    key: Option<String>,
    /// Only workers of this group
    #[arg(long, value_name = "GROUP")]
    worker_group: Option<String>,
    /// Only workers of this version
    #[arg(long, value_name = "VERSION")]
    worker_version: Option<String>,
    /// Only workers with this tag. May be repeated
    #[arg(long = "worker-tag", value_name = "TAG")]
    worker_tags: Vec<String>,
    /// If no worker watches the handler or the class, let a run wait instead of failing
    #[arg(long)]
    wait_for_worker: bool,
}

impl TaskFlags {
    /// Applies the flags to the task. The worker of a block job is chosen by its properties.
    pub fn apply(&self, task: &mut Map<String, Value>, is_block: bool) {
        let said = [
            ("handler", self.handler.as_ref().map(|name| json!(name))),
            ("arguments", self.payload.clone()),
            ("shards", self.shards.map(|shards| json!(shards))),
            ("lease", self.lease.map(|lease| json!(lease))),
        ];
        let of_worker = self.worker.said().into_iter().filter(|_| !is_block).map(|(member, _, value)| (member, value));
        let said = said.into_iter().chain(of_worker);
        for (key, value) in said {
            if let Some(value) = value {
                task.insert(key.to_owned(), value);
            }
        }
    }

    /// Applies the flags to the properties of a block job.
    pub fn apply_to_block(&self, properties: &mut Map<String, Value>) {
        for (_, key, value) in self.worker.said() {
            if let Some(value) = value {
                properties.retain(|known, _| !same_key(known, key));
                // Properties are texts.
                let words = value.as_array().map(|words| words.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(","));
                properties.insert(key.to_owned(), words.map_or(value, Value::String));
            }
        }
    }
}

impl WorkerFlags {
    /// The member of a task, the property of a block job, and the value.
    fn said(&self) -> [(&'static str, &'static str, Option<Value>); 6] {
        let text = |text: &Option<String>| text.as_ref().map(|text| json!(text));
        [
            ("strategy", "WorkerStrategy", text(&self.strategy)),
            ("key", "WorkerKey", text(&self.key)),
            ("group", "WorkerGroup", text(&self.worker_group)),
            ("version", "WorkerVersion", text(&self.worker_version)),
            ("tags", "WorkerTags", (!self.worker_tags.is_empty()).then(|| json!(self.worker_tags))),
            ("noWorker", "NoWorker", self.wait_for_worker.then(|| json!("wait"))),
        ]
    }
}
