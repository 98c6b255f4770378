//! `webloom crawl` from several places: arguments, files, the standard input, sitemaps; and what it sends to whom.

use crate::support::crawl::{Crawl, urls};
use crate::support::journey;
use crate::support::process::WEBLOOM;
use crate::support::web::{Answer, Asked, Web, host};
use flate2::{Compression, write::GzEncoder};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

type Log = Arc<Mutex<Vec<Asked>>>;

/// A web whose pages link to each other's hosts: 0 to 1, 1 to 2, and each to a page of its own.
fn linked() -> std::io::Result<(Web, Log)> {
    let asked = Log::default();
    let log = asked.clone();
    let web = Web::serve(move |request| {
        log.lock().expect("the log").push(request.clone());
        let port = request.headers.iter().find(|(name, _)| name == "host").and_then(|(_, host)| host.split(':').nth(1)).unwrap_or_default();
        let next =
            request.host.rsplit_once('.').map(|(start, last)| format!("{start}.{}", last.parse::<u8>().unwrap_or(0).saturating_add(1)));
        match request.path.as_str() {
            "/" => Answer::html(format!("<a href=/own>x</a><a href=http://{}:{port}/>y</a>", next.unwrap_or_default())),
            "/own" => Answer::html("<p>text"),
            _ => Answer::status(404),
        }
    })?;
    Ok((web, asked))
}

/// The crawl run to its end, with something at its standard input: its exit code and its last words.
async fn crawl(folder: &Path, input: &str, args: Vec<String>) -> (Option<i32>, String) {
    let mut command = Command::new(WEBLOOM);
    command.arg("crawl").args(["--quiet", "--output", "pages.jsonl", "--state", "state"]).args(args).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped()).env_remove("RUST_LOG").env_remove("WEBLOOM_TOKEN");
    let input = input.to_owned();
    let output = tokio::task::spawn_blocking(move || {
        let mut child = command.spawn().expect("it starts");
        drop(child.stdin.take().expect("a pipe").write_all(input.as_bytes()));
        child.wait_with_output().expect("it ends")
    });
    let output = output.await.expect("it is waited for");
    (output.status.code(), String::from_utf8_lossy(&output.stderr).into_owned())
}

fn lines(folder: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(folder.join("pages.jsonl")).unwrap_or_default();
    urls(&text.lines().map(|line| serde_json::from_str(line).expect("a line")).collect::<Vec<_>>())
}

#[test]
fn a_crawl_begins_at_all_urls_that_it_is_given() {
    journey(async {
        let (web, _) = linked().expect("a web");
        let folder = tempfile::tempdir().expect("a folder");
        let list = folder.path().join("list");
        std::fs::write(&list, format!("# starts\n\n{}\n{}\n", web.url(2, "/"), web.url(0, "/"))).expect("a file");
        let args = vec![web.url(0, "/"), "-".into(), "--urls-file".into(), list.display().to_string()];
        let (code, errors) = crawl(folder.path(), &format!("{}\n", web.url(4, "/own")), args.clone()).await;
        assert_eq!(code, Some(0), "{errors}");
        // Hosts 0 and 2 with their own pages; 1 and 3 are elsewhere; of 4 its one page.
        let wanted = [(0, "/"), (0, "/own"), (2, "/"), (2, "/own"), (4, "/own")].map(|(number, path)| web.url(number, path));
        assert_eq!(lines(folder.path()), wanted);
        // Another list is another crawl.
        let (code, errors) = crawl(folder.path(), "", [args, vec!["--resume".into()]].concat()).await;
        assert!(code == Some(1) && errors.contains("holds a crawl of"), "{errors}");
    });
}

#[test]
fn a_list_that_is_wrong_starts_nothing() {
    journey(async {
        let folder = tempfile::tempdir().expect("a folder");
        for (input, says) in [("http://a/\nftp://b/\n", "the standard input, line 2"), ("\n# none\n", "no URL to begin at")] {
            let (code, errors) = crawl(folder.path(), input, vec!["-".into()]).await;
            assert!(code == Some(2) && errors.contains(says), "{code:?} {errors}");
        }
        for (args, says) in [
            (["--urls-file", "missing"], "cannot read missing: there is no such file"),
            (["--urls-file", "."], "cannot read .: it is a folder"),
            (["--broker", "x"], "expected a URL"),
        ] {
            let args = [&args[..], &["http://a.test/", "--fresh"]].concat().into_iter().map(str::to_owned).collect();
            let (code, errors) = crawl(folder.path(), "", args).await;
            assert!(code == Some(2) && errors.contains(says), "{code:?} {errors}");
        }
        let (code, errors) = crawl(folder.path(), "", Vec::new()).await;
        assert!(code == Some(2) && errors.contains("<URL>"), "{errors}");
        assert!(!folder.path().join("state").exists() && !folder.path().join("pages.jsonl").exists());
    });
}

