//! What the REST API takes and gives around alerts, and what a webhook gets.

use crate::domain::alert::{ChannelKind, Filter};
use crate::domain::ids::{ChannelId, Identity, JobId, Number};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The header that signs a message: `t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" under the secret, in hex>`.
pub const SIGNATURE: &str = "Webloom-Signature";
/// The header that names the event.
pub const EVENT: &str = "Webloom-Event";

/// A channel as it is created or changed; what is absent in a change stays as it is.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AlertInput {
    /// 1 to 50 characters, unique.
    pub name: Option<String>,
    /// webhook or mail.
    pub kind: Option<ChannelKind>,
    /// The URL of a webhook, or an address.
    pub target: Option<String>,
    /// Signs what is sent to a webhook; at most 500 bytes. Empty: the stored one stays.
    pub secret: Option<String>,
    /// What it wants to hear of.
    pub filter: Option<Filter>,
    /// Whether it is told anything.
    pub is_enabled: Option<bool>,
    /// The version that the change was made for.
    pub version: Option<i64>,
}

/// A channel.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertOutput {
    /// Its id.
    pub id: ChannelId,
    /// Stands for its id where 64 bits have to do.
    #[serde(default)]
    pub number: Number,
    /// Its name.
    pub name: String,
    /// webhook or mail.
    pub kind: ChannelKind,
    /// The URL of a webhook, or an address.
    pub target: String,
    /// What is sent is signed. The secret itself is never shown.
    pub has_secret: bool,
    /// What it wants to hear of.
    pub filter: Filter,
    /// Whether it is told anything.
    pub is_enabled: bool,
    /// Counts the changes.
    pub version: i64,
    /// Who made it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who changed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was made.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// What came of a test.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertTestOutput {
    /// The other side took it.
    pub ok: bool,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Milliseconds that it took.
    pub time: i64,
    /// The event among the others.
    pub id: i64,
}

/// An event, and who was told of it.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertEventOutput {
    /// Counts the events.
    pub id: i64,
    /// failed, missed, late, silent, recovered, disabled, test.
    pub event: String,
    /// When.
    pub at: Timestamp,
    /// The job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_id: Option<JobId>,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job_name: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_id: Option<Identity>,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its ways to the channels.
    pub deliveries: Vec<AlertDeliveryOutput>,
}

/// An event on its way to one channel.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertDeliveryOutput {
    /// The channel.
    pub channel_id: String,
    /// waiting, sending, done, failed (given up), merged (told with another one).
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is tried next, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Events that its message stands for.
    pub count: i64,
    /// The event whose message it is told with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<i64>,
    /// What went wrong last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// When it was done or given up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_time: Option<Timestamp>,
}

/// The body of a webhook.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct AlertMessage<'a> {
    /// failed, missed, late, silent, recovered, disabled, test.
    pub event: &'a str,
    /// When it happened; of several the first.
    pub at: Timestamp,
    /// The job; null in a test.
    pub job_id: Option<JobId>,
    /// Its name.
    pub job_name: Option<&'a str>,
    /// Its group.
    pub group: Option<&'a str>,
    /// The run; of several the first.
    pub run_id: Option<Identity>,
    /// Why.
    pub reason: Option<&'a str>,
    /// Events that the message stands for.
    pub count: i64,
    /// Counts the events: the same in every attempt, to know a message by that came before.
    pub id: i64,
}
