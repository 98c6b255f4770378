//! Time-ordered numbers of 64 bits (seed 003) that ids are built from.
//!
//! The upper half of a UUID of version 7 (RFC 9562) has 48 bits of milliseconds, 4 bits of version, and 12 bits that may be a
//! counter (section 6.2, method 1). The 60 bits without the version are the number of the object: it needs no storage, and the
//! index on the id also finds an object by its number.

use super::{InvalidId, Uuid};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::{fmt, marker::PhantomData, str::FromStr};

/// Bits of the count within a millisecond.
const COUNT: u32 = 12;
/// Bits of a number: it fits the signed 64 bits of SQL and Java.
const BITS: u32 = 48 + COUNT;

/// Replaces an id where only 64 bits fit. Sent as decimal digits in a string, because a JavaScript number holds at most 53 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Number(u64);

impl Number {
    /// The number of an id. An id that a client chose has a number too, but other ids may share it.
    #[must_use]
    pub fn of(id: Uuid) -> Self {
        let (upper, _) = id.as_u64_pair();
        Self(upper >> 16 << COUNT | upper & 0xfff)
    }

    /// For each UUID version the first and the last id with this number, and no others between; empty if no id can have it.
    /// Client-chosen ids may share its millisecond.
    pub fn ranges(self) -> impl Iterator<Item = (Uuid, Uuid)> {
        let versions = if self.0 >> BITS == 0 { 0..16 } else { 0..0 };
        let upper = self.0 >> COUNT << 16 | self.0 & 0xfff;
        versions.map(move |version: u64| upper | version << COUNT).map(|upper| {
            // The lower 64 bits are arbitrary.
            (Uuid::from_u64_pair(upper, 0), Uuid::from_u64_pair(upper, u64::MAX))
        })
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for Number {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        let is_plain = matches!(text.as_bytes(), [b'0'] | [b'1'..=b'9', ..]) && text.len() < 20;
        let number = text.parse().ok().filter(|_| is_plain);
        number.map(Self).ok_or_else(|| InvalidId(text.chars().take(80).collect()))
    }
}

impl Serialize for Number {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Number {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for Number {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Number".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^(0|[1-9][0-9]{0,18})$" })
    }
}

/// A reference to an object: by its id or by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NumberOr<T> {
    /// By its id.
    Id(T),
    /// By its number, which has fewer digits than an id has.
    Number(Number),
}

impl<T: FromStr<Err = InvalidId>> FromStr for NumberOr<T> {
    type Err = InvalidId;
    fn from_str(text: &str) -> Result<Self, InvalidId> {
        text.parse().map(Self::Id).or_else(|invalid| text.parse().map(Self::Number).map_err(|_| invalid))
    }
}

#[cfg(feature = "broker")]
impl<T> schemars::JsonSchema for NumberOr<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "IdOrNumber".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let pattern = "^([0-9a-fA-F]{32}|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|0|[1-9][0-9]{0,18})$";
        schemars::json_schema!({ "type": "string", "pattern": pattern })
    }
}

/// A reference in a request body: by number (as a number or a string) or by id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Named<T>(pub NumberOr<T>);

impl<T: fmt::Display> Serialize for Named<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0 {
            NumberOr::Id(id) => serializer.collect_str(id),
            NumberOr::Number(number) => number.serialize(serializer),
        }
    }
}

impl<'de, T: FromStr<Err = InvalidId>> Deserialize<'de> for Named<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Read<T>(PhantomData<T>);
        impl<T: FromStr<Err = InvalidId>> serde::de::Visitor<'_> for Read<T> {
            type Value = Named<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an id (a number or a text)")
            }

            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Self::Value, E> {
                self.visit_str(&number.to_string())
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Self::Value, E> {
                text.parse().map(Named).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Read(PhantomData))
    }
}

#[cfg(feature = "broker")]
impl<T> schemars::JsonSchema for Named<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NamedId".into()
    }

    fn json_schema(schemas: &mut schemars::SchemaGenerator) -> schemars::Schema {
        let text = NumberOr::<T>::json_schema(schemas);
        schemars::json_schema!({ "anyOf": [text, { "type": "integer", "minimum": 0, "maximum": u64::MAX >> 4 }] })
    }
}

/// Makes increasing numbers that never repeat, whatever the clock does: the time in milliseconds with a 12-bit counter, or the last number
/// plus one if that is greater. So it runs ahead of a clock that was set back, and of a millisecond with more than 4,096 numbers.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

/// The counter of this process: the upper halves of all ids made here differ, and so do the upper halves of the block ids of
/// different runs.
pub static MADE: Counter = Counter::new();

impl Counter {
    /// A new counter.
    #[must_use]
    pub const fn new() -> Self {
        Self(AtomicU64::new(0))
    }

    /// The next number.
    pub fn next(&self, now: Timestamp) -> Number {
        let now = (now.0.max(0) as u64) << COUNT;
        let after = |last: u64| now.max(last + 1);
        // `fetch_update` returns the previous value; applying `after` to it gives the new one.
        Number(self.0.fetch_update(Relaxed, Relaxed, |last| Some(after(last))).map_or(now, after))
    }

    /// Continues after the numbers of an earlier process, if this is an id of version 7: the clock may have been set back while
    /// no process ran.
    pub fn resume(&self, last: Uuid) {
        if last.get_version_num() == 7 {
            self.0.fetch_max(Number::of(last).0, Relaxed);
        }
    }

