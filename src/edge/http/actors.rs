//! `/api/v1/actors`

use super::limit;
use crate::domain::ids::BrokerId;
use crate::edge::Edge;
use crate::edge::auth::Need;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::actors::{ActorDetail, ActorFilter, KindOutput};
use crate::protocol::api::ActorOutput;
use crate::protocol::problem::Problem;
use actix_web::{HttpResponse, web};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/actors").get(list, |op| {
            op.named("listActors")
                .only_leader()
                .live()
                .description("Lists the actors of all brokers, by kind and name: all of them, or those that a filter selects.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Vec<ActorOutput>>(200, "The actors.")
                .may_fail(&[422])
        }),
        resource("/api/v1/actors/kinds").get(kinds, |op| {
            op.named("listActorKinds")
                .only_leader()
                .live()
                .description("The kinds of actors that the brokers have now, with the sums of each.")
                .needs(Need::Read)
                .answers::<Kinds>(200, "The kinds.")
        }),
        resource("/api/v1/actors/{kind}/{name}")
            .text("kind", "The kind of the actor: `run`.")
            .text("name", "Its name: for most kinds, the id of what it stands for.")
            .get(read, |op| {
                op.named("readActor")
                    .only_leader()
                    .live()
                    .description("An actor, its messages by type, and why it was restarted. An actor is there only while it has work.")
                    .needs(Need::Read)
                    .query::<AtBroker>()
                    .answers::<ActorDetail>(200, "The actor.")
            }),
    ]
}

/// The query of a list of actors.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only actors of this kind.
    kind: Option<String>,
    /// Only actors whose name, or the name of what they stand for, contains this text.
    text: Option<String>,
    /// Only actors with an error or a restart, or only others.
    errors: Option<bool>,
    /// Only actors after this one, as `kind/name`: the last one of the previous page.
    after: Option<String>,
    /// Maximum number of actors; all of them by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// The query of an actor.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AtBroker {
    /// The actor of this broker; by default that of the leader, or of the broker that has one of this name.
    broker_id: Option<BrokerId>,
}

/// All kinds.
#[derive(Debug, Serialize, JsonSchema)]
pub struct Kinds {
    /// Each of them.
    items: Vec<KindOutput>,
}

/// `GET /api/v1/actors`
pub async fn list(edge: web::Data<Edge>, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { kind, text, errors, after, limit: asked } = query.into_inner();
    let split = |text: String| match text.split_once('/') {
        Some((kind, name)) => Ok((kind.to_owned(), name.to_owned())),
        None => Err(Problem::invalid("after", format!("`{text}` is not a kind and a name with a slash between them"))),
    };
    let after = after.map(split).transpose()?;
    let limit = asked.map(|asked| limit(Some(asked))).transpose()?;
    let filter = ActorFilter { kind, text: text.map(|text| text.to_lowercase()), errors, after, limit };
    Ok(HttpResponse::Ok().json(edge.service.actors(&filter).await?))
}

/// `GET /api/v1/actors/kinds`
pub async fn kinds(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Kinds { items: edge.service.actor_kinds().await }))
}

/// `GET /api/v1/actors/{kind}/{name}`
pub async fn read(edge: web::Data<Edge>, path: web::Path<(String, String)>, query: web::Query<AtBroker>) -> Result<HttpResponse, Failure> {
    let (kind, name) = path.into_inner();
    Ok(HttpResponse::Ok().json(edge.service.actor(&kind, &name, query.broker_id).await?))
}
