//! The server. It is made on a listener that outlives it: while a broker becomes the leader, who connects is kept waiting and
//! not turned away.

use super::BootError;
use super::wire::Wire;
use crate::config::broker::BrokerConfig;
use crate::edge::shell::shell;
use crate::edge::standby::{gate, standby_routes};
use crate::edge::traffic::Traffic;
use crate::edge::{Edge, routes};
use crate::private;
use actix_http::HttpService;
use actix_service::{IntoServiceFactory as _, ServiceFactoryExt as _, map_config};
use actix_tls::accept::rustls_0_23::Acceptor;
use actix_web::body::MessageBody;
use actix_web::dev::{AppConfig, Extensions, Server, ServerHandle, ServiceFactory, ServiceRequest, ServiceResponse};
use actix_web::middleware::from_fn;
use actix_web::rt::net::TcpStream;
use actix_web::{App, Error};
use std::future::ready;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

/// How long calls that are at work, and then what is being sent, are waited for at the end.
const END: Duration = Duration::from_secs(5);
/// Bytes that the system keeps of an answer before they are on their way. More would hide a peer that does not read.
const UNSENT: u32 = 128 << 10;
const KEEP_ALIVE: Duration = Duration::from_secs(75);
/// Who closes a connection while it waits has hung up: blocks written to it would be out of reach until AckWait.
const ALLOW_HALF_CLOSED: bool = false;

/// Where the broker listens, and what it shows there.
#[derive(Debug)]
pub(super) struct Listener {
    listener: TcpListener,
    tls: Option<rustls::ServerConfig>,
}

impl Listener {
    /// Listens; to be called inside a runtime.
    pub(super) async fn open(config: &BrokerConfig) -> Result<Self, BootError> {
        if let Some(files) = &config.tls {
            private::warn_if_open("TLS key", &files.key);
        }
        let tls = config.tls.as_ref().map(|files| crate::tls::server(&files.certificate, &files.key)).transpose();
        let tls = tls.map_err(BootError::Tls)?;
        Ok(Self { tls, listener: super::bind::listen(config.listen).await? })
    }

    /// Under which URL it is found from this machine.
    pub(super) fn url(&self) -> std::io::Result<String> {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.listener.local_addr()?))
    }

    pub(super) fn speaks_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub(super) fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A server that runs.
#[derive(Debug)]
pub(super) struct Serving {
    handle: ServerHandle,
    traffic: Traffic,
}

impl Serving {
    /// Begins the end: no new connection is taken, none that waits for a call stays open, and bodies are not waited for.
    pub(super) async fn begin_end(&self) {
        self.handle.pause().await;
        self.traffic.end();
    }

    /// Waits until every call is answered, as far as the actors are concerned.
    pub(super) async fn calls_over(&self) {
        let left = self.traffic.calls_over(END).await;
        if left > 0 {
            log::warn!("calls are cut off since the broker ends calls={left}");
        }
    }

    /// Ends, when the last answers are sent.
    pub(super) async fn end(&self) {
        self.begin_end().await;
        let left = self.traffic.connections_over(END).await;
        if left > 0 {
            log::warn!("connections are cut off since the broker ends connections={left}");
        }
        self.handle.stop(false).await;
    }

    /// Takes no connection any more.
    pub(super) async fn pause(&self) {
        self.handle.pause().await;
    }
}

/// Serves the whole table.
pub(super) fn serve(config: &BrokerConfig, door: &Listener, edge: Edge) -> std::io::Result<Serving> {
    let (routes, traffic) = (routes(edge.clone()), edge.traffic.clone());
    start(config.threads, door, traffic, move || App::new().wrap(from_fn(shell)).configure(routes.clone()))
}

/// Serves what a broker has that stands by.
pub(super) fn serve_standby(door: &Listener, edge: Edge) -> std::io::Result<Serving> {
    let (routes, traffic) = (standby_routes(edge.clone()), edge.traffic.clone());
    start(1, door, traffic, move || App::new().wrap(from_fn(gate)).wrap(from_fn(shell)).configure(routes.clone()))
}

/// Sets up a connection that was just taken.
fn set_up(connection: &TcpStream) {
    // Nagle's rule would hold the end of an answer back until the peer has acknowledged its beginning, and a peer that waits
    // for the end acknowledges 40 ms late.
    if let Err(error) = connection.set_nodelay(true) {
        log::debug!("a connection keeps its delay: {error}");
    }
    #[cfg(any(target_os = "linux", target_os = "android"))]
    if let Err(error) = socket2::SockRef::from(connection).set_tcp_notsent_lowat(UNSENT) {
        log::debug!("a connection keeps its buffer: {error}");
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
    let server = server(threads, door, traffic.clone(), app)?;
    let handle = server.handle();
    actix::spawn(async move {
        if let Err(error) = server.await {
            log::error!("the server ended: {error}");
        }
    });
    Ok(Serving { handle, traffic })
}

/// What `HttpServer` of actix-web does, with our own connections below it, and without HTTP/2: there, actix-http goes on with a
/// request whose caller has hung up, and what a poll would have brought is lost to it.
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
            HttpService::build()
                .graceful_shutdown_signal(move || ends.ending())
                .keep_alive(KEEP_ALIVE)
                .h1_allow_half_closed(ALLOW_HALF_CLOSED)
                // Who still sends when he is answered is heard out.
                .client_disconnect_timeout(Duration::from_secs(1))
                .on_connect_ext(|wire: &Wire<_>, more: &mut Extensions| drop(more.insert(Arc::clone(&wire.line))))
                .h1(map_config(app, |()| AppConfig::default()))
        }};
    }
    let builder = Server::build().workers(threads).disable_signals();
    let Some(tls) = &door.tls else {
        let service = move || {
            let traffic = traffic.clone();
            let connect = move |connection: TcpStream| {
                set_up(&connection);
                let peer = connection.peer_addr().ok();
                ready(Ok((Wire::new(connection, traffic.connection()), peer)))
            };
            actix_service::fn_service(connect).and_then(http!())
        };
        return Ok(builder.listen("http", listener, service)?.run());
    };
    let mut tls = tls.clone();
    tls.alpn_protocols = vec![b"http/1.1".to_vec()];
    let service = move || {
        let traffic = traffic.clone();
        Acceptor::new(tls.clone())
            .map(move |connection| {
                set_up(connection.get_ref().0);
                let peer = connection.get_ref().0.peer_addr().ok();
                (Wire::new(connection, traffic.connection()), peer)
            })
            .map_err(|_| actix_http::error::DispatchError::HandlerDroppedPayload)
            .and_then(http!())
    };
    Ok(builder.listen("https", listener, service)?.run())
}
