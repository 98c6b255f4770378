//! One request from its text to its outcome: tries, waits between them, changes of the address.

use super::asked::Asked;
use super::attempt::{Answer, attempt};
use super::backoff::Backoff;
use super::change_ip::Changer;
use super::clients::Clients;
use super::failure::fetch_error;
use crate::config::agent::AgentConfig;
use crate::domain::ids::Identity;
use crate::domain::settings::{CookieMode, DownloadSettings};
use crate::protocol::node::FetchErrorKind;
use regex::bytes::Regex;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::Instant;

/// Changes of the address for one request.
const MOST_CHANGES: u32 = 3;
/// A site that asks for more patience than this is asked again after this, or not at all.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(30);
const MOST_WAIT: Duration = Duration::from_secs(30);

/// What the requests of a block have in common.
pub struct Rules {
    /// The run.
    pub identity: Identity,
    /// How to download.
    pub settings: DownloadSettings,
    /// A body that matches asks for another address.
    pub change_ip_pattern: Option<Regex>,
}

/// What became of a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The last answer.
    pub answer: Answer,
    /// How often it was asked for.
    pub tries: u32,
    /// Milliseconds of the last try.
    pub time: u32,
}

/// Downloads, for all blocks of the agent.
pub struct Downloader {
    /// The clients in use.
    pub clients: Clients,
    changer: Rc<Changer>,
    retry_download: u32,
    first_wait: Duration,
}

impl Downloader {
    /// With the agent's settings.
    #[must_use]
    pub fn new(config: &AgentConfig) -> Self {
        Self {
            clients: Clients::default(),
            changer: Rc::new(Changer::new(config.change_ip_command.clone(), config.waits.change_ip)),
            retry_download: config.retry_download,
            first_wait: config.waits.retry,
        }
    }

    /// Downloads the request that `json` describes. Never fails: what goes wrong is the outcome.
    pub async fn fetch(&self, rules: &Rules, json: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let fixed_cookies = rules.settings.cookie_mode == CookieMode::Fixed && rules.settings.cookies.is_some();
        let asked = match Asked::read(json, fixed_cookies) {
            Ok(asked) => asked,
            Err(error) => {
                outcome.answer = error.into();
                return outcome;
            }
        };
        let mut retries_left = rules.settings.retry_download.unwrap_or(self.retry_download);
        let mut changes_left = if self.changer.is_able() { MOST_CHANGES } else { 0 };
        let mut backoff = Backoff::new(self.first_wait, MOST_WAIT);
        loop {
            let address = self.try_once(rules, &asked, &mut outcome).await;
            if Self::asks_for_another_address(rules, &outcome.answer) {
                if changes_left == 0 {
                    let why = "the body matches the pattern that asks for another ip address";
                    outcome.answer.error = Some(fetch_error(FetchErrorKind::ChangeIp, why));
                    return outcome;
                }
                changes_left -= 1;
                self.changer.change(address).await;
            } else if retries_left > 0 && is_worth_another_try(&outcome.answer) {
                retries_left -= 1;
                let asked_for = outcome.answer.retry_after.unwrap_or_default().min(MOST_RETRY_AFTER);
                tokio::time::sleep(backoff.next_wait().max(asked_for)).await;
            } else {
                return outcome;
            }
        }
    }

    /// One try. Returns the number of the address that it was made from.
    async fn try_once(&self, rules: &Rules, asked: &Asked, outcome: &mut Outcome) -> u64 {
        let settings = &rules.settings;
        let site = self.clients.site(rules.identity, settings, &asked.url);
        site.turn(settings.sleep_time).await;
        let pass = self.changer.pass().await;
        let start = Instant::now();
        let request = site.client(settings, pass.address()).and_then(|client| Ok((asked.build(&client)?, client)));
        outcome.answer = match request {
            Err(error) => error.into(),
            Ok((request, client)) => {
                outcome.tries += 1;
                attempt(&client, request, &asked.url, Duration::from_millis(settings.timeout), settings.max_body).await
            }
        };
        outcome.time = u32::try_from(start.elapsed().as_millis()).unwrap_or(u32::MAX);
        pass.address()
    }

    fn asks_for_another_address(rules: &Rules, answer: &Answer) -> bool {
        answer.error.is_none() && rules.change_ip_pattern.as_ref().is_some_and(|pattern| pattern.is_match(&answer.body))
    }
}

/// A network error, a timeout, the site's own failure, or *too many requests*.
fn is_worth_another_try(answer: &Answer) -> bool {
    match &answer.error {
        Some(error) => error.retryable,
        None => answer.status >= 500 || answer.status == 429,
    }
}
