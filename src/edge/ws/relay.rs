//! Connects the socket of an agent or a worker that came to a standby with the leader, so that an agent or a worker needs to know one broker
//! only. The bytes pass unread, in both directions. The socket ends with that of the leader, when another broker leads, and when this
//! broker ends; the client connects again then.

use super::parameters;
use crate::actors::session_sender::Line;
use crate::edge::Edge;
use crate::edge::forward::{FORWARDED, Leader, add_origin, pass_headers, until_replaced};
use crate::protocol::problem::Problem;
use actix_codec::FramedParts;
use actix_web::http::header::{HeaderMap, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_VERSION};
use actix_web::rt::task::JoinHandle;
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws;
use awc::error::WsClientError;
use bytes::Bytes;
use futures_util::stream::{self, Stream, StreamExt as _};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWriteExt as _, WriteHalf};
use tokio_util::io::ReaderStream;

/// The parameter of a client that knows several brokers: a standby refuses its socket, so that it connects to the leader itself.
const DIRECT: &str = "direct";
/// Bytes that are read at once.
const PIECE: usize = 16 << 10;

/// The leader to which a socket is passed on: this broker is a standby, and the client knows no other.
pub(in crate::edge) fn leader_for(edge: &Edge, request: &HttpRequest) -> Option<Leader> {
    let is_direct = parameters(request).is_ok_and(|query| query.get(DIRECT).is_some_and(|value| value == "true"));
    if is_direct || request.headers().contains_key(FORWARDED) { None } else { edge.service.leader() }
}

/// Opens a socket at the leader, and passes on what comes on either of the two.
pub(in crate::edge) async fn open(
    edge: &Edge,
    leader: Leader,
    request: &HttpRequest,
    payload: web::Payload,
) -> Result<HttpResponse, Problem> {
    let mut answer = ws::handshake(request).map_err(|e| Problem::malformed(format!("not a WebSocket: {e}")))?;
    let Some(client) = request.app_data::<awc::Client>() else { return Err(Problem::internal()) };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut headers = HeaderMap::new();
    pass_headers(request.headers(), &mut headers);
    add_origin(edge, request, &mut headers);
    let mut call = client.ws(format!("{}{path}", leader.0));
    for (name, value) in &headers {
        if *name != SEC_WEBSOCKET_KEY && *name != SEC_WEBSOCKET_VERSION {
            call = call.header(name.clone(), value.clone());
        }
    }
    let connected = tokio::select! {
        connected = call.connect() => connected,
        () = edge.service.is_replaced(leader.clone()) => return Err(Problem::standby(None)),
        () = edge.traffic.ending() => return Err(Problem::ending()),
    };
    let (_, socket) = connected.map_err(|error| refused(&leader, &error))?;
    let FramedParts { io, read_buf, .. } = socket.into_parts();
    let (from_leader, to_leader) = tokio::io::split(io);
    let upload = Upload(actix_web::rt::spawn(upload(payload, to_leader)));
    let line = request.conn_data::<Arc<Line>>().map(Arc::clone);
    let frames = until_replaced(edge.service.is_replaced(leader), frames(read_buf.freeze(), from_leader));
    // The write half of the connection closes after the last frame, so that the client does not wait.
    let end = stream::poll_fn(move |_| {
        let _upload = &upload;
        if let Some(line) = &line {
            line.finish();
        }
        std::task::Poll::Ready(None)
    });
    let ending = edge.traffic.ending();
    Ok(answer.streaming(frames.chain(end).take_until(Box::pin(ending))))
}

fn refused(leader: &Leader, error: &WsClientError) -> Problem {
    match error {
        WsClientError::InvalidResponseStatus(status) => Problem::socket_refused(&leader.0, status.as_u16()),
        error => {
            log::debug!("the leader cannot be reached leader={} error={error}", leader.0);
            Problem::leader_unreachable(&leader.0)
        }
    }
}

/// What the leader sends.
fn frames(first: Bytes, rest: impl AsyncRead) -> impl Stream<Item = io::Result<Bytes>> {
    let first = Some(first).filter(|bytes| !bytes.is_empty()).map(Ok);
    stream::iter(first).chain(ReaderStream::with_capacity(rest, PIECE))
}

/// Sends what comes from the client, until either of them ends.
async fn upload<T: tokio::io::AsyncWrite>(payload: web::Payload, to: WriteHalf<T>) {
    let (mut payload, mut to) = (payload, pin!(to));
    while let Some(Ok(bytes)) = payload.next().await {
        if to.write_all(&bytes).await.is_err() || to.flush().await.is_err() {
            return;
        }
    }
    // The leader learns that the client has left, and closes its half.
    let _ = to.shutdown().await;
}

/// The task that passes on what the client sends; it ends with the connection of the client.
struct Upload(JoinHandle<()>);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}
