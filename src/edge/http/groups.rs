//! `/api/v1/groups`

use super::limit;
use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::{json, json_or_default};
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::Page;
use crate::protocol::management::{DisableInput, GroupInput, GroupOutput, GroupSwitched};
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Deserialize;

/// How a path names a group.
const KEY: &str = "The group's id, or its name.";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/groups")
            .get(list, |op| {
                op.named("listGroups")
                    .live()
                    .limits_itself()
                    .description("Lists groups by their names.")
                    .needs(Need::Read)
                    .query::<Query>()
                    .answers::<Page<GroupOutput>>(200, "A page of groups.")
                    .may_fail(&[422])
            })
            .post(create, |op| {
                op.named("createGroup")
                    .description("Creates a group.")
                    .needs(Need::Edit)
                    .body::<GroupInput>()
                    .answers::<GroupOutput>(201, "The group.")
                    .with_header("Location", "The address of the group.")
                    .may_fail(&[404, 409, 422])
            }),
        resource("/api/v1/groups/{id}")
            .text("id", KEY)
            .get(read, |op| op.named("readGroup").description("A group.").needs(Need::Read).answers::<GroupOutput>(200, "The group."))
            .put(update, |op| {
                op.named("updateGroup")
                    .description("Changes a group. Its jobs refer to it by the new name from then on.")
                    .needs(Need::Edit)
                    .body::<GroupInput>()
                    .answers::<GroupOutput>(200, "The group as it is now.")
                    .may_fail(&[409, 422])
            })
            .delete(delete, |op| {
                op.named("deleteGroup")
                    .description("Deletes a group that has no jobs.")
                    .needs(Need::Edit)
                    .answers_nothing(204, "The group is deleted.")
                    .may_fail(&[409])
            }),
        resource("/api/v1/groups/{id}/enable").text("id", KEY).post(enable, |op| {
            op.named("enableGroup")
                .description("Enables all jobs of a group.")
                .needs(Need::Operate)
                .answers::<GroupSwitched>(200, "The number of jobs.")
                .may_fail(&[409])
        }),
        resource("/api/v1/groups/{id}/disable").text("id", KEY).post(disable, |op| {
            op.named("disableGroup")
                .description("Disables all jobs of a group.")
                .needs(Need::Operate)
                .body_or_nothing::<DisableInput>()
                .answers::<GroupSwitched>(200, "The number of jobs.")
                .may_fail(&[409, 422])
        }),
    ]
}

/// The query of a list of groups.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// `nextCursor` of the previous page.
    cursor: Option<String>,
    /// Items per page, 50 by default.
    #[schemars(range(min = 1, max = super::MOST))]
    limit: Option<usize>,
}

/// `GET /api/v1/groups`
pub async fn list(edge: web::Data<Edge>, caller: Caller, query: web::Query<Query>) -> Result<HttpResponse, Failure> {
    let Query { cursor, limit: asked } = query.into_inner();
    Ok(HttpResponse::Ok().json(edge.service.groups(caller.among(), cursor, limit(asked)?).await?))
}

/// `POST /api/v1/groups`
pub async fn create(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let group = edge.service.create_group(json(&request, payload).await?, caller.name).await?;
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/groups/{}", group.id))).json(group))
}

/// `GET /api/v1/groups/{id}`
pub async fn read(edge: web::Data<Edge>, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.group(&path).await?))
}

/// `PUT /api/v1/groups/{id}`
pub async fn update(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let input = json(&request, payload).await?;
    // A new name is also in the tokens that are limited to the group.
    let service = edge.service.clone();
    let group = edge.change_tokens(async move { service.update_group(&path, input, caller.name).await }).await?;
    Ok(HttpResponse::Ok().json(group))
}

/// `DELETE /api/v1/groups/{id}`
pub async fn delete(edge: web::Data<Edge>, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    edge.service.delete_group(&path).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /api/v1/groups/{id}/enable`
pub async fn enable(edge: web::Data<Edge>, caller: Caller, path: web::Path<String>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(edge.service.switch_group(&path, None, caller.name).await?))
}

/// `POST /api/v1/groups/{id}/disable`
pub async fn disable(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    path: web::Path<String>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let input = json_or_default(&request, payload).await?;
    Ok(HttpResponse::Ok().json(edge.service.switch_group(&path, Some(input), caller.name).await?))
}
