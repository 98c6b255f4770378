//! Passes a call that only another broker can serve on to this broker, so that a client needs to know one broker only: a standby to the leader, the
//! leader to the owner of a run ([`super::of_run`]).
//!
//! A call is passed on once, to one broker, and never repeated: after the connection is made, an error means that the outcome is unknown. Bodies are
//! passed on as they come, in both directions; their limits are those of the other broker.

use super::Edge;
use super::access::Admission;
use super::auth::ADMITTED;
use super::error::Failure;
use super::ws::{relay, wants_socket};
use crate::protocol::brokers::BrokerRole;
use crate::protocol::ownership::{SECRET_HEADER, URL_HEADER};
use crate::protocol::problem::Problem;
use actix_service::ServiceExt as _;
use actix_tls::connect::Connection as TcpConnection;
use actix_web::body::{BodyStream, BoxBody, MessageBody as _, SizedStream};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::http::{StatusCode, Version};
use actix_web::middleware::Next;
use actix_web::rt::net::TcpStream;
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse, web};
use awc::error::SendRequestError;
use awc::http::Uri;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::LocalBoxFuture;
use futures_util::stream::{self, Stream};
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::{Host, Url};

/// The header of a call that a standby passed on. Another standby refuses it, so that no call goes round in circles.
pub(super) const FORWARDED: HeaderName = HeaderName::from_static("webloom-forwarded");
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");
/// Headers of one connection (RFC 9110, 7.6.1), the length, which the body has, and those of brokers, which no client may send on.
const OF_CONNECTION: [HeaderName; 12] = [
    HeaderName::from_static(SECRET_HEADER),
    ADMITTED,
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    header::EXPECT,
    header::CONTENT_LENGTH,
];
/// How long another broker may need to accept a connection.
const CONNECT: Duration = Duration::from_secs(3);
/// How long another broker may need to answer a call that asks nothing: less than it waits for the link itself.
const REACH: Duration = Duration::from_secs(2);
/// How long the leader may need to answer a read, before a standby answers from what is stored.
const READ: Duration = Duration::from_secs(2);
/// How long the addresses of the standbys are taken as they were.
const KNOWN: Duration = Duration::from_secs(2);

/// A client for calls to other brokers, of one thread.
#[must_use]
pub fn client(tls: rustls::ClientConfig) -> awc::Client {
    let tcp = actix_tls::connect::Connector::default().service().map(|connection: TcpConnection<Uri, TcpStream>| {
        // Small messages must not wait for the answers to earlier ones.
        if let Err(error) = connection.io_ref().set_nodelay(true) {
            log::debug!("failed to send small messages to a broker at once error={error}");
        }
        connection
    });
    // No limit: a call that waits must not delay others.
    let connector =
        awc::Connector::new().connector(tcp).limit(0).timeout(CONNECT).max_http_version(Version::HTTP_11).rustls_0_23(Arc::new(tls));
    awc::Client::builder().connector(connector).disable_timeout().disable_redirects().no_default_headers().finish()
}

/// Handles a route that only the leader serves.
pub(super) async fn serve(admission: Admission, request: HttpRequest, payload: web::Payload) -> HttpResponse {
    let Some(edge) = request.app_data::<web::Data<Edge>>().cloned() else { return refused(Problem::internal()) };
    let Some(leader) = edge.service.leader() else { return refused(Problem::standby(None)) };
    let is_socket = wants_socket(&request);
    if request.headers().contains_key(FORWARDED) || is_socket && relay::leader_for(&edge, &request).is_none() {
        return refused(Problem::standby(Some(&leader.0)));
    }
    // Here, where the address of the caller is known: wrong tokens are counted by it.
    if let Err(response) = admission.check(&request) {
        return response;
    }
    let passed = if is_socket {
        relay::open(&edge, leader, &request, payload).await
    } else {
        pass_on(&edge, Receiver::leader(&edge, leader), &request, Passed::Stream(payload)).await
    };
    passed.unwrap_or_else(refused)
}

/// Answers a call with what the leader knows; from what is stored, if the leader does not answer in time.
///
/// # Errors
/// The errors of the service.
pub(super) async fn leader_first(
    admission: Admission,
    request: ServiceRequest,
    next: Next<BoxBody>,
) -> Result<ServiceResponse, actix_web::Error> {
    let edge = request.app_data::<web::Data<Edge>>().cloned();
    let leader = edge.as_ref().and_then(|edge| edge.service.leader());
    if let (Some(edge), Some(leader), false) = (edge, leader, request.headers().contains_key(FORWARDED)) {
        if let Err(response) = admission.check(request.request()) {
            return Ok(request.into_response(response));
        }
        let asked = pass_on(&edge, Receiver::leader(&edge, leader), request.request(), Passed::Nothing);
        // This broker has checked the token. The leader may know others, or has throttled the address of this broker.
        if let Ok(Ok(response)) = timeout(READ, asked).await
            && !response.status().is_server_error()
            && !matches!(response.status(), StatusCode::UNAUTHORIZED | StatusCode::TOO_MANY_REQUESTS)
        {
            return Ok(request.into_response(response));
        }
    }
    next.call(request).await
}

