//! Operations on an active block run.

use super::Service;
use crate::actors::run::RunHandle;
use crate::domain::ids::Identity;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;

impl Service {
    /// The actor of an active block run.
    pub(super) async fn block_run(&self, identity: Identity, what: &str) -> Result<RunHandle, Problem> {
        self.context.run_at_work(identity).await.map_err(|problem| match problem.kind.as_str() {
            "/problems/no-queue" => {
                Problem::conflict("no-queue", format!("run {identity} is not a block run: only block runs can be {what}; stop it instead"))
            }
            _ => problem,
        })
    }

    /// Pauses or resumes a block run. Repeating the call changes nothing.
    ///
    /// # Errors
    /// The run does not exist, has ended, or does not belong to a block job.
    pub async fn set_paused(&self, identity: Identity, is_paused: bool) -> Result<RunOutput, Problem> {
        let run = self.block_run(identity, "paused and resumed").await?;
        self.context.answer_of(identity, run.set_paused(is_paused)).await
    }
}
