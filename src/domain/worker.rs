//! Workers as an operator sees them: what is kept of each, and the operator's word on it.

use super::ids::WorkerId;
use super::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The operator's word on a worker. It outlives the worker's connections and the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// It gets work.
    #[default]
    Enabled,
    /// It gets nothing new; what it has it may finish.
    Disabled,
    /// The same, and it was told to leave when it is done.
    Draining,
    /// It was put out, and is refused until it is allowed again.
    Kicked,
}

impl WorkerState {
    const ALL: [Self; 4] = [Self::Enabled, Self::Disabled, Self::Draining, Self::Kicked];

    /// The name, as it is stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Draining => "draining",
            Self::Kicked => "kicked",
        }
    }

    /// The state of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// It gets something new.
    #[must_use]
    pub fn is_open(self) -> bool {
        self == Self::Enabled
    }

    /// The state after an order. One that was put out is first to be allowed again: whoever enables or drains a group of
    /// workers does not let it in by that. None: the order is refused.
    #[must_use]
    pub fn after(self, order: WorkerOrder) -> Option<Self> {
        match (self, order) {
            (_, WorkerOrder::Kick) => Some(Self::Kicked),
            (Self::Kicked, WorkerOrder::Allow) => Some(Self::Enabled),
            (Self::Kicked, _) => None,
            (state, WorkerOrder::Allow) => Some(state),
            (_, WorkerOrder::Enable) => Some(Self::Enabled),
            (_, WorkerOrder::Disable) => Some(Self::Disabled),
            (_, WorkerOrder::Drain) => Some(Self::Draining),
        }
    }
}

/// What an operator can do with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerOrder {
    /// Give it work again.
    Enable,
    /// Give it nothing new.
    Disable,
    /// Give it nothing new, and tell it to leave when it is done.
    Drain,
    /// Put it out, and refuse it.
    Kick,
    /// Let in again one that was put out.
    Allow,
}

/// Begins the tag that keeps the address of a work, `<ip>:<port>`: it was registered by that (seed 003).
pub const ADDRESS: &str = "address=";
/// Characters of the address of a work, without its port.
pub const MOST_ADDRESS: usize = 100;

/// The tag is the address of a work, and no longer than one can be.
#[must_use]
pub fn is_address(tag: &str) -> bool {
    tag.strip_prefix(ADDRESS).is_some_and(|address| address.chars().count() <= MOST_ADDRESS + ":65535".len())
}

/// By what a worker is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// For people.
    pub name: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// What it can or has.
    pub tags: Vec<String>,
}

impl Known {
    /// What is known after it has said this as it begins to watch: just that. But one that was registered by its address
    /// is that one still: what it leaves out of its name, its group and its address stays.
    #[must_use]
    pub fn after_watch(self, said: Self) -> Self {
        let address = self.tags.into_iter().find(|tag| is_address(tag));
        let Some(address) = address.filter(|_| !said.tags.iter().any(|tag| is_address(tag))) else { return said };
        let mut tags = said.tags;
        tags.push(address);
        Self { name: said.name.or(self.name), group: said.group.or(self.group), tags }
    }

    /// What is known after it was registered: its name, its group and its address are as said. What else it can stays.
    #[must_use]
    pub fn after_entry(self, said: Self) -> Self {
        let mut tags = said.tags;
        tags.extend(self.tags.into_iter().filter(|tag| !is_address(tag)));
        Self { tags, ..said }
    }
}

/// What is kept of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRecord {
    /// Its id.
    pub id: WorkerId,
    /// For people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group that it says it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// What it can or has.
    pub tags: Vec<String>,
    /// The names that it watches, or watched last.
    pub class_names: Vec<String>,
    /// Tasks that it takes at a time; absent: it did not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The operator's word.
    pub state: WorkerState,
    /// Why.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who said so: the role of a token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When.
    pub update_time: Timestamp,
    /// Who came first with it: the role of its token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// When it was there for the first time.
    pub creation_time: Timestamp,
    /// When it was heard last, as far as it is known.
    pub last_seen: Timestamp,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_to_be_allowed_lets_in_again() {
        use WorkerOrder::{Allow, Disable, Drain, Enable, Kick};
        use WorkerState::{Disabled, Draining, Enabled, Kicked};
        for state in WorkerState::ALL {
            assert_eq!(WorkerState::named(state.name()), Some(state));
            assert_eq!(state.after(Kick), Some(Kicked));
            let orders = [Enable, Disable, Drain, Allow].map(|order| state.after(order));
            let expected = match state {
                Kicked => [None, None, None, Some(Enabled)],
                _ => [Some(Enabled), Some(Disabled), Some(Draining), Some(state)],
            };
            assert_eq!(orders, expected, "{state:?}");
        }
    }

    #[test]
    fn a_work_stays_who_it_is_when_it_begins_to_watch() {
        let known = |name: Option<&str>, group: Option<&str>, tags: &[&str]| Known {
            name: name.map(str::to_owned),
            group: group.map(str::to_owned),
            tags: tags.iter().map(|tag| (*tag).to_owned()).collect(),
        };
        let work = || known(Some("w"), Some("g"), &["address=10.0.0.7:80"]);
        assert_eq!(work().after_watch(known(None, None, &["gpu"])), known(Some("w"), Some("g"), &["gpu", "address=10.0.0.7:80"]));
        assert_eq!(work().after_watch(known(Some("v"), Some("h"), &[])), known(Some("v"), Some("h"), &["address=10.0.0.7:80"]));
        // Registered again it says all; and of a worker that never was, what it says is all.
        assert_eq!(work().after_watch(known(Some("v"), None, &["address=a:1"])), known(Some("v"), None, &["address=a:1"]));
        assert_eq!(known(Some("w"), Some("g"), &["gpu"]).after_watch(Known::default()), Known::default());
        let said = || known(Some("v"), None, &["address=b:2"]);
        assert_eq!(known(None, Some("g"), &["gpu", "address=a:1"]).after_entry(said()), known(Some("v"), None, &["address=b:2", "gpu"]));
    }
}
