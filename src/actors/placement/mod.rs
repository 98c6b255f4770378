//! Who reserves capacity of nodes and workers, and for what.
//!
//! - A run of a block job tells the [`dispatcher`] how many blocks are ready, and a node how many slots are free. When both exist, the
//!   dispatcher reserves a slot of the node and sends the run a [`Permit`]. The run sends it to the node together with a block.
//! - A task asks the [`allocator`] for a slot at a worker, and gets a [`Permit`] when one is free. A run of a block job asks it for a
//!   worker: its worker coordinates the run, which needs no slot.
//! - A run of an application reserves slots for its programs in the [`fleet`], with one call.
//!
//! `domain/matchmaker`, `domain/worker_pool` and `domain/application/choice` decide. The dispatcher and the allocator are actors; the
//! fleet is a table with a lock, because a run stores its choice in its next write and needs no second message for it.
//!
//! **Why programs have no permit.** The slot of a program belongs to the run and not to the actor: a program continues while the actor of
//! its run is rebuilt, and also when the broker starts again. A permit would free the slot with the actor, and another run could get it
//! before the rebuilt actor has read its rows. So the fleet counts the programs themselves (run, instance, attempt): a run that reads its
//! rows reserves the same programs again, which changes nothing, and the registry releases all of them at the end of the run.

pub mod allocator;
pub mod dispatcher;
pub mod fleet;
mod permit;

pub use permit::{NodeSlot, Permit, WorkerSlot};
