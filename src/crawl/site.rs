//! A small generated site for the demo, always the same, with features of real sites: missing pages, a redirect, a slow page, a
//! compressed one, one in an old encoding.

use actix_web::dev::Server;
use actix_web::http::header;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

/// Number of articles.
const ARTICLES: u32 = 280;
/// Number of shelves that list the articles.
const SHELVES: u32 = 20;
/// The delay of the slow page.
const SLOW: Duration = Duration::from_millis(300);
/// Words of titles and texts.
const WORDS: [&str; 24] = [
    "warp", "weft", "loom", "shuttle", "thread", "heddle", "reed", "bobbin", "spindle", "wool", "linen", "silk", "cotton", "dye", "madder",
    "indigo", "twill", "satin", "plain", "selvage", "fringe", "pattern", "knot", "felt",
];

/// The demo site.
#[derive(Debug, Clone, Copy)]
pub struct Site {
    /// Its address.
    pub address: SocketAddr,
}

impl Site {
    /// Number of pages that a crawl finds.
    pub const PAGES: u64 = 1 + SHELVES as u64 + ARTICLES as u64 + 4;
    /// Number of dead links.
    pub const MISSING: u64 = 3;

    /// The address of its first page.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

/// Serves the site on a free loopback port. The server runs when it is polled or spawned.
///
/// # Errors
/// No port is free.
pub fn serve() -> io::Result<(Site, Server)> {
    let app = || {
        App::new()
            .route("/", web::get().to(home))
            .route("/address_map/{n}", web::get().to(address_map))
            .route("/article/{n}", web::get().to(article))
            .route("/slow", web::get().to(slow))
            .route("/compressed", web::get().to(compressed))
            .route("/café", web::get().to(latin))
            .route("/old", web::get().to(old))
    };
    let server = HttpServer::new(app).workers(1).disable_signals().shutdown_timeout(1).bind(("127.0.0.1", 0))?;
    let address = server.addrs()[0];
    Ok((Site { address }, server.run()))
}

fn title(n: u32) -> String {
    let word = |n: u32| WORDS[n as usize % WORDS.len()];
    format!("{} &amp; {} {n}", word(n * 7 + n / 5), word(n * 11 + 3))
}

fn html(title: &str, body: &str) -> HttpResponse {
    HttpResponse::Ok().content_type("text/html; charset=utf-8").body(document(title, body))
}

fn document(title: &str, body: &str) -> String {
    format!("<!doctype html>\n<title>{title}</title>\n<h1>{title}</h1>\n<p><a href=\"/\">All shelves</a>\n{body}\n")
}

async fn home() -> HttpResponse {
    let mut body = String::from("<ul>");
    for n in 0..SHELVES {
        let _ = write!(body, "<li><a href=\"address_map/{n}\">AddressMap {n}</a>");
    }
    body.push_str(
        "<li><a href=slow>A slow page</a><li><a href=compressed>A compressed page</a><li><a href='caf%C3%A9'>Une page ancienne</a>\
         <li><a href=old>A page that moved</a><li><a href=missing/0>A page that is gone</a></ul>",
    );
    html("The weaver's library", &body)
}

async fn address_map(n: web::Path<u32>) -> HttpResponse {
    let n = n.into_inner();
    if n >= SHELVES {
        return missing();
    }
    let mut body = String::from("<ol>");
    for article in (n..ARTICLES).step_by(SHELVES as usize) {
        let _ = write!(body, "<li><a href=\"../article/{article}#top\">{}</a>", title(article));
    }
    html(&format!("AddressMap {n}"), &body)
}

async fn article(n: web::Path<u32>) -> HttpResponse {
    let n = n.into_inner();
    if n >= ARTICLES {
        return missing();
    }
    let mut body = format!("<p><a href={}>Next</a> <a href=../address_map/{}>AddressMap</a>", (n + 1) % ARTICLES, n % SHELVES);
    if n % 140 == 7 {
        let _ = write!(body, " <a href=../missing/{n}>Gone</a>");
    }
    for paragraph in 0..8 + n % 5 {
        body.push_str("\n<p>");
        for word in 0..60 {
            let _ = write!(body, "{} ", WORDS[((n + 1) * (paragraph + 3) * (word + 7) % 97) as usize % WORDS.len()]);
        }
        let see = (n * 31 + paragraph * 17 + 5) % ARTICLES;
        let _ = write!(body, "<a href=\"/article/{see}\">{}</a>", title(see));
    }
    html(&title(n), &body)
}

async fn slow() -> HttpResponse {
    actix_rt::time::sleep(SLOW).await;
    html("Slow, but here", "")
}

async fn compressed(request: HttpRequest) -> HttpResponse {
    let text = document("Compressed", "<a href=/article/1>An article</a>");
    let accepts = request.headers().get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok()).unwrap_or_default();
    if !accepts.contains("gzip") {
        return HttpResponse::Ok().content_type("text/html").body(text);
    }
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    match gzip.write_all(text.as_bytes()).and_then(|()| gzip.finish()) {
        Ok(body) => HttpResponse::Ok().content_type("text/html").insert_header((header::CONTENT_ENCODING, "gzip")).body(body),
        Err(_) => HttpResponse::InternalServerError().finish(),
    }
}

/// Only the page itself declares its encoding.
async fn latin() -> HttpResponse {
    let text = "<!doctype html><meta charset=iso-8859-1><title>Caf\u{e9} des tisserands</title><p>D\u{e9}j\u{e0} vu.";
    let body: Vec<u8> = text.chars().map(|c| c as u8).collect();
    HttpResponse::Ok().content_type("text/html").body(body)
}

async fn old() -> HttpResponse {
    HttpResponse::MovedPermanently().insert_header((header::LOCATION, "/article/0")).finish()
}

fn missing() -> HttpResponse {
    HttpResponse::NotFound().content_type("text/html").body(document("Not on any address_map", ""))
}
