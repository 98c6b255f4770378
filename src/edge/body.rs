//! Request bodies: read within limits of bytes and time, and unpacked within the same byte limit.
//!
//! The memory of a body counts in the [`Budget`](crate::actors::budget::Budget) until its call is answered. Slow unpacking and parsing
//! run outside the server threads, so that these stay responsive.

use super::Edge;
use super::auth::Caller;
use super::error::Failure;
use super::intake::Arrival;
use crate::actors::budget::{Budget, Charge};
use crate::domain::ids::{InvalidId, NumberOr};
use crate::protocol::problem::Problem;
use crate::protocol::push::read_object;
use crate::service::NumberedId;
use actix_web::http::header::{CONTENT_ENCODING, CONTENT_LENGTH};
use actix_web::{HttpMessage as _, HttpRequest, web};
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::{FutureExt as _, StreamExt as _};
use serde::de::DeserializeOwned;
use std::io::Read;
use std::str::FromStr;
use std::sync::OnceLock;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep_until};

/// The largest body of a REST call.
pub const MAX_JSON: usize = 1 << 20;

/// Bodies up to this many bytes are not counted.
const FREE: usize = 16 << 10;
/// The longest pause between two pieces of a body.
const PAUSE: Duration = Duration::from_secs(10);
/// Lowest average rate of a body, in bytes per second, after the first [`PAUSE`].
const LEAST_RATE: usize = 1 << 10;
/// The longest time that a whole body may take.
const MOST_TIME: Duration = Duration::from_secs(3_600);
/// Largest ratio of unpacked to packed size, high enough for packages; bodies below [`MAX_JSON`] are exempt.
const MOST_RATIO: usize = 200;
/// Bytes that are unpacked, and bytes that are parsed, on a server thread: some milliseconds of work.
const INLINE: usize = 256 << 10;
const INLINE_PARSED: usize = 1 << 20;
/// Bytes that are unpacked between two budget checks.
const PIECE: usize = 1 << 20;

/// The charge of a body, stored in the request while the body is in memory.
struct Held(#[expect(dead_code, reason = "it counts until it is dropped")] Charge);

fn edge_of(request: &HttpRequest) -> Result<&Edge, Failure> {
    request.app_data::<web::Data<Edge>>().map(|edge| &***edge).ok_or_else(|| Problem::internal().into())
}

/// An empty charge in the caller's share of the budget. Call it after the access check.
pub fn nothing_held(budget: &Budget, request: &HttpRequest) -> Charge {
    let extensions = request.extensions();
    budget.share(extensions.get::<Caller>().and_then(Caller::share)).nothing()
}

/// A body that is read piece by piece.
pub struct Pieces<'r> {
    edge: &'r Edge,
    payload: web::Payload,
    began: Instant,
    bytes: usize,
}

impl<'r> Pieces<'r> {
    /// The body of a request.
    ///
    /// # Errors
    /// The server is not set up.
    pub fn of(request: &'r HttpRequest, payload: web::Payload) -> Result<Self, Failure> {
        Ok(Self { edge: edge_of(request)?, payload, began: Instant::now(), bytes: 0 })
    }

    /// The next piece; `None` at the end.
    ///
    /// # Errors
    /// The body was cut short or is too slow, or the broker stops before the body is complete.
    pub async fn next(&mut self) -> Result<Option<Bytes>, Failure> {
        let come = match self.payload.next().now_or_never() {
            Some(come) => come,
            None => self.wait().await?,
        };
        let piece = come.transpose().map_err(|e| Problem::malformed(format!("the body was cut short: {e}")))?;
        self.bytes += piece.as_ref().map_or(0, Bytes::len);
        Ok(piece)
    }

    async fn wait(&mut self) -> Result<Option<Result<Bytes, actix_web::error::PayloadError>>, Failure> {
        let by_rate = self.began + PAUSE + Duration::from_secs((self.bytes / LEAST_RATE) as u64);
        let latest = (Instant::now() + PAUSE).min(by_rate).min(self.began + MOST_TIME);
        tokio::select! {
            come = self.payload.next() => Ok(come),
            () = sleep_until(latest) => {
                let (bytes, seconds) = (self.bytes, self.began.elapsed().as_secs());
                let detail = format!(
                    "the body is too slow: {bytes} bytes in {seconds} s; pauses must be at most {} s, the rate at least {LEAST_RATE} bytes per second, and the total time at most {} s",
                    PAUSE.as_secs(),
                    MOST_TIME.as_secs()
                );
                Err(Problem::too_slow(detail).into())
            }
            () = self.edge.traffic.ending() => Err(Problem::ending().into()),
        }
    }
}

