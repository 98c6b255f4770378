//! One request from its JSON to its outcome: tries, waits between them, changes of the IP address.

use super::asked::Asked;
use super::attempt::Answer;
use super::change_ip::Changer;
use super::clients::Clients;
use super::crowd::Crowd;
use super::failure::fetch_error;
use super::hops::Trip;
use super::memory::{Account, Memory};
use super::pace::{Gate, Hearing};
use super::turn::End;
use crate::config::agent::AgentConfig;
use crate::domain::backoff::Backoff;
use crate::domain::ids::Identity;
use crate::domain::origin::Scope;
use crate::domain::settings::DownloadSettings;
use crate::domain::time::Timestamp;
use crate::protocol::node::{FetchError, FetchErrorKind};
use regex::bytes::Regex;
use reqwest::Url;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Limit of IP address changes for one request.
const MOST_CHANGES: u32 = 3;
/// The longest `Retry-After` that is obeyed: for longer ones this wait applies, or there is no retry.
const MOST_RETRY_AFTER: Duration = Duration::from_secs(30);
const MOST_WAIT: Duration = Duration::from_secs(30);

/// The common settings of the requests of a block.
pub struct Rules {
    /// The run.
    pub identity: Identity,
    /// How to download.
    pub settings: DownloadSettings,
    /// Where the run's cookies and headers may be sent.
    pub scope: Scope,
    /// A body that matches triggers a change of the IP address.
    pub change_ip_pattern: Option<Regex>,
    /// The block was dispatched before: its requests may already have been sent.
    pub is_given_again: bool,
    /// Another node may succeed where this one finds no way to a site.
    pub elsewhere: bool,
    /// The broker holds the site of a request that was asked for a pause: the request is not tried again here.
    pub holds: bool,
    /// For a block that is reported as a whole: the memory of all its results. Otherwise each result has its own account.
    pub account: Option<Rc<Account>>,
}

/// The outcome of a request.
#[derive(Debug, Default)]
pub struct Outcome {
    /// The last response.
    pub answer: Answer,
    /// Number of tries.
    pub tries: u32,
    /// Duration of the last try, in milliseconds.
    pub time: u32,
    /// Another node should try it: this one found no way to the site, and the site did not get the request.
    pub is_for_another: bool,
    /// The site asked for a pause, and the request was not tried again.
    pub pause: Option<Pause>,
}

/// A site without a pace asked for a pause.
#[derive(Debug, Clone, Copy)]
pub struct Pause {
    /// Its `Retry-After`.
    pub retry_after: Option<Duration>,
    /// Whether the request may be tried again.
    pub may_repeat: bool,
}

/// Downloads for all blocks of the agent.
pub struct Downloader {
    /// The clients in use.
    pub clients: Clients,
    /// Memory for large bodies.
    pub memory: Rc<Memory>,
    changer: Rc<Changer>,
    retry_download: u32,
    /// The wait before the second try of a request.
    pub first_wait: Duration,
    /// When the last message of the broker arrived.
    pub hearing: Rc<Hearing>,
    /// Permits for requests to sites with a pace.
    pub connections: Arc<Semaphore>,
    /// Number of blocks in progress.
    pub blocks: Cell<u32>,
    /// Permits for requests without a pace that have left their slots.
    pub waiting: Arc<Semaphore>,
    /// Requests without a pace in progress, by host.
    pub crowd: Rc<Crowd>,
    /// Number of blocks without a pace that begin requests at once.
    pub slots: usize,
}

impl Downloader {
    /// Built from the agent's settings.
    #[must_use]
    pub fn new(config: &AgentConfig) -> Self {
        Self {
            clients: Clients::new(config),
            memory: Memory::new((config.memory_mb as usize) << 20),
            changer: Rc::new(Changer::new(config.change_ip_command.clone(), config.waits.change_ip)),
            retry_download: config.retry_download,
            first_wait: config.waits.retry,
            hearing: Hearing::new(),
            connections: Arc::new(Semaphore::new(config.max_connections as usize)),
            blocks: Cell::new(0),
            waiting: Arc::new(Semaphore::new(config.max_connections as usize)),
            crowd: Rc::default(),
            slots: config.max_process_count as usize,
        }
    }

    /// Retries of a request after the first try.
    #[must_use]
    pub fn retries(&self, rules: &Rules) -> u32 {
        rules.settings.retry_download.unwrap_or(self.retry_download)
    }

    /// Downloads the request in `json`. It never fails: errors are part of the outcome.
    pub async fn fetch(&self, rules: &Rules, json: &str) -> Outcome {
        let mut outcome = Outcome::default();
        let asked = match to_send(rules, json) {
            Ok(asked) => asked,
            Err(error) => return Outcome { answer: error.into(), ..outcome },
        };
        let mut retries_left = self.retries(rules);
        let mut changes_left = if self.changer.is_able() { MOST_CHANGES } else { 0 };
        let mut backoff = Backoff::new(self.first_wait, MOST_WAIT);
        loop {
            let address = self.try_once(rules, &asked, &mut outcome, None).await;
            if Self::asks_for_another_address(rules, &outcome.answer) {
                if changes_left == 0 || !asked.is_idempotent() {
                    outcome.answer.error = Some(asks_in_vain());
                    return outcome;
                }
                changes_left -= 1;
                self.changer.change(address).await;
            } else if let Some(pause) = pause(rules, &asked, &outcome.answer) {
                outcome.pause = Some(pause);
                return outcome;
            } else if retries_left > 0 && is_worth_another_try(&outcome.answer) && (asked.is_idempotent() || outcome.answer.unsent) {
                retries_left -= 1;
                let asked_for = outcome.answer.retry_after.unwrap_or_default().min(MOST_RETRY_AFTER);
                tokio::time::sleep(backoff.next_wait().max(asked_for)).await;
            } else {
                outcome.is_for_another = is_for_another(rules, &asked, &outcome.answer);
                return outcome;
            }
        }
    }

