//! A generated site on a free port of the loopback: as many pages as wanted, every one reachable.

use actix_web::{App, HttpResponse, HttpServer, web};
use std::collections::BTreeSet;

/// A site that is up as long as this is kept.
pub struct Site {
    pub url: String,
    pub pages: usize,
    server: actix_web::dev::ServerHandle,
}

#[derive(Clone, Copy)]
struct Pages(usize);

async fn page(pages: web::Data<Pages>, n: web::Path<usize>) -> HttpResponse {
    let n = n.into_inner();
    if n >= pages.0 {
        return HttpResponse::NotFound().finish();
    }
    // A tree, so that all are reached, and links back and across, so that most are known already.
    let mut links: Vec<usize> = (1..=3).map(|i| n * 3 + i).filter(|i| *i < pages.0).collect();
    links.extend([n / 3, n / 2, (n * 7 + 1) % pages.0, (n * 13 + 5) % pages.0]);
    let links: String = links.iter().map(|i| format!("<li><a href=\"/{i}\">page {i}</a>")).collect();
    let text = format!("words of page {n} ").repeat(20);
    HttpResponse::Ok()
        .content_type("text/html; charset=utf-8")
        .body(format!("<!doctype html><title>Page {n}</title><p>{text}<ul>{links}</ul>"))
}

impl Site {
    /// Serves so many pages, from a thread of the server's own.
    pub fn serve(pages: usize) -> Self {
        let server = HttpServer::new(move || App::new().app_data(web::Data::new(Pages(pages))).route("/{n}", web::get().to(page)))
            .workers(1)
            .disable_signals()
            .shutdown_timeout(0)
            .bind("127.0.0.1:0")
            .expect("a free port");
        let url = format!("http://{}/0", server.addrs()[0]);
        let server = server.run();
        let handle = server.handle();
        actix_rt::spawn(server);
        Self { url, pages, server: handle }
    }

    /// The addresses of all its pages.
    pub fn all(&self) -> BTreeSet<String> {
        let base = self.url.trim_end_matches('0');
        (0..self.pages).map(|n| format!("{base}{n}")).collect()
    }

    /// Ends it.
    pub async fn stop(self) {
        self.server.stop(false).await;
    }
}
