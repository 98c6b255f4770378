//! The queue of a run: requests in, results out. All goes through the run's actor.

use super::Service;
use crate::actors::reply::{problem_of, reply};
use crate::actors::run::{Delivered, DeliveredBlock, RunHandle};
use crate::domain::ids::{BlockId, Identity, WorkerId};
use crate::domain::request::RequestBatch;
use crate::domain::run::RunState;
use crate::domain::time::Timestamp;
use crate::protocol::node::Reported;
use crate::protocol::pack::Index;
use crate::protocol::problem::Problem;
use crate::protocol::push::Pushed;
use crate::store::GetRun;
use bytes::Bytes;
use std::time::Duration;

/// How to poll.
#[derive(Debug, Clone, Copy)]
pub struct PollOptions {
    /// Who asks.
    pub worker: Option<WorkerId>,
    /// The most blocks in the answer.
    pub max: usize,
    /// At most this long.
    pub wait: Duration,
    /// Delivered is done.
    pub auto_ack: bool,
}

/// Blocks on their way to the one who polled. Dropped before they have arrived, they go to others at once.
#[derive(Debug)]
pub struct Receipt {
    run: RunHandle,
    blocks: Vec<(BlockId, Timestamp)>,
}

impl Receipt {
    fn of(run: RunHandle, blocks: &[DeliveredBlock]) -> Self {
        Self { run, blocks: blocks.iter().filter_map(|block| Some((block.block_id, block.until?))).collect() }
    }

    /// All have arrived, as far as can be known.
    pub fn arrived(mut self) {
        self.blocks.clear();
    }

    /// Those from this one on do not go along: there is no room for them.
    pub fn leave_out(&mut self, from: usize) {
        if from < self.blocks.len() {
            self.run.undelivered(self.blocks.split_off(from));
        }
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if !self.blocks.is_empty() {
            self.run.undelivered(std::mem::take(&mut self.blocks));
        }
    }
}

impl Service {
    /// The actor of a run; a problem that tells apart what is over, what never was and what is being rebuilt.
    pub(super) async fn run_at_work(&self, identity: Identity) -> Result<RunHandle, Problem> {
        self.context.run_at_work(identity).await
    }

    /// Puts requests into a run and closes blocks, both at once.
    ///
    /// # Errors
    /// No such run or block, the run is over, or the store is busy.
    pub async fn push(&self, identity: Identity, acks: Vec<BlockId>, batch: RequestBatch) -> Result<Pushed, Problem> {
        self.run_at_work(identity).await?.push(acks, batch).wait().await
    }

    /// Takes finished blocks.
    ///
    /// # Errors
    /// No such run, or its actor is being rebuilt.
    pub async fn poll(&self, identity: Identity, options: PollOptions) -> Result<(Delivered, Option<Receipt>), Problem> {
        match self.run_at_work(identity).await {
            Ok(run) => {
                let delivered = run.poll(options.worker, options.max, options.wait, options.auto_ack).wait().await?;
                let receipt = (!delivered.blocks.is_empty()).then(|| Receipt::of(run, &delivered.blocks));
                Ok((delivered, receipt))
            }
            Err(problem) if problem.kind == "/problems/run-over" => {
                let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
                Ok((Delivered { state: run.map_or(RunState::Stopped, |run| run.state), blocks: Vec::new() }, None))
            }
            Err(problem) => Err(problem),
        }
    }

    /// Takes the results of a block.
    ///
    /// # Errors
    /// No such run or block, not in this node's hands, finished already, or a result that is not the block's.
    pub async fn report(&self, index: Index, pack: Bytes) -> Result<Reported, Problem> {
        self.run_at_work(index.identity).await?.report(index, pack).wait().await
    }

    /// The first requests of a run are pushed, or they are not and why.
    ///
    /// # Errors
    /// No such run.
    pub async fn start_returned(&self, identity: Identity, error: Option<String>) -> Result<(), Problem> {
        let run = match self.run_at_work(identity).await {
            Err(problem) if problem.kind == "/problems/run-over" => return Ok(()),
            other => other?,
        };
        let (reply, answer) = reply();
        run.start_returned(None, error, reply);
        answer.wait().await
    }
}
