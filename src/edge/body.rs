//! Bodies: read within a limit, and unpacked within the same limit.

use super::Edge;
use super::error::Failure;
use crate::actors::desk::NumberedId;
use crate::domain::ids::{InvalidId, NumberOr};
use crate::protocol::problem::Problem;
use crate::protocol::push::read_object;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use actix_web::{HttpRequest, web};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use std::io::Read;
use std::str::FromStr;

/// The largest body of a REST call.
pub const MAX_JSON: usize = 1 << 20;

/// Reads a body, and undoes its `Content-Encoding`.
///
/// # Errors
/// It is over the limit before or after unpacking, cut short, damaged, or in an encoding that is not known.
pub async fn read(request: &HttpRequest, mut payload: web::Payload, limit: usize) -> Result<Bytes, Failure> {
    let declared: usize = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()).unwrap_or(0);
    if declared > limit {
        return Err(Problem::too_large(limit).into());
    }
    let body = gather(&mut payload, declared, limit).await?;
    let encoding = request.headers().get(CONTENT_ENCODING).map_or(Ok("identity"), |v| v.to_str()).unwrap_or("?");
    match encoding.to_ascii_lowercase().as_str() {
        "identity" => Ok(body),
        "gzip" => unpack(flate2::read::MultiGzDecoder::new(&body[..]), limit),
        "zstd" => unpack(zstd::stream::read::Decoder::new(&body[..]).map_err(|e| Problem::malformed(e.to_string()))?, limit),
        "lz4" => unpack(lz4_flex::frame::FrameDecoder::new(&body[..]), limit),
        other => Err(Problem::unsupported(format!("the encoding `{other}` is not known: gzip, zstd, lz4 and identity are")).into()),
    }
}

/// Joins the pieces of a body; one that comes in one piece is not copied.
async fn gather(payload: &mut web::Payload, declared: usize, limit: usize) -> Result<Bytes, Failure> {
    let (mut first, mut joined) = (Bytes::new(), BytesMut::new());
    while let Some(chunk) = payload.next().await {
        let chunk = chunk.map_err(|e| Problem::malformed(format!("the body was cut short: {e}")))?;
        if first.len().max(joined.len()) + chunk.len() > limit {
            return Err(Problem::too_large(limit).into());
        }
        if first.is_empty() && joined.is_empty() {
            first = chunk;
            continue;
        }
        if joined.is_empty() {
            // What is declared need not be true: room is made for it only as far as one piece shows that it may be.
            joined.reserve(declared.min(1 << 20).max(first.len() + chunk.len()));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&chunk);
    }
    Ok(if joined.is_empty() { first } else { joined.freeze() })
}

fn unpack(reader: impl Read, limit: usize) -> Result<Bytes, Failure> {
    let mut out = Vec::new();
    let read =
        reader.take(limit as u64 + 1).read_to_end(&mut out).map_err(|e| Problem::malformed(format!("the body cannot be unpacked: {e}")))?;
    if read > limit {
        return Err(Problem::too_large(limit).into());
    }
    Ok(Bytes::from(out))
}

/// Reads a JSON body.
///
/// # Errors
/// As [`read`], or it is not what is expected; then the problem names the place.
pub async fn json<T: DeserializeOwned>(request: &HttpRequest, payload: web::Payload) -> Result<T, Failure> {
    let body = read(request, payload, MAX_JSON).await?;
    Ok(read_object(&body)?)
}

/// Reads a JSON body; an empty one is the default.
///
/// # Errors
/// As [`json`].
pub async fn json_or_default<T: DeserializeOwned + Default>(request: &HttpRequest, payload: web::Payload) -> Result<T, Failure> {
    let body = read(request, payload, MAX_JSON).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    Ok(read_object(&body)?)
}

/// Reads a part of the path as an id, or as the number of something that is there.
///
/// # Errors
/// It is neither, nothing has the number, or several do.
pub async fn id<T: NumberedId + FromStr<Err = InvalidId>>(edge: &Edge, request: &HttpRequest, name: &str) -> Result<T, Failure> {
    let text = request.match_info().get(name).unwrap_or_default();
    let named: NumberOr<T> = text.parse().map_err(|e: InvalidId| Failure(Problem::malformed(e.to_string()).at(name)))?;
    Ok(edge.desk.meant(named).await.map_err(|problem| problem.at(name))?)
}
