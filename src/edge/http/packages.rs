//! `/api/v1/packages`: programs that nodes fetch from the broker.

use crate::edge::Edge;
use crate::edge::answer::IsStreamed;
use crate::edge::auth::{Caller, Need};
use crate::edge::body::Pieces;
use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::api::Page;
use crate::protocol::packages::{MAX_PACKAGE, PackageOutput};
use crate::protocol::problem::Problem;
use actix_web::http::header::{CONTENT_LENGTH, CONTENT_TYPE, ETAG};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use schemars::JsonSchema;
use serde::Deserialize;
use std::fs::File;
use std::io::{self, Read};

/// Bytes of a file that are read or written at once.
const PIECE: usize = 256 * 1024;
/// The longest name and the longest media type, in characters.
const NAME: usize = 200;
/// The default media type.
const BYTES: &str = "application/octet-stream";

/// Routes of this module.
pub fn routes() -> Vec<Resource> {
    vec![
        resource("/api/v1/packages")
            .get(list, |op| {
                op.named("listPackages")
                    .live()
                    .description("Lists the packages that the broker stores, newest first.")
                    .needs(Need::Read)
                    .answers::<Page<PackageOutput>>(200, "The packages.")
            })
            .post(push, |op| {
                op.named("pushPackage")
                    .description("Stores a package: a zip or a tar.gz, as the body. Sending the same bytes again changes nothing.")
                    .needs(Need::Edit)
                    .query::<Query>()
                    .body_as_bytes()
                    .answers::<PackageOutput>(200, "The package is stored.")
                    .may_fail(&[400, 413, 422])
            }),
        resource("/api/v1/packages/{sha256}")
            .text("sha256", "The SHA-256 of the package, 64 hexadecimal digits.")
            .get(fetch, |op| {
                op.named("fetchPackage").description("The bytes of a package.").needs(Need::Agent).answers_as(200, BYTES, "The package.")
            })
            .delete(remove, |op| {
                op.named("removePackage")
                    .description("Deletes a package that no job and no open run uses.")
                    .needs(Need::Edit)
                    .answers_nothing(204, "The package is deleted.")
                    .may_fail(&[409])
            }),
    ]
}

/// The query of a push.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Query {
    /// A name for people.
    #[schemars(length(max = NAME))]
    name: Option<String>,
}

/// `GET /api/v1/packages`
pub async fn list(edge: web::Data<Edge>) -> Result<HttpResponse, Failure> {
    Ok(HttpResponse::Ok().json(Page { items: edge.service.packages().await?, next_cursor: None }))
}

/// `POST /api/v1/packages`
pub async fn push(
    edge: web::Data<Edge>,
    caller: Caller,
    request: HttpRequest,
    query: web::Query<Query>,
    payload: web::Payload,
) -> Result<HttpResponse, Failure> {
    let name = query.into_inner().name.filter(|name| !name.is_empty());
    let header = |name| request.headers().get(name).and_then(|value| value.to_str().ok());
    let media_type = header(CONTENT_TYPE).unwrap_or(BYTES).to_owned();
    if name.as_ref().is_some_and(|name| name.chars().count() > NAME || name.chars().any(char::is_control)) {
        return Err(Problem::invalid("name", format!("must be at most {NAME} characters without control characters")).into());
    }
    if media_type.len() > NAME {
        return Err(Problem::invalid("content-type", format!("must be at most {NAME} characters")).into());
    }
    let declared = header(CONTENT_LENGTH).and_then(|length| length.parse::<u64>().ok());
    if declared.is_some_and(|length| length > MAX_PACKAGE) {
        return Err(Problem::too_large(MAX_PACKAGE as usize).into());
    }
    let mut incoming = edge.service.begin_package().await?;
    let (mut piece, mut is_empty) = (BytesMut::new(), true);
    let mut pieces_in = Pieces::of(&request, payload)?;
    while let Some(chunk) = pieces_in.next().await? {
        is_empty &= chunk.is_empty();
        piece.extend_from_slice(&chunk);
        if piece.len() >= PIECE {
            incoming = incoming.take(piece.split().freeze()).await?;
        }
    }
    if is_empty {
        return Err(Problem::malformed("the body is empty: send the bytes of the package").into());
    }
    let incoming = incoming.take(piece.freeze()).await?;
    Ok(HttpResponse::Ok().json(edge.service.keep_package(incoming, name, media_type, caller.name).await?))
}

/// `GET /api/v1/packages/{sha256}`
pub async fn fetch(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    let (package, file) = edge.service.open_package(hash(&request)?).await?;
    let mut answer = HttpResponse::Ok();
    answer.content_type(BYTES).insert_header((ETAG, format!("\"{}\"", package.sha256)));
    let mut answer = answer.no_chunking(package.size).streaming(pieces(file));
    answer.extensions_mut().insert(IsStreamed);
    Ok(answer)
}

/// `DELETE /api/v1/packages/{sha256}`
pub async fn remove(edge: web::Data<Edge>, request: HttpRequest) -> Result<HttpResponse, Failure> {
    edge.service.remove_package(hash(&request)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// The hash in the path; any other text names no package, and so no file either.
fn hash(request: &HttpRequest) -> Result<&str, Problem> {
    let text = request.match_info().get("sha256").unwrap_or_default();
    if text.len() != 64 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Err(Problem::not_found(format!("there is no package {text}: a package is named by its SHA-256, 64 hexadecimal digits")));
    }
    Ok(text)
}

/// Streams a file piece by piece; each piece is read outside the server threads.
fn pieces(file: File) -> impl futures_util::Stream<Item = Result<Bytes, io::Error>> {
    stream::unfold(Some(file), |file| async move {
        let mut file = file?;
        let read = web::block(move || {
            let mut piece = Vec::with_capacity(PIECE);
            file.by_ref().take(PIECE as u64).read_to_end(&mut piece).map(|_| (piece, file))
        });
        match read.await {
            Ok(Ok((piece, _))) if piece.is_empty() => None,
            Ok(Ok((piece, file))) => Some((Ok(Bytes::from(piece)), Some(file))),
            Ok(Err(error)) => Some((Err(error), None)),
            Err(_) => Some((Err(io::Error::other("reading the file panicked")), None)),
        }
    })
}
