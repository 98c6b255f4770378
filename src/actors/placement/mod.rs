//! Reserves slots at nodes and workers for runs.
//!
//! - Runs of block jobs and nodes report to the [`dispatcher`]: a run the number of its ready blocks, a node the number of its free
//!   slots. When both exist, the dispatcher reserves a slot and sends the run a [`Permit`]. The run sends it to the node with a block.
//! - A task requests a slot at a worker from the [`allocator`], and receives a [`Permit`] when one is free. A run of a block job
//!   requests a worker from it, but no slot: its worker only receives results and pushes requests.
//! - A run of an application reserves slots for its programs in the [`fleet`], with one call.
//!
//! `domain/matchmaker`, `domain/worker_pool` and `domain/application/choice` decide. The dispatcher and the allocator are actors. The
//! fleet is a table with a lock: a run gets its answer at once, before it stores where its programs run.
//!
//! **Programs have no permit.** The slot of a program belongs to the run and not to its actor: the program continues while the actor is
//! rebuilt. A permit would free the slot together with the actor, and another run could get it before the new actor has read its rows.
//! So the fleet keeps the programs themselves (run, instance, attempt). A new actor reserves what it reads in its rows, which changes
//! nothing for programs that the fleet already has; the registry releases all programs of a run that has ended.

pub mod allocator;
pub mod dispatcher;
pub mod fleet;
mod permit;

pub use permit::{NodeSlot, Permit, WorkerSlot};
