//! Alert channels, and their events.

use super::Service;
use crate::actors::alerts::{check_address, target_of};
use crate::actors::reply::problem_of;
use crate::domain::alert::ChannelKind;
use crate::domain::ids::ChannelId;
use crate::domain::job::limits;
use crate::domain::secrets::{MASK, mask_webhook};
use crate::domain::time::Timestamp;
use crate::protocol::alerts::{AlertDeliveryOutput, AlertEventOutput, AlertInput, AlertOutput, AlertTestOutput};
use crate::protocol::api::Page;
use crate::protocol::problem::Problem;
use crate::store::{Channel, DeleteChannel, GetChannel, InsertChannel, ListChannels, ListEvents, StoreError, UpdateChannel};

/// Maximum length of a target in characters, and of a secret in bytes.
const MOST_TARGET: usize = 2_000;
const MOST_SECRET: usize = 500;

impl Service {
    /// All channels, by name.
    ///
    /// # Errors
    /// The store fails.
    pub async fn channels(&self) -> Result<Vec<AlertOutput>, Problem> {
        let channels = self.context.store.read(ListChannels).await.map_err(|e| problem_of(&e))?;
        Ok(channels.into_iter().map(output).collect())
    }

    /// A channel.
    ///
    /// # Errors
    /// The channel does not exist.
    pub async fn channel(&self, id: ChannelId) -> Result<AlertOutput, Problem> {
        self.stored_channel(id).await.map(output)
    }

    async fn stored_channel(&self, id: ChannelId) -> Result<Channel, Problem> {
        let found = self.context.store.read(GetChannel(id)).await.map_err(|e| problem_of(&e))?;
        found.ok_or_else(|| Problem::not_found(format!("there is no channel {id}")))
    }

    /// Creates a channel.
    ///
    /// # Errors
    /// A value is invalid, or the name is taken.
    pub async fn create_channel(&self, input: AlertInput, by: Option<String>) -> Result<AlertOutput, Problem> {
        let now = Timestamp::now();
        let missing = |field: &str| Problem::invalid(field, "it is required");
        let mut channel = Channel {
            id: ChannelId::at(now),
            name: input.name.clone().ok_or_else(|| missing("name"))?,
            kind: input.kind.ok_or_else(|| missing("kind"))?,
            target: input.target.clone().ok_or_else(|| missing("target"))?,
            secret: None,
            filter: Default::default(),
            is_enabled: true,
            version: 1,
            create_by: by.clone(),
            update_by: by,
            creation_time: now,
            update_time: now,
        };
        self.apply(&mut channel, input)?;
        let written = self.context.store.write(InsertChannel(channel.clone())).await;
        written.map_err(|error| conflict(&error, &channel))?;
        Ok(output(channel))
    }

    /// Changes a channel.
    ///
    /// # Errors
    /// The channel does not exist or was changed in the meantime, a value is invalid, or the name is taken.
    pub async fn update_channel(&self, id: ChannelId, input: AlertInput, by: Option<String>) -> Result<AlertOutput, Problem> {
        let mut channel = self.stored_channel(id).await?;
        channel.version = input.version.unwrap_or(channel.version);
        self.apply(&mut channel, input)?;
        channel.update_by = by;
        channel.update_time = Timestamp::now();
        let written = self.context.store.write(UpdateChannel(channel.clone())).await;
        written.map(output).map_err(|error| conflict(&error, &channel))
    }

    /// Deletes a channel. Pending deliveries are not sent.
    ///
    /// # Errors
    /// The channel does not exist.
    pub async fn delete_channel(&self, id: ChannelId) -> Result<(), Problem> {
        self.context.store.write(DeleteChannel(id)).await.map_err(|error| match error {
            StoreError::NotFound => Problem::not_found(format!("there is no channel {id}")),
            other => problem_of(&other),
        })
    }

    /// Sends a message to a channel at once.
    ///
    /// # Errors
    /// The channel does not exist. A failed delivery is not an error but part of the answer.
    pub async fn test_channel(&self, id: ChannelId) -> Result<AlertTestOutput, Problem> {
        self.context.alert_sender.test(id).wait().await
    }