    /// The first id later than every id made until `ahead_ms` milliseconds from now, or until that long after the last one made: an
    /// id that a broker made is not later, if clocks are roughly right.
    pub fn not_made_before(&self, now: Timestamp, ahead_ms: u64) -> Uuid {
        let ms = (now.0.max(0) as u64).max(self.0.load(Relaxed) >> COUNT).saturating_add(ahead_ms);
        Uuid::from_u64_pair(ms.min((1 << 48) - 1) << 16, 0)
    }

    /// The next id: a UUID of version 7 around the next number, of which 62 bits are random.
    pub fn next_id(&self, now: Timestamp) -> Uuid {
        let Number(upper) = self.next(now);
        let mut rest = [0; 10];
        rest[..2].copy_from_slice(&(upper as u16 & 0xfff).to_be_bytes());
        rest[2..].copy_from_slice(&Uuid::new_v4().as_bytes()[8..]);
        uuid::Builder::from_unix_timestamp_millis(upper >> COUNT, &rest).into_uuid()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// Milliseconds since 1970 of a time in 2096.
    const LATER: i64 = 4_000_000_000_000;

    proptest! {
        #[test]
        fn numbers_rise_whatever_the_clock_does(steps in proptest::collection::vec((-100_000_i64..100_000, 1_usize..9_000), 1..20)) {
            let counter = Counter::new();
            let (mut clock, mut last) = (1_700_000_000_000, Number(0));
            for (step, count) in steps {
                clock += step;
                for _ in 0..count {
                    let next = counter.next(Timestamp(clock));
                    prop_assert!(next > last, "{next} after {last}");
                    prop_assert!(next.0 >> COUNT >= clock as u64, "never before its time");
                    last = next;
                }
            }
        }

        #[test]
        fn an_id_is_found_by_its_number(upper: u64, lower: u64, other: u64) {
            let id = Uuid::from_u64_pair(upper, lower);
            let number = Number::of(id);
            let of_it: Vec<_> = number.ranges().filter(|(first, last)| *first <= id && id <= *last).collect();
            prop_assert_eq!(of_it.len(), 1, "in one of them");
            for (first, last) in number.ranges() {
                prop_assert_eq!((Number::of(first), Number::of(last)), (number, number));
                prop_assert_eq!(first.as_u64_pair().0, last.as_u64_pair().0, "nothing else is between them");
            }
            prop_assert_eq!(number.ranges().count(), 16);
            let (first, last) = of_it[0];
            prop_assert_eq!(number.to_string().parse(), Ok(number));
            prop_assert!(i64::try_from(number.0).is_ok());
            // Text order in an index equals the order of the ids.
            let text = |id: Uuid| id.as_simple().to_string();
            prop_assert!(text(first) <= text(id) && text(id) <= text(last));
            // Only the version may differ between upper halves with the same number.
            let stranger = Uuid::from_u64_pair(other, lower);
            let alike = upper & !0xf000 == other & !0xf000;
            prop_assert_eq!(Number::of(stranger) == number, alike);
        }

        #[test]
        fn what_an_id_is_made_around_is_its_number(now in 0..(1_i64 << 47)) {
            let counter = Counter::new();
            let ids: Vec<Uuid> = (0..3).map(|_| counter.next_id(Timestamp(now))).collect();
            for (nth, id) in ids.iter().enumerate() {
                prop_assert_eq!(Number::of(*id).0, ((now as u64) << COUNT).max(1) + nth as u64);
                prop_assert_eq!(id.get_version_num(), 7);
                prop_assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
            }
        }
    }

    #[test]
    fn threads_share_no_number() {
        static COUNTER: Counter = Counter::new();
        let make = |thread: i64| {
            // Their clocks differ and stand still, so every counter overflows.
            let made: Vec<Number> = (0..20_000).map(|_| COUNTER.next(Timestamp(LATER + thread % 2))).collect();
            assert!(made.windows(2).all(|two| two[0] < two[1]));
            made
        };
        let threads: Vec<_> = (0..4).map(|thread| std::thread::spawn(move || make(thread))).collect();
        let all: HashSet<Number> = threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect();
        assert_eq!(all.len(), 80_000);
    }

    #[test]
    fn a_process_goes_on_where_one_before_it_was() {
        let (before, after) = (Counter::new(), Counter::new());
        let last = before.next_id(Timestamp(LATER));
        after.resume(last);
        // Random ids contain no time.
        after.resume(Uuid::from_u64_pair(!0xf000 | 0x4000, 0));
        assert_eq!(after.next(Timestamp(LATER - 1_000)).0, Number::of(last).0 + 1);
    }

    #[test]
    fn a_number_is_read_in_one_form() {
        for bad in ["", "-1", "+1", "01", "1 ", "0x1", "99999999999999999999", "6f9619ff8b86d011b42d00c04fc964ff", "½"] {
            assert!(bad.parse::<Number>().is_err(), "{bad}");
        }
        assert_eq!("9999999999999999999".parse::<Number>().map(|number| number.ranges().count()), Ok(0), "no id has it");
        assert_eq!(serde_json::to_string(&Number(1 << 59)).expect("json"), "\"576460752303423488\"");
        // A text that could be either is an id.
        let digits = "12345678901234567890123456789012";
        assert!(matches!(digits.parse::<NumberOr<super::super::JobId>>(), Ok(NumberOr::Id(_))));
        assert!(matches!("12".parse::<NumberOr<super::super::JobId>>(), Ok(NumberOr::Number(Number(12)))));
    }
}
