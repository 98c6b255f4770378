//! A connection that asks for a WebSocket, from its request to its end.
//!
//! actix-http keeps two buffers of 8 KiB and the state of its requests for each connection. A WebSocket is idle most of the time, and there are
//! thousands of them, so such a connection leaves the HTTP server with its request. Only bytes that are received and not processed, and unsent
//! bytes, are kept for it here.

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
/// The response is asked for more while fewer bytes than this are unsent.
const MOST_UNSENT: usize = 32 << 10;
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
        actix_web::rt::spawn(self.serve(request, connection).map(|served| {
            if let Err(error) = served {
                log::debug!("connection of a WebSocket failed error={error}");
            }
        }));
        // The server forgets the connection.
        future::ready(Ok(()))
    }

    fn serve<T>(&self, mut request: Request, connection: Framed<Wire<T>, Codec>) -> impl Future<Output = io::Result<()>> + use<T>
    where
        T: AsyncRead + AsyncWrite + Unpin + 'static,
    {
        let FramedParts { io: wire, codec, read_buf, write_buf: unsent, .. } = connection.into_parts();
        // A copy, because the buffer of the server is larger.
        let connection = Rc::new(RefCell::new(Connection { wire, ahead: Bytes::copy_from_slice(&read_buf) }));
        *request.payload() = Payload::Stream { payload: Box::pin(Incoming(Rc::clone(&connection))) };
        // The routes are set before the server accepts a connection.
        let call = self.0.get().map(|call| call(request));
        async move { carry(call.ok_or(io::ErrorKind::NotConnected)?, &connection, codec, unsent).await }
    }
}

/// Carries a call and its response from the first byte to the last.
async fn carry<T: AsyncRead + AsyncWrite + Unpin>(
    mut call: LocalBoxFuture<'static, Response<BoxBody>>,
    connection: &RefCell<Connection<T>>,
    mut codec: Codec,
    mut unsent: BytesMut,
) -> io::Result<()> {
    let response = future::poll_fn(|cx| {
        // The responses to earlier requests may be unsent. The call proceeds even if they cannot be sent yet.
        let _ = connection.borrow_mut().send(&mut unsent, cx)?;
        connection.borrow_mut().read_ahead(cx)?;
        call.as_mut().poll(cx).map(Ok::<_, io::Error>)
    });
    let (mut head, mut body) = response.await?.into_parts();
    drop(call);
    if head.status() != StatusCode::SWITCHING_PROTOCOLS {
        head.head_mut().set_connection_type(ConnectionType::Close);
    }
    codec.encode(Message::Item((head, body.size())), &mut unsent)?;
    let mut is_complete = matches!(body.size(), BodySize::None | BodySize::Sized(0));
    future::poll_fn(|cx| {
        loop {
            let mut waits = false;
            while !is_complete && !waits && unsent.len() < MOST_UNSENT {
                match Pin::new(&mut body).poll_next(cx) {
                    Poll::Ready(Some(Ok(piece))) => codec.encode(Message::Chunk(Some(piece)), &mut unsent)?,
                    Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error.to_string()))),
                    Poll::Ready(None) => {
                        is_complete = true;
                        codec.encode(Message::Chunk(None), &mut unsent)?;
                    }
                    Poll::Pending => waits = true,
                }
            }
            ready!(connection.borrow_mut().send(&mut unsent, cx))?;
            if is_complete {
                return Poll::Ready(Ok::<_, io::Error>(()));
            }
            if waits {
                return Poll::Pending;
            }
        }
    })
    .await?;
    drop(body);
    future::poll_fn(|cx| Pin::new(&mut connection.borrow_mut().wire).poll_shutdown(cx)).await?;
    // A connection that is closed with unread bytes is reset, and the peer may lose the last frame.
    let rest = future::poll_fn(|cx| {
        while ready!(connection.borrow_mut().read(cx, <[u8]>::len))? > 0 {}
        Poll::Ready(Ok(()))
    });
    tokio::time::timeout(CLOSING, rest).await.unwrap_or(Ok(()))
}

