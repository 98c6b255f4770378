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
}
