//! Ids. All have 128 bits and are sent as 32 hexadecimal digits; the dashed form is accepted on input. A 60-bit number
//! stands for each of them where at most 64 bits fit.

mod number;

pub use number::{Counter, MADE, Named, Number, NumberOr};

use crate::domain::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// The text is not an id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an id: 32 hexadecimal digits, with or without dashes, are expected")]
pub struct InvalidId(pub String);

/// The first or last digits of an id, used as a short form: 4 to 32 hexadecimal digits.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct IdPart(String);

impl IdPart {
    /// The digits, in lower case.
    #[must_use]
    pub fn digits(&self) -> &str {
        &self.0
    }

    /// Whether this id, in its 32-digit form, begins or ends with them.
    #[must_use]
    pub fn is_of(&self, id: &str) -> bool {
        id.starts_with(&self.0) || id.ends_with(&self.0)
    }
}

impl FromStr for IdPart {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.replace('-', "").to_ascii_lowercase();
        if (4..=32).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Ok(Self(digits));
        }
        Err(format!("4 to 32 hexadecimal digits are expected, not `{}`", text.chars().take(80).collect::<String>()))
    }
}

impl TryFrom<String> for IdPart {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for IdPart {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IdPart".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-fA-F]{4,32}$" })
    }
}

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.as_simple().fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;
            fn from_str(text: &str) -> Result<Self, InvalidId> {
                // The parser would also accept the braced and URN forms, but the protocol does not use them.
                match text.len() {
                    32 | 36 => Uuid::try_parse(text).map(Self).map_err(|_| InvalidId(text.to_owned())),
                    _ => Err(InvalidId(text.chars().take(80).collect())),
                }
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(self.0.as_simple().encode_lower(&mut [0; 32]))
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
                text.parse().map_err(D::Error::custom)
            }
        }

        #[cfg(feature = "broker")]
        impl schemars::JsonSchema for $name {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($name).into()
            }

            fn json_schema(generator: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schema(generator.contract().is_serialize())
            }
        }
    };
}

macro_rules! made_here {
    ($($name:ident),*) => {$(
        impl $name {
            /// The next id of this process, from the current time: see [`Counter`]. Ids that are made in sequence are adjacent in an
            /// index, so that many new rows change few of its pages.
            #[must_use]
            pub fn at(now: Timestamp) -> Self {
                Self(MADE.next_id(now))
            }

            /// A new random id (UUID version 4).
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }

            /// The number for this id.
            #[must_use]
            pub fn number(self) -> Number {
                Number::of(self.0)
            }
        }
    )*};
}

made_here!(Identity, JobId, GroupId, NodeId, WorkerId, ChannelId, BrokerId);

/// An id in the OpenAPI document: both forms are accepted, one is written.
#[cfg(feature = "broker")]
fn schema(written: bool) -> schemars::Schema {
    let pattern = if written { "^[0-9a-f]{32}$" } else { "^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$" };
    schemars::json_schema!({ "type": "string", "pattern": pattern })
}

/// A peer that calls the broker under an id of its own: a node or a worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PeerId {
    /// A node.
    Node(NodeId),
    /// A worker.
    Worker(WorkerId),
}

impl PeerId {
    /// The kind name of a worker.
    pub const WORKER: &str = "worker";

    /// The kind of the peer.
    #[must_use]
    pub fn kind(self) -> &'static str {
        match self {
            Self::Node(_) => "node",
            Self::Worker(_) => Self::WORKER,
        }
    }
}

impl fmt::Display for PeerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node(id) => id.fmt(f),
            Self::Worker(id) => id.fmt(f),
        }
    }
}

id!(
    /// A job: what to run and when.
    JobId
);
id!(
    /// A run: one execution of a job. The seeds call it *identity*.
    Identity
);
id!(
    /// A node: a machine that runs an agent. The agent chooses it and keeps it.
    NodeId
);
id!(
    /// A worker: a user's program that watches class names.
    WorkerId
);
id!(
    /// A group.
    GroupId
);
id!(
    /// A channel that alerts go to.
    ChannelId
);
id!(
    /// A broker's process, from its start to its end.
    BrokerId
);
id!(
    /// The trace id of a run in the W3C format: 32 hexadecimal digits.
    TraceId
);
id!(
    /// A block: its upper half is the upper half of the run's identity, its lower half the block's number in the run,
    /// so that finding a block by its id needs no index.
    BlockId
);

/// The number of a block in its run, from 0.
pub type Seq = u32;

impl BlockId {
    /// The id of block number `seq` of the run `identity`.
    #[must_use]
    pub fn new(identity: Identity, seq: Seq) -> Self {
        let upper = identity.0.as_u128() >> 64 << 64;
        Self(Uuid::from_u128(upper | u128::from(seq)))
    }

    /// The block's number if the id belongs to the run `identity`; `None` if it belongs to another run or is not a block id.
    #[must_use]
    pub fn seq_in(self, identity: Identity) -> Option<Seq> {
        let (upper, lower) = self.0.as_u64_pair();
        (upper == identity.0.as_u64_pair().0).then_some(lower).and_then(|n| Seq::try_from(n).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_are_read_and_one_is_written() {
        let id: JobId = "6F9619FF-8B86-D011-B42D-00C04FC964FF".parse().expect("dashed");
        assert_eq!(id.to_string(), "6f9619ff8b86d011b42d00c04fc964ff");
        assert_eq!(id.to_string().parse::<JobId>(), Ok(id));
        assert_eq!(serde_json::to_string(&id).expect("json"), "\"6f9619ff8b86d011b42d00c04fc964ff\"");
        for bad in ["", "6f", "{6f9619ff8b86d011b42d00c04fc964ff}", "6f9619ff8b86d011b42d00c04fc964fg"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_block_knows_its_run() {
        let (run, other) = (Identity::random(), Identity::random());
        let block = BlockId::new(run, 4_000_000_000);
        assert_eq!(block.seq_in(run), Some(4_000_000_000));
        assert_eq!(block.seq_in(other), None);
        assert_eq!(BlockId(run.0).seq_in(run), None, "a run's own id is no block of it");
    }
}
