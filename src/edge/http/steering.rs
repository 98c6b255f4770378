//! `/api/v1/runs/{id}`: an operator controls a block run in progress.

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{Page, RunOutput};
use crate::protocol::failed::{FailedRequest, FailureCounts, RequeueInput, Requeued};
use crate::protocol::management::WhyOutput;
use crate::protocol::node::FetchErrorKind;
use crate::protocol::pending::{DiscardInput, Discarded, PendingRequest};
use crate::protocol::problem::Problem;
use crate::protocol::push::MOST_URL;
use crate::service::{FailureFilter, PendingFilter};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/runs/{id}/pause").post(pause, |op| {
            op.named("pauseRun").of_run()
                .description("Pauses a block run: it dispatches no more blocks. Blocks at nodes still finish, and results are delivered. Its timeout continues.")
                .needs(Need::Operate)
                .answers::<RunOutput>(200, "The run. It is paused now, or already was.")
                .may_fail(&[409])
        }),
        resource("/api/v1/runs/{id}/resume").post(resume, |op| {
            op.named("resumeRun").of_run()
                .description("Resumes a paused block run: it dispatches blocks again.")
                .needs(Need::Operate)
                .answers::<RunOutput>(200, "The run. It is no longer paused, or never was.")
                .may_fail(&[409])
        }),
        resource("/api/v1/runs/{id}/requests").get(requests, |op| {
            op.named("listRequests")
                .description("Lists the requests of a block run that failed, in the order of their blocks. A page may be short even if more pages follow.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<FailedRequest>>(200, "A page of requests.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/requests/counts").get(counts, |op| {
            op.named("countFailedRequests")
                .description("Counts the failed requests of a block run by kind, and by status where the site sent a complete response.")
                .needs(Need::Read)
                .answers::<FailureCounts>(200, "The counts.")
        }),
        resource("/api/v1/runs/{id}/requests/requeue").post(requeue, |op| {
            op.named("requeueRequests").of_run()
                .description("Queues failed requests of a block run again, each at most once. Each repetition is a new request and counts as one. If the run is over, a new run of its job begins with them instead of its first requests.")
                .needs(Need::Operate)
                .body_or_nothing::<RequeueInput>()
                .answers::<Requeued>(200, "The result.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/runs/{id}/requests/pending").get(pending, |op| {
            op.named("listPendingRequests")
                .description("Lists the requests of a block run that have no results yet, in the order of their blocks; those at nodes are among them. A page may be short though more follow.")
                .needs(Need::Read)
                .query::<PendingQuery>()
                .answers::<Page<PendingRequest>>(200, "A page of requests.")
                .may_fail(&[422])
        }),
        resource("/api/v1/runs/{id}/requests/discard").post(discard, |op| {
            op.named("discardRequests").of_run()
                .description("Discards pending requests of a block run that is under way: each gets a failure of the kind `discarded`, which its worker receives. Those at nodes are left alone.")
                .needs(Need::Operate)
                .body::<DiscardInput>()
                .answers::<Discarded>(200, "What became of them.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/runs/{id}/why-url").get(why_url, |op| {
            op.named("explainUrl").of_run()
                .only_leader()
                .description("Explains why a block run has no result for a URL: where its request is, and what it waits for.")
                .needs(Need::Read)
                .query::<UrlQuery>()
                .answers::<WhyOutput>(200, "The reason.")
                .may_fail(&[409, 422])
        }),
    ]
}

/// The states by which requests can be listed.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum RequestState {
    /// Failed requests. A run keeps no list of others.
    Failed,
}

/// The query of a list of requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// `failed`, which is also the default: a run keeps no list of other requests.
    #[expect(dead_code, reason = "there is one word for it")]
    state: Option<RequestState>,
    /// Only requests to this host or site.
    site: Option<String>,
    /// Only requests that failed for this reason.
    kind: Option<FetchErrorKind>,
    /// Only requests with this HTTP status; 0: those without a response.
    #[schemars(range(max = 999))]
    status: Option<u16>,
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,9}-[0-9]{1,6}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// The query of a list of pending requests.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PendingQuery {
    /// Only those to this host or site.
    site: Option<String>,
    /// Only those whose URL has this part; `*` stands for any characters, `$` at the end for the end of the URL.
    url: Option<String>,
    /// Only those of at least this depth.
    min_depth: Option<u32>,
    /// Only those of at most this depth.
    max_depth: Option<u32>,
    /// The `nextCursor` of the page before.
    #[schemars(regex(pattern = "^[0-9]{1,9}-[0-9]{1,6}$"))]
    cursor: Option<String>,
    /// Items of the page; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// The query that names a URL.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct UrlQuery {
    /// The URL, as it was pushed or in an equivalent form.
    #[schemars(length(min = 1, max = MOST_URL))]
    url: String,
}

fn status_of(status: Option<u16>) -> Result<Option<u16>, Failure> {
    match status {
        Some(1_000..) => Err(Problem::invalid("status", "an HTTP status is expected, or 0 for requests without an answer").into()),
        status => Ok(status),
    }
}

/// `POST /api/v1/runs/{id}/pause`
pub async fn pause(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.set_paused(id(&edge, &request, "id").await?, true).await?))
}

/// `POST /api/v1/runs/{id}/resume`
pub async fn resume(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.set_paused(id(&edge, &request, "id").await?, false).await?))
}

/// `GET /api/v1/runs/{id}/requests`
pub async fn requests(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { state: _, site, kind, status, cursor, limit: asked } = query.into_inner();
    let filter = FailureFilter { site, kind, status: status_of(status)?, only_new: false };
    let page = edge.service.failed_requests(id(&edge, &request, "id").await?, filter, cursor.as_deref(), limit(asked)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `GET /api/v1/runs/{id}/requests/counts`
pub async fn counts(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.failure_counts(id(&edge, &request, "id").await?).await?))
}

/// `POST /api/v1/runs/{id}/requests/requeue`
pub async fn requeue(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: RequeueInput = json_or_default(&request, payload).await?;
    status_of(input.status)?;
    Ok(HttpResponse::Ok().json(edge.service.requeue(id(&edge, &request, "id").await?, input, caller.name).await?))
}

/// `GET /api/v1/runs/{id}/requests/pending`
pub async fn pending(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<PendingQuery>) -> Result<HttpResponse, Failure> {
    let PendingQuery { site, url, min_depth, max_depth, cursor, limit: asked } = query.into_inner();
    let filter = PendingFilter { site, url, min_depth, max_depth };
    let page = edge.service.pending_requests(id(&edge, &request, "id").await?, filter, cursor.as_deref(), limit(asked)?).await?;
    Ok(HttpResponse::Ok().json(page))
}

/// `POST /api/v1/runs/{id}/requests/discard`
pub async fn discard(edge: web::Data<Edge>, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: DiscardInput = json(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.discard(id(&edge, &request, "id").await?, input).await?))
}

/// `GET /api/v1/runs/{id}/why-url`
pub async fn why_url(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<UrlQuery>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.why_url(id(&edge, &request, "id").await?, &query.url).await?))
}
