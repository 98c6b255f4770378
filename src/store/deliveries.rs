//! Delivery of events to channels.

use super::channels::{Channel, load_channels};
use super::dialect::{self, Conn, OnConflict};
use super::error::StoreError;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{alert_delivery, alert_event};
use crate::domain::alert::{Last, Turn, pause_after, turn};
use crate::domain::ids::{ChannelId, Identity, JobId};
use crate::domain::time::Timestamp;
use diesel::dsl::sql;
use diesel::prelude::*;
use diesel::sql_types::{Bool, Nullable, Text};
use serde::Deserialize;
use std::collections::HashMap;

/// Maximum number of events that are processed in one transaction.
const EVENTS_AT_ONCE: i64 = 100;
/// Maximum number of deliveries that are searched for those to send.
const LOOKED_AT: i64 = 200;

/// An event as it is stored.
#[derive(Debug, Clone, PartialEq)]
pub struct StoredEvent {
    /// Sequence number of the event.
    pub id: i64,
    /// failed, missed, late, silent, recovered, disabled, test.
    pub event: String,
    /// The job.
    pub job_id: Option<JobId>,
    /// The run.
    pub identity: Option<Identity>,
    /// When it happened.
    pub at: Timestamp,
    /// Further details.
    pub detail: Detail,
}

/// Details of an event.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Detail {
    /// The job's name.
    pub job_name: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// The reason.
    pub reason: Option<String>,
}

/// A message to send.
#[derive(Debug, Clone)]
pub struct Claimed {
    /// The event.
    pub event: StoredEvent,
    /// The receiving channel.
    pub channel: Channel,
    /// Number of events that the message covers.
    pub events: i64,
    /// The number of the attempt, from 1.
    pub attempt: u32,
}

/// Whether alerts need processing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct AlertsDue {
    /// There are unprocessed events.
    pub events: bool,
    /// There are due messages.
    pub messages: bool,
}

/// See [`AlertsDue`].
#[derive(Debug, Clone, Copy)]
pub struct LookForAlerts {
    /// The current time.
    pub now: Timestamp,
}

impl ReadOp for LookForAlerts {
    type Output = AlertsDue;

    fn read(&self, from: &mut Source<'_>) -> Result<AlertsDue, StoreError> {
        let open = sql::<Bool>(dialect::by_database(from.conn, "is_done = 0", "is_done = FALSE"));
        let event: Option<i64> = alert_event::table.filter(open).select(alert_event::id).limit(1).get_result(from.conn).optional()?;
        let due = open_deliveries().filter(alert_delivery::state.eq("waiting")).filter(alert_delivery::next_at.le(self.now));
        let message: Option<i64> = due.select(alert_delivery::event_id).limit(1).get_result(from.conn).optional()?;
        Ok(AlertsDue { events: event.is_some(), messages: message.is_some() })
    }
}

/// Number of undelivered messages.
#[derive(Debug, Clone, Copy)]
pub struct WaitingAlerts;

impl ReadOp for WaitingAlerts {
    type Output = i64;

    fn read(&self, from: &mut Source<'_>) -> Result<i64, StoreError> {
        Ok(open_deliveries().count().get_result(from.conn)?)
    }
}

type OpenDeliveries = diesel::dsl::Filter<alert_delivery::table, diesel::expression::SqlLiteral<diesel::sql_types::Bool>>;

/// Exactly as in the index.
fn open_deliveries() -> OpenDeliveries {
    alert_delivery::table.filter(diesel::dsl::sql("state IN ('waiting', 'sending')"))
}