    /// Events and their deliveries, the newest first.
    ///
    /// # Errors
    /// The cursor is invalid.
    pub async fn alert_events(&self, cursor: Option<&str>, limit: usize) -> Result<Page<AlertEventOutput>, Problem> {
        let before = cursor.map(|text| text.parse().map_err(|_| Problem::invalid("cursor", "not a cursor of this list"))).transpose()?;
        let mut rows = self.context.store.read(ListEvents { before, limit: limit + 1 }).await.map_err(|e| problem_of(&e))?;
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next_cursor = rows.last().filter(|_| more).map(|(event, _)| event.id.to_string());
        let items = rows.into_iter().map(|(event, deliveries)| AlertEventOutput {
            id: event.id,
            event: event.event,
            at: event.at,
            job_id: event.job_id,
            job_name: event.detail.job_name,
            group: event.detail.group,
            run_id: event.identity,
            reason: event.detail.reason,
            deliveries: deliveries
                .into_iter()
                .map(|delivery| AlertDeliveryOutput {
                    next_at: (delivery.state == "waiting").then_some(delivery.next_at),
                    channel_id: delivery.channel_id,
                    state: delivery.state,
                    attempts: delivery.attempts,
                    count: delivery.events,
                    merged_into: delivery.merged_into,
                    last_error: delivery.last_error,
                    finish_time: delivery.finish_time,
                })
                .collect(),
        });
        Ok(Page { items: items.collect(), next_cursor })
    }

    /// Applies the new values and validates the result.
    fn apply(&self, channel: &mut Channel, input: AlertInput) -> Result<(), Problem> {
        channel.name = input.name.unwrap_or_else(|| std::mem::take(&mut channel.name));
        channel.kind = input.kind.unwrap_or(channel.kind);
        // A client that read the channel without its secrets may send it back.
        let target = input.target.filter(|target| !target.contains(MASK) || *target != mask_webhook(&channel.target));
        if target.as_ref().is_some_and(|target| target.contains(MASK)) {
            return Err(Problem::invalid("target", format!("`{MASK}` stands for a hidden part: send the whole URL")));
        }
        channel.target = target.unwrap_or_else(|| std::mem::take(&mut channel.target));
        // Responses contain an empty secret, and a client may send it back.
        channel.secret = input.secret.filter(|secret| !secret.is_empty()).or(channel.secret.take());
        channel.filter = input.filter.unwrap_or_else(|| std::mem::take(&mut channel.filter));
        channel.is_enabled = input.is_enabled.unwrap_or(channel.is_enabled);
        if !(1..=limits::NAME).contains(&channel.name.chars().count()) || channel.name.chars().any(char::is_control) {
            return Err(Problem::invalid("name", format!("must have 1 to {} characters", limits::NAME)));
        }
        if channel.secret.as_ref().is_some_and(|secret| secret.len() > MOST_SECRET) {
            return Err(Problem::invalid("secret", format!("must be at most {MOST_SECRET} bytes")));
        }
        if channel.target.chars().count() > MOST_TARGET {
            return Err(Problem::invalid("target", format!("must be at most {MOST_TARGET} characters")));
        }
        channel.filter.check().map_err(|(field, detail)| Problem::invalid(field, detail))?;
        match channel.kind {
            ChannelKind::Webhook => {
                let url = target_of(&channel.target).map_err(|detail| Problem::invalid("target", detail))?;
                let refused =
                    self.context.outbound.targets.refuses(url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or(0));
                refused.map_or(Ok(()), |why| Err(Problem::invalid("target", why)))
            }
            ChannelKind::Mail if self.context.alerts.mail.is_none() => {
                Err(Problem::invalid("kind", "this broker sends no mail: it was started without --smtp-url and --mail-from"))
            }
            ChannelKind::Mail => check_address(&channel.target).map_err(|detail| Problem::invalid("target", detail)),
        }
    }
}

fn output(channel: Channel) -> AlertOutput {
    AlertOutput {
        id: channel.id,
        number: channel.id.number(),
        name: channel.name,
        kind: channel.kind,
        target: channel.target,
        has_secret: channel.secret.is_some(),
        filter: channel.filter,
        is_enabled: channel.is_enabled,
        version: channel.version,
        create_by: channel.create_by,
        update_by: channel.update_by,
        creation_time: channel.creation_time,
        update_time: channel.update_time,
    }
}

fn conflict(error: &StoreError, channel: &Channel) -> Problem {
    match error {
        StoreError::Conflict(what) if what == "name" => {
            Problem::conflict("name-taken", format!("a channel named `{}` already exists", channel.name)).at("name")
        }
        StoreError::Conflict(_) => Problem::conflict("version", "the channel has changed since that version was read").at("version"),
        StoreError::NotFound => Problem::not_found(format!("there is no channel {}", channel.id)),
        other => problem_of(other),
    }
}
