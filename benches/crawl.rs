//! `cargo bench --bench crawl`: pages a second of `webloom crawl` over real documentation, and CPU per page.
//!
//! nginx with one worker serves the trees of Debian's cmake-doc and openjdk-17-doc on loopback, on the same machine; the
//! crawl is the program as it is, durable. One JSON line for each tree with the median of the runs. What is not installed
//! is left out, and said so.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "figures are what a bench is for")]

#[path = "support/process.rs"]
#[expect(dead_code, reason = "shared with the other bench")]
mod process;

use process::Process;
use serde_json::{Value, json};
use std::error::Error;
use std::io::{BufRead, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

type Failure = Box<dyn Error>;

/// Name of the package, the tree that it brings, and the page to begin with.
const TREES: [(&str, &str, &str); 2] =
    [("cmake-doc", "/usr/share/doc/cmake-doc/html", "index.html"), ("openjdk-17-doc", "/usr/share/doc/openjdk-17-doc", "api/index.html")];

fn main() -> Result<(), Failure> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    // `cargo test --benches` runs this too, and means no measurement.
    if !arguments.iter().any(|a| a == "--bench") {
        return Ok(());
    }
    let number = |name: &str, default: u64| -> Result<u64, Failure> {
        let value = arguments.iter().position(|a| a == name).map(|at| arguments.get(at + 1).map_or("", String::as_str));
        value.map_or(Ok(default), |text| text.parse().map_err(|e| format!("{name}: {e}").into()))
    };
    let (runs, threads) = (number("--runs", 3)?, number("--threads", 64)?);
    let Some(nginx) = nginx() else {
        eprintln!("left out: nginx is not installed (apt-get install nginx)");
        return Ok(());
    };
    for (package, tree, first) in TREES {
        if !Path::new(tree).join(first).exists() {
            eprintln!("left out: {tree} is not there (apt-get install {package})");
            continue;
        }
        let mut lines = Vec::new();
        for n in 1..=runs {
            let line = crawl(&nginx, package, Path::new(tree), first, threads)?;
            eprintln!("run {n}: {line}");
            lines.push(line);
        }
        lines.sort_by(|a, b| f64::total_cmp(&rate(a), &rate(b)));
        if let Some(median) = lines.get(lines.len() / 2) {
            println!("{median}");
        }
    }
    Ok(())
}

fn rate(line: &Value) -> f64 {
    line["pages_per_s"].as_f64().unwrap_or(0.0)
}

fn nginx() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    places.map(|dir| dir.join("nginx")).find(|file| file.exists())
}

/// Serves a tree until the process is dropped.
fn serve(nginx: &Path, tree: &Path, dir: &Path) -> Result<(Process, u16), Failure> {
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let (tree, here) = (tree.display(), dir.display());
    let settings = format!(
        "worker_processes 1; daemon off; master_process off; pid {here}/nginx.pid; error_log stderr crit;
         events {{ worker_connections 1024; }}
         http {{
           access_log off; sendfile on; tcp_nopush on; keepalive_requests 1000000; open_file_cache max=20000;
           client_body_temp_path {here}/a; proxy_temp_path {here}/b; fastcgi_temp_path {here}/c;
           uwsgi_temp_path {here}/d; scgi_temp_path {here}/e;
           types {{ text/html html; text/css css; text/plain txt; application/javascript js; image/png png; }}
           server {{ listen 127.0.0.1:{port}; root {tree}; }}
         }}"
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, settings)?;
    let server = Process(Command::new(nginx).arg("-c").arg(&file).arg("-p").arg(dir).stdin(Stdio::null()).spawn()?);
    let begun = Instant::now();
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        if begun.elapsed() > Duration::from_secs(10) {
            return Err("nginx does not answer".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok((server, port))
}

fn crawl(nginx: &Path, package: &str, tree: &Path, first: &str, threads: u64) -> Result<Value, Failure> {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"))?;
    let (server, port) = serve(nginx, tree, dir.path())?;
    let output = dir.path().join("pages.jsonl");
    let server_before = process::cpu_seconds(server.pid());
    let crawl_before = children_cpu_seconds();
    let begun = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_webloom"));
    command.arg("crawl").arg(format!("http://127.0.0.1:{port}/{first}")).args(["--threads", &threads.to_string()]);
    // The pages alone, as other crawlers were measured: cmake-doc links the source text of each page as well.
    command.args(["--include", "[.]html$", "--quiet"]);
    command.arg("--output").arg(&output).arg("--state").arg(dir.path().join("state"));
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let seconds = begun.elapsed().as_secs_f64();
    if !status.success() {
        return Err(format!("the crawl of {package} ended with {status}").into());
    }
    let crawl_cpu = children_cpu_seconds() - crawl_before;
    let server_cpu = process::cpu_seconds(server.pid()) - server_before;
    let (mut pages, mut answered, mut links) = (0_u64, 0_u64, 0_u64);
    for line in BufReader::new(std::fs::File::open(&output)?).lines() {
        let page: Value = serde_json::from_str(&line?)?;
        pages += 1;
        answered += u64::from(page["status"] == 200);
        links += page["links"].as_array().map_or(page["links"].as_u64().unwrap_or(0), |l| l.len() as u64);
    }
    Ok(json!({
        "bench": "crawl", "tree": package, "threads": threads, "pages": pages, "ok": answered, "failed": pages - answered,
        "links_per_page": (links as f64 / pages as f64).round(), "seconds": round(seconds),
        "pages_per_s": (pages as f64 / seconds).round(),
        "cpu_ms_per_page": round(crawl_cpu * 1e3 / pages as f64), "server_cpu_ms_per_page": round(server_cpu * 1e3 / pages as f64),
    }))
}

/// CPU seconds of the children of this process that have ended.
fn children_cpu_seconds() -> f64 {
    process::ticks(std::process::id(), 15)
}

fn round(number: f64) -> f64 {
    (number * 1_000.0).round() / 1_000.0
}
