//! Applications: a program on one node or on many.
//!
//! [`ApplicationSettings`] is what a job says of its program; [`choice`] finds the nodes for it; [`life`] is where a run of
//! it is, instance by instance.

pub mod choice;
mod settings;
#[cfg(test)]
mod simulation;
pub mod state_machine;
mod words;

pub use settings::{ApplicationSettings, Choice, PACKAGES, package_hash};
pub use words::{Place, expand, of_command, split};
