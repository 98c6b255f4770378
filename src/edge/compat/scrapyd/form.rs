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
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use tokio::sync::mpsc;

/// The field of the file.
const EGG: &str = "egg";
/// Bytes of a file that are written at once.
const PIECE: usize = 256 << 10;
/// What a part costs in memory beside its name and its text.
const PART: usize = 64;

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
    let (pieces, received) = mpsc::channel::<Bytes>(1);
    let unread = Unread::default();
    let parts = parts(received, boundary, unread.clone());
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
    let (read, parsed) = tokio::join!(reads, parsed(edge, parts, &unread));
    // An error of the body explains an error of the parser.
    read?;
    parsed
}

/// Bytes that the parser received since it last returned something.
#[derive(Debug, Clone, Default)]
struct Unread(Arc<AtomicUsize>);

impl Unread {
    /// What the parser returned.
    fn seen<T>(&self, found: multer::Result<T>) -> Result<T, Problem> {
        self.0.store(0, Relaxed);
        found.map_err(malformed)
    }
}

/// The parser must be able to move between threads, and the body of a request cannot. So the body passes through a channel.
fn parts(received: mpsc::Receiver<Bytes>, boundary: String, unread: Unread) -> Multipart<'static> {
    let body = stream::unfold((received, unread), |(mut received, unread)| async move {
        let piece = received.recv().await?;
        let piece = match unread.0.fetch_add(piece.len(), Relaxed) {
            // The parser keeps in memory what is before the content of a part, and has no limit for it.
            before if before > MAX_JSON => Err(io::Error::other(format!("no part begins within {MAX_JSON} bytes"))),
            _ => Ok(piece),
        };
        Some((piece, (received, unread)))
    });
    let limits = SizeLimit::new().whole_stream(MAX_PACKAGE + MAX_JSON as u64);
    Multipart::with_constraints(body, boundary, Constraints::new().size_limit(limits))
}

fn malformed(error: multer::Error) -> Problem {
    match error {
        multer::Error::StreamSizeExceeded { limit } => Problem::too_large(limit as usize),
        multer::Error::StreamReadFailed(error) => Problem::malformed(format!("the form cannot be read: {error}")),
        error => Problem::malformed(format!("the form cannot be read: {error}")),
    }
}

async fn parsed(edge: &Edge, mut parts: Multipart<'_>, unread: &Unread) -> Result<Form, Failure> {
    let (mut form, mut text_bytes) = (Form::default(), 0);
    while let Some(mut part) = unread.seen(parts.next_field().await)? {
        let name = part.name().unwrap_or_default().to_owned();
        if name == EGG && form.egg.is_none() {
            let (mut egg, mut piece) = (edge.service.begin_package().await?, BytesMut::new());
            while let Some(chunk) = unread.seen(part.chunk().await)? {
                piece.extend_from_slice(&chunk);
                if piece.len() >= PIECE {
                    egg = egg.take(piece.split().freeze()).await?;
                }
            }
            form.egg = Some(egg.take(piece.freeze()).await?);
            continue;
        }
        let mut value = Vec::new();
        text_bytes += PART + name.len();
        if text_bytes > MAX_JSON {
            return Err(Problem::too_large(MAX_JSON).into());
        }
        while let Some(chunk) = unread.seen(part.chunk().await)? {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets the parser read a body in pieces of 64 KiB. Returns how many it took, and the problem.
    async fn first_part(start: &'static str) -> (usize, Option<Problem>) {
        let (pieces, received) = mpsc::channel(1);
        let unread = Unread::default();
        let mut parts = parts(received, "b".to_owned(), unread.clone());
        let sends = async {
            let mut taken = 0;
            if pieces.send(Bytes::from_static(start.as_bytes())).await.is_ok() {
                while taken < 100 && pieces.send(vec![b'x'; 64 << 10].into()).await.is_ok() {
                    taken += 1;
                }
            }
            drop(pieces);
            taken
        };
        let reads = async move {
            let mut part = match unread.seen(parts.next_field().await) {
                Ok(part) => part?,
                Err(problem) => return Some(problem),
            };
            loop {
                match unread.seen(part.chunk().await) {
                    Ok(Some(_)) => {}
                    Ok(None) => return None,
                    Err(problem) => return Some(problem),
                }
            }
        };
        tokio::join!(sends, reads)
    }

    #[tokio::test]
    async fn a_part_that_never_begins_is_not_kept_in_memory() {
        for start in ["", "--b\r\nContent-Disposition: form-data; name=\"project\"\r\nX-Long: "] {
            let (taken, problem) = first_part(start).await;
            let problem = problem.expect("a problem");
            assert!(problem.detail.contains("no part begins within 1048576 bytes"), "{}", problem.detail);
            assert!((16..=19).contains(&taken), "{taken}");
        }
    }

    #[tokio::test]
    async fn the_content_of_a_part_may_be_long() {
        let (taken, problem) = first_part("--b\r\nContent-Disposition: form-data; name=\"egg\"\r\n\r\n").await;
        // The end is missing.
        assert!(taken == 100 && problem.is_some_and(|problem| !problem.detail.contains("no part begins")));
    }
}
