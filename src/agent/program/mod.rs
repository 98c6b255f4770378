//! Programs.
pub mod launch;
