//! The queue of a run: requests in, results out. All calls go through the run's actor.

use super::Service;
use crate::actors::reply::{problem_of, reply};
use crate::actors::run::{Delivered, DeliveredBlock, PollOptions, RunHandle, opened};
use crate::domain::ids::{BlockId, Identity};
use crate::domain::request::RequestBatch;
use crate::domain::run::RunState;
use crate::protocol::node::Reported;
use crate::protocol::pack::Index;
use crate::protocol::problem::Problem;
use crate::protocol::push::Pushed;
use crate::store::GetRun;
use bytes::Bytes;

/// Blocks on their way to the client that polled. If dropped before they arrive, the blocks go to other clients at once.
#[derive(Debug)]
pub struct Receipt {
    run: RunHandle,
    blocks: Vec<(BlockId, u64)>,
}

impl Receipt {
    fn of(run: RunHandle, blocks: &[DeliveredBlock]) -> Self {
        Self { run, blocks: blocks.iter().filter_map(|block| Some((block.block_id, block.delivery_no?))).collect() }
    }

    /// Marks all blocks as arrived, as far as the broker can know.
    pub fn arrived(mut self) {
        self.blocks.clear();
    }

    /// Returns the blocks from this one on, because they do not fit into the answer.
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
    /// The actor of a run. The problem distinguishes ended, unknown and restarting runs.
    pub(super) async fn run_at_work(&self, identity: Identity) -> Result<RunHandle, Problem> {
        self.context.run_at_work(identity).await
    }

    /// Adds requests to a run and acknowledges blocks in one operation.
    ///
    /// # Errors
    /// The run or the block does not exist, the run has ended, or the store is busy.
    pub async fn push(&self, identity: Identity, acks: Vec<BlockId>, batch: RequestBatch) -> Result<Pushed, Problem> {
        let run = self.run_at_work(identity).await?;
        self.context.answer_of(identity, run.push(acks, batch)).await
    }

    /// Fetches finished blocks.
    ///
    /// # Errors
    /// The run does not exist, or its actor is being rebuilt.
    pub async fn poll(&self, identity: Identity, options: PollOptions) -> Result<(Delivered, Option<Receipt>), Problem> {
        match self.poll_actor(identity, options).await {
            Err(problem) if problem.kind == "/problems/run-over" => {
                let run = self.context.store.read(GetRun(identity)).await.map_err(|e| problem_of(&e))?;
                Ok((Delivered { state: run.map_or(RunState::Stopped, |run| run.state), blocks: Vec::new() }, None))
            }
            other => other,
        }
    }

    async fn poll_actor(&self, identity: Identity, options: PollOptions) -> Result<(Delivered, Option<Receipt>), Problem> {
        let run = self.run_at_work(identity).await?;
        let delivered = self.context.answer_of(identity, run.poll(options)).await?;
        let receipt = (!delivered.blocks.is_empty()).then(|| Receipt::of(run, &delivered.blocks));
        Ok((delivered, receipt))
    }

    /// Stores the results of a block.
    ///
    /// # Errors
    /// The run or block does not exist, the node does not hold the block, it has ended, or a result is not of this block.
    pub async fn report(&self, index: Index, pack: Bytes) -> Result<Reported, Problem> {
        let identity = index.identity;
        let run = self.run_at_work(identity).await?;
        let opened = opened(&index, &pack).await;
        self.context.answer_of(identity, run.report(index, pack, opened)).await
    }

    /// Reports that the first requests of a run were pushed, or the error.
    ///
    /// # Errors
    /// The run does not exist.
    pub async fn start_returned(&self, identity: Identity, error: Option<String>) -> Result<(), Problem> {
        let returned = async {
            let (reply, answer) = reply();
            self.run_at_work(identity).await?.start_returned(error, reply);
            self.context.answer_of(identity, answer).await
        };
        match returned.await {
            Err(problem) if problem.kind == "/problems/run-over" => Ok(()),
            other => other,
        }
    }
}