    /// Tries the request once, in the turn of its block. `changes`: IP address changes made for it so far.
    pub async fn fetch_in_turn(&self, rules: &Rules, json: &str, gate: &Gate, place: usize, changes: u32) -> (Outcome, End) {
        let mut outcome = Outcome::default();
        let asked = match to_send(rules, json) {
            Ok(asked) => asked,
            Err(error) => return (Outcome { answer: error.into(), ..outcome }, End::Done),
        };
        let address = self.try_once(rules, &asked, &mut outcome, Some((gate, place))).await;
        outcome.is_for_another = is_for_another(rules, &asked, &outcome.answer);
        let answer = &mut outcome.answer;
        let may_repeat = asked.is_idempotent() || answer.unsent;
        let end = if answer.is_stopped && (outcome.tries == 0 || may_repeat) {
            End::Stopped
        } else if answer.is_stopped {
            answer.error = Some(fetch_error(FetchErrorKind::Redirect, "the turn at the site ended before the redirect was followed"));
            End::Done
        } else if matches!(answer.status, 429 | 503) {
            End::Hold(answer.retry_after.map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)), may_repeat)
        } else if Self::asks_for_another_address(rules, answer) {
            if self.changer.is_able() && changes < MOST_CHANGES && asked.is_idempotent() {
                self.changer.change(address).await;
                End::Moved
            } else {
                answer.error = Some(asks_in_vain());
                End::Done
            }
        } else if answer.error.as_ref().is_some_and(is_trouble) {
            End::Trouble(may_repeat)
        } else if is_worth_another_try(answer) {
            End::Failed(may_repeat)
        } else {
            End::Done
        };
        (outcome, end)
    }

    /// Makes one try. Returns the number of the IP address that it was made from.
    async fn try_once(&self, rules: &Rules, asked: &Asked, outcome: &mut Outcome, gate: Option<(&Gate, usize)>) -> u64 {
        let settings = &rules.settings;
        let site = self.clients.site(rules.identity, settings, &asked.url);
        if gate.is_none() {
            site.turn(settings.sleep_time).await;
        }
        let pass = self.changer.pass().await;
        let (start, fetched_at) = (Instant::now(), Timestamp::now());
        let account = &rules.account.clone().unwrap_or_else(|| self.memory.account());
        let trip = Trip {
            clients: &self.clients,
            run: rules.identity,
            settings,
            scope: &rules.scope,
            address: pass.address(),
            account,
            gate,
            waited: Cell::default(),
        };
        // Free the result of the earlier try before the next one reserves memory.
        outcome.answer = Answer::default();
        outcome.answer = trip.make(asked, &site, &mut outcome.tries).await;
        outcome.answer.head.fetched_at = Some(fetched_at);
        outcome.time = u32::try_from(start.elapsed().saturating_sub(trip.waited.get()).as_millis()).unwrap_or(u32::MAX);
        pass.address()
    }

    fn asks_for_another_address(rules: &Rules, answer: &Answer) -> bool {
        answer.error.is_none() && rules.change_ip_pattern.as_ref().is_some_and(|pattern| pattern.is_match(&answer.body))
    }
}

/// Parses a request and checks that it may be sent.
fn to_send(rules: &Rules, json: &str) -> Result<Asked, FetchError> {
    let asked = Asked::read(json)?;
    if rules.is_given_again && !asked.is_idempotent() {
        let why = "not sent again: an earlier attempt of its block may have sent it, and the request is not idempotent";
        return Err(fetch_error(FetchErrorKind::NodeLost, why));
    }
    Ok(asked)
}

fn asks_in_vain() -> FetchError {
    fetch_error(FetchErrorKind::ChangeIp, "the body matches ChangeIpPattern, which asks for another ip address")
}

/// What a site asks for, if the broker holds it then. A redirect may have led to another site, which the broker does not know.
fn pause(rules: &Rules, asked: &Asked, answer: &Answer) -> Option<Pause> {
    let asks = answer.status == 429 || answer.status == 503 && answer.retry_after.is_some();
    let is_own = || answer.head.target_url.as_deref().is_none_or(|url| Url::parse(url).is_ok_and(|url| url.origin() == asked.url.origin()));
    let may_repeat = asked.is_idempotent() || answer.unsent;
    (rules.holds && asks && is_own()).then_some(Pause { retry_after: answer.retry_after, may_repeat })
}

/// Whether another node should try a request. One that must not be repeated may go there if it was certainly not sent.
fn is_for_another(rules: &Rules, asked: &Asked, answer: &Answer) -> bool {
    let is_of_node = answer.status == 0 && answer.error.as_ref().is_some_and(|error| error.kind.is_of_node());
    rules.elsewhere && is_of_node && (asked.is_idempotent() || answer.unsent)
}

/// An error that another request to the site would probably get too.
fn is_trouble(error: &FetchError) -> bool {
    use FetchErrorKind::{Connect, Dns, Timeout, Tls};
    matches!(error.kind, Dns | Connect | Tls | Timeout)
}

/// A network error, a timeout, a server error, or *too many requests*.
fn is_worth_another_try(answer: &Answer) -> bool {
    match &answer.error {
        Some(error) => error.retryable,
        None => answer.status >= 500 || answer.status == 429,
    }
}
