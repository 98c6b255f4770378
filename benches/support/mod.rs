//! The clients of the `queue` bench: threads with blocking sockets, since they share two cores with the broker.

pub mod database;
pub mod http;
pub mod node;
pub mod process;
pub mod producer;
pub mod run;
pub mod socket;
pub mod worker;
