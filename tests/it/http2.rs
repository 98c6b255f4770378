//! Sites that speak HTTP/2 and nothing else.

use crate::support::certificates::Certificates;
use crate::support::crawl::{Crawl, urls};
use crate::support::journey;
use bytes::Bytes;
use serde_json::json;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

/// Two pages that link to each other, and large ones that need several windows of flow control.
fn page(path: &str) -> String {
    let links = "<a href=/>home</a><a href=/two>two</a><a href=/moved>moved</a><a href=/large>large</a>";
    let padding = if path == "/large" { "words ".repeat(100_000) } else { String::new() };
    format!("<title>{path}</title>{links}<p>{padding}")
}

async fn serve(stream: TcpStream, acceptor: TlsAcceptor, count: Arc<AtomicUsize>) -> Result<(), Box<dyn std::error::Error>> {
    let mut connection = h2::server::handshake(acceptor.accept(stream).await?).await?;
    while let Some(request) = connection.accept().await {
        let (request, mut respond) = request?;
        count.fetch_add(1, Ordering::SeqCst);
        let path = request.uri().path().to_owned();
        if path == "/moved" {
            respond.send_response(http::Response::builder().status(302).header("location", "/two").body(())?, true)?;
            continue;
        }
        let response = http::Response::builder().header("content-type", "text/html; charset=utf-8").body(())?;
        respond.send_response(response, false)?.send_data(Bytes::from(page(&path)), true)?;
    }
    Ok(())
}

/// A server that offers `h2` alone, and so refuses who does not.
async fn start(pem: &Certificates) -> (SocketAddr, Arc<AtomicUsize>) {
    let mut config = pem.server();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let (acceptor, count) = (TlsAcceptor::from(Arc::new(config)), Arc::new(AtomicUsize::new(0)));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let (address, counted) = (listener.local_addr().expect("an address"), count.clone());
    actix_rt::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), counted.clone());
            actix_rt::spawn(async move { serve(stream, acceptor, count).await.map_err(|error| error.to_string()) });
        }
    });
    (address, count)
}

#[test]
fn a_site_that_speaks_only_http2_is_crawled() {
    journey(async {
        let pem = Certificates::new();
        let (address, count) = start(&pem).await;
        let folder = tempfile::tempdir().expect("a folder");
        let start = format!("https://localhost:{}/", address.port());
        let mut crawl = Crawl::start(&start, folder.path(), &["--ca-file", &pem.authority()]);
        crawl.succeeds().await;
        let lines = crawl.lines();
        let expected: Vec<String> = ["", "large", "moved", "two"].iter().map(|path| format!("{start}{path}")).collect();
        assert_eq!(urls(&lines), expected, "{lines:?}");
        let statuses: Vec<_> = lines.iter().filter(|line| line["status"] != 200).map(|line| (&line["status"], &line["location"])).collect();
        assert_eq!(statuses, [(&json!(302), &json!(format!("{start}two")))], "{lines:?}");
        assert_eq!(count.load(Ordering::SeqCst), 5, "each page once, and robots.txt: what the redirect leads to was fetched");
    });
}
