//! Connects the socket of an agent or a worker that came to a standby with the leader, so that an agent or a worker needs to know one broker
//! only. The bytes pass unread, in both directions. The socket ends with that of the leader, when another broker leads, and when this
//! broker ends; the client connects again then.

use super::parameters;
use crate::actors::session_sender::Line;
use crate::edge::Edge;
use crate::edge::forward::{FORWARDED, Leader, add_origin, pass_headers};
use crate::protocol::problem::Problem;
use actix_codec::FramedParts;
use actix_web::http::header::{HeaderMap, SEC_WEBSOCKET_EXTENSIONS};
use actix_web::{HttpRequest, HttpResponse, web};
use actix_web_actors::ws;
use awc::error::WsClientError;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::{self, Stream, StreamExt as _};
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWriteExt as _, WriteHalf};
use tokio::task::AbortHandle;
use tokio::time::sleep;
use tokio_util::io::ReaderStream;

/// The parameter of a client that knows several brokers: a standby refuses its socket, so that it connects to the leader itself.
const DIRECT: &str = "direct";
/// Bytes that are read at once.
const PIECE: usize = 4 << 10;
/// How long the leader may take to send its last frame when the client has left.
const LAST_FRAME: Duration = Duration::from_secs(5);

/// The leader to which a socket is passed on: this broker is a standby, another one leads, and the client knows no other.
pub(in crate::edge) fn leader_for(edge: &Edge, request: &HttpRequest) -> Option<Leader> {
    let is_direct = parameters(request).is_ok_and(|query| query.get(DIRECT).is_some_and(|value| value == "true"));
    let is_for_leader = is_direct || request.headers().contains_key(FORWARDED) || edge.service.makes_way();
    if is_for_leader { None } else { edge.service.leader() }
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
    // The client would not learn of an extension that the leader chooses.
    headers.remove(SEC_WEBSOCKET_EXTENSIONS);
    let mut call = client.ws(format!("{}{path}", leader.0));
    for (name, value) in &headers {
        call = call.header(name.clone(), value.clone());
    }
    let connected = tokio::select! {
        connected = call.connect() => connected,
        () = edge.service.is_replaced(leader.clone()) => return Err(Problem::standby(None)),
        () = edge.traffic.ending() => return Err(Problem::ending()),
    };
    let (_, socket) = connected.map_err(|error| refused(&leader, &error))?;
    let FramedParts { io, read_buf, .. } = socket.into_parts();
    let (from_leader, to_leader) = tokio::io::split(io);
    let client_left = actix_web::rt::spawn(upload(payload, to_leader));
    let upload = Upload(client_left.abort_handle());
    let line = request.conn_data::<Arc<Line>>().map(Arc::clone);
    let (replaced, ending) = (edge.service.is_replaced(leader), edge.traffic.ending());
    let over = async move {
        // A leader that works answers the last frame and closes its half; one that hangs does not.
        let client_left = client_left.then(|_| sleep(LAST_FRAME));
        tokio::select! {
            () = replaced => {}
            () = ending => {}
            () = client_left => {}
        }
    };
    // Yields nothing: keeps the upload alive until the last frame, and then closes the write half of the connection, so that the client does
    // not wait for this broker, nor this broker for the client.
    let end = stream::poll_fn(move |_| {
        let _upload = &upload;
        if let Some(line) = &line {
            line.finish();
        }
        Poll::Ready(None)
    });
    Ok(answer.streaming(frames(read_buf.freeze(), from_leader).take_until(Box::pin(over)).chain(end)))
}

fn refused(leader: &Leader, error: &WsClientError) -> Problem {
    log::debug!("the leader did not open a socket leader={} error={error}", leader.0);
    match error {
        WsClientError::InvalidResponseStatus(status) if status.is_client_error() || status.is_server_error() => {
            Problem::socket_refused(&leader.0, status.as_u16())
        }
        _ => Problem::leader_unreachable(&leader.0),
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
struct Upload(AbortHandle);

impl Drop for Upload {
    fn drop(&mut self) {
        self.0.abort();
    }
}