/// Decides for the oldest unprocessed events which channels receive them, and when. Returns whether there are more.
#[derive(Debug, Clone, Copy)]
pub struct ExpandEvents {
    /// Milliseconds within which similar events are collected into one message.
    pub gather_ms: u64,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for ExpandEvents {
    type Output = bool;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<bool, StoreError> {
        let open = sql::<Bool>(dialect::by_database(tx.conn, "is_done = 0", "is_done = FALSE"));
        let rows: Vec<EventRow> =
            alert_event::table.filter(open).order(alert_event::id).limit(EVENTS_AT_ONCE).select(EventRow::as_select()).load(tx.conn)?;
        let channels = load_channels(tx.conn)?;
        for row in &rows {
            let detail = row.detail();
            for channel in channels.iter().filter(|channel| channel.is_enabled) {
                let (job, name) =
                    (row.job_id.map(|job| job.to_string()).unwrap_or_default(), detail.job_name.as_deref().unwrap_or_default());
                if channel.filter.passes(&row.event, &job, name, detail.group.as_deref()) {
                    self.deliver(tx.conn, row, channel.id)?;
                }
            }
            diesel::update(alert_event::table.find(row.id)).set(alert_event::is_done.eq(true)).execute(tx.conn)?;
        }
        Ok(rows.len() as i64 == EVENTS_AT_ONCE)
    }
}

impl ExpandEvents {
    fn deliver(&self, conn: &mut Conn, row: &EventRow, channel: ChannelId) -> Result<(), StoreError> {
        let alike = |event: &str| {
            alert_delivery::table
                .filter(alert_delivery::channel_id.eq(channel))
                .filter(alert_delivery::event.eq(event.to_owned()))
                .filter(sql::<Bool>("job_id IS NOT DISTINCT FROM ").bind::<Nullable<Text>, _>(row.job_id))
                .filter(alert_delivery::merged_into.is_null())
        };
        if row.event == "recovered" {
            // Send collected failures first: after the recovery message they would be misleading.
            let gathered = alike("failed").filter(alert_delivery::state.eq("waiting")).filter(alert_delivery::attempts.eq(0));
            let ids: Vec<i64> = gathered.select(alert_delivery::event_id).load(conn)?;
            let gathered =
                alert_delivery::table.filter(alert_delivery::channel_id.eq(channel)).filter(alert_delivery::event_id.eq_any(ids));
            diesel::update(gathered).set(alert_delivery::next_at.eq(self.now)).execute(conn)?;
        }
        let last = alike(&row.event)
            .order(alert_delivery::event_id.desc())
            .limit(1)
            .select((alert_delivery::event_id, alert_delivery::state, alert_delivery::next_at))
            .get_result::<(i64, String, Timestamp)>(conn)
            .optional()?;
        let known = last.as_ref().map(|(_, state, due)| Last { waits: state == "waiting", due: *due });
        let (state, next_at, into) = match (turn(known, self.now, self.gather_ms), last) {
            (Turn::Joins, Some((event, ..))) => {
                diesel::update(alert_delivery::table.find((event, channel)))
                    .set(alert_delivery::events.eq(alert_delivery::events + 1))
                    .execute(conn)?;
                ("merged", self.now, Some(event))
            }
            (Turn::At(at), _) => ("waiting", at, None),
            (Turn::Joins, None) => ("waiting", self.now, None),
        };
        diesel::insert_into(alert_delivery::table)
            .values((
                alert_delivery::event_id.eq(row.id),
                alert_delivery::channel_id.eq(channel),
                alert_delivery::event.eq(&row.event),
                alert_delivery::job_id.eq(row.job_id),
                alert_delivery::state.eq(state),
                alert_delivery::attempts.eq(0),
                alert_delivery::next_at.eq(next_at),
                alert_delivery::events.eq(1),
                alert_delivery::merged_into.eq(into),
                alert_delivery::creation_time.eq(self.now),
            ))
            .with_conflict_rule("DO NOTHING")
            .execute(conn)?;
        Ok(())
    }
}

/// Claims due messages for sending; until the attempt is recorded, no events are added to them.
#[derive(Debug, Clone)]
pub struct ClaimAlerts {
    /// The current time.
    pub now: Timestamp,
    /// At most this many.
    pub limit: usize,
    /// Number of messages being sent per channel.
    pub busy: HashMap<ChannelId, usize>,
    /// Maximum number of messages being sent per channel.
    pub most_per_channel: usize,
}

impl WriteOp for ClaimAlerts {
    type Output = Vec<Claimed>;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Self::Output, StoreError> {
        // New messages before retries, and none of a channel that is busy, so that an unreachable target does not delay the others.
        let full = self.busy.iter().filter(|(_, busy)| **busy >= self.most_per_channel).map(|(channel, _)| *channel);
        let due: Vec<(i64, ChannelId, i32, i64)> = open_deliveries()
            .filter(alert_delivery::state.eq("waiting"))
            .filter(alert_delivery::channel_id.ne_all(full.collect::<Vec<_>>()))
            .filter(alert_delivery::next_at.le(self.now))
            .order((alert_delivery::attempts, alert_delivery::next_at, alert_delivery::event_id))
            .limit(LOOKED_AT)
            .select((alert_delivery::event_id, alert_delivery::channel_id, alert_delivery::attempts, alert_delivery::events))
            .load(tx.conn)?;
        let channels: HashMap<ChannelId, Channel> = load_channels(tx.conn)?.into_iter().map(|channel| (channel.id, channel)).collect();
        let (mut busy, mut claimed) = (self.busy.clone(), Vec::new());
        for (event, key, attempts, events) in due {
            if claimed.len() == self.limit {
                break;
            }
            let place = alert_delivery::table.find((event, key));
            let Some(channel) = channels.get(&key).filter(|channel| channel.is_enabled) else {
                let why = "the channel was disabled or deleted";
                diesel::update(place)
                    .set((alert_delivery::state.eq("failed"), alert_delivery::last_error.eq(why), alert_delivery::finish_time.eq(self.now)))
                    .execute(tx.conn)?;
                continue;
            };
            let busy = busy.entry(channel.id).or_default();
            if *busy >= self.most_per_channel {
                continue;
            }
            *busy += 1;
            diesel::update(place).set((alert_delivery::state.eq("sending"), alert_delivery::attempts.eq(attempts + 1))).execute(tx.conn)?;
            let row: EventRow = alert_event::table.find(event).select(EventRow::as_select()).get_result(tx.conn)?;
            claimed.push(Claimed { event: row.into_event(), channel: channel.clone(), events, attempt: attempts as u32 + 1 });
        }
        Ok(claimed)
    }
}

/// Records the result of an attempt to send a message.
#[derive(Debug, Clone)]
pub struct SettleAlert {
    /// The event.
    pub event: i64,
    /// The channel.
    pub channel: ChannelId,
    /// The number of the attempt.
    pub attempt: u32,
    /// The error, if it failed.
    pub error: Option<String>,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for SettleAlert {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        // Keep other states: the channel may have been deleted meanwhile.
        let place = alert_delivery::table.find((self.event, self.channel)).filter(alert_delivery::state.eq("sending"));
        let again = self.error.as_ref().and_then(|_| pause_after(self.attempt));
        let state = match (&self.error, again) {
            (None, _) => "done",
            (Some(_), Some(_)) => "waiting",
            (Some(_), None) => "failed",
        };
        diesel::update(place)
            .set((
                alert_delivery::state.eq(state),
                alert_delivery::last_error.eq(self.error.as_deref()),
                alert_delivery::next_at.eq(self.now.plus_ms(again.unwrap_or(0))),
                alert_delivery::finish_time.eq(again.is_none().then_some(self.now)),
            ))
            .execute(tx.conn)?;
        Ok(())
    }
}

/// Messages that were being sent when the last broker ended are sent again: it is unknown whether they arrived.
#[derive(Debug, Clone, Copy)]
pub struct ResumeAlerts;

impl WriteOp for ResumeAlerts {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        let sending = sql::<Bool>("state IN ('waiting', 'sending') AND state = 'sending'");
        diesel::update(alert_delivery::table.filter(sending)).set(alert_delivery::state.eq("waiting")).execute(tx.conn)?;
        Ok(())
    }
}

