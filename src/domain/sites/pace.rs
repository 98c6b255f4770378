//! The allowed pace at a site. Rules come from a job, from the broker's configuration and from robots.txt; if several rules
//! apply to a site, the slowest wins.

use crate::domain::targets::Rule;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Default delay between two requests to a site, in milliseconds.
pub const DEFAULT_DELAY_MS: u32 = 1_000;
/// The longest delay that a rule may set: one day.
pub const MOST_DELAY_MS: u32 = 86_400_000;
/// Maximum number of connections to a site without a pace.
pub const MOST_CONNECTIONS: u16 = 1_024;
/// Each delay is extended by a random part of up to `delay / 10`, so that requests are not sent at regular intervals. On average
/// a site gets 5 % fewer requests than the rules allow.
const JITTER: u32 = 10;

/// One rule: unset members impose no limit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Maximum number of concurrent connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u16>,
    /// Milliseconds between the end of a response and the start of the next request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u32>,
}

/// What the delay at a site comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "broker", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub enum DelayBy {
    /// Nothing sets it: it is the default.
    Default,
    /// The job.
    Job,
    /// A rule of the broker's operator.
    Operator,
    /// `Crawl-delay` in a robots.txt.
    Robots,
    /// The site answers slowly, so it is asked less often.
    SlowAnswers,
}

/// The pace at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Maximum number of concurrent connections; at least one.
    pub connections: u16,
    /// Milliseconds between the end of a response and the start of the next request; 0: no pace.
    pub delay_ms: u32,
}

impl Default for Pace {
    /// A rate that site owners generally accept.
    fn default() -> Self {
        Self { connections: 1, delay_ms: DEFAULT_DELAY_MS }
    }
}

impl Pace {
    /// No limits: a private site without a rule.
    pub const FREE: Self = Self { connections: MOST_CONNECTIONS, delay_ms: 0 };

    /// The delay with a random addition: at least the delay, and at most a tenth more.
    #[must_use]
    pub fn jittered_ms(self, dice: u32) -> u32 {
        let span = u64::from(self.delay_ms / JITTER);
        // The factor is below `span + 1`, so the sum fits.
        self.delay_ms.saturating_add(((u64::from(dice) * (span + 1)) >> 32) as u32)
    }
}

/// Combines all rules that apply to a site: the fewest connections and the longest delay. Values that no rule sets are the
/// default, or unlimited for a private site ([`super::is_private`]).
#[must_use]
pub fn slowest(is_private: bool, rules: impl IntoIterator<Item = Limits>) -> Pace {
    let mut all = Limits::default();
    for rule in rules {
        all.connections = [all.connections, rule.connections].into_iter().flatten().min();
        all.delay_ms = all.delay_ms.max(rule.delay_ms);
    }
    let usual = if is_private { Pace::FREE } else { Pace::default() };
    Pace {
        connections: all.connections.unwrap_or(usual.connections).clamp(1, MOST_CONNECTIONS),
        delay_ms: all.delay_ms.unwrap_or(usual.delay_ms).min(MOST_DELAY_MS),
    }
}

/// A rule of the broker's configuration: limits for the hosts of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRule {
    /// The hosts; `None`: all.
    hosts: Option<Rule>,
    /// The limits for these hosts.
    pub limits: Limits,
}

impl SiteRule {
    /// Whether it applies to a host, as written, and a port.
    #[must_use]
    pub fn is_about(&self, host: &str, port: u16) -> bool {
        self.hosts.as_ref().is_none_or(|rule| rule.is_written(host, port))
    }
}

/// Format: `PATTERN delay=MS connections=N`, with one or both limits: `*.example.org delay=5000 connections=2`. The pattern is a
/// host, `host:port`, `*.suffix`, an address, a network or `*`.
impl FromStr for SiteRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let shown = |text: &str| text.chars().take(120).collect::<String>();
        let wrong = |why: &str| {
            format!("`{}` is not a rule for sites: {why}. Write for example `*.example.org delay=5000 connections=2`", shown(text.trim()))
        };
        let mut words = text.split_whitespace();
        let hosts = match words.next().ok_or_else(|| wrong("it is empty"))? {
            "*" => None,
            pattern => Some(pattern.parse::<Rule>().map_err(|_| {
                wrong(&format!("`{}` is not a host, host:port, *.suffix, an address, a network like 10.0.0.0/8, or *", shown(pattern)))
            })?),
        };
        let mut limits = Limits::default();
        for word in words {
            match word.split_once('=') {
                Some(("delay", value)) if limits.delay_ms.is_none() => {
                    let ms = value.parse().ok().filter(|ms| *ms <= MOST_DELAY_MS);
                    let why = || wrong(&format!("`delay` is a number of milliseconds from 0 to {MOST_DELAY_MS} (a day)"));
                    limits.delay_ms = Some(ms.ok_or_else(why)?);
                }
                Some(("connections", value)) if limits.connections.is_none() => {
                    let count = value.parse().ok().filter(|count| (1..=MOST_CONNECTIONS).contains(count));
                    let why = || wrong(&format!("`connections` is a number from 1 to {MOST_CONNECTIONS}"));
                    limits.connections = Some(count.ok_or_else(why)?);
                }
                _ => {
                    let word = shown(word);
                    return Err(wrong(&format!(
                        "`{word}` is not expected: after the pattern come `delay=MS` and `connections=N`, each at most once"
                    )));
                }
            }
        }
        if limits == Limits::default() { Err(wrong("it has neither `delay` nor `connections`")) } else { Ok(Self { hosts, limits }) }
    }
}

/// Rules separated by commas or line breaks, as in an environment variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRules(pub Vec<SiteRule>);

impl FromStr for SiteRules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = text.split([',', '\n']).filter(|rule| !rule.trim().is_empty());
        let rules = rules.map(str::parse).collect::<Result<Vec<_>, String>>()?;
        // For an empty text the error of a single rule explains the expected form best.
        if rules.is_empty() && !text.trim().is_empty() { text.parse().map(|rule| Self(vec![rule])) } else { Ok(Self(rules)) }
    }
}
