//! `/api/v1/nodes`

use super::limit;
use crate::domain::ids::{NodeId, PeerId};
use crate::domain::node::NodeWork;
use crate::domain::time::Timestamp;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::json_or_default;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{NodeOutput, NodeStatusOutput, Page};
use crate::protocol::peer_history::NodeConnectionOutput;
use crate::protocol::problem::Problem;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// How a path names a node.
const NODE: &str = "The node: its id, its number, its name, or digits that its id begins or ends with (at least 4).";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/nodes").get(list, |op| {
            op.named("listNodes").leader_first().live()
                .description("Lists all nodes ever seen.")
                .needs(Need::Read)
                .answers::<Page<NodeOutput>>(200, "The nodes.")
        }),
        resource("/api/v1/nodes/{id}")
            .text("id", NODE)
            .get(read, |op| op.named("readNode").leader_first().live().description("A node.").needs(Need::Read).answers::<NodeOutput>(200, "The node."))
            .delete(remove, |op| {
                op.named("removeNode")
                    .description("Removes a node and its status history. A connected node is not removed unless `force` is set, which also shuts it down.")
                    .needs(Need::Admin)
                    .query::<RemoveQuery>()
                    .answers_nothing(204, "The node is removed.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/nodes/{id}/enable").text("id", NODE).post(enable, |op| {
            op.named("enableNode")
                .description("Enables a node: it gets work again, whatever order it had before.")
                .needs(Need::Admin)
                .answers::<NodeOutput>(200, "The node.")
        }),
        resource("/api/v1/nodes/{id}/disable").text("id", NODE).post(disable, |op| {
            op.named("disableNode")
                .description("Stops sending work to a node. It finishes its current work.")
                .needs(Need::Admin)
                .body_or_nothing::<Reason>()
                .answers::<NodeOutput>(200, "The node.")
                .may_fail(&[422])
        }),
        resource("/api/v1/nodes/{id}/drain").text("id", NODE).post(drain, |op| {
            op.named("drainNode")
                .description("Stops sending work to a node. It finishes its current work and exits. It gets no work until it is enabled.")
                .needs(Need::Admin)
                .body_or_nothing::<Reason>()
                .answers::<NodeOutput>(200, "The node.")
                .may_fail(&[422])
        }),
        resource("/api/v1/nodes/{id}/exit").text("id", NODE).post(exit, |op| {
            op.named("exitNode")
                .description("Shuts down a node's agent and its programs. The order is repeated at every connection until the node is enabled.")
                .needs(Need::Admin)
                .body_or_nothing::<Reason>()
                .answers::<NodeOutput>(200, "The node.")
                .may_fail(&[422])
        }),
        resource("/api/v1/nodes/{id}/connections").text("id", NODE).get(connections, |op| {
            op.named("listNodeConnections")
                .description("Lists the connections of a node, newest first: at most its last 100.")
                .needs(Need::Read)
                .query::<ConnectionQuery>()
                .answers::<Page<NodeConnectionOutput>>(200, "The connections.")
                .may_fail(&[422])
        }),
        resource("/api/v1/nodes/{id}/statuses").text("id", NODE).also_at("/api/v1/nodes/{id}/status").get(statuses, |op| {
            op.named("listNodeStatuses")
                .description("Lists the status of a node from its heartbeats, newest first.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<NodeStatusOutput>>(200, "The statuses.")
                .may_fail(&[422])
        }),
    ]
}

/// The node that the path names.
async fn node(edge: &Edge, request: &HttpRequest) -> Result<NodeId, Failure> {
    let text = request.match_info().get("id").unwrap_or_default();
    Ok(edge.service.node_meant(text).await.map_err(|problem| problem.at("id"))?)
}

/// `GET /api/v1/nodes`
pub async fn list(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Page { items: edge.service.nodes().await?, next_cursor: None }))
}

/// `GET /api/v1/nodes/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.node(node(&edge, &request).await?).await?))
}

/// The query of a removal.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RemoveQuery {
    /// Also remove a connected node.
    #[serde(default)]
    force: bool,
}

/// `DELETE /api/v1/nodes/{id}`
pub async fn remove(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<RemoveQuery>) -> Result<HttpResponse, Failure> {
    let node = node(&edge, &request).await?;
    edge.service.remove_node(node, query.force).await?;
    edge.owners.forget(PeerId::Node(node));
    Ok(HttpResponse::NoContent().finish())
}

/// The body of an order.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Reason {
    /// A text for people.
    #[serde(default)]
    #[schemars(length(max = MOST_REASON))]
    reason: Option<String>,
}

/// The longest reason, in characters.
const MOST_REASON: usize = 500;

async fn set_work(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    payload: web::Payload,
    work: NodeWork,
) -> Result<HttpResponse, Failure> {
    let Reason { reason } = json_or_default(&request, payload).await?;
    if reason.as_ref().is_some_and(|reason| reason.chars().count() > MOST_REASON) {
        return Err(Problem::invalid("reason", format!("must be at most {MOST_REASON} characters")).into());
    }
    Ok(HttpResponse::Ok().json(edge.service.set_node_work(node(&edge, &request).await?, work, reason, caller.name).await?))
}

/// `POST /api/v1/nodes/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.set_node_work(node(&edge, &request).await?, NodeWork::Enabled, None, caller.name).await?))
}

/// `POST /api/v1/nodes/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    set_work(edge, caller, request, payload, NodeWork::Disabled).await
}

/// `POST /api/v1/nodes/{id}/drain`
pub async fn drain(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    set_work(edge, caller, request, payload, NodeWork::Draining).await
}

/// `POST /api/v1/nodes/{id}/exit`
pub async fn exit(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    set_work(edge, caller, request, payload, NodeWork::Leaving).await
}

/// The query of a list of connections.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConnectionQuery {
    /// Maximum number of connections, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/nodes/{id}/connections`
pub async fn connections(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<ConnectionQuery>) -> Result<HttpResponse, Failure> {
    let items = edge.service.node_connections(node(&edge, &request).await?, limit(query.limit)?).await?;
    Ok(HttpResponse::Ok().json(Page { items, next_cursor: None }))
}

/// The query of a list of statuses.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// Only statuses at this time or later.
    from: Option<Timestamp>,
    /// Only statuses at this time or earlier.
    to: Option<Timestamp>,
    /// The length of a step in milliseconds. Given it, and `from`, the answer has a row for each step with a report, the oldest first: the averages of CPU and free memory, the highest count of blocks and programs.
    #[schemars(range(min = 1_000, max = 86_400_000))]
    step: Option<u64>,
    /// Maximum number of statuses, 50 by default. Steps are not limited by it.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/nodes/{id}/statuses`
pub async fn statuses(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { from, to, step, limit: asked } = query.into_inner();
    let node = node(&edge, &request).await?;
    let rows = match step {
        None => edge.service.node_status(node, from, to, limit(asked)?).await?,
        Some(step) => {
            let from = from.ok_or_else(|| Problem::invalid("from", "is needed with `step`"))?;
            edge.service.node_load_steps(node, from, step).await?
        }
    };
    let items = rows.into_iter().map(|(load, creation_time)| NodeStatusOutput { load, creation_time }).collect();
    Ok(HttpResponse::Ok().json(Page { items, next_cursor: None }))
}
