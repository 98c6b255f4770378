//! A connection that asks for a WebSocket, from its request to its end.
//!
//! actix-http keeps two buffers of 8 KiB and the state of its requests for each connection. A WebSocket is idle most of the time, and there are
//! thousands of them, so such a connection leaves the HTTP server with its request: nothing is buffered for it that is not partly sent.

use super::wire::Wire;
use actix_codec::{Encoder as _, Framed, FramedParts};
use actix_http::body::{BodySize, BoxBody, MessageBody};
use actix_http::error::PayloadError;
use actix_http::h1::{Codec, Message};
use actix_http::{ConnectionType, Payload, Request, Response, StatusCode};
use actix_service::Service;
use bytes::{Buf as _, Bytes, BytesMut};
use futures_util::Stream;
use futures_util::future::LocalBoxFuture;
use futures_util::{FutureExt as _, future};
use std::cell::{OnceCell, RefCell};
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Bytes that are read at once.
const PIECE: usize = 32 << 10;
/// How long the peer may take to close its half of the connection after the broker has closed its own.
const CLOSING: Duration = Duration::from_secs(1);

thread_local! {
    /// What was read last, until it is copied. All connections of a thread share it.
    static SCRATCH: RefCell<Box<[u8]>> = RefCell::new(vec![0; PIECE].into_boxed_slice());
}

type Call = dyn Fn(Request) -> LocalBoxFuture<'static, Response<BoxBody>>;

/// The routes of one thread of the server. The server sets them; upgrades use them too.
#[derive(Clone, Default)]
pub(super) struct Routes(Rc<OnceCell<Box<Call>>>);

impl Routes {
    pub(super) fn set<S, B>(&self, service: Rc<S>)
    where
        S: Service<Request> + 'static,
        S::Response: Into<Response<B>>,
        S::Error: Into<Response<BoxBody>>,
        B: MessageBody + 'static,
    {
        let call = move |request| {
            let response = service.call(request);
            async move { response.await.map_or_else(Into::into, |response| response.into().map_into_boxed_body()) }.boxed_local()
        };
        // It is set once for each instance of the server.
        let _ = self.0.set(Box::new(call));
    }

    /// Takes over a connection whose request asks for a WebSocket.
    pub(super) fn upgrade<T>(&self, request: Request, connection: Framed<Wire<T>, Codec>) -> future::Ready<Result<(), actix_web::Error>>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let this = self.clone();
        actix_web::rt::spawn(async move {
            if let Err(error) = this.serve(request, connection).await {
                log::debug!("connection of a WebSocket failed error={error}");
            }
        });
        // The server forgets the connection.
        future::ready(Ok(()))
    }

    async fn serve<T>(&self, mut request: Request, connection: Framed<Wire<T>, Codec>) -> io::Result<()>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let FramedParts { io, mut codec, read_buf, write_buf, .. } = connection.into_parts();
        let wire = Rc::new(RefCell::new(io));
        *request.payload() = Payload::Stream { payload: Box::pin(Incoming { wire: Rc::clone(&wire), first: read_buf.freeze() }) };
        let call = self.0.get().ok_or(io::ErrorKind::NotConnected)?;
        let (mut head, mut body) = call(request).await.into_parts();
        if head.status() != StatusCode::SWITCHING_PROTOCOLS {
            head.head_mut().set_connection_type(ConnectionType::Close);
        }
        let mut unsent = write_buf;
        codec.encode(Message::Item((head, body.size())), &mut unsent)?;
        let mut is_complete = matches!(body.size(), BodySize::None | BodySize::Sized(0));
        future::poll_fn(|cx| {
            loop {
                ready!(send(&wire, &mut unsent, cx))?;
                if is_complete {
                    return Poll::Ready(Ok::<_, io::Error>(()));
                }
                match ready!(Pin::new(&mut body).poll_next(cx)) {
                    Some(Ok(piece)) => codec.encode(Message::Chunk(Some(piece)), &mut unsent)?,
                    Some(Err(error)) => return Poll::Ready(Err(io::Error::other(error.to_string()))),
                    None => {
                        is_complete = true;
                        codec.encode(Message::Chunk(None), &mut unsent)?;
                    }
                }
            }
        })
        .await?;
        drop(body);
        future::poll_fn(|cx| Pin::new(&mut *wire.borrow_mut()).poll_shutdown(cx)).await?;
        // A connection that is closed with unread bytes is reset, and the peer may lose the last frame.
        let rest = future::poll_fn(|cx| {
            while ready!(read(&wire, cx, <[u8]>::len))? > 0 {}
            Poll::Ready(Ok(()))
        });
        tokio::time::timeout(CLOSING, rest).await.unwrap_or(Ok(()))
    }
}

/// Writes all of it, and keeps no room for more.
fn send<T: AsyncRead + AsyncWrite + Unpin>(wire: &RefCell<Wire<T>>, unsent: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
    let mut wire = wire.borrow_mut();
    // Reads do not look: whoever reads may be another task.
    wire.look(cx)?;
    if unsent.is_empty() {
        return Poll::Ready(Ok(()));
    }
    while !unsent.is_empty() {
        match ready!(Pin::new(&mut *wire).poll_write(cx, unsent))? {
            0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
            count => unsent.advance(count),
        }
    }
    ready!(Pin::new(&mut *wire).poll_flush(cx))?;
    *unsent = BytesMut::new();
    Poll::Ready(Ok(()))
}

/// Reads a piece, which is empty at the end.
fn read<T: AsyncRead + Unpin, R>(wire: &RefCell<Wire<T>>, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> R) -> Poll<io::Result<R>> {
    SCRATCH.with_borrow_mut(|scratch| {
        let mut piece = ReadBuf::new(scratch);
        ready!(Pin::new(wire.borrow_mut().io()).poll_read(cx, &mut piece))?;
        Poll::Ready(Ok(take(piece.filled())))
    })
}

/// What the peer sends after its request.
struct Incoming<T> {
    wire: Rc<RefCell<Wire<T>>>,
    /// What came with the request.
    first: Bytes,
}

impl<T: AsyncRead + Unpin> Stream for Incoming<T> {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        if !self.first.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.first))));
        }
        let piece = ready!(read(&self.wire, cx, Bytes::copy_from_slice))?;
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}