/// The connection, for its response and for the task that reads the request's body.
struct Connection<T> {
    wire: Wire<T>,
    /// What is read, and not yet taken.
    ahead: Bytes,
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    /// Sends all of it, and keeps no room for more. To be called again until it is ready, also when nothing is left: with TLS, sent bytes may
    /// still have to be flushed.
    fn send(&mut self, unsent: &mut BytesMut, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        // Only sends check whether the connection is cut: a cut wakes one task, and another one may read.
        self.wire.look(cx)?;
        while !unsent.is_empty() {
            match ready!(Pin::new(&mut self.wire).poll_write(cx, unsent))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => unsent.advance(count),
            }
        }
        *unsent = BytesMut::new();
        Pin::new(&mut self.wire).poll_flush(cx)
    }

    /// Reads a piece, which is empty at the end.
    fn read<R>(&mut self, cx: &mut Context<'_>, take: impl FnOnce(&[u8]) -> R) -> Poll<io::Result<R>> {
        SCRATCH.with_borrow_mut(|scratch| {
            let mut piece = ReadBuf::new(scratch);
            ready!(Pin::new(self.wire.io()).poll_read(cx, &mut piece))?;
            Poll::Ready(Ok(take(piece.filled())))
        })
    }

    /// Fails if the peer has closed the connection: its call ends then.
    fn read_ahead(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        if self.ahead.is_empty()
            && let Poll::Ready(piece) = self.read(cx, Bytes::copy_from_slice)
        {
            self.ahead = piece?;
            if self.ahead.is_empty() {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }
}

/// What the peer sends after its request.
struct Incoming<T>(Rc<RefCell<Connection<T>>>);

impl<T: AsyncRead + AsyncWrite + Unpin> Stream for Incoming<T> {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let mut connection = self.0.borrow_mut();
        let mut piece = std::mem::take(&mut connection.ahead);
        if piece.is_empty() {
            piece = ready!(connection.read(cx, Bytes::copy_from_slice))?;
        }
        Poll::Ready((!piece.is_empty()).then_some(Ok(piece)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::traffic::Traffic;
    use actix_codec::Decoder as _;
    use actix_http::body::BodyStream;
    use actix_service::fn_service;
    use futures_util::{StreamExt as _, stream};
    use std::convert::Infallible;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, BufWriter, duplex};

    /// Routes that answer with this service.
    fn routes<F: Future<Output = Result<Response<BoxBody>, Infallible>> + 'static>(
        service: impl Fn(Request) -> F + Clone + 'static,
    ) -> Routes {
        let routes = Routes::default();
        routes.set::<_, BoxBody>(Rc::new(fn_service(service)));
        routes
    }

    /// A request for a WebSocket, and its connection.
    fn asked<T: AsyncRead + AsyncWrite>(io: T) -> (Request, Framed<Wire<T>, Codec>) {
        let mut text = BytesMut::from("GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n");
        let mut codec = Codec::default();
        let Ok(Some(Message::Item(request))) = codec.decode(&mut text) else { panic!("a request") };
        (request, Framed::new(Wire::new(io, Traffic::default().connection()), codec))
    }

    fn answer(body: impl Stream<Item = Result<Bytes, PayloadError>> + 'static) -> Result<Response<BoxBody>, Infallible> {
        let body = BoxBody::new(BodyStream::new(body));
        Ok(Response::build(StatusCode::SWITCHING_PROTOCOLS).upgrade("websocket").message_body(body).expect("a response"))
    }

    #[actix_rt::test]
    async fn a_call_ends_with_the_connection_of_its_peer() {
        let (io, peer) = duplex(1_000);
        let routes = routes(|_| future::pending());
        let (request, connection) = asked(io);
        let call = actix_rt::spawn(async move { routes.serve(request, connection).await.map_err(|error| error.kind()) });
        tokio::task::yield_now().await;
        drop(peer);
        assert_eq!(call.await.expect("no panic"), Err(io::ErrorKind::UnexpectedEof));
    }

    #[actix_rt::test]
    async fn what_a_peer_sends_is_read_although_it_takes_nothing() {
        let (io, mut peer) = duplex(1_000);
        // An echo.
        let routes = routes(|mut request| future::ready(answer(request.take_payload())));
        let (request, connection) = asked(io);
        let call = actix_rt::spawn(async move { routes.serve(request, connection).await });
        // The connection holds 1,000 bytes each way.
        peer.write_all(&[7; 20_000]).await.expect("it is read");
        peer.shutdown().await.expect("the end");
        let mut got = Vec::new();
        peer.read_to_end(&mut got).await.expect("the answer");
        assert!(got.starts_with(b"HTTP/1.1 101"));
        assert_eq!(got.iter().filter(|byte| **byte == 7).count(), 20_000);
        call.await.expect("no panic").expect("it has ended well");
    }

    #[actix_rt::test]
    async fn what_is_written_is_flushed() {
        // As TLS: it keeps what is written until it is flushed, and cannot flush all of it at once.
        let (io, mut peer) = duplex(10);
        let io = BufWriter::new(io);
        let piece = || stream::iter([Ok(Bytes::from_static(b"piece"))]);
        let routes = routes(move |_| future::ready(answer(piece().chain(stream::pending()))));
        let (request, connection) = asked(io);
        let call = actix_rt::spawn(async move { routes.serve(request, connection).await });
        let mut got = Vec::new();
        while !got.ends_with(b"piece") {
            assert!(peer.read_buf(&mut got).await.expect("more") > 0);
        }
        call.abort();
    }
}
