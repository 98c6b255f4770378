//! `/api/v1/nodes`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Need, allow};
use crate::edge::body::id;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::{NodeOutput, NodeStatusOutput, Page};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// This room's part of the route table.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/nodes").get(list, |op| {
            op.named("listNodes")
                .says("Lists all nodes that were ever there.")
                .needs(Need::Read)
                .answers::<Page<NodeOutput>>(200, "The nodes.")
        }),
        resource("/api/v1/nodes/{id}")
            .get(read, |op| op.named("readNode").says("A node.").needs(Need::Read).answers::<NodeOutput>(200, "The node.")),
        resource("/api/v1/nodes/{id}/enable").post(enable, |op| {
            op.named("enableNode").says("Gives a node work again.").needs(Need::Admin).answers::<NodeOutput>(200, "The node.")
        }),
        resource("/api/v1/nodes/{id}/disable").post(disable, |op| {
            op.named("disableNode")
                .says("Gives a node no more work. It finishes what it has.")
                .needs(Need::Admin)
                .answers::<NodeOutput>(200, "The node.")
        }),
        resource("/api/v1/nodes/{id}/status").get(status, |op| {
            op.named("listNodeStatus")
                .says("What a node said in its heartbeats, newest first.")
                .needs(Need::Read)
                .query::<Query>()
                .answers::<Page<NodeStatusOutput>>(200, "The statuses.")
                .may_fail(&[422])
        }),
    ]
}

/// `GET /api/v1/nodes`
pub async fn list(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(Page { items: edge.desk.nodes().await?, next_cursor: None }))
}

/// `GET /api/v1/nodes/{id}`
pub async fn read(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    Ok(HttpResponse::Ok().json(edge.desk.node(id(&request, "id")?).await?))
}

/// `POST /api/v1/nodes/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_node(id(&request, "id")?, true).await?))
}

/// `POST /api/v1/nodes/{id}/disable`
pub async fn disable(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Admin)?;
    Ok(HttpResponse::Ok().json(edge.desk.enable_node(id(&request, "id")?, false).await?))
}

/// The query of a list of statuses.
#[derive(Debug, Deserialize, JsonSchema)]
pub struct Query {
    /// How many; 50 unless said.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/nodes/{id}/status`
pub async fn status(edge: web::Data<Edge>, request: HttpRequest, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    allow(&edge, &request, Need::Read)?;
    let rows = edge.desk.node_status(id(&request, "id")?, limit(query.limit)?).await?;
    let items = rows.into_iter().map(|(load, creation_time)| NodeStatusOutput { load, creation_time }).collect();
    Ok(HttpResponse::Ok().json(Page { items, next_cursor: None }))
}
