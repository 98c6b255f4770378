//! Nodes: facts about a machine, and the load that it reports.

use super::ids::NodeId;
use super::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Facts that a node reports when it connects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeFacts {
    /// Its id.
    pub node_id: NodeId,
    /// Its name, for people; `None` if it sent none. [`shown_name`] is the displayed name.
    #[serde(skip)]
    pub name: Option<String>,
    /// Console or Web.
    pub node_type: String,
    /// Its IP address.
    pub ip_address: String,
    /// Processors.
    pub processor_count: u32,
    /// The group it belongs to.
    pub group: String,
    /// windows, linux …
    pub operating_system: String,
    /// Memory in MB.
    pub memory: u64,
    /// Maximum number of concurrent blocks.
    pub max_process_count: u32,
    /// Maximum number of sites that it works on at once with a pace: slots for blocks of sites, in addition to the others. Absent: it does
    /// not support pacing, and gets one request of a site at a time.
    #[serde(skip)]
    pub max_sites: Option<u32>,
    /// Maximum number of concurrent programs as reported at connect: 0 if it accepts none; absent if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_programs: Option<u32>,
}

/// The longest name of a node, in characters.
pub const MOST_NAME: usize = 100;

/// Number of id digits that are shown when a node has no name.
const SHORT_ID: usize = 8;
/// Digits of an id.
const ID_DIGITS: usize = 32;

/// The displayed name of a node: its name, or the last digits of its id.
#[must_use]
pub fn shown_name(id: NodeId, name: Option<&str>) -> String {
    name.map_or_else(|| id.to_string().split_off(ID_DIGITS - SHORT_ID), str::to_owned)
}

/// Whether a text is a valid node name.
#[must_use]
pub fn is_name(text: &str) -> bool {
    !text.trim().is_empty() && text.chars().count() <= MOST_NAME && !text.chars().any(char::is_control)
}

/// Identifies one start of an agent, to distinguish two agents with the same id from one that reconnects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// A random mark that the agent made when it started.
    pub id: uuid::Uuid,
    /// The mark of the previous start with the same data folder.
    pub after: Option<uuid::Uuid>,
}

impl Instance {
    /// Whether it is the agent with this mark, possibly restarted since.
    #[must_use]
    pub fn continues(&self, other: uuid::Uuid) -> bool {
        self.id == other || self.after == Some(other)
    }
}

/// The kinds of slots of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SlotKind {
    /// A slot for a block.
    Block,
    /// A slot for a block of a paced site: there are many, because such a block mostly waits.
    Site,
}

impl NodeFacts {
    /// The number of its slots of this kind.
    #[must_use]
    pub fn slots(&self, kind: SlotKind) -> u32 {
        match kind {
            SlotKind::Block => self.max_process_count,
            SlotKind::Site => self.max_sites.unwrap_or(self.max_process_count),
        }
    }

    /// See [`shown_name`].
    #[must_use]
    pub fn shown_name(&self) -> String {
        shown_name(self.node_id, self.name.as_deref())
    }

    /// Whether it is in the group; `None` matches every node.
    #[must_use]
    pub fn in_group(&self, group: Option<&str>) -> bool {
        group.is_none_or(|group| self.group.eq_ignore_ascii_case(group))
    }

    /// Whether its operating system's name contains this text, ignoring case; `None` matches every node.
    #[must_use]
    pub fn has_os(&self, os: Option<&str>) -> bool {
        os.is_none_or(|os| self.operating_system.to_lowercase().contains(&os.to_lowercase()))
    }
}

/// The load of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeLoad {
    /// Running blocks and programs.
    pub process_count: u32,
    /// CPU use in percent of all processors.
    pub cpu: u32,
    /// Free memory in MB.
    pub free_memory: u64,
}

/// A load that is like the stored one is not stored again for this many milliseconds.
const STORE_EVERY_MS: i64 = 30_000;
/// A difference of this many percent of the processors is stored.
const CPU_NEWS: u32 = 5;
/// A difference of one part in this many of the free memory is news.
const MEMORY_NEWS: u64 = 20;

impl NodeLoad {
    /// A stored load is followed by another one within this many milliseconds, if the node is connected.
    pub const VALID_MS: i64 = 2 * STORE_EVERY_MS;

    /// Whether this load is to be stored, after `stored` was stored this many milliseconds ago. Most nodes of a fleet do the same as
    /// before, so this is what a heartbeat costs.
    #[must_use]
    pub fn is_news(&self, stored: &Self, age_ms: i64) -> bool {
        self.process_count != stored.process_count
            || self.cpu.abs_diff(stored.cpu) >= CPU_NEWS
            || self.free_memory.abs_diff(stored.free_memory) > stored.free_memory / MEMORY_NEWS
            || age_ms >= STORE_EVERY_MS
    }
}

/// A node as it is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct NodeRecord {
    /// Facts that it reported.
    #[serde(flatten)]
    pub facts: NodeFacts,
    /// The operator's setting: whether it gets work.
    pub is_enabled: bool,
    /// It gets no new work, and shuts down when it has finished.
    pub is_draining: bool,
    /// It has to shut down.
    pub is_leaving: bool,
    /// Why it is disabled, draining or leaving.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who first connected it: the role of its token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// Who last changed its settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_by: Option<String>,
    /// When; until the first change, when it was first seen.
    pub update_time: Timestamp,
    /// When it was first seen.
    pub creation_time: Timestamp,
    /// When it last sent something.
    pub last_online_time: Timestamp,
}

impl NodeRecord {
    /// It may get work.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.is_enabled && !self.is_draining && !self.is_leaving
    }
}

/// The operator's setting for a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeWork {
    /// It gets work.
    Enabled,
    /// It finishes what it has, and gets nothing new.
    Disabled,
    /// It finishes what it has, and shuts down.
    Draining,
    /// It shuts down at once.
    Leaving,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_like_the_stored_one_is_stored_twice_a_minute() {
        let stored = NodeLoad { process_count: 2, cpu: 40, free_memory: 2_000 };
        for same in [NodeLoad { cpu: 44, ..stored }, NodeLoad { cpu: 36, ..stored }, NodeLoad { free_memory: 2_100, ..stored }] {
            assert!(!same.is_news(&stored, 29_999), "{same:?}");
            assert!(same.is_news(&stored, 30_000), "{same:?}");
        }
        for other in [
            NodeLoad { process_count: 1, ..stored },
            NodeLoad { cpu: 45, ..stored },
            NodeLoad { cpu: 35, ..stored },
            NodeLoad { free_memory: 1_899, ..stored },
        ] {
            assert!(other.is_news(&stored, 0), "{other:?}");
        }
    }
}
