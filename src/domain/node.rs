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
    /// Programs that it takes at once, as it said when it connected: 0 if it takes none at all; absent: it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_programs: Option<u32>,
}

impl NodeFacts {
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
