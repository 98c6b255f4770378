//! `/api/v1/jobs/{id}/hooks`, and `/hooks/{hook}`, which other systems call.

use super::jobs::{idempotency_key, trace_of};
use crate::config::tokens::TokenKey;
use crate::domain::ids::JobId;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need, allow_anyone};
use crate::edge::body::{id, json, read};
use crate::edge::error::Failure;
use crate::edge::forward::origin;
use crate::edge::route::{Resource, resource};
use crate::protocol::hooks::{HookAnswer, HookInput, HookOutput, NewHook, SECRET_HEADER, SIGNATURE_HEADER};
use crate::protocol::problem::Problem;
use crate::protocol::sign::signature_of_body;
use crate::service::Hook;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Serialize;
use subtle::ConstantTimeEq as _;

/// Largest body of a call, in bytes.
const MAX_BODY: usize = 256 << 10;
const ID: &str = "The id of a hook.";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/jobs/{id}/hooks")
            .get(list, |op| {
                op.named("listHooks")
                    .description("Lists the hooks of a job: addresses at which other systems trigger it.")
                    .needs(Need::Read)
                    .answers::<HooksOutput>(200, "The hooks, by name.")
            })
            .post(create, |op| {
                op.named("createHook")
                    .description("Creates a hook of a job. Its secret is in this response only.")
                    .needs(Need::Edit)
                    .body::<HookInput>()
                    .answers::<NewHook>(201, "The hook, with its secret.")
                    .with_header("Location", "The address of the hook.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/jobs/{id}/hooks/{hook}").text("hook", ID).delete(remove, |op| {
            op.named("deleteHook")
                .description("Deletes a hook of a job: its address is rejected from now on.")
                .needs(Need::Edit)
                .answers_nothing(204, "It is deleted.")
        }),
        resource("/hooks/{hook}").text("hook", ID).post(call, |op| {
            op.named("callHook")
                .description(
                    "Triggers the job of a hook; the body becomes the arguments of the run. It needs no token, but the secret of the hook in \
                    `Webloom-Secret`, or a signature of the body in `X-Hub-Signature-256`. Calls with one `Idempotency-Key` (or \
                    `X-GitHub-Delivery`) make one run.",
                )
                .for_everybody()
                .body_as_bytes()
                .answers::<HookAnswer>(202, "The run.")
                .may_fail(&[401, 403, 404, 409, 413, 422, 429])
        }),
    ]
}

/// The hooks of a job.
#[derive(Debug, Serialize, JsonSchema)]
pub struct HooksOutput {
    /// Each of them.
    items: Vec<HookOutput>,
}

/// `GET /api/v1/jobs/{id}/hooks`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(HooksOutput { items: edge.service.hooks(id(&edge, &request, "id").await?).await? }))
}

/// `POST /api/v1/jobs/{id}/hooks`
pub async fn create(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let job: JobId = id(&edge, &request, "id").await?;
    let hook = edge.service.create_hook(job, json(&request, payload).await?, caller.name).await?;
    let address = format!("/api/v1/jobs/{job}/hooks/{}", hook.hook.id);
    Ok(HttpResponse::Created().insert_header(("Location", address)).json(hook))
}

/// `DELETE /api/v1/jobs/{id}/hooks/{hook}`
pub async fn remove(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let job: JobId = id(&edge, &request, "id").await?;
    let hook = request.match_info().get("hook").unwrap_or_default().to_owned();
    edge.service.delete_hook(job, hook).await?;
    Ok(HttpResponse::NoContent().finish())
}

fn header<'r>(request: &'r HttpRequest, name: &str) -> Option<&'r str> {
    request.headers().get(name)?.to_str().ok()
}

/// Whether the caller sent the secret of the hook, or a signature of the body; if both, both must be right. Takes the same time for each
/// wrong one.
fn is_authentic(request: &HttpRequest, hook: &Hook, body: &[u8]) -> bool {
    let by_secret = header(request, SECRET_HEADER).map(|secret| {
        // The hashes have one length.
        let digits = |text: &str| TokenKey::of(text).hex();
        bool::from(digits(secret).as_bytes().ct_eq(digits(&hook.secret).as_bytes()))
    });
    let by_signature = header(request, SIGNATURE_HEADER).map(|signature| {
        let digits = signature.strip_prefix("sha256=").unwrap_or_default().to_ascii_lowercase();
        bool::from(signature_of_body(&hook.secret, body).as_bytes().ct_eq(digits.as_bytes()))
    });
    (by_secret.is_some() || by_signature.is_some()) && by_secret.unwrap_or(true) && by_signature.unwrap_or(true)
}

/// `POST /hooks/{hook}`
pub async fn call(
    edge: web::Data<Edge>,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    allow_anyone(&edge, &request)?;
    let name = name.into_inner();
    let body = read(&request, payload, MAX_BODY).await?;
    let is_id = name.len() == 32 && name.bytes().all(|b| b.is_ascii_hexdigit());
    let hook = if is_id { edge.service.hook(name).await? } else { None };
    let hook = hook.filter(|hook| is_authentic(&request, hook, &body));
    // An unknown hook is answered like a wrong secret. Failures are throttled like those of tokens.
    let from = origin(&edge, &request).await;
    let known = hook.as_ref().map(|hook| TokenKey::of(&hook.secret));
    edge.guard
        .judge(from, known, "hook secret")
        .map_err(|problem| if problem.status == 401 { Problem::unknown_hook() } else { problem })?;
    let hook = hook.ok_or_else(Problem::unknown_hook)?;
    let key = idempotency_key(&request)?.or_else(|| header(&request, "X-GitHub-Delivery").map(str::to_owned));
    Ok(HttpResponse::Accepted().json(edge.service.call_hook(&hook, &body, key, trace_of(&request)).await?))
}
