//! Reads the forms of scrapyd's clients: URL-encoded, or in parts with the egg as a file.

use crate::actors::packages::Incoming;
use crate::edge::Edge;
use crate::edge::body::{MAX_JSON, Pieces, read};
use crate::edge::error::Failure;
use crate::protocol::packages::MAX_PACKAGE;
use crate::protocol::problem::Problem;
use crate::protocol::scrapyd::Fields;
use actix_web::http::header::CONTENT_TYPE;
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::stream;
use multer::{Constraints, Multipart, SizeLimit};
use std::convert::Infallible;
use tokio::sync::mpsc;

/// The field of the file.
const EGG: &str = "egg";
/// Bytes of a file that are written at once.
const PIECE: usize = 256 << 10;

/// A form that was read.
#[derive(Debug, Default)]
pub struct Form {
    /// The fields that are texts.
    pub fields: Fields,
    /// The egg, if one was sent.
    pub egg: Option<Incoming>,
}

/// Reads the body of a request as a form.
///
/// # Errors
/// The body is no form, or is too large, too slow or cut short.
pub async fn form(edge: &Edge, request: &HttpRequest, payload: web::Payload) -> Result<Form, Failure> {
    let media_type = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match multer::parse_boundary(media_type) {
        Ok(boundary) => in_parts(edge, request, payload, boundary).await,
        Err(_) => {
            let body = read(request, payload, MAX_JSON).await?;
            let fields = url::form_urlencoded::parse(&body).into_owned().collect();
            Ok(Form { fields: Fields(fields), egg: None })
        }
    }
}

async fn in_parts(edge: &Edge, request: &HttpRequest, payload: web::Payload, boundary: String) -> Result<Form, Failure> {
    // The parser must be able to move between threads, and the body of a request cannot. So the body passes through a channel.
    let (pieces, received) = mpsc::channel::<Bytes>(1);
    let body = stream::unfold(received, |mut received| async move {
        let piece: Bytes = received.recv().await?;
        Some((Ok::<_, Infallible>(piece), received))
    });
    let limits = SizeLimit::new().whole_stream(MAX_PACKAGE + MAX_JSON as u64);
    let parts = Multipart::with_constraints(body, boundary, Constraints::new().size_limit(limits));
    let reads = async {
        let mut body = Pieces::of(request, payload)?;
        while let Some(piece) = body.next().await? {
            if pieces.send(piece).await.is_err() {
                // The parser has found an error.
                break;
            }
        }
        drop(pieces);
        Ok::<_, Failure>(())
    };
    let (read, parsed) = tokio::join!(reads, parsed(edge, parts));
    // An error of the body explains an error of the parser.
    read?;
    parsed
}

fn malformed(error: multer::Error) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { limit } => Problem::too_large(limit as usize),
        error => Problem::malformed(format!("the form cannot be read: {error}")),
    }
}

async fn parsed(edge: &Edge, mut parts: Multipart<'_>) -> Result<Form, Failure> {
    let (mut form, mut text_bytes) = (Form::default(), 0);
    while let Some(mut part) = parts.next_field().await.map_err(malformed)? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == EGG && form.egg.is_none() {
            let (mut egg, mut piece) = (edge.service.begin_package().await?, BytesMut::new());
            while let Some(chunk) = part.chunk().await.map_err(malformed)? {
                piece.extend_from_slice(&chunk);
                if piece.len() >= PIECE {
                    egg = egg.take(piece.split().freeze()).await?;
                }
            }
            form.egg = Some(egg.take(piece.freeze()).await?);
            continue;
        }
        let mut value = Vec::new();
        while let Some(chunk) = part.chunk().await.map_err(malformed)? {
            text_bytes += chunk.len();
            if text_bytes > MAX_JSON {
                return Err(Problem::too_large(MAX_JSON).into());
            }
            value.extend_from_slice(&chunk);
        }
        let value = String::from_utf8(value).map_err(|_| Problem::malformed(format!("{name} is invalid: the text is not UTF-8")))?;
        form.fields.0.push((name, value));
    }
    Ok(form)
}
