//! Channels: targets of alert messages.

use super::dialect::Conn;
use super::error::StoreError;
use super::groups::Group;
use super::op::{ReadOp, Source, Tx, WriteOp};
use super::schema::{alert_channel, alert_delivery};
use crate::domain::alert::{ChannelKind, Filter};
use crate::domain::ids::ChannelId;
use crate::domain::time::Timestamp;
use diesel::prelude::*;

/// A channel as it is stored.
#[derive(Clone, PartialEq, Queryable, Selectable, Insertable, AsChangeset)]
#[diesel(table_name = alert_channel, treat_none_as_null = true)]
pub struct Channel {
    /// Its id.
    pub id: ChannelId,
    /// Its name, unique.
    pub name: String,
    /// The kind of the channel.
    pub kind: ChannelKind,
    /// A URL or an address.
    pub target: String,
    /// Signs the requests to a webhook. Never shown.
    pub secret: Option<String>,
    /// The events that it receives.
    pub filter: Filter,
    /// Whether it receives messages.
    pub is_enabled: bool,
    /// Incremented by each change.
    pub version: i64,
    /// Who created it.
    pub create_by: Option<String>,
    /// Who changed it last.
    pub update_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
    /// When it was last changed.
    pub update_time: Timestamp,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "channel {}", self.id)
    }
}

/// Stores a new channel. [`StoreError::Conflict`] contains `name` if another channel has that name.
#[derive(Debug, Clone)]
pub struct InsertChannel(pub Channel);

impl WriteOp for InsertChannel {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        check_name(tx.conn, &self.0)?;
        diesel::insert_into(alert_channel::table).values(&self.0).execute(tx.conn)?;
        Ok(())
    }
}

/// Updates a channel. [`StoreError::Conflict`] contains `version` or `name`.
#[derive(Debug, Clone)]
pub struct UpdateChannel(pub Channel);

impl WriteOp for UpdateChannel {
    type Output = Channel;

    fn apply(&self, tx: &mut Tx<'_>) -> Result<Channel, StoreError> {
        let version: i64 = alert_channel::table.find(self.0.id).select(alert_channel::version).get_result(tx.conn)?;
        if version != self.0.version {
            return Err(StoreError::Conflict("version".into()));
        }
        check_name(tx.conn, &self.0)?;
        let channel = Channel { version: version + 1, ..self.0.clone() };
        diesel::update(alert_channel::table.find(channel.id)).set(&channel).execute(tx.conn)?;
        Ok(channel)
    }
}

/// Deletes a channel and its pending messages.
#[derive(Debug, Clone, Copy)]
pub struct DeleteChannel(pub ChannelId);

impl WriteOp for DeleteChannel {
    type Output = ();

    fn apply(&self, tx: &mut Tx<'_>) -> Result<(), StoreError> {
        if diesel::delete(alert_channel::table.find(self.0)).execute(tx.conn)? == 0 {
            return Err(StoreError::NotFound);
        }
        let open = alert_delivery::state.eq_any(["waiting", "sending"]);
        diesel::update(alert_delivery::table.filter(alert_delivery::channel_id.eq(self.0)).filter(open))
            .set((alert_delivery::state.eq("failed"), alert_delivery::last_error.eq("the channel was deleted")))
            .execute(tx.conn)?;
        Ok(())
    }
}

/// A channel.
#[derive(Debug, Clone, Copy)]
pub struct GetChannel(pub ChannelId);

impl ReadOp for GetChannel {
    type Output = Option<Channel>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        Ok(alert_channel::table.find(self.0).select(Channel::as_select()).get_result(from.conn).optional()?)
    }
}

/// All channels, by name.
#[derive(Debug, Clone, Copy)]
pub struct ListChannels;

impl ReadOp for ListChannels {
    type Output = Vec<Channel>;

    fn read(&self, from: &mut Source<'_>) -> Result<Self::Output, StoreError> {
        load_channels(from.conn)
    }
}

pub(super) fn load_channels(conn: &mut Conn) -> Result<Vec<Channel>, StoreError> {
    Ok(alert_channel::table.order(alert_channel::name).select(Channel::as_select()).load(conn)?)
}

/// Channels that are limited to a group follow its new name.
pub(super) fn rename_group(conn: &mut Conn, old: &str, new: &Group) -> Result<(), StoreError> {
    for mut channel in load_channels(conn)? {
        let Some(group) = channel.filter.groups.iter_mut().find(|group| *group == old) else { continue };
        group.clone_from(&new.name);
        diesel::update(alert_channel::table.find(channel.id))
            .set((
                alert_channel::filter.eq(&channel.filter),
                alert_channel::version.eq(channel.version + 1),
                alert_channel::update_by.eq(&new.update_by),
                alert_channel::update_time.eq(new.update_time),
            ))
            .execute(conn)?;
    }
    Ok(())
}

fn check_name(conn: &mut Conn, channel: &Channel) -> Result<(), StoreError> {
    let others = alert_channel::table.filter(alert_channel::name.eq(&channel.name)).filter(alert_channel::id.ne(channel.id));
    let taken = others.select(alert_channel::id).get_result::<ChannelId>(conn).optional()?.is_some();
    if taken { Err(StoreError::Conflict("name".into())) } else { Ok(()) }
}
