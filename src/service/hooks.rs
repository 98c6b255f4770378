//! Hooks: addresses at which other systems trigger a job.

use super::Service;
use super::access_tokens::check_plain_name;
use crate::actors::job::TriggerOrder;
use crate::actors::reply::problem_of;
use crate::domain::ids::JobId;
use crate::domain::job::JobKind;
use crate::domain::time::Timestamp;
use crate::domain::trace::TraceContext;
use crate::protocol::api::TriggerInput;
use crate::protocol::hooks::{HookAnswer, HookInput, HookOutput, NewHook};
use crate::protocol::problem::Problem;
use crate::store::{DeleteHook, GetHook, InsertHook, ListHooks, StoreError, StoredHook};
use serde_json::Value;

/// Maximum number of hooks of a job.
const MOST: usize = 20;

/// A hook with its secret, to check a caller.
#[derive(Clone)]
pub struct Hook {
    /// Its job.
    pub job: JobId,
    /// Its name in histories.
    pub caller: String,
    /// Its secret.
    pub secret: String,
}

impl std::fmt::Debug for Hook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.caller)
    }
}

fn output(hook: StoredHook) -> HookOutput {
    HookOutput {
        job_id: hook.job_id,
        path: format!("/hooks/{}", hook.id),
        id: hook.id,
        name: hook.name,
        create_by: hook.create_by,
        creation_time: hook.creation_time,
    }
}

impl Service {
    /// The hooks of a job, by name.
    ///
    /// # Errors
    /// The job does not exist.
    pub async fn hooks(&self, job: JobId) -> Result<Vec<HookOutput>, Problem> {
        self.job(job).await?;
        let hooks = self.context.store.read(ListHooks(job)).await.map_err(|e| problem_of(&e))?;
        Ok(hooks.into_iter().map(output).collect())
    }

    /// Creates a hook of a job.
    ///
    /// # Errors
    /// The job does not exist, the name is invalid or taken, or there are too many hooks.
    pub async fn create_hook(&self, job: JobId, input: HookInput, by: Option<String>) -> Result<NewHook, Problem> {
        check_plain_name(&input.name)?;
        let random = || uuid::Uuid::new_v4().simple().to_string();
        let secret = format!("{}{}", random(), random());
        let hook = StoredHook {
            id: random(),
            job_id: job,
            name: input.name,
            secret: secret.clone(),
            create_by: by,
            creation_time: Timestamp::now(),
        };
        let written = self.context.store.write(InsertHook { hook: hook.clone(), most: MOST }).await;
        written.map_err(|error| match error {
            StoreError::NotFound => Problem::not_found(format!("there is no job {job}")),
            StoreError::Conflict(what) if what == "name" => {
                Problem::conflict("name-taken", format!("the job already has a hook named `{}`", hook.name)).at("name")
            }
            StoreError::Conflict(_) => Problem::conflict("limit-reached", format!("the job has {MOST} hooks: delete some first")),
            other => problem_of(&other),
        })?;
        Ok(NewHook { hook: output(hook), secret })
    }

    /// Deletes a hook of a job.
    ///
    /// # Errors
    /// The job has no such hook.
    pub async fn delete_hook(&self, job: JobId, hook: String) -> Result<(), Problem> {
        self.context.store.write(DeleteHook { job, hook: hook.clone() }).await.map_err(|error| match error {
            StoreError::NotFound => Problem::not_found(format!("the job has no hook {hook}")),
            other => problem_of(&other),
        })
    }

    /// A hook, by its id.
    ///
    /// # Errors
    /// The store fails.
    pub async fn hook(&self, id: String) -> Result<Option<Hook>, Problem> {
        let found = self.context.store.read(GetHook(id)).await.map_err(|e| problem_of(&e))?;
        Ok(found.map(|hook| Hook { job: hook.job_id, caller: format!("webhook:{}", hook.name), secret: hook.secret }))
    }

    /// Triggers the job of a hook with this body. The caller has been checked.
    ///
    /// # Errors
    /// The body is not text, or the job cannot be triggered.
    pub async fn call_hook(
        &self,
        hook: &Hook,
        body: &[u8],
        key: Option<String>,
        trace: Option<TraceContext>,
    ) -> Result<HookAnswer, Problem> {
        let text = std::str::from_utf8(body).map_err(|_| Problem::malformed("the body is not UTF-8 text"))?;
        let is_task = self.job(hook.job).await?.job.job_type == JobKind::Task;
        // A task takes any JSON, other jobs take text.
        let value = || serde_json::from_str(text).ok().filter(|_| is_task).unwrap_or_else(|| Value::from(text));
        let arguments = (!text.is_empty()).then(value);
        let input = TriggerInput { arguments, idempotency_key: key, ..TriggerInput::default() };
        let order = TriggerOrder { input, trace, by: Some(hook.caller.clone()), ..TriggerOrder::default() };
        Ok(HookAnswer { identity: self.trigger(hook.job, order).await?.identity })
    }
}
