//! The HTTP server. Its listener outlives it: while a broker becomes the leader, new connections wait and are not rejected.

use super::BootError;
use super::upgrade::Routes;
use super::wire::Wire;
use crate::config::broker::BrokerConfig;
use crate::edge::connections::{Connections, Refused};
use crate::edge::forward;
use crate::edge::live::Inside;
use crate::edge::shell::shell;
use crate::edge::standby::{gate, standby_routes};
use crate::edge::traffic::Traffic;
use crate::edge::{Edge, routes};
use crate::private;
use crate::protocol::problem::Problem;
use actix_http::HttpService;
use actix_http::error::DispatchError;
use actix_service::{IntoServiceFactory as _, Service as _, ServiceFactoryExt as _, fn_factory, fn_service, map_config};
use actix_tls::accept::rustls_0_23::{Acceptor, TlsStream};
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions, Server, ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::{App, Error};
use futures_util::FutureExt as _;
use std::net::{SocketAddr, TcpListener};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// How long the shutdown waits for active calls, and then for unsent responses.
const END: Duration = Duration::from_secs(5);
/// Maximum bytes of a response that the system buffers. A larger buffer would hide a peer that does not read.
const UNSENT: u32 = 128 << 10;
/// How long the refusal of a connection may take, and how many bytes of its request are read meanwhile.
const REFUSING: Duration = Duration::from_millis(500);
const MOST_UNREAD: u64 = 64 << 10;
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// A client that closes a connection while it waits has disconnected: blocks written to it would be unavailable until AckWait.
const ALLOW_HALF_CLOSED: bool = false;

/// The listener of the broker, with its TLS settings.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
    /// All that were accepted here. A broker that has taken over has two servers as long as sockets from before are open.
    connections: Arc<Connections>,
}

impl Listener {
    /// Opens the listener; call it inside a runtime.
    pub(super) async fn open(config: &BrokerConfig) -> Result<Self, BootError> {
        if let Some(files) = &config.tls {
            private::warn_if_open("TLS key", &files.key);
        }
        let tls = config.tls.as_ref().map(|files| crate::tls::server(&files.certificate, &files.key)).transpose();
        let tls = tls.map_err(BootError::Tls)?;
        let connections = Arc::new(Connections::new(config.connections));
        Ok(Self { tls, listener: super::bind::listen(config.listen).await?, connections })
    }

    /// The URL of the broker on this machine.
    pub(super) fn url(&self) -> std::io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }

    pub(super) fn connections(&self) -> Arc<Connections> {
        Arc::clone(&self.connections)
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A running server.
#[derive(Debug, Clone)]
pub(super) struct Serving {
    handle: ServerHandle,
    traffic: Traffic,
}

impl Serving {
    /// Begins the shutdown: accepts no new connections, closes idle connections, and waits for no more request bodies.
    pub(super) async fn begin_end(&self) {
        self.handle.pause().await;
        self.traffic.end();
    }

    /// Waits until the actors have answered every call.
    pub(super) async fn calls_over(&self) {
        let left = self.traffic.calls_over(END).await;
        if left > 0 {
            log::warn!("calls cut off because the broker ends calls={left}");
        }
    }

    /// Ends the server after the last responses are sent.
    pub(super) async fn end(&self) {
        self.begin_end().await;
        let left = self.traffic.connections_over(END).await;
        if left > 0 {
            log::warn!("connections cut off because the broker ends connections={left}");
        }
        self.handle.stop(false).await;
    }

    /// Ends the server when all connections have ended; it accepts no new ones, and closes those that are idle.
    pub(super) async fn end_with_its_connections(&self) {
        self.begin_end().await;
        self.traffic.connections_over(Duration::MAX).await;
        self.handle.stop(false).await;
    }

    /// Stops accepting connections.
    pub(super) async fn pause(&self) {
        self.handle.pause().await;
    }
}

/// Serves all routes.
pub(super) fn serve(config: &BrokerConfig, door: &Listener, edge: Edge) -> std::io::Result<Serving> {
    let (routes, traffic) = (routes(edge.clone()), edge.traffic.clone());
    start(config.threads, door, traffic, move || {
        let client = forward::client(crate::tls::client());
        App::new().app_data(client).wrap(from_fn(shell)).configure(routes.clone())
    })
}

/// Serves the routes of a standby broker.
pub(super) fn serve_standby(threads: usize, door: &Listener, edge: Edge) -> std::io::Result<Serving> {
    let (routes, traffic) = (standby_routes(edge.clone()), edge.traffic.clone());
    start(threads, door, traffic, move || {
        let client = forward::client(crate::tls::client());
        App::new().app_data(client).wrap(from_fn(gate)).wrap(from_fn(shell)).configure(routes.clone())
    })
}

/// Sets up an accepted connection.
fn set_up(connection: &TcpStream) {
    // Nagle's algorithm would delay the end of a response until the peer acknowledges its beginning, and a peer that waits for
    // the end acknowledges 40 ms late.
    if let Err(error) = connection.set_nodelay(true) {
        log::debug!("failed to disable the send delay of a connection: {error}");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = socket2::SockRef::from(connection).set_tcp_notsent_lowat(UNSENT) {
        log::debug!("failed to limit the send buffer of a connection: {error}");
    }
}

fn start<T, B>(
    threads: usize,
    door: &Listener,
    traffic: Traffic,
    app: impl Fn() -> App<T> + Send + Clone + 'static,
) -> std::io::Result<Serving>
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
    B: MessageBody + 'static,
{
    let inside = app.clone();
    // Answers that windows watch come from routes of their own, which are called within the process.
    let with_inside = move || app().app_data(Rc::new(within(inside.clone())));
    let server = server(threads, door, traffic.clone(), with_inside)?;
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            log::error!("the server ended: {error}");
        }
    });
    Ok(Serving { handle, traffic })
}