/// Records a test of a channel. Returns the number of the event.
#[derive(Debug, Clone)]
pub struct InsertTest {
    /// The channel.
    pub channel: ChannelId,
    /// Its details as JSON.
    pub detail: String,
    /// The current time.
    pub now: Timestamp,
}

impl WriteOp for InsertTest {
    type Output = i64;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<i64, StoreError> {
        let event: i64 = diesel::insert_into(alert_event::table)
            .values((
                alert_event::event.eq("test"),
                alert_event::at.eq(self.now),
                alert_event::detail.eq(&self.detail),
                alert_event::is_done.eq(true),
            ))
            .returning(alert_event::id)
            .get_result(tx.conn)?;
        diesel::insert_into(alert_delivery::table)
            .values((
                (alert_delivery::event_id.eq(event), alert_delivery::channel_id.eq(self.channel)),
                (alert_delivery::event.eq("test"), alert_delivery::state.eq("sending")),
                // A single attempt, even if it fails.
                (alert_delivery::attempts.eq(crate::domain::alert::MOST_ATTEMPTS as i32), alert_delivery::next_at.eq(self.now)),
                (alert_delivery::events.eq(1), alert_delivery::creation_time.eq(self.now)),
            ))
            .execute(tx.conn)?;
        Ok(event)
    }
}