#[test]
fn links_lead_to_the_hosts_that_are_listed_and_secrets_stay_at_the_starts() {
    journey(async {
        let (web, asked) = linked().expect("a web");
        let folder = tempfile::tempdir().expect("a folder");
        let hosts = format!("{},{}:{}", host(0), host(1), web.port);
        let mut args = vec![web.url(0, "/"), web.url(1, "/own"), "--hosts".into(), hosts, "--contact".into(), "me@example.com".into()];
        args.extend(["--header", "X-Key: 1", "--cookie", "a=b"].map(str::to_owned));
        let (code, errors) = crawl(folder.path(), "", args).await;
        assert_eq!(code, Some(0), "{errors}");
        let wanted = [(0, "/"), (0, "/own"), (1, "/"), (1, "/own")].map(|(number, path)| web.url(number, path));
        assert_eq!(lines(folder.path()), wanted);
        for request in asked.lock().expect("the log").iter() {
            let header = |name: &str| request.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str());
            let agent = header("user-agent").expect("an agent");
            assert!(agent.starts_with("webloom/") && agent.ends_with(" (+me@example.com)"), "{agent}");
            assert_eq!((header("x-key"), header("cookie")), (Some("1"), Some("a=b")), "{}", request.host);
        }
    });
}

#[test]
fn a_target_that_is_refused_is_reached_with_the_option_that_the_message_names() {
    journey(async {
        let (web, _) = linked().expect("a web");
        let folder = tempfile::tempdir().expect("a folder");
        let args = [web.url(0, "/"), "--hosts".into(), "any".into(), "--depth".into(), "1".into()];
        let (code, errors) = crawl(folder.path(), "", args.to_vec()).await;
        assert!(code == Some(0) && errors.contains("1 failed with refused") && errors.contains("--download-allow"), "{code:?} {errors}");
        let allowed = ["--download-allow".to_owned(), format!("{}:{}", host(1), web.port), "--overwrite".into()];
        let (code, errors) = crawl(folder.path(), "", [&args[..], &allowed[..]].concat()).await;
        assert!(code == Some(0) && errors.contains("3 pages, 0 failed"), "{code:?} {errors}");
    });
}

#[test]
fn the_pages_of_sitemaps_are_crawled() {
    journey(async {
        let base = Arc::new(Mutex::new(String::new()));
        let known = base.clone();
        let web = Web::serve(move |request| {
            let base = known.lock().expect("the base").clone();
            match request.path.as_str() {
                "/index.xml" => Answer::text(format!(
                    "<sitemapindex><sitemap><loc>{base}/a.xml.gz</loc></sitemap><sitemap><loc>{base}/b.txt</loc></sitemap>\
                     <sitemap><loc>http://elsewhere.invalid/c.xml</loc></sitemap></sitemapindex>"
                )),
                "/a.xml.gz" => {
                    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
                    let xml = format!("<urlset><url><loc>{base}/a?x&amp;y</loc></url><url><loc>{base}/skip</loc></url></urlset>");
                    out.write_all(xml.as_bytes()).expect("written");
                    Answer::text(out.finish().expect("compressed"))
                }
                "/b.txt" => Answer::text(format!("{base}/b\nhttp://elsewhere.invalid/\n")),
                "/b" => Answer::html("<meta name=robots content='noindex, nofollow'><a href=/hidden>x</a>"),
                "/a?x&y" => Answer::html("<a href=/deep>x</a>").with("x-robots-tag", "noindex"),
                _ => Answer::html("<p>text"),
            }
        })
        .expect("a port");
        *base.lock().expect("the base") = web.url(0, "");
        for depth in [None, Some("2"), Some("1")] {
            let folder = tempfile::tempdir().expect("a folder");
            let sitemap = web.url(0, "/index.xml");
            let mut args = vec!["--sitemap".to_owned(), sitemap, "--exclude".into(), "skip".into()];
            args.extend(depth.into_iter().flat_map(|depth| ["--depth".to_owned(), depth.to_owned()]));
            let (code, errors) = crawl(folder.path(), "", args).await;
            assert_eq!(code, Some(0), "{errors}");
            let mut wanted: Vec<String> = ["/a.xml.gz", "/a?x&y", "/b", "/b.txt", "/index.xml"].map(|path| web.url(0, path)).into();
            if depth != Some("1") {
                wanted.insert(4, web.url(0, "/deep"));
            }
            assert_eq!(lines(folder.path()), wanted, "{depth:?}");
            let text = std::fs::read_to_string(folder.path().join("pages.jsonl")).expect("the lines");
            let line = |end: &str| text.lines().find(|line| line.contains(&format!("{end}\",\"status\""))).unwrap_or_default().to_owned();
            assert!(line("/b").contains("\"noindex\":true,\"nofollow\":true"), "{text}");
            assert!(line("/a?x&y").contains("\"noindex\":true}"), "{text}");
            assert!(line("/a?x&y").contains("\"depth\":1,") && line("/b.txt").contains("\"links\":2"), "{text}");
        }
    });
}

/// With several starts the order of answers must not decide what is within the depth.
#[test]
fn the_least_depth_counts_from_each_start() {
    journey(async {
        let web = Web::serve(|request| {
            let page = |links: &str| Answer::html(links.to_owned());
            match request.path.as_str() {
                "/1" => page("<a href=/2>x</a>"),
                "/2" => page("<a href=/3>x</a>"),
                "/3" => page("<a href=/4>x</a>"),
                // The short way to /3 is answered last.
                "/late" => page("<a href=/3>x</a>").after(std::time::Duration::from_millis(700)),
                _ => page("<p>text"),
            }
        })
        .expect("a port");
        let folder = tempfile::tempdir().expect("a folder");
        let mut process = Crawl::start(&web.url(0, "/1"), folder.path(), &[&web.url(0, "/late"), "--depth", "2"]);
        process.succeeds().await;
        let wanted = ["/1", "/2", "/3", "/4", "/late"].map(|path| web.url(0, path));
        assert_eq!(urls(&process.lines()), wanted);
    });
}
