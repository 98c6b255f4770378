//! Ids. All are 128 bits and travel as 32 hexadecimal digits; the dashed form is accepted on input.

use crate::domain::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{fmt, str::FromStr};
use uuid::Uuid;

/// A text that is no id.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an id: 32 hexadecimal digits, with or without dashes, are expected")]
pub struct InvalidId(pub String);

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
                // Braced and URN forms, which the parser would take too, are nobody's wire format.
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

macro_rules! random {
    ($($name:ident),*) => {$(
        impl $name {
            /// A new random id (UUID version 4).
            #[must_use]
            pub fn random() -> Self {
                Self(Uuid::new_v4())
            }
        }
    )*};
}

random!(Identity, JobId, NodeId, WorkerId, ChannelId, BrokerId);

/// An id in the OpenAPI document: what is read in both forms is written in one.
#[cfg(feature = "broker")]
fn schema(written: bool) -> schemars::Schema {
    let pattern = if written { "^[0-9a-f]{32}$" } else { "^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12})$" };
    schemars::json_schema!({ "type": "string", "pattern": pattern })
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
    /// A channel that alerts go to.
    ChannelId
);
id!(
    /// A broker's process, from its start to its end.
    BrokerId
);
id!(
    /// A block: its upper half is the upper half of the run's identity, its lower half the block's number in the run,
    /// so that a block's id needs no index to be found by.
    BlockId
);

/// The upper half of the last identity, without its version: milliseconds and a count within them.
static LAST_IDENTITY: AtomicU64 = AtomicU64::new(0);

impl Identity {
    /// The next identity of this process, made now (UUID version 7, RFC 9562, with a counter of 12 bits): ids that are made
    /// one after the other lie side by side in an index, so that many new runs change few of its pages. Their upper halves
    /// differ, and with them the ids of their blocks.
    #[must_use]
    pub fn at(now: Timestamp) -> Self {
        let now = (now.0.max(0) as u64) << 12;
        let after = |last: u64| now.max(last + 1);
        let upper = LAST_IDENTITY.fetch_update(Relaxed, Relaxed, |last| Some(after(last))).map_or(now, after);
        let mut rest = [0; 10];
        rest[..2].copy_from_slice(&(upper as u16 & 0xfff).to_be_bytes());
        rest[2..].copy_from_slice(&Uuid::new_v4().as_bytes()[8..]);
        // The variant of a UUID stands in two of these bits, which are then not random: 62 are.
        Self(uuid::Builder::from_unix_timestamp_millis(upper >> 12, &rest).into_uuid())
    }
}

/// The number of a block in its run, from 0.
pub type Seq = u32;

impl BlockId {
    /// The id of block number `seq` of the run `identity`.
    #[must_use]
    pub fn new(identity: Identity, seq: Seq) -> Self {
        let upper = identity.0.as_u128() >> 64 << 64;
        Self(Uuid::from_u128(upper | u128::from(seq)))
    }

    /// The block's number, if the id belongs to the run `identity`; `None` if it is another run's, or no block's.
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
    fn identities_are_in_the_order_of_their_making() {
        let made: Vec<Identity> = (0..10_000).map(|n| Identity::at(Timestamp(4_000_000_000_000 + n / 9_000))).collect();
        assert!(made.windows(2).all(|two| two[0].0.as_u64_pair().0 < two[1].0.as_u64_pair().0), "also within a millisecond");
        assert!(made.iter().all(|id| id.0.get_version_num() == 7 && id.0.get_variant() == uuid::Variant::RFC4122));
        let (seconds, _) = made[0].0.get_timestamp().expect("a time").to_unix();
        assert_eq!(seconds, 4_000_000_000);
        let earlier = Identity::at(Timestamp(1_600_000_000_000));
        assert!(earlier > made[9_999], "also if the clock goes back");
        let lower: std::collections::HashSet<u64> = made.iter().map(|id| id.0.as_u64_pair().1).collect();
        assert_eq!(lower.len(), made.len());
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
