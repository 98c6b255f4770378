//! The clients of the `queue` bench: threads with blocking sockets, since they share two cores with the broker.

pub mod database;
pub mod http;
pub mod node;
pub mod process;
pub mod producer;
pub mod run;
#[expect(dead_code, reason = "shared with the other benches")]
pub mod socket;
pub mod worker;
