//! The REST API's inputs and outputs for alerts, and the body that a webhook receives.

use crate::domain::alert::{ChannelKind, Filter};
use crate::domain::ids::{ChannelId, Identity, JobId, Number};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The header that signs a message: `t=<ms>,v1=<HMAC-SHA256 of "<t>.<body>" under the secret, in hex>`.
pub const SIGNATURE: &str = "Webloom-Signature";
/// The header that names the event.
pub const EVENT: &str = "Webloom-Event";

/// A channel to create or change; in a change, absent members keep their values.
#[derive(Debug, Clone, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct AlertInput {
    /// 1 to 50 characters, unique.
    pub name: Option<String>,
    /// webhook or mail.
    pub kind: Option<ChannelKind>,
    /// The URL of a webhook, or a mail address.
    pub target: Option<String>,
    /// The key that signs what is sent to a webhook; at most 500 bytes. Empty: the stored one stays.
    pub secret: Option<String>,
    /// Which events it receives.
    pub filter: Option<Filter>,
    /// Whether it receives events.
    pub is_enabled: Option<bool>,
    /// The version that the change is based on.
    pub version: Option<i64>,
}

/// A channel.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertOutput {
    /// Its id.
    pub id: ChannelId,
    /// The id as a number, for clients that need 64 bits.
    #[serde(default)]
    pub number: Number,
    /// Its name.
    pub name: String,
    /// webhook or mail.
    pub kind: ChannelKind,
    /// The URL of a webhook, or a mail address.
    pub target: String,
    /// Whether messages are signed. The secret itself is never shown.
    pub has_secret: bool,
    /// Which events it receives.
    pub filter: Filter,
    /// Whether it receives events.
    pub is_enabled: bool,
    /// The version: increases with each change.
    pub version: i64,
    /// Who created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who changed it last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

/// The result of a test.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertTestOutput {
    /// Whether the receiver accepted it.
    pub ok: bool,
    /// What went wrong.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Duration, in milliseconds.
    pub time: i64,
    /// The id of the test's event.
    pub id: i64,
}

/// An event, and its deliveries.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertEventOutput {
    /// The number of the event.
    pub id: i64,
    /// failed, missed, late, silent, recovered, disabled, test.
    pub event: String,
    /// When it happened.
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
    /// The reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Its deliveries to the channels.
    pub deliveries: Vec<AlertDeliveryOutput>,
}

/// The delivery of an event to one channel.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AlertDeliveryOutput {
    /// The channel.
    pub channel_id: String,
    /// waiting, sending, done, failed (given up), merged (sent with another event).
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// The time of the next attempt, while it waits.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_at: Option<Timestamp>,
    /// Number of events in its message.
    pub count: i64,
    /// The event whose message includes this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub merged_into: Option<i64>,
    /// The last error.
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
    /// When it happened; for several events the first.
    pub at: Timestamp,
    /// The job; null in a test.
    pub job_id: Option<JobId>,
    /// Its name.
    pub job_name: Option<&'a str>,
    /// Its group.
    pub group: Option<&'a str>,
    /// The run; for several events the first.
    pub run_id: Option<Identity>,
    /// The reason.
    pub reason: Option<&'a str>,
    /// Number of events in the message.
    pub count: i64,
    /// The number of the event: the same in every attempt, to recognize repeated messages.
    pub id: i64,
}