/// Stored delivery of an event to a channel.
#[derive(Debug, Clone, PartialEq, Queryable, Selectable)]
#[diesel(table_name = alert_delivery)]
pub struct StoredDelivery {
    event_id: i64,
    /// The channel.
    pub channel_id: String,
    /// waiting, sending, done, failed, merged.
    pub state: String,
    /// Attempts so far.
    pub attempts: u32,
    /// When it is or was due.
    pub next_at: Timestamp,
    /// Number of events that its message covers.
    pub events: i64,
    /// The event whose message includes this one.
    pub merged_into: Option<i64>,
    /// The last error.
    pub last_error: Option<String>,
    /// When it was sent or given up.
    pub finish_time: Option<Timestamp>,
}

/// Events with their deliveries, the newest first.
#[derive(Debug, Clone, Copy)]
pub struct ListEvents {
    /// Only those before this one.
    pub before: Option<i64>,
    /// At most this many.
    pub limit: usize,
}

impl ReadOp for ListEvents {
    type Output = Vec<(StoredEvent, Vec<StoredDelivery>)>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        let query = alert_event::table.filter(alert_event::id.lt(self.before.unwrap_or(i64::MAX)));
        let query = query.order(alert_event::id.desc()).limit(self.limit as i64).select(EventRow::as_select());
        let rows: Vec<EventRow> = query.load(from.conn)?;
        let ids: Vec<i64> = rows.iter().map(|row| row.id).collect();
        let deliveries = alert_delivery::table.filter(alert_delivery::event_id.eq_any(ids)).select(StoredDelivery::as_select());
        let mut by_event: HashMap<i64, Vec<StoredDelivery>> = HashMap::new();
        for delivery in deliveries.load(from.conn)? {
            by_event.entry(delivery.event_id).or_default().push(delivery);
        }
        let with_deliveries = |row: EventRow| {
            let deliveries = by_event.remove(&row.id).unwrap_or_default();
            (row.into_event(), deliveries)
        };
        Ok(rows.into_iter().map(with_deliveries).collect())
    }
}

#[derive(Queryable, Selectable)]
#[diesel(table_name = alert_event)]
struct EventRow {
    id: i64,
    event: String,
    job_id: Option<JobId>,
    run_identity: Option<Identity>,
    at: Timestamp,
    detail: String,
}

impl EventRow {
    /// Unreadable details are empty.
    fn detail(&self) -> Detail {
        serde_json::from_str(&self.detail).unwrap_or_default()
    }

    fn into_event(self) -> StoredEvent {
        let detail = self.detail();
        StoredEvent { id: self.id, event: self.event, job_id: self.job_id, identity: self.run_identity, at: self.at, detail }
    }
}
