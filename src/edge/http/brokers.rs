//! `/api/v1/brokers`

use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::brokers::BrokerOutput;
use actix_web::{HttpResponse, web};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![resource("/api/v1/brokers").get(list, |op| {
        op.named("listBrokers")
            .says("Lists the brokers of the database: the leader and the standbys.")
            .needs(Need::Read)
            .answers::<Vec<BrokerOutput>>(200, "The brokers, in the order of their starts.")
    })]
}

/// `GET /api/v1/brokers`
pub async fn list(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.brokers().await?))
}
