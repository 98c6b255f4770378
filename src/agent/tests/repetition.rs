//! Which requests are sent again, and which are not.

use super::site::{Site, answer, raw};
use super::{config, kind, rules};
use crate::agent::download::{Downloader, Outcome, Rules};
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::FetchErrorKind as Kind;
use regex::bytes::Regex;
use serde_json::{Value, json};

async fn fetch(request: &Value) -> Outcome {
    Downloader::new(&config()).fetch(&rules(DownloadSettings::default()), &request.to_string()).await
}

fn failing() -> Site {
    Site::new(|hit| match hit.path.as_str() {
        "/busy" => answer(503, "", "later"),
        "/limit" => answer(429, "Retry-After: 0\r\n", "slowly"),
        "/cut" => raw("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nonly this"),
        _ => raw(""),
    })
}

#[actix_rt::test]
async fn a_post_is_sent_once_unless_the_request_allows_more() {
    for path in ["/busy", "/limit", "/cut", "/nothing"] {
        let site = failing();
        let outcome = fetch(&json!({ "url": site.url(path), "method": "POST", "body": "order=1" })).await;
        assert_eq!((outcome.tries, site.hits().len()), (1, 1), "{path}");
        let allowed = fetch(&json!({ "url": site.url(path), "method": "POST", "body": "q=1", "idempotent": true })).await;
        assert_eq!((allowed.tries, site.hits().len()), (4, 5), "{path}");
        let other = fetch(&json!({ "url": site.url(path), "idempotent": false })).await;
        assert_eq!((other.tries, site.hits().len()), (1, 6), "{path}: a request may say no as well");
    }
}

#[actix_rt::test]
async fn a_post_that_did_not_reach_its_site_is_tried_again() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let closed = listener.local_addr().expect("an address");
    drop(listener);
    let outcome = fetch(&json!({ "url": format!("http://{closed}/"), "method": "POST", "body": "order=1" })).await;
    assert_eq!((kind(&outcome), outcome.tries), (Some(Kind::Connect), 4));
}

#[actix_rt::test]
async fn a_post_of_a_block_that_a_node_had_before_is_not_sent() {
    let site = Site::new(|_| answer(200, "", "done"));
    let again = Rules { is_given_again: true, ..rules(DownloadSettings::default()) };
    let downloader = Downloader::new(&config());
    let post = |idempotent: Value| json!({ "url": site.url("/"), "method": "POST", "idempotent": idempotent }).to_string();
    let outcome = downloader.fetch(&again, &post(Value::Null)).await;
    assert_eq!((kind(&outcome), outcome.tries, site.hits().len()), (Some(Kind::NodeLost), 0, 0));
    assert_eq!(downloader.fetch(&again, &post(true.into())).await.answer.status, 200);
    assert_eq!(downloader.fetch(&again, &super::get(&site.url("/"))).await.answer.status, 200);
}

#[actix_rt::test]
async fn a_post_is_not_repeated_from_another_address_either() {
    let site = Site::new(|_| answer(200, "", "blocked"));
    let change_ip_command = ["true".to_owned()].to_vec();
    let downloader = Downloader::new(&crate::config::agent::AgentConfig { change_ip_command, ..config() });
    let rules = Rules { change_ip_pattern: Some(Regex::new("blocked").expect("a pattern")), ..rules(DownloadSettings::default()) };
    let outcome = downloader.fetch(&rules, &json!({ "url": site.url("/"), "method": "POST" }).to_string()).await;
    assert_eq!((kind(&outcome), site.hits().len()), (Some(Kind::ChangeIp), 1));
}