/// Reads a body and undoes its `Content-Encoding`. Call it after the access check.
///
/// # Errors
/// The body is over the limit before or after unpacking, too slow, cut short, damaged, or in an unknown encoding; or the memory budget is
/// used up.
pub async fn read(request: &HttpRequest, payload: web::Payload, limit: usize) -> Result<Bytes, Failure> {
    read_as(request, payload, limit, None).await
}

/// Like [`read`], for a body that may have to wait for others while it arrives.
///
/// # Errors
/// Those of [`read`], or it waited too long.
pub async fn read_as(request: &HttpRequest, payload: web::Payload, limit: usize, arrival: Option<&mut Arrival>) -> Result<Bytes, Failure> {
    let declared: usize = request.headers().get(CONTENT_LENGTH).and_then(|v| v.to_str().ok()).and_then(|v| v.parse().ok()).unwrap_or(0);
    if declared > limit {
        return Err(Problem::too_large(limit).into());
    }
    let encoding = request.headers().get(CONTENT_ENCODING).map_or(Ok("identity"), |v| v.to_str()).unwrap_or("?");
    let encoding = Encoding::named(encoding)?;
    let (body, charge) = gather(request, payload, declared, limit, arrival).await?;
    let (body, charge) = match encoding {
        None => (body, charge),
        Some(encoding) => unpack(request, body, charge, encoding, limit).await?,
    };
    if let Some(charge) = charge {
        request.extensions_mut().insert(Held(charge));
    }
    Ok(body)
}

/// Joins the pieces of a body; a body of one piece is not copied.
async fn gather(
    request: &HttpRequest,
    payload: web::Payload,
    declared: usize,
    limit: usize,
    mut arrival: Option<&mut Arrival>,
) -> Result<(Bytes, Option<Charge>), Failure> {
    let mut pieces = Pieces::of(request, payload)?;
    let (mut first, mut joined, mut charge) = (Bytes::new(), BytesMut::new(), None);
    while let Some(piece) = pieces.next().await? {
        let bytes = first.len().max(joined.len()) + piece.len();
        if bytes > limit {
            return Err(Problem::too_large(limit).into());
        }
        if let Some(arrival) = &mut arrival {
            arrival.reaches(bytes).await?;
        }
        if bytes > FREE {
            charge.get_or_insert_with(|| nothing_held(&pieces.edge.budget, request)).set(bytes).map_err(Problem::from)?;
        }
        if first.is_empty() && joined.is_empty() {
            first = piece;
            continue;
        }
        if joined.is_empty() {
            // The declared length may be false: reserve only what a first piece makes plausible.
            joined.reserve(declared.min(1 << 20).max(first.len() + piece.len()));
            joined.extend_from_slice(&std::mem::take(&mut first));
        }
        joined.extend_from_slice(&piece);
    }
    Ok((if joined.is_empty() { first } else { joined.freeze() }, charge))
}

#[derive(Debug, Clone, Copy)]
enum Encoding {
    Gzip,
    Zstd,
    Lz4,
}

impl Encoding {
    fn named(name: &str) -> Result<Option<Self>, Problem> {
        Ok(Some(match name.to_ascii_lowercase().as_str() {
            "identity" => return Ok(None),
            "gzip" => Self::Gzip,
            "zstd" => Self::Zstd,
            "lz4" => Self::Lz4,
            other => return Err(Problem::unsupported(format!("unknown content encoding `{other}`: expected gzip, zstd, lz4 or identity"))),
        }))
    }

    fn reader(self, body: Bytes) -> Result<Box<dyn Read + Send>, Problem> {
        Ok(match self {
            Self::Gzip => Box::new(flate2::read::MultiGzDecoder::new(body.reader())),
            Self::Zstd => Box::new(zstd::stream::read::Decoder::new(body.reader()).map_err(|e| Problem::malformed(e.to_string()))?),
            Self::Lz4 => Box::new(lz4_flex::frame::FrameDecoder::new(body.reader())),
        })
    }
}

/// What is being unpacked.
struct Unpacking {
    reader: Box<dyn Read + Send>,
    out: Vec<u8>,
    /// The limit of the unpacked size, and the error if it is exceeded.
    most: usize,
    over: Problem,
}

