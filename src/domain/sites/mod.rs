//! Sites, and how often requests may be sent to them.
//!
//! A site is the unit of politeness: a host, a registrable domain or an address ([`SiteBy`]). [`Pace`] is the allowed rate
//! at a site, [`SiteState`] is the effect of its past responses. Nothing here reads a clock or keeps a list: time is passed in,
//! and the caller keeps one state for each [`site_key`].

mod board;
mod holds;
mod key;
mod pace;
mod policy;
mod state;

#[cfg(test)]
mod lending_simulation;
#[cfg(test)]
mod lending_tests;
#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod turns_simulation;

pub use board::{Board, Granted, SiteView, ToBorrower, ToLender};
pub use holds::Holds;
pub use key::{SiteBy, host_of, host_of_name, is_hold_of, is_private, site_key, site_name};
pub use pace::{DEFAULT_DELAY_MS, DelayBy, Limits, MOST_CONNECTIONS, MOST_DELAY_MS, Pace, SiteRule, SiteRules, slowest};
pub use policy::{SitePolicy, url_at};
pub use state::{Begin, Ended, MOST_OPERATOR_MS, MOST_REST_MS, Outcome, SiteState, Why};
