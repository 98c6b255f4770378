//! Delivers results to the broker: posts them again until they are accepted, or rejected for good.
//!
//! They stay in memory until then; `memory` limits how much.

use super::parcel::Parcel;
use crate::config::addresses::Addresses;
use crate::config::agent::AgentConfig;
use crate::domain::backoff::Backoff;
use crate::domain::ids::BlockId;
use crate::executors::{Executors, dies};
use crate::protocol::{BULK, EXECUTOR_HEADER, RUN_HEADER};
use awc::http::StatusCode;
use awc::http::header::{CONTENT_TYPE, RETRY_AFTER};
use std::time::Duration;
use tokio::sync::Notify;
use url::Url;

/// Timeout of one try; packs get one more second per 64 KiB, so that a slow line delivers a large one too.
const TIMEOUT: Duration = Duration::from_secs(60);
const MOST_RETRY_AFTER: Duration = Duration::from_secs(30);
/// Bytes of the broker's response that are read.
const MOST_ANSWER: usize = 64 << 10;

/// Posts results.
pub struct Reporter {
    client: awc::Client,
    brokers: Addresses,
    executors: Executors,
    token: Option<String>,
    backoff: Backoff,
    /// Signals that the broker is back: waiting tries continue at once.
    pub online: Notify,
}

enum Verdict {
    Accepted,
    /// For good, with the reason.
    Refused(String),
    /// Temporarily, with the reason and the wait that the broker asks for.
    Again(String, Duration),
    /// The broker did not answer, or did not accept the token, with the reason. Another one may.
    Lost(String),
}

impl Reporter {
    /// Built from the agent's settings.
    #[must_use]
    pub fn new(config: &AgentConfig, client: awc::Client) -> Self {
        Self {
            client,
            brokers: config.broker.clone(),
            executors: Executors::default(),
            token: config.token.clone(),
            backoff: Backoff::new(config.waits.reconnect, config.waits.reconnect_most),
            online: Notify::new(),
        }
    }

    /// Sends results of a block. Returns after the broker's final response: whether it accepted them.
    pub async fn send(&self, block_id: BlockId, parcel: Parcel) -> bool {
        let mut backoff = self.backoff.clone();
        let mut is_delayed = false;
        loop {
            let online = self.online.notified();
            let executor = self.executors.of(parcel.run());
            let (number, leader) = self.brokers.current();
            let is_lost = async {
                match &executor {
                    Some(url) => dies(&self.client, url.clone()).await,
                    None => self.brokers.left(number).await,
                }
            };
            let posted = tokio::select! {
                posted = self.post(executor.as_ref().unwrap_or(leader), &parcel) => posted,
                // A broker that hangs would keep the report forever.
                () = is_lost => Verdict::Lost("the broker is silent, and another one may have its work".to_owned()),
            };
            let (why, asked_for) = match posted {
                Verdict::Accepted => {
                    if is_delayed {
                        log::info!("results accepted after a delay block_id={block_id}");
                    }
                    return true;
                }
                Verdict::Refused(why) => {
                    log::warn!("results rejected block_id={block_id} part={} reason={why}", parcel.is_part());
                    return false;
                }
                Verdict::Lost(why) => {
                    executor.iter().for_each(|url| self.executors.tried(url, false));
                    (why, Duration::ZERO)
                }
                Verdict::Again(why, asked_for) => (why, asked_for),
            };
            if !is_delayed {
                log::warn!("results not delivered yet, retrying block_id={block_id} reason={why}");
                is_delayed = true;
            }
            // A standby asks for a wait too, but the socket finds the leader.
            let asked_for = if self.brokers.are_several() { Duration::ZERO } else { asked_for };
            let wait = backoff.next_wait().max(asked_for.min(MOST_RETRY_AFTER));
            // When the broker is back, retry at once unless it asked for a wait.
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = online, if asked_for.is_zero() => {}
            }
        }
    }

    async fn post(&self, broker: &Url, parcel: &Parcel) -> Verdict {
        let pack = parcel.body();
        let limit = TIMEOUT + Duration::from_secs((pack.len() >> 16) as u64);
        let mut request = self.client.post(format!("{broker}node/block")).timeout(limit).insert_header((CONTENT_TYPE, BULK));
        // The broker that executes the run serves the report itself.
        request = request.insert_header((RUN_HEADER, parcel.run().to_string()));
        if let Some(token) = &self.token {
            request = request.insert_header(("Token", token.as_str()));
        }
        let response = match request.send_body(pack).await {
            Ok(response) => response,
            Err(error) => return Verdict::Lost(error.to_string()),
        };
        let status = response.status();
        let named = response.headers().get(EXECUTOR_HEADER).and_then(|url| url.to_str().ok());
        self.executors.note(&self.client, parcel.run(), broker, named);
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|text| text.to_str().ok()?.parse().ok());
        // Read the response even if it is not needed, so that the connection can be reused.
        let mut response = response.timeout(TIMEOUT);
        let answer = response.body().limit(MOST_ANSWER).await.unwrap_or_default();
        let why = || format!("{status} {}", String::from_utf8_lossy(&answer).chars().take(300).collect::<String>());
        match status {
            status if status.is_success() => Verdict::Accepted,
            // A token may be corrected while the agent runs; with the other statuses the broker asks for a wait.
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => Verdict::Lost(why()),
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Verdict::Again(why(), Duration::ZERO),
            status if status.is_client_error() => Verdict::Refused(why()),
            _ => Verdict::Again(why(), Duration::from_secs(retry_after.unwrap_or(0))),
        }
    }
}
