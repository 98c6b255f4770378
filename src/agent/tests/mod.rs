//! The agent against sites and a broker that misbehave on purpose.

mod blocks;
#[cfg(feature = "broker")]
mod broker;
mod change_ip;
mod codings;
mod downloads;
#[cfg(feature = "broker")]
mod executors;
mod names;
#[cfg(feature = "broker")]
mod paced;
#[cfg(feature = "broker")]
mod parts;
#[cfg(feature = "broker")]
mod program;
mod reach;
mod repetition;
#[cfg(feature = "broker")]
mod run;
mod site;
mod sites;

use super::download::{Downloader, Outcome, Rules};
use crate::config::agent::AgentConfig;
use crate::domain::ids::Identity;
use crate::domain::origin::Scope;
use crate::domain::settings::DownloadSettings;
use crate::protocol::node::FetchErrorKind;
use std::time::{Duration, Instant};

/// Settings whose waits are short.
fn config() -> AgentConfig {
    let mut config = AgentConfig::default();
    config.waits.retry = Duration::from_millis(1);
    config.waits.reconnect = Duration::from_millis(5);
    config.waits.reconnect_most = Duration::from_millis(50);
    config
}

fn rules(settings: DownloadSettings) -> Rules {
    let scope = Scope::of(&settings).expect("hosts");
    let (identity, change_ip_pattern, account) = (Identity::random(), None, None);
    Rules { identity, settings, scope, change_ip_pattern, is_given_again: false, elsewhere: false, holds: false, account }
}

fn get(url: &str) -> String {
    serde_json::json!({ "requestId": "0123456789abcdef01234567", "url": url }).to_string()
}

async fn fetch(settings: DownloadSettings, url: &str) -> Outcome {
    Downloader::new(&config()).fetch(&rules(settings), &get(url)).await
}

fn kind(outcome: &Outcome) -> Option<FetchErrorKind> {
    outcome.answer.error.as_ref().map(|error| error.kind)
}

/// Waits for a condition that something else brings about.
async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    // On a busy disk a package with 20,000 files takes more than a minute.
    let deadline = Instant::now() + Duration::from_secs(180);
    while !is_so() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}
