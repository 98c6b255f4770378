//! `/api/v1/series` and `/api/v1/warnings`

use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::series::{SeriesOutput, WarningOutput};
use actix_web::{HttpResponse, web};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/series").get(series, |op| {
            op.named("readSeries").leader_first()
                .description(
                    "What the brokers did in a period of the last year, in steps of equal length: minutes if the period began within the last \
                     day, quarters of an hour within the last thirty days, else quarters of a day. Sums: `runs.*` and `fires.*` by outcome, \
                     `requests.*`, `bytes`, `errors.*` by kind. Durations in milliseconds, as percentiles rounded up to the bound of a bucket: \
                     `lateness.*` from the scheduled time to the run, `delay.*` from there to the order to a worker, `answer.*` of sites. \
                     Means with `.min` and `.max` of what was observed every ten seconds: `requests.waiting`, `nodes.online`, `workers.online`, \
                     `store.waiting`; and of what was counted once a minute: `runs.running`, `runs.waiting`.",
                )
                .needs(Need::Read)
                .query::<Query>()
                .answers::<SeriesOutput>(200, "The values.")
                .may_fail(&[422])
        }),
        resource("/api/v1/warnings").get(warnings, |op| {
            op.named("listWarnings").leader_first().live()
                .description("Lists what an operator should look at, at most twenty of each kind.")
                .needs(Need::Read)
                .answers::<Warnings>(200, "The warnings, the most urgent kind first.")
        }),
    ]
}

/// The query of the time series.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Start of the period; by default an hour before its end.
    from: Option<Timestamp>,
    /// End of the period; by default now.
    to: Option<Timestamp>,
}

/// All warnings.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Warnings {
    /// Each of them.
    items: Vec<WarningOutput>,
}

/// `GET /api/v1/series`
pub async fn series(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.series(query.from, query.to).await?))
}

/// `GET /api/v1/warnings`
pub async fn warnings(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Warnings { items: edge.service.warnings().await? }))
}
