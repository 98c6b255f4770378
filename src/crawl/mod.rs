//! x
pub mod links;
