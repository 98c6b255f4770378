//! Real input: the documentation of Python as Debian ships it, served by nginx, crawled by Webloom and by GNU Wget. Both
//! must find the same pages.

use crate::support::crawl::Crawl;
use crate::support::process::Process;
use crate::support::{free_port, journey_within, until};
use std::collections::BTreeSet;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

const TREE: &str = "/usr/share/doc/python3-doc/html";
const MISSING: &str = "is missing: tests/run.sh installs what the tests on real input need";

/// A program of this name; Debian keeps servers where a user's PATH does not lead.
fn program(name: &str) -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin".into()])
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
        .unwrap_or_else(|| panic!("{name} {MISSING}"))
}

/// nginx with a configuration of its own on a free port.
async fn nginx(tree: &Path, folder: &Path) -> (Process, String) {
    let port = free_port();
    let types = Path::new("/etc/nginx/mime.types");
    assert!(types.is_file(), "{} {MISSING}", types.display());
    let at = |name: &str| folder.join(name).display().to_string();
    let config = format!(
        "daemon off; master_process off; pid {}; error_log {}; events {{ worker_connections 512; }}\n\
         http {{ include {}; default_type application/octet-stream; access_log off; client_body_temp_path {}; proxy_temp_path {};\n\
         fastcgi_temp_path {}; uwsgi_temp_path {}; scgi_temp_path {};\n\
         server {{ listen 127.0.0.1:{port}; root {}; }} }}\n",
        at("pid"),
        at("error.log"),
        types.display(),
        at("a"),
        at("b"),
        at("c"),
        at("d"),
        at("e"),
        tree.display()
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, config).expect("written");
    // One process, so that none is left when it is killed.
    let mut command = Command::new(program("nginx"));
    command.arg("-c").arg(&file).arg("-p").arg(folder).arg("-e").arg(folder.join("error.log"));
    let server = Process(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("nginx starts"));
    until("nginx to listen", || async { TcpStream::connect(("127.0.0.1", port)).ok() }).await;
    (server, format!("http://127.0.0.1:{port}/index.html"))
}

/// The pages below a folder that Wget has filled, as paths.
fn pages(folder: &Path, below: &Path, found: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("a file").path();
        if path.is_dir() {
            pages(&path, below, found);
        } else if path.extension().is_some_and(|end| end == "html") {
            found.insert(format!("/{}", path.strip_prefix(below).expect("a path below").display()));
        }
    }
}

#[test]
fn the_same_pages_as_wget() {
    // Wget needs several seconds of processor time after our crawl has ended, which take minutes on a busy machine.
    journey_within(Duration::from_secs(900), async {
        let tree = std::fs::canonicalize(TREE).unwrap_or_else(|_| panic!("{TREE} {MISSING}"));
        let (wget, folder) = (program("wget"), tempfile::tempdir().expect("a folder"));
        let home = folder.path().join("nginx");
        std::fs::create_dir(&home).expect("a folder");
        let (_server, start) = nginx(&tree, &home).await;

        let mirror = folder.path().join("wget");
        let mut command = tokio::process::Command::new(wget);
        command.args(["--no-config", "--no-proxy", "--quiet", "--recursive", "--level=inf", "-e", "robots=off"]);
        command.args(["--no-host-directories", "--accept=html", "--directory-prefix"]).arg(&mirror).arg(&start).stdin(Stdio::null());
        let mut other = command.kill_on_drop(true).spawn().expect("wget starts");

        let mut crawl = Crawl::start(&start, folder.path(), &["--threads", "8"]);
        crawl.succeeds().await;
        other.wait().await.expect("wget ends");

        let base = start.trim_end_matches("/index.html");
        let lines = crawl.lines();
        let is_page = |path: &String| path.ends_with(".html");
        let path = |line: &serde_json::Value| {
            let url = line["url"].as_str().expect("a url").strip_prefix(base).expect("of this site").to_owned();
            // One page with two queries is one page on Wget's disk only by its name; what is asked for counts here.
            url.split('?').next().unwrap_or_default().to_owned()
        };
        let ours: BTreeSet<String> = lines.iter().filter(|line| line["status"] == 200).map(path).filter(is_page).collect();
        let mut theirs = BTreeSet::new();
        pages(&mirror, &mirror, &mut theirs);
        println!("webloom: {} pages of {} answers; wget: {} pages", ours.len(), lines.len(), theirs.len());
        assert!(theirs.len() > 400, "a documentation of {} pages is none", theirs.len());
        let missing: Vec<_> = theirs.difference(&ours).collect();
        let more: Vec<_> = ours.difference(&theirs).collect();
        assert!(missing.is_empty() && more.is_empty(), "only wget: {missing:?}, only webloom: {more:?}");
    });
}
