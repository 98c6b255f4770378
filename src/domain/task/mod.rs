//! Tasks: a function of a user's, somewhere in the fleet.
//!
//! [`TaskSettings`] is what a job says of its task; `worker_pool` chooses a worker, `state_machine` knows where one task is.

#[cfg(feature = "broker")]
pub mod state_machine;
#[cfg(feature = "broker")]
pub mod worker_pool;

use super::time::span_text;
use serde::{Deserialize, Serialize};

/// The longest texts and largest numbers of a task.
pub mod limits {
    /// Bytes of its arguments, its result and its data, as JSON.
    pub const PAYLOAD: usize = 256 * 1024;
    /// Tags that a worker must have.
    pub const TAGS: usize = 20;
    /// Parts of a sharded task.
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

/// What a job of the kind `task` says of its task.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct TaskSettings {
    /// The name that workers watch. Absent: the property `FullClassName`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub handler: Option<String>,
    /// Any JSON: what the function gets, unless the trigger brings its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub arguments: Option<serde_json::Value>,
    /// Which of the workers that watch the name gets it.
    #[serde(skip_serializing_if = "is_default")]
    pub strategy: Strategy,
    /// For `hash` and `sticky`: what is hashed. A JSON pointer (RFC 6901) into the arguments; absent: the arguments as a
    /// whole; for `sticky` absent: the job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// For `shard`: how many parts; 0: one for each worker that is there.
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
    /// Milliseconds without a word of it after which an attempt counts as lost; 10,000 unless said. Its worker stops it by
    /// then too, so that the next attempt never meets it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lease: Option<u64>,
    /// Attempts that may be lost with their worker before the run fails; 3 unless said. Failures that the function
    /// reports are counted by the policy `retry`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lost_attempts: Option<u32>,
    /// Milliseconds that a task has to end after it was told to; then its run is closed; 5,000 unless said.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancel_grace: Option<u64>,
    /// What becomes of a run whose name nobody watches.
    #[serde(skip_serializing_if = "is_default")]
    pub no_worker: NoWorker,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Which worker gets a task, of those that may have it and have a free place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum Strategy {
    /// One after the other.
    #[default]
    RoundRobin,
    /// Any.
    Random,
    /// The one with the smallest part of its places taken.
    LeastLoaded,
    /// The one that was given something longest ago, by whatever job.
    LeastRecentlyUsed,
    /// The same one for the same key, as long as it is there (rendezvous hashing); it is waited for if it has no place.
    Hash,
    /// The one that had the key last; if it is gone, any other.
    Sticky,
    /// The first by name, as long as it is there.
    Failover,
    /// Every worker, each as a part of the run.
    Broadcast,
    /// As many parts as `shards` says; each is told which it is.
    Shard,
}

/// What becomes of a run that no worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum NoWorker {
    /// It fails and says why.
    #[default]
    Fail,
    /// It waits until one comes.
    Wait,
}

impl TaskSettings {
    /// Milliseconds of a lease.
    pub const LEASE: u64 = 10_000;
    /// Attempts that may be lost with their worker.
    pub const LOST_ATTEMPTS: u32 = 3;
    /// Milliseconds between the word to end and the end.
    pub const CANCEL_GRACE: u64 = 5_000;

    /// The lease, in milliseconds.
    #[must_use]
    pub fn lease_ms(&self) -> u64 {
        self.lease.unwrap_or(Self::LEASE)
    }

    /// Checks what does not show from the types alone.
    ///
    /// # Errors
    /// The member that is wrong, and what is wrong with it.
    pub fn check(&self) -> Result<(), (&'static str, String)> {
        let class = super::job::limits::CLASS;
        if self.handler.as_ref().is_some_and(|name| name.is_empty() || name.chars().count() > class) {
            return Err(("handler", format!("a name of 1 to {class} characters is expected")));
        }
        if self.lease.is_some_and(|ms| !limits::LEASE.contains(&ms)) {
            return Err(("lease", format!("must be {} to {}", span_text(*limits::LEASE.start()), span_text(*limits::LEASE.end()))));
        }
        if self.cancel_grace.is_some_and(|ms| ms > *limits::LEASE.end()) {
            return Err(("cancelGrace", format!("must be at most {}", span_text(*limits::LEASE.end()))));
        }
        if self.shards > limits::SHARDS || (self.shards > 0 && self.strategy != Strategy::Shard) {
            return Err(("shards", format!("up to {}, and only with the strategy `shard`", limits::SHARDS)));
        }
        if self.key.as_ref().is_some_and(|key| !key.starts_with('/') || key.len() > 200) {
            return Err(("key", "a JSON pointer is expected: `/customer/id`".to_owned()));
        }
        if self.key.is_some() && !matches!(self.strategy, Strategy::Hash | Strategy::Sticky) {
            return Err(("key", "it goes with the strategies `hash` and `sticky`".to_owned()));
        }
        let name = super::job::limits::NAME;
        let is_long = |text: &String| text.is_empty() || text.chars().count() > name;
        if self.tags.len() > limits::TAGS || self.tags.iter().any(is_long) {
            return Err(("tags", format!("at most {} tags of 1 to {name} characters are taken", limits::TAGS)));
        }
        for (field, text) in [("group", &self.group), ("version", &self.version)] {
            if text.as_ref().is_some_and(is_long) {
                return Err((field, format!("1 to {name} characters are taken")));
            }
        }
        if self.arguments.as_ref().is_some_and(|arguments| arguments.to_string().len() > limits::PAYLOAD) {
            return Err(("arguments", format!("at most {} bytes are taken", limits::PAYLOAD)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_says_nothing_is_written_as_nothing() {
        assert_eq!(serde_json::to_string(&TaskSettings::default()).expect("JSON"), "{}");
        assert_eq!(serde_json::from_str::<TaskSettings>("{}").expect("read"), TaskSettings::default());
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
