//! `/api/v1/brokers` and `/api/v1/settings`

use crate::domain::ids::InvalidId;
use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::brokers::BrokerOutput;
use crate::protocol::problem::Problem;
use crate::protocol::settings::SettingOutput;
use actix_web::{HttpResponse, web};
use schemars::JsonSchema;
use serde::Serialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/brokers").get(list, |op| {
            op.named("listBrokers")
                .live()
                .description("Lists the brokers of the database: the leader and the standbys.")
                .needs(Need::Read)
                .answers::<Vec<BrokerOutput>>(200, "The brokers, in the order of their starts.")
        }),
        resource("/api/v1/brokers/{id}/drain").post(drain, |op| {
            op.named("drainBroker")
                .only_leader()
                .description(
                    "The leader takes over the runs of a standby that wait, and attempts that have begun are finished there, so that \
                    it can be stopped without repeating an attempt. It gets no more runs. The broker gets runs again when it is started again.",
                )
                .needs(Need::Admin)
                .answers::<BrokerOutput>(202, "The broker; `executes` is false once all its runs have moved.")
                .may_fail(&[404, 409])
        }),
        resource("/api/v1/settings").get(settings, |op| {
            op.named("listSettings")
                .live()
                .description("Lists the settings that are in force at this broker, without secrets and paths.")
                .needs(Need::Read)
                .answers::<Settings>(200, "The settings.")
        }),
    ]
}

/// All settings.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Settings {
    /// Each of them.
    items: Vec<SettingOutput>,
}

/// `GET /api/v1/settings`
pub async fn settings(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Settings { items: edge.service.settings() }))
}

/// `POST /api/v1/brokers/{id}/drain`
pub async fn drain(edge: web::Data<Edge>, id: web::Path<String>) -> Result<HttpResponse, Failure> {
    let id = id.parse().map_err(|e: InvalidId| Problem::malformed(e.to_string()).at("id"))?;
    Ok(HttpResponse::Accepted().json(edge.service.drain_broker(id).await?))
}

/// `GET /api/v1/brokers`
pub async fn list(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.brokers().await?))
}
