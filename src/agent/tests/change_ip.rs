//! Changes of the IP address, by a real program.

use super::site::{Gate, Site, answer};
use super::{config, get, kind, rules};
use crate::agent::download::{Downloader, Rules};
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::FetchErrorKind;
use futures_util::future::{join, join_all};
use regex::bytes::Regex;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn blocked_is_a_sign() -> Rules {
    Rules { change_ip_pattern: Some(Regex::new("(?i)BLOCKED").expect("a pattern")), ..rules(DownloadSettings::default()) }
}

/// A downloader whose program is a line of shell in a directory.
fn with_program(dir: &Path, line: &str) -> Downloader {
    let line = format!("cd {} && {line}", dir.display());
    let change_ip_command = ["sh", "-c", &line].map(str::to_owned).to_vec();
    Downloader::new(&crate::config::agent::AgentConfig { change_ip_command, ..config() })
}

fn lines(dir: &Path, file: &str) -> Vec<String> {
    std::fs::read_to_string(dir.join(file)).unwrap_or_default().lines().map(str::to_owned).collect()
}

#[actix_rt::test]
async fn a_burst_of_signs_makes_one_change_and_spends_no_retry() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = dir.path().join("log");
    let site =
        Site::new(move |_| if log.exists() { answer(200, "Set-Cookie: seen=1\r\n", "fine") } else { answer(403, "", "you are blocked") });
    let downloader = with_program(dir.path(), "echo changed >> log");
    let mut rules = blocked_is_a_sign();
    rules.settings.retry_download = Some(0);
    rules.settings.cookies = Some("who=me".to_owned());
    let url = get(&site.url("/"));
    let outcomes = join_all((0..8).map(|_| downloader.fetch(&rules, &url))).await;
    for outcome in outcomes {
        assert_eq!((outcome.answer.status, outcome.tries, kind(&outcome)), (200, 2, None));
    }
    assert_eq!(lines(dir.path(), "log"), ["changed"]);
    let (before, after): (Vec<_>, Vec<_>) = site.hits().into_iter().partition(|hit| hit.nth < 8);
    let oldest = before.iter().map(|hit| hit.connection).max();
    assert!(after.iter().all(|hit| Some(hit.connection) > oldest), "connections of the old address are not used again");
    assert!(after.iter().all(|hit| hit.header("cookie").is_some_and(|c| c.contains("who=me"))), "cookies stay");
}

#[actix_rt::test]
async fn a_change_waits_for_the_downloads_under_way() {
    let dir = tempfile::tempdir().expect("a directory");
    let (under_way, log) = (dir.path().join("under-way"), dir.path().join("log"));
    let asked = Arc::new(Gate::default());
    let slow = Arc::new(Gate::default());
    let (asked_by_site, slow_by_site) = (asked.clone(), slow.clone());
    let site = Site::new(move |hit| match hit.path.as_str() {
        "/slow" => {
            std::fs::write(&under_way, "").expect("written");
            slow_by_site.open();
            assert!(asked_by_site.wait(Duration::from_secs(20)));
            // Time for a program that does not wait to run too early.
            let deadline = Instant::now() + Duration::from_millis(300);
            while !log.exists() && Instant::now() < deadline {
                std::thread::yield_now();
            }
            std::fs::remove_file(&under_way).expect("removed");
            answer(200, "", "fine")
        }
        _ if log.exists() => answer(200, "", "fine"),
        _ => {
            assert!(slow_by_site.wait(Duration::from_secs(20)));
            asked_by_site.open();
            answer(200, "", "blocked")
        }
    });
    let downloader = with_program(dir.path(), "if [ -e under-way ]; then echo early >> log; else echo late >> log; fi");
    let rules = blocked_is_a_sign();
    let (slow_url, other_url) = (get(&site.url("/slow")), get(&site.url("/")));
    let (first, second) = join(downloader.fetch(&rules, &slow_url), downloader.fetch(&rules, &other_url)).await;
    assert_eq!((first.tries, kind(&first), second.tries, kind(&second)), (1, None, 2, None));
    assert_eq!(lines(dir.path(), "log"), ["late"]);
}

#[actix_rt::test]
async fn it_is_given_up_after_three_changes() {
    let dir = tempfile::tempdir().expect("a directory");
    let site = Site::new(|_| answer(403, "", "blocked"));
    let outcome = with_program(dir.path(), "echo changed >> log; exit 1").fetch(&blocked_is_a_sign(), &get(&site.url("/"))).await;
    assert_eq!((outcome.tries, lines(dir.path(), "log").len()), (4, 3));
    assert_eq!(kind(&outcome), Some(FetchErrorKind::ChangeIp));
}

#[actix_rt::test]
async fn without_a_program_the_page_is_kept_with_the_reason() {
    let site = Site::new(|_| answer(403, "", "Blocked"));
    let outcome = Downloader::new(&config()).fetch(&blocked_is_a_sign(), &get(&site.url("/"))).await;
    assert_eq!((outcome.tries, outcome.answer.status, &outcome.answer.body[..]), (1, 403, &b"Blocked"[..]));
    let error = outcome.answer.error.expect("an error");
    assert!(error.kind == FetchErrorKind::ChangeIp && error.retryable);
}

#[actix_rt::test]
async fn a_program_that_hangs_is_ended() {
    let mut config = config();
    config.change_ip_command = ["sleep", "600"].map(str::to_owned).to_vec();
    config.waits.change_ip = Duration::from_millis(50);
    let site = Site::new(|hit| answer(200, "", if hit.nth == 0 { "blocked" } else { "fine" }));
    let outcome = Downloader::new(&config).fetch(&blocked_is_a_sign(), &get(&site.url("/"))).await;
    assert_eq!((outcome.tries, kind(&outcome)), (2, None));
}