pub(super) fn refused(problem: Problem) -> HttpResponse {
    super::access::refused(Failure(problem))
}

/// The address of the leader, and its term.
pub(super) type Leader = (String, i64);

/// The broker that a call is passed on to.
pub(super) struct Receiver {
    pub(super) url: String,
    /// Completes when no answer can be expected any more, with the reason. A machine without power closes no connection.
    pub(super) gone: LocalBoxFuture<'static, &'static str>,
    /// The answer if it cannot be reached.
    pub(super) unreachable: Problem,
    /// For this broker alone.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl Receiver {
    fn leader(edge: &Edge, leader: Leader) -> Self {
        let unreachable = Problem::leader_unreachable(&leader.0);
        let (url, replaced) = (leader.0.clone(), edge.service.is_replaced(leader));
        Self { url, gone: replaced.map(|()| "another broker leads now").boxed_local(), unreachable, headers: Vec::new() }
    }
}

/// The body of a call that is passed on.
pub(super) enum Passed {
    /// As it comes.
    Stream(web::Payload),
    /// This broker has read and unpacked it.
    Read(Bytes),
    /// None.
    Nothing,
}

pub(super) async fn pass_on(edge: &Edge, to: Receiver, request: &HttpRequest, body: Passed) -> Result<HttpResponse, Problem> {
    let Some(client) = request.app_data::<awc::Client>() else { return Err(Problem::internal()) };
    let Receiver { url, mut gone, unreachable, headers } = to;
    let lost = |why: &str| if request.method().is_safe() { Problem::lost_read(&url, why) } else { Problem::lost(&url, why) };
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let mut call = client.request(request.method().clone(), format!("{url}{path}")).no_decompress();
    pass_headers(request.headers(), call.headers_mut());
    add_origin(edge, request, call.headers_mut());
    for (name, value) in headers {
        call.headers_mut().insert(name, value);
    }
    let sent = match (body, length_of(request.headers())) {
        (Passed::Read(bytes), _) => {
            call.headers_mut().remove(header::CONTENT_ENCODING);
            call.send_body(bytes)
        }
        (Passed::Nothing, _) | (Passed::Stream(_), Some(0)) => call.send(),
        (Passed::Stream(payload), Some(length)) => call.send_body(SizedStream::new(length, payload.into_inner())),
        (Passed::Stream(payload), None) if request.chunked().unwrap_or(false) => call.send_stream(payload.into_inner()),
        (Passed::Stream(_), None) => call.send(),
    };
    let answer = tokio::select! {
        answer = sent => answer,
        why = &mut gone => return Err(lost(why)),
        () = edge.traffic.ending() => return Err(lost("this broker ends")),
    };
    let answer = answer.map_err(|error| match error {
        SendRequestError::Url(_) | SendRequestError::Connect(_) => {
            log::debug!("a broker cannot be reached broker={url} error={error}");
            unreachable
        }
        error => lost(&error.to_string()),
    })?;
    let status = answer.status();
    let mut response = HttpResponse::new(status);
    pass_headers(answer.headers(), response.headers_mut());
    let length = length_of(answer.headers());
    let body = until(gone, answer);
    Ok(response.set_body(match length {
        _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => BoxBody::new(()),
        Some(length) => SizedStream::new(length, body).boxed(),
        None => BodyStream::new(body).boxed(),
    }))
}

/// Checks that calls about the runs of a broker can be passed on to it, at the address that it names. One of an earlier version names none.
///
/// # Errors
/// No broker answers there.
pub(super) async fn must_reach(request: &HttpRequest) -> Result<(), Problem> {
    let Some(url) = request.headers().get(URL_HEADER).and_then(|url| url.to_str().ok()) else { return Ok(()) };
    let Some(client) = request.app_data::<awc::Client>() else { return Err(Problem::internal()) };
    let why = match timeout(REACH, client.get(format!("{url}/healthz")).send()).await {
        Ok(Ok(answer)) if answer.status().is_success() => return Ok(()),
        Ok(Ok(answer)) => format!("it answers {}", answer.status().as_u16()),
        Ok(Err(error)) => error.to_string(),
        Err(_) => format!("no answer within {} s", REACH.as_secs()),
    };
    // The broker tries again and again, and logs it once.
    log::debug!("the leader cannot reach a broker, so it gives it no runs url={url} reason={why}");
    Err(Problem::invalid(URL_HEADER, format!("the leader cannot reach the broker at {url}: {why}")))
}

