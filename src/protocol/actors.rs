//! The actors of the broker, as the REST API shows them.

use super::api::ActorOutput;
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Selects actors.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ActorFilter {
    /// Only actors of this kind.
    pub kind: Option<String>,
    /// Only actors whose name or label contains this text, in lower case.
    pub text: Option<String>,
    /// Only actors with an error or a restart, or only others.
    pub errors: Option<bool>,
    /// Only actors after this kind and name.
    pub after: Option<(String, String)>,
    /// Maximum number of actors.
    pub limit: Option<usize>,
}

/// The actors of a kind together.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KindOutput {
    /// registry, job, run, node, worker, session …
    pub kind: String,
    /// The actor that supervises them; absent for those that are not restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parent: Option<String>,
    /// Number of actors.
    pub count: u64,
    /// Actors that are being restarted.
    pub restarting: u64,
    /// Actors with an error.
    pub with_errors: u64,
    /// Restarts of the live actors.
    pub restarts: u64,
    /// Number of waiting messages.
    pub queue_depth: u64,
    /// Messages handled by the actors of this kind, including those that have ended.
    pub messages_handled: u64,
    /// Microseconds for a message, on average; absent if it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_per_message: Option<f64>,
}

impl KindOutput {
    /// Adds the actors of this kind at another broker.
    pub fn add(&mut self, other: &Self) {
        let timed = |kind: &Self| {
            kind.time_per_message.map_or((0.0, 0.0), |time| (time * kind.messages_handled as f64, kind.messages_handled as f64))
        };
        let ((time, messages), (more_time, more_messages)) = (timed(self), timed(other));
        self.time_per_message =
            (messages + more_messages > 0.0).then(|| ((time + more_time) / (messages + more_messages) * 10.0).round() / 10.0);
        self.count += other.count;
        self.restarting += other.restarting;
        self.with_errors += other.with_errors;
        self.restarts += other.restarts;
        self.queue_depth += other.queue_depth;
        self.messages_handled += other.messages_handled;
    }
}

/// An actor with its history.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ActorDetail {
    /// As in the list.
    #[serde(flatten)]
    pub actor: ActorOutput,
    /// Work that waits: of a run of a block job, requests without a result.
    pub waiting: u64,
    /// Messages by type, the most frequent first.
    pub messages: Vec<MessagesOutput>,
    /// The last messages, the newest first; at most 10.
    pub recent: Vec<RecentOutput>,
    /// How many messages waited when one was handled, that one included, since the actor was created.
    pub depths: Vec<DepthOutput>,
    /// Why it was restarted, the newest first; at most 20.
    pub crashes: Vec<CrashOutput>,
}

/// Messages of one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MessagesOutput {
    /// The kind of the actor and the type: `node.heartbeat`.
    pub r#type: String,
    /// Number of messages handled.
    pub count: u64,
    /// Microseconds for each, on average; absent if it is not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time: Option<f64>,
}

/// A message that was handled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RecentOutput {
    /// As in the list of types.
    pub r#type: String,
    /// When.
    pub at: Timestamp,
    /// Microseconds that it took.
    pub time: u32,
}

/// How often this many messages waited.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DepthOutput {
    /// At most this many messages, and more than in the line before; absent in the last line, which has all others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub up_to: Option<u64>,
    /// How often.
    pub count: u64,
}

/// The end of an actor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CrashOutput {
    /// When.
    pub at: Timestamp,
    /// The text of the panic, or the error.
    pub reason: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_two_brokers_weigh_as_their_messages() {
        let kind =
            |messages_handled, time_per_message| KindOutput { count: 1, messages_handled, time_per_message, ..KindOutput::default() };
        let sum = |mut one: KindOutput, other: KindOutput| {
            one.add(&other);
            (one.count, one.messages_handled, one.time_per_message)
        };
        assert_eq!(sum(kind(30, Some(10.0)), kind(10, Some(50.0))), (2, 40, Some(20.0)));
        assert_eq!(sum(kind(30, None), kind(10, Some(50.0))), (2, 40, Some(50.0)));
        assert_eq!(sum(kind(0, None), kind(0, None)), (2, 0, None));
    }
}
