//! What the rules allow at a site. Rules come from a job, from the broker's configuration and from robots.txt; of several
//! that speak about a site the slowest wins.

use crate::domain::targets::Rule;
use serde::{Deserialize, Serialize};
use std::str::FromStr;

/// Milliseconds between two requests to a site that no rule speaks about.
pub const DEFAULT_DELAY_MS: u32 = 1_000;
/// The longest delay that a rule may ask for, a day.
pub const MOST_DELAY_MS: u32 = 86_400_000;
/// Connections to a site that is not paced.
pub const MOST_CONNECTIONS: u16 = 1_024;
/// A delay is drawn out by up to this part of itself, so that requests do not come like clockwork: `delay / 10`. On average a
/// site is asked 5 % less often than the rules allow.
const JITTER: u32 = 10;

/// One rule: what it does not name it leaves open.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Limits {
    /// Connections at a time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connections: Option<u16>,
    /// Milliseconds between the beginnings of two requests.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u32>,
}

/// What holds at a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Connections at a time; at least one.
    pub connections: u16,
    /// Milliseconds between the beginnings of two requests; 0: it is not paced.
    pub delay_ms: u32,
}

impl Default for Pace {
    /// What a webmaster who has never heard of us accepts.
    fn default() -> Self {
        Self { connections: 1, delay_ms: DEFAULT_DELAY_MS }
    }
}

impl Pace {
    /// No limits: a private site that nobody has a rule for.
    pub const FREE: Self = Self { connections: MOST_CONNECTIONS, delay_ms: 0 };

    /// The delay for this draw of the dice: never less than the delay, and at most a tenth more.
    #[must_use]
    pub fn jittered_ms(self, dice: u32) -> u32 {
        let span = u64::from(self.delay_ms / JITTER);
        // Below `span + 1`, so the sum fits.
        self.delay_ms.saturating_add(((u64::from(dice) * (span + 1)) >> 32) as u32)
    }
}

/// The pace that follows from all rules that speak about a site: the fewest connections and the longest delay. What none of
/// them names is the default, or free at a private site ([`super::is_private`]).
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
    /// The hosts; none: all.
    hosts: Option<Rule>,
    /// What holds there.
    pub limits: Limits,
}

impl SiteRule {
    /// Whether it speaks about a host, as it is written, and a port.
    #[must_use]
    pub fn is_about(&self, host: &str, port: u16) -> bool {
        self.hosts.as_ref().is_none_or(|rule| rule.is_written(host, port))
    }
}

/// `PATTERN delay=MS connections=N`, one of the two or both: `*.example.org delay=5000 connections=2`. The pattern is a host,
/// `host:port`, `*.suffix`, an address, a network or `*`.
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

/// Rules with a comma or a line break between them, as an environment variable has them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteRules(pub Vec<SiteRule>);

impl FromStr for SiteRules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rules = text.split([',', '\n']).filter(|rule| !rule.trim().is_empty());
        let rules = rules.map(str::parse).collect::<Result<Vec<_>, String>>()?;
        // Of nothing at all the rule says best what is expected.
        if rules.is_empty() && !text.trim().is_empty() { text.parse().map(|rule| Self(vec![rule])) } else { Ok(Self(rules)) }
    }
}
