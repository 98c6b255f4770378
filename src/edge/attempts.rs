//! Wrong tokens: counts them, logs them and throttles their senders.

use crate::config::tokens::TokenKey;
use crate::domain::attempts::{Attempts, Judgement};
use crate::domain::time::Timestamp;
use crate::protocol::exposition::Exposition;
use crate::protocol::problem::Problem;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock};

/// Shared by the whole broker.
#[derive(Debug, Clone, Default)]
pub struct Guard(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    attempts: RwLock<Attempts<TokenKey>>,
    missing: AtomicU64,
    wrong: AtomicU64,
    throttled: AtomicU64,
}

impl Guard {
    /// Counts a call without a required token.
    pub fn missing(&self) {
        self.0.missing.fetch_add(1, Relaxed);
    }

    /// Checks a token that a caller sent; `None`: the broker does not know it. `what` is the name of such a token in the log.
    ///
    /// # Errors
    /// The token is wrong, or its address sent too many wrong tokens.
    pub fn judge(&self, from: Option<IpAddr>, token: Option<TokenKey>, what: &str) -> Result<(), Problem> {
        let from = from.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        let attempts = &self.0.attempts;
        if token.is_some_and(|token| attempts.read().unwrap_or_else(PoisonError::into_inner).is_known(from, token)) {
            return Ok(());
        }
        let judgement = attempts.write().unwrap_or_else(PoisonError::into_inner).judge(from, token, Timestamp::now());
        match judgement {
            Judgement::Passes => Ok(()),
            Judgement::Wrong(line) => {
                self.0.wrong.fetch_add(1, Relaxed);
                log(what, from, line);
                Err(Problem::unknown_token())
            }
            Judgement::TooMany(line) => {
                self.0.throttled.fetch_add(1, Relaxed);
                log(what, from, line);
                Err(Problem::too_many_attempts())
            }
        }
    }

    /// Writes the counters as Prometheus metrics.
    pub fn write(&self, page: &mut Exposition) {
        const NAME: &str = "webloom_refused_tokens_total";
        page.metric(
            NAME,
            "counter",
            "Calls that were rejected because their token was missing or wrong, or because too many wrong tokens came before.",
        );
        for (reason, count) in [("missing", &self.0.missing), ("wrong", &self.0.wrong), ("throttled", &self.0.throttled)] {
            page.sample(NAME, &[("reason", reason)], count.load(Relaxed) as f64);
        }
    }
}

fn log(what: &str, from: IpAddr, attempts: Option<u64>) {
    if let Some(attempts) = attempts {
        log::warn!("{what} refused peer={from} attempts={attempts}");
    }
}
