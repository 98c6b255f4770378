//! Hooks, as the REST API shows them: addresses at which other systems trigger a job.

use crate::domain::ids::{Identity, JobId};
use crate::domain::time::Timestamp;
use serde::{Deserialize, Serialize};

/// The header with the secret of a hook.
pub const SECRET_HEADER: &str = "Webloom-Secret";
/// The header with the signature of the body: `sha256=` and the HMAC-SHA256 under the secret in hexadecimal digits, as GitHub sends it.
pub const SIGNATURE_HEADER: &str = "X-Hub-Signature-256";

/// A hook to create.
#[derive(Debug, Clone, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HookInput {
    /// Its name, unique in the job: 1 to 50 letters, digits or one of `._@-`. Runs show it as `webhook:NAME`.
    pub name: String,
}

/// A hook, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookOutput {
    /// Its id.
    pub id: String,
    /// The job that it triggers.
    pub job_id: JobId,
    /// Its name.
    pub name: String,
    /// The path to call by POST.
    pub path: String,
    /// Who created it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub create_by: Option<String>,
    /// When it was created.
    pub creation_time: Timestamp,
}

/// A new hook.
#[derive(Debug, Clone, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NewHook {
    /// The hook.
    #[serde(flatten)]
    pub hook: HookOutput,
    /// Its secret, which is shown only here.
    pub secret: String,
}

/// The answer to the caller of a hook.
#[derive(Debug, Clone, Copy, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HookAnswer {
    /// The run.
    pub identity: Identity,
}