impl Unpacking {
    /// Unpacks at most this many more bytes; returns whether the end was reached.
    fn step(&mut self, bytes: usize) -> Result<bool, Problem> {
        let read = self.reader.by_ref().take(bytes as u64).read_to_end(&mut self.out);
        let read = read.map_err(|e| Problem::malformed(format!("the body cannot be unpacked: {e}")))?;
        if self.out.len() > self.most { Err(self.over.clone()) } else { Ok(read < bytes) }
    }
}

async fn unpack(
    request: &HttpRequest,
    body: Bytes,
    charge: Option<Charge>,
    encoding: Encoding,
    limit: usize,
) -> Result<(Bytes, Option<Charge>), Failure> {
    let edge = edge_of(request)?;
    let dense = body.len().saturating_mul(MOST_RATIO).max(MAX_JSON);
    let (most, over) = if dense < limit { (dense, Problem::too_dense(MOST_RATIO)) } else { (limit, Problem::too_large(limit)) };
    let mut unpacking = Unpacking { reader: encoding.reader(body)?, out: Vec::new(), most, over };
    if unpacking.step(INLINE)? {
        return Ok((Bytes::from(unpacking.out), charge));
    }
    let mut charge = charge.unwrap_or_else(|| nothing_held(&edge.budget, request));
    let traffic = edge.traffic.clone();
    let unpacked = aside(move || {
        charge.add(unpacking.out.len())?;
        loop {
            charge.add(PIECE)?;
            if traffic.is_ending() {
                return Err(Problem::ending());
            }
            if unpacking.step(PIECE)? {
                return Ok((Bytes::from(unpacking.out), Some(charge)));
            }
        }
    });
    Ok(unpacked.await?)
}

/// Runs slow work outside the server threads. It uses at most half of the processors.
///
/// # Errors
/// The errors of the work.
pub async fn aside<T: Send + 'static>(work: impl FnOnce() -> Result<T, Problem> + Send + 'static) -> Result<T, Problem> {
    static PERMITS: OnceLock<Semaphore> = OnceLock::new();
    let processors = || std::thread::available_parallelism().map_or(1, usize::from);
    let permits = PERMITS.get_or_init(|| Semaphore::new((processors() / 2).max(1)));
    let _permit = permits.acquire().await.map_err(|_| Problem::internal())?;
    web::block(work).await.map_err(|_| Problem::internal())?
}

/// Parses a body, outside the server threads if it is large. `factor` is the memory for parsing as a multiple of the body's size.
///
/// # Errors
/// The errors of `reads`, or the memory budget is used up.
pub async fn parse<T: Send + 'static>(
    request: &HttpRequest,
    body: Bytes,
    factor: usize,
    reads: impl FnOnce(Bytes) -> Result<T, Problem> + Send + 'static,
) -> Result<T, Failure> {
    if body.len() <= INLINE_PARSED {
        return Ok(reads(body)?);
    }
    let mut charge = nothing_held(&edge_of(request)?.budget, request);
    charge.set(body.len().saturating_mul(factor)).map_err(Problem::from)?;
    let read = aside(move || reads(body)).await?;
    request.extensions_mut().insert(Parsed(charge));
    Ok(read)
}

/// Like [`Held`], for the parsed body.
struct Parsed(#[expect(dead_code, reason = "it counts until it is dropped")] Charge);

/// Reads a JSON body.
///
/// # Errors
/// Same as [`read`], or the JSON does not match the type; then the problem names the field.
pub async fn json<T: DeserializeOwned>(request: &HttpRequest, payload: web::Payload) -> Result<T, Failure> {
    let body = read(request, payload, MAX_JSON).await?;
    super::audit::note_members(request, &body);
    Ok(read_object(&body)?)
}

/// Reads a JSON body; an empty body gives the default.
///
/// # Errors
/// Same as [`json`].
pub async fn json_or_default<T: DeserializeOwned + Default>(request: &HttpRequest, payload: web::Payload) -> Result<T, Failure> {
    let body = read(request, payload, MAX_JSON).await?;
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(T::default());
    }
    super::audit::note_members(request, &body);
    Ok(read_object(&body)?)
}

/// Reads a path segment as an id, or as the number of an existing entry.
///
/// # Errors
/// It is neither, no entry has this number, or several have it.
pub async fn id<T: NumberedId + FromStr<Err = InvalidId>>(edge: &Edge, request: &HttpRequest, name: &str) -> Result<T, Failure> {
    let text = request.match_info().get(name).unwrap_or_default();
    let named: NumberOr<T> = text.parse().map_err(|e: InvalidId| Failure(Problem::malformed(e.to_string()).at(name)))?;
    Ok(edge.service.meant(named).await.map_err(|problem| problem.at(name))?)
}
