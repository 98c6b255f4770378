//! Applications: a program on one node or on many.
//!
//! [`ApplicationSettings`] is a job's description of its program; [`choice`] selects the nodes; [`state_machine`] tracks the state of a run
//! for each instance.

pub mod choice;
mod settings;
#[cfg(test)]
mod simulation;
pub mod state_machine;
mod words;

pub use settings::{ApplicationSettings, Choice, PACKAGES};
pub use words::{Place, expand, of_command};
