//! `/api/v1/sites`

use super::limit;
use crate::domain::ids::Identity;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::Page;
use crate::protocol::sites::{HoldInput, RunSiteOutput, SiteFilter, SiteOutput};
use crate::service::RunSiteFilter;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// How a path names a site.
const NAME: &str = "The site: a host, an address, or an origin with its slashes percent-encoded (`http:%2F%2F127.0.0.1:8000`).";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/sites").get(list, |op| {
            op.named("listSites").live()
                .only_leader()
                .description("Lists sites by name: those that runs requested lately, that are on hold, or that fail.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<SiteOutput>>(200, "A page of sites.")
                .may_fail(&[422])
        }),
        resource("/api/v1/sites/{name}/hold").text("name", NAME).post(hold, |op| {
            op.named("holdSite")
                .description("Puts a site on hold: no run starts a request there until the hold ends, and nodes are ordered to drop their blocks of it.")
                .needs(Need::Operate)
                .body::<HoldInput>()
                .answers::<SiteOutput>(200, "The site.")
                .may_fail(&[422])
        }),
        resource("/api/v1/sites/{name}/release").text("name", NAME).post(release, |op| {
            op.named("releaseSite")
                .description("Ends the hold of a site, whatever its reason. Runs continue at once, at the site's pace.")
                .needs(Need::Operate)
                .answers::<SiteOutput>(200, "The site.")
                .may_fail(&[409, 422])
        }),
        resource("/api/v1/runs/{id}/sites").get(of_run, |op| {
            op.named("listRunSites").of_run().live()
                .only_leader()
                .description(
                    "Lists the sites of a block run, in the order of their first requests; of a run that has ended, by name. \
                     A host without a pace is listed only if its robots.txt is obeyed, its requests are limited (`MaxPerSite`), or it is or was on hold. \
                     A run of another kind has no sites.",
                )
                .needs(Need::Read)
                .query::<RunQuery>()
                .answers::<Page<RunSiteOutput>>(200, "A page of sites.")
                .may_fail(&[422])
        }),
    ]
}

/// The query of a list of sites.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only sites whose name contains this text.
    name: Option<String>,
    /// Only sites that are on hold, or only those that are not.
    held: Option<bool>,
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/sites`
pub async fn list(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { name, held, cursor, limit: asked } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.service.sites(SiteFilter { name, held, cursor, limit: limit(asked)? }).await?))
}

/// `POST /api/v1/sites/{name}/hold`
pub async fn hold(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    name: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let input: HoldInput = json(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.hold_site(&name, &input, caller.name).await?))
}

/// `POST /api/v1/sites/{name}/release`
pub async fn release(edge: web::Data<Edge>, caller: Caller, name: web::Path<String>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.release_site(&name, caller.name).await?))
}

/// The query of a list of the sites of a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunQuery {
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
    /// With the failed requests of each site by kind. Of a run with very many failures, only the first are counted.
    #[serde(default)]
    errors: bool,
}

/// `GET /api/v1/runs/{id}/sites`
pub async fn of_run(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<RunQuery>) -> Result<HttpResponse, Failure> {
    let run: Identity = id(&edge, &request, "id").await?;
    let RunQuery { cursor, limit: asked, errors } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.service.run_sites(run, &RunSiteFilter { cursor, limit: limit(asked)?, errors }).await?))
}
