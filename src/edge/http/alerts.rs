//! `/api/v1/alerts`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{id, json};
use crate::edge::error::Failure;
use crate::edge::masks::shown;
use crate::edge::route::{Resource, resource};
use crate::protocol::alerts::{AlertEventOutput, AlertInput, AlertOutput, AlertTestOutput};
use crate::protocol::api::Page;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/alerts")
            .get(list, |op| {
                op.named("listAlerts")
                    .live()
                    .description("Lists the channels that alerts go to.")
                    .needs(Need::Read)
                    .answers::<Channels>(200, "The channels.")
            })
            .post(create, |op| {
                op.named("createAlert")
                    .description("Adds a channel: a webhook or a mail address.")
                    .needs(Need::Admin)
                    .body::<AlertInput>()
                    .answers::<AlertOutput>(201, "The channel.")
                    .with_header("Location", "The address of the channel.")
                    .may_fail(&[409, 422])
            }),
        // Before the channels: `events` is not an id.
        resource("/api/v1/alerts/events").get(events, |op| {
            op.named("listAlertEvents")
                .live()
                .description("Lists alert events, newest first, and the channels that they were sent to.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<AlertEventOutput>>(200, "A page of events.")
                .may_fail(&[422])
        }),
        resource("/api/v1/alerts/{id}")
            .get(read, |op| op.named("readAlert").description("A channel.").needs(Need::Read).answers::<AlertOutput>(200, "The channel."))
            .put(update, |op| {
                op.named("updateAlert")
                    .description("Changes a channel. What is left out stays as it is.")
                    .needs(Need::Admin)
                    .body::<AlertInput>()
                    .answers::<AlertOutput>(200, "The channel.")
                    .may_fail(&[409, 422])
            })
            .delete(delete, |op| {
                op.named("deleteAlert").description("Removes a channel.").needs(Need::Admin).answers_nothing(204, "It is gone.")
            }),
        resource("/api/v1/alerts/{id}/test").post(test, |op| {
            op.named("testAlert")
                .description("Sends a test event at once and returns the result.")
                .needs(Need::Admin)
                .answers::<AlertTestOutput>(200, "The result.")
                .may_fail(&[409, 422])
        }),
    ]
}

/// All channels.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Channels {
    /// Each of them.
    items: Vec<AlertOutput>,
}

/// `GET /api/v1/alerts`
pub async fn list(edge: web::Data<Edge>, caller: Caller) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Channels { items: shown(&caller, edge.service.channels().await?) }))
}

/// `POST /api/v1/alerts`
pub async fn create(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let channel = edge.service.create_channel(json(&request, payload).await?, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/alerts/{}", channel.id))).json(channel))
}

/// `GET /api/v1/alerts/{id}`
pub async fn read(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(shown(&caller, edge.service.channel(id(&edge, &request, "id").await?).await?)))
}

/// `PUT /api/v1/alerts/{id}`
pub async fn update(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let channel = id(&edge, &request, "id").await?;
    Ok(HttpResponse::Ok().json(edge.service.update_channel(channel, json(&request, payload).await?, caller.name).await?))
}

/// `DELETE /api/v1/alerts/{id}`
pub async fn delete(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.delete_channel(id(&edge, &request, "id").await?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/alerts/{id}/test`
pub async fn test(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.test_channel(id(&edge, &request, "id").await?).await?))
}

/// The query of a list of events.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// `nextCursor` of the previous page.
    #[schemars(regex(pattern = "^[0-9]{1,18}$"))]
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/alerts/events`
pub async fn events(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.alert_events(query.cursor.as_deref(), limit(query.limit)?).await?))
}
