//! A receiver of callbacks on a free port of the loopback: keeps what it gets, and answers as it is told.

use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Got {
    pub method: String,
    /// Path and query.
    pub path: String,
    pub headers: BTreeMap<String, String>,
    pub body: String,
    pub bytes: web::Bytes,
}

/// How to answer one request.
#[derive(Clone, Debug)]
pub enum Reply {
    /// At once: status, header, body.
    Now(u16, (&'static str, String), String),
    /// Not at all.
    Never,
    /// With this status, when the test releases it.
    Held(u16),
    /// With 200, after this time.
    After(Duration),
}

impl Reply {
    pub fn status(status: u16) -> Self {
        Self::Now(status, ("X-Request-Id", "r-1".to_owned()), "done".to_owned())
    }

    pub fn json(body: &serde_json::Value) -> Self {
        Self::Now(200, ("Content-Type", "application/json".to_owned()), body.to_string())
    }

    pub fn to(status: u16, location: &str) -> Self {
        Self::Now(status, ("Location", location.to_owned()), String::new())
    }
}

#[derive(Default)]
struct Service {
    got: Vec<Got>,
    /// Answers of the next requests; 200 when there are no more.
    replies: VecDeque<Reply>,
    /// Requests whose caller waits.
    open: usize,
    released: Arc<tokio::sync::Notify>,
}

/// A receiver that is up as long as this is kept.
pub struct Receiver {
    pub url: String,
    service: Arc<Mutex<Service>>,
    server: actix_web::dev::ServerHandle,
}

/// Counts a caller who waits, until it hangs up.
struct Waiting(Arc<Mutex<Service>>);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.lock().expect("not poisoned").open -= 1;
    }
}

async fn receive(service: web::Data<Arc<Mutex<Service>>>, request: HttpRequest, body: web::Bytes) -> HttpResponse {
    let headers = request.headers().iter().map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("?").to_owned()));
    let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
    let text = String::from_utf8_lossy(&body).into_owned();
    let got = Got { method: request.method().to_string(), path, headers: headers.collect(), body: text, bytes: body };
    let (reply, released) = {
        let mut service = service.lock().expect("not poisoned");
        service.got.push(got);
        service.open += 1;
        let released = Arc::clone(&service.released).notified_owned();
        (service.replies.pop_front().unwrap_or_else(|| Reply::status(200)), released)
    };
    let waiting = Waiting(Arc::clone(&service));
    match reply {
        Reply::Now(status, (name, value), body) => {
            let status = actix_web::http::StatusCode::from_u16(status).expect("a status");
            HttpResponse::build(status).insert_header((name, value)).body(body)
        }
        Reply::After(time) => {
            tokio::time::sleep(time).await;
            drop(waiting);
            HttpResponse::Ok().finish()
        }
        Reply::Held(status) => {
            released.await;
            drop(waiting);
            HttpResponse::build(actix_web::http::StatusCode::from_u16(status).expect("a status")).finish()
        }
        Reply::Never => {
            tokio::time::sleep(Duration::from_secs(3_600)).await;
            drop(waiting);
            HttpResponse::Ok().finish()
        }
    }
}

impl Receiver {
    /// Answers the next requests so, and all others with 200.
    pub fn start(replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::listen(None, replies)
    }

    /// The same, by TLS.
    pub fn start_tls(tls: rustls::ServerConfig, replies: impl IntoIterator<Item = Reply>) -> Self {
        Self::listen(Some(tls), replies)
    }

    fn listen(tls: Option<rustls::ServerConfig>, replies: impl IntoIterator<Item = Reply>) -> Self {
        let service = Arc::new(Mutex::new(Service { replies: replies.into_iter().collect(), ..Service::default() }));
        let shared = Arc::clone(&service);
        let server = HttpServer::new(move || App::new().app_data(web::Data::new(Arc::clone(&shared))).default_service(web::to(receive)))
            .workers(1)
            .h1_allow_half_closed(false)
            .disable_signals()
            .shutdown_timeout(0);
        let scheme = if tls.is_some() { "https" } else { "http" };
        let server = match tls {
            Some(tls) => server.bind_rustls_0_23("127.0.0.1:0", tls),
            None => server.bind("127.0.0.1:0"),
        };
        let server = server.expect("a free port");
        let url = format!("{scheme}://{}", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        Self { url, service, server: handle }
    }

    /// Answers the next requests so.
    pub fn answer(&self, replies: impl IntoIterator<Item = Reply>) {
        self.service.lock().expect("not poisoned").replies.extend(replies);
    }

    /// What came so far.
    pub fn got(&self) -> Vec<Got> {
        self.service.lock().expect("not poisoned").got.clone()
    }

    /// Callers that wait for their answer.
    pub fn open(&self) -> usize {
        self.service.lock().expect("not poisoned").open
    }

    /// Waits until so many requests have come.
    pub async fn wait_for(&self, count: usize) -> Vec<Got> {
        super::until(&format!("{count} requests"), || async { Some(self.got()).filter(|got| got.len() >= count) }).await
    }

    /// Answers all requests that are held now.
    pub fn release(&self) {
        self.service.lock().expect("not poisoned").released.notify_waiters();
    }

    /// Ends it.
    pub async fn stop(self) {
        self.server.stop(false).await;
    }
}