fn length_of(headers: &HeaderMap) -> Option<u64> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// Copies the headers that are not of one connection.
pub(super) fn pass_headers(from: &HeaderMap, to: &mut HeaderMap) {
    let named = from.get_all(header::CONNECTION).filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    let named: Vec<String> = named.map(|name| name.trim().to_ascii_lowercase()).collect();
    for (name, value) in from {
        if !OF_CONNECTION.contains(name) && !named.iter().any(|known| known == name.as_str()) {
            to.append(name.clone(), value.clone());
        }
    }
}

/// Adds where the call came from. Its host stays, because it decides whether a page of another site has sent it.
pub(super) fn add_origin(edge: &Edge, request: &HttpRequest, to: &mut HeaderMap) {
    to.insert(FORWARDED, HeaderValue::from_static("1"));
    if let Some(peer) = request.peer_addr().and_then(|peer| HeaderValue::from_str(&peer.ip().to_string()).ok()) {
        to.append(FORWARDED_FOR, peer);
    }
    if !to.contains_key(&FORWARDED_PROTO) {
        to.insert(FORWARDED_PROTO, HeaderValue::from_static(if edge.is_tls { "https" } else { "http" }));
    }
}

/// The addresses of the standbys, as they were known a moment ago: each call with the header asks for them.
#[derive(Debug, Clone, Default)]
pub struct Standbys(Arc<Mutex<Option<Known>>>);

/// When they were found out, and the addresses.
type Known = (Instant, Vec<IpAddr>);

impl Standbys {
    async fn contain(&self, edge: &Edge, peer: IpAddr) -> bool {
        let mut known = self.0.lock().await;
        let known = match known.take() {
            Some((at, addresses)) if at.elapsed() < KNOWN => known.insert((at, addresses)),
            _ => {
                let mut found = Vec::new();
                let brokers = edge.service.brokers().await.unwrap_or_default();
                for broker in brokers.iter().filter(|broker| broker.role == BrokerRole::Standby && !broker.is_this) {
                    found.extend(addresses(&broker.url).await);
                }
                known.insert((Instant::now(), found))
            }
        };
        known.1.contains(&peer)
    }
}

/// The address that a call came from: that of the peer or, if the peer is a standby that passed the call on, the one that it names.
pub(super) async fn origin(edge: &Edge, request: &HttpRequest) -> Option<IpAddr> {
    let peer = request.peer_addr()?.ip().to_canonical();
    if !request.headers().contains_key(FORWARDED) {
        return Some(peer);
    }
    // Anyone can send these headers: only those of a standby of this database count.
    if edge.standbys.contain(edge, peer).await { named(request.headers()).or(Some(peer)) } else { Some(peer) }
}

/// The address that the last sender of a call has added.
fn named(headers: &HeaderMap) -> Option<IpAddr> {
    let last = headers.get_all(FORWARDED_FOR).last()?.to_str().ok()?.rsplit(',').next()?;
    last.trim().parse().ok()
}

/// The addresses of a broker; none if its name cannot be resolved.
async fn addresses(url: &str) -> Vec<IpAddr> {
    match Url::parse(url).ok().as_ref().and_then(Url::host) {
        Some(Host::Ipv4(address)) => vec![address.into()],
        Some(Host::Ipv6(address)) => vec![IpAddr::V6(address).to_canonical()],
        Some(Host::Domain(name)) => {
            let found = tokio::net::lookup_host((name, 0)).await;
            found.map(|found| found.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
        }
        None => Vec::new(),
    }
}

/// A body; it breaks off when its sender is gone.
fn until<E: Into<Box<dyn std::error::Error>>>(
    mut gone: LocalBoxFuture<'static, &'static str>,
    body: impl Stream<Item = Result<web::Bytes, E>> + 'static,
) -> impl Stream<Item = Result<web::Bytes, io::Error>> + 'static {
    let mut body = Box::pin(body);
    stream::poll_fn(move |context| {
        if gone.poll_unpin(context).is_ready() {
            return Poll::Ready(Some(Err(io::ErrorKind::ConnectionAborted.into())));
        }
        body.as_mut().poll_next(context).map_err(|error| io::Error::other(error.into().to_string()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_of_one_connection_stay_there() {
        let mut from = HeaderMap::new();
        let all = [
            ("token", "secret"),
            ("connection", "keep-alive, X-Private"),
            ("x-private", "1"),
            ("keep-alive", "timeout=5"),
            ("transfer-encoding", "chunked"),
            ("content-length", "7"),
            ("te", "trailers"),
            (SECRET_HEADER, "a guess"),
            ("webloom-admitted", "0"),
            ("host", "broker.example"),
            ("accept", "a/b"),
            ("accept", "c/d"),
        ];
        for (name, value) in all {
            from.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut to = HeaderMap::new();
        pass_headers(&from, &mut to);
        let mut passed: Vec<_> = to.iter().map(|(name, value)| (name.as_str(), value.to_str().expect("a text"))).collect();
        passed.sort_unstable();
        assert_eq!(passed, [("accept", "a/b"), ("accept", "c/d"), ("host", "broker.example"), ("token", "secret")]);
    }
}