/// The routes for calls within the process.
fn within<T, B>(app: impl Fn() -> App<T> + 'static) -> Inside
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
    B: MessageBody + 'static,
{
    Inside::new(move || {
        let factory = app().into_factory();
        async move {
            let service = Rc::new(factory.new_service(AppConfig::default()).await.ok()?);
            let call = move |request| {
                let response = service.call(request);
                async move { response.await.map(ServiceResponse::map_into_boxed_body) }.boxed_local()
            };
            Some(Rc::new(call) as Rc<_>)
        }
        .boxed_local()
    })
}

/// Counts an accepted connection, or refuses it if too many are open.
async fn admit<T: AsyncRead + AsyncWrite + Unpin>(
    mut connection: T,
    peer: Option<SocketAddr>,
    traffic: Traffic,
) -> Result<(Wire<T>, Option<SocketAddr>), DispatchError> {
    let refused = match traffic.admit(peer.map(|peer| peer.ip())) {
        Ok(open) => return Ok((Wire::new(connection, open), peer)),
        Err(refused) => refused,
    };
    let refuse = async {
        let answer = refusal(refused);
        connection.write_all(answer.as_bytes()).await?;
        connection.shutdown().await?;
        // The request is read, because closing a connection with unread bytes would discard the answer.
        tokio::io::copy(&mut connection.take(MOST_UNREAD), &mut tokio::io::sink()).await
    };
    // The peer may be gone, or may not read: it is closed anyway.
    let _ = tokio::time::timeout(REFUSING, refuse).await;
    Err(DispatchError::DisconnectTimeout)
}

/// The answer to a connection that is refused.
fn refusal(refused: Refused) -> String {
    let detail = match refused {
        Refused::All => "the broker has the maximum number of open connections; close some, retry later, or raise --max-connections",
        Refused::Address => {
            "this address has the maximum number of open connections; close some, retry later, or raise --max-connections-per-address"
        }
    };
    let problem = serde_json::to_string(&Problem::busy(detail)).unwrap_or_default();
    let length = problem.len();
    format!(
        "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\ncontent-length: {length}\r\nretry-after: 1\r\nconnection: close\r\n\r\n{problem}"
    )
}

/// Does the same as `HttpServer` of actix-web, but with our own connections and without HTTP/2. With HTTP/2, actix-http continues
/// a request whose caller has disconnected, and the result of a poll would be lost.
fn server<T, B>(
    threads: usize,
    door: &Listener,
    traffic: Traffic,
    app: impl Fn() -> App<T> + Send + Clone + 'static,
) -> std::io::Result<Server>
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
    B: MessageBody + 'static,
{
    let (listener, ends) = (door.listener.try_clone()?, traffic.clone());
    macro_rules! http {
        () => {{
            let ends = ends.clone();
            let app = app().into_factory().map_err(|error: Error| error.error_response());
            let app = Rc::new(map_config(app, |()| AppConfig::default()));
            let routes = Routes::default();
            let of_upgrades = routes.clone();
            let service = move || {
                let (app, routes) = (Rc::clone(&app), routes.clone());
                async move {
                    let service = Rc::new(app.new_service(()).await?);
                    routes.set(Rc::clone(&service));
                    Ok::<_, ()>(service)
                }
            };
            HttpService::build()
                .graceful_shutdown_signal(move || ends.ending())
                .keep_alive(KEEP_ALIVE)
                .h1_allow_half_closed(ALLOW_HALF_CLOSED)
                // A client that still sends during the response may finish.
                .client_disconnect_timeout(Duration::from_secs(1))
                .on_connect_ext(|wire: &Wire<_>, more: &mut Extensions| drop(more.insert(Arc::clone(&wire.line))))
                .upgrade(fn_service(move |(request, connection)| of_upgrades.upgrade(request, connection)))
                .h1(fn_factory(service))
        }};
    }
    let builder = Server::build().workers(threads).disable_signals();
    let Some(tls) = &door.tls else {
        let service = move || {
            let traffic = traffic.clone();
            let connect = move |connection: TcpStream| {
                set_up(&connection);
                let peer = connection.peer_addr().ok();
                admit(connection, peer, traffic.clone())
            };
            fn_service(connect).and_then(http!())
        };
        return Ok(builder.listen("http", listener, service)?.run());
    };
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let service = move || {
        let traffic = traffic.clone();
        let connect = move |connection: TlsStream<TcpStream>| {
            set_up(connection.get_ref().0);
            let peer = connection.get_ref().0.peer_addr().ok();
            admit(connection, peer, traffic.clone())
        };
        Acceptor::new(tls.clone()).map_err(|_| DispatchError::HandlerDroppedPayload).and_then(fn_service(connect)).and_then(http!())
    };
    Ok(builder.listen("https", listener, service)?.run())
}
