//! The portal: web pages to view and manage jobs, runs, workers and nodes.
//!
//! It is an ordinary client of the public API: the files served here are the same for everybody and contain no data of the broker. The
//! pages load their data with the token that their user enters.

use crate::edge::error::Failure;
use crate::edge::route::{Resource, resource};
use crate::protocol::problem::Problem;
use actix_web::http::header::{CACHE_CONTROL, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use actix_web::{HttpRequest, HttpResponse, web};
use sha2::{Digest as _, Sha256};

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const IMAGE: &str = "image/svg+xml";

/// Only files of this server are loaded, pages contain no inline script, and text never becomes HTML: names, arguments and logs come from
/// other people.
const POLICY: &str = "default-src 'self'; base-uri 'none'; object-src 'none'; form-action 'none'; frame-ancestors 'none'; \
    require-trusted-types-for 'script'; trusted-types 'none'";

struct File {
    name: &'static str,
    kind: &'static str,
    text: &'static str,
}

macro_rules! files {
    ($($name:literal $kind:ident),* $(,)?) => {
        [$(File { name: $name, kind: $kind, text: include_str!(concat!("../../../static/portal/", $name)) }),*]
    };
}

/// The page that loads all others.
const PAGE: File = File { name: "", kind: HTML, text: include_str!("../../../static/index.html") };
static FILES: [File; 56] = files![
    "actors.js" SCRIPT,
    "acts.js" SCRIPT,
    "alerts.js" SCRIPT,
    "api.js" SCRIPT,
    "audit.js" SCRIPT,
    "brokers.js" SCRIPT,
    "coming.js" SCRIPT,
    "dialog.js" SCRIPT,
    "dom.js" SCRIPT,
    "exact.js" SCRIPT,
    "failures.js" SCRIPT,
    "fields.js" SCRIPT,
    "filter.js" SCRIPT,
    "follow.js" SCRIPT,
    "grid.js" SCRIPT,
    "groups.js" SCRIPT,
    "heat.js" SCRIPT,
    "hooks.js" SCRIPT,
    "icon.svg" IMAGE,
    "job.js" SCRIPT,
    "jobform.js" SCRIPT,
    "jobs.js" SCRIPT,
    "jobspec.js" SCRIPT,
    "keys.js" SCRIPT,
    "live.js" SCRIPT,
    "log.js" SCRIPT,
    "main.js" SCRIPT,
    "node.js" SCRIPT,
    "nodes.js" SCRIPT,
    "order.js" SCRIPT,
    "overview.js" SCRIPT,
    "packages.js" SCRIPT,
    "palette.js" SCRIPT,
    "plot.js" SCRIPT,
    "plots.js" SCRIPT,
    "progress.js" SCRIPT,
    "repair.js" SCRIPT,
    "requests.js" SCRIPT,
    "results.js" SCRIPT,
    "run.js" SCRIPT,
    "runs.js" SCRIPT,
    "save.js" SCRIPT,
    "schedule.js" SCRIPT,
    "several.js" SCRIPT,
    "sites.js" SCRIPT,
    "style.css" STYLE,
    "svg.js" SCRIPT,
    "text.js" SCRIPT,
    "timeline.js" SCRIPT,
    "tokens.js" SCRIPT,
    "transfer.js" SCRIPT,
    "versions.js" SCRIPT,
    "warc.js" SCRIPT,
    "worker.js" SCRIPT,
    "workers.js" SCRIPT,
    "zone.js" SCRIPT,
];

/// uPlot, as it is in its npm package: see `static/vendor/uplot`.
static VENDORED: [File; 2] = [
    File { name: "uplot.js", kind: SCRIPT, text: include_str!("../../../static/vendor/uplot/uplot.js") },
    File { name: "uplot.css", kind: STYLE, text: include_str!("../../../static/vendor/uplot/uplot.css") },
];

/// Routes of this module; the page itself is at `/`, which is also the address of nodes' sockets.
pub fn routes() -> Vec<Resource> {
    vec![resource("/portal/{file}").text("file", "The name of a file of the portal: `main.js`.").get(file, |op| {
        op.named("readPortalFile")
            .for_everybody()
            .description(
                "A file of the pages at `/`: a script, the style, the icon. They contain no data of the broker, so no token is needed.",
            )
            .answers_as(200, "text/javascript", "The file.")
            .or_as("text/css")
            .or_as(IMAGE)
            .with_header("ETag", "Changes with the file.")
            .answers_nothing(304, "The file matches `If-None-Match`.")
    })]
}

/// `GET /portal/{file}`
pub async fn file(request: HttpRequest, name: web::Path<String>) -> Result<HttpResponse, Failure> {
    let found = FILES.iter().chain(&VENDORED).find(|file| file.name == *name);
    let file = found.ok_or_else(|| Problem::not_found(format!("the portal has no file `{name}`")))?;
    Ok(answer(&request, file))
}

/// `GET /` of a browser.
pub fn page(request: &HttpRequest) -> HttpResponse {
    answer(request, &PAGE)
}

fn answer(request: &HttpRequest, file: &File) -> HttpResponse {
    let digest = Sha256::digest(file.text);
    let etag = format!("\"{:016x}\"", u64::from_be_bytes(digest[..8].try_into().expect("a SHA-256 has 32 bytes")));
    let known = request.headers().get(IF_NONE_MATCH).and_then(|value| value.to_str().ok());
    let is_known = known.is_some_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == etag || one.trim() == "*"));
    let mut out = if is_known { HttpResponse::NotModified() } else { HttpResponse::Ok() };
    // The browser revalidates each time, so that pages of a newer broker show at once and two versions are never mixed.
    out.insert_header((ETAG, etag)).insert_header((CACHE_CONTROL, "no-cache"));
    out.insert_header(("Content-Security-Policy", POLICY)).insert_header(("X-Content-Type-Options", "nosniff"));
    out.insert_header(("Referrer-Policy", "no-referrer")).insert_header(("Cross-Origin-Resource-Policy", "same-origin"));
    if is_known { out.finish() } else { out.insert_header((CONTENT_TYPE, file.kind)).body(file.text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_file_that_is_named_is_there_and_every_other_one_too() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/static/portal");
        let there = std::fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name().into_string());
        let there: BTreeSet<String> = there.map(|name| name.expect("a name")).collect();
        assert_eq!(there, FILES.iter().map(|file| file.name.to_owned()).collect());
        for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
            for line in file.text.lines().filter(|line| line.starts_with("import ")) {
                let name = line.split("\"./").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or(line);
                let is_there = there.contains(name) || VENDORED.iter().any(|file| file.name == name);
                assert!(is_there, "{}: {line}", file.name);
            }
            assert!(file.text.lines().count() <= 500, "{} is too long", file.name);
        }
    }

    /// The Content-Security-Policy blocks it, but the source should not rely on that.
    #[test]
    fn nothing_becomes_html() {
        for file in FILES.iter().chain(&VENDORED).chain([&PAGE]) {
            for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "javascript:", " style=", "<script>"] {
                assert!(!file.text.contains(word), "{} has {word}", file.name);
            }
        }
    }
}
