//! Nodes: what is known of a machine, and what it says of itself now and then.

use super::ids::NodeId;
use super::time::Timestamp;
use serde::Serialize;

/// What a node says of itself when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Its id.
    pub node_id: NodeId,
    /// Its name, for people; none: it sent none. [`shown_name`] is what others see.
    #[serde(skip)]
    pub name: Option<String>,
    /// Console or Web.
    pub node_type: String,
    /// Where it is.
    pub ip_address: String,
    /// Processors.
    pub processor_count: u32,
    /// The group it belongs to.
    pub group: String,
    /// windows, linux …
    pub operating_system: String,
    /// MB.
    pub memory: u64,
    /// Blocks that it takes at once.
    pub max_process_count: u32,
    /// Sites that it works on at once, keeping their pace: blocks of sites that it takes besides the others. Absent: it knows
    /// nothing of pace, and is given one request of a site at a time.
    #[serde(skip)]
    pub max_sites: Option<u32>,
    /// Programs that it takes at once, as it said when it connected: 0 if it takes none at all; absent: it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_programs: Option<u32>,
}

/// The longest name of a node, in characters.
pub const MOST_NAME: usize = 100;

/// Digits of a node's id that stand for its name while it has none.
const SHORT_ID: usize = 8;
/// Digits of an id.
const ID_DIGITS: usize = 32;

/// What people see of a node: its name, or the last digits of its id.
#[must_use]
pub fn shown_name(id: NodeId, name: Option<&str>) -> String {
    name.map_or_else(|| id.to_string().split_off(ID_DIGITS - SHORT_ID), str::to_owned)
}

/// Whether a text can be the name of a node.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MOST_NAME && !text.chars().any(char::is_control)
}

/// Which start of an agent it is that has a node's id: so two agents with one id are told from one that comes again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// A mark that it made when it started.
    pub id: uuid::Uuid,
    /// The mark of the start before, in the same data folder.
    pub after: Option<uuid::Uuid>,
}

impl Instance {
    /// It is the same agent as the one with this mark, which may have been started again since.
    #[must_use]
    pub fn continues(&self, other: uuid::Uuid) -> bool {
        self.id == other || self.after == Some(other)
    }
}

/// What of a node a block takes up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Room {
    /// One of its places for blocks.
    Block,
    /// One of its places for blocks of a site whose pace is kept: they are many, since such a block mostly waits.
    Site,
}

impl NodeFacts {
    /// How much of this it has.
    #[must_use]
    pub fn room(&self, room: Room) -> u32 {
        match room {
            Room::Block => self.max_process_count,
            Room::Site => self.max_sites.unwrap_or(self.max_process_count),
        }
    }

    /// See [`shown_name`].
    #[must_use]
    pub fn shown_name(&self) -> String {
        shown_name(self.node_id, self.name.as_deref())
    }

    /// Whether it is in a group; none means any.
    #[must_use]
    pub fn in_group(&self, group: Option<&str>) -> bool {
        group.is_none_or(|group| self.group.eq_ignore_ascii_case(group))
    }

    /// Whether its operating system is the one asked for: a part of its name, without case; none means any.
    #[must_use]
    pub fn has_os(&self, os: Option<&str>) -> bool {
        os.is_none_or(|os| self.operating_system.to_lowercase().contains(&os.to_lowercase()))
    }
}

/// How busy a node is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeLoad {
    /// Blocks and programs at work.
    pub process_count: u32,
    /// Percent of all processors.
    pub cpu: u32,
    /// MB.
    pub free_memory: u64,
}

/// A node as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// What it said of itself.
    #[serde(flatten)]
    pub facts: NodeFacts,
    /// The operator's word: whether it gets work.
    pub is_enabled: bool,
    /// It gets nothing new, and ends when it has nothing left.
    pub is_draining: bool,
    /// It is told to end.
    pub is_leaving: bool,
    /// Why it is disabled, draining or leaving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who came first with it: the role of its token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who said the last word on it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When; as long as nobody has, when it was first seen.
    pub update_time: Timestamp,
    /// When it was first seen.
    pub creation_time: Timestamp,
    /// When it was last heard.
    pub last_online_time: Timestamp,
}

impl NodeRecord {
    /// It may be given work.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_enabled && !self.is_draining && !self.is_leaving
    }
}

/// What an operator wants of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWork {
    /// It gets work.
    Enabled,
    /// It finishes what it has, and gets nothing more.
    Disabled,
    /// It finishes what it has, and ends.
    Draining,
    /// It ends, at once.
    Leaving,
}
