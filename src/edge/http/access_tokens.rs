//! `/api/v1/tokens`

use crate::edge::Edge;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::json;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::access_tokens::{NewToken, TokenInput, TokenOutput};
use crate::protocol::problem::Problem;
use actix_web::{HttpRequest, HttpResponse, web};
use schemars::JsonSchema;
use serde::Serialize;

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/tokens")
            .get(list, |op| {
                op.named("listTokens").live()
                    .description("Lists the named tokens, without their texts. Tokens of the command line and of the token file are not listed.")
                    .needs(Need::Admin)
                    .answers::<TokensOutput>(200, "The tokens, by name.")
            })
            .post(create, |op| {
                op.named("createToken")
                    .description("Creates a named token. Its text is in this response only: the broker stores its SHA-256.")
                    .needs(Need::Admin)
                    .body::<TokenInput>()
                    .answers::<NewToken>(201, "The token, with its text.")
                    .with_header("Location", "The address of the token.")
                    .may_fail(&[409, 422])
            }),
        resource("/api/v1/tokens/{name}").text("name", "The name of a token.").delete(revoke, |op| {
            op.named("revokeToken")
                .description("Revokes a token. What was opened with it, such as WebSockets and waiting calls, ends at once; at a standby within about a second.")
                .needs(Need::Admin)
                .answers_nothing(204, "The token is revoked.")
        }),
    ]
}

/// All named tokens.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TokensOutput {
    /// Each of them.
    items: Vec<TokenOutput>,
}

/// `GET /api/v1/tokens`
pub async fn list(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(TokensOutput { items: edge.service.tokens().await? }))
}

/// `POST /api/v1/tokens`
pub async fn create(edge: web::Data<Edge>, caller: Caller, request: HttpRequest, payload: web::Payload) -> Result<HttpResponse, Failure> {
    let input: TokenInput = json(&request, payload).await?;
    if edge.tokens.is_open() {
        // With the first named token the broker would ask for one, and there may be no admin among them.
        let detail = "this broker was started without tokens, so every caller is an admin: start it with --token or --token-file first";
        return Err(Problem::conflict("open-broker", detail).into());
    }
    let service = edge.service.clone();
    let token = edge.change_tokens(async move { service.create_token(input, caller.name).await }).await?;
    log::info!("token created name={} role={}", token.token.name, token.token.role);
    Ok(HttpResponse::Created().insert_header(("Location", format!("/api/v1/tokens/{}", token.token.name))).json(token))
}

/// `DELETE /api/v1/tokens/{name}`
pub async fn revoke(edge: web::Data<Edge>, name: web::Path<String>) -> Result<HttpResponse, Failure> {
    let name = name.into_inner();
    let (service, revoked) = (edge.service.clone(), name.clone());
    edge.change_tokens(async move { service.revoke_token(revoked).await }).await?;
    log::info!("token revoked name={name}");
    Ok(HttpResponse::NoContent().finish())
}
