//! A person steers a block run that is under way.

use super::Service;
use crate::actors::run::RunHandle;
use crate::domain::ids::Identity;
use crate::protocol::api::RunOutput;
use crate::protocol::problem::Problem;

impl Service {
    /// The actor of a block run that is not over.
    pub(super) async fn block_run(&self, identity: Identity, what: &str) -> Result<RunHandle, Problem> {
        self.context.run_at_work(identity).await.map_err(|problem| match problem.kind.as_str() {
            "/problems/no-queue" => {
                Problem::conflict("no-queue", format!("run {identity} is of no block job: only block runs can be {what}; stop it instead"))
            }
            _ => problem,
        })
    }

    /// Pauses a block run, or resumes it. Said twice it is as said once.
    ///
    /// # Errors
    /// There is none, it is over, or it is of no block job.
    pub async fn set_paused(&self, identity: Identity, is_paused: bool) -> Result<RunOutput, Problem> {
        let run = self.block_run(identity, "paused and resumed").await?;
        run.set_paused(is_paused).wait().await
    }
}
