//! Content codings (RFC 9110, section 8.4): unpacks a body.
//!
//! A body is decoded piece by piece, and no layer produces more than its limit: a small body that unpacks to a huge one costs no more
//! memory and time than the limit allows.

use super::attempt::Reading;
use super::failure::{fetch_error, in_the_body};
use crate::protocol::node::{FetchError, FetchErrorKind};
use async_compression::tokio::bufread::{BrotliDecoder, DeflateDecoder, GzipDecoder, ZlibDecoder, ZstdDecoder};
use bytes::{Bytes, BytesMut};
use futures_util::{Stream, StreamExt, stream};
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, HeaderMap};
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncReadExt, BufReader, ReadBuf};
use tokio::time::timeout_at;
use tokio_util::io::StreamReader;

/// The default `Accept-Encoding` of a request.
pub const ACCEPTED: &str = "gzip,deflate,br,zstd";
/// Maximum number of codings of one body.
const MOST_CODINGS: usize = 3;
/// Bytes that are read after the end of a decoded body, so that its connection can be reused.
const MOST_REST: usize = 16 << 10;
const PIECE: usize = 16 << 10;

/// A content coding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950; or plain RFC 1951, which some servers send under this name.
    Deflate,
    /// RFC 7932.
    Brotli,
    /// RFC 8878.
    Zstd,
}

/// The codings of a body, in the order in which they were applied.
///
/// # Errors
/// Kind *body*: a coding is unknown, or there are too many.
pub fn codings(headers: &HeaderMap) -> Result<Vec<Coding>, FetchError> {
    let mut found = Vec::new();
    for value in headers.get_all(CONTENT_ENCODING) {
        for name in String::from_utf8_lossy(value.as_bytes()).split(',').map(str::trim) {
            found.push(match name.to_ascii_lowercase().as_str() {
                "" | "identity" => continue,
                "gzip" | "x-gzip" => Coding::Gzip,
                "deflate" => Coding::Deflate,
                "br" => Coding::Brotli,
                "zstd" => Coding::Zstd,
                _ => return Err(unknown(name)),
            });
        }
    }
    if found.len() > MOST_CODINGS {
        return Err(final_error(format!("the body has {} content codings: must be at most {MOST_CODINGS}", found.len())));
    }
    Ok(found)
}

fn unknown(name: &str) -> FetchError {
    let shown: String = name.chars().take(40).collect();
    final_error(format!("unknown content coding `{shown}`: expected gzip, deflate, br or zstd"))
}

/// An error that is not retried: another try would get the same body.
fn final_error(message: String) -> FetchError {
    FetchError { retryable: false, ..fetch_error(FetchErrorKind::Body, message) }
}

/// Reads a body and undoes its codings. `first` is the part that was already read.
///
/// # Errors
/// It cannot be read or decoded, or exceeds its limits.
pub async fn decode(response: &mut Response, first: Bytes, codings: &[Coding], reading: &mut Reading) -> Result<Bytes, FetchError> {
    let rest = stream::unfold(response, |response| async {
        let piece = response.chunk().await.map_err(io::Error::other).transpose()?;
        Some((piece, response))
    });
    let mut source = StreamReader::new(Box::pin(stream::once(async { Ok(first) }).chain(rest).fuse()));
    let body = read(&mut source, codings, reading).await?;
    // The body is complete, even if the rest fails.
    let _ = timeout_at(reading.deadline, pass_over(source.into_inner())).await;
    Ok(body)
}

async fn read(source: &mut (impl AsyncBufRead + Unpin), codings: &[Coding], reading: &mut Reading) -> Result<Bytes, FetchError> {
    let max_body = reading.max_body;
    let why = |error: io::Error| why(&error, max_body);
    // A packed body may be slightly larger than the unpacked one.
    let packed_most = max_body.saturating_add(max_body / 64).saturating_add(1 << 10);
    let mut layers: Box<dyn AsyncBufRead + Unpin + '_> = Box::new(source);
    if codings.is_empty() {
        layers = Box::new(BufReader::new(Limited { inner: layers, left: max_body }));
    }
    for (i, coding) in codings.iter().rev().enumerate() {
        let most = if i + 1 == codings.len() { max_body } else { packed_most };
        let undone = reading.in_time(async { undo(*coding, layers).await.map_err(why) }).await?;
        layers = Box::new(BufReader::with_capacity(PIECE, Limited { inner: undone, left: most }));
    }
    let mut body = BytesMut::with_capacity(PIECE);
    while reading.in_time(async { layers.read_buf(&mut body).await.map_err(why) }).await? > 0 {
        if body.len() == body.capacity() {
            reading.reserve(body.len() + PIECE, max_body).await;
            body.reserve(PIECE);
        }
    }
    Ok(body.freeze())
}

