//! Tasks: functions of a user that workers run.
//!
//! [`TaskSettings`] are a job's settings; `state_machine` tracks one task. The worker is chosen by `domain/worker_pool`.

#[cfg(feature = "broker")]
pub mod state_machine;

use super::time::span_text;
use serde::{Deserialize, Serialize};

/// Limits of a task.
pub mod limits {
    /// Bytes of the arguments, the result and the data, as JSON.
    pub const PAYLOAD: usize = 256 * 1024;
    /// Number of required worker tags.
    pub const TAGS: usize = 20;
    /// Number of parts of a sharded task.
    pub const SHARDS: u32 = 10_000;
    /// Milliseconds of a lease.
    pub const LEASE: std::ops::RangeInclusive<u64> = 200..=3_600_000;
    /// Characters of a progress text.
    pub const TEXT: usize = 500;
    /// Characters of an error's message.
    pub const MESSAGE: usize = 2_000;
    /// Characters of a stack.
    pub const STACK: usize = 16_000;
}

/// Settings of a job of the kind `task`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskSettings {
    /// The handler name that workers watch. Absent: the property `FullClassName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// The function's arguments, any JSON, unless the trigger supplies its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// Which of the workers that watch the handler gets the task.
    #[serde(skip_serializing_if = "is_default")]
    pub strategy: Strategy,
    /// For `hash` and `sticky`: the value to hash. A JSON pointer (RFC 6901) into the arguments; absent: the whole arguments for
    /// `hash`, the job for `sticky`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// For `shard`: number of parts; 0: one for each connected worker.
    #[serde(skip_serializing_if = "is_default")]
    pub shards: u32,
    /// Only workers of this group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only workers of this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Only workers that have all of these tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Milliseconds without a report after which an attempt counts as lost; default 10,000. Its worker also stops it within this
    /// time, so that it never overlaps with the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// Number of attempts that may be lost with their worker before the run fails; default 3. The policy `retry` counts failures
    /// that the function reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_attempts: Option<u32>,
    /// Milliseconds that a task has to end after a cancel order; then its run is closed; default 5,000.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<u64>,
    /// What to do if no worker watches the handler.
    #[serde(skip_serializing_if = "is_default")]
    pub no_worker: NoWorker,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Which worker gets a task, among the suitable workers with a free slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// Each in turn.
    #[default]
    RoundRobin,
    /// A random worker.
    Random,
    /// The worker with the lowest share of used slots.
    LeastLoaded,
    /// The worker that has not been given a task for the longest time, by any job.
    LeastRecentlyUsed,
    /// The same worker for the same key, while it is connected (rendezvous hashing); the task waits if it has no free slot.
    Hash,
    /// The worker that had the key last; if it is gone, any other.
    Sticky,
    /// The first worker by name, while it is connected.
    Failover,
    /// Every worker, each as one part of the run.
    Broadcast,
    /// As many parts as `shards`; each gets its own number.
    Shard,
}

impl Strategy {
    /// The strategies that choose one worker, by their names.
    pub const FOR_ONE: [(&'static str, Self); 7] = [
        ("roundRobin", Self::RoundRobin),
        ("random", Self::Random),
        ("leastLoaded", Self::LeastLoaded),
        ("leastRecentlyUsed", Self::LeastRecentlyUsed),
        ("hash", Self::Hash),
        ("sticky", Self::Sticky),
        ("failover", Self::Failover),
    ];
}

/// What happens to a run without a suitable worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum NoWorker {
    /// It fails with a reason.
    #[default]
    Fail,
    /// It waits for a worker.
    Wait,
}

impl TaskSettings {
    /// Default lease in milliseconds.
    pub const LEASE: u64 = 10_000;
    /// Default number of attempts that may be lost with their worker.
    pub const LOST_ATTEMPTS: u32 = 3;
    /// Default milliseconds between a cancel order and closing the run.
    pub const CANCEL_GRACE: u64 = 5_000;

    /// The lease, in milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.lease.unwrap_or(Self::LEASE)
    }

    /// Checks what the types cannot express.
    ///
    /// # Errors
    /// The member that is wrong, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let class = super::job::limits::CLASS;
        let is_bad = |name: &String| name.is_empty() || name.chars().count() > class || name.chars().any(char::is_control);
        if self.handler.as_ref().is_some_and(is_bad) {
            return Err(("handler", format!("must be a name of 1 to {class} characters without control characters")));
        }
        if self.lease.is_some_and(|ms| !limits::LEASE.contains(&ms)) {
            return Err(("lease", format!("must be {} to {}", span_text(*limits::LEASE.start()), span_text(*limits::LEASE.end()))));
        }
        if self.cancel_grace.is_some_and(|ms| ms > *limits::LEASE.end()) {
            return Err(("cancelGrace", format!("must be at most {}", span_text(*limits::LEASE.end()))));
        }
        if self.shards > limits::SHARDS || (self.shards > 0 && self.strategy != Strategy::Shard) {
            return Err(("shards", format!("must be at most {}, and requires the strategy `shard`", limits::SHARDS)));
        }
        if self.key.as_ref().is_some_and(|key| !key.starts_with('/') || key.len() > 200) {
            return Err(("key", "must be a JSON pointer, for example `/customer/id`".to_owned()));
        }
        if self.key.is_some() && !matches!(self.strategy, Strategy::Hash | Strategy::Sticky) {
            return Err(("key", "requires the strategy `hash` or `sticky`".to_owned()));
        }
        let name = super::job::limits::NAME;
        let is_long = |text: &String| text.is_empty() || text.chars().count() > name || text.chars().any(char::is_control);
        if self.tags.len() > limits::TAGS || self.tags.iter().any(is_long) {
            return Err(("tags", format!("must be at most {} tags of 1 to {name} characters without control characters", limits::TAGS)));
        }
        for (field, text) in [("group", &self.group), ("version", &self.version)] {
            if text.as_ref().is_some_and(is_long) {
                return Err((field, format!("must be 1 to {name} characters without control characters")));
            }
        }
        if self.arguments.as_ref().is_some_and(|arguments| arguments.to_string().len() > limits::PAYLOAD) {
            return Err(("arguments", format!("must be at most {} bytes", limits::PAYLOAD)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_settings_are_written_as_an_empty_object() {
        assert_eq!(serde_json::to_string(&TaskSettings::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<TaskSettings>("{}").expect("read"), TaskSettings::default());
    }

    #[test]
    fn the_names_of_strategies_are_those_of_the_api() {
        for (name, strategy) in Strategy::FOR_ONE {
            assert_eq!(serde_json::to_value(strategy).expect("JSON"), name);
        }
    }

    #[test]
    fn wrong_settings_name_their_member() {
        let cases = [
            (r#"{"handler":""}"#, "handler"),
            (r#"{"lease":1}"#, "lease"),
            (r#"{"shards":3}"#, "shards"),
            (r#"{"strategy":"hash","key":"x"}"#, "key"),
            (r#"{"key":"/x"}"#, "key"),
            (r#"{"tags":[""]}"#, "tags"),
            (r#"{"group":""}"#, "group"),
        ];
        for (text, field) in cases {
            let settings: TaskSettings = serde_json::from_str(text).expect(text);
            assert_eq!(settings.check().map_err(|(field, _)| field), Err(field), "{text}");
        }
    }
}
