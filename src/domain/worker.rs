//! Workers as an operator sees them: the stored record and the operator's admin state.

use super::ids::WorkerId;
use super::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The operator's admin state for a worker. It survives disconnects of the worker and restarts of the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum WorkerState {
    /// It gets work.
    #[default]
    Enabled,
    /// It gets nothing new; it may finish its current tasks.
    Disabled,
    /// As `Disabled`, and it has to disconnect when it is done.
    Draining,
    /// An operator evicted it; the broker rejects it until it is allowed again.
    Kicked,
}

impl WorkerState {
    const ALL: [Self; 4] = [Self::Enabled, Self::Disabled, Self::Draining, Self::Kicked];

    /// The name as stored and sent.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Enabled => "enabled",
            Self::Disabled => "disabled",
            Self::Draining => "draining",
            Self::Kicked => "kicked",
        }
    }

    /// The state with this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.name() == name)
    }

    /// Whether it gets new work.
    #[must_use]
    pub fn is_open(self) -> bool {
        self == Self::Enabled
    }

    /// The state after an order. A kicked worker must first be allowed again, so enabling or draining a group of workers does not
    /// readmit it. `None`: the order is rejected.
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

/// Maximum number of workers that [`NotEligible::reason`] names.
const MOST_NAMED: usize = 5;

/// Why no connected worker is eligible for a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "t", content = "v", rename_all = "camelCase")]
pub enum NotEligible {
    /// No worker watches the class or the handler.
    Unwatched,
    /// An operator disabled or drains every worker that watches it; their ids and names.
    Disabled(Vec<(WorkerId, String)>),
    /// Workers watch it, and do not have what the job requires.
    Unsuitable,
}

impl NotEligible {
    /// The reason for people; `what` is the class or the handler.
    #[must_use]
    pub fn reason(&self, what: &str) -> String {
        match self {
            Self::Unwatched => format!("no worker watches {what}"),
            Self::Unsuitable => {
                format!("no worker that watches {what} is eligible: group, version and tags must match, and it must not be disabled")
            }
            Self::Disabled(workers) => {
                let shown = |(id, name): &(WorkerId, String)| if name.is_empty() { id.to_string() } else { format!("{id} ({name})") };
                let named: Vec<_> = workers.iter().take(MOST_NAMED).map(shown).collect();
                let more = workers.len().checked_sub(MOST_NAMED).filter(|more| *more > 0).map(|more| format!(" and {more} more"));
                format!(
                    "every worker that watches {what} is disabled or draining: {}{}; `{ENABLE}` gives it new work again",
                    named.join(", "),
                    more.unwrap_or_default()
                )
            }
        }
    }
}

/// The command that gives a disabled worker work again.
pub const ENABLE: &str = "webloom worker enable WORKER";

/// What an operator can do with a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum WorkerOrder {
    /// Let it have work.
    Enable,
    /// Give it nothing new.
    Disable,
    /// Give it nothing new, and make it disconnect when it is done.
    Drain,
    /// Evict it, and reject it from now on.
    Kick,
    /// Readmit a kicked worker.
    Allow,
}

/// Prefix of the tag that holds the address of a work, `<ip>:<port>`: a work is registered by its address (seed 003).
pub const ADDRESS: &str = "address=";
/// Characters of the address of a work, without its port.
pub const MOST_ADDRESS: usize = 100;

/// Whether the tag is a valid address of a work.
#[must_use]
pub fn is_address(tag: &str) -> bool {
    tag.strip_prefix(ADDRESS).is_some_and(|address| address.chars().count() <= MOST_ADDRESS + ":65535".len())
}

/// The identifying data of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Known {
    /// Its name, for people.
    pub name: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// Its capabilities or resources.
    pub tags: Vec<String>,
}

impl Known {
    /// The data after a watch message: exactly what it sent. But a worker that was registered by its address keeps its name, group and
    /// address where the message omits them.
    #[must_use]
    pub fn after_watch(self, said: Self) -> Self {
        let address = self.tags.into_iter().find(|tag| is_address(tag));
        let Some(address) = address.filter(|_| !said.tags.iter().any(|tag| is_address(tag))) else { return said };
        let mut tags = said.tags;
        tags.push(address);
        Self { name: said.name.or(self.name), group: said.group.or(self.group), tags }
    }

    /// The data after a registration: name, group and address as sent; its other tags stay.
    #[must_use]
    pub fn after_entry(self, said: Self) -> Self {
        let mut tags = said.tags;
        tags.extend(self.tags.into_iter().filter(|tag| !is_address(tag)));
        Self { tags, ..said }
    }
}

/// The stored record of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerRecord {
    /// Its id.
    pub id: WorkerId,
    /// Its name, for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// The group that it reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The version of its program.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its capabilities or resources.
    pub tags: Vec<String>,
    /// The handler names that it watches, or watched last.
    pub class_names: Vec<String>,
    /// Maximum number of concurrent tasks; absent if not reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slots: Option<u32>,
    /// The operator's admin state.
    pub state: WorkerState,
    /// The reason for the admin state.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Who set it: the role of a token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// When the admin state was set.
    pub update_time: Timestamp,
    /// Who first connected it: the role of its token, if tokens are in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// When it first connected.
    pub creation_time: Timestamp,
    /// When it last sent something, as far as known.
    pub last_seen: Timestamp,
}

impl WorkerRecord {
    /// Why it gets no new work, for people; `None`: it gets work.
    #[must_use]
    pub fn disabled(&self) -> Option<String> {
        let why = self.reason.as_deref().map(|why| format!(": {why}")).unwrap_or_default();
        (!self.state.is_open()).then(|| format!("it is {} by an operator{why}", self.state.name()))
    }
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
    fn why_no_worker_is_eligible_names_those_that_are_disabled() {
        let ids = [(); 7].map(|()| WorkerId::random());
        assert_eq!(NotEligible::Unwatched.reason("the class a.B"), "no worker watches the class a.B");
        let text = NotEligible::Disabled(vec![(ids[0], "first".into()), (ids[1], String::new())]).reason("sum");
        let expected = format!(
            "every worker that watches sum is disabled or draining: {} (first), {}; `webloom worker enable WORKER` gives it new work again",
            ids[0], ids[1]
        );
        assert_eq!(text, expected);
        let text = NotEligible::Disabled(ids.map(|id| (id, String::new())).to_vec()).reason("sum");
        assert!(text.contains(&ids[4].to_string()) && !text.contains(&ids[5].to_string()) && text.contains(" and 2 more;"), "{text}");
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
        // A registration replaces all data; without an earlier registration a watch message does too.
        assert_eq!(work().after_watch(known(Some("v"), None, &["address=a:1"])), known(Some("v"), None, &["address=a:1"]));
        assert_eq!(known(Some("w"), Some("g"), &["gpu"]).after_watch(Known::default()), Known::default());
        let said = || known(Some("v"), None, &["address=b:2"]);
        assert_eq!(known(None, Some("g"), &["gpu", "address=a:1"]).after_entry(said()), known(Some("v"), None, &["address=b:2", "gpu"]));
    }
}
