//! The server. It is made on a listener that outlives it: while a broker becomes the leader, who connects is kept waiting and
//! not turned away.

use super::BootError;
use crate::config::broker::BrokerConfig;
use crate::edge::standby::{gate, standby_routes};
use crate::edge::{Edge, routes};
use actix_http::HttpService;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, map_config};
use actix_tls::accept::rustls_0_23::TlsStream;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions, Server, ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::{App, Error, HttpServer};
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

/// Seconds that requests under way have at a shutdown.
const SHUTDOWN_SECONDS: u64 = 5;
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Who closes a connection while it waits has hung up: blocks written to it would be out of reach until AckWait.
const ALLOW_HALF_CLOSED: bool = false;
/// Connections that wait to be taken.
const BACKLOG: u32 = 1_024;

/// Where the broker listens, and what it shows there.
#[derive(Debug)]
pub(super) struct Door {
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
}

impl Door {
    /// Listens; to be called inside a runtime.
    pub(super) fn open(config: &BrokerConfig) -> Result<Self, BootError> {
        let tls = config.tls.as_ref().map(|files| crate::tls::server(&files.certificate, &files.key)).transpose();
        let listener = bind(config.listen).map_err(|e| BootError::Listen(config.listen, e));
        Ok(Self { tls: tls.map_err(BootError::Tls)?, listener: listener? })
    }

    /// Under which URL it is found from this machine.
    pub(super) fn url(&self) -> std::io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

fn bind(address: SocketAddr) -> std::io::Result<TcpListener> {
    let socket = if address.is_ipv4() { tokio::net::TcpSocket::new_v4() } else { tokio::net::TcpSocket::new_v6() }?;
    // A broker that is started again finds connections of the last one in the system.
    #[cfg(unix)]
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)?.into_std()
}

/// Serves the whole table.
pub(super) fn serve(config: &BrokerConfig, door: &Door, edge: Edge) -> std::io::Result<ServerHandle> {
    let routes = routes(edge);
    start(config.threads, door, move || App::new().configure(routes.clone()))
}

/// Serves what a broker has that stands by.
pub(super) fn serve_standby(door: &Door, edge: Edge) -> std::io::Result<ServerHandle> {
    let routes = standby_routes(edge);
    start(1, door, move || App::new().wrap(from_fn(gate)).configure(routes.clone()))
}

/// Nagle's rule would hold the end of an answer back until the peer has acknowledged its beginning, and a peer that waits
/// for the end acknowledges 40 ms late.
fn send_at_once(connection: &dyn std::any::Any, _: &mut Extensions) {
    let by_tls = || Some(connection.downcast_ref::<TlsStream<TcpStream>>()?.get_ref().0);
    if let Some(stream) = connection.downcast_ref::<TcpStream>().or_else(by_tls)
        && let Err(error) = stream.set_nodelay(true)
    {
        log::debug!("a connection keeps its delay: {error}");
    }
}

fn start<T, B>(threads: usize, door: &Door, app: impl Fn() -> App<T> + Send + Clone + 'static) -> std::io::Result<ServerHandle>
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
    B: MessageBody + 'static,
{
    let listener = door.listener.try_clone()?;
    let server = match &door.tls {
        Some(tls) => start_tls(threads, listener, tls.clone(), app)?,
        None => HttpServer::new(app)
            .workers(threads)
            .on_connect(send_at_once)
            .keep_alive(KEEP_ALIVE)
            .shutdown_timeout(SHUTDOWN_SECONDS)
            .h1_allow_half_closed(ALLOW_HALF_CLOSED)
            .disable_signals()
            .listen(listener)?
            .run(),
    };
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            log::error!("the server ended: {error}");
        }
    });
    Ok(handle)
}

/// The same by TLS, as `HttpServer` does it, but without HTTP/2: there, actix-http goes on with a request whose caller has hung up,
/// and what a poll would have brought is lost to it.
fn start_tls<T, B>(
    threads: usize,
    listener: TcpListener,
    mut tls: rustls::ServerConfig,
    app: impl Fn() -> App<T> + Send + Clone + 'static,
) -> std::io::Result<Server>
where
    T: ServiceFactory<ServiceRequest, Config = (), Response = ServiceResponse<B>, Error = Error, InitError = ()> + 'static,
    B: MessageBody + 'static,
{
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let builder = Server::build().workers(threads).shutdown_timeout(SHUTDOWN_SECONDS).disable_signals();
    let ends = builder.graceful_shutdown_signal();
    let service = move || {
        let ends = ends.clone();
        let app = app().into_factory().map_err(|error: Error| error.error_response());
        HttpService::build()
            .graceful_shutdown_signal(move || {
                let ends = ends.clone();
                async move { ends.notified().await }
            })
            .keep_alive(KEEP_ALIVE)
            .h1_allow_half_closed(ALLOW_HALF_CLOSED)
            // As it is without TLS: who still sends when he is answered is heard out.
            .client_disconnect_timeout(Duration::from_secs(1))
            .on_connect_ext(|io: &TlsStream<TcpStream>, more: &mut Extensions| send_at_once(io, more))
            .h1(map_config(app, |()| AppConfig::default()))
            .rustls_0_23(tls.clone())
    };
    Ok(builder.listen("tls", listener, service)?.run())
}
