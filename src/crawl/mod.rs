//! The crawl worker: follows the links of one site, breadth first, and records what it finds.
//!
//! It is an ordinary spider on the worker SDK: of a broker it has only the address. [`drive`] creates its job and its run and waits for
//! the end; the program around it provides the broker and the agent.

mod depths;
mod directives;
mod drive;
mod error;
mod lines;
mod links;
mod options;
mod outputs;
mod progress;
mod reach;
mod scope;
mod site;
mod sitemap;
mod starts;
mod state;
mod summary;
mod warc;
mod worker;

#[cfg(test)]
mod tests;

pub use drive::drive;
pub use error::CrawlError;
pub use options::CrawlOptions;
pub use outputs::check_outputs;
pub use site::{Site, serve};
pub use state::State;
pub use summary::{Outcome, Summary};
pub use worker::UNREAD;
