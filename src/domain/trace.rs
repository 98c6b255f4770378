//! Traces of runs (W3C Trace Context): the spans of a run are made from its record when an attempt or the run ends, so nothing is kept
//! for them while it runs. Ids of spans are derived from the run and the attempt: a broker that takes over continues the same trace.

#[cfg(feature = "agent")]
mod of_agent;
#[cfg(feature = "broker")]
mod of_run;

#[cfg(feature = "agent")]
pub use of_agent::{AgentWork, Counts, block_work_span, program_span};
#[cfg(feature = "broker")]
pub use of_run::{Attempt, BlockLeft, Peer, attempt_span, block_span, block_traceparent, run_spans};

use super::ids::{Identity, Seq};
use super::time::Timestamp;
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::str::FromStr;

/// The id of a span: 16 hexadecimal digits, never 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SpanId(pub u64);

impl SpanId {
    /// The span of a run, from its creation to its end.
    #[must_use]
    pub fn of_run(run: Identity) -> Self {
        Self::derived(run, 0, 0, 0)
    }

    /// The span from the time at which a run should begin to its first order.
    #[must_use]
    pub fn of_dispatch(run: Identity) -> Self {
        Self::derived(run, 1, 0, 0)
    }

    /// The span of an attempt of an instance.
    #[must_use]
    pub fn of_attempt(run: Identity, instance: u32, attempt: u32) -> Self {
        Self::derived(run, 2, instance.into(), attempt)
    }

    /// The span of a block at a node.
    #[must_use]
    pub fn of_block(run: Identity, block: Seq, attempt: u32) -> Self {
        Self::derived(run, 3, block.into(), attempt)
    }

    /// The span of what a node does for a block.
    #[must_use]
    pub fn of_block_work(run: Identity, block: Seq, attempt: u32) -> Self {
        Self::derived(run, 4, block.into(), attempt)
    }

    /// The span of a program on its node.
    #[must_use]
    pub fn of_program(run: Identity, instance: u32, attempt: u32) -> Self {
        Self::derived(run, 5, instance.into(), attempt)
    }

    fn derived(run: Identity, kind: u8, part: u64, attempt: u32) -> Self {
        let mut hash = Sha256::new();
        hash.update(run.0.as_bytes());
        hash.update([kind]);
        hash.update(part.to_be_bytes());
        hash.update(attempt.to_be_bytes());
        let digest = hash.finalize();
        let first: [u8; 8] = std::array::from_fn(|i| digest[i]);
        Self(u64::from_be_bytes(first).max(1))
    }
}

impl fmt::Display for SpanId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for SpanId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let is_hex = text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit());
        let id = u64::from_str_radix(text, 16).ok().filter(|id| is_hex && *id != 0);
        id.map(Self).ok_or_else(|| "a span id of 16 hexadecimal digits, not all 0, is expected".to_owned())
    }
}

impl Serialize for SpanId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SpanId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        std::borrow::Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(feature = "broker")]
impl schemars::JsonSchema for SpanId {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "SpanId".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "pattern": "^[0-9a-f]{16}$" })
    }
}

/// The trace that a caller belongs to, and its span there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceContext {
    /// 32 hexadecimal digits.
    pub trace_id: String,
    /// The caller's span.
    pub span: Option<SpanId>,
}

impl TraceContext {
    /// Reads the value of a `traceparent` header. A span that cannot be read is left out.
    #[must_use]
    pub fn parse(traceparent: &str) -> Option<Self> {
        let mut parts = traceparent.split('-').skip(1);
        let trace = parts.next()?;
        let is_trace = trace.len() == 32 && trace.bytes().all(|b| b.is_ascii_hexdigit()) && trace.bytes().any(|b| b != b'0');
        is_trace.then(|| Self { trace_id: trace.to_ascii_lowercase(), span: parts.next().and_then(|span| span.parse().ok()) })
    }
}

/// A value of an attribute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A text.
    Text(String),
    /// A number.
    Int(i64),
}

/// Which side of a call a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// None: it is within the program.
    Internal,
    /// It waits for another program that does the work: a worker, a node, or the receiver of a callback.
    Client,
    /// It does the work for another program.
    Server,
}

/// How a span ended.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Status {
    /// Neither a success nor a failure.
    #[default]
    Unset,
    /// A success.
    Ok,
    /// A failure, with its reason.
    Error(String),
}

/// One span of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The trace.
    pub trace: u128,
    /// Its id.
    pub id: SpanId,
    /// The span that it belongs to.
    pub parent: Option<SpanId>,
    /// Its name.
    pub name: String,
    /// Which side of a call it is.
    pub side: Side,
    /// When it began.
    pub start: Timestamp,
    /// When it ended, not before it began.
    pub end: Timestamp,
    /// How it ended.
    pub status: Status,
    /// What it is about.
    pub attributes: Vec<(&'static str, Value)>,
    /// What happened during it.
    pub events: Vec<(Timestamp, &'static str)>,
}

impl Span {
    /// About how many bytes of memory it takes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let text = |value: &Value| if let Value::Text(text) = value { text.len() } else { 0 };
        let attributes: usize = self.attributes.iter().map(|(_, value)| size_of::<(&str, Value)>() + text(value)).sum();
        let status = if let Status::Error(why) = &self.status { why.len() } else { 0 };
        size_of::<Self>() + self.name.len() + status + attributes + self.events.len() * size_of::<(Timestamp, &str)>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_caller_names_its_trace_and_its_span() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let context = |span| Some(TraceContext { trace_id: trace.to_owned(), span });
        let span = Some(SpanId(0xb7ad_6b71_6920_3331));
        assert_eq!(TraceContext::parse(&format!("00-{trace}-b7ad6b7169203331-01")), context(span));
        assert_eq!(TraceContext::parse(&format!("00-{}-B7AD6B7169203331-01", trace.to_uppercase())), context(span));
        assert_eq!(TraceContext::parse(&format!("00-{trace}")), context(None));
        assert_eq!(TraceContext::parse(&format!("00-{trace}-0000000000000000-01")), context(None));
        for wrong in ["", "00", "00-xyz-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01"] {
            assert_eq!(TraceContext::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ids_of_spans_are_the_same_in_each_broker() {
        let run = Identity::random();
        assert_eq!(SpanId::of_attempt(run, 0, 1), SpanId::of_attempt(run, 0, 1));
        let ids = [
            SpanId::of_run(run),
            SpanId::of_dispatch(run),
            SpanId::of_attempt(run, 0, 1),
            SpanId::of_attempt(run, 1, 0),
            SpanId::of_program(run, 0, 1),
        ];
        assert!(ids.iter().enumerate().all(|(i, id)| !ids[..i].contains(id)), "{ids:?}");
        assert_eq!(ids[0].to_string().parse(), Ok(ids[0]));
        for wrong in ["", "0000000000000000", "+000000000000001", "123", "00000000000000001"] {
            assert!(wrong.parse::<SpanId>().is_err(), "{wrong}");
        }
    }
}