async fn undo<'a>(coding: Coding, mut packed: Box<dyn AsyncBufRead + Unpin + 'a>) -> io::Result<Box<dyn AsyncRead + Unpin + 'a>> {
    Ok(match coding {
        Coding::Gzip => Box::new(GzipDecoder::new(packed)),
        Coding::Brotli => Box::new(BrotliDecoder::new(packed)),
        Coding::Zstd => {
            let mut decoder = ZstdDecoder::new(packed);
            decoder.multiple_members(true);
            Box::new(decoder)
        }
        Coding::Deflate => {
            let mut head = Vec::with_capacity(2);
            (&mut packed).take(2).read_to_end(&mut head).await?;
            let is_zlib = has_zlib_header(&head);
            let whole = io::Cursor::new(head).chain(packed);
            if is_zlib { Box::new(ZlibDecoder::new(whole)) } else { Box::new(DeflateDecoder::new(whole)) }
        }
    })
}

/// RFC 1950, section 2.2: the method is 8, and the two bytes are a multiple of 31.
fn has_zlib_header(head: &[u8]) -> bool {
    matches!(head, [cmf, flg] if cmf & 0x0f == 8 && cmf >> 4 <= 7 && u16::from_be_bytes([*cmf, *flg]) % 31 == 0)
}

/// Reads the bytes after the end of the packed data, if there are few.
async fn pass_over(mut rest: impl Stream<Item = io::Result<Bytes>> + Unpin) {
    let mut left = MOST_REST;
    while let Some(Ok(piece)) = rest.next().await {
        let Some(less) = left.checked_sub(piece.len()) else { return };
        left = less;
    }
}

#[derive(Debug, thiserror::Error)]
#[error("over the limit")]
struct TooLarge;

fn why(error: &io::Error, max_body: u64) -> FetchError {
    let inner = error.get_ref();
    if inner.is_some_and(|inner| inner.is::<TooLarge>()) {
        return fetch_error(FetchErrorKind::TooLarge, format!("the body must be at most {max_body} bytes"));
    }
    match inner.and_then(|inner| inner.downcast_ref::<reqwest::Error>()) {
        Some(error) => in_the_body(error),
        // The connection did not fail: the body is what the site has sent.
        None => final_error(format!("cannot decode the body: {error}")),
    }
}

/// A reader that fails after its limit.
struct Limited<R> {
    inner: R,
    left: u64,
}

impl<R: AsyncRead + Unpin> AsyncRead for Limited<R> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        let read = (buf.filled().len() - before) as u64;
        match self.left.checked_sub(read) {
            Some(left) => {
                self.left = left;
                Poll::Ready(Ok(()))
            }
            None => Poll::Ready(Err(io::Error::other(TooLarge))),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::HeaderValue;

    fn of(values: &[&str]) -> Result<Vec<Coding>, FetchError> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(CONTENT_ENCODING, HeaderValue::from_str(value).expect("a value"));
        }
        codings(&headers)
    }

    #[test]
    fn codings_are_read_in_their_order() {
        use Coding::{Brotli, Deflate, Gzip, Zstd};
        assert_eq!(of(&[]), Ok(vec![]));
        assert_eq!(of(&["identity", ""]), Ok(vec![]));
        assert_eq!(of(&["X-GZIP , br", "zstd"]), Ok(vec![Gzip, Brotli, Zstd]));
        assert_eq!(of(&["deflate"]), Ok(vec![Deflate]));
        for bad in [&["compress"][..], &["gzip,gzip", "gzip,gzip"], &["utf-8"]] {
            assert_eq!(of(bad).map_err(|e| (e.kind, e.retryable)), Err((FetchErrorKind::Body, false)), "{bad:?}");
        }
    }

    #[test]
    fn zlib_is_told_from_bare_deflate() {
        for head in [[0x78, 0x01], [0x78, 0x9c], [0x78, 0xda], [0x58, 0x85]] {
            assert!(has_zlib_header(&head), "{head:?}");
        }
        assert!(!has_zlib_header(&[0x4b, 0x4c]) && !has_zlib_header(&[0x78]) && !has_zlib_header(&[]));
    }
}
